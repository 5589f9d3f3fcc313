//! Guidance in instructions, search results and descriptions, at the level the user chooses.

use serde_json::{Value, json};

use crate::gateway::{GatewayClient, GatewayFixture, reply_data, wait_until};

const GUIDANCE_FILE: &str = ".claude/gateway-guidance.yaml";
const GUIDANCE_URI: &str = "pmcp://guidance/code-execution";

/// The guidance in the instructions, on a search card, in a description, and in the list of resources.
fn collect_guidance(client: &mut GatewayClient) -> (bool, Value, Value, bool) {
    let told = client.initialize_reply["result"]["instructions"]
        .as_str()
        .unwrap();
    let told = told.contains("write code");
    let found = wait_until("the server is seen", || {
        let found = client.call(
            "gateway.catalog_search",
            &json!({"query": "book a hotel room"}),
        );
        let found = reply_data(&found)["results"].clone();
        (found[0]["tool_id"] == "house::book").then_some(found)
    });
    assert_eq!(
        found[0].get("code_hint"),
        None,
        "a book is no list: {found}"
    );
    let found = client.call("gateway.catalog_search", &json!({"limit": 30}));
    let found = reply_data(&found);
    let cards = found["results"].as_array().unwrap();
    let card = cards.iter().find(|card| card["tool_id"] == "house::add");
    let hint = card.expect("it adds something")["code_hint"].clone();
    let described = client.call("gateway.describe", &json!({"tool_id": "house::add"}));
    let snippet = reply_data(&described)["code_snippet"].clone();
    let listed = client.request("resources/list", &json!({}));
    let page = listed["result"]["resources"].as_array().unwrap();
    let page = page.iter().any(|resource| resource["uri"] == GUIDANCE_URI);
    (told, hint, snippet, page)
}

fn write_guidance_file(street: &GatewayFixture, text: &str) {
    let folder = street.sandbox.home().join(".claude");
    std::fs::create_dir_all(folder).unwrap();
    street.sandbox.write(GUIDANCE_FILE, text);
}

#[test]
fn guidance_is_brief_unless_the_user_wants_more_or_less() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    assert_eq!(
        collect_guidance(&mut client),
        (true, json!("try"), Value::Null, true)
    );
    let read = client.request("resources/read", &json!({"uri": GUIDANCE_URI}));
    let page = &read["result"]["contents"][0];
    assert_eq!(page["mimeType"], "text/markdown", "{read}");
    let text = page["text"].as_str().unwrap();
    assert!(
        text.contains("gateway.invoke") && text.contains("rung.read"),
        "{text}"
    );
    drop(client);
    write_guidance_file(
        &street,
        "guidance:\n  level: standard\n  custom_instructions: Ask before you book.\n",
    );
    let mut client = street.client(&["--tool-names", "plain"]);
    let told = client.initialize_reply["result"]["instructions"]
        .as_str()
        .unwrap();
    assert!(told.contains("Ask before you book."), "{told}");
    let described = client.call("gateway_describe", &json!({"tool_id": "house::add"}));
    let described = reply_data(&described);
    let snippet = described["code_snippet"].as_str().unwrap();
    assert!(snippet.contains("call(\"gateway_invoke\""), "{snippet}");
    assert!(snippet.contains("\"house::add\""), "{snippet}");
    let read = client.request("resources/read", &json!({"uri": GUIDANCE_URI}));
    let text = read["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("gateway_invoke") && !text.contains("gateway.invoke"),
        "{text}"
    );
    drop(client);
    write_guidance_file(&street, "guidance: {level: off}");
    let mut client = street.client(&[]);
    assert_eq!(
        collect_guidance(&mut client),
        (false, Value::Null, Value::Null, false)
    );
    let read = client.request("resources/read", &json!({"uri": GUIDANCE_URI}));
    assert!(read.get("error").is_some(), "{read}");
}

#[test]
fn an_edit_is_taken_up_and_a_file_that_cannot_be_read_is_told_of() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    assert_eq!(collect_guidance(&mut client).1, "try");
    write_guidance_file(
        &street,
        "guidance: {layers: {code_hints: false, code_snippets: true}}",
    );
    wait_until("the edit is taken up", || {
        let (_, hint, snippet, _) = collect_guidance(&mut client);
        (hint.is_null() && snippet.is_string()).then_some(())
    });
    write_guidance_file(&street, "guidance: {level: loud}");
    let problems = wait_until("the file is told of", || {
        let health = client.call("gateway.health", &json!({}));
        let problems = reply_data(&health)["problems"].to_string();
        problems
            .contains("gateway-guidance.yaml")
            .then_some(problems)
    });
    assert!(problems.contains("loud"), "{problems}");
    let (_, hint, snippet, _) = collect_guidance(&mut client);
    assert!(
        hint.is_null() && snippet.is_string(),
        "the previous configuration stays in effect"
    );
    drop(client);
    // At startup an unreadable file turns guidance off, as it may have been off before.
    let mut client = street.client(&[]);
    assert_eq!(
        collect_guidance(&mut client),
        (false, Value::Null, Value::Null, false)
    );
}
