//! What somebody who passes requests on needs of a server: its tasks by their ids, its changes, its log, in either era.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rung_fault::{Code, Coded as _};
use rung_mcp::Wanted;
use rung_mcp::connect::{Answer, Begun, Connection, Delegate, How, Kind, Target};
use rung_tool::Level;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::mischief::{command, connection, how, stdio};

/// Hears everything, from a level on.
#[derive(Default)]
struct Ear(Mutex<Vec<String>>);

impl Delegate for Ear {
    fn log_level(&self) -> Option<Level> {
        Some(Level::Warning)
    }

    fn told(&self, method: &str, params: Option<&RawValue>) {
        let params = params.map_or("", RawValue::get);
        self.0.lock().push(format!("{method} {params}"));
    }
}

/// A server that leaves a trace of what it is sent.
fn traced(mode: &str, ear: Arc<Ear>) -> (Connection, TempDir) {
    let dir = TempDir::new().unwrap();
    let mut command = command(mode);
    let trace = dir.path().join("trace").to_str().unwrap().to_owned();
    command.env.push(("TRACE".to_owned(), trace));
    (connection(Target::Command(command), ear), dir)
}

fn trace(dir: &TempDir) -> String {
    std::fs::read_to_string(dir.path().join("trace")).unwrap_or_default()
}

async fn until(come: impl Fn() -> bool) {
    let waiting = async {
        while !come() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    waited.expect("it comes");
}

fn read(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap()
}

fn text(answer: Answer) -> String {
    let Answer::Here(result) = answer else {
        panic!("it is long");
    };
    read(&result)["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_task_of_either_era_is_begun_looked_at_and_awaited_by_its_id() {
    for mode in ["tasks", "modern-tasks"] {
        let connection = stdio(mode);
        let tool = connection.tools(&how()).await.unwrap().tools.remove(0);
        let nothing = to_raw_value(&json!({})).unwrap();
        let begun = connection.begin(&tool, &nothing, Some(60_000), how()).await;
        let Begun::Task(task) = begun.unwrap() else {
            panic!("{mode}: it is a task");
        };
        assert_eq!(task.id, "t1");
        let state = read(&task.state);
        assert_eq!(
            (&state["status"], &state["vendor"]),
            (&json!("working"), &json!(1))
        );
        // Said where the version lets a caller say it.
        assert!(mode != "tasks" || state["ttl"] == 60_000, "{state}");
        let state = connection.task(&task.id, &how()).await.unwrap();
        assert_eq!(read(&state)["status"], "working", "{mode}");
        let result = connection.task_result(&task.id, &how()).await.unwrap();
        assert_eq!(text(result), "in the end");
        let cancelled = connection.cancel_task(&task.id, &how()).await.unwrap();
        assert_eq!(read(&cancelled)["status"], "cancelled", "{mode}");
        let listed = connection.list(Kind::Tasks, &how()).await.unwrap();
        assert_eq!(listed.items.len(), usize::from(mode == "tasks"));
        // And followed to its end, by whoever wants nothing but that.
        let called = connection.call(&tool, &nothing, how()).await.unwrap();
        let expected = if mode == "tasks" {
            "at once"
        } else {
            "in the end"
        };
        assert_eq!(text(called), expected);
    }
    let answers = to_raw_value(&json!({"k": {}})).unwrap();
    let updated = stdio("modern-tasks")
        .update_task("t1", &answers, how())
        .await;
    updated.unwrap();
}

#[tokio::test]
async fn a_task_that_is_no_longer_awaited_goes_on() {
    let (connection, dir) = traced("tasks", Arc::default());
    connection.open().await.unwrap();
    let patience = how();
    let awaited = connection.task_result("t1", &patience);
    let looked = async { until(|| trace(&dir).contains("tasks/get")).await };
    tokio::select! {
        biased;
        _ = awaited => panic!("it is not over"),
        () = looked => {}
    }
    connection.task("t1", &how()).await.unwrap();
    connection.close().await;
    assert!(!trace(&dir).contains("tasks/cancel"), "{}", trace(&dir));
}

#[tokio::test]
async fn changes_are_told_in_the_way_of_the_servers_era_until_nobody_listens() {
    for (mode, taken_back) in [
        ("listens", "resources/unsubscribe"),
        ("modern-listens", "notifications/cancelled"),
    ] {
        let ear = Arc::new(Ear::default());
        let (connection, dir) = traced(mode, ear.clone());
        let listening = {
            let connection = connection.clone();
            let wanted = Wanted {
                resource_subscriptions: vec!["x:1".to_owned()],
                ..Wanted::default()
            };
            tokio::spawn(async move { connection.listen(&wanted).await })
        };
        let told = |heard: &String| heard.contains("resources/updated") && heard.contains("x:1");
        until(|| ear.0.lock().iter().any(told)).await;
        listening.abort();
        until(|| trace(&dir).contains(taken_back)).await;
    }
}

#[tokio::test]
async fn whoever_listens_is_told_that_the_server_ended() {
    for mode in ["listens", "modern-listens"] {
        let connection = stdio(mode);
        connection.open().await.unwrap();
        let listening = {
            let connection = connection.clone();
            tokio::spawn(async move { connection.listen(&Wanted::default()).await })
        };
        tokio::time::sleep(Duration::from_millis(50)).await;
        connection.close().await;
        let ended = tokio::time::timeout(Duration::from_secs(10), listening).await;
        ended.unwrap().unwrap().ok();
    }
}

#[tokio::test]
async fn a_server_is_told_how_loud_its_log_is_to_be() {
    let (connection, dir) = traced("listens", Arc::default());
    connection.set_log_level(Level::Error, how()).await.unwrap();
    assert!(trace(&dir).contains("logging/setLevel"));
    // In the modern era every request says it.
    let (connection, dir) = traced("modern", Arc::default());
    connection.set_log_level(Level::Error, how()).await.unwrap();
    assert!(!trace(&dir).contains("logging/setLevel"));
    let loud = How {
        delegate: Some(Arc::new(Ear::default())),
        ..how()
    };
    let echoed = connection.request("echo/it", None, loud).await.unwrap();
    let Answer::Here(echoed) = echoed else {
        panic!("it is long");
    };
    let said = &read(&echoed)["_meta"]["io.modelcontextprotocol/logLevel"];
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

/// What never left was not done, and is sent to the server that comes after; what may have been read is lost.
#[tokio::test]
async fn what_was_never_written_to_a_server_that_ended_is_sent_to_the_next() {
    let connection = stdio("deaf-and-dies");
    connection.open().await.unwrap();
    let listing = {
        let connection = connection.clone();
        tokio::spawn(async move { connection.tools(&how()).await })
    };
    listing.await.unwrap().unwrap();
    // More than a pipe holds, so that what comes behind it waits.
    let long = to_raw_value(&json!({"long": "x".repeat(1 << 20)})).unwrap();
    let short = to_raw_value(&json!({"short": 1})).unwrap();
    let (long, short) = tokio::join!(
        connection.request("echo/long", Some(&long), how()),
        connection.request("echo/short", Some(&short), how()),
    );
    assert_eq!(long.unwrap_err().code(), Code::OutcomeUnknown);
    let Ok(Answer::Here(short)) = short else {
        panic!("{short:?}");
    };
    assert_eq!(short.get(), r#"{"short":1}"#);
}
