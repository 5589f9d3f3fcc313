//! The interface for relaying: a server's tasks by id, its changes and its log, in either era.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rung_fault::{Code, Coded as _};
use rung_mcp::SubscriptionFilter;
use rung_mcp::connect::{
    Delegate, ListKind, RequestOptions, ServerConnection, ServerResult, ServerTarget, StartedCall,
};
use rung_tool::LogLevel;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::faulty_server::{command, connection, default_options, stdio};

/// Records notifications, with a minimum log level.
#[derive(Default)]
struct WarningRecorder(Mutex<Vec<String>>);

impl Delegate for WarningRecorder {
    fn log_level(&self) -> Option<LogLevel> {
        Some(LogLevel::Warning)
    }

    fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        let params = params.map_or("", RawValue::get);
        self.0.lock().push(format!("{method} {params}"));
    }
}

/// A server that traces its messages.
fn traced_connection(mode: &str, ear: Arc<WarningRecorder>) -> (ServerConnection, TempDir) {
    let dir = TempDir::new().unwrap();
    let mut command = command(mode);
    let trace = dir.path().join("trace").to_str().unwrap().to_owned();
    command.env.push(("TRACE".to_owned(), trace));
    (connection(ServerTarget::Command(command), ear), dir)
}

fn trace(dir: &TempDir) -> String {
    std::fs::read_to_string(dir.path().join("trace")).unwrap_or_default()
}

async fn wait_until(come: impl Fn() -> bool) {
    let waiting = async {
        while !come() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    waited.expect("it comes");
}

fn parse(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap()
}

fn text(answer: ServerResult) -> String {
    let ServerResult::InMemory(result) = answer else {
        panic!("it is long");
    };
    parse(&result)["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_task_of_either_era_is_begun_looked_at_and_awaited_by_its_id() {
    for mode in ["tasks", "modern-tasks"] {
        let connection = stdio(mode);
        let tool = connection
            .tools(&default_options())
            .await
            .unwrap()
            .tools
            .remove(0);
        let nothing = to_raw_value(&json!({})).unwrap();
        let begun = connection
            .start_call(&tool, &nothing, Some(60_000), default_options())
            .await;
        let StartedCall::Task(task) = begun.unwrap() else {
            panic!("{mode}: it is a task");
        };
        assert_eq!(task.id, "t1");
        let state = parse(&task.state);
        assert_eq!(
            (&state["status"], &state["vendor"]),
            (&json!("working"), &json!(1))
        );
        // The TTL is sent only in 2025-11-25.
        assert!(mode != "tasks" || state["ttl"] == 60_000, "{state}");
        let state = connection.task(&task.id, &default_options()).await.unwrap();
        assert_eq!(parse(&state)["status"], "working", "{mode}");
        let result = connection
            .task_result(&task.id, &default_options())
            .await
            .unwrap();
        assert_eq!(text(result), "in the end");
        let cancelled = connection
            .cancel_task(&task.id, &default_options())
            .await
            .unwrap();
        assert_eq!(parse(&cancelled)["status"], "cancelled", "{mode}");
        let listed = connection
            .list(ListKind::Tasks, &default_options())
            .await
            .unwrap();
        assert_eq!(listed.items.len(), usize::from(mode == "tasks"));
        // `call` polls the task to its end.
        let called = connection
            .call(&tool, &nothing, default_options())
            .await
            .unwrap();
        let expected = if mode == "tasks" {
            "at once"
        } else {
            "in the end"
        };
        assert_eq!(text(called), expected);
    }
    let answers = to_raw_value(&json!({"k": {}})).unwrap();
    let updated = stdio("modern-tasks")
        .update_task("t1", &answers, default_options())
        .await;
    updated.unwrap();
}

#[tokio::test]
async fn a_task_that_is_no_longer_awaited_goes_on() {
    let (connection, dir) = traced_connection("tasks", Arc::default());
    connection.open().await.unwrap();
    let patience = default_options();
    let awaited = connection.task_result("t1", &patience);
    let looked = async { wait_until(|| trace(&dir).contains("tasks/get")).await };
    tokio::select! {
        biased;
        _ = awaited => panic!("it is not over"),
        () = looked => {}
    }
    connection.task("t1", &default_options()).await.unwrap();
    connection.close().await;
    assert!(!trace(&dir).contains("tasks/cancel"), "{}", trace(&dir));
}

#[tokio::test]
async fn change_notifications_follow_the_servers_era_until_unsubscribed() {
    for (mode, taken_back) in [
        ("listens", "resources/unsubscribe"),
        ("modern-listens", "notifications/cancelled"),
    ] {
        let ear = Arc::new(WarningRecorder::default());
        let (connection, dir) = traced_connection(mode, ear.clone());
        let listening = {
            let connection = connection.clone();
            let wanted = SubscriptionFilter {
                resource_subscriptions: vec!["x:1".to_owned()],
                ..SubscriptionFilter::default()
            };
            tokio::spawn(async move { connection.listen(&wanted).await })
        };
        let told = |heard: &String| heard.contains("resources/updated") && heard.contains("x:1");
        wait_until(|| ear.0.lock().iter().any(told)).await;
        listening.abort();
        wait_until(|| trace(&dir).contains(taken_back)).await;
    }
}

#[tokio::test]
async fn a_subscription_ends_with_the_server() {
    for mode in ["listens", "modern-listens"] {
        let connection = stdio(mode);
        connection.open().await.unwrap();
        let listening = {
            let connection = connection.clone();
            tokio::spawn(async move { connection.listen(&SubscriptionFilter::default()).await })
        };
        tokio::time::sleep(Duration::from_millis(50)).await;
        connection.close().await;
        let ended = tokio::time::timeout(Duration::from_secs(10), listening).await;
        ended.unwrap().unwrap().ok();
    }
}

#[tokio::test]
async fn the_log_level_is_sent_to_the_server() {
    let (connection, dir) = traced_connection("listens", Arc::default());
    connection
        .set_log_level(LogLevel::Error, default_options())
        .await
        .unwrap();
    assert!(trace(&dir).contains("logging/setLevel"));
    // In the modern era every request declares the level.
    let (connection, dir) = traced_connection("modern", Arc::default());
    connection
        .set_log_level(LogLevel::Error, default_options())
        .await
        .unwrap();
    assert!(!trace(&dir).contains("logging/setLevel"));
    let loud = RequestOptions {
        delegate: Some(Arc::new(WarningRecorder::default())),
        ..default_options()
    };
    let echoed = connection.request("echo/it", None, loud).await.unwrap();
    let ServerResult::InMemory(echoed) = echoed else {
        panic!("it is long");
    };
    let said = &parse(&echoed)["_meta"]["io.modelcontextprotocol/logLevel"];
    assert_eq!(said, "warning", "{echoed}");
}

#[tokio::test]
async fn a_server_that_dies_at_its_start_says_why() {
    let error = stdio("dies").open().await.unwrap_err();
    assert_eq!(error.code(), Code::SourceUnavailable, "{error}");
    assert!(
        error.to_string().contains("there is no configuration"),
        "{error}"
    );
}

/// An unsent request is sent to the restarted server; one that may have been read is lost.
#[tokio::test]
async fn what_was_never_written_to_a_server_that_ended_is_sent_to_the_next() {
    let connection = stdio("deaf-and-dies");
    connection.open().await.unwrap();
    let listing = {
        let connection = connection.clone();
        tokio::spawn(async move { connection.tools(&default_options()).await })
    };
    listing.await.unwrap().unwrap();
    // More than the pipe's capacity, so the next message is queued.
    let long = to_raw_value(&json!({"long": "x".repeat(1 << 20)})).unwrap();
    let short = to_raw_value(&json!({"short": 1})).unwrap();
    let (long, short) = tokio::join!(
        connection.request("echo/long", Some(&long), default_options()),
        connection.request("echo/short", Some(&short), default_options()),
    );
    assert_eq!(long.unwrap_err().code(), Code::OutcomeUnknown);
    let Ok(ServerResult::InMemory(short)) = short else {
        panic!("{short:?}");
    };
    assert_eq!(short.get(), r#"{"short":1}"#);
}
