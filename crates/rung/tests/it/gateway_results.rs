//! Results that are too long to send: a preview within every limit, and the whole of it to be read.

use serde_json::{Value, json};

use crate::gateway::{Client, Street, error, handle, text};

const BYTES: usize = 2 << 20;

/// What the server says when it is asked for so many bytes.
fn long_text(bytes: usize) -> String {
    let mut text = "0123456789abcdef".repeat(bytes / 16 + 1);
    text.truncate(bytes);
    text
}

fn tokens(text: &str) -> usize {
    bpe_openai::o200k_base().count(text)
}

/// The result of a call, as it came.
fn invoke_raw(client: &mut Client, arguments: &Value) -> (usize, Value) {
    let id = client.begin("gateway.invoke", arguments);
    let answer = client.answer(id);
    (answer.to_string().len(), answer["result"].clone())
}

/// The arguments of the next call that a preview names in its text.
fn next_call(result: &Value) -> Value {
    let text = text(result);
    let next = text.split_once("or continue with ").map(|(_, next)| next);
    let next = next.unwrap_or_else(|| panic!("no next call: {text:.300}"));
    let mut values = serde_json::Deserializer::from_str(next).into_iter::<Value>();
    values.next().unwrap().unwrap()
}

#[test]
fn a_long_text_is_shown_within_both_limits_and_read_byte_for_byte() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    let (bytes, shown) = invoke_raw(
        &mut client,
        &json!({"tool_id": "house::text", "arguments": {"bytes": BYTES}}),
    );
    assert!(bytes <= 50_000, "{bytes} bytes");
    let cost = tokens(&shown.to_string());
    assert!((500..=4_000).contains(&cost), "{cost} tokens");
    // A client that is given structured content shows its model nothing else.
    assert_eq!(shown["structuredContent"], Value::Null, "{shown}");
    assert_eq!(shown["_meta"]["rung/call"]["tool_id"], "house::text");
    assert!(
        text(&shown).contains(&long_text(1_000)),
        "it is shown in part"
    );
    let mut next = json!({"handle": handle(&shown), "path": "content[0].text"});
    let mut read = String::new();
    loop {
        let part = client.call("rung.read", &next);
        let part = &part["structuredContent"];
        read.push_str(part["text"].as_str().unwrap_or_else(|| panic!("{part}")));
        match part["next_cursor"].as_str() {
            Some(cursor) => {
                next = json!({"handle": handle(&shown), "cursor": cursor, "limit_chars": 16_384});
            }
            None => break,
        }
    }
    assert!(read == long_text(BYTES), "{} bytes of {BYTES}", read.len());
    let whole: Value = serde_json::from_slice(&street.sandbox.export(handle(&shown))).unwrap();
    assert_eq!(whole["end"], true, "unknown members are kept, too");
    assert!(whole["content"][0]["text"] == long_text(BYTES).as_str());
}

#[test]
fn the_next_call_that_a_preview_names_is_one_that_works() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    let (_, shown) = invoke_raw(
        &mut client,
        &json!({"tool_id": "house::text", "arguments": {"bytes": 100_000}}),
    );
    assert!(text(&shown).contains("rung.read"), "{shown}");
    // It continues where the preview ends.
    let next = next_call(&shown);
    let read = client.call("rung.read", &next);
    assert_ne!(read["isError"], true, "{read}");
    let shown_text = text(&shown).split_once('\n').unwrap().1;
    let from = usize::try_from(next["offset_chars"].as_u64().unwrap()).unwrap();
    assert_eq!(shown_text, &long_text(100_000)[..from]);
    let read = read["structuredContent"]["text"].as_str().unwrap();
    assert!(long_text(100_000)[from..].starts_with(read));
}

/// However long it is, what is said of it is the same.
#[test]
fn a_result_that_is_too_long_to_be_held_is_told_as_any_other() {
    const LONG: usize = 6 << 20;
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    let (bytes, shown) = invoke_raw(
        &mut client,
        &json!({"tool_id": "house::text", "arguments": {"bytes": LONG}}),
    );
    assert!(bytes <= 50_000, "{bytes} bytes");
    assert!(tokens(&shown.to_string()) <= 4_000);
    assert_eq!(shown["structuredContent"], Value::Null, "{shown}");
    assert!(
        text(&shown).contains(&long_text(1_000)),
        "it is shown in part"
    );
    let read = client.call("rung.read", &json!({"handle": handle(&shown)}));
    assert_ne!(read["isError"], true, "{read}");
    let whole: Value = serde_json::from_slice(&street.sandbox.export(handle(&shown))).unwrap();
    assert!(whole["content"][0]["text"] == long_text(LONG).as_str());
}

/// A client shows its model one form: neither takes room from the other, and what is whole is not marked as cut.
#[test]
fn each_form_of_a_result_is_limited_by_itself() {
    let street = Street::with_a_house();
    let policy = "limits: {max_output_bytes: 6000, max_output_tokens: 100000}";
    let file = street.sandbox.write("policy.yaml", policy);
    let mut client = street.client(&["--policy", file.to_str().unwrap()]);
    let mut rich = |bytes: usize| {
        let arguments = json!({"tool_id": "house::rich", "arguments": {"bytes": bytes}});
        invoke_raw(&mut client, &arguments).1
    };
    let whole = "word ".repeat(1_000);
    let shown = rich(5_000);
    assert_eq!(text(&shown), whole);
    assert_eq!(shown["structuredContent"]["result"]["words"], whole);
    assert_eq!(shown["structuredContent"].get("truncated"), None);
    let shown = rich(50_000);
    for form in ["content", "structuredContent"] {
        let form = shown[form].to_string();
        assert!(
            (4_000..=6_000).contains(&form.len()),
            "{} bytes",
            form.len()
        );
        assert!(
            form.contains("res_") && form.contains("word word"),
            "{form}"
        );
    }
    assert_eq!(shown["structuredContent"]["truncated"], true, "{shown}");
}

/// The picture of a result whose text is too long stays beside it.
#[test]
fn a_picture_goes_on_as_it_came() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    let (_, shown) = invoke_raw(&mut client, &json!({"tool_id": "house::picture"}));
    assert_eq!(shown["structuredContent"], Value::Null, "{shown}");
    assert_eq!(shown["content"][1]["type"], "image", "{shown}");
}

/// What fits is not kept, and not touched.
#[test]
fn a_text_that_fits_is_sent_as_it_is() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    let (_, shown) = invoke_raw(
        &mut client,
        &json!({"tool_id": "house::text", "arguments": {"bytes": 900}}),
    );
    assert_eq!(shown["content"][0]["text"], long_text(900));
    assert_eq!(
        shown["structuredContent"]["truncated"],
        Value::Null,
        "{shown}"
    );
}

#[test]
fn the_limits_of_the_policy_hold_for_the_final_message() {
    for (policy, most_bytes, most_tokens) in [
        ("limits: {max_output_bytes: 6000}", 6_000, 4_000),
        ("limits: {max_output_tokens: 1000}", 50_000, 1_000),
        (
            "limits: {max_output_bytes: 20000, max_output_tokens: 2500}",
            20_000,
            2_500,
        ),
    ] {
        let street = Street::with_a_house();
        let file = street.sandbox.write("policy.yaml", policy);
        let mut client = street.client(&["--policy", file.to_str().unwrap()]);
        for bytes in [5_000, 12_000, 60_000, 400_000] {
            let (size, shown) = invoke_raw(
                &mut client,
                &json!({"tool_id": "house::text", "arguments": {"bytes": bytes}}),
            );
            assert!(size <= most_bytes, "{policy}: {size} bytes of {bytes}");
            let cost = tokens(&shown.to_string());
            assert!(cost <= most_tokens, "{policy}: {cost} tokens of {bytes}");
            assert_eq!(shown["structuredContent"], Value::Null, "{shown}");
            if text(&shown) != long_text(bytes) {
                let whole = street.sandbox.export(handle(&shown));
                let whole: Value = serde_json::from_slice(&whole).unwrap();
                assert!(
                    whole["content"][0]["text"] == long_text(bytes).as_str(),
                    "{policy}"
                );
            }
        }
    }
}

#[test]
fn a_caller_can_ask_for_less() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    let (wide, _) = invoke_raw(
        &mut client,
        &json!({"tool_id": "house::text", "arguments": {"bytes": 100_000}}),
    );
    let options = json!({"max_output_chars": 3_000});
    let (narrow, shown) = invoke_raw(
        &mut client,
        &json!({"tool_id": "house::text", "arguments": {"bytes": 100_000}, "options": options}),
    );
    assert!(narrow <= 3_000 && narrow < wide, "{narrow} of {wide}");
    let whole: Value = serde_json::from_slice(&street.sandbox.export(handle(&shown))).unwrap();
    assert!(whole["content"][0]["text"] == long_text(100_000).as_str());
    let refused = client.call(
        "gateway.invoke",
        &json!({"tool_id": "house::text", "options": {"max_output_chars": 5}}),
    );
    assert_eq!(error(&refused)["code"], "invalid_arguments");
}

/// The least limits that can be set hold nothing but the way to the result, and hold that always.
#[test]
fn the_least_limits_still_hold_the_way_to_the_whole() {
    for policy in [
        "limits: {max_output_bytes: 512}",
        "limits: {max_output_tokens: 256}",
        "limits: {max_output_bytes: 700, max_output_tokens: 300}",
        "limits: {max_output_bytes: 1500}",
    ] {
        let street = Street::with_a_house();
        let file = street.sandbox.write("policy.yaml", policy);
        let mut client = street.client(&["--policy", file.to_str().unwrap()]);
        let limit = |name: &str| -> Option<usize> {
            let number = policy.split(&format!("{name}: ")).nth(1)?;
            let digits = number.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse().ok()
        };
        for bytes in [150, 400, 3_000, 400_000, BYTES, 6 << 20] {
            let (size, shown) = invoke_raw(
                &mut client,
                &json!({"tool_id": "house::text", "arguments": {"bytes": bytes}}),
            );
            let most = limit("max_output_bytes").unwrap_or(50_000);
            assert!(size <= most, "{policy}: {size} bytes: {shown}");
            let most = limit("max_output_tokens").unwrap_or(4_000);
            let cost = tokens(&shown.to_string());
            assert!(cost <= most, "{policy}: {cost} tokens: {shown}");
            if text(&shown) == long_text(bytes) {
                continue;
            }
            assert!(text(&shown).contains(handle(&shown)), "{shown}");
            let whole = street.sandbox.export(handle(&shown));
            let whole: Value = serde_json::from_slice(&whole).unwrap();
            assert!(
                whole["content"][0]["text"] == long_text(bytes).as_str(),
                "{policy}"
            );
        }
    }
}

#[test]
fn the_least_that_a_caller_can_ask_for_is_the_way_to_the_whole() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    let (size, shown) = invoke_raw(
        &mut client,
        &json!({"tool_id": "house::text", "arguments": {"bytes": 5_000}, "options": {"max_output_chars": 100}}),
    );
    assert!(size <= 300, "{size} bytes: {shown}");
    let read = client.call("rung.read", &json!({"handle": handle(&shown)}));
    assert_ne!(read["isError"], true, "{read}");
}

#[test]
fn limits_that_nothing_fits_are_refused_before_anything_is_called() {
    for policy in [
        "limits: {max_output_bytes: 511}",
        "limits: {max_output_tokens: 50}",
    ] {
        let street = Street::with_a_house();
        let file = street.sandbox.write("policy.yaml", policy);
        let flags = ["--policy", file.to_str().unwrap()];
        let ended = street
            .command(&flags)
            .stderr(std::process::Stdio::piped())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "{policy}: {told}");
        assert!(
            told.contains("policy.yaml") && told.contains("is too little"),
            "{policy}: {told}"
        );
    }
}

/// What is read and filled in goes by the same bytes.
#[test]
fn a_resource_is_bounded_by_the_policy_as_well() {
    let street = Street::with_a_house();
    let file = street
        .sandbox
        .write("policy.yaml", "limits: {max_output_bytes: 1500}");
    let mut client = street.client(&["--policy", file.to_str().unwrap()]);
    client.call("gateway.connect_server", &json!({"server_name": "house"}));
    let listed = client.request("resources/list", &json!({}));
    let uris = listed["result"]["resources"].as_array().unwrap().iter();
    let uris: Vec<&str> = uris.map(|one| one["uri"].as_str().unwrap()).collect();
    assert!(!uris.is_empty(), "{listed}");
    for uri in uris {
        let read = client.request("resources/read", &json!({"uri": uri}));
        let size = read["result"].to_string().len();
        assert!(size <= 1_500, "{uri}: {size} bytes");
    }
}

#[test]
fn a_policy_bounds_the_tools_of_a_server() {
    let street = Street::with_a_house();
    let file = street
        .sandbox
        .write("policy.yaml", "limits: {max_tools_per_server: 3}");
    let mut client = street.client(&["--policy", file.to_str().unwrap()]);
    client.call("gateway.connect_server", &json!({"server_name": "house"}));
    let found = client.call("gateway.catalog_search", &json!({}));
    assert_eq!(found["structuredContent"]["total"], 3, "{found}");
    // What is over the limit is not merely unlisted.
    let beyond = client.invoke("house::book", &json!({"when": "x"}));
    assert_eq!(error(&beyond)["code"], "unknown_tool", "{beyond}");
    let first = client.invoke("house::count", &json!({}));
    assert_eq!(first["structuredContent"]["ok"], true, "{first}");
    // Nothing is dropped in silence.
    let health = client.call("gateway.health", &json!({"server": "house"}));
    assert_eq!(
        health["structuredContent"]["servers"][0]["hidden_tools"], 17,
        "{health}"
    );
}

/// What is read and filled in costs tokens as well.
#[test]
fn tokens_of_resources_and_prompts_are_bounded() {
    let street = Street::with_a_house();
    let file = street
        .sandbox
        .write("policy.yaml", "limits: {max_output_tokens: 400}");
    let mut client = street.client(&["--policy", file.to_str().unwrap()]);
    client.call("gateway.connect_server", &json!({"server_name": "house"}));
    let who = "a stranger and ".repeat(600);
    for (method, params) in [
        ("resources/read", json!({"uri": "house:room/700"})),
        (
            "prompts/get",
            json!({"name": "house::greet", "arguments": {"who": who}}),
        ),
    ] {
        let said = client.request(method, &params);
        let cost = tokens(&said["result"].to_string());
        assert!((50..=400).contains(&cost), "{method}: {cost} tokens");
        assert!(said.to_string().contains("rung.read"), "{said}");
    }
}

/// Whatever a tool of ours says goes by the same limits, and is kept whole where it does not fit.
#[test]
fn the_limits_of_the_policy_hold_for_what_we_say_ourselves() {
    for policy in [
        "limits: {max_output_bytes: 600}",
        "limits: {max_output_bytes: 900}",
        "limits: {max_output_tokens: 256}",
    ] {
        let street = Street::with_a_house();
        let file = street.sandbox.write("policy.yaml", policy);
        let mut client = street.client(&["--policy", file.to_str().unwrap()]);
        client.invoke("house::count", &json!({}));
        let (most_bytes, most_tokens) = match policy.split(": ").nth(2) {
            Some("300}") => (300, 4_000),
            Some("900}") => (900, 4_000),
            _ => (50_000, 256),
        };
        for (tool, arguments, member) in [
            (
                "gateway.describe",
                json!({"tool_id": "house::book", "full": true}),
                "input_schema",
            ),
            ("gateway.catalog_search", json!({}), "results"),
            ("gateway.health", json!({"server": "house"}), "servers"),
        ] {
            let shown = client.call(tool, &arguments);
            let (size, cost) = (shown.to_string().len(), tokens(&shown.to_string()));
            assert!(size <= most_bytes, "{policy} {tool}: {size} bytes: {shown}");
            assert!(
                cost <= most_tokens,
                "{policy} {tool}: {cost} tokens: {shown}"
            );
            let whole = street.sandbox.export(handle(&shown));
            let whole: Value = serde_json::from_slice(&whole).unwrap();
            assert!(!whole[member].is_null(), "{policy} {tool}: {whole}");
        }
        for arguments in [
            json!({"tool_id": "house::coutn"}),
            json!({"tool_id": "house::book", "arguments": {"when": 7}}),
        ] {
            let refused = client.call("gateway.invoke", &arguments);
            assert_eq!(refused["isError"], true, "{refused}");
            let (size, cost) = (refused.to_string().len(), tokens(&refused.to_string()));
            assert!(size <= most_bytes, "{policy}: {size} bytes: {refused}");
            assert!(cost <= most_tokens, "{policy}: {cost} tokens: {refused}");
        }
    }
}

/// Nothing of an error is lost either: neither what is said in data nor what is long.
#[test]
fn an_error_of_a_server_is_passed_on_whole() {
    let street = Street::new();
    let mut leaks = crate::gateway::plays("leaks");
    leaks["env"] = json!({"MY_TOKEN": "supersecret-98765"});
    street.configure(&json!({"leaks": leaks}));
    let mut client = street.client(&[]);
    let refused = client.invoke("leaks::refuse", &json!({}));
    let told = error(&refused);
    assert_eq!(told["code"], "source_refused", "{refused}");
    let said = "my token is [REDACTED], and password=swordfish";
    assert_eq!(
        told["details"],
        json!({"rule": -32001, "data": {"password": "swordfish", "said": said}}),
        "{refused}"
    );
    let refused = client.invoke("leaks::lengthy", &json!({}));
    let told = error(&refused);
    assert!(refused.to_string().len() < 12_000, "{refused}");
    let handle = told["details"]["handle"].as_str().expect("a handle");
    assert!(told["hint"].as_str().unwrap().contains(handle), "{told}");
    let whole: Value = serde_json::from_slice(&street.sandbox.export(handle)).unwrap();
    for whole in [&whole["message"], &whole["data"]["lines"][0]] {
        let whole = whole.as_str().unwrap();
        assert!(
            whole.contains("[REDACTED]") && whole.len() > 20_000,
            "{whole}"
        );
    }
    // The same where it is no tool that is refused.
    client.call("gateway.connect_server", &json!({"server_name": "leaks"}));
    let refused = client.request("resources/read", &json!({"uri": "leak:room/1"}));
    assert!(
        refused["error"]["message"].as_str().unwrap().contains(said),
        "{refused}"
    );
}

/// The modern era has any JSON as structured content, and the earlier ones have been seen to, too.
#[test]
fn structured_content_that_is_no_object_is_passed_on() {
    let street = Street::new();
    street.configure(&json!({"leaks": crate::gateway::plays("leaks")}));
    let mut client = street.client(&[]);
    for value in [json!([1, 2]), json!("seven"), json!(7), json!(false)] {
        let said = client.invoke("leaks::give", &json!({"value": value}));
        assert_eq!(said["structuredContent"]["result"], value, "{said}");
    }
}
