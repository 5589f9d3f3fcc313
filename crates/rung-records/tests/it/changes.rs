use rung_fault::{Code, Coded as _};
use rung_records::grant::StreamSelection;
use rung_records::{Bearer, ChangesPage, ChangesQuery};
use serde_json::{Value, json};

use crate::support::*;

fn changes_since(mark: &str, cursor: Option<&str>, limit: usize) -> ChangesQuery {
    ChangesQuery {
        stream: "messages".to_owned(),
        choice: choice("home"),
        since: mark.to_owned(),
        cursor: cursor.map(str::to_owned),
        limit,
        ..ChangesQuery::default()
    }
}

/// Returns all changes, and the mark for the next request.
fn all_changes(
    fixture: &Fixture,
    bearer: &Bearer,
    mark: &str,
    limit: usize,
) -> (Vec<Value>, String) {
    let mut found = Vec::new();
    let mut cursor = None;
    loop {
        let page: ChangesPage = fixture
            .records
            .changes(bearer, &changes_since(mark, cursor.as_deref(), limit))
            .unwrap();
        assert!(page.records.len() <= limit);
        found.extend(page.records.iter().map(|raw| parsed(raw)));
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return (found, page.next_changes_since),
        }
    }
}

fn ids_and_deletions(changes: &[Value]) -> Vec<(String, bool)> {
    changes
        .iter()
        .map(|one| {
            (
                one["id"].as_str().unwrap().to_owned(),
                one["deleted"] == true,
            )
        })
        .collect()
}

#[test]
fn the_last_change_of_each_record_is_reported_once() {
    each_store(|fixture| {
        for n in 0..7 {
            fixture.put(
                "home",
                "messages",
                &format!("m{n}"),
                json!({"id": format!("m{n}"), "size": n}),
            );
        }
        fixture.delete("home", "messages", "m3");
        for limit in [1, 2, 100] {
            let (first, mark) = all_changes(&fixture, &fixture.owner, "beginning", limit);
            assert_eq!(
                ids_and_deletions(&first),
                ["m0", "m1", "m2", "m4", "m5", "m6"].map(|id| (id.to_owned(), false))
            );
            assert_eq!(
                all_changes(&fixture, &fixture.owner, &mark, limit).0,
                Vec::<Value>::new()
            );
        }
        let (_, mark) = all_changes(&fixture, &fixture.owner, "beginning", 100);
        fixture.put("home", "messages", "m1", json!({"id": "m1", "size": 10}));
        fixture.put("home", "messages", "m1", json!({"id": "m1", "size": 11}));
        fixture.delete("home", "messages", "m0");
        fixture.put("home", "messages", "new", json!({"id": "new"}));
        // Created and deleted between two requests: not reported.
        fixture.put("home", "messages", "brief", json!({"id": "brief"}));
        fixture.delete("home", "messages", "brief");
        // Changed and changed back: not reported.
        fixture.put("home", "messages", "m2", json!({"id": "m2", "size": 99}));
        fixture.put("home", "messages", "m2", json!({"id": "m2", "size": 2}));
        let (second, _) = all_changes(&fixture, &fixture.owner, &mark, 2);
        assert_eq!(
            ids_and_deletions(&second),
            [
                ("m1".to_owned(), false),
                ("m0".to_owned(), true),
                ("new".to_owned(), false)
            ]
        );
        assert_eq!(second[0]["data"]["size"], 11);
        assert!(second[1].get("data").is_none() && second[1]["deleted_at"].is_string());
    });
}

#[test]
fn changes_during_a_request_are_reported_by_the_next() {
    each_store(|fixture| {
        for n in 0..4 {
            fixture.put(
                "home",
                "messages",
                &format!("m{n}"),
                json!({"id": format!("m{n}"), "size": n}),
            );
        }
        let first = fixture
            .records
            .changes(&fixture.owner, &changes_since("beginning", None, 2))
            .unwrap();
        // One already reported, and one still to come.
        fixture.put("home", "messages", "m0", json!({"id": "m0", "size": 50}));
        fixture.put("home", "messages", "m3", json!({"id": "m3", "size": 50}));
        let second = fixture
            .records
            .changes(
                &fixture.owner,
                &changes_since("beginning", first.next_cursor.as_deref(), 2),
            )
            .unwrap();
        let ids: Vec<Value> = second.records.iter().map(|raw| parsed(raw)).collect();
        assert_eq!(
            ids_and_deletions(&ids),
            [("m2".to_owned(), false), ("m3".to_owned(), false)]
        );
        assert_eq!(
            ids[1]["data"]["size"], 3,
            "as it was at the moment of the look"
        );
        let (later, _) = all_changes(&fixture, &fixture.owner, &second.next_changes_since, 10);
        assert_eq!(
            ids_and_deletions(&later),
            [("m0".to_owned(), false), ("m3".to_owned(), false)]
        );
    });
}

#[test]
fn a_hidden_change_is_not_reported() {
    each_store(|fixture| {
        let put = |id: &str, at: &str, subject: &str, secret: &str| {
            fixture.put(
                "home",
                "messages",
                id,
                json!({"id": id, "sent_at": at, "subject": subject, "secret": secret}),
            );
        };
        let granted = StreamSelection {
            since: Some("2026-01-01".into()),
            ..select("messages", &["subject", "sent_at"])
        };
        let client = fixture.client(&[granted], &["home"]);
        put("in", "2026-02-01", "a", "s1");
        put("out", "2025-02-01", "a", "s1");
        let (first, mark) = all_changes(&fixture, &client, "beginning", 10);
        assert_eq!(ids_and_deletions(&first), [("in".to_owned(), false)]);
        put("in", "2026-02-01", "a", "s2");
        put("out", "2025-02-01", "b", "s2");
        let (second, next) = all_changes(&fixture, &client, &mark, 10);
        assert_eq!(
            second,
            Vec::<Value>::new(),
            "only what is not granted has changed"
        );
        fixture.delete("home", "messages", "out");
        assert_eq!(
            all_changes(&fixture, &client, &next, 10).0,
            Vec::<Value>::new(),
            "it was never seen, so it is not gone"
        );
        fixture.delete("home", "messages", "in");
        assert_eq!(
            ids_and_deletions(&all_changes(&fixture, &client, &next, 10).0),
            [("in".to_owned(), true)]
        );
    });
}

#[test]
fn cursors_are_bound_to_their_request() {
    each_store(|fixture| {
        fixture.put("home", "messages", "m", json!({"id": "m"}));
        let (_, mark) = all_changes(&fixture, &fixture.owner, "beginning", 10);
        let client = fixture.client(&[select("messages", &[])], &["home"]);
        let refused = |bearer: &Bearer, query: &ChangesQuery| {
            fixture.records.changes(bearer, query).unwrap_err().code()
        };
        assert_eq!(
            refused(&client, &changes_since(&mark, None, 1)),
            Code::InvalidCursor
        );
        for made_up in ["", "2026-01-01T00:00:00Z", "Beginning", "0"] {
            assert_eq!(
                refused(&fixture.owner, &changes_since(made_up, None, 1)),
                Code::InvalidCursor
            );
        }
        fixture.put("work", "messages", "m", json!({"id": "m"}));
        let both = ChangesQuery {
            choice: Default::default(),
            ..changes_since("beginning", None, 1)
        };
        let error = fixture.records.changes(&fixture.owner, &both).unwrap_err();
        assert_eq!(
            (error.code(), error.candidates().unwrap().len()),
            (Code::InvalidArguments, 2)
        );
    });
}
