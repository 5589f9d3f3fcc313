//! A modern client of the gateway over HTTP: no session, every request independent.

use serde_json::{Value, json};

use crate::gateway::{GatewayFixture, reply_data, result_handle, tool_error, wait_until};
use crate::http::{HttpReply, ServerProcess, SseEvent, modern_request};

/// A client identified by its token alone.
struct ModernClient<'s> {
    server: &'s ServerProcess,
    token: &'s str,
}

impl ModernClient<'_> {
    fn send(&self, method: &str, params: Value) -> HttpReply {
        let request = modern_request(7, method, params).bearer(self.token);
        self.server.send(&request)
    }

    fn request(&self, method: &str, params: Value) -> Value {
        let reply = self
            .server
            .fetch(modern_request(7, method, params).bearer(self.token));
        assert_eq!(reply.status, 200, "{method}: {}", reply.text());
        // A slow call is answered on a stream.
        let answer = if reply.is_stream() {
            let mut messages = reply
                .events()
                .iter()
                .map(SseEvent::json)
                .collect::<Vec<_>>();
            messages.pop().expect("an answer")
        } else {
            reply.json()
        };
        assert_eq!(answer["id"], 7, "{method}: {answer}");
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        assert_eq!(
            answer["result"]["resultType"], "complete",
            "{method}: {answer}"
        );
        answer["result"].clone()
    }

    fn call(&self, tool: &str, arguments: &Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        self.request("tools/call", params)
    }

    fn invoke(&self, tool_id: &str, arguments: &Value) -> Value {
        let arguments = json!({"tool_id": tool_id, "arguments": arguments});
        self.call("gateway.invoke", &arguments)
    }
}

fn item_names<'l>(listed: &'l Value, of: &str, name: &str) -> Vec<&'l str> {
    let items = listed[of].as_array().unwrap().iter();
    items.map(|item| item[name].as_str().unwrap()).collect()
}

#[test]
fn a_modern_client_gets_from_discovery_to_the_whole_of_a_long_result() {
    const BYTES: usize = 100_000;
    let street = GatewayFixture::with_echo_server();
    let token = street.create_token("alice");
    let server = street.http_server(&[]);
    let alice = ModernClient {
        server: &server,
        token: &token,
    };
    let found = alice.request("server/discover", json!({}));
    let versions = found["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{found}");
    let listed = alice.request("tools/list", json!({}));
    let tools = item_names(&listed, "tools", "name");
    assert!(
        tools.contains(&"gateway.invoke") && tools.contains(&"rung.read"),
        "{tools:?}"
    );
    let counted = alice.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 1, "{counted}");
    let shown = alice.invoke("house::text", &json!({"bytes": BYTES}));
    let handle = result_handle(&shown);
    let mut next = json!({"handle": handle, "path": "content[0].text"});
    let mut read = String::new();
    loop {
        let part = alice.call("rung.read", &next);
        let part = &reply_data(&part);
        read.push_str(part["text"].as_str().unwrap_or_else(|| panic!("{part}")));
        match part["next_cursor"].as_str() {
            Some(cursor) => next = json!({"handle": handle, "cursor": cursor}),
            None => break,
        }
    }
    assert!(read == "0123456789abcdef".repeat(BYTES / 16));
    let uri = format!("rung://result/{handle}");
    let resource = alice.request("resources/read", json!({"uri": uri}));
    assert_eq!(resource["contents"][0]["uri"], uri, "{resource}");
    let theirs = alice.request("resources/read", json!({"uri": "house:note"}));
    assert_eq!(theirs["contents"][0]["text"], "what is noted", "{theirs}");
    let prompts = alice.request("prompts/list", json!({}));
    assert_eq!(item_names(&prompts, "prompts", "name"), ["house::greet"]);
    let refused = alice.invoke("house::book", &json!({}));
    assert_eq!(
        tool_error(&refused)["code"],
        "invalid_arguments",
        "{refused}"
    );
}

/// A subscribed client is notified of a server added to the configuration and of a tool the server adds later, and can use
/// both.
#[test]
fn a_modern_client_that_listens_hears_of_new_servers_and_new_tools() {
    let street = GatewayFixture::new();
    street.configure(&json!({}));
    let token = street.create_token("alice");
    let server = street.http_server(&["--surface", "direct"]);
    let alice = ModernClient {
        server: &server,
        token: &token,
    };
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let mut heard = alice.send("subscriptions/listen", wanted);
    let first = heard.next_event().unwrap().json();
    assert_eq!(
        first["method"], "notifications/subscriptions/acknowledged",
        "{first}"
    );
    let has = |name: &str| {
        let listed = alice.request("tools/list", json!({}));
        item_names(&listed, "tools", "name").contains(&name)
    };
    let mut hear_of = |name: &str| {
        wait_until(&format!("{name} is there"), || {
            let said = heard.next_event().expect("the stream goes on").json();
            assert_eq!(said["method"], "notifications/tools/list_changed", "{said}");
            has(name).then_some(())
        });
    };
    assert!(!has("book"));
    street.configure(&json!({"house": street.echo_server("house")}));
    hear_of("book");
    assert!(!has("harvest"));
    alice.call("grow", &json!({}));
    hear_of("harvest");
    let reaped = alice.call("harvest", &json!({}));
    assert_ne!(reaped["isError"], true, "{reaped}");
}

#[test]
fn a_modern_client_that_listens_hears_of_resources_when_a_server_is_first_seen() {
    let street = GatewayFixture::with_echo_server();
    let token = street.create_token("alice");
    let server = street.http_server(&[]);
    let alice = ModernClient {
        server: &server,
        token: &token,
    };
    let wanted = json!({"notifications": {"resourcesListChanged": true}});
    let mut heard = alice.send("subscriptions/listen", wanted);
    heard.next_event().expect("it is acknowledged");
    alice.call("gateway.connect_server", &json!({"server_name": "house"}));
    let said = heard.next_event().unwrap().json();
    assert_eq!(
        said["method"], "notifications/resources/list_changed",
        "{said}"
    );
    let listed = alice.request("resources/list", json!({}));
    assert!(
        item_names(&listed, "resources", "uri").contains(&"house:note"),
        "{listed}"
    );
}
