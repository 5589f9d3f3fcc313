//! The conversation of a call, over every transport and in both eras.

use std::sync::{Arc, Mutex};

use rung_auth::{Access, Permit};
use rung_fault::Fault;
use rung_mcp::McpServer;
use rung_mcp::connect::Era;
use rung_tool::{BoxFuture, Call, Card, Hints, Reply, TaskUse, ToolSource, WeakConversation};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::faulty_server::default_options;
use crate::fixture::{StdioClient, connect_in_era, serve_http, server_config, with_modern_meta};

/// Records the conversation of each call.
#[derive(Default)]
struct ConversationRecorder(Mutex<Vec<Option<WeakConversation>>>);

impl ConversationRecorder {
    fn recorded(&self) -> Vec<Option<WeakConversation>> {
        self.0.lock().unwrap().clone()
    }
}

impl ToolSource for ConversationRecorder {
    fn list<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<Vec<Card>, Fault>> {
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
            is_entry: false,
            search_hint: "",
            listed: None,
        };
        Box::pin(std::future::ready(Ok(vec![card])))
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Card, Fault>> {
        Box::pin(async move { Ok(self.list(permit).await?.remove(0)) })
    }

    fn call<'a>(&'a self, call: &'a Call, _: &'a str, _: &'a RawValue) -> BoxFuture<'a, Reply> {
        let conversation = call.peer.conversation();
        let weak = conversation.map(|conversation| conversation.downgrade());
        self.0.lock().unwrap().push(weak);
        Box::pin(std::future::ready(Reply::from_text("seen")))
    }
}

fn recording_server() -> (Arc<ConversationRecorder>, McpServer) {
    let tools = Arc::new(ConversationRecorder::default());
    let server = McpServer::new(rung_mcp::ServerConfig {
        tools: tools.clone(),
        ..server_config()
    });
    (tools, server)
}

#[tokio::test]
async fn a_connection_of_pipes_is_one_conversation_in_either_era() {
    for era in [Era::Legacy, Era::Modern] {
        let (tools, server) = recording_server();
        let mut stdio = StdioClient::open(server);
        let params = match era {
            Era::Legacy => {
                stdio.initialize().await;
                json!({"name": "a"})
            }
            Era::Modern => with_modern_meta(json!({"name": "a"})),
        };
        stdio.request("tools/call", params.clone()).await;
        stdio.request("tools/call", params).await;
        let seen = tools.recorded();
        assert!(seen[0].is_some() && seen[0] == seen[1], "{seen:?}");
        assert!(seen[0].as_ref().unwrap().is_alive());
        stdio.close().await;
        assert!(!seen[0].as_ref().unwrap().is_alive());
    }
}

#[tokio::test]
async fn over_http_a_session_is_a_conversation_and_a_modern_request_is_none() {
    let (tools, server) = recording_server();
    let url = serve_http(server).await;
    let nothing = to_raw_value(&json!({})).unwrap();
    let (one, other) = (
        connect_in_era(&url, Era::Legacy),
        connect_in_era(&url, Era::Legacy),
    );
    for connection in [&one, &one, &other, &connect_in_era(&url, Era::Modern)] {
        let tool = connection
            .tools(&default_options())
            .await
            .unwrap()
            .tools
            .remove(0);
        connection
            .call(&tool, &nothing, default_options())
            .await
            .unwrap();
    }
    let seen = tools.recorded();
    assert!(seen[0].is_some() && seen[0] == seen[1], "{seen:?}");
    assert!(seen[2].is_some() && seen[2] != seen[0], "{seen:?}");
    assert!(seen[3].is_none(), "{seen:?}");
    one.close().await;
    assert!(!seen[0].as_ref().unwrap().is_alive());
    assert!(seen[2].as_ref().unwrap().is_alive());
}
