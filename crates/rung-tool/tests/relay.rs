//! Relayed results of other servers: unchanged if they fit, stored and shown in part if not.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use rung_auth::{Access, Permit};
use rung_fault::{Code, Fault};
use rung_ladder::{Budget, Handle};
use rung_tool::{
    Call, Envelope, LongResult, Prompt, Relayed, RelayedResult, Rendering, Reply, ResourceContents,
    ResultSink, SourceResult,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Stores results in memory.
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

struct FullStore;

impl ResultSink for FullStore {
    fn store(&self, _: &Permit, _: &str, _: &mut dyn Read) -> Result<Handle, Fault> {
        Err(Fault::new(Code::StoreFull, "the disk is full"))
    }
}

fn relay_reply(
    given: RelayedResult,
    max_bytes: usize,
    structured: bool,
    keep: Arc<dyn ResultSink>,
) -> Result<Reply, Fault> {
    let call = Call {
        budget: Budget::bytes(max_bytes),
        rendering: Rendering {
            structured,
            links: structured,
        },
        ..Call::new(Permit::local_user(Access::Write))
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(Reply::relay(given.into(), &call, keep))
}

/// The bytes of each form of a reply: of the reply without the other one.
fn form_bytes(reply: &Reply) -> [usize; 2] {
    ["content", "structuredContent"].map(|other| {
        let mut reply = serde_json::to_value(reply).unwrap();
        reply.as_object_mut().unwrap().remove(other);
        reply.to_string().len()
    })
}

/// The text of the first block, as it is sent.
fn text_of(reply: &Reply) -> String {
    let sent = serde_json::to_value(reply).unwrap();
    sent["content"][0]["text"].as_str().unwrap().to_owned()
}

fn in_memory(text: &str) -> RelayedResult {
    RelayedResult::InMemory(RawValue::from_string(text.to_owned()).unwrap())
}

fn stored_text(shelf: &MemoryResults) -> Option<String> {
    shelf.0.lock().unwrap().values().next().cloned()
}

#[test]
fn what_fits_goes_on_as_it_came_and_a_failure_is_known_as_one() {
    let odd = r#"{ "content":[{"type":"new","n":1.50}], "isError" : true, "x":1e400 }"#;
    let reply = relay_reply(in_memory(odd), 10_000, true, Arc::new(FullStore)).unwrap();
    assert_eq!(serde_json::to_string(&reply).unwrap(), odd);
    assert!(reply.is_error);
}

#[test]
fn what_does_not_fit_is_kept_whole_and_each_kind_of_client_is_led_to_it() {
    let rows: Vec<Value> = (0..500)
        .map(|n| json!({"n": n, "text": "x".repeat(40)}))
        .collect();
    let result = json!({
        "content": [{"type": "text", "text": "é".repeat(20_000)}],
        "structuredContent": {"rows": rows},
        "isError": true,
    });
    for structured in [true, false] {
        let shelf = Arc::new(MemoryResults::default());
        let reply = relay_reply(
            in_memory(&result.to_string()),
            6_000,
            structured,
            shelf.clone(),
        )
        .unwrap();
        for bytes in form_bytes(&reply) {
            assert!(bytes <= 6_000, "{bytes}");
        }
        assert_eq!(stored_text(&shelf).unwrap(), result.to_string());
        assert!(reply.is_error);
        let handle = Handle::from_bits(1_u128.to_be_bytes()).to_string();
        assert!(text_of(&reply).contains(&handle) && text_of(&reply).contains("content[0].text"));
        assert!(text_of(&reply).contains("ééé"), "some of it is shown");
        let shown = serde_json::to_value(&reply).unwrap();
        if structured {
            let meta = &shown["structuredContent"]["meta"];
            assert_eq!(meta["handle"], handle, "{meta}");
            let path = meta["next"]["arguments"]["path"].as_str().unwrap();
            assert!(path.starts_with("structuredContent"), "{path}");
            assert_eq!(shown["structuredContent"]["rows"][0]["n"], 0);
            assert!(
                shown["content"][1]["uri"]
                    .as_str()
                    .unwrap()
                    .contains(&handle)
            );
        } else {
            assert!(shown.get("structuredContent").is_none());
        }
    }
}

#[test]
fn a_result_too_long_to_be_held_is_kept_and_shown_by_its_beginning() {
    let text = json!({"content": [{"type": "text", "text": "y".repeat(100_000)}]}).to_string();
    let shelf = Arc::new(MemoryResults::default());
    let long = LongResult::read(true, std::io::Cursor::new(text.clone())).unwrap();
    let reply = relay_reply(RelayedResult::Long(long), 5_000, true, shelf.clone()).unwrap();
    assert_eq!(stored_text(&shelf).unwrap(), text);
    assert!(serde_json::to_vec(&reply).unwrap().len() <= 5_000);
    assert!(reply.is_error && text_of(&reply).contains("yyy"));
    let length = format!("{} bytes of JSON", text.len());
    assert!(text_of(&reply).contains(&length), "{}", text_of(&reply));
    assert!(text_of(&reply).contains("res_"), "it names the handle");
    assert!(
        reply.structured_content.is_none(),
        "a client shows structured content and nothing else"
    );
}

#[test]
fn a_call_whose_result_cannot_be_kept_is_not_called_undone() {
    let text = json!({"content": [{"type": "text", "text": "z".repeat(50_000)}]}).to_string();
    let fault = relay_reply(in_memory(&text), 5_000, true, Arc::new(FullStore)).unwrap_err();
    assert_eq!(fault.code(), Code::StoreFull);
    assert!(fault.message().contains("the call succeeded"), "{fault}");
}

proptest! {
    /// Each form of a reply always fits its budget, and nothing is lost.
    #[test]
    fn a_relayed_reply_never_exceeds_its_budget(
        texts in proptest::collection::vec(any::<String>(), 0..4),
        fill in 0_usize..4_000,
        max_bytes in Reply::MIN_BYTES..6_000,
        is_error in any::<bool>(),
        structured in any::<bool>(),
    ) {
        let blocks: Vec<Value> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
        let mut result = json!({"content": blocks, "structuredContent": {"fill": "\u{1}".repeat(fill)}});
        if is_error {
            result["isError"] = true.into();
        }
        let result = result.to_string();
        let shelf = Arc::new(MemoryResults::default());
        let reply = relay_reply(in_memory(&result), max_bytes, structured, shelf.clone()).unwrap();
        let sent = serde_json::to_string(&reply).unwrap();
        for bytes in form_bytes(&reply) {
            prop_assert!(bytes <= max_bytes, "{} of {max_bytes}: {sent}", bytes);
        }
        prop_assert_eq!(reply.is_error, is_error);
        if sent != result {
            let Some(stored) = stored_text(&shelf) else {
                prop_assert!(!structured, "only structured content that is not sent is left out");
                return Ok(());
            };
            prop_assert_eq!(&stored, &result);
            // Each form is whole, or names the handle.
            let (sent, result): (Value, Value) =
                (serde_json::from_str(&sent).unwrap(), serde_json::from_str(&result).unwrap());
            for form in ["content", "structuredContent"] {
                if sent[form] == Value::Null {
                    prop_assert!(form == "structuredContent" && !structured);
                } else if sent[form] != result[form] {
                    prop_assert!(sent[form].to_string().contains("res_"), "{}", sent);
                } else {
                    prop_assert!(!sent[form].to_string().contains("res_"), "what is whole is not marked");
                }
            }
            prop_assert!(sent["content"] != json!([]), "a client of texts alone is shown something");
        }
    }
}

#[test]
fn blocks_that_are_not_text_stay_when_the_text_is_cut() {
    let result = json!({"content": [
        {"type": "text", "text": "a".repeat(9_000)},
        {"type": "image", "data": "QUFB", "mimeType": "image/png"},
        {"type": "resource_link", "uri": "x:1", "name": "one"},
        {"type": "resource", "resource": {"uri": "x:2", "text": "b".repeat(9_000)}},
    ]});
    let shelf = Arc::new(MemoryResults::default());
    let reply = relay_reply(in_memory(&result.to_string()), 6_000, true, shelf).unwrap();
    let shown = serde_json::to_value(&reply).unwrap();
    let blocks = shown["content"].as_array().unwrap();
    assert!(blocks[0]["text"].as_str().unwrap().contains("aaa"));
    assert_eq!(blocks[1], result["content"][1]);
    assert_eq!(blocks[2], result["content"][2]);
    assert_eq!(blocks[3]["type"], "resource_link");
    assert_eq!(blocks.len(), 4);
    assert!(shown.get("structuredContent").is_none());
}

#[test]
fn a_client_of_text_alone_is_shown_what_is_structured_only() {
    for rows in [3, 900] {
        let structured = json!({"rows": vec!["a row"; rows]});
        let result = json!({"content": [], "structuredContent": structured}).to_string();
        let shelf = Arc::new(MemoryResults::default());
        let reply = relay_reply(in_memory(&result), 4_000, false, shelf).unwrap();
        let shown = serde_json::to_value(&reply).unwrap();
        assert!(shown.get("structuredContent").is_none(), "{shown}");
        let text = shown["content"][0]["text"].as_str().unwrap();
        if rows == 3 {
            assert_eq!(text, structured.to_string());
        } else {
            assert!(
                text.contains("\"path\":\"structuredContent\"") && text.contains("a row"),
                "{text}"
            );
        }
    }
}

#[test]
fn the_text_of_an_embedded_resource_is_shown_and_continued() {
    let resource =
        json!({"type": "resource", "resource": {"uri": "x:2", "text": "b".repeat(9_000)}});
    let result = json!({"content": [resource]}).to_string();
    let shelf = Arc::new(MemoryResults::default());
    let reply = relay_reply(in_memory(&result), 4_000, true, shelf).unwrap();
    let shown = serde_json::to_value(&reply).unwrap();
    let text = shown["content"][0]["text"].as_str().unwrap();
    assert!(text.ends_with("bbb"), "{text}");
    assert!(text.contains("content[0].resource.text"), "{text}");
}

#[test]
fn the_call_of_a_result_is_named_in_the_form_that_the_server_uses() {
    let envelope = || Envelope {
        tool_id: "files::read".to_owned(),
        task: None,
    };
    let relay = |result: Value| {
        let relayed = Relayed {
            envelope: Some(envelope()),
            ..in_memory(&result.to_string()).into()
        };
        let reply = block_on(Reply::relay(
            relayed,
            &call_within(2_000),
            Arc::new(MemoryResults::default()),
        ));
        serde_json::to_value(reply.unwrap()).unwrap()
    };
    for text in ["short".to_owned(), "long ".repeat(1_000)] {
        let content = json!([{"type": "text", "text": text}]);
        let plain = relay(json!({"content": content}));
        assert!(plain.get("structuredContent").is_none(), "{plain}");
        assert_eq!(plain["_meta"]["rung/call"]["tool_id"], "files::read");
        let rich = relay(json!({"content": content, "structuredContent": {"text": text}}));
        assert_eq!(rich["structuredContent"]["tool_id"], "files::read");
        assert_eq!(rich["structuredContent"]["ok"], true);
        let is_cut = text.len() > 2_000;
        assert_eq!(rich["structuredContent"].get("truncated").is_some(), is_cut);
    }
}

fn call_within(max_bytes: usize) -> Call {
    Call {
        budget: Budget::bytes(max_bytes),
        ..Call::new(Permit::local_user(Access::Write))
    }
}

/// A client that shows little text shows pictures of any size.
#[test]
fn a_picture_does_not_count_as_text() {
    let picture = json!({"type": "image", "data": "A".repeat(40_000), "mimeType": "image/png"});
    for (words, is_whole) in [("a dot".to_owned(), true), ("word ".repeat(2_000), false)] {
        let content = json!([{"type": "text", "text": words}, picture]);
        let result = json!({"content": content}).to_string();
        let call = Call {
            media_bytes: 60_000,
            ..call_within(6_000)
        };
        let shelf = Arc::new(MemoryResults::default());
        let relayed = block_on(Reply::relay(
            in_memory(&result).into(),
            &call,
            shelf.clone(),
        ));
        let sent = serde_json::to_value(relayed.unwrap()).unwrap();
        let blocks = sent["content"].as_array().unwrap();
        assert!(blocks.contains(&picture), "{sent:.300}");
        let text = blocks[0]["text"].as_str().unwrap();
        assert_eq!(text == words, is_whole, "{text:.300}");
        assert!(
            is_whole || text.contains("res_") && text.len() <= 6_000,
            "{text:.300}"
        );
        assert_eq!(stored_text(&shelf).is_none(), is_whole);
    }
    // Without room for pictures, the limit holds for all of the content.
    let result = json!({"content": [picture]}).to_string();
    let shelf = Arc::new(MemoryResults::default());
    let relayed = block_on(Reply::relay(
        in_memory(&result).into(),
        &call_within(6_000),
        shelf,
    ));
    assert!(form_bytes(&relayed.unwrap())[0] <= 6_000);
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.build().unwrap().block_on(future)
}

fn relay_resource(
    given: RelayedResult,
    max_bytes: usize,
    keep: Arc<dyn ResultSink>,
) -> SourceResult<Vec<ResourceContents>> {
    let call = call_within(max_bytes);
    block_on(SourceResult::<Vec<ResourceContents>>::relay(
        given, "x:1", &call, keep,
    ))
    .unwrap()
}

fn relay_prompt(
    given: RelayedResult,
    max_bytes: usize,
    keep: Arc<dyn ResultSink>,
) -> SourceResult<Prompt> {
    let call = call_within(max_bytes);
    block_on(SourceResult::<Prompt>::relay(given, &call, keep)).unwrap()
}

#[test]
fn a_resource_or_prompt_that_fits_goes_on_as_it_came() {
    let odd = r#"{ "contents":[{"uri":"x:1","n":1.50}], "x":1e400 }"#;
    let SourceResult::Relayed(result) = relay_resource(in_memory(odd), 10_000, Arc::new(FullStore))
    else {
        panic!("it fits");
    };
    assert_eq!(result.get(), odd);
    let SourceResult::Relayed(result) = relay_prompt(in_memory(odd), 10_000, Arc::new(FullStore))
    else {
        panic!("it fits");
    };
    assert_eq!(result.get(), odd);
}

#[test]
fn a_resource_that_does_not_fit_is_kept_whole_and_shown_in_part() {
    let blob = json!({"uri": "x:0", "blob": "A".repeat(3_000)});
    let text = json!({"uri": "x:1", "mimeType": "text/x", "text": "é\n".repeat(20_000)});
    let result = json!({"contents": [blob, text]}).to_string();
    for max_bytes in [1_000, 1_001, 1_002, 5_000] {
        let shelf = Arc::new(MemoryResults::default());
        let SourceResult::Local(contents) =
            relay_resource(in_memory(&result), max_bytes, shelf.clone())
        else {
            panic!("it does not fit");
        };
        let sent = json!({"contents": contents}).to_string();
        assert!(
            (max_bytes - 10..=max_bytes).contains(&sent.len()),
            "{}",
            sent.len()
        );
        assert_eq!(stored_text(&shelf).unwrap(), result);
        let handle = Handle::from_bits(1_u128.to_be_bytes()).to_string();
        let shown = serde_json::to_value(&contents[0]).unwrap();
        assert_eq!(
            (&shown["uri"], &shown["mimeType"]),
            (&json!("x:1"), &json!("text/x"))
        );
        let text = shown["text"].as_str().unwrap();
        assert!(text.contains(&handle) && text.ends_with("é\né\n") || text.ends_with('é'));
        let meta = &shown["_meta"];
        assert_eq!(
            (&meta["truncated"], &meta["handle"]),
            (&json!(true), &json!(handle))
        );
        assert_eq!(meta["next"]["tool"], "rung.read");
        assert_eq!(meta["next"]["arguments"]["path"], "contents[1].text");
    }
}

#[test]
fn of_bytes_that_do_not_fit_only_the_way_to_them_is_shown() {
    let result = json!({"contents": [{"uri": "x:1", "blob": "QUFB".repeat(3_000)}]}).to_string();
    let shelf = Arc::new(MemoryResults::default());
    let SourceResult::Local(contents) = relay_resource(in_memory(&result), 2_000, shelf) else {
        panic!("it does not fit");
    };
    let text = contents[0].text.as_deref().unwrap();
    assert!(
        text.contains("rung.read") && !text.contains("QUFB"),
        "{text}"
    );
    assert!(contents[0].blob.is_none());
    let long = LongResult::read(false, std::io::Cursor::new(result)).unwrap();
    let SourceResult::Local(contents) = relay_resource(
        RelayedResult::Long(long),
        2_000,
        Arc::new(MemoryResults::default()),
    ) else {
        panic!("it does not fit");
    };
    let text = contents[0].text.as_deref().unwrap();
    assert!(
        text.contains("rung.read") && !text.contains("QUFB"),
        "{text}"
    );
}

#[test]
fn a_prompt_that_does_not_fit_is_kept_whole_and_shown_as_one_message() {
    let message =
        json!({"role": "assistant", "content": {"type": "text", "text": "z".repeat(9_000)}});
    let result = json!({"messages": [message]}).to_string();
    let shelf = Arc::new(MemoryResults::default());
    let SourceResult::Local(prompt) = relay_prompt(in_memory(&result), 2_000, shelf.clone()) else {
        panic!("it does not fit");
    };
    assert_eq!(stored_text(&shelf).unwrap(), result);
    let shown = serde_json::to_value(&prompt).unwrap();
    assert!(shown.to_string().len() <= 2_000);
    assert_eq!(shown["messages"][0]["role"], "user");
    assert!(
        shown["messages"][0]["content"]["text"]
            .as_str()
            .unwrap()
            .ends_with("zzz")
    );
    assert_eq!(
        shown["_meta"]["next"]["arguments"]["path"],
        "messages[0].content.text"
    );
}
