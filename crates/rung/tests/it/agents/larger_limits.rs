//! A larger limit never shows fewer rows or hits.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::fake_provider::{FakeProvider, RecordedRequest};
use super::{Agent, start_adapter, truncation};
use crate::sandbox::Sandbox;

const TOKEN: &str = "a-scoped-token-of-some-length";
/// Total rows and hits of the provider.
const TOTAL_ROWS: usize = 100;
/// Code points of each row's text, in turn: short ones, long ones, and one that fills a page.
const SIZES: [usize; 7] = [3, 900, 40, 2_500, 0, 30_000, 120];

fn words(chars: usize) -> String {
    "word ".repeat(chars / 5 + 1)[..chars].to_owned()
}

/// A provider of texts of all sizes, with cursors of realistic length. `shift` also sets the number of short fields next to the
/// text.
fn provider(shift: usize) -> FakeProvider {
    FakeProvider::with_json(move |asked: &RecordedRequest| {
        let pairs = asked.query_pairs();
        let value = |name: &str| {
            let mut found = pairs.iter().filter(|(own, _)| own == name);
            found.next().map(|(_, value)| value.as_str())
        };
        let limit = value("limit").and_then(|limit| limit.parse().ok());
        let limit: usize = limit.unwrap_or(25).min(TOTAL_ROWS);
        let rows = (0..limit).map(|n| {
            let text = words(SIZES[(n + shift) % SIZES.len()]);
            if asked.path().contains("search") {
                return json!({"object": "search_result", "stream": "things", "record_key": format!("r{n}"), "connection_id": "c",
                    "emitted_at": "2026-01-01T00:00:00Z", "matched_fields": ["text"], "snippet": {"field": "text", "text": format!("word {text:.400}")}});
            }
            let mut data = json!({"id": format!("r{n}"), "text": text});
            for field in 0..shift * 3 {
                data[format!("short_{field}")] = json!(field * 1_000);
            }
            json!({"object": "record", "id": format!("r{n}"), "stream": "things", "connection_id": "c", "emitted_at": "2026-01-01T00:00:00Z", "data": data})
        });
        let mut page = json!({"object": "list", "data": rows.collect::<Vec<_>>(), "has_more": limit < TOTAL_ROWS});
        if limit < TOTAL_ROWS {
            page["next_cursor"] = json!(format!("{limit}{}", "c".repeat(150)));
        }
        (200, page)
    })
}

fn shown_count(agent: &mut Agent<'_>, tool: &str, limit: usize, alone: bool) -> usize {
    let arguments = match tool {
        "search" => json!({"q": "word", "limit": limit}),
        _ => json!({"stream": "things", "limit": limit}),
    };
    let given = agent.call_ok(tool, arguments);
    if alone {
        let ids = given.text().split("c/things:r").skip(1);
        let digits = |id: &str| id.chars().take_while(char::is_ascii_digit).collect();
        return ids.map(digits).collect::<BTreeSet<String>>().len();
    }
    let structured = given.structured();
    let rows = ["/data/data", "/data/results", "/results", "/data"].iter();
    let mut rows = rows.filter_map(|place| structured.pointer(place).and_then(Value::as_array));
    rows.next().unwrap_or_else(|| panic!("{structured}")).len()
}

#[test]
fn a_page_has_as_many_rows_and_hits_as_were_requested() {
    for shift in 0..SIZES.len() {
        let sandbox = Sandbox::new();
        let provider = provider(shift);
        let mut clients = [
            (
                start_adapter(&sandbox, &provider.address, TOKEN, &[]),
                false,
            ),
            (truncation::start_text_only_agent(&sandbox, &provider), true),
        ];
        for (client, alone) in &mut clients {
            for tool in ["query_records", "search"] {
                for limit in [1, 20, 25, 26, 60, TOTAL_ROWS] {
                    let shown = shown_count(client, tool, limit, *alone);
                    assert_eq!(shown, limit, "{tool}, {shift}, text alone: {alone}");
                }
            }
        }
    }
}

#[test]
fn a_larger_limit_never_shows_fewer_rows_under_a_limit_of_bytes() {
    for shift in 0..SIZES.len() {
        let sandbox = Sandbox::new();
        let provider = provider(shift);
        let flags = ["--max-reply-bytes", "12000"];
        let mut client = start_adapter(&sandbox, &provider.address, TOKEN, &flags);
        for tool in ["query_records", "search"] {
            let mut before = 0;
            for limit in (1..=TOTAL_ROWS).step_by(3) {
                let now = shown_count(&mut client, tool, limit, false);
                assert!(
                    now >= before && now > 0,
                    "{tool}, {shift}: {now} of {limit}, and {before} of fewer"
                );
                before = now;
            }
        }
    }
}

/// A client that is shown text alone learns of every row what it is.
#[test]
fn the_text_names_every_row_with_its_title_and_first_words() {
    let provider = FakeProvider::with_json(|asked: &RecordedRequest| {
        let rows = (0..100).map(|n| {
            let (title, text) = (format!("Title {n} of it"), format!("first words {n} {}", words(3_000)));
            if asked.path().contains("search") {
                return json!({"object": "search_result", "stream": "things", "record_key": format!("r{n}"), "connection_id": "c", "title": title,
                    "snippet": {"field": "text", "text": text}});
            }
            let mut data = json!({"title": title});
            for field in 0..30 {
                data[format!("number_{field}")] = json!(field * 1_000_000);
            }
            data["text"] = json!(text);
            json!({"object": "record", "id": format!("r{n}"), "stream": "things", "connection_id": "c", "data": data})
        });
        (
            200,
            json!({"object": "list", "data": rows.collect::<Vec<_>>()}),
        )
    });
    let sandbox = Sandbox::new();
    let mut client = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
    for (tool, arguments) in [
        ("query_records", json!({"stream": "things", "limit": 100})),
        ("search", json!({"q": "words", "limit": 100})),
    ] {
        let given = client.call_ok(tool, arguments);
        assert!(given.bytes <= 256 << 10, "{tool}: {}", given.bytes);
        let text = given.text();
        for n in 0..100 {
            assert!(
                text.contains(&format!("c/things:r{n}")),
                "{tool}, {n}: {text}"
            );
            assert!(
                text.contains(&format!("Title {n} of it")),
                "{tool}, {n}: {text}"
            );
            assert!(
                text.contains(&format!("first words {n} ")),
                "{tool}, {n}: {text}"
            );
        }
        assert!(!text.contains("structuredContent"), "{tool}: {text}");
        let rows = &given.structured()["data"]["data"];
        assert_eq!(rows.as_array().unwrap().len(), 100, "{tool}");
    }
}

/// A short text of a record takes nothing from the long one beside it.
#[test]
fn a_long_text_gets_the_room_that_short_ones_leave() {
    let provider = FakeProvider::with_json(|_| {
        let data = json!({"title": words(70), "note": words(300), "body": format!("begin {}", words(50_000))});
        let row = json!({"object": "record", "id": "r0", "stream": "things", "connection_id": "c", "data": data});
        (200, json!({"object": "list", "data": [row]}))
    });
    let sandbox = Sandbox::new();
    let mut client = truncation::start_text_only_agent(&sandbox, &provider);
    let given = client.call_ok("query_records", json!({"stream": "things", "limit": 1}));
    let text = given.text();
    let body = text.split("begin ").nth(1).unwrap();
    let shown = body.split('…').next().unwrap();
    assert!(shown.len() > 8_000, "{}: {text}", shown.len());
    assert!(text.contains(&words(300)), "{text}");
}

/// Bytes in a list that is cut are not shown in part, and no field that identifies a record is left out.
#[test]
fn cut_records_show_no_base64_and_stay_identified() {
    let base64 = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo5".repeat(80);
    let shown_part = base64[..60].to_owned();
    let provider = FakeProvider::with_json(move |_| {
        let parts: Vec<Value> = (0..8)
            .map(|n| json!({"n": n, "bytes": base64, "text": words(500)}))
            .collect();
        let rows = (0..100).map(|n| {
            json!({"object": "record", "record_key": format!("r{n}"), "stream": "things", "connection_id": "c",
                "data": {"parts": parts, "text": words(900)}})
        });
        (
            200,
            json!({"object": "list", "data": rows.collect::<Vec<_>>()}),
        )
    });
    let sandbox = Sandbox::new();
    let flags = ["--max-reply-bytes", "30000"];
    let mut client = start_adapter(&sandbox, &provider.address, TOKEN, &flags);
    let given = client.call_ok("query_records", json!({"stream": "things", "limit": 100}));
    let shown = given.structured().to_string();
    assert!(!shown.contains(&shown_part), "{shown}");
    assert!(shown.contains("c/things:r0"), "{shown}");
}
