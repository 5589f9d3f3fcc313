//! The public behaviour of a toolbox: listing, rejection of bad input, and replies within their budget.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rung_auth::{Access, Permit};
use rung_fault::{Code, Face, Fault};
use rung_ladder::{Budget, Handle, Path, Range, Reading, Selector, read};
use rung_tool::{
    Call, ContentBlock, Error, Hints, Rendering, Reply, ResultSink, Schema, Tool, ToolOutput,
    ToolSource, Toolbox,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
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

/// Returns its rows.
struct Rows(Vec<Value>);

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

impl Tool for Rows {
    const NAME: &'static str = "test.rows";
    const TITLE: &'static str = "Rows";
    const DESCRIPTION: &'static str = "Gives rows.";
    type Input = RowsInput;
    type Output = RowsOutput;
    type Error = Fault;

    async fn run(&self, _call: &Call, input: RowsInput) -> Result<ToolOutput<RowsOutput>, Fault> {
        let limit = input.limit.unwrap_or(usize::MAX);
        Ok(RowsOutput {
            rows: self.0.iter().take(limit).cloned().collect(),
            total: self.0.len(),
        }
        .into())
    }
}

/// Requires write access, so a read permit must not see it.
struct Wipe;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WipeInput {}

#[derive(Serialize, JsonSchema)]
struct WipeOutput {
    wiped: bool,
}

impl Tool for Wipe {
    const NAME: &'static str = "test.wipe";
    const TITLE: &'static str = "Wipe";
    const DESCRIPTION: &'static str = "Wipes.";
    const HINTS: Hints = Hints {
        read_only: false,
        destructive: true,
        idempotent: true,
        open_world: false,
    };
    const ACCESS: Access = Access::Write;
    type Input = WipeInput;
    type Output = WipeOutput;
    type Error = Fault;

    async fn run(&self, call: &Call, _input: WipeInput) -> Result<ToolOutput<WipeOutput>, Fault> {
        call.permit.require_write()?;
        Ok(WipeOutput { wiped: true }.into())
    }
}

/// Never returns.
struct Hang;

impl Tool for Hang {
    const NAME: &'static str = "test.hang";
    const TITLE: &'static str = "Hang";
    const DESCRIPTION: &'static str = "Hangs.";
    type Input = WipeInput;
    type Output = WipeOutput;
    type Error = Fault;

    async fn run(&self, _call: &Call, _input: WipeInput) -> Result<ToolOutput<WipeOutput>, Fault> {
        std::future::pending().await
    }
}

/// Accepts any arguments.
struct OpenSchemaTool;

#[derive(Deserialize, JsonSchema)]
struct OpenInput {}

impl Tool for OpenSchemaTool {
    const NAME: &'static str = "test.open";
    const TITLE: &'static str = "Open";
    const DESCRIPTION: &'static str = "Takes anything.";
    type Input = OpenInput;
    type Output = WipeOutput;
    type Error = Fault;

    async fn run(&self, _call: &Call, _input: OpenInput) -> Result<ToolOutput<WipeOutput>, Fault> {
        Ok(WipeOutput { wiped: false }.into())
    }
}

fn toolbox(rows: Vec<Value>) -> (Arc<MemoryResults>, Toolbox) {
    let shelf = Arc::new(MemoryResults::default());
    let toolbox = Toolbox::builder(Face::Rung, shelf.clone())
        .tool(Rows(rows))
        .and_then(|b| b.tool(Wipe))
        .and_then(|b| b.tool(Hang))
        .unwrap()
        .build();
    (shelf, toolbox)
}

#[allow(clippy::needless_pass_by_value, reason = "a literal is given")]
fn run(toolbox: &Toolbox, call: &Call, name: &str, arguments: Value) -> Reply {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let arguments = serde_json::value::to_raw_value(&arguments).unwrap();
    runtime.block_on(toolbox.call(call, name, &arguments))
}

fn list(toolbox: &Toolbox, permit: &Permit) -> Vec<String> {
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
        (json!({"limit": null}), "limit", "type"),
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

#[test]
fn unsound_tools_are_not_taken() {
    let shelf = Arc::new(MemoryResults::default());
    let builder = || Toolbox::builder(Face::Rung, shelf.clone());
    assert_eq!(
        builder().tool(OpenSchemaTool).err(),
        Some(Error::InputOpen("test.open"))
    );
    let twice = builder().tool(Wipe).unwrap().tool(Wipe);
    assert_eq!(twice.err(), Some(Error::NameTaken("test.wipe")));
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
        prop_assert!(reply_bytes(&reply) <= max_bytes, "{} > {max_bytes}", reply_bytes(&reply));
        prop_assert_eq!(reply.bytes(), reply_bytes(&reply));
        if reply.is_error {
            prop_assert!(max_bytes < 4_000, "{}", reply.text());
            prop_assert!(reply.text().starts_with("Error budget_too_small"), "{}", reply.text());
        }
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
    let toolbox = Toolbox::builder(Face::Rung, Arc::new(FullStore));
    let toolbox = toolbox.tool(Rows(rows)).unwrap().build();
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
fn one_payload_is_not_sent_twice_where_it_fits_once() {
    let rows: Vec<Value> = (0..400)
        .map(|n| json!({"id": n, "name": "x".repeat(50)}))
        .collect();
    let (shelf, toolbox) = toolbox(rows.clone());
    let once = json!({"rows": rows, "total": 400}).to_string().len();
    let call = Call {
        budget: Budget::bytes(once * 3 / 2),
        ..read_call()
    };
    let reply = run(&toolbox, &call, "test.rows", json!({}));
    let structured = structured(&reply);
    assert_eq!(shown_rows(&structured), rows, "one copy is complete");
    assert!(structured.get("meta").is_none());
    assert!(reply.text().len() < 9_000, "the other is short");
    assert!(
        reply.text().contains("rung.read {\"handle\":\"res_"),
        "and says where the rest is"
    );
    assert_eq!(shelf.0.lock().unwrap().len(), 1);
}
