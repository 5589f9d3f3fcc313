//! Parameters and results are relayed byte for byte: over every transport, in both eras, and through Rung's own server.

use std::sync::Arc;

use crate::faulty_server::{HttpServerFixture, command, default_options, http, stdio};
use crate::fixture::{FullResultStore, connect_in_era, serve_http, server_config};
use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestRunner};
use rung_mcp::connect::{Options, ServerConnection, ServerResult, ServerTarget};
use rung_mcp::{Capabilities, DownstreamToolSource, McpServer, ServerConfig};
use serde_json::value::RawValue;
use tokio::runtime::Runtime;

/// Messages that typed layers often change.
const CORPUS: [&str; 14] = [
    "{}",
    r#"{"name":"x","arguments":{"b":1,"a":2,"b ":3,"B":4}}"#,
    r#"{"n":[1,1.0,1.00,1e0,1E+2,-0,-0.0,0.1e-7,123456789012345678901234567890,1e400,0.30000000000000004]}"#,
    r#"{"a":1,"a":2,"\u0061":3,"a":4}"#,
    r#"{"_meta":{"a":{"b":{"c":{"d":{"e":[{"f":null}]}}}},"vendor.example/x":[ 1 , 2 ]},"x":1}"#,
    r#"{"_meta":{},"x":{"_meta":{"progressToken":"inner"}}}"#,
    r#"{"x":1,"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}"#,
    r#"{"content":[{"type":"hologram","depth":3.10,"vendor":{"x":true}},{"type":"text","text":"a","annotations":{"x":1}}],"structuredContent":[1,2],"vendor/field":"kept"}"#,
    r#"{"content":[],"isError":false,"isError":true,"resultType":"complete"}"#,
    r#"{"s":"\u0000\u001f\ud83d\ude00 \/ \\ \" é 世界 \u00e9","empty":"","":"no name"}"#,
    "{ \"spaced\" : [ ] ,\t\"tabs\":\t{ } , \"x\" :\t1 }",
    r#"{"execution":{"taskSupport":"optional"},"icons":[{"src":"data:,"}],"task":{"ttl":60000.0}}"#,
    r#"{"contents":[{"uri":"x:y","blob":"AA==","extra":0.10}],"messages":[{"role":"user","content":{"type":"new"}}]}"#,
    r#"{"protocolVersion":"2025-11-25","capabilities":{"experimental":{"a/b":{}},"tasks":{}},"serverInfo":{"name":"x","extra":1}}"#,
];

/// Any JSON object, in any notation.
fn any_object() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?",
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        prop_oneof![Just("null"), Just("true"), Just("false")].prop_map(str::to_owned),
    ];
    let name = prop_oneof![
        "[a-c_]{0,3}",
        Just("_meta".to_owned()),
        Just("content".to_owned())
    ];
    let space = prop_oneof![Just(""), Just(" "), Just("\t ")];
    let object = move |value: BoxedStrategy<String>| {
        let member = (name.clone(), space.clone(), value).prop_map(|(name, space, value)| {
            format!(
                "{}{space}:{space}{value}",
                serde_json::to_string(&name).unwrap()
            )
        });
        proptest::collection::vec(member, 0..5)
            .prop_map(|members| format!("{{{}}}", members.join(",")))
    };
    let nested = object.clone();
    let value = leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            nested(inner.clone().boxed()),
            proptest::collection::vec(inner, 0..4)
                .prop_map(|items| format!("[{}]", items.join(" , "))),
        ]
    });
    object(value.boxed())
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

/// Has the server echo `params`.
fn echo(runtime: &Runtime, connection: &ServerConnection, params: &str) -> String {
    let params = raw(params);
    let asked = connection.request("echo/it", Some(&params), default_options());
    let answer = runtime.block_on(asked).unwrap();
    let ServerResult::InMemory(result) = answer else {
        panic!("it is long");
    };
    result.get().to_owned()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn check(connection: &ServerConnection, law: impl Fn(&str, &str) -> Result<(), TestCaseError>) {
    let runtime = runtime();
    for text in CORPUS {
        law(text, &echo(&runtime, connection, text)).unwrap();
    }
    let mut runner = TestRunner::new(Runs {
        cases: 300,
        failure_persistence: None,
        ..Runs::default()
    });
    let ran = runner.run(&any_object(), |text| {
        law(&text, &echo(&runtime, connection, &text))
    });
    ran.unwrap();
}

#[test]
fn a_legacy_server_gets_and_gives_the_same_bytes() {
    let (plain, stream, old) = (http("plain"), http("plain-stream"), http("old"));
    for connection in [
        &stdio("plain"),
        &plain.connection,
        &stream.connection,
        &old.connection,
    ] {
        check(connection, |sent, got| {
            prop_assert_eq!(sent, got);
            Ok(())
        });
    }
}

/// Modern requests carry client data in `_meta`. All other bytes stay unchanged.
#[test]
fn a_modern_server_gets_and_gives_the_same_bytes_except_client_meta() {
    let (plain, stream) = (http("modern"), http("modern-stream"));
    for connection in [&stdio("modern"), &plain.connection, &stream.connection] {
        check(connection, |sent, got| {
            // Members can be added to an object only.
            let last = member_spans(sent)
                .into_iter()
                .rev()
                .find(|(key, _)| key == "_meta");
            prop_assume!(last.is_none_or(|(_, meta)| meta.starts_with('{')));
            let theirs = meta_of(got).expect("it is there");
            let (before, after) = split_around(got, theirs);
            let Some(ours) = meta_of(sent) else {
                let before = before.trim_end_matches(':').trim_end_matches("\"_meta\"");
                let after = after.strip_prefix(',').unwrap_or(after);
                prop_assert_eq!(format!("{before}{after}"), sent);
                return Ok(());
            };
            prop_assert_eq!(split_around(sent, ours), (before, after));
            let own = |text: &str| -> Vec<(String, String)> {
                let said =
                    |(key, _): &(String, String)| !key.starts_with("io.modelcontextprotocol/");
                members(text).into_iter().filter(said).collect()
            };
            prop_assert_eq!(own(ours), own(theirs));
            Ok(())
        });
    }
}

/// Returns the last `_meta` member, if its value is an object.
fn meta_of(text: &str) -> Option<&str> {
    let found = member_spans(text)
        .into_iter()
        .rev()
        .find(|(key, _)| key == "_meta");
    found
        .map(|(_, value)| value)
        .filter(|value| value.starts_with('{'))
}

fn split_around<'t>(text: &'t str, part: &'t str) -> (&'t str, &'t str) {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    (&text[..start], &text[start + part.len()..])
}

fn members(text: &str) -> Vec<(String, String)> {
    member_spans(text)
        .into_iter()
        .map(|(key, value)| (key, value.to_owned()))
        .collect()
}

/// Returns the members of an object byte for byte, found by a parser that is independent of the crate's.
fn member_spans(text: &str) -> Vec<(String, &str)> {
    let bytes = text.as_bytes();
    let mut at = text.find('{').unwrap() + 1;
    let mut found = Vec::new();
    let skip = |mut at: usize| {
        while bytes[at].is_ascii_whitespace() {
            at += 1;
        }
        at
    };
    let string_end = |mut at: usize| {
        at += 1;
        while bytes[at] != b'"' {
            at += if bytes[at] == b'\\' { 2 } else { 1 };
        }
        at + 1
    };
    loop {
        at = skip(at);
        if bytes[at] == b'}' {
            return found;
        }
        let end = string_end(at);
        let key: String = serde_json::from_str(&text[at..end]).unwrap();
        at = skip(skip(end) + 1);
        let start = at;
        let mut depth = 0;
        loop {
            match bytes[at] {
                b'"' => at = string_end(at),
                b'{' | b'[' => {
                    depth += 1;
                    at += 1;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    at += 1;
                }
                b',' | b'}' if depth == 0 => break,
                _ => at += 1,
            }
        }
        found.push((key, text[start..at].trim_end()));
        at += usize::from(bytes[at] == b',');
    }
}

/// Arguments and results pass from the client through Rung's server to a downstream server and back.
#[test]
fn calls_through_a_server_of_ours_keep_every_byte() {
    for (back, front) in [
        ("mirror", "legacy"),
        ("modern-mirror", "legacy"),
        ("mirror", "modern"),
        ("modern-mirror", "modern"),
    ] {
        let runtime = runtime();
        let door: HttpServerFixture = serve_through(&runtime, ServerTarget::Command(command(back)));
        let era = if front == "modern" {
            rung_mcp::connect::Era::Modern
        } else {
            rung_mcp::connect::Era::Legacy
        };
        let connection = connect_in_era(&door.url, era);
        let tools = runtime
            .block_on(connection.tools(&default_options()))
            .unwrap();
        let tool = &tools.tools[0];
        // The definition is the downstream server's, byte for byte.
        assert_eq!(
            tool.definition.get(),
            r#"{"name":"a","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}"#
        );
        let law = |text: &str| {
            let arguments = raw(text);
            let answer = runtime
                .block_on(connection.call(tool, &arguments, default_options()))
                .unwrap();
            let ServerResult::InMemory(result) = answer else {
                panic!("it is long");
            };
            // A modern result begins with `resultType` and `_meta`.
            let got = result.get();
            let own = got.strip_prefix('{').filter(|_| front == "modern");
            let got = match own {
                Some(rest) => {
                    let kind = r#""resultType":"complete""#;
                    let rest = rest.strip_prefix(kind).unwrap_or(rest);
                    let rest = rest.strip_prefix(',').unwrap_or(rest);
                    let meta = r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"between","version":"0"}}"#;
                    let rest = rest.strip_prefix(meta).unwrap_or(rest);
                    format!("{{{}", rest.strip_prefix(',').unwrap_or(rest))
                }
                None => got.to_owned(),
            };
            assert_eq!(text, got, "{back} {front}");
        };
        for text in CORPUS {
            law(text);
        }
        let mut runner = TestRunner::new(Runs {
            cases: 100,
            failure_persistence: None,
            ..Runs::default()
        });
        runner
            .run(&any_object(), |text| {
                law(&text);
                Ok(())
            })
            .unwrap();
    }
}

fn serve_through(runtime: &Runtime, target: ServerTarget) -> HttpServerFixture {
    let remote = DownstreamToolSource::new(
        target,
        Options::new("behind"),
        Capabilities::default(),
        Arc::new(FullResultStore),
    );
    let server = McpServer::new(ServerConfig {
        tools: Arc::new(remote),
        ..server_config()
    });
    HttpServerFixture::from_url(runtime.block_on(serve_http(server)))
}
