//! Tool calls through the gateway: arguments and results pass unchanged, and errors name the wrong field.

use serde_json::{Value, json};

use crate::gateway::{GatewayFixture, first_text, reply_data, tool_error, with_role};

#[test]
fn a_tool_is_described_briefly_or_with_its_whole_schema() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let brief = client.call("gateway.describe", &json!({"tool_id": "house::book"}));
    let brief = &reply_data(&brief);
    assert_eq!(
        (&brief["server"], &brief["tool_name"]),
        (&json!("house"), &json!("book"))
    );
    assert_eq!(brief["title"], "Book a room");
    assert!(brief.get("input_schema").is_none(), "{brief}");
    let [when, kind, guests] = brief["args"].as_array().unwrap().as_slice() else {
        panic!("{brief}");
    };
    assert_eq!(
        (&when["name"], &when["type"], &when["required"]),
        (&json!("when"), &json!("string"), &json!(true))
    );
    assert_eq!(
        (&kind["enum"], &kind["default"]),
        (&json!(["single", "double"]), &json!("double"))
    );
    assert_eq!(
        (&guests["nested"], &guests["required"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(
        brief["invoke_template"],
        json!({"tool_id": "house::book", "arguments": {"when": "<string>"}})
    );
    let full = client.call(
        "gateway.describe",
        &json!({"tool_id": "house::book", "full": true}),
    );
    let full = &reply_data(&full);
    let adults = &full["input_schema"]["properties"]["guests"]["properties"]["adults"];
    assert_eq!(adults["minimum"], 1, "{full}");
    // The invocation template works as it is.
    assert_eq!(brief["invoke_as"], "gateway.invoke");
    let mut arguments = brief["invoke_template"].clone();
    arguments["arguments"]["when"] = "tomorrow".into();
    let done = client.call("gateway.invoke", &arguments);
    assert_eq!(first_text(&done), "booked", "{done}");
}

#[test]
fn what_is_wrong_with_arguments_is_told_with_its_place_and_nothing_is_called() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    for (arguments, place, words) in [
        (json!({}), "", "when"),
        (json!({"when": 7}), "when", "string"),
        (
            json!({"when": "x", "guests": {"adults": "two"}}),
            "guests",
            "adults",
        ),
        (
            json!({"when": "x", "guests": {"adults": 0}}),
            "guests",
            "adults",
        ),
        (json!({"when": "x", "kind": "triple"}), "kind", "single"),
    ] {
        let refused = client.invoke("house::book", &arguments);
        let refused = tool_error(&refused);
        assert_eq!(
            refused["code"], "invalid_arguments",
            "{arguments}: {refused}"
        );
        let told = refused.to_string();
        assert!(
            told.contains(place) && told.contains(words),
            "{arguments}: {told}"
        );
    }
    assert_eq!(street.trace_count("house", "book"), 0);
}

#[test]
fn what_the_gateway_does_not_take_it_does_not_ignore() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    for arguments in [
        json!({"tool_id": "house::count", "argument": {}}),
        json!({"tool_id": "house::count", "options": {"timeout": 5}}),
        json!({"tool_id": "house::count", "options": {"timeout_ms": 5}}),
        json!({"tool_id": "house::count", "arguments": [1]}),
        json!({"tool_id": "house::count", "trace_context": {"traceparents": "x"}}),
        json!({"tool_id": "house::count", "trace_context": {"baggage": 7}}),
        json!({"tool_id": "house::count", "run_correlation_id": ""}),
        json!({"tool_id": "house::count", "seat_correlation_id": "x".repeat(129)}),
        json!({"tool_id": "house::count", "evidence_label_digest": "abc"}),
        json!({"tool_id": "house::count", "task": {"ttl": 9_007_199_254_741_u64}}),
        json!({"tool_id": "house::count", "task": {"poll_interval": 1e13}}),
        json!({"tool_id": "house::count", "task": {"poll_interval": 0}}),
        json!({"arguments": {}}),
    ] {
        let refused = client.call("gateway.invoke", &arguments);
        assert_eq!(
            tool_error(&refused)["code"],
            "invalid_arguments",
            "{arguments}: {refused}"
        );
    }
    for (tool, arguments) in [
        ("gateway.health", json!({"servers": "house"})),
        (
            "gateway.catalog_search",
            json!({"filters": {"servers": "house"}}),
        ),
        ("gateway.catalog_search", json!({"limit": 0})),
        (
            "gateway.describe",
            json!({"tool_id": "house::count", "whole": true}),
        ),
    ] {
        let refused = client.call(tool, &arguments);
        assert_eq!(
            tool_error(&refused)["code"],
            "invalid_arguments",
            "{tool}: {refused}"
        );
    }
    assert_eq!(street.trace_count("house", "count"), 0);
}

#[test]
fn a_tool_that_is_not_there_is_told_with_the_nearest_that_is() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    for tool in ["gateway.invoke", "gateway.describe"] {
        let unknown = client.call(tool, &json!({"tool_id": "house::cuont"}));
        let unknown = tool_error(&unknown);
        assert_eq!(unknown["code"], "unknown_tool", "{unknown}");
        assert!(
            unknown["hint"].as_str().unwrap().contains("`house::count`"),
            "{tool}: {unknown}"
        );
    }
    let unknown = client.call("gateway.connect_server", &json!({"server_name": "huose"}));
    // The hint lists the servers and suggests none.
    let unknown = tool_error(&unknown);
    let hint = unknown["hint"].as_str().unwrap();
    assert!(hint.contains("gateway.health"), "{unknown}");
    assert_eq!(unknown["details"], json!({"allowed": ["house"]}));
    let unknown = client.invoke("nowhere::count", &json!({}));
    assert_eq!(tool_error(&unknown)["code"], "unknown_tool", "{unknown}");
}

#[test]
fn a_bare_name_is_enough_where_only_one_tool_has_it() {
    let street = GatewayFixture::new();
    street.configure(
        &json!({"house": street.echo_server("house"), "other": street.echo_server("other")}),
    );
    let mut client = street.client(&[]);
    client.invoke("house::count", &json!({}));
    let counted = client.invoke("count", &json!({}));
    assert_eq!(reply_data(&counted)["tool_id"], "house::count", "{counted}");
    client.invoke("other::grow", &json!({}));
    let ambiguous = client.invoke("count", &json!({}));
    let ambiguous = tool_error(&ambiguous);
    let hint = ambiguous["hint"].as_str().unwrap();
    assert!(
        hint.contains("house::count") && hint.contains("other::count"),
        "{ambiguous}"
    );
    let unique = crate::gateway::wait_until("the new tool is known", || {
        let done = client.invoke("harvest", &json!({}));
        (done["isError"] != true).then_some(done)
    });
    assert_eq!(
        unique["_meta"]["rung/call"]["tool_id"], "other::harvest",
        "{unique}"
    );
}

#[test]
fn a_result_comes_with_everything_it_had() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let id = client.send_invoke("house::rich", &json!({}));
    let rich = client.wait_for_reply(id)["result"].clone();
    assert_eq!(
        rich["structuredContent"],
        json!({"tool_id": "house::rich", "ok": true, "result": {"z": 1.5, "a": [2]}})
    );
    assert_eq!(rich["_meta"]["vendor/trace"], "t-1");
    assert_eq!(rich["vendor"], json!({"deep": [1.0]}));
    assert_eq!(
        rich["content"],
        json!([{"type": "text", "text": "rich", "annotations": {"priority": 0.5}}])
    );
    // Also the spelling of numbers and the order of keys.
    let raw = rich.to_string();
    assert!(raw.contains(r#""z":1.5"#), "{raw}");
    client.stdio.send_bytes(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"gateway.invoke\",\"arguments\":{\"tool_id\":\"house::rich\"}}}\n");
    let line = loop {
        let line = client.stdio.next_line().unwrap();
        if line.contains("\"id\":7") {
            break line;
        }
    };
    assert!(line.contains(r#"{"z":1.50,"a":[2]}"#), "{line}");
    assert!(line.contains(r#""priority":0.50"#), "{line}");
}

#[test]
fn a_picture_stays_a_picture() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let drawn = client.invoke("house::picture", &json!({}));
    assert_eq!(
        drawn["content"][1],
        json!({"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"})
    );
    // The image is not repeated in a text block.
    assert_eq!(
        drawn.to_string().matches("iVBORw0KGgo=").count(),
        1,
        "{drawn}"
    );
}

#[test]
fn what_fails_at_the_server_fails_for_the_caller() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let failed = client.invoke("house::fails", &json!({}));
    assert_eq!(failed["isError"], true, "{failed}");
    assert_eq!(first_text(&failed), "the shelf is empty");
    assert_eq!(failed["structuredContent"], Value::Null, "{failed}");
    assert_eq!(failed["_meta"]["vendor/trace"], "t-2");
    assert_eq!(failed["_meta"]["rung/call"]["tool_id"], "house::fails");
}

#[test]
fn a_modern_client_gets_the_same() {
    let street = GatewayFixture::with_echo_server();
    let mut client = crate::stdio::StdioClient::spawn(&mut street.command(&[]));
    let params = json!({"name": "gateway.invoke", "arguments": {"tool_id": "house::rich"}});
    let answer = client.request("tools/call", &crate::stdio::with_modern_meta(params));
    let result = &answer["result"];
    assert_eq!(
        reply_data(result)["result"],
        json!({"z": 1.5, "a": [2]}),
        "{answer}"
    );
    assert_eq!(result["_meta"]["vendor/trace"], "t-1");
    assert_ne!(result["isError"], Value::from(true));
}

/// Many clients write null for an absent argument.
#[test]
fn null_is_as_good_as_nothing_where_nothing_is_required() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let filters = json!({"server": null, "tags": null, "risk_max": null});
    let options = json!({"timeout_ms": null, "max_output_chars": null, "redact_secrets": null});
    let trace = json!({"traceparent": null, "tracestate": null, "baggage": null});
    for (tool, arguments) in [
        (
            "gateway.catalog_search",
            json!({"query": null, "filters": null, "limit": null, "include_offline": null}),
        ),
        ("gateway.catalog_search", json!({"filters": filters})),
        (
            "gateway.describe",
            json!({"tool_id": "house::say", "full": null}),
        ),
        (
            "gateway.invoke",
            json!({"tool_id": "house::say", "arguments": null, "task": null, "options": null, "trace_context": null, "_meta": null,
                "run_correlation_id": null, "seat_correlation_id": null, "evidence_label_digest": null}),
        ),
        (
            "gateway.invoke",
            json!({"tool_id": "house::say", "options": options, "trace_context": trace, "task": {"enabled": false, "ttl": null}}),
        ),
        (
            "gateway.refresh",
            json!({"source": null, "reason": null, "force": null}),
        ),
        (
            "gateway.health",
            json!({"server": null, "all": null, "status": null}),
        ),
        ("gateway.list_pending", json!({"server": null})),
        (
            "gateway.tasks_list",
            json!({"server_name": null, "cursor": null, "requestor_context": null}),
        ),
    ] {
        let said = client.call(tool, &arguments);
        assert_ne!(said["isError"], true, "{tool} {arguments}: {said}");
    }
    // Arguments reach the server unchanged.
    let mirror = json!({"text": "x", "more": null});
    let said = client.invoke("house::say", &mirror);
    assert_eq!(first_text(&said), "x", "{said}");
    let refused = client.call("gateway.describe", &json!({"tool_id": null}));
    assert_eq!(
        tool_error(&refused)["code"],
        "invalid_arguments",
        "{refused}"
    );
    let refused = client.call("gateway.refresh", &json!({"unheard_of": null}));
    assert_eq!(
        tool_error(&refused)["code"],
        "invalid_arguments",
        "{refused}"
    );
}

#[test]
fn what_there_is_to_an_argument_is_told_or_marked() {
    let street = GatewayFixture::new();
    street.configure(&json!({"leaks": with_role("leaks")}));
    let mut client = street.client(&[]);
    let told = client.call("gateway.describe", &json!({"tool_id": "leaks::give"}));
    let told = reply_data(&told);
    let arguments = told["args"].as_array().unwrap();
    let argument = |name: &str| arguments.iter().find(|one| one["name"] == name).unwrap();
    assert_eq!(argument("code")["nested"], true, "{told}");
    assert_eq!(
        argument("tags")["item_schema"],
        json!({"type": "string", "enum": ["x", "y"]}),
        "{told}"
    );
    for plain in ["a", "names"] {
        let argument = argument(plain);
        assert!(argument.get("nested").is_none(), "{told}");
        assert!(argument.get("item_schema").is_none(), "{told}");
    }
}

#[test]
fn what_is_wrong_inside_of_an_option_is_told_with_its_place() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    for (member, close) in [
        ("options", "timeout_m"),
        ("trace_context", "traceparents"),
        ("task", "metadatas"),
    ] {
        let refused = client.call(
            "gateway.invoke",
            &json!({"tool_id": "house::count", member: {close: 1}}),
        );
        let told = tool_error(&refused);
        assert_eq!(told["code"], "invalid_arguments", "{refused}");
        assert!(told["hint"].as_str().is_some(), "{refused}");
        let path = told["details"]["path"].as_str().unwrap();
        assert!(path.starts_with(member), "{refused}");
    }
    assert_eq!(street.trace_count("house", "count"), 0);
}

/// The trace context of the request is forwarded; one in the call's own `_meta` takes precedence.
#[test]
fn a_call_is_traced_through_the_gateway() {
    let street = GatewayFixture::new();
    street.configure(&json!({"mirror": with_role("meta")}));
    let mut client = street.client(&[]);
    let trace =
        json!({"traceparent": "00-outer", "tracestate": "a=1", "baggage": "b=2", "other": "no"});
    for (own, expected) in [(None, "00-outer"), (Some("00-inner"), "00-inner")] {
        let mut arguments = json!({"tool_id": "mirror::a"});
        if let Some(own) = own {
            arguments["_meta"] = json!({"traceparent": own});
        }
        let said = client.request(
            "tools/call",
            &json!({"name": "gateway.invoke", "arguments": arguments, "_meta": trace}),
        );
        let meta: Value = serde_json::from_str(first_text(&said["result"])).unwrap();
        assert_eq!(meta["traceparent"], expected, "{said}");
        assert_eq!(
            (&meta["tracestate"], &meta["baggage"], &meta["other"]),
            (&json!("a=1"), &json!("b=2"), &Value::Null),
            "{said}"
        );
    }
}

/// With `--tool-names plain`, definitions and hints use the plain names.
#[test]
fn tools_are_named_as_the_caller_knows_them() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&["--tool-names", "plain"]);
    let listed = client.request("tools/list", &json!({}));
    let listed = listed["result"]["tools"].to_string();
    assert!(listed.contains("gateway_invoke"), "{listed}");
    for dotted in ["gateway.", "rung.read"] {
        assert!(!listed.contains(dotted), "{listed}");
    }
    let told = client.call("gateway_describe", &json!({"tool_id": "house::say"}));
    assert_eq!(reply_data(&told)["invoke_as"], "gateway_invoke", "{told}");
}

/// The 14 tool definitions cost tokens for every client that lists them.
#[test]
fn the_definitions_are_short() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let listed = client.request("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    let ours: Vec<&Value> = tools
        .filter(|tool| tool["name"].as_str().unwrap().starts_with("gateway."))
        .collect();
    let bytes = json!(ours).to_string().len();
    assert!(bytes <= 6_000, "{bytes} bytes");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let street = GatewayFixture::new();
    let mut house = street.echo_server("house");
    house["cwd"] = "/nowhere/at/all".into();
    street.configure(&json!({"house": house}));
    let mut client = street.client(&[]);
    let failed = client.invoke("house::count", &json!({}));
    let told = tool_error(&failed)["message"].as_str().unwrap();
    assert!(told.contains("/nowhere/at/all"), "{failed}");
    assert!(!told.contains("could not be started"), "{failed}");
}

/// The list is too short to describe every parameter; `gateway.describe` describes them all.
#[test]
fn a_gateway_tool_is_described_like_any_other() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let told = client.call("gateway.describe", &json!({"tool_id": "gateway.invoke"}));
    let told = &reply_data(&told);
    assert_eq!(told["invoke_as"], "gateway.invoke", "{told}");
    let args = told["args"].as_array().unwrap();
    assert!(
        args.iter()
            .any(|arg| arg["name"] == "evidence_label_digest")
    );
    for arg in args {
        let description = arg["short_description"].as_str().unwrap_or_default();
        assert!(!description.is_empty(), "{arg}");
    }
    let full = json!({"tool_id": "gateway.invoke", "full": true});
    let told = client.call("gateway.describe", &full);
    let schema = &reply_data(&told)["input_schema"];
    let timeout = &schema["properties"]["options"]["properties"]["timeout_ms"];
    assert!(
        timeout["description"]
            .as_str()
            .unwrap()
            .contains("milliseconds"),
        "{told}"
    );
}

#[test]
fn a_time_out_of_range_is_refused_with_its_bound() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    for (member, value) in [
        ("ttl", json!(9_007_199_254_741_u64)),
        ("poll_interval", json!(1e13)),
    ] {
        let call = json!({"tool_id": "house::count", "task": {member: value}});
        let refused = client.call("gateway.invoke", &call);
        assert_eq!(
            tool_error(&refused)["message"],
            format!("`task.{member}` is out of range: at most 9,007,199,254,740,991 ms"),
            "{refused}"
        );
    }
}
