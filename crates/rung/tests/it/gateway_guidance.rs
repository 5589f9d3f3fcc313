//! Advice that is given along the way, and no more of it than the user wants.

use serde_json::{Value, json};

use crate::gateway::{Client, Street, until};

const FILE: &str = ".claude/gateway-guidance.yaml";
const PAGE: &str = "pmcp://guidance/code-execution";

/// What is said in the instructions, on a card, beside a description, and on the page.
fn advice(client: &mut Client) -> (bool, Value, Value, bool) {
    let told = client.greeted["result"]["instructions"].as_str().unwrap();
    let told = told.contains("write code");
    let found = until("the server is seen", || {
        let found = client.call(
            "gateway.catalog_search",
            &json!({"query": "book a hotel room"}),
        );
        let found = found["structuredContent"]["results"].clone();
        (found[0]["tool_id"] == "house::book").then_some(found)
    });
    assert_eq!(
        found[0].get("code_hint"),
        None,
        "a book is no list: {found}"
    );
    let found = client.call("gateway.catalog_search", &json!({"limit": 30}));
    let cards = found["structuredContent"]["results"].as_array().unwrap();
    let card = cards.iter().find(|card| card["tool_id"] == "house::add");
    let hint = card.expect("it adds something")["code_hint"].clone();
    let described = client.call("gateway.describe", &json!({"tool_id": "house::add"}));
    let snippet = described["structuredContent"]["code_snippet"].clone();
    let listed = client.request("resources/list", &json!({}));
    let page = listed["result"]["resources"].as_array().unwrap();
    let page = page.iter().any(|resource| resource["uri"] == PAGE);
    (told, hint, snippet, page)
}

fn file(street: &Street, text: &str) {
    let folder = street.sandbox.home().join(".claude");
    std::fs::create_dir_all(folder).unwrap();
    street.sandbox.write(FILE, text);
}

#[test]
fn a_word_is_said_unless_more_is_wanted_or_less() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    assert_eq!(advice(&mut client), (true, json!("try"), Value::Null, true));
    let read = client.request("resources/read", &json!({"uri": PAGE}));
    let page = &read["result"]["contents"][0];
    assert_eq!(page["mimeType"], "text/markdown", "{read}");
    let text = page["text"].as_str().unwrap();
    assert!(
        text.contains("gateway.invoke") && text.contains("rung.read"),
        "{text}"
    );
    drop(client);
    file(
        &street,
        "guidance:\n  level: standard\n  custom_instructions: Ask before you book.\n",
    );
    let mut client = street.client(&["--tool-names", "plain"]);
    let told = client.greeted["result"]["instructions"].as_str().unwrap();
    assert!(told.contains("Ask before you book."), "{told}");
    let described = client.call("gateway_describe", &json!({"tool_id": "house::add"}));
    let snippet = described["structuredContent"]["code_snippet"]
        .as_str()
        .unwrap();
    assert!(snippet.contains("call(\"gateway_invoke\""), "{snippet}");
    assert!(snippet.contains("\"house::add\""), "{snippet}");
    let read = client.request("resources/read", &json!({"uri": PAGE}));
    let text = read["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("gateway_invoke") && !text.contains("gateway.invoke"),
        "{text}"
    );
    drop(client);
    file(&street, "guidance: {level: off}");
    let mut client = street.client(&[]);
    assert_eq!(
        advice(&mut client),
        (false, Value::Null, Value::Null, false)
    );
    let read = client.request("resources/read", &json!({"uri": PAGE}));
    assert!(read.get("error").is_some(), "{read}");
}

#[test]
fn an_edit_is_taken_up_and_a_file_that_cannot_be_read_is_told_of() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    assert_eq!(advice(&mut client).1, "try");
    file(
        &street,
        "guidance: {layers: {code_hints: false, code_snippets: true}}",
    );
    until("the edit is taken up", || {
        let (_, hint, snippet, _) = advice(&mut client);
        (hint.is_null() && snippet.is_string()).then_some(())
    });
    file(&street, "guidance: {level: loud}");
    let problems = until("the file is told of", || {
        let health = client.call("gateway.health", &json!({}));
        let problems = health["structuredContent"]["problems"].to_string();
        problems
            .contains("gateway-guidance.yaml")
            .then_some(problems)
    });
    assert!(problems.contains("loud"), "{problems}");
    let (_, hint, snippet, _) = advice(&mut client);
    assert!(
        hint.is_null() && snippet.is_string(),
        "what held before holds"
    );
    drop(client);
    // What may have been switched off is not switched on by a slip.
    let mut client = street.client(&[]);
    assert_eq!(
        advice(&mut client),
        (false, Value::Null, Value::Null, false)
    );
}
