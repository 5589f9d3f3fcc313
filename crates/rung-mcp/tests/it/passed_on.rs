//! Resources and prompts of other servers go on as they came, and whoever has them is told who listens.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rung_auth::Permit;
use rung_fault::Fault;
use rung_mcp::Server;
use rung_mcp::connect::{Answer, Connection, Era, Kind};
use rung_tool::{
    Call, Change, Changes, Contents, Partial, Pending, Prompt, PromptCard, PromptSource, Prompts,
    ResourceCard, ResourceSource, Served, TemplateCard, Watcher,
};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::door::{Stdio, client, modern, offer, over_http};
use crate::mischief::how;

const RESOURCE: &str = r#"{ "uri":"x:1", "name":"one","size":1.0,"vendor":{"deep":[1.50]} }"#;
const TEMPLATE: &str = r#"{"uriTemplate":"x:{n}","name":"n","icons":[ ]}"#;
const PROMPT: &str = r#"{"vendor":1e2,"name":"p","arguments":[{"name":"w","x":0.10}]}"#;
const READ: &str = r#"{ "contents":[{"uri":"x:1","text":"\u0041","n":1.0}],"vendor":{} }"#;
const FILLED: &str = r#"{"messages":[ {"role":"user","content":{"type":"new","n":0.50}} ]}"#;
const COMPLETED: &str = r#"{"completion":{"values":["a"],"hasMore":false,"vendor":1.0}}"#;

/// What another server is like.
#[derive(Default)]
struct Foreign {
    watched: Mutex<Vec<(String, bool)>>,
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn ready<'a, T: Send + 'a>(value: T) -> Pending<'a, Result<T, Fault>> {
    Box::pin(std::future::ready(Ok(value)))
}

impl ResourceSource for Foreign {
    fn list<'a>(&'a self, _: &'a Permit) -> Pending<'a, Result<Vec<ResourceCard>, Fault>> {
        let card = |uri: &str| ResourceCard {
            uri: uri.to_owned(),
            name: "one".to_owned(),
            listed: Some(raw(RESOURCE).into()),
            ..ResourceCard::default()
        };
        ready(vec![card("x:1"), card("y:1")])
    }

    fn templates<'a>(&'a self, _: &'a Permit) -> Pending<'a, Result<Vec<TemplateCard>, Fault>> {
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
    ) -> Pending<'a, Result<Option<Served<Vec<Contents>>>, Fault>> {
        ready((uri == "x:1").then(|| Served::Relayed(raw(READ))))
    }

    fn complete<'a>(
        &'a self,
        _: &'a Permit,
        _: &'a str,
        _: Partial<'a>,
    ) -> Pending<'a, Result<Option<Served<Vec<String>>>, Fault>> {
        ready(Some(Served::Relayed(raw(COMPLETED))))
    }

    fn tells_updates(&self) -> bool {
        true
    }

    fn watch<'a>(
        &'a self,
        _: &'a Watcher,
        uri: &'a str,
        on: bool,
    ) -> Pending<'a, Result<(), Fault>> {
        self.watched.lock().unwrap().push((uri.to_owned(), on));
        ready(())
    }
}

impl PromptSource for Foreign {
    fn list<'a>(&'a self, _: &'a Permit) -> Pending<'a, Result<Vec<PromptCard>, Fault>> {
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
    ) -> Pending<'a, Result<Option<Served<Prompt>>, Fault>> {
        ready((name == "behind_p").then(|| Served::Relayed(raw(FILLED))))
    }

    fn complete<'a>(
        &'a self,
        _: &'a Permit,
        _: &'a str,
        _: Partial<'a>,
    ) -> Pending<'a, Result<Option<Served<Vec<String>>>, Fault>> {
        ready(Some(Served::Relayed(raw(COMPLETED))))
    }
}

fn foreign() -> (Arc<Foreign>, Changes, Server) {
    let (foreign, changes) = (Arc::new(Foreign::default()), Changes::default());
    let server = Server::new(rung_mcp::Offer {
        resources: foreign.clone(),
        prompts: Some(Arc::new(Prompts(vec![foreign.clone(), foreign.clone()]))),
        changes: Some(changes.clone()),
        ..offer()
    });
    (foreign, changes, server)
}

async fn listed(connection: &Connection, kind: Kind) -> Vec<String> {
    let listed = connection.list(kind, &how()).await.unwrap();
    let items = listed.items.iter();
    items.map(|item| item.get().to_owned()).collect()
}

async fn asked(connection: &Connection, method: &str, params: Value) -> String {
    let params = to_raw_value(&params).unwrap();
    let answer = connection.request(method, Some(&params), how()).await;
    let Answer::Here(result) = answer.unwrap() else {
        panic!("it is long");
    };
    result.get().to_owned()
}

#[tokio::test]
async fn what_another_server_lists_and_gives_goes_on_byte_for_byte() {
    let url = over_http(foreign().2).await;
    for era in [Era::Legacy, Era::Modern] {
        let connection = client(&url, era);
        let renamed = RESOURCE.replace("x:1", "y:1");
        assert_eq!(
            listed(&connection, Kind::Resources).await,
            [RESOURCE, &renamed]
        );
        assert_eq!(listed(&connection, Kind::Templates).await, [TEMPLATE]);
        // Of two with one name the first is there.
        let prompt = PROMPT.replace("\"p\"", "\"behind_p\"");
        assert_eq!(listed(&connection, Kind::Prompts).await, [prompt]);
        let of = json!({"type": "ref/prompt", "name": "behind_p"});
        let completing = json!({"ref": of, "argument": {"name": "w", "value": ""}});
        for (method, params, given) in [
            ("resources/read", json!({"uri": "x:1"}), READ),
            ("prompts/get", json!({"name": "behind_p"}), FILLED),
            ("completion/complete", completing, COMPLETED),
        ] {
            let got = asked(&connection, method, params).await;
            // A modern result says in front what it is.
            assert!(got.ends_with(&given[1..]), "{era:?} {got}");
            assert!(era == Era::Modern || got == given, "{got}");
        }
    }
}

#[tokio::test]
async fn a_source_is_told_once_who_listens_and_when_they_go() {
    let (foreign, changes, server) = foreign();
    let mut stdio = Stdio::open(server);
    stdio.initialize().await;
    for uri in ["x:1", "x:1", "x:2"] {
        stdio.ask("resources/subscribe", json!({"uri": uri})).await;
    }
    let on = |uri: &str| (uri.to_owned(), true);
    let off = |uri: &str| (uri.to_owned(), false);
    assert_eq!(*foreign.watched.lock().unwrap(), [on("x:1"), on("x:2")]);
    changes.tell(Change::Resource("x:2".to_owned()));
    let told = stdio.next().await;
    assert_eq!(told["params"]["uri"], "x:2", "{told}");
    stdio
        .ask("resources/unsubscribe", json!({"uri": "x:1"}))
        .await;
    until(|| foreign.watched.lock().unwrap().contains(&off("x:1"))).await;
    stdio.close().await;
    until(|| foreign.watched.lock().unwrap().contains(&off("x:2"))).await;
    assert_eq!(foreign.watched.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn a_stream_that_listens_is_told_of_and_ends_with_its_request() {
    let (foreign, _, server) = foreign();
    let mut stdio = Stdio::open(server);
    let wanted = json!({"notifications": {"resourceSubscriptions": ["x:1"]}});
    let id = stdio.begin("subscriptions/listen", &modern(wanted));
    until(|| foreign.watched.lock().unwrap().len() == 1).await;
    let cancelled = json!({"requestId": id});
    stdio
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}));
    until(|| foreign.watched.lock().unwrap().len() == 2).await;
    let watched = foreign.watched.lock().unwrap().clone();
    assert_eq!(
        watched,
        [("x:1".to_owned(), true), ("x:1".to_owned(), false)]
    );
}

/// Waits for what comes by itself.
async fn until(come: impl Fn() -> bool) {
    let waiting = async {
        while !come() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    waited.expect("it comes");
}
