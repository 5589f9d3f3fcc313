//! The public behaviour of a toolbox: listing, rejection of bad input, and replies within their budget.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rung_auth::{Access, Permit};
use rung_fault::{Code, Face, Fault};
use rung_ladder::{Budget, Handle, Path, Range, Reading, Selector, read};
use rung_tool::{
    Answer, Answers, Body, BoxFuture, Call, Card, ContentBlock, ErasedTool, Error, Hints,
    InputSchema, LogLevel, Peer, Progress, Question, QuestionKind, Rendering, Reply, ResultSink,
    Schema, Tool, ToolContext, ToolSet, ToolSource, Toolbox, input_schema_of, output_schema_of,
    within_deadline,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

// === a store in memory, and a few tools ===

#[derive(Default)]
struct MemoryResults(Mutex<HashMap<Handle, String>>);

impl ResultSink for MemoryResults {
    fn store(&self, _: &Permit, _: &str, body: &mut dyn Read) -> Result<Handle, Fault> {
        let mut text = String::new();
        body.read_to_string(&mut text).unwrap();
        let mut kept = self.0.lock().unwrap();
        let handle = Handle::from_bits((kept.len() as u128 + 1).to_be_bytes());
        kept.insert(handle, text);
        Ok(handle)
    }
}

/// What the tools share: the rows that one of them returns.
struct TestSet(Vec<Value>);

impl ToolSet for TestSet {
    type Access = ();
    type Context<'a> = ToolContext<'a, Self>;
    type Outcome = Answer;
    type Error = Fault;
    const SEARCH_HINT: &'static str = "rows";

    fn is_open<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<bool, Fault>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    fn resolve<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<Option<()>, Fault>> {
        Box::pin(std::future::ready(Ok(Some(()))))
    }

    fn answer(&self, _: &Call, outcome: Answer) -> Result<Answer, Fault> {
        Ok(outcome)
    }

    fn failed<'a>(&'a self, call: &'a Call, _: &'a Card, fault: Fault) -> BoxFuture<'a, Reply> {
        Box::pin(std::future::ready(Reply::failed(&fault, Face::Rung, call)))
    }
}

type Context<'a> = ToolContext<'a, TestSet>;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RowsInput {
    /// How many to give.
    #[schemars(range(min = 1, max = 100_000))]
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
struct RowsOutput {
    rows: Vec<Value>,
    total: usize,
}

const ROWS: Tool<TestSet, RowsInput> = Tool::new(
    "test.rows",
    "Gives rows.",
    InputSchema::Built(input_schema_of::<RowsInput>),
    Body::Async(|context, input| Box::pin(std::future::ready(rows_of(context, &input)))),
)
.titled("Rows")
.with_output(output_schema_of::<RowsOutput>);

fn rows_of(context: &Context<'_>, input: &RowsInput) -> Result<Answer, Fault> {
    let limit = input.limit.unwrap_or(usize::MAX);
    let rows = &context.set.0;
    let output = RowsOutput {
        rows: rows.iter().take(limit).cloned().collect(),
        total: rows.len(),
    };
    Answer::output(output.into())
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoInput {}

/// Requires write access, so a read permit must not see it.
const WIPE: Tool<TestSet, NoInput> = Tool::new(
    "test.wipe",
    "Wipes.",
    InputSchema::Built(input_schema_of::<NoInput>),
    Body::Blocking(|context: &Context<'_>, _| {
        context.call.permit.require_write()?;
        Answer::output(json!({"wiped": true}).into())
    }),
)
.with_hints(Hints {
    read_only: false,
    destructive: true,
    idempotent: true,
    open_world: false,
})
.requiring(Access::Write);

/// Never returns.
const HANG: Tool<TestSet, NoInput> = Tool::new(
    "test.hang",
    "Hangs.",
    InputSchema::Built(input_schema_of::<NoInput>),
    Body::Async(|_, _| Box::pin(std::future::pending())),
);

/// Blocks a thread until its call is cancelled, then counts itself.
const BLOCK: Tool<TestSet, NoInput> = Tool::new(
    "test.block",
    "Blocks.",
    InputSchema::Built(input_schema_of::<NoInput>),
    Body::Blocking(|context: &Context<'_>, _| {
        loop {
            if let Err(fault) = context.cancellation.check() {
                CANCELLED.fetch_add(1, Ordering::SeqCst);
                return Err(fault);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }),
);

static CANCELLED: AtomicUsize = AtomicUsize::new(0);

#[derive(Deserialize)]
struct EchoInput {
    limit: Option<u64>,
    filter: Option<Value>,
    options: Option<EchoOptions>,
}

#[derive(Deserialize)]
struct EchoOptions {
    timeout_ms: Option<u64>,
}

/// Returns what it was given, and a forwarded object as it came.
const ECHO: Tool<TestSet, EchoInput> = Tool::new(
    "test.echo",
    "Echoes.",
    InputSchema::Built(|| {
        json!({
            "type": "object",
            "properties": {
                "limit": {"type": "integer", "minimum": 1},
                "filter": {"type": "object"},
                "options": {
                    "type": "object",
                    "properties": {"timeout_ms": {"type": "integer"}},
                    "additionalProperties": false,
                },
                "arguments": {"type": "object"},
            },
            "additionalProperties": false,
        })
    }),
    Body::Async(|context: &Context<'_>, input: EchoInput| {
        let forwarded = context.forwarded("arguments").map(RawValue::get);
        let told = json!({
            "limit": input.limit,
            "filter": input.filter,
            "timeout_ms": input.options.and_then(|options| options.timeout_ms),
            "arguments": forwarded,
        });
        Box::pin(std::future::ready(Answer::output(told.into())))
    }),
)
.forwarding(&["arguments"])
.without_json_text(&["filter"]);

/// Accepts any arguments.
const OPEN: Tool<TestSet, NoInput> = Tool::new(
    "test.open",
    "Takes anything.",
    InputSchema::Built(|| json!({"type": "object"})),
    Body::Async(|_, _| Box::pin(std::future::pending())),
);

fn toolbox(rows: Vec<Value>) -> (Arc<MemoryResults>, Toolbox<TestSet>) {
    let shelf = Arc::new(MemoryResults::default());
    let tools: [&dyn ErasedTool<TestSet>; 5] = [&ROWS, &WIPE, &HANG, &BLOCK, &ECHO];
    let toolbox = Toolbox::new(Arc::new(TestSet(rows)), &tools, shelf.clone()).unwrap();
    (shelf, toolbox)
}

#[allow(clippy::needless_pass_by_value, reason = "a literal is given")]
fn run(toolbox: &Toolbox<TestSet>, call: &Call, name: &str, arguments: Value) -> Reply {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let arguments = serde_json::value::to_raw_value(&arguments).unwrap();
    runtime.block_on(toolbox.call(call, name, &arguments))
}

fn list(toolbox: &Toolbox<TestSet>, permit: &Permit) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let cards = runtime.block_on(toolbox.list(permit)).unwrap();
    cards.iter().map(|card| card.name.to_string()).collect()
}

fn read_call() -> Call {
    Call::new(Permit::local_user(Access::Read))
}

fn structured(reply: &Reply) -> Value {
    let json = reply.structured_content.as_ref().unwrap();
    serde_json::from_str(json.get()).unwrap()
}

/// The data of a tool without an output schema, which is sent once.
fn text_data(reply: &Reply) -> Value {
    assert!(reply.structured_content.is_none() && reply.content.len() == 1);
    serde_json::from_str(reply.text()).unwrap()
}

fn error(reply: &Reply) -> Value {
    assert!(reply.is_error, "{reply:?}");
    structured(reply)["error"].take()
}

fn reply_bytes(reply: &Reply) -> usize {
    serde_json::to_string(reply).unwrap().len()
}

// === who sees what ===

#[test]
fn not_listable_means_not_describable_and_not_callable() {
    let (_shelf, toolbox) = toolbox(vec![]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    for access in [Access::Read, Access::Write] {
        let call = Call::new(Permit::local_user(access));
        let listed = list(&toolbox, &call.permit);
        for name in ["test.rows", "test.wipe", "test.nothing"] {
            let is_listed = listed.iter().any(|listed| listed == name);
            let described = runtime.block_on(toolbox.describe(&call.permit, name));
            let reply = run(&toolbox, &call, name, json!({}));
            assert_eq!(described.is_ok(), is_listed, "{name} for {access:?}");
            assert_eq!(!reply.is_error, is_listed, "{name} for {access:?}");
            if !is_listed {
                assert_eq!(described.unwrap_err().code(), Code::UnknownTool);
                assert_eq!(error(&reply)["code"], "unknown_tool");
                assert_eq!(error(&reply)["details"]["allowed"], json!(listed));
            }
        }
    }
    // A hidden tool and an absent one give the same reply, except for the name.
    let hidden = run(&toolbox, &read_call(), "test.wipe", json!({}));
    let absent = run(&toolbox, &read_call(), "test.nope", json!({}));
    let same = |reply: &Reply| {
        serde_json::to_string(reply)
            .unwrap()
            .replace("wipe", "nope")
    };
    assert_eq!(same(&hidden), same(&absent));
}

#[test]
fn bad_input_is_an_answer_and_never_reaches_the_tool() {
    let (_shelf, toolbox) = toolbox(vec![json!(1)]);
    for (arguments, path, rule) in [
        (json!({"limit": 0}), "limit", "minimum"),
        (json!({"limit": "7"}), "limit", "type"),
        (json!({"limits": 7}), "", "additionalProperties"),
        (json!([]), "", "type"),
        (json!("rows"), "", "type"),
    ] {
        let reply = run(&toolbox, &read_call(), "test.rows", arguments.clone());
        let error = error(&reply);
        assert_eq!(error["code"], "invalid_arguments", "{arguments}");
        assert_eq!(error["details"]["path"], path, "{arguments}");
        assert_eq!(error["details"]["rule"], rule, "{arguments}");
        assert!(reply.text().contains("validation"), "{}", reply.text());
    }
    assert!(!run(&toolbox, &read_call(), "test.rows", Value::Null).is_error);
}

#[test]
fn a_deadline_ends_the_call() {
    let (_shelf, toolbox) = toolbox(vec![]);
    let call = Call {
        deadline: Some(Instant::now() + Duration::from_millis(20)),
        ..read_call()
    };
    let reply = run(&toolbox, &call, "test.hang", json!({}));
    assert_eq!(error(&reply)["code"], "deadline_exceeded");
}

/// A client that takes its time for one answer, from the start of the call.
#[derive(Debug)]
struct SlowPeer {
    started: Instant,
    answers_after: Duration,
}

impl Peer for SlowPeer {
    fn answer_time(&self) -> Duration {
        self.started.elapsed().min(self.answers_after)
    }

    fn wants_progress(&self) -> bool {
        false
    }

    fn progress(&self, _: Progress) {}

    fn log(&self, _: LogLevel, _: &str, _: &Value) {}

    fn can_answer(&self, _: QuestionKind) -> bool {
        true
    }

    fn can_suspend(&self) -> bool {
        true
    }

    fn ask(&self, _: Vec<(String, Question)>) -> BoxFuture<'_, Result<Answers, Fault>> {
        Box::pin(std::future::pending())
    }

    fn detach(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn disconnect(&self) {}
}

#[tokio::test]
async fn the_time_in_which_the_client_answers_is_not_counted() {
    let started = Instant::now();
    let (deadline, answers_after) = (Duration::from_millis(200), Duration::from_millis(400));
    let call = Call {
        deadline: Some(started + deadline),
        peer: Arc::new(SlowPeer {
            started,
            answers_after,
        }),
        ..read_call()
    };
    let work = tokio::time::sleep(deadline + answers_after / 4);
    assert!(within_deadline(&call, Hints::READ, work).await.is_ok());
    let late = within_deadline(&call, Hints::READ, std::future::pending::<()>()).await;
    assert_eq!(late.unwrap_err().code(), Code::DeadlineExceeded);
    assert!(started.elapsed() >= deadline + answers_after);
}

#[tokio::test]
async fn a_change_that_runs_at_its_deadline_has_an_unknown_outcome() {
    let call = Call {
        deadline: Some(Instant::now() + Duration::from_millis(20)),
        ..read_call()
    };
    let repeatable = Hints {
        read_only: false,
        idempotent: true,
        ..Hints::READ
    };
    let once = Hints {
        idempotent: false,
        ..repeatable
    };
    for (hints, code) in [
        (Hints::READ, Code::DeadlineExceeded),
        (repeatable, Code::DeadlineExceeded),
        (once, Code::OutcomeUnknown),
    ] {
        let late = within_deadline(&call, hints, std::future::pending::<()>()).await;
        assert_eq!(late.unwrap_err().code(), code);
    }
}

#[test]
fn a_deadline_cancels_a_body_that_blocks_a_thread() {
    let (_shelf, toolbox) = toolbox(vec![]);
    let call = Call {
        deadline: Some(Instant::now() + Duration::from_millis(20)),
        ..read_call()
    };
    let reply = run(&toolbox, &call, "test.block", json!({}));
    assert_eq!(error(&reply)["code"], "deadline_exceeded");
    while CANCELLED.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns what `test.echo` was given, or the error.
fn echo(arguments: &str) -> Value {
    let (_shelf, toolbox) = toolbox(vec![]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let raw = RawValue::from_string(arguments.to_owned()).unwrap();
    let reply = runtime.block_on(toolbox.call(&read_call(), "test.echo", &raw));
    if reply.is_error {
        structured(&reply)
    } else {
        text_data(&reply)
    }
}

#[test]
fn arguments_are_read_as_what_is_meant() {
    let nothing = json!({"limit": null, "filter": null, "timeout_ms": null, "arguments": null});
    for same in [
        "{}",
        "null",
        r#"{"limit": null, "filter": null, "options": null, "arguments": null}"#,
        r#"{"options": {"timeout_ms": null}}"#,
        r#""{}""#,
    ] {
        assert_eq!(echo(same), nothing, "{same}");
    }
    for same in [
        r#"{"limit": 10, "options": {"timeout_ms": 5}}"#,
        r#"{"limit": 10.0, "options": "{\"timeout_ms\": 5.0}"}"#,
        r#""{\"limit\": 10, \"options\": {\"timeout_ms\": 5}}""#,
    ] {
        let told = echo(same);
        assert_eq!(
            (&told["limit"], &told["timeout_ms"]),
            (&json!(10), &json!(5)),
            "{same}"
        );
    }
}

#[test]
fn forwarded_arguments_keep_every_byte() {
    let forwarded = r#"{"n": 1.10, "big": 12345678901234567890123, "null":null,  "s":"{}"}"#;
    let told = echo(&format!(r#"{{"arguments": {forwarded}, "limit": 1}}"#));
    assert_eq!(told["arguments"], forwarded);
    // Only the outer string is read.
    let quoted = Value::from(forwarded);
    let told = echo(&format!(r#"{{"arguments": {quoted}}}"#));
    assert_eq!(told["arguments"], forwarded);
    for wrong in [r#"{"arguments": [1]}"#, r#"{"arguments": "[1]"}"#] {
        assert_eq!(
            echo(wrong)["error"]["details"]["path"],
            "arguments",
            "{wrong}"
        );
    }
}

#[test]
fn what_is_refused_names_what_is_meant_and_where_it_belongs() {
    for (arguments, hint) in [
        (r#"{"limt": 1}"#, "did you mean `limit`?"),
        (r#"{"timeout_ms": 5}"#, "`timeout_ms` belongs in `options`"),
        (
            r#"{"timeout": 5}"#,
            "did you mean `timeout_ms`? `timeout_ms` belongs in `options`",
        ),
        (
            r#"{"options": {"limit": 5}}"#,
            "`limit` belongs at the top level of the arguments",
        ),
    ] {
        assert_eq!(echo(arguments)["error"]["hint"], hint, "{arguments}");
    }
    // The filter is not read from text.
    let told = echo(r#"{"filter": "{}"}"#);
    assert_eq!(told["error"]["details"]["path"], "filter", "{told}");
}

#[test]
fn unsound_tools_are_not_taken() {
    let shelf = Arc::new(MemoryResults::default());
    let build = |tools: &[&'static dyn ErasedTool<TestSet>]| {
        Toolbox::new(Arc::new(TestSet(vec![])), tools, shelf.clone()).err()
    };
    assert_eq!(build(&[&OPEN]), Some(Error::InputOpen("test.open")));
    assert_eq!(build(&[&WIPE, &WIPE]), Some(Error::NameTaken("test.wipe")));
}

#[test]
fn published_schemas_are_small_and_closed() {
    let (_shelf, toolbox) = toolbox(vec![]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let card = runtime
        .block_on(toolbox.describe(&read_call().permit, "test.rows"))
        .unwrap();
    assert_eq!(
        *card.input_schema,
        json!({
            "type": "object",
            "properties": {"limit": {
                "description": "How many to give.", "type": "integer", "minimum": 1, "maximum": 100_000,
            }},
            "additionalProperties": false,
        })
    );
}

// === what goes out ===

fn rows() -> impl Strategy<Value = Vec<Value>> {
    let text = prop_oneof![
        "[a-z ]{0,30}",
        "\\PC{0,200}",
        Just("\"quoted\" \\ \n\u{1F980}".repeat(40)),
    ];
    let row = (
        any::<u32>(),
        text,
        prop::collection::vec(any::<i16>(), 0..20),
    )
        .prop_map(|(id, body, tags)| json!({"id": id, "body": body, "tags": tags}));
    prop::collection::vec(row, 0..120)
}

fn rendering() -> impl Strategy<Value = Rendering> {
    (any::<bool>(), any::<bool>()).prop_map(|(structured, links)| Rendering { structured, links })
}

/// The reply with one form each.
fn forms(reply: &Reply) -> [Reply; 2] {
    let content = Reply {
        structured_content: None,
        ..reply.clone()
    };
    let structured = Reply {
        content: Vec::new(),
        ..reply.clone()
    };
    [content, structured]
}

/// The rows that one form of a reply shows.
fn shown_rows(value: &Value) -> Vec<Value> {
    value["rows"].as_array().cloned().unwrap_or_default()
}

/// Returns true if `more` shows everything that `less` shows of a row.
fn shows_no_less(more: &Value, less: &Value) -> bool {
    match (more, less) {
        (Value::String(more), Value::String(less)) => more.starts_with(less.as_str()),
        (Value::Array(more), Value::Array(less)) => more.starts_with(less),
        (Value::Object(more), Value::Object(less)) => less
            .iter()
            .all(|(name, l)| more.get(name).is_some_and(|m| shows_no_less(m, l))),
        (more, less) => more == less,
    }
}

/// The JSON in a text block: the whole text, or the part after the note on its first line.
fn text_json(reply: &Reply) -> Value {
    let text = reply.text();
    let json = match text.strip_prefix("Result truncated.") {
        Some(rest) => rest.split_once('\n').unwrap().1,
        None => text,
    };
    match json {
        "" => Value::Null,
        json => serde_json::from_str(json).expect("a preview is valid JSON"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reply_never_exceeds_budget(rows in rows(), rendering in rendering(), max_bytes in 300..60_000_usize, max_items in prop::option::of(1..50_usize)) {
        let (_shelf, toolbox) = toolbox(rows);
        let budget = Budget { max_items, ..Budget::bytes(max_bytes) };
        let call = Call { budget, rendering, ..read_call() };
        let reply = run(&toolbox, &call, "test.rows", json!({}));
        for form in forms(&reply) {
            prop_assert!(reply_bytes(&form) <= max_bytes, "{} > {max_bytes}", reply_bytes(&form));
        }
        prop_assert_eq!(reply.bytes(), reply_bytes(&reply));
        prop_assert!(!reply.is_error);
    }

    /// Each of the three forms alone leads to every row.
    #[test]
    fn every_reader_gets_to_the_whole(rows in rows(), max_bytes in 4_000..60_000_usize) {
        let (shelf, toolbox) = toolbox(rows.clone());
        let call = Call { budget: Budget::bytes(max_bytes), ..read_call() };
        let reply = run(&toolbox, &call, "test.rows", json!({}));
        prop_assert!(!reply.is_error);
        let structured = structured(&reply);
        let shelf = shelf.0.lock().unwrap();
        if shelf.is_empty() {
            prop_assert_eq!(&shown_rows(&structured), &rows);
            prop_assert_eq!(&shown_rows(&text_json(&reply)), &rows);
            return Ok(());
        }
        let read_on = |handle: &str| -> Vec<Value> {
            let handle: Handle = handle.parse().expect("a whole handle");
            let path: Path = "rows".parse().unwrap();
            let mut selector = Selector { path, range: Range::Items { first: 0, limit_chars: 16_384 } };
            let mut all = Vec::new();
            loop {
                let reading = read(shelf[&handle].as_str(), &selector, 100_000).unwrap();
                let next = reading.next();
                match reading {
                    Reading::Items { text, .. } => {
                        all.extend(serde_json::from_str::<Vec<Value>>(&text).unwrap());
                    }
                    other => panic!("{other:?}"),
                }
                match next {
                    Some(position) => selector = position.selector(),
                    None => return all,
                }
            }
        };
        // Text: the note contains the handle.
        let text = reply.text();
        let at = text.find("res_").expect("the text names the handle");
        prop_assert_eq!(&read_on(&text[at..at + Handle::TEXT_BYTES]), &rows);
        // Structured: complete, or `meta` has the handle and the next call.
        if let Some(meta) = structured.get("meta") {
            prop_assert_eq!(&read_on(meta["handle"].as_str().unwrap()), &rows);
            prop_assert_eq!(&meta["next"]["arguments"]["handle"], &meta["handle"]);
            prop_assert!(meta["next"]["arguments"]["path"].is_string());
        } else {
            prop_assert_eq!(&shown_rows(&structured), &rows);
        }
        // Links: the resource is the handle's.
        let link = reply.content.iter().find_map(|block| match block {
            ContentBlock::ResourceLink(link) => Some(&link.uri),
            _ => None,
        });
        prop_assert_eq!(&read_on(link.expect("a link to the whole")), &rows);
    }

    /// A cut reply still matches the output schema.
    #[test]
    fn a_cut_reply_keeps_to_the_output_schema(rows in rows(), max_bytes in 4_000..20_000_usize) {
        let (_shelf, toolbox) = toolbox(rows);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let card = runtime.block_on(toolbox.describe(&read_call().permit, "test.rows")).unwrap();
        let schema = Schema::compile(card.output_schema.as_ref().unwrap()).unwrap();
        let call = Call { budget: Budget::bytes(max_bytes), ..read_call() };
        let reply = run(&toolbox, &call, "test.rows", json!({}));
        let structured = structured(&reply);
        prop_assert!(schema.accepts(&structured).unwrap(), "{structured}");
    }

    #[test]
    fn a_larger_budget_never_shows_less(rows in rows(), rendering in rendering(), max_bytes in 2_000..40_000_usize, more in 1..5_000_usize) {
        let (_shelf, toolbox) = toolbox(rows);
        let show = |max_bytes| {
            let call = Call { budget: Budget::bytes(max_bytes), rendering, ..read_call() };
            let reply = run(&toolbox, &call, "test.rows", json!({}));
            let structured = reply.structured_content.is_some().then(|| structured(&reply));
            let in_text = if reply.is_error { Value::Null } else { text_json(&reply) };
            (shown_rows(&in_text), structured.as_ref().map(shown_rows).unwrap_or_default())
        };
        let (less, more) = (show(max_bytes), show(max_bytes + more));
        let no_less = |more: &[Value], less: &[Value]| {
            more.len() >= less.len() && more.iter().zip(less).all(|(m, l)| shows_no_less(m, l))
        };
        prop_assert!(no_less(&more.0, &less.0) && no_less(&more.1, &less.1));
    }
}

/// A store that is full.
struct FullStore;

impl ResultSink for FullStore {
    fn store(&self, _: &Permit, _: &str, _: &mut dyn Read) -> Result<Handle, Fault> {
        Err(Fault::new(Code::StoreFull, "the disk is full"))
    }
}

#[test]
fn what_could_not_be_kept_is_not_called_undone() {
    let rows = vec![json!("x".repeat(50)); 2_000];
    let tools: [&dyn ErasedTool<TestSet>; 1] = [&ROWS];
    let toolbox = Toolbox::new(Arc::new(TestSet(rows)), &tools, Arc::new(FullStore)).unwrap();
    let reply = run(&toolbox, &read_call(), "test.rows", json!({}));
    assert_eq!(error(&reply)["code"], "store_full");
    let error = error(&reply);
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("the call succeeded"), "{message}");
    let small = run(&toolbox, &read_call(), "test.rows", json!({"limit": 3}));
    assert!(!small.is_error, "what fits needs no store");
}

/// A fault that repeats a long argument keeps its code, although the message is cut.
#[test]
fn a_failure_keeps_its_code_however_much_it_repeats() {
    let call = read_call();
    for face in [Face::Rung, Face::Pdpp, Face::Datalevin] {
        let said = format!("no name is {}", "é\"\n".repeat(1_000_000));
        let fault = Fault::new(Code::UnknownDatabase, said).with_hint("open it");
        let reply = Reply::failed(&fault, face, &call);
        assert!(reply_bytes(&reply) < 20_000, "{}", reply_bytes(&reply));
        let body = structured(&reply);
        let body = body.get("error").filter(|e| e.is_object()).unwrap_or(&body);
        assert_eq!(body["code"], Code::UnknownDatabase.name_on(face));
        assert_eq!(body["hint"], "open it");
        let text = reply.text();
        assert!(text.contains("no name is é") && text.contains('…'));
    }
}

#[test]
fn a_form_that_fits_is_whole_whatever_the_other_one_takes() {
    // Quotes cost more in a text than in structured content.
    let rows: Vec<Value> = (0..400)
        .map(|n| json!({"id": n, "name": "x".repeat(50)}))
        .collect();
    let (shelf, toolbox) = toolbox(rows.clone());
    let once = json!({"rows": rows, "total": 400}).to_string().len();
    let call = Call {
        budget: Budget::bytes(once + 100),
        ..read_call()
    };
    let reply = run(&toolbox, &call, "test.rows", json!({}));
    let structured = structured(&reply);
    assert_eq!(shown_rows(&structured), rows, "one form is whole");
    assert!(structured.get("meta").is_none(), "and is not marked");
    let text = reply.text();
    assert!(text.starts_with("Result truncated."), "the other is cut");
    assert!(text.contains("rung.read {\"handle\":\"res_"), "{text}");
    let cut = shown_rows(&text_json(&reply)).len();
    assert!((300..400).contains(&cut), "it has as much as fits: {cut}");
    assert_eq!(shelf.0.lock().unwrap().len(), 1);
}

#[test]
fn tokens_are_limited_in_each_form() {
    let rows: Vec<Value> = (0..400)
        .map(|n| json!({"id": n, "name": "a b c d"}))
        .collect();
    let (_shelf, toolbox) = toolbox(rows);
    let tokens = |max_tokens| {
        let call = Call {
            max_tokens,
            ..read_call()
        };
        let reply = run(&toolbox, &call, "test.rows", json!({}));
        forms(&reply).map(|form| rung_tokens::count_tokens(&serde_json::to_string(&form).unwrap()))
    };
    let [content, structured] = tokens(usize::MAX);
    assert!(content > 4_000 && structured > 4_000);
    for (max_tokens, least) in [(200, 0), (1_000, 500), (3_000, 2_000)] {
        for tokens in tokens(max_tokens) {
            assert!(
                (least..=max_tokens).contains(&tokens),
                "{tokens} of {max_tokens}"
            );
        }
    }
}
