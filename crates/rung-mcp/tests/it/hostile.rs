//! Servers that hang, flood, lie or crash harm neither the client nor other servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::faulty_server::{self, connection, default_options, http, stdio};
use rung_fault::{Code, Coded as _};
use rung_mcp::connect::{
    Delegate, DelegateError, DownstreamTool, Error, NullDelegate, Options, RequestOptions,
    ServerConnection, ServerResult, ServerTarget,
};
use rung_tool::BoxFuture;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

/// Time limit of every wait.
const TIMEOUT: Duration = Duration::from_secs(20);

async fn first_tool(connection: &ServerConnection) -> DownstreamTool {
    connection
        .tools(&default_options())
        .await
        .unwrap()
        .tools
        .remove(0)
}

async fn call_first_tool(connection: &ServerConnection, within: Duration) -> Result<String, Error> {
    let tool = first_tool(connection).await;
    let arguments = to_raw_value(&json!({})).unwrap();
    let how = RequestOptions {
        deadline: Some(tokio::time::Instant::now() + within),
        ..RequestOptions::default()
    };
    connection.call(&tool, &arguments, how).await.map(text)
}

fn text(answer: ServerResult) -> String {
    let ServerResult::InMemory(result) = answer else {
        panic!("it is long");
    };
    result.get().to_owned()
}

#[tokio::test]
async fn a_server_that_hangs_in_its_beginning_is_given_up() {
    let options = Options {
        open_timeout: Duration::from_millis(300),
        ..Options::new("hang")
    };
    let connection = ServerConnection::new(
        ServerTarget::Command(faulty_server::command("hang")),
        options,
        Arc::new(NullDelegate),
    );
    let error = connection.open().await.unwrap_err();
    assert_eq!(error.code(), Code::SourceUnavailable, "{error}");
}

#[tokio::test]
async fn junk_around_messages_is_passed_over() {
    let connection = stdio("junk");
    assert!(
        call_first_tool(&connection, TIMEOUT)
            .await
            .unwrap()
            .contains("done")
    );
}

#[tokio::test]
async fn a_server_that_does_not_know_the_modern_question_is_asked_the_legacy_one() {
    for mode in ["plain", "silent", "ends"] {
        let connection = stdio(mode);
        let agreed = connection
            .open()
            .await
            .unwrap_or_else(|error| panic!("{mode}: {error}"));
        assert_eq!(agreed.version.name(), "2025-11-25", "{mode}");
        assert_eq!(agreed.capabilities["vendor/x"]["deep"][0], 1.0);
    }
    assert_eq!(
        stdio("modern").open().await.unwrap().version.name(),
        "2026-07-28"
    );
    let error = stdio("future").open().await.unwrap_err();
    assert!(error.to_string().contains("2031-01-01"), "{error}");
}

#[tokio::test]
async fn a_crash_in_a_call_is_an_unknown_outcome_with_its_last_words_and_is_not_repeated() {
    let connection = stdio("crash");
    let error = call_first_tool(&connection, TIMEOUT).await.unwrap_err();
    assert_eq!(error.code(), Code::OutcomeUnknown, "{error}");
    assert!(
        error.to_string().contains("segmentation something"),
        "{error}"
    );
    // The next request restarts the server.
    assert_eq!(
        connection
            .tools(&default_options())
            .await
            .unwrap()
            .tools
            .len(),
        2
    );
}

#[tokio::test]
async fn unexpected_responses_are_ignored() {
    let connection = stdio("twice");
    for _ in 0..3 {
        let answer = call_first_tool(&connection, TIMEOUT).await.unwrap();
        assert!(answer.contains("first"), "{answer}");
    }
    let answer = call_first_tool(&stdio("other"), TIMEOUT).await.unwrap();
    assert!(answer.contains("of this one"), "{answer}");
}

#[tokio::test]
async fn a_late_response_is_not_taken_for_another_requests() {
    let connection = stdio("late");
    let error = call_first_tool(&connection, Duration::from_millis(50))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::OutcomeUnknown, "{error}");
    // The late response arrives first and is not taken for this request's.
    let tools = connection.tools(&default_options()).await.unwrap();
    assert_eq!(tools.tools.len(), 2);
}

#[tokio::test]
async fn no_traffic_extends_a_deadline() {
    let begun = Instant::now();
    let error = call_first_tool(&stdio("chatty"), Duration::from_millis(300))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::OutcomeUnknown, "{error}");
    for mode in ["endless", "modern-endless"] {
        let server = http(mode);
        let error = call_first_tool(&server.connection, Duration::from_millis(300))
            .await
            .unwrap_err();
        assert_eq!(error.code(), Code::OutcomeUnknown, "{mode}: {error}");
    }
    assert!(begun.elapsed() < TIMEOUT);
}

#[tokio::test]
async fn a_flood_is_read_past() {
    let heard = Arc::new(FloodCounter::default());
    let connection = connection(
        ServerTarget::Command(faulty_server::command("flood")),
        heard.clone(),
    );
    let answer = call_first_tool(&connection, TIMEOUT * 3).await.unwrap();
    assert!(answer.contains("after the flood"));
    assert_eq!(heard.0.load(Ordering::Relaxed), 20_000);
}

#[derive(Default)]
struct FloodCounter(AtomicUsize);

impl Delegate for FloodCounter {
    fn on_notification(&self, method: &str, _: Option<&RawValue>) {
        if method == "notifications/flood" {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_request<'a>(
        &'a self,
        _: &'a str,
        _: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, DelegateError>> {
        let answer = to_raw_value(&json!({"action": "decline"})).unwrap();
        Box::pin(std::future::ready(Ok(answer)))
    }
}

#[tokio::test]
async fn a_question_on_a_pipe_reaches_the_one_who_called() {
    for mode in ["asks", "modern-asks"] {
        let connection = stdio(mode);
        let tool = first_tool(&connection).await;
        let arguments = to_raw_value(&json!({})).unwrap();
        let how = RequestOptions {
            delegate: Some(Arc::new(FloodCounter::default())),
            ..RequestOptions::default()
        };
        let answer = text(connection.call(&tool, &arguments, how).await.unwrap());
        assert!(answer.contains("decline"), "{answer}");
    }
}

#[tokio::test]
async fn a_server_that_never_reads_does_not_block_callers() {
    let connection = stdio("deaf");
    let tool = first_tool(&connection).await;
    let large = to_raw_value(&json!({"text": "x".repeat(1 << 20)})).unwrap();
    let begun = Instant::now();
    for _ in 0..40 {
        let deadline = Some(tokio::time::Instant::now() + Duration::from_millis(20));
        let how = RequestOptions {
            deadline,
            ..RequestOptions::default()
        };
        let error = connection.call(&tool, &large, how).await.unwrap_err();
        let expected = [Code::OutcomeUnknown, Code::SourceUnavailable];
        assert!(expected.contains(&error.code()), "{error}");
    }
    assert!(begun.elapsed() < TIMEOUT);
}

#[tokio::test]
async fn a_long_result_is_read_from_a_file_and_its_bytes_are_right() {
    use std::io::Read as _;
    const BYTES: usize = 20 << 20;
    let connection = stdio("long");
    let tool = first_tool(&connection).await;
    let arguments = to_raw_value(&json!({"bytes": BYTES})).unwrap();
    let answer = connection
        .call(&tool, &arguments, default_options())
        .await
        .unwrap();
    let ServerResult::InFile(long) = answer else {
        panic!("it is short");
    };
    let mut long = long.open().unwrap();
    let mut result = String::new();
    long.body.read_to_string(&mut result).unwrap();
    assert!(result.starts_with(&long.head));
    let result: serde_json::Value = serde_json::from_str(&result).unwrap();
    assert_eq!(result["end"], true);
    let text = result["content"][0]["text"].as_str().unwrap();
    assert_eq!(text, &"0123456789abcdef".repeat(BYTES / 16));
}

#[tokio::test]
async fn one_bad_tool_does_not_take_the_others_with_it() {
    let server = http("odd");
    for connection in [stdio("odd"), server.connection.clone()] {
        let tools = connection.tools(&default_options()).await.unwrap();
        let names: Vec<&str> = tools.tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["good", "better"]);
        assert_eq!(tools.rejected.len(), 9);
        assert!(tools.rejected.iter().all(|dropped| !dropped.why.is_empty()));
        // The definition is unchanged.
        assert!(
            tools.tools[1]
                .definition
                .get()
                .contains(r#""vendor":{"n":1.5}"#)
                || tools.tools[1].definition.get().contains("1.50")
        );
    }
}

#[tokio::test]
async fn a_list_without_an_end_is_followed_so_far_and_no_further() {
    let tools = stdio("endless").tools(&default_options()).await.unwrap();
    assert!(tools.cut);
    let tools = stdio("circle").tools(&default_options()).await.unwrap();
    assert_eq!(tools.tools.len(), 1);
}

#[tokio::test]
async fn http_failures_have_the_right_error_code() {
    for (mode, code, words) in [
        ("500", Code::SourceUnavailable, "500"),
        ("401", Code::SourceUnauthorized, "who are you?"),
        ("401-json", Code::SourceUnauthorized, "who are you?"),
        ("redirect", Code::SourceUnavailable, "127.0.0.2:9/steal"),
        ("garbage", Code::SourceUnavailable, ""),
        ("old-elsewhere", Code::SourceUnavailable, ""),
    ] {
        let server = http(mode);
        let error = server.connection.open().await.unwrap_err();
        assert_eq!(error.code(), code, "{mode}: {error}");
        assert!(error.to_string().contains(words), "{mode}: {error}");
        assert!(!error.to_string().contains('\x1b'), "{error}");
        assert!(!error.to_string().contains("SECRET"), "{error}");
    }
    // In each case the call may have taken effect.
    for mode in ["cut", "cut-stream", "504", "503", "303", "202", "half"] {
        let server = http(mode);
        let error = call_first_tool(&server.connection, TIMEOUT)
            .await
            .unwrap_err();
        assert_eq!(error.code(), Code::OutcomeUnknown, "{mode}: {error}");
    }
    let server = http("other");
    let error = call_first_tool(&server.connection, TIMEOUT)
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::OutcomeUnknown, "{error}");
}

#[tokio::test]
async fn nothing_listens_there_or_does_not_speak_tls() {
    let nobody = faulty_server::address("http://127.0.0.1:9/mcp");
    let error = connection(nobody, Arc::new(NullDelegate))
        .open()
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::SourceUnavailable, "{error}");
    let server = http("plain");
    let url = server.url.replace("http://", "https://");
    let error = connection(faulty_server::address(&url), Arc::new(NullDelegate))
        .open()
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::SourceUnavailable, "{error}");
}

#[tokio::test]
async fn a_stream_that_was_cut_off_is_gone_on_with() {
    let server = http("resume");
    let answer = call_first_tool(&server.connection, TIMEOUT).await.unwrap();
    assert!(answer.contains("content"), "{answer}");
}

#[tokio::test]
async fn the_oldest_servers_are_spoken_to_as_well() {
    let server = http("old");
    assert!(
        call_first_tool(&server.connection, TIMEOUT)
            .await
            .unwrap()
            .contains("done")
    );
}

#[tokio::test]
async fn a_server_that_cannot_be_started_is_tried_less_and_less_often() {
    let target = ServerTarget::Command(rung_mcp::connect::ServerCommand::new(
        "/nonexistent/server",
        Vec::<String>::new(),
    ));
    let connection = connection(target, Arc::new(NullDelegate));
    let mut waits = Vec::new();
    for _ in 0..4 {
        let begun = Instant::now();
        let error = connection.open().await.unwrap_err();
        assert_eq!(error.code(), Code::SourceUnavailable, "{error}");
        assert!(error.to_string().contains("/nonexistent/server"), "{error}");
        waits.push(begun.elapsed());
    }
    assert!(waits[3] > waits[1], "{waits:?}");
}

#[tokio::test]
async fn a_dropped_call_leaves_the_server_usable() {
    let connection = stdio("never");
    let tool = first_tool(&connection).await;
    let arguments = to_raw_value(&json!({})).unwrap();
    {
        let calling = connection.call(&tool, &arguments, default_options());
        let _not_in_time = tokio::time::timeout(Duration::from_millis(50), calling).await;
    }
    // The server remains usable.
    assert_eq!(
        connection
            .tools(&default_options())
            .await
            .unwrap()
            .tools
            .len(),
        2
    );
}

/// Regression: every repetition was counted against the limit and kept in memory.
#[tokio::test]
async fn a_question_that_is_repeated_is_asked_once() {
    #[derive(Default)]
    struct RequestCounter(AtomicUsize);

    impl Delegate for RequestCounter {
        fn on_request<'a>(
            &'a self,
            _: &'a str,
            _: Option<&'a RawValue>,
        ) -> BoxFuture<'a, Result<Box<RawValue>, DelegateError>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::pending())
        }
    }

    let slow = Arc::new(RequestCounter::default());
    let connection = connection(
        ServerTarget::Command(faulty_server::command("nags")),
        slow.clone(),
    );
    assert!(
        call_first_tool(&connection, TIMEOUT)
            .await
            .unwrap()
            .contains("enough")
    );
    assert_eq!(slow.0.load(Ordering::Relaxed), 1);
}

/// Regression: the tool was called sixteen times.
#[tokio::test]
async fn a_legacy_result_type_has_no_modern_meaning() {
    let connection = stdio("input");
    let first = call_first_tool(&connection, TIMEOUT).await.unwrap();
    let second = call_first_tool(&connection, TIMEOUT).await.unwrap();
    let calls = |answer: &str| -> serde_json::Value {
        serde_json::from_str::<serde_json::Value>(answer).unwrap()["calls"].clone()
    };
    // Between the two calls lies one `tools/list`.
    assert_eq!(
        calls(&second).as_u64(),
        calls(&first).as_u64().map(|calls| calls + 2)
    );
}

#[tokio::test]
async fn a_task_that_cannot_be_looked_at_any_more_has_an_unknown_outcome() {
    let server = http("modern-task");
    let error = call_first_tool(&server.connection, Duration::from_millis(700))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::OutcomeUnknown, "{error}");
}

#[tokio::test]
async fn a_legacy_server_is_greeted_in_its_own_way() {
    let server = http("strict");
    assert_eq!(
        server.connection.open().await.unwrap().version.name(),
        "2025-11-25"
    );
}

#[tokio::test]
async fn answers_that_are_written_a_little_wrong_are_understood() {
    for mode in ["batch", "no-error"] {
        let answer = call_first_tool(&stdio(mode), TIMEOUT).await.unwrap();
        assert!(answer.contains("content"), "{mode}");
    }
}

/// Regression: the end of the stream overtook the parsing of a long response.
#[tokio::test]
async fn a_long_response_before_the_end_is_delivered() {
    let connection = stdio("long-goodbye");
    let tool = first_tool(&connection).await;
    let arguments = to_raw_value(&json!({"bytes": 30 << 20})).unwrap();
    let answer = connection
        .call(&tool, &arguments, default_options())
        .await
        .unwrap();
    assert!(matches!(answer, ServerResult::InFile(_)));
}

/// A server that traces its messages.
fn traced_target(mode: &str, folder: &std::path::Path) -> (ServerTarget, std::path::PathBuf) {
    let trace = folder.join("trace");
    let mut command = faulty_server::command(mode);
    let value = trace.to_str().unwrap().to_owned();
    command.env.push(("TRACE".to_owned(), value));
    (ServerTarget::Command(command), trace)
}

/// Regression: the connection was closed before the cancellation was sent.
#[tokio::test]
async fn a_server_hears_that_a_call_is_not_wanted_before_it_is_hung_up_on() {
    let folder = tempfile::tempdir().unwrap();
    let (target, trace) = traced_target("never", folder.path());
    let connection = connection(target, Arc::new(NullDelegate));
    let error = call_first_tool(&connection, Duration::from_millis(50))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::OutcomeUnknown, "{error}");
    connection.close().await;
    let heard = std::fs::read_to_string(&trace).unwrap();
    assert_eq!(
        heard.lines().last(),
        Some("notifications/cancelled"),
        "{heard}"
    );
    assert_eq!(heard.matches("tools/call").count(), 1, "{heard}");
}

#[tokio::test]
async fn the_era_of_a_server_is_found_out_once() {
    for (mode, question) in [("silent", "initialize"), ("modern", "server/discover")] {
        let folder = tempfile::tempdir().unwrap();
        let (target, trace) = traced_target(mode, folder.path());
        let connection = connection(target, Arc::new(NullDelegate));
        connection.open().await.unwrap();
        connection.close().await;
        let first = std::fs::read_to_string(&trace).unwrap();
        connection.open().await.unwrap();
        let both = std::fs::read_to_string(&trace).unwrap();
        let second = both[first.len()..].lines().next();
        assert_eq!(second, Some(question), "{mode}: {both}");
    }
}

#[tokio::test]
async fn a_cancelled_server_request_is_dropped() {
    /// Never answers, and counts dropped futures.
    #[derive(Default)]
    struct NeverAnswers(Arc<AtomicUsize>);

    struct DropCounter(Arc<AtomicUsize>);

    impl Drop for DropCounter {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Delegate for NeverAnswers {
        fn on_request<'a>(
            &'a self,
            _: &'a str,
            _: Option<&'a RawValue>,
        ) -> BoxFuture<'a, Result<Box<RawValue>, DelegateError>> {
            let thought = DropCounter(self.0.clone());
            Box::pin(async move {
                let _thought = thought;
                std::future::pending().await
            })
        }
    }

    let dropped = Arc::new(AtomicUsize::new(0));
    let target = ServerTarget::Command(faulty_server::command("takes-back"));
    let connection = connection(target, Arc::new(NeverAnswers(dropped.clone())));
    let answer = call_first_tool(&connection, TIMEOUT).await.unwrap();
    assert!(answer.contains("never mind"));
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn notifications_during_a_call_reach_its_delegate() {
    #[derive(Default)]
    struct NotificationRecorder(parking_lot::Mutex<Vec<String>>);

    impl Delegate for NotificationRecorder {
        fn wants_progress(&self) -> bool {
            true
        }

        fn on_notification(&self, method: &str, params: Option<&RawValue>) {
            let params: serde_json::Value = serde_json::from_str(params.unwrap().get()).unwrap();
            self.0
                .lock()
                .push(format!("{method} {}", params["progress"]));
        }
    }

    let (caller, others) = (
        Arc::new(NotificationRecorder::default()),
        Arc::new(NotificationRecorder::default()),
    );
    let target = ServerTarget::Command(faulty_server::command("progress"));
    let connection = connection(target, others.clone());
    let tool = first_tool(&connection).await;
    let arguments = to_raw_value(&json!({})).unwrap();
    let how = RequestOptions {
        delegate: Some(caller.clone()),
        ..RequestOptions::default()
    };
    connection.call(&tool, &arguments, how).await.unwrap();
    let mut heard = caller.0.lock().clone();
    // On stdio a log message names no request; only this request was pending.
    assert_eq!(heard.pop().as_deref(), Some("notifications/message null"));
    assert_eq!(
        heard,
        [1, 2, 3].map(|n| format!("notifications/progress {n}"))
    );
    assert!(others.0.lock().is_empty());
}
