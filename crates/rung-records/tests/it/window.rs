use rung_fault::{Code, Coded as _};
use rung_records::{WindowQuery, WindowSelector, digest};
use serde_json::json;

use crate::support::*;

fn window_query(
    id: &str,
    field: &str,
    selector: WindowSelector,
    limit: Option<u64>,
) -> WindowQuery {
    WindowQuery {
        stream: "messages".to_owned(),
        id: id.to_owned(),
        field: field.to_owned(),
        choice: choice("home"),
        selector,
        limit_chars: limit,
    }
}

#[test]
fn parts_of_a_text_make_the_text_however_long_it_is() {
    each_store(|fixture| {
        let long: String = (0..40_000)
            .map(|n| ['a', '\u{e9}', '\u{1F980}', '\0', '\n', '"'][n % 6])
            .collect();
        for (id, text) in [
            ("short", "h\u{e9}llo \u{1F980}!".to_owned()),
            ("long", long),
            ("empty", String::new()),
        ] {
            fixture.put("home", "messages", id, json!({"id": id, "body": text}));
            for limit in [1u64, 7, 1_000, 16_384]
                .into_iter()
                .filter(|limit| id != "long" || *limit > 7)
            {
                let mut found = String::new();
                let mut selector = WindowSelector::Offset(0);
                loop {
                    let window = fixture
                        .records
                        .field_window(
                            &fixture.owner,
                            &window_query(id, "body", selector, Some(limit)),
                        )
                        .unwrap();
                    assert_eq!(window.start, found.chars().count() as u64);
                    assert_eq!(
                        window.end - window.start,
                        window.text.chars().count() as u64
                    );
                    assert_eq!(window.total, text.chars().count() as u64);
                    assert_eq!(window.digest, digest(&text));
                    found.push_str(&window.text);
                    match window.next_cursor {
                        Some(cursor) => selector = WindowSelector::Cursor(cursor),
                        None => break,
                    }
                }
                assert_eq!(found, text, "{id} by {limit}");
            }
        }
        let beyond = fixture
            .records
            .field_window(
                &fixture.owner,
                &window_query("short", "body", WindowSelector::Offset(99), None),
            )
            .unwrap();
        assert_eq!((beyond.start, beyond.end, beyond.text.as_str()), (8, 8, ""));
    });
}

#[test]
fn what_is_looked_for_is_found_whatever_its_case_and_wherever_it_lies() {
    each_store(|fixture| {
        // Across a chunk boundary, with characters of four bytes.
        for shift in [16_370usize, 16_380, 16_383, 16_384, 40_000] {
            let text = format!(
                "{}ΣΊΣΥΦΟΣ \u{1F980}{}",
                "x".repeat(shift),
                "y".repeat(30_000)
            );
            fixture.put("home", "messages", "m", json!({"id": "m", "body": text}));
            let selector = WindowSelector::Match {
                q: "σίσυφος".to_owned(),
                before: Some(3),
                after: Some(2),
            };
            let window = fixture
                .records
                .field_window(&fixture.owner, &window_query("m", "body", selector, None))
                .unwrap();
            assert_eq!(window.match_range, Some((shift as u64, shift as u64 + 7)));
            assert_eq!(window.text, "xxxΣΊΣΥΦΟΣ \u{1F980}");
        }
        let refused = |q: &str| {
            let selector = WindowSelector::Match {
                q: q.to_owned(),
                before: None,
                after: None,
            };
            fixture
                .records
                .field_window(&fixture.owner, &window_query("m", "body", selector, None))
                .unwrap_err()
                .code()
        };
        assert_eq!(refused("nowhere"), Code::QueryNotFound);
        assert_eq!(refused(""), Code::InvalidWindow);
        assert_eq!(refused(".*"), Code::QueryNotFound);
    });
}

#[test]
fn a_cursor_knows_when_the_text_has_changed() {
    each_store(|fixture| {
        let put = |text: &str| {
            fixture.put(
                "home",
                "messages",
                "m",
                json!({"id": "m", "body": text, "subject": text}),
            );
        };
        put(&"a".repeat(50_000));
        let first = fixture
            .records
            .field_window(
                &fixture.owner,
                &window_query("m", "body", WindowSelector::Offset(0), Some(10)),
            )
            .unwrap();
        let cursor = first.next_cursor.unwrap();
        let read = |field: &str| {
            let selector = WindowSelector::Cursor(cursor.clone());
            fixture
                .records
                .field_window(&fixture.owner, &window_query("m", field, selector, None))
                .map(|window| window.start)
        };
        assert_eq!(read("body").unwrap(), 10);
        assert_eq!(read("subject").unwrap_err().code(), Code::InvalidCursor);
        put(&"b".repeat(50_000));
        assert_eq!(read("body").unwrap_err().code(), Code::StaleCursor);
    });
}

#[test]
fn what_is_no_text_or_not_granted_is_refused() {
    each_store(|fixture| {
        fixture.put(
            "home",
            "messages",
            "m",
            json!({"id": "m", "size": 7, "secret": "s", "subject": "x"}),
        );
        let client = fixture.client(&[select("messages", &["subject", "size"])], &["home"]);
        let refused = |id: &str, field: &str| {
            fixture
                .records
                .field_window(
                    &client,
                    &window_query(id, field, WindowSelector::Offset(0), None),
                )
                .unwrap_err()
                .code()
        };
        assert_eq!(refused("m", "secret"), Code::FieldNotGranted);
        assert_eq!(
            refused("nobody", "secret"),
            Code::FieldNotGranted,
            "no word on whether the record is there"
        );
        assert_eq!(refused("m", "size"), Code::NotText);
        assert_eq!(refused("m", "undeclared"), Code::FieldNotGranted);
        assert_eq!(refused("nobody", "subject"), Code::NotFound);
        assert_eq!(refused("m", ""), Code::InvalidPath);
        fixture.put("home", "messages", "n", json!({"id": "n"}));
        assert_eq!(refused("n", "subject"), Code::PathNotFound);
    });
}
