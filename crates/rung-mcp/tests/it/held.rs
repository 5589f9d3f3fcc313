//! A modern client calls a tool of a legacy server that asks in the middle: the call is held, and done exactly once.

use std::sync::Arc;

use rung_mcp::connect::{Address, Answer, Connection, Delegate, Era, Error, Options, Target};
use rung_mcp::{Capabilities, Offer, Remote, Server};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::door::{Nowhere, Stdio, modern, offer, over_http};
use crate::mischief::{command, how};

/// A server before another one that leaves a trace of what it is sent.
struct Before {
    server: Server,
    dir: TempDir,
}

impl Before {
    fn new(mode: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let mut command = command(mode);
        let trace = dir.path().join("trace");
        let trace = trace.to_str().unwrap().to_owned();
        command.env.push(("TRACE".to_owned(), trace));
        let can = Capabilities {
            form: true,
            ..Capabilities::default()
        };
        let options = Options::new("behind");
        let remote = Remote::new(Target::Command(command), options, can, Arc::new(Nowhere));
        let server = Server::new(Offer {
            tools: Arc::new(remote),
            ..offer()
        });
        Self { server, dir }
    }

    fn times(&self, method: &str) -> usize {
        let trace = std::fs::read_to_string(self.dir.path().join("trace")).unwrap_or_default();
        trace.lines().filter(|line| *line == method).count()
    }

    /// Waits until the other server was sent it.
    async fn heard(&self, method: &str) {
        let waiting = async {
            while self.times(method) == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(std::time::Duration::from_secs(10), waiting).await;
        waited.expect("it is told");
    }
}

/// The call, with the answer to whatever `asked` asks.
fn again(asked: &Value, word: &str) -> Value {
    let asked = &asked["result"];
    let questions = asked["inputRequests"].as_object().unwrap();
    assert_eq!(questions.len(), 1, "{asked}");
    let (key, question) = questions.iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({"action": "accept", "content": {"word": word}});
    json!({"name": "a", "requestState": asked["requestState"], "inputResponses": {key: answer}})
}

fn with_token(mut params: Value, token: &str) -> Value {
    params["_meta"]["progressToken"] = token.into();
    modern(params)
}

fn is_refused(answer: &Value, why: &str) {
    let error = &answer["error"];
    assert_eq!(error["code"], -32602, "{answer}");
    assert!(error["message"].as_str().unwrap().contains(why), "{answer}");
    let hint = error["data"]["hint"].as_str().unwrap();
    assert!(hint.contains("without requestState"), "{answer}");
}

#[tokio::test]
async fn over_stdio_a_call_that_asks_twice_is_done_once() {
    let before = Before::new("asks-twice");
    let mut stdio = Stdio::open(before.server.clone());
    let first = with_token(json!({"name": "a"}), "one");
    let first = stdio.ask("tools/call", first).await;
    assert_eq!(first["result"]["resultType"], "input_required", "{first}");
    let second = with_token(again(&first, "yes"), "two");
    let second = stdio.ask("tools/call", second).await;
    assert_eq!(second["result"]["resultType"], "input_required", "{second}");
    // Progress goes to whoever waits.
    let told = stdio.heard.last().unwrap();
    assert_eq!(told["params"]["progressToken"], "two", "{told}");
    // An earlier answer is no answer to a later question.
    let replayed = stdio.ask("tools/call", modern(again(&first, "no"))).await;
    is_refused(&replayed, "answered already");
    let last = modern(again(&second, "indeed"));
    let done = stdio.ask("tools/call", last.clone()).await;
    let text = r#"{"word":"yes"} {"word":"indeed"}"#;
    assert_eq!(done["result"]["content"][0]["text"], text, "{done}");
    assert_eq!(before.times("tools/call"), 1);
    let replayed = stdio.ask("tools/call", last).await;
    is_refused(&replayed, "not held any more");
    assert_eq!(replayed["error"]["data"]["code"], "outcome_unknown");
    assert_eq!(before.times("tools/call"), 1);
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_it_is_held_is_cancelled_behind() {
    let before = Before::new("asks-and-hangs");
    let mut stdio = Stdio::open(before.server.clone());
    let first = stdio.ask("tools/call", modern(json!({"name": "a"}))).await;
    let second = modern(again(&first, "yes"));
    let id = stdio.begin("tools/call", &second);
    // It is not done, and waits.
    stdio.ask("tools/list", modern(json!({}))).await;
    let cancelled = json!({"requestId": id});
    stdio
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}));
    before.heard("notifications/cancelled").await;
    let late = stdio.ask("tools/call", second).await;
    is_refused(&late, "not held any more");
    assert_eq!(before.times("tools/call"), 1);
}

#[tokio::test]
async fn a_call_that_is_held_ends_with_the_server() {
    let before = Before::new("asks-twice");
    let mut stdio = Stdio::open(before.server.clone());
    stdio.ask("tools/call", modern(json!({"name": "a"}))).await;
    stdio.close().await;
    before.heard("notifications/cancelled").await;
}

struct Asked;

impl Delegate for Asked {
    fn can(&self) -> Capabilities {
        Capabilities {
            form: true,
            ..Capabilities::default()
        }
    }
}

fn client(url: &str, token: Option<&str>) -> Connection {
    let mut address = Address::new(url.parse().unwrap());
    if let Some(token) = token {
        let token = format!("Bearer {token}");
        address.add_header("authorization", &token).unwrap();
    }
    let options = Options {
        era: Some(Era::Modern),
        ..Options::new("between")
    };
    Connection::new(Target::Address(address), options, Arc::new(Asked))
}

/// The answer as a message, whichever it is.
async fn posted(connection: &Connection, params: &Value) -> Value {
    let params = to_raw_value(params).unwrap();
    match connection.request("tools/call", Some(&params), how()).await {
        Ok(Answer::Here(result)) => {
            let result: Value = serde_json::from_str(result.get()).unwrap();
            json!({"result": result})
        }
        Err(Error::Refused { refusal, .. }) => {
            let data = refusal.data.map(|data| data.get().to_owned());
            let data: Value = serde_json::from_str(&data.unwrap_or_default()).unwrap_or_default();
            json!({"error": {"code": refusal.code, "message": refusal.message, "data": data}})
        }
        other => panic!("{:?}", other.map(|_| "long")),
    }
}

#[tokio::test]
async fn over_http_a_call_that_asks_twice_is_done_once_and_for_its_caller_alone() {
    let before = Before::new("asks-twice");
    let url = over_http(before.server.clone()).await;
    let connection = client(&url, None);
    let first = posted(&connection, &json!({"name": "a"})).await;
    let second = posted(&connection, &again(&first, "yes")).await;
    let last = again(&second, "indeed");
    let others = posted(&client(&url, Some("another")), &last).await;
    is_refused(&others, "not one that was given to you");
    let mut otherwise = last.clone();
    otherwise["arguments"] = json!({"x": 1});
    let otherwise = posted(&connection, &otherwise).await;
    is_refused(&otherwise, "belongs to another request");
    let done = posted(&connection, &last).await;
    let text = r#"{"word":"yes"} {"word":"indeed"}"#;
    assert_eq!(done["result"]["content"][0]["text"], text, "{done}");
    is_refused(&posted(&connection, &last).await, "not held any more");
    assert_eq!(before.times("tools/call"), 1);
}

#[tokio::test]
async fn over_http_a_client_that_hangs_up_ends_what_is_held_for_it() {
    let before = Before::new("asks-and-hangs");
    let url = over_http(before.server.clone()).await;
    let connection = client(&url, None);
    let first = posted(&connection, &json!({"name": "a"})).await;
    let second = again(&first, "yes");
    let waiting = {
        let (connection, second) = (connection.clone(), second.clone());
        tokio::spawn(async move { posted(&connection, &second).await })
    };
    before.heard("answered").await;
    let other = posted(&connection, &second).await;
    is_refused(&other, "waits for this call already");
    waiting.abort();
    before.heard("notifications/cancelled").await;
    assert_eq!(before.times("tools/call"), 1);
}

/// A modern server asks by its results, as we do: what it asks at once is asked at once.
#[tokio::test]
async fn what_a_modern_server_asks_together_is_asked_together() {
    let before = Before::new("modern-asks-both");
    let mut stdio = Stdio::open(before.server.clone());
    let first = stdio.ask("tools/call", modern(json!({"name": "a"}))).await;
    let asked = &first["result"];
    let questions = asked["inputRequests"].as_object().unwrap();
    assert_eq!(questions.len(), 2, "{asked}");
    let answer = |n: usize| json!({"action": "accept", "content": {"n": n}});
    let keys = questions.keys().enumerate();
    let answers: Value = keys.map(|(n, key)| (key.clone(), answer(n))).collect();
    let state = &asked["requestState"];
    let again = json!({"name": "a", "requestState": state, "inputResponses": answers});
    let done = stdio.ask("tools/call", modern(again)).await;
    let text = json!({"one": answer(0), "other": answer(1)}).to_string();
    assert_eq!(done["result"]["content"][0]["text"], text, "{done}");
}

#[tokio::test]
async fn a_server_that_dies_while_its_call_is_held_is_told_of_with_its_last_words() {
    let before = Before::new("asks-and-dies");
    let mut stdio = Stdio::open(before.server.clone());
    let first = stdio.ask("tools/call", modern(json!({"name": "a"}))).await;
    let second = stdio.ask("tools/call", modern(again(&first, "yes"))).await;
    let result = &second["result"];
    assert_eq!(result["isError"], true, "{second}");
    let error = &result["structuredContent"]["error"];
    assert_eq!(error["code"], "outcome_unknown", "{second}");
    let said = error["message"].as_str().unwrap();
    assert!(said.contains("out of memory"), "{second}");
    assert_eq!(before.times("tools/call"), 1);
}
