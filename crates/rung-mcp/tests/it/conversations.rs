//! Which conversation a call belongs to, over every transport and in both eras.

use std::sync::{Arc, Mutex};

use rung_auth::{Access, Permit};
use rung_fault::Fault;
use rung_mcp::Server;
use rung_mcp::connect::Era;
use rung_tool::{Call, Card, Hints, Pending, Reply, TaskUse, ToolSource, WeakConversation};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::door::{Stdio, client, modern, offer, over_http};
use crate::mischief::how;

/// Remembers the conversation of each call.
#[derive(Default)]
struct Remembers(Mutex<Vec<Option<WeakConversation>>>);

impl Remembers {
    fn seen(&self) -> Vec<Option<WeakConversation>> {
        self.0.lock().unwrap().clone()
    }
}

impl ToolSource for Remembers {
    fn list<'a>(&'a self, _: &'a Permit) -> Pending<'a, Result<Vec<Card>, Fault>> {
        let card = Card {
            name: "a".into(),
            title: "A".into(),
            description: "".into(),
            icon: None,
            input_schema: Arc::new(json!({"type": "object"})),
            output_schema: None,
            hints: Hints::READ,
            access: Access::Read,
            tasks: TaskUse::Never,
            listed: None,
        };
        Box::pin(std::future::ready(Ok(vec![card])))
    }

    fn describe<'a>(&'a self, permit: &'a Permit, _: &'a str) -> Pending<'a, Result<Card, Fault>> {
        Box::pin(async move { Ok(self.list(permit).await?.remove(0)) })
    }

    fn call<'a>(&'a self, call: &'a Call, _: &'a str, _: &'a RawValue) -> Pending<'a, Reply> {
        let conversation = call.peer.conversation();
        let weak = conversation.map(|conversation| conversation.downgrade());
        self.0.lock().unwrap().push(weak);
        Box::pin(std::future::ready(Reply::of_text("seen")))
    }
}

fn remembering() -> (Arc<Remembers>, Server) {
    let tools = Arc::new(Remembers::default());
    let server = Server::new(rung_mcp::Offer {
        tools: tools.clone(),
        ..offer()
    });
    (tools, server)
}

#[tokio::test]
async fn a_connection_of_pipes_is_one_conversation_in_either_era() {
    for era in [Era::Legacy, Era::Modern] {
        let (tools, server) = remembering();
        let mut stdio = Stdio::open(server);
        let params = match era {
            Era::Legacy => {
                stdio.initialize().await;
                json!({"name": "a"})
            }
            Era::Modern => modern(json!({"name": "a"})),
        };
        stdio.ask("tools/call", params.clone()).await;
        stdio.ask("tools/call", params).await;
        let seen = tools.seen();
        assert!(seen[0].is_some() && seen[0] == seen[1], "{seen:?}");
        assert!(seen[0].as_ref().unwrap().is_alive());
        stdio.close().await;
        assert!(!seen[0].as_ref().unwrap().is_alive());
    }
}

#[tokio::test]
async fn over_http_a_session_is_a_conversation_and_a_modern_request_is_none() {
    let (tools, server) = remembering();
    let url = over_http(server).await;
    let nothing = to_raw_value(&json!({})).unwrap();
    let (one, other) = (client(&url, Era::Legacy), client(&url, Era::Legacy));
    for connection in [&one, &one, &other, &client(&url, Era::Modern)] {
        let tool = connection.tools(&how()).await.unwrap().tools.remove(0);
        connection.call(&tool, &nothing, how()).await.unwrap();
    }
    let seen = tools.seen();
    assert!(seen[0].is_some() && seen[0] == seen[1], "{seen:?}");
    assert!(seen[2].is_some() && seen[2] != seen[0], "{seen:?}");
    assert!(seen[3].is_none(), "{seen:?}");
    one.close().await;
    assert!(!seen[0].as_ref().unwrap().is_alive());
    assert!(seen[2].as_ref().unwrap().is_alive());
}
