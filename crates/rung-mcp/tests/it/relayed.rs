//! Resources and prompts of downstream servers are relayed unchanged, and sources learn of subscriptions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rung_auth::Permit;
use rung_fault::Fault;
use rung_mcp::McpServer;
use rung_mcp::connect::{Era, ListKind, ServerConnection, ServerResult};
use rung_tool::{
    BoxFuture, Call, Change, ChangeSender, CompletionQuery, Prompt, PromptCard, PromptSource,
    PromptSources, ResourceCard, ResourceContents, ResourceSource, ResourceSubscriber,
    SourceResult, TemplateCard,
};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::faulty_server::default_options;
use crate::fixture::{StdioClient, connect_in_era, serve_http, server_config, with_modern_meta};

const RESOURCE: &str = r#"{ "uri":"x:1", "name":"one","size":1.0,"vendor":{"deep":[1.50]} }"#;
const TEMPLATE: &str = r#"{"uriTemplate":"x:{n}","name":"n","icons":[ ]}"#;
const PROMPT: &str = r#"{"vendor":1e2,"name":"p","arguments":[{"name":"w","x":0.10}]}"#;
const READ: &str = r#"{ "contents":[{"uri":"x:1","text":"\u0041","n":1.0}],"vendor":{} }"#;
const FILLED: &str = r#"{"messages":[ {"role":"user","content":{"type":"new","n":0.50}} ]}"#;
const COMPLETED: &str = r#"{"completion":{"values":["a"],"hasMore":false,"vendor":1.0}}"#;

/// A source that relays raw definitions.
#[derive(Default)]
struct RelayingSource {
    watched: Mutex<Vec<(String, bool)>>,
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, Result<T, Fault>> {
    Box::pin(std::future::ready(Ok(value)))
}

impl ResourceSource for RelayingSource {
    fn list<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<Vec<ResourceCard>, Fault>> {
        let card = |uri: &str| ResourceCard {
            uri: uri.to_owned(),
            name: "one".to_owned(),
            listed: Some(raw(RESOURCE).into()),
            ..ResourceCard::default()
        };
        ready(vec![card("x:1"), card("y:1")])
    }

    fn templates<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<Vec<TemplateCard>, Fault>> {
        ready(vec![TemplateCard {
            uri_template: "x:{n}".to_owned(),
            name: "n".to_owned(),
            listed: Some(raw(TEMPLATE).into()),
            ..TemplateCard::default()
        }])
    }

    fn read<'a>(
        &'a self,
        _: &'a Call,
        uri: &'a str,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<ResourceContents>>>, Fault>> {
        ready((uri == "x:1").then(|| SourceResult::Relayed(raw(READ))))
    }

    fn complete<'a>(
        &'a self,
        _: &'a Permit,
        _: &'a str,
        _: CompletionQuery<'a>,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<String>>>, Fault>> {
        ready(Some(SourceResult::Relayed(raw(COMPLETED))))
    }

    fn tells_updates(&self) -> bool {
        true
    }

    fn watch<'a>(
        &'a self,
        _: &'a ResourceSubscriber,
        uri: &'a str,
        on: bool,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        self.watched.lock().unwrap().push((uri.to_owned(), on));
        ready(())
    }
}

impl PromptSource for RelayingSource {
    fn list<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<Vec<PromptCard>, Fault>> {
        ready(vec![PromptCard {
            name: "behind_p".to_owned(),
            listed: Some(raw(PROMPT).into()),
            ..PromptCard::default()
        }])
    }

    fn get<'a>(
        &'a self,
        _: &'a Call,
        name: &'a str,
        _: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Prompt>>, Fault>> {
        ready((name == "behind_p").then(|| SourceResult::Relayed(raw(FILLED))))
    }

    fn complete<'a>(
        &'a self,
        _: &'a Permit,
        _: &'a str,
        _: CompletionQuery<'a>,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<String>>>, Fault>> {
        ready(Some(SourceResult::Relayed(raw(COMPLETED))))
    }
}

fn relaying_server() -> (Arc<RelayingSource>, ChangeSender, McpServer) {
    let (foreign, changes) = (Arc::new(RelayingSource::default()), ChangeSender::default());
    let server = McpServer::new(rung_mcp::ServerConfig {
        resources: foreign.clone(),
        prompts: Some(Arc::new(PromptSources(vec![
            foreign.clone(),
            foreign.clone(),
        ]))),
        changes: Some(changes.clone()),
        ..server_config()
    });
    (foreign, changes, server)
}

async fn list_raw(connection: &ServerConnection, kind: ListKind) -> Vec<String> {
    let listed = connection.list(kind, &default_options()).await.unwrap();
    let items = listed.items.iter();
    items.map(|item| item.get().to_owned()).collect()
}

async fn request_raw(connection: &ServerConnection, method: &str, params: Value) -> String {
    let params = to_raw_value(&params).unwrap();
    let answer = connection
        .request(method, Some(&params), default_options())
        .await;
    let ServerResult::InMemory(result) = answer.unwrap() else {
        panic!("it is long");
    };
    result.get().to_owned()
}

#[tokio::test]
async fn what_another_server_lists_and_gives_goes_on_byte_for_byte() {
    let url = serve_http(relaying_server().2).await;
    for era in [Era::Legacy, Era::Modern] {
        let connection = connect_in_era(&url, era);
        let renamed = RESOURCE.replace("x:1", "y:1");
        assert_eq!(
            list_raw(&connection, ListKind::Resources).await,
            [RESOURCE, &renamed]
        );
        assert_eq!(list_raw(&connection, ListKind::Templates).await, [TEMPLATE]);
        // Of two prompts with one name the first is listed.
        let prompt = PROMPT.replace("\"p\"", "\"behind_p\"");
        assert_eq!(list_raw(&connection, ListKind::Prompts).await, [prompt]);
        let of = json!({"type": "ref/prompt", "name": "behind_p"});
        let completing = json!({"ref": of, "argument": {"name": "w", "value": ""}});
        for (method, params, given) in [
            ("resources/read", json!({"uri": "x:1"}), READ),
            ("prompts/get", json!({"name": "behind_p"}), FILLED),
            ("completion/complete", completing, COMPLETED),
        ] {
            let got = request_raw(&connection, method, params).await;
            // A modern result begins with `resultType`.
            assert!(got.ends_with(&given[1..]), "{era:?} {got}");
            assert!(era == Era::Modern || got == given, "{got}");
        }
    }
}

#[tokio::test]
async fn a_source_learns_of_each_subscription_and_its_end_once() {
    let (foreign, changes, server) = relaying_server();
    let mut stdio = StdioClient::open(server);
    stdio.initialize().await;
    for uri in ["x:1", "x:1", "x:2"] {
        stdio
            .request("resources/subscribe", json!({"uri": uri}))
            .await;
    }
    let on = |uri: &str| (uri.to_owned(), true);
    let off = |uri: &str| (uri.to_owned(), false);
    assert_eq!(*foreign.watched.lock().unwrap(), [on("x:1"), on("x:2")]);
    changes.send(Change::Resource("x:2".to_owned()));
    let told = stdio.next_message().await;
    assert_eq!(told["params"]["uri"], "x:2", "{told}");
    stdio
        .request("resources/unsubscribe", json!({"uri": "x:1"}))
        .await;
    wait_until(|| foreign.watched.lock().unwrap().contains(&off("x:1"))).await;
    stdio.close().await;
    wait_until(|| foreign.watched.lock().unwrap().contains(&off("x:2"))).await;
    assert_eq!(foreign.watched.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn a_listen_stream_subscribes_and_ends_with_its_request() {
    let (foreign, _, server) = relaying_server();
    let mut stdio = StdioClient::open(server);
    let wanted = json!({"notifications": {"resourceSubscriptions": ["x:1"]}});
    let id = stdio.send_request("subscriptions/listen", &with_modern_meta(wanted));
    wait_until(|| foreign.watched.lock().unwrap().len() == 1).await;
    let cancelled = json!({"requestId": id});
    stdio
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}));
    wait_until(|| foreign.watched.lock().unwrap().len() == 2).await;
    let watched = foreign.watched.lock().unwrap().clone();
    assert_eq!(
        watched,
        [("x:1".to_owned(), true), ("x:1".to_owned(), false)]
    );
}

/// Polls until the condition holds.
async fn wait_until(come: impl Fn() -> bool) {
    let waiting = async {
        while !come() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    waited.expect("it comes");
}
