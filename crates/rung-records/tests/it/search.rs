use rung_fault::{Code, Coded as _};
use rung_records::{Bearer, RecordFilter, SearchQuery};
use serde_json::{Value, json};

use crate::support::*;

fn query(q: &str) -> SearchQuery {
    SearchQuery {
        q: q.to_owned(),
        limit: 25,
        ..SearchQuery::default()
    }
}

fn hits(fixture: &Fixture, bearer: &Bearer, query: &SearchQuery) -> Vec<String> {
    let found = fixture.records.search(bearer, query).unwrap();
    found
        .hits
        .iter()
        .map(|hit| hit["record_key"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn records_are_found_by_all_of_their_words() {
    each_store(|fixture| {
        let put = |connection: &str, id: &str, subject: &str, body: &str| {
            fixture.put(
                connection,
                "messages",
                id,
                json!({"id": id, "subject": subject, "body": body, "sent_at": "2026-01-01"}),
            );
        };
        put(
            "home",
            "a",
            "Rechnung",
            "Die Überweisung für Café Zürich, invoice 42",
        );
        put("home", "b", "invoice invoice", "invoice");
        put(
            "work",
            "c",
            "other",
            &format!(
                "{} invoice {}",
                "filler ".repeat(9_000),
                "filler ".repeat(300)
            ),
        );
        assert_eq!(
            hits(&fixture, &fixture.owner, &query("INVOICE")),
            ["b", "a", "c"],
            "much of it in little text comes first"
        );
        assert_eq!(
            hits(&fixture, &fixture.owner, &query("uberweisung cafe")),
            ["a"]
        );
        assert_eq!(
            hits(&fixture, &fixture.owner, &query("invoice zebra")),
            Vec::<String>::new()
        );
        assert_eq!(
            hits(&fixture, &fixture.owner, &query("\"'; DROP --")),
            Vec::<String>::new()
        );
        assert_eq!(
            hits(&fixture, &fixture.owner, &query("?!")),
            Vec::<String>::new()
        );
        let found = fixture
            .records
            .search(&fixture.owner, &query("invoice"))
            .unwrap();
        assert_eq!((found.total, found.has_more), (3, false));
        let long: &Value = &found.hits[2];
        let snippet = long["snippet"]["text"].as_str().unwrap();
        assert!(
            snippet.contains("<mark>invoice</mark>") && snippet.len() < 800,
            "{snippet}"
        );
        assert_eq!(long["evidence_excerpts"][0]["truncated"], true);
        assert_eq!(found.hits[0]["matched_fields"], json!(["subject", "body"]));
        let refused = |q: &str| {
            fixture
                .records
                .search(&fixture.owner, &query(q))
                .unwrap_err()
                .code()
        };
        assert_eq!(refused(" "), Code::InvalidRequest);
        let filtered = SearchQuery {
            filters: vec![RecordFilter {
                field: "sent_at".into(),
                operator: Some("gte".into()),
                value: "2027-01-01".into(),
            }],
            ..query("invoice")
        };
        assert_eq!(
            fixture
                .records
                .search(&fixture.owner, &filtered)
                .unwrap_err()
                .code(),
            Code::InvalidRequest,
            "which stream?"
        );
        let filtered = SearchQuery {
            streams: vec!["messages".into()],
            ..filtered
        };
        assert_eq!(
            hits(&fixture, &fixture.owner, &filtered),
            Vec::<String>::new()
        );
    });
}

#[test]
fn pages_continue_in_their_snapshot() {
    each_store(|fixture| {
        for n in 0..9 {
            fixture.put(
                "home",
                "messages",
                &format!("m{n}"),
                json!({"id": format!("m{n}"), "body": format!("apple {}", "pear ".repeat(n))}),
            );
        }
        let all = hits(&fixture, &fixture.owner, &query("apple"));
        let mut found = Vec::new();
        let mut asked = SearchQuery {
            limit: 2,
            ..query("apple")
        };
        loop {
            let page = fixture.records.search(&fixture.owner, &asked).unwrap();
            found.extend(
                page.hits
                    .iter()
                    .map(|hit| hit["record_key"].as_str().unwrap().to_owned()),
            );
            // Records written meanwhile belong to a later version.
            let n = found.len();
            fixture.put(
                "home",
                "messages",
                &format!("x{n}"),
                json!({"id": format!("x{n}"), "body": "apple apple"}),
            );
            asked.cursor = page.next_cursor;
            if asked.cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, all);
        let client = fixture.client(&[select("messages", &["body"])], &["home"]);
        let first = fixture
            .records
            .search(
                &fixture.owner,
                &SearchQuery {
                    limit: 2,
                    ..query("apple")
                },
            )
            .unwrap();
        let foreign = SearchQuery {
            cursor: first.next_cursor,
            ..query("apple")
        };
        assert_eq!(
            fixture
                .records
                .search(&client, &foreign)
                .unwrap_err()
                .code(),
            Code::InvalidCursor
        );
    });
}

#[test]
fn hidden_texts_are_not_found_and_do_not_affect_scores() {
    each_store(|fixture| {
        fixture.put(
            "home",
            "messages",
            "m",
            json!({"id": "m", "body": "apple", "secret": "treasure", "sent_at": "2026-05-01"}),
        );
        let narrow = fixture.client(&[select("messages", &["body"])], &["home"]);
        let before = fixture
            .records
            .search(&narrow, &query("apple"))
            .unwrap()
            .hits[0]["score"]
            .clone();
        assert_eq!(
            hits(&fixture, &narrow, &query("treasure")),
            Vec::<String>::new()
        );
        assert_eq!(hits(&fixture, &fixture.owner, &query("treasure")), ["m"]);
        for n in 0..20 {
            fixture.put(
                "work",
                "messages",
                &format!("w{n}"),
                json!({"id": format!("w{n}"), "body": "apple", "sent_at": "2026-05-01"}),
            );
        }
        let after = fixture.records.search(&narrow, &query("apple")).unwrap();
        assert_eq!(after.total, 1);
        assert_eq!(
            after.hits[0]["score"], before,
            "how often a word stands elsewhere is not told by a score"
        );
        let stream = SearchQuery {
            streams: vec!["threads".into()],
            ..query("apple")
        };
        assert_eq!(
            fixture.records.search(&narrow, &stream).unwrap_err().code(),
            Code::GrantStreamNotAllowed
        );
    });
}
