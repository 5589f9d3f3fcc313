//! A client of the modern era at the gateway over HTTP: no session, every request by itself.

use serde_json::{Value, json};

use crate::gateway::{Street, error, handle, until};
use crate::http::{Event, Reply, Server, modern};

/// A client, who is nothing but a token.
struct Caller<'s> {
    server: &'s Server,
    token: &'s str,
}

impl Caller<'_> {
    fn send(&self, method: &str, params: Value) -> Reply {
        let request = modern(7, method, params).bearer(self.token);
        self.server.send(&request)
    }

    fn request(&self, method: &str, params: Value) -> Value {
        let reply = self
            .server
            .post(modern(7, method, params).bearer(self.token));
        assert_eq!(reply.status, 200, "{method}: {}", reply.text());
        // A call that takes its time is answered on a stream.
        let answer = if reply.is_stream() {
            let mut messages = reply.events().iter().map(Event::json).collect::<Vec<_>>();
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

fn names<'l>(listed: &'l Value, of: &str, name: &str) -> Vec<&'l str> {
    let items = listed[of].as_array().unwrap().iter();
    items.map(|item| item[name].as_str().unwrap()).collect()
}

#[test]
fn a_modern_client_gets_from_discovery_to_the_whole_of_a_long_result() {
    const BYTES: usize = 100_000;
    let street = Street::with_a_house();
    let token = street.token("alice");
    let server = street.listening(&[]);
    let alice = Caller {
        server: &server,
        token: &token,
    };
    let found = alice.request("server/discover", json!({}));
    let versions = found["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{found}");
    let listed = alice.request("tools/list", json!({}));
    let tools = names(&listed, "tools", "name");
    assert!(
        tools.contains(&"gateway.invoke") && tools.contains(&"rung.read"),
        "{tools:?}"
    );
    let counted = alice.invoke("house::count", &json!({}));
    assert_eq!(
        counted["structuredContent"]["result"]["count"], 1,
        "{counted}"
    );
    let shown = alice.invoke("house::text", &json!({"bytes": BYTES}));
    let handle = handle(&shown);
    let mut next = json!({"handle": handle, "path": "content[0].text"});
    let mut read = String::new();
    loop {
        let part = alice.call("rung.read", &next);
        let part = &part["structuredContent"];
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
    assert_eq!(names(&prompts, "prompts", "name"), ["house::greet"]);
    let refused = alice.invoke("house::book", &json!({}));
    assert_eq!(error(&refused)["code"], "invalid_arguments", "{refused}");
}

/// Whoever listens hears that there is something new, and finds it: a server that somebody writes down, and a tool that it
/// has later.
#[test]
fn a_modern_client_that_listens_hears_of_new_servers_and_new_tools() {
    let street = Street::new();
    street.configure(&json!({}));
    let token = street.token("alice");
    let server = street.listening(&["--surface", "direct"]);
    let alice = Caller {
        server: &server,
        token: &token,
    };
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let mut heard = alice.send("subscriptions/listen", wanted);
    let first = heard.event().unwrap().json();
    assert_eq!(
        first["method"], "notifications/subscriptions/acknowledged",
        "{first}"
    );
    let has = |name: &str| {
        let listed = alice.request("tools/list", json!({}));
        names(&listed, "tools", "name").contains(&name)
    };
    let mut hear_of = |name: &str| {
        until(&format!("{name} is there"), || {
            let said = heard.event().expect("the stream goes on").json();
            assert_eq!(said["method"], "notifications/tools/list_changed", "{said}");
            has(name).then_some(())
        });
    };
    assert!(!has("book"));
    street.configure(&json!({"house": street.house("house")}));
    hear_of("book");
    assert!(!has("harvest"));
    alice.call("grow", &json!({}));
    hear_of("harvest");
    let reaped = alice.call("harvest", &json!({}));
    assert_ne!(reaped["isError"], true, "{reaped}");
}

#[test]
fn a_modern_client_that_listens_hears_of_resources_when_a_server_is_first_seen() {
    let street = Street::with_a_house();
    let token = street.token("alice");
    let server = street.listening(&[]);
    let alice = Caller {
        server: &server,
        token: &token,
    };
    let wanted = json!({"notifications": {"resourcesListChanged": true}});
    let mut heard = alice.send("subscriptions/listen", wanted);
    heard.event().expect("it is acknowledged");
    alice.call("gateway.connect_server", &json!({"server_name": "house"}));
    let said = heard.event().unwrap().json();
    assert_eq!(
        said["method"], "notifications/resources/list_changed",
        "{said}"
    );
    let listed = alice.request("resources/list", json!({}));
    assert!(
        names(&listed, "resources", "uri").contains(&"house:note"),
        "{listed}"
    );
}
