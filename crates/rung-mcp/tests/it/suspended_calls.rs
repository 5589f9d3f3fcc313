//! A modern client calls a tool of a legacy server that asks during the call: the call is suspended, and executed once.

use std::sync::Arc;

use rung_mcp::connect::{
    Delegate, Era, Error, Options, ServerAddress, ServerConnection, ServerResult, ServerTarget,
};
use rung_mcp::{Capabilities, DownstreamToolSource, McpServer, ServerConfig};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::faulty_server::{command, default_options};
use crate::fixture::{FullResultStore, StdioClient, serve_http, server_config, with_modern_meta};

/// A gateway before a downstream server that traces its messages.
struct GatewayBeforeServer {
    server: McpServer,
    dir: TempDir,
}

impl GatewayBeforeServer {
    fn new(mode: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let mut command = command(mode);
        let trace = dir.path().join("trace");
        let trace = trace.to_str().unwrap().to_owned();
        command.env.push(("TRACE".to_owned(), trace));
        let can = Capabilities {
            form_elicitation: true,
            ..Capabilities::default()
        };
        let options = Options::new("behind");
        let remote = DownstreamToolSource::new(
            ServerTarget::Command(command),
            options,
            can,
            Arc::new(FullResultStore),
        );
        let server = McpServer::new(ServerConfig {
            tools: Arc::new(remote),
            ..server_config()
        });
        Self { server, dir }
    }

    fn trace_count(&self, method: &str) -> usize {
        let trace = std::fs::read_to_string(self.dir.path().join("trace")).unwrap_or_default();
        trace.lines().filter(|line| *line == method).count()
    }

    /// Waits until the downstream server has received this method.
    async fn wait_for_trace(&self, method: &str) {
        let waiting = async {
            while self.trace_count(method) == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(std::time::Duration::from_secs(10), waiting).await;
        waited.expect("it is told");
    }
}

/// The repeated call with an answer to the input request in `asked`.
fn retry_params(asked: &Value, word: &str) -> Value {
    let asked = &asked["result"];
    let questions = asked["inputRequests"].as_object().unwrap();
    assert_eq!(questions.len(), 1, "{asked}");
    let (key, question) = questions.iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({"action": "accept", "content": {"word": word}});
    json!({"name": "a", "requestState": asked["requestState"], "inputResponses": {key: answer}})
}

fn with_progress_token(mut params: Value, token: &str) -> Value {
    params["_meta"]["progressToken"] = token.into();
    with_modern_meta(params)
}

fn assert_refused(answer: &Value, why: &str) {
    let error = &answer["error"];
    assert_eq!(error["code"], -32602, "{answer}");
    assert!(error["message"].as_str().unwrap().contains(why), "{answer}");
    let hint = error["data"]["hint"].as_str().unwrap();
    assert!(hint.contains("without requestState"), "{answer}");
}

#[tokio::test]
async fn over_stdio_a_call_that_asks_twice_is_done_once() {
    let before = GatewayBeforeServer::new("asks-twice");
    let mut stdio = StdioClient::open(before.server.clone());
    let first = with_progress_token(json!({"name": "a"}), "one");
    let first = stdio.request("tools/call", first).await;
    assert_eq!(first["result"]["resultType"], "input_required", "{first}");
    let second = with_progress_token(retry_params(&first, "yes"), "two");
    let second = stdio.request("tools/call", second).await;
    assert_eq!(second["result"]["resultType"], "input_required", "{second}");
    // Progress goes to the request that is waiting now.
    let told = stdio.received.last().unwrap();
    assert_eq!(told["params"]["progressToken"], "two", "{told}");
    // An answer to an earlier question is not accepted for a later one.
    let replayed = stdio
        .request("tools/call", with_modern_meta(retry_params(&first, "no")))
        .await;
    assert_refused(&replayed, "already given");
    let last = with_modern_meta(retry_params(&second, "indeed"));
    let done = stdio.request("tools/call", last.clone()).await;
    let text = r#"{"word":"yes"} {"word":"indeed"}"#;
    assert_eq!(done["result"]["content"][0]["text"], text, "{done}");
    assert_eq!(before.trace_count("tools/call"), 1);
    let replayed = stdio.request("tools/call", last).await;
    assert_refused(&replayed, "the suspended call is gone");
    assert_eq!(replayed["error"]["data"]["code"], "outcome_unknown");
    assert_eq!(before.trace_count("tools/call"), 1);
}

#[tokio::test]
async fn cancelling_a_suspended_call_cancels_it_downstream() {
    let before = GatewayBeforeServer::new("asks-and-hangs");
    let mut stdio = StdioClient::open(before.server.clone());
    let first = stdio
        .request("tools/call", with_modern_meta(json!({"name": "a"})))
        .await;
    let second = with_modern_meta(retry_params(&first, "yes"));
    let id = stdio.send_request("tools/call", &second);
    // The call is still waiting.
    stdio
        .request("tools/list", with_modern_meta(json!({})))
        .await;
    let cancelled = json!({"requestId": id});
    stdio
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}));
    before.wait_for_trace("notifications/cancelled").await;
    let late = stdio.request("tools/call", second).await;
    assert_refused(&late, "the suspended call is gone");
    assert_eq!(before.trace_count("tools/call"), 1);
}

#[tokio::test]
async fn a_suspended_call_ends_with_the_server() {
    let before = GatewayBeforeServer::new("asks-twice");
    let mut stdio = StdioClient::open(before.server.clone());
    stdio
        .request("tools/call", with_modern_meta(json!({"name": "a"})))
        .await;
    stdio.close().await;
    before.wait_for_trace("notifications/cancelled").await;
}

struct FormDelegate;

impl Delegate for FormDelegate {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            form_elicitation: true,
            ..Capabilities::default()
        }
    }
}

fn client(url: &str, token: Option<&str>) -> ServerConnection {
    let mut address = ServerAddress::new(url.parse().unwrap());
    if let Some(token) = token {
        let token = format!("Bearer {token}");
        address.add_header("authorization", &token).unwrap();
    }
    let options = Options {
        era: Some(Era::Modern),
        ..Options::new("between")
    };
    ServerConnection::new(
        ServerTarget::Address(address),
        options,
        Arc::new(FormDelegate),
    )
}

/// Returns the result or error as a JSON-RPC message.
async fn call_raw(connection: &ServerConnection, params: &Value) -> Value {
    let params = to_raw_value(params).unwrap();
    match connection
        .request("tools/call", Some(&params), default_options())
        .await
    {
        Ok(ServerResult::InMemory(result)) => {
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
    let before = GatewayBeforeServer::new("asks-twice");
    let url = serve_http(before.server.clone()).await;
    let connection = client(&url, None);
    let first = call_raw(&connection, &json!({"name": "a"})).await;
    let second = call_raw(&connection, &retry_params(&first, "yes")).await;
    let last = retry_params(&second, "indeed");
    let others = call_raw(&client(&url, Some("another")), &last).await;
    assert_refused(&others, "was not issued to this caller");
    let mut otherwise = last.clone();
    otherwise["arguments"] = json!({"x": 1});
    let otherwise = call_raw(&connection, &otherwise).await;
    assert_refused(&otherwise, "belongs to another request");
    let done = call_raw(&connection, &last).await;
    let text = r#"{"word":"yes"} {"word":"indeed"}"#;
    assert_eq!(done["result"]["content"][0]["text"], text, "{done}");
    assert_refused(
        &call_raw(&connection, &last).await,
        "the suspended call is gone",
    );
    assert_eq!(before.trace_count("tools/call"), 1);
}

#[tokio::test]
async fn over_http_a_disconnected_client_cancels_its_suspended_call() {
    let before = GatewayBeforeServer::new("asks-and-hangs");
    let url = serve_http(before.server.clone()).await;
    let connection = client(&url, None);
    let first = call_raw(&connection, &json!({"name": "a"})).await;
    let second = retry_params(&first, "yes");
    let waiting = {
        let (connection, second) = (connection.clone(), second.clone());
        tokio::spawn(async move { call_raw(&connection, &second).await })
    };
    before.wait_for_trace("answered").await;
    let other = call_raw(&connection, &second).await;
    assert_refused(&other, "already waits for this call");
    waiting.abort();
    before.wait_for_trace("notifications/cancelled").await;
    assert_eq!(before.trace_count("tools/call"), 1);
}

/// A modern server asks in its results: questions that arrive together are relayed together.
#[tokio::test]
async fn input_requests_of_one_result_are_relayed_together() {
    let before = GatewayBeforeServer::new("modern-asks-both");
    let mut stdio = StdioClient::open(before.server.clone());
    let first = stdio
        .request("tools/call", with_modern_meta(json!({"name": "a"})))
        .await;
    let asked = &first["result"];
    let questions = asked["inputRequests"].as_object().unwrap();
    assert_eq!(questions.len(), 2, "{asked}");
    let answer = |n: usize| json!({"action": "accept", "content": {"n": n}});
    let keys = questions.keys().enumerate();
    let answers: Value = keys.map(|(n, key)| (key.clone(), answer(n))).collect();
    let state = &asked["requestState"];
    let again = json!({"name": "a", "requestState": state, "inputResponses": answers});
    let done = stdio.request("tools/call", with_modern_meta(again)).await;
    let text = json!({"one": answer(0), "other": answer(1)}).to_string();
    assert_eq!(done["result"]["content"][0]["text"], text, "{done}");
}

#[tokio::test]
async fn a_crash_during_a_suspended_call_is_reported_with_its_stderr() {
    let before = GatewayBeforeServer::new("asks-and-dies");
    let mut stdio = StdioClient::open(before.server.clone());
    let first = stdio
        .request("tools/call", with_modern_meta(json!({"name": "a"})))
        .await;
    let second = stdio
        .request("tools/call", with_modern_meta(retry_params(&first, "yes")))
        .await;
    let result = &second["result"];
    assert_eq!(result["isError"], true, "{second}");
    let error = &result["structuredContent"]["error"];
    assert_eq!(error["code"], "outcome_unknown", "{second}");
    let said = error["message"].as_str().unwrap();
    assert!(said.contains("out of memory"), "{second}");
    assert_eq!(before.trace_count("tools/call"), 1);
}
