//! Results that are too long for a reply: a preview within every limit, and the whole to be read.

use rung_tokens::count_tokens;
use serde_json::{Value, json};

use crate::gateway::{
    GatewayClient, GatewayFixture, first_text, reply_data, result_handle, tool_error,
};

const BYTES: usize = 2 << 20;

/// The text the echo server returns for this number of bytes.
fn long_text(bytes: usize) -> String {
    let mut text = "0123456789abcdef".repeat(bytes / 16 + 1);
    text.truncate(bytes);
    text
}

/// Invokes a tool. Returns the size of the whole message and the result.
fn invoke_raw(client: &mut GatewayClient, arguments: &Value) -> (usize, Value) {
    let id = client.send_call("gateway.invoke", arguments);
    let answer = client.wait_for_reply(id);
    (answer.to_string().len(), answer["result"].clone())
}

/// The arguments of the continuation call that a preview names in its text.
fn next_call(result: &Value) -> Value {
    let text = first_text(result);
    let next = text.split_once("or continue with ").map(|(_, next)| next);
    let next = next.unwrap_or_else(|| panic!("no next call: {text:.300}"));
    let mut values = serde_json::Deserializer::from_str(next).into_iter::<Value>();
    values.next().unwrap().unwrap()
}

#[test]
fn a_long_text_is_shown_within_both_limits_and_read_byte_for_byte() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let (bytes, shown) = invoke_raw(
        &mut client,
        &json!({"tool_id": "house::text", "arguments": {"bytes": BYTES}}),
    );
    assert!(bytes <= 50_000, "{bytes} bytes");
    let cost = count_tokens(&shown.to_string());
    assert!((500..=4_000).contains(&cost), "{cost} tokens");
    // Clients that receive structured content hide the text from their model, so there is none.
    assert_eq!(shown["structuredContent"], Value::Null, "{shown}");
    assert_eq!(shown["_meta"]["rung/call"]["tool_id"], "house::text");
    assert!(
        first_text(&shown).contains(&long_text(1_000)),
        "it is shown in part"
    );
    let mut next = json!({"handle": result_handle(&shown), "path": "content[0].text"});
    let mut read = String::new();
    loop {
        let part = client.call("rung.read", &next);
        let part = &reply_data(&part);
        read.push_str(part["text"].as_str().unwrap_or_else(|| panic!("{part}")));
        match part["next_cursor"].as_str() {
            Some(cursor) => {
                next = json!({"handle": result_handle(&shown), "cursor": cursor, "limit_chars": 16_384});
            }
            None => break,
        }
    }
    assert!(read == long_text(BYTES), "{} bytes of {BYTES}", read.len());
    let whole: Value =
        serde_json::from_slice(&street.sandbox.export_result(result_handle(&shown))).unwrap();
    assert_eq!(whole["end"], true, "unknown members are kept, too");
    assert!(whole["content"][0]["text"] == long_text(BYTES).as_str());
}

#[test]
fn the_next_call_that_a_preview_names_is_one_that_works() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let (_, shown) = invoke_raw(
        &mut client,
        &json!({"tool_id": "house::text", "arguments": {"bytes": 100_000}}),
    );
    assert!(first_text(&shown).contains("rung.read"), "{shown}");
    // The continuation starts where the preview ends.
    let next = next_call(&shown);
    let read = client.call("rung.read", &next);
    assert_ne!(read["isError"], true, "{read}");
    let shown_text = first_text(&shown).split_once('\n').unwrap().1;
    let from = usize::try_from(next["offset_chars"].as_u64().unwrap()).unwrap();
    assert_eq!(shown_text, &long_text(100_000)[..from]);
    let read = reply_data(&read);
    let read = read["text"].as_str().unwrap();
    assert!(long_text(100_000)[from..].starts_with(read));
}

/// A result too large for memory has the same preview as any other.
#[test]
fn a_result_that_is_too_long_to_be_held_is_told_as_any_other() {
    const LONG: usize = 6 << 20;
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let (bytes, shown) = invoke_raw(
        &mut client,
        &json!({"tool_id": "house::text", "arguments": {"bytes": LONG}}),
    );
    assert!(bytes <= 50_000, "{bytes} bytes");
    assert!(count_tokens(&shown.to_string()) <= 4_000);
    assert_eq!(shown["structuredContent"], Value::Null, "{shown}");
    assert!(
        first_text(&shown).contains(&long_text(1_000)),
        "it is shown in part"
    );
    let read = client.call("rung.read", &json!({"handle": result_handle(&shown)}));
    assert_ne!(read["isError"], true, "{read}");
    let whole: Value =
        serde_json::from_slice(&street.sandbox.export_result(result_handle(&shown))).unwrap();
    assert!(whole["content"][0]["text"] == long_text(LONG).as_str());
}

/// Clients show their model one form: each form has its own limit, and only a form that was cut is marked so.
#[test]
fn each_form_of_a_result_is_limited_by_itself() {
    let street = GatewayFixture::with_echo_server();
    let policy = "limits: {max_output_bytes: 6000, max_output_tokens: 100000}";
    let file = street.sandbox.write("policy.yaml", policy);
    let mut client = street.client(&["--policy", file.to_str().unwrap()]);
    let mut rich = |bytes: usize| {
        let arguments = json!({"tool_id": "house::rich", "arguments": {"bytes": bytes}});
        invoke_raw(&mut client, &arguments).1
    };
    let whole = "word ".repeat(1_000);
    let shown = rich(5_000);
    assert_eq!(first_text(&shown), whole);
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

/// Two forms that each have nearly the whole limit are both sent whole.
#[test]
fn a_message_may_be_as_long_as_its_forms() {
    let street = GatewayFixture::with_echo_server();
    let policy = "limits: {max_output_tokens: 100000}";
    let file = street.sandbox.write("policy.yaml", policy);
    let mut client = street.client(&["--policy", file.to_str().unwrap()]);
    let arguments = json!({"tool_id": "house::rich", "arguments": {"bytes": 40_000}});
    let (bytes, shown) = invoke_raw(&mut client, &arguments);
    let whole = "word ".repeat(8_000);
    assert!(bytes > 80_000, "{bytes}");
    assert_eq!(first_text(&shown), whole);
    assert_eq!(shown["structuredContent"]["result"]["words"], whole);
}

/// A pattern finds each hit once, with its line; JSON in a text is read by path.
#[test]
fn a_stored_result_is_searched_in_its_texts() {
    let street = GatewayFixture::with_echo_server();
    let sandbox = &street.sandbox;
    let text = (1..=60).map(|n| format!("line {n} é\n"));
    let text = text.collect::<Vec<_>>().concat();
    let inner = json!({"rows": [{"id": 7}], "note": "needle"}).to_string();
    let result = json!({
        "content": [{"type": "text", "text": text}, {"type": "image", "data": "", "mimeType": "image/png"},
            {"type": "text", "text": inner}],
        "structuredContent": {"text": text, "note": "needle", "only": "here"},
    });
    let handle = sandbox.store_result("application/json", result.to_string());
    let mut client = street.client(&[]);
    let mut read = |arguments: Value| {
        let mut all = json!({"handle": handle});
        let members = arguments.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(members);
        client.call("rung.read", &all)["structuredContent"].clone()
    };
    let found = read(json!({"pattern": "^line 4[12] "}));
    let lines: Vec<&Value> = found["hits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| &hit["line"])
        .collect();
    assert_eq!(lines, [41, 42], "{found}");
    assert_eq!(found["path"], "content[0].text");
    assert_eq!(
        read(json!({"lines": "3-4"}))["text"],
        "line 3 é\nline 4 é\n"
    );
    // Matches of one text are followed by those of the next.
    let (mut hits, mut next) = (0, json!({"pattern": "line|needle"}));
    loop {
        let found = read(next);
        hits += found["hits"].as_array().unwrap().len();
        match found.get("next_cursor") {
            Some(cursor) => next = json!({"cursor": cursor}),
            None => break,
        }
    }
    assert_eq!(hits, 61);
    // What no text has is found in the JSON.
    let only = read(json!({"pattern": "here"}));
    assert_eq!(only["hits"].as_array().unwrap().len(), 1, "{only}");
    assert_eq!(
        read(json!({"path": "content[2].text.rows[0].id"}))["text"],
        "7"
    );
    assert_eq!(
        read(json!({"path": "content[2].text.rows[*].id"}))["text"],
        "[7]"
    );
}

/// An image stays in the reply when the text next to it is too long.
#[test]
fn a_picture_goes_on_as_it_came() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let (_, shown) = invoke_raw(&mut client, &json!({"tool_id": "house::picture"}));
    assert_eq!(shown["structuredContent"], Value::Null, "{shown}");
    assert_eq!(shown["content"][1]["type"], "image", "{shown}");
}

/// A result that fits is neither stored nor changed.
#[test]
fn a_text_that_fits_is_sent_as_it_is() {
    let street = GatewayFixture::with_echo_server();
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
        let street = GatewayFixture::with_echo_server();
        let file = street.sandbox.write("policy.yaml", policy);
        let mut client = street.client(&["--policy", file.to_str().unwrap()]);
        for bytes in [5_000, 12_000, 60_000, 400_000] {
            let (size, shown) = invoke_raw(
                &mut client,
                &json!({"tool_id": "house::text", "arguments": {"bytes": bytes}}),
            );
            assert!(size <= most_bytes, "{policy}: {size} bytes of {bytes}");
            let cost = count_tokens(&shown.to_string());
            assert!(cost <= most_tokens, "{policy}: {cost} tokens of {bytes}");
            assert_eq!(shown["structuredContent"], Value::Null, "{shown}");
            if first_text(&shown) != long_text(bytes) {
                let whole = street.sandbox.export_result(result_handle(&shown));
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
    let street = GatewayFixture::with_echo_server();
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
    let whole: Value =
        serde_json::from_slice(&street.sandbox.export_result(result_handle(&shown))).unwrap();
    assert!(whole["content"][0]["text"] == long_text(100_000).as_str());
    let refused = client.call(
        "gateway.invoke",
        &json!({"tool_id": "house::text", "options": {"max_output_chars": 5}}),
    );
    assert_eq!(tool_error(&refused)["code"], "invalid_arguments");
}

/// The smallest limits leave room for the handle and nothing else, and always for that.
#[test]
fn the_least_limits_still_hold_the_way_to_the_whole() {
    for policy in [
        "limits: {max_output_bytes: 512}",
        "limits: {max_output_tokens: 256}",
        "limits: {max_output_bytes: 700, max_output_tokens: 300}",
        "limits: {max_output_bytes: 1500}",
    ] {
        let street = GatewayFixture::with_echo_server();
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
            let cost = count_tokens(&shown.to_string());
            assert!(cost <= most, "{policy}: {cost} tokens: {shown}");
            if first_text(&shown) == long_text(bytes) {
                continue;
            }
            assert!(
                first_text(&shown).contains(result_handle(&shown)),
                "{shown}"
            );
            let whole = street.sandbox.export_result(result_handle(&shown));
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
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let (size, shown) = invoke_raw(
        &mut client,
        &json!({"tool_id": "house::text", "arguments": {"bytes": 5_000}, "options": {"max_output_chars": 100}}),
    );
    assert!(size <= 300, "{size} bytes: {shown}");
    let read = client.call("rung.read", &json!({"handle": result_handle(&shown)}));
    assert_ne!(read["isError"], true, "{read}");
}

#[test]
fn limits_that_nothing_fits_are_refused_before_anything_is_called() {
    for policy in [
        "limits: {max_output_bytes: 511}",
        "limits: {max_output_tokens: 50}",
    ] {
        let street = GatewayFixture::with_echo_server();
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
            told.contains("policy.yaml") && told.contains("is too small"),
            "{policy}: {told}"
        );
    }
}

/// Resources have the same byte limit.
#[test]
fn a_resource_is_bounded_by_the_policy_as_well() {
    let street = GatewayFixture::with_echo_server();
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
    let street = GatewayFixture::with_echo_server();
    let file = street
        .sandbox
        .write("policy.yaml", "limits: {max_tools_per_server: 3}");
    let mut client = street.client(&["--policy", file.to_str().unwrap()]);
    client.call("gateway.connect_server", &json!({"server_name": "house"}));
    let found = client.call("gateway.catalog_search", &json!({}));
    assert_eq!(reply_data(&found)["total"], 3, "{found}");
    // A tool over the limit is not merely unlisted.
    let beyond = client.invoke("house::book", &json!({"when": "x"}));
    assert_eq!(tool_error(&beyond)["code"], "unknown_tool", "{beyond}");
    let first = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&first)["ok"], true, "{first}");
    // The number of hidden tools is reported.
    let health = client.call("gateway.health", &json!({"server": "house"}));
    assert_eq!(
        reply_data(&health)["servers"][0]["hidden_tools"],
        17,
        "{health}"
    );
}

/// The token limit covers resources and prompts too.
#[test]
fn tokens_of_resources_and_prompts_are_bounded() {
    let street = GatewayFixture::with_echo_server();
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
        let cost = count_tokens(&said["result"].to_string());
        assert!((50..=400).contains(&cost), "{method}: {cost} tokens");
        assert!(said.to_string().contains("rung.read"), "{said}");
    }
}

/// Replies of the gateway's own tools have the same limits, and are stored whole if they do not fit.
#[test]
fn the_limits_of_the_policy_hold_for_what_we_say_ourselves() {
    for policy in [
        "limits: {max_output_bytes: 600}",
        "limits: {max_output_bytes: 900}",
        "limits: {max_output_tokens: 256}",
    ] {
        let street = GatewayFixture::with_echo_server();
        let file = street.sandbox.write("policy.yaml", policy);
        let mut client = street.client(&["--policy", file.to_str().unwrap()]);
        client.invoke("house::count", &json!({}));
        let (most_bytes, most_tokens) = match policy.split(": ").nth(2) {
            Some("600}") => (600, 4_000),
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
            let (size, cost) = (shown.to_string().len(), count_tokens(&shown.to_string()));
            assert!(size <= most_bytes, "{policy} {tool}: {size} bytes: {shown}");
            assert!(
                cost <= most_tokens,
                "{policy} {tool}: {cost} tokens: {shown}"
            );
            let whole: Value = if first_text(&shown).starts_with('{') {
                reply_data(&shown)
            } else {
                let whole = street.sandbox.export_result(result_handle(&shown));
                serde_json::from_slice(&whole).unwrap()
            };
            assert!(!whole[member].is_null(), "{policy} {tool}: {whole}");
        }
        for arguments in [
            json!({"tool_id": "house::coutn"}),
            json!({"tool_id": "house::book", "arguments": {"when": 7}}),
        ] {
            let refused = client.call("gateway.invoke", &arguments);
            assert_eq!(refused["isError"], true, "{refused}");
            for form in ["content", "structuredContent"] {
                let form = refused[form].to_string();
                let (size, cost) = (form.len(), count_tokens(&form));
                assert!(size <= most_bytes, "{policy}: {size} bytes: {refused}");
                assert!(cost <= most_tokens, "{policy}: {cost} tokens: {refused}");
            }
        }
    }
}

/// Errors are preserved too, both structured data and long texts.
#[test]
fn an_error_of_a_server_is_passed_on_whole() {
    let street = GatewayFixture::new();
    let mut leaks = crate::gateway::with_role("leaks");
    leaks["env"] = json!({"MY_TOKEN": "supersecret-98765"});
    street.configure(&json!({"leaks": leaks}));
    let mut client = street.client(&[]);
    let refused = client.invoke("leaks::refuse", &json!({}));
    let told = tool_error(&refused);
    assert_eq!(told["code"], "source_refused", "{refused}");
    let said = "my token is [REDACTED], and password=swordfish";
    assert_eq!(
        told["details"],
        json!({"rule": -32001, "data": {"password": "swordfish", "said": said}}),
        "{refused}"
    );
    let refused = client.invoke("leaks::lengthy", &json!({}));
    let told = tool_error(&refused);
    assert!(refused.to_string().len() < 12_000, "{refused}");
    let handle = told["details"]["handle"].as_str().expect("a handle");
    assert!(told["hint"].as_str().unwrap().contains(handle), "{told}");
    let whole: Value = serde_json::from_slice(&street.sandbox.export_result(handle)).unwrap();
    for whole in [&whole["message"], &whole["data"]["lines"][0]] {
        let whole = whole.as_str().unwrap();
        assert!(
            whole.contains("[REDACTED]") && whole.len() > 20_000,
            "{whole}"
        );
    }
    // The same for errors of other requests than tool calls.
    client.call("gateway.connect_server", &json!({"server_name": "leaks"}));
    let refused = client.request("resources/read", &json!({"uri": "leak:room/1"}));
    assert!(
        refused["error"]["message"].as_str().unwrap().contains(said),
        "{refused}"
    );
}

/// Modern structured content may be any JSON, and some legacy servers send that too.
#[test]
fn structured_content_that_is_no_object_is_passed_on() {
    let street = GatewayFixture::new();
    street.configure(&json!({"leaks": crate::gateway::with_role("leaks")}));
    let mut client = street.client(&[]);
    for value in [json!([1, 2]), json!("seven"), json!(7), json!(false)] {
        let said = client.invoke("leaks::give", &json!({"value": value}));
        assert_eq!(reply_data(&said)["result"], value, "{said}");
    }
}
