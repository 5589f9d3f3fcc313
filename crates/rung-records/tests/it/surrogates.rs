//! JSON escapes that are not valid text: lone surrogates anywhere, and NUL where a store cannot hold it.

use rung_fault::Coded as _;
use rung_records::{
    AggregateQuery, ChangesQuery, ConnectionFilter, Granularity, ListQuery, Metric, RecordFilter,
    RecordQuery, SearchQuery, WindowQuery, WindowSelector,
};
use serde_json::{Value, json};

use crate::support::*;

/// A lone high surrogate, a reversed pair, a high surrogate before a letter, and a valid pair.
const BODY: &str = r"begin \ud800 apple \udc00\ud800 pear\uD83Ex \ud83e\udd80 end";
const READ: &str = "begin \u{fffd} apple \u{fffd}\u{fffd} pear\u{fffd}x \u{1F980} end";

fn window(fixture: &Fixture, id: &str, field: &str, selector: WindowSelector) -> String {
    let query = WindowQuery {
        stream: "messages".to_owned(),
        id: id.to_owned(),
        field: field.to_owned(),
        choice: choice("home"),
        selector,
        limit_chars: None,
    };
    let window = fixture.records.field_window(&fixture.owner, &query);
    window.unwrap().text
}

fn search(fixture: &Fixture, q: &str) -> Vec<Value> {
    let query = SearchQuery {
        q: q.to_owned(),
        limit: 10,
        ..SearchQuery::default()
    };
    fixture.records.search(&fixture.owner, &query).unwrap().hits
}

#[test]
fn half_a_surrogate_pair_is_the_replacement_character() {
    each_store(|fixture| {
        let long = BODY.repeat(1_000);
        let lines = format!(
            "{{\"key\":\"short\",\"data\":{{\"id\":\"short\",\"sent_at\":\"2026-03-01\",\"from\":\"\\ud800\",\"body\":\"{BODY}\",\"labels\":[\"\\udfff\"],\"\\udabc\":1}}}}\n\
             {{\"key\":\"long\",\"data\":{{\"id\":\"long\",\"sent_at\":\"2026-03-02\",\"from\":\"\\ud800\",\"body\":\"{long}\"}}}}\n\
             {{\"key\":\"\\ud800\",\"data\":{{\"id\":\"\\ud800\"}}}}\n"
        );
        let done = fixture.ingest_bytes("home", "messages", lines.as_bytes());
        assert_eq!(done.records_accepted, 2, "{:?}", done.rejections);
        // Replacing surrogates in keys would make two distinct keys equal.
        assert_eq!(done.rejections[0].code, "invalid_record_identity");
        let again = fixture.ingest_bytes("home", "messages", lines.as_bytes());
        assert_eq!(again.records_unchanged, 2);

        // Lists, single records and changes are valid JSON for every parser.
        let listed = fixture.list(&fixture.owner, &page("messages", 10));
        assert_eq!(ids(&listed), ["long", "short"]);
        let query = RecordQuery {
            stream: "messages".to_owned(),
            id: "short".to_owned(),
            ..RecordQuery::default()
        };
        let one = parsed(&fixture.records.record(&fixture.owner, &query).unwrap());
        assert_eq!(one["data"]["body"], READ);
        assert_eq!(one["data"]["labels"], json!(["\u{fffd}"]));
        let query = ChangesQuery {
            stream: "messages".to_owned(),
            choice: choice("home"),
            since: "beginning".to_owned(),
            limit: 10,
            ..ChangesQuery::default()
        };
        let changes = fixture.records.changes(&fixture.owner, &query).unwrap();
        assert_eq!(changes.records.len(), 2);

        // Search, its excerpts, and windows.
        for (id, q) in [("short", "begin apple"), ("long", "pear")] {
            let hits = search(&fixture, q);
            assert_eq!(hits.len(), 2, "{q}: {hits:?}");
            assert_eq!(hits[0]["matched_fields"], json!(["body"]));
            let text = window(&fixture, id, "body", WindowSelector::Offset(0));
            assert!(text.starts_with(READ), "{text}");
            let q = "apple".to_owned();
            let (before, after) = (Some(2), Some(0));
            let selector = WindowSelector::Match { q, before, after };
            assert_eq!(window(&fixture, id, "body", selector), "\u{fffd} apple");
        }
        assert_eq!(
            window(&fixture, "short", "from", WindowSelector::Offset(0)),
            "\u{fffd}"
        );

        // Filters, groups and the preview on the consent page.
        let filter = |field: &str, value: &str| RecordFilter {
            field: field.to_owned(),
            operator: None,
            value: value.to_owned(),
        };
        let same = ListQuery {
            filters: vec![filter("from", "\u{fffd}")],
            ..page("messages", 10)
        };
        assert_eq!(ids(&fixture.list(&fixture.owner, &same)).len(), 2);
        let groups = AggregateQuery {
            stream: "messages".to_owned(),
            choice: ConnectionFilter::default(),
            metric: Metric::Count,
            field: None,
            group_by: Some("from".to_owned()),
            group_by_time: None,
            time_zone: None,
            limit: None,
            filters: Vec::new(),
        };
        let groups = fixture.records.aggregate(&fixture.owner, &groups).unwrap();
        assert_eq!(groups["groups"], json!([{"key": "\u{fffd}", "count": 2}]));
        let client = fixture.client(&[select("messages", &["body", "from"])], &["home"]);
        let grant = client.grant().unwrap();
        let preview = fixture.records.preview(&fixture.owner, grant).unwrap();
        assert_eq!(preview[0].samples.len(), 2);
    });
}

/// Records written by earlier versions contain lone surrogates in the store.
#[test]
fn a_half_that_is_in_the_store_already_is_read_in_the_same_way() {
    each_store(|fixture| {
        let text = "apple XXXXXX pear";
        let data = json!({"id": "m", "sent_at": "2026-03-01", "body": text});
        fixture.put("home", "messages", "m", data);
        let sql = "UPDATE record SET data = replace(data, 'XXXXXX', '\\ud800')";
        if let Some(address) = &fixture.database {
            let mut client = postgres::Client::connect(address, postgres::NoTls).unwrap();
            assert_eq!(client.execute(sql, &[]).unwrap(), 1);
        } else {
            let path = fixture.dir.path().join("records.sqlite");
            let file = rusqlite::Connection::open(path).unwrap();
            assert_eq!(file.execute(sql, []).unwrap(), 1);
        }
        let text = window(&fixture, "m", "body", WindowSelector::Offset(0));
        assert_eq!(text, "apple \u{fffd} pear");
        let hits = search(&fixture, "apple");
        let shown = &hits[0]["evidence_excerpts"][0]["preview_text"];
        assert_eq!(shown, "apple \u{fffd} pear");
        let client = fixture.client(&[select("messages", &["body"])], &["home"]);
        let grant = client.grant().unwrap();
        assert!(fixture.records.preview(&fixture.owner, grant).is_ok());
    });
}

#[test]
fn nul_is_a_character_in_texts_and_in_names() {
    each_store(|fixture| {
        let long = "\0pear ".repeat(5_000);
        let data = json!({"id": "m", "sent_at": "2026-03-01", "from": "a\0b", "body": "apple\0pear", "x\0y": long, "subject": long});
        fixture.put("home", "messages", "m", data.clone());
        let query = RecordQuery {
            stream: "messages".to_owned(),
            id: "m".to_owned(),
            ..RecordQuery::default()
        };
        let one = parsed(&fixture.records.record(&fixture.owner, &query).unwrap());
        assert_eq!(one["data"], data);
        assert_eq!(search(&fixture, "apple pear").len(), 1);
        let text = window(&fixture, "m", "body", WindowSelector::Offset(0));
        assert_eq!(text, "apple\0pear");
        // A request containing NUL finds nothing, and is not a store failure.
        let absent = RecordQuery {
            id: "m\0".to_owned(),
            ..query
        };
        let refused = fixture.records.record(&fixture.owner, &absent).unwrap_err();
        assert_eq!(refused.code(), rung_fault::Code::NotFound, "{refused}");
        for (field, value, found) in [("from", "a\0b", 1), ("id", "m\0", 0)] {
            let filters = vec![RecordFilter {
                field: field.to_owned(),
                operator: None,
                value: value.to_owned(),
            }];
            let listed = ListQuery {
                filters,
                ..page("messages", 10)
            };
            let listed = fixture.list(&fixture.owner, &listed);
            assert_eq!(listed.records.len(), found, "{field}");
        }
        let by_day = AggregateQuery {
            stream: "messages".to_owned(),
            choice: ConnectionFilter::default(),
            metric: Metric::Count,
            field: None,
            group_by: None,
            group_by_time: Some(("sent_at".to_owned(), Granularity::Day)),
            time_zone: None,
            limit: None,
            filters: Vec::new(),
        };
        let days = fixture.records.aggregate(&fixture.owner, &by_day).unwrap();
        assert_eq!(days["groups"][0]["key"], "2026-03-01");
    });
}
