//! Asking for more never shows less.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::fake::{Asked, Provider};
use super::{Agent, adapter, cuts};
use crate::sandbox::Sandbox;

const TOKEN: &str = "a-scoped-token-of-some-length";
/// Rows and hits that the provider has.
const ALL: usize = 100;
/// Code points of a text, from row to row: short ones, long ones, and one that fills a page.
const SIZES: [usize; 7] = [3, 900, 40, 2_500, 0, 30_000, 120];

fn words(chars: usize) -> String {
    "word ".repeat(chars / 5 + 1)[..chars].to_owned()
}

/// A provider of texts of all sizes, with cursors as long as real ones. Fields beside the text are short, and many or few.
fn provider(shift: usize) -> Provider {
    Provider::of(move |asked: &Asked| {
        let pairs = asked.pairs();
        let value = |name: &str| {
            let mut found = pairs.iter().filter(|(own, _)| own == name);
            found.next().map(|(_, value)| value.as_str())
        };
        let limit = value("limit").and_then(|limit| limit.parse().ok());
        let limit: usize = limit.unwrap_or(25).min(ALL);
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
        let mut page =
            json!({"object": "list", "data": rows.collect::<Vec<_>>(), "has_more": limit < ALL});
        if limit < ALL {
            page["next_cursor"] = json!(format!("{limit}{}", "c".repeat(150)));
        }
        (200, page)
    })
}

fn shown(agent: &mut Agent<'_>, tool: &str, limit: usize, alone: bool) -> usize {
    let arguments = match tool {
        "search" => json!({"q": "word", "limit": limit}),
        _ => json!({"stream": "things", "limit": limit}),
    };
    let given = agent.ok(tool, arguments);
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
fn of_rows_and_hits() {
    for shift in 0..SIZES.len() {
        let sandbox = Sandbox::new();
        let provider = provider(shift);
        let mut clients = [
            (adapter(&sandbox, &provider.address, TOKEN, &[]), false),
            (cuts::reader(&sandbox, &provider), true),
        ];
        for (client, alone) in &mut clients {
            for tool in ["query_records", "search"] {
                let mut before = 0;
                for limit in (1..=ALL).step_by(3) {
                    let now = shown(client, tool, limit, *alone);
                    assert!(
                        now >= before && now > 0,
                        "{tool}, {shift}: {now} of {limit}, and {before} of fewer"
                    );
                    before = now;
                }
            }
        }
    }
}
