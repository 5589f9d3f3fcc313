//! Rare but valid input: numbers outside every type's range, lone surrogates, errors of unbounded length, ambiguous names.

use std::process::Command;

use data_encoding::BASE64URL_NOPAD;
use serde_json::{Value, json};

use super::fake_provider::{FakeProvider, write_response};
use super::{Agent, start_adapter};
use crate::sandbox::{Sandbox, run};

const TOKEN: &str = "s3cret-bearer-of-the-agent";

/// A provider that always returns this response.
fn constant_provider(status: u16, body: impl Into<Vec<u8>>) -> FakeProvider {
    let body = body.into();
    FakeProvider::with_responder(move |_, stream| {
        write_response(
            stream,
            status,
            "application/json",
            "Request-Id: req_fake\r\n",
            &body,
        );
    })
}

fn list_body(data: &str) -> String {
    let row = format!(
        r#"{{"object":"record","id":"m","stream":"messages","connection_id":"c","data":{data}}}"#
    );
    format!(r#"{{"object":"list","data":[{row}],"has_more":false}}"#)
}

/// Calls a tool and returns the raw line of the reply.
fn call_raw_line(agent: &mut Agent<'_>, tool: &str, arguments: &Value) -> String {
    let Agent::Stdio(stdio) = agent else {
        unreachable!("it is started over pipes")
    };
    stdio.send_request("tools/call", &json!({"name": tool, "arguments": arguments}));
    stdio.next_line().expect("an answer")
}

fn nested(depth: usize, inner: &str) -> String {
    format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth))
}

#[test]
fn errors_stay_within_the_budget_whatever_is_in_them() {
    let numbers: Vec<String> = (0..3_000).map(|n| n.to_string()).collect();
    let numbers = numbers.join(",");
    let strange = Value::from("\u{1}\"\\".repeat(20_000)).to_string();
    let names: Vec<String> = (0..5_000).map(|n| format!("\"n{n}\":{n}")).collect();
    let mut more: Vec<String> = [0, 20, 60, 100, 120, 130, 2_000]
        .into_iter()
        .map(|depth| format!("\"more\":{}", nested(depth, &format!("[{numbers}]"))))
        .collect();
    more.extend([
        names.join(","),
        format!("\"more\":{{{}}}", names.join(",")),
        format!("\"{}\":1", "n".repeat(60_000)),
        format!("\"more\":{strange}"),
        format!("\"more\":{}", nested(118, "1")),
    ]);
    for more in more {
        let error = format!(
            r#"{{"error":{{{more},"type":"api_error","code":"odd_one","message":"why","hint":"do"}}}}"#
        );
        let provider = constant_provider(500, error);
        for (flags, most) in [(&[][..], 12_000), (&["--max-reply-bytes", "4000"], 4_000)] {
            let sandbox = Sandbox::new();
            let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, flags);
            let check = |told: &Value, bytes: usize, what: &str| {
                let about = more.chars().take(60).collect::<String>();
                assert!(bytes <= most, "{what}: {bytes} bytes of {about}");
                let error = &told["error"];
                let known = ["code", "message", "hint"].map(|name| error[name].as_str());
                assert_eq!(known, [Some("odd_one"), Some("why"), Some("do")], "{about}");
                assert_eq!(told["http_status"], 500);
            };
            for (tool, arguments) in [
                ("query_records", json!({"stream": "messages"})),
                ("schema", json!({})),
                ("fetch", json!({"id": "c/messages:m"})),
            ] {
                let given = agent.call(tool, arguments);
                assert_eq!(given.result["isError"], true);
                let words: Value = serde_json::from_str(given.text()).unwrap();
                assert_eq!(words, given.structured()["error"]);
                check(given.structured(), given.bytes, tool);
            }
            for uri in ["pdpp://record/c%2Fmessages%3Am", "pdpp://stream/messages"] {
                let (read, bytes) = agent.request("resources/read", json!({"uri": uri}));
                let text = read["result"]["contents"][0]["text"].as_str().unwrap();
                check(&serde_json::from_str(text).unwrap(), bytes, uri);
            }
        }
    }
}

#[test]
fn an_error_of_any_length_is_reported() {
    let long = "\u{1}\"\\ä".repeat(20_000);
    let error = json!({"type": long, "code": long, "message": long, "hint": long, "more": [long]});
    let provider = constant_provider(500, json!({"error": error}).to_string());
    let sandbox = Sandbox::new();
    let flags = ["--max-reply-bytes", "4000"];
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &flags);
    let given = agent.call("query_records", json!({"stream": "messages"}));
    assert!(given.bytes <= 4_000, "{}", given.bytes);
    for name in ["type", "code", "message", "hint"] {
        let told = given.structured()["error"][name].as_str().unwrap();
        assert!(told.len() > 20 && long.starts_with(told), "{name}: {told}");
    }
}

#[test]
fn an_error_that_fits_is_as_it_was() {
    let deep: Value = serde_json::from_str(&nested(60, "1,2,3")).unwrap();
    let error = json!({"type": "t", "code": "c", "message": "m", "more": deep});
    let provider = constant_provider(409, json!({"error": error}).to_string());
    let sandbox = Sandbox::new();
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
    let mut told = agent.call_error("query_records", json!({"stream": "messages"}));
    assert_eq!(told["request_id"].take(), "req_fake");
    told.as_object_mut().unwrap().remove("request_id");
    assert_eq!(told, error);
}

#[test]
fn halves_of_characters_spoil_nothing() {
    let body = list_body(r#"{"cut":"ab \ud83e","pair":"\ud83e\udd80","low":"\udd80x"}"#);
    let provider = constant_provider(200, body);
    let sandbox = Sandbox::new();
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
    let given = agent.call_ok("query_records", json!({"stream": "messages"}));
    assert_eq!(
        given.structured()["data"]["data"][0]["data"],
        json!({"cut": "ab \u{fffd}", "pair": "\u{1f980}", "low": "\u{fffd}x"})
    );
}

#[test]
fn unreadable_responses_are_reported_accurately() {
    let message = |body: Vec<u8>| {
        let provider = constant_provider(200, body);
        let sandbox = Sandbox::new();
        let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
        let error = agent.call_error("query_records", json!({"stream": "messages"}));
        assert_eq!(error["code"], "source_failed");
        error["message"].as_str().unwrap().to_owned()
    };
    for depth in [130, 10_000] {
        let told = message(list_body(&nested(depth, "1")).into_bytes());
        assert!(told.contains("nested deeper than 124 levels"), "{told}");
        assert!(!told.contains("is not"), "{told}");
    }
    for body in [&b"{\"data\":[1,]}"[..], b"{\"data\":\"\xff\"}"] {
        let told = message(body.to_vec());
        assert!(
            told.contains("is declared as JSON but is not valid JSON"),
            "{told}"
        );
    }
    // The deepest nesting that is accepted also reaches clients with the lowest nesting limit.
    let provider = constant_provider(200, list_body(&nested(120, "1")));
    let sandbox = Sandbox::new();
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
    agent.call_ok("query_records", json!({"stream": "messages"}));
}

#[test]
fn a_number_without_end_is_cut_where_it_is_no_more_than_a_label() {
    let long = format!("1.{}", "0".repeat(7_000));
    let record = format!(
        r#"{{"id":"m","stream":"messages","connection_id":"c","created_at":{long},"data":{{"text":"hello"}}}}"#
    );
    let provider = constant_provider(200, record);
    let sandbox = Sandbox::new();
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
    let fetched = agent.call_ok("fetch", json!({"id": "c/messages:m"}));
    let told = fetched.structured();
    assert_eq!(told["text"], "hello", "{told}");
    assert!(told["metadata"]["created_at"].is_string(), "{told}");
    let cut = &told["content_ladder"]["metadata"]["cut"];
    assert_eq!(cut, &json!(["created_at"]), "{told}");
}

#[test]
fn numbers_are_passed_on_as_they_came() {
    let data = r#"{"large":123456789012345678901234567890,"zero":-0,"price":1.10,"power":1E3,"most":1e400,"id":7}"#;
    let provider = FakeProvider::with_responder(move |asked, stream| {
        let body = match asked.path() {
            path if path.ends_with("/aggregate") => {
                format!(
                    r#"{{"object":"aggregation","groups":[{{"key":1.10,"count":1,"data":{data}}}]}}"#
                )
            }
            "/v1/schema" => format!(r#"{{"object":"schema","connectors":[],"data":{data}}}"#),
            "/v1/streams/messages" => format!(r#"{{"name":"messages","data":{data}}}"#),
            path if path.ends_with("/records/m") => {
                format!(
                    r#"{{"id":"m","stream":"messages","connection_id":"c","created_at":1.10,"data":{data},"expanded":{{"of":{{"id":"o","price":1.10}}}}}}"#
                )
            }
            _ => list_body(data),
        };
        write_response(stream, 200, "application/json", "", body.as_bytes());
    });
    let sandbox = Sandbox::new();
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
    for (tool, arguments) in [
        ("query_records", json!({"stream": "messages"})),
        ("search", json!({"q": "x"})),
        ("schema", json!({})),
        (
            "aggregate",
            json!({"stream": "messages", "metric": "count", "group_by": "a"}),
        ),
    ] {
        let line = call_raw_line(&mut agent, tool, &arguments);
        assert!(line.contains(&format!("\"data\":{data}")), "{tool}: {line}");
    }
    let read = agent.read_resource("pdpp://stream/messages");
    let text = read["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(text.contains("\"price\": 1.10,"), "{text}");
    let fetched = call_raw_line(&mut agent, "fetch", &json!({"id": "c/messages:m"}));
    for whole in [
        r#"\"large\": 123456789012345678901234567890,\n"#,
        r#"\"price\": 1.10,\n"#,
        r#""created_at":1.10"#,
        r#""expanded":{"of":{"id":"o","price":1.10}}"#,
    ] {
        assert!(fetched.contains(whole), "{whole}: {fetched}");
    }
    let read = agent.read_resource("pdpp://record/c%2Fmessages%3Am");
    let text = read["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(text.contains("\"price\": 1.10,"), "{text}");
    let sandbox = Sandbox::new();
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &["--fetch-data"]);
    let fetched = call_raw_line(&mut agent, "fetch", &json!({"id": "c/messages:m"}));
    assert!(fetched.contains(&format!("\"data\":{data}")), "{fetched}");
    // Converting the number rounds it and does not fail.
    let most = json!({"id": "c/messages:m", "field_path": "most"});
    let line = call_raw_line(&mut agent, "read_record_field", &most);
    assert!(!line.contains("internal error"), "{line}");
}

#[test]
fn commas_in_a_text_are_no_values() {
    let table = "1,2,3,\\\"4\\\"\\n".repeat(150_000);
    let provider = constant_provider(200, list_body(&format!(r#"{{"csv":"{table}"}}"#)));
    let sandbox = Sandbox::new();
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
    let given = agent.call_ok("query_records", json!({"stream": "messages"}));
    assert!(given.bytes <= 12_000, "{}", given.bytes);
    let numbers = "1,".repeat(400_001);
    let provider = constant_provider(200, list_body(&format!("[{numbers}1]")));
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
    let error = agent.call_error("query_records", json!({"stream": "messages"}));
    let told = error["message"].as_str().unwrap();
    assert!(told.contains("more than 400000 values"), "{told}");
}

#[test]
fn an_ambiguous_name_is_refused_before_a_request_is_sent() {
    let provider = constant_provider(200, "{}");
    let sandbox = Sandbox::new();
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
    for id in ["orders:a/b:c", "pdpp://record/orders%3Aa%2Fb%3Ac"] {
        for (tool, more) in [("fetch", None), ("read_record_field", Some("body"))] {
            let mut arguments = json!({"id": id});
            if let Some(field) = more {
                arguments["field_path"] = json!(field);
            }
            let error = agent.call_error(tool, arguments);
            assert_eq!(error["code"], "invalid_record_identity", "{tool}");
        }
    }
    let parts =
        json!({"connection_id": "c", "stream": "s", "record_id": "a/b", "field_path": "body"});
    let error = agent.call_error("read_record_field", parts);
    assert_eq!(error["code"], "invalid_argument", "{error}");
    let window = r#"{"v":1,"kind":"field-window","connection_id":"c","stream":"s","record_id":"r","field_path":"f","token":"x"}"#;
    let handle = BASE64URL_NOPAD.encode(window.as_bytes());
    let read = agent.read_resource(&format!("pdpp://field-window/{handle}"));
    let told = read["error"]["message"].as_str().unwrap();
    assert!(told.contains("malformed"), "{told}");
    assert!(provider.requests().is_empty(), "{:?}", provider.requests());
}

#[test]
fn an_address_that_is_none_is_refused_as_such() {
    let sandbox = Sandbox::new();
    for (url, status) in [
        ("notaurl", 64),
        ("not a url", 64),
        ("https://", 64),
        ("file:///etc/passwd", 64),
        ("localhost", 78),
        ("http://localhost:9", 78),
        ("pdpp.example.com", 78),
    ] {
        let ran = run(sandbox
            .command()
            .args(["pdpp", "mcp", "--provider-url", url]));
        assert_eq!(ran.status, status, "{url}: {}", ran.stderr);
        assert!(ran.stdout.is_empty());
    }
}

#[test]
fn under_another_name_it_knows_no_other() {
    let sandbox = Sandbox::new();
    let said = |name: &str, flags: &[&str]| {
        let link = sandbox.home().join(name);
        let _there = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rung"), &link);
        let ran = run(Command::new(&link)
            .env_clear()
            .env("HOME", sandbox.home())
            .args(flags));
        let told = format!("{}{}", ran.stdout, ran.stderr);
        (ran.status, ran.stdout, told)
    };
    for (name, flags, usage) in [
        (
            "pdpp-mcp-server",
            &["--help"][..],
            "pdpp-mcp-server [OPTIONS]",
        ),
        ("pdpp", &["--help"], "pdpp [OPTIONS] <COMMAND>"),
        (
            "pdpp",
            &["connect", "--help"],
            "pdpp connect [OPTIONS] <PROVIDER_URL>",
        ),
        ("pdpp", &["mcp", "--help"], "pdpp mcp [OPTIONS]"),
        ("pmcp", &["--help"], "pmcp [OPTIONS]"),
        ("dtlv", &["--help"], "dtlv [OPTIONS]"),
    ] {
        let (status, _, told) = said(name, flags);
        assert_eq!(status, 0, "{told}");
        assert!(told.contains(&format!("Usage: {usage}")), "{told}");
        assert!(told.contains("--home <DIR>"), "{told}");
    }
    for name in ["pdpp-mcp-server", "pdpp", "pmcp", "dtlv"] {
        let (status, _, told) = said(name, &["--version"]);
        let version = format!("{name} {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!((status, told), (0, version));
        let (status, out, told) = said(name, &["--no-such-flag"]);
        assert_eq!((status, out.as_str()), (2, ""));
        assert!(told.contains(&format!("Usage: {name}")), "{told}");
        assert!(!told.contains(&format!("{name} pdpp")), "{told}");
    }
    let (_, out, _) = said("pdpp-mcp-server", &["--help"]);
    assert_eq!(out, "", "its output is for messages");
}
