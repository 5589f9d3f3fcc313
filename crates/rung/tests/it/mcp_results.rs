//! Long results over MCP: as tool, as resource and under plain names, every reply within its limit.

use serde_json::{Value, json};

use crate::bounds::form_bytes;
use crate::http::{ServerProcess, modern_request};
use crate::sandbox::Sandbox;
use crate::stdio::StdioClient;

/// A text with every kind of character, and a length that is no multiple of a window.
fn long_text() -> String {
    let lines = (0..4_000).map(|n| format!("line {n}: \"é\u{1F980}\\\t{}\n", "x".repeat(n % 37)));
    lines.collect()
}

#[test]
fn the_tool_reads_a_result_to_its_end_within_the_bound_of_each_form() {
    let sandbox = Sandbox::new();
    let text = long_text();
    let handle = sandbox.store_result("text/plain", &text);
    for (version, bound) in [
        ("2024-11-05", 4_000),
        ("2025-11-25", 20_000),
        ("2026-07-28", 4_000),
        ("2026-07-28", 50_000),
    ] {
        let set = format!("reply.max_bytes={bound}");
        let mut client = StdioClient::start(&sandbox, &["--set", &set]);
        let is_modern = version == "2026-07-28";
        if !is_modern {
            client.initialize(version, &json!({}));
        }
        let mut arguments = json!({"handle": handle});
        let mut read = String::new();
        loop {
            let mut params = json!({"name": "rung.read", "arguments": arguments});
            if is_modern {
                // The tasks extension does not make the windows smaller.
                let can = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
                params["_meta"] = crate::stdio::modern_meta(&can);
            }
            client.send_request("tools/call", &params);
            let line = client.next_line().unwrap();
            let reply: Value = serde_json::from_str(&line).unwrap();
            let around_bytes = line.len() - reply["result"].to_string().len();
            for bytes in form_bytes(&reply["result"]) {
                let bytes = bytes + around_bytes;
                assert!(bytes <= bound, "{version}: {bytes} bytes of {bound}");
            }
            // The text block is two header lines, then the content.
            let content = reply["result"]["content"][0]["text"]
                .as_str()
                .unwrap_or_else(|| panic!("{line}"));
            let mut parts = content.splitn(3, '\n');
            let (_header, next, text) = (
                parts.next().unwrap(),
                parts.next().unwrap(),
                parts.next().unwrap(),
            );
            read.push_str(text);
            match next.strip_prefix("next rung.read ") {
                Some(next) => arguments = serde_json::from_str(next).unwrap(),
                None => break,
            }
        }
        assert!(read == text, "{version}: every byte");
    }
}

#[test]
fn a_resource_reads_the_same_windows_and_says_where_it_goes_on() {
    let sandbox = Sandbox::new();
    let text = long_text();
    let handle = sandbox.store_result("text/plain", &text);
    for bound in [4_000, 8_000, 50_000] {
        assert_resource_complete(&sandbox, &text, bound);
    }
    let mut client = StdioClient::start(&sandbox, &["--set", "reply.max_bytes=8000"]);
    client.initialize("2025-11-25", &json!({}));
    let listed = client.request("resources/list", &json!({}));
    let uri = listed["result"]["resources"][0]["uri"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(uri, format!("rung://result/{handle}"));
    assert_eq!(listed["result"]["resources"][0]["size"], text.len());
    let part = |client: &mut StdioClient, query: &str| {
        let reply = client.request("resources/read", &json!({"uri": format!("{uri}?{query}")}));
        reply["result"]["contents"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{reply}"))
            .to_owned()
    };
    assert_eq!(
        part(&mut client, "lines=3-3"),
        text.split_inclusive('\n').nth(2).unwrap()
    );
    assert_eq!(
        part(&mut client, "offset_chars=5&limit_chars=3"),
        text.chars().skip(5).take(3).collect::<String>()
    );
    assert!(part(&mut client, "q=line%2017&before_chars=0&after_chars=0").starts_with("line 17"));
    assert!(part(&mut client, "pattern=%5Eline+39%5B0-9%5D%3A").contains("line 390"));
    for (query, code) in [
        ("nonsense=1", -32602),
        ("limit_chars=x", -32602),
        ("q=%ff", -32602),
        ("lines=3-3&q=x", -32602),
        ("cursor=forged", -32602),
    ] {
        let refused = client.request("resources/read", &json!({"uri": format!("{uri}?{query}")}));
        assert_eq!(refused["error"]["code"], code, "{query}: {refused}");
    }
    let absent = format!("rung://result/res_{}", "0".repeat(26));
    assert_eq!(
        client.request("resources/read", &json!({"uri": absent}))["error"]["code"],
        -32002
    );
    let completed = client.request(
        "completion/complete",
        &json!({
            "ref": {"type": "ref/resource", "uri": result_uri_template(&sandbox)},
            "argument": {"name": "handle", "value": &handle[..6]},
        }),
    );
    assert_eq!(completed["result"]["completion"]["values"], json!([handle]));
}

/// Asserts that a resource read to its end has every byte, and that each message is within the limit.
fn assert_resource_complete(sandbox: &Sandbox, text: &str, bound: usize) {
    let set = format!("reply.max_bytes={bound}");
    let mut client = StdioClient::start(sandbox, &["--set", &set]);
    client.initialize("2025-11-25", &json!({}));
    let listed = client.request("resources/list", &json!({}));
    let uri = listed["result"]["resources"][0]["uri"].as_str().unwrap();
    let mut next = Some(uri.to_owned());
    let mut read = String::new();
    while let Some(uri) = next {
        client.send_request("resources/read", &json!({"uri": uri}));
        let line = client.next_line().unwrap();
        assert!(line.len() <= bound, "{} bytes of {bound}", line.len());
        let reply: Value = serde_json::from_str(&line).unwrap();
        let contents = reply["result"]["contents"].as_array();
        let contents = contents.unwrap_or_else(|| panic!("{bound}: {line}"));
        assert_eq!(contents[0]["uri"], uri);
        read.push_str(contents[0]["text"].as_str().unwrap());
        next = contents
            .get(1)
            .map(|more| more["uri"].as_str().unwrap().to_owned());
    }
    assert!(read == *text, "every byte");
}

fn result_uri_template(sandbox: &Sandbox) -> String {
    let mut client = StdioClient::start(sandbox, &[]);
    client.initialize("2025-11-25", &json!({}));
    let listed = client.request("resources/templates/list", &json!({}));
    let template = listed["result"]["resourceTemplates"][0]["uriTemplate"].as_str();
    template.unwrap().to_owned()
}

#[test]
fn bytes_that_are_no_text_come_as_bytes() {
    let sandbox = Sandbox::new();
    let bytes: Vec<u8> = (0..=255).collect();
    let handle = sandbox.store_result("image/png", &bytes);
    let mut client = StdioClient::start(&sandbox, &[]);
    client.initialize("2025-11-25", &json!({}));
    let uri = format!("rung://result/{handle}");
    let reply = client.request("resources/read", &json!({"uri": uri}));
    let contents = &reply["result"]["contents"][0];
    assert_eq!(contents["mimeType"], "image/png");
    assert!(
        contents["blob"].as_str().unwrap().starts_with("AAECAwQF"),
        "{reply}"
    );
    let large = sandbox.store_result("image/png", vec![0xff; 100_000]);
    let refused = client.request(
        "resources/read",
        &json!({"uri": format!("rung://result/{large}")}),
    );
    assert!(
        refused["error"]["data"]["hint"]
            .as_str()
            .unwrap()
            .contains("export"),
        "{refused}"
    );
}

#[test]
fn what_the_local_user_keeps_is_not_there_for_others() {
    let sandbox = Sandbox::new();
    let handle = sandbox.store_result("text/plain", "mine");
    let server = ServerProcess::start(&sandbox, &[]);
    let listed = server
        .fetch(modern_request(1, "resources/list", json!({})))
        .json();
    assert_eq!(listed["result"]["resources"], json!([]));
    let uri = format!("rung://result/{handle}");
    let read = server
        .fetch(modern_request(2, "resources/read", json!({"uri": uri})))
        .json();
    assert_eq!(read["error"]["code"], -32602);
    assert_eq!(read["error"]["data"]["uri"], uri);
    let call = json!({"name": "rung.read", "arguments": {"handle": handle}});
    let read = server.fetch(modern_request(3, "tools/call", call)).json();
    assert_eq!(
        read["result"]["structuredContent"]["error"]["code"],
        "not_found"
    );
}

#[test]
fn plain_names_are_plain_everywhere() {
    let sandbox = Sandbox::new();
    let handle = sandbox.store_result("text/plain", long_text());
    let mut client = StdioClient::start(
        &sandbox,
        &["--tool-names", "plain", "--set", "reply.max_bytes=8000"],
    );
    let opened = client.initialize("2025-11-25", &json!({}));
    assert!(!opened.to_string().contains("rung."), "{opened}");
    let listed = client.request("tools/list", &json!({}));
    let names: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["rung_about", "rung_read"]);
    let reply = client.request(
        "tools/call",
        &json!({"name": "rung_read", "arguments": {"handle": handle}}),
    );
    let text = reply["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("\nnext rung_read "), "{}", &text[..300]);
    let unknown = client.request("tools/call", &json!({"name": "rung_no"}));
    let allowed = &unknown["error"]["data"]["details"]["allowed"];
    assert_eq!(allowed, &json!(["rung_about", "rung_read"]), "{unknown}");
    // The dotted name still works.
    assert!(client.request("tools/call", &json!({"name": "rung.about"}))["result"].is_object());
}
