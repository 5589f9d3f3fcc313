use rung_fault::{Code, Coded as _};
use rung_records::{RecordQuery, RecordsOptions, SearchQuery};
use serde_json::{Value, json};

use crate::support::*;

fn record(fixture: &Fixture, connection: &str, id: &str) -> Option<Value> {
    let query = RecordQuery {
        stream: "messages".to_owned(),
        id: id.to_owned(),
        choice: choice(connection),
        ..RecordQuery::default()
    };
    fixture
        .records
        .record(&fixture.owner, &query)
        .ok()
        .map(|raw| parsed(&raw))
}

#[test]
fn a_bad_line_is_reported_and_the_rest_is_accepted() {
    each_store(|fixture| {
        let mut bytes = Vec::new();
        for n in 0..10_000 {
            match n {
                5_000 => bytes.extend_from_slice(b"{\"key\":\"broken\",\"data\":{\"id\":"),
                5_001 => bytes.extend_from_slice(b"{\"key\":\"\xff\xfe\",\"data\":{}}"),
                5_002 => bytes.extend_from_slice(b"{\"key\":\"a\",\"data\":{\"id\":\"b\"}}"),
                5_003 => bytes.extend_from_slice(b"{\"key\":\"a\",\"data\":[1]}"),
                5_004 => bytes.extend_from_slice(b"{\"key\":7,\"data\":{}}"),
                5_005 => bytes.extend_from_slice(b"{\"data\":{\"id\":\"x\"}}"),
                5_006 => bytes.extend_from_slice(b"{\"key\":\"a\",\"data\":{},\"op\":\"explode\"}"),
                5_007 => {
                    bytes.extend_from_slice(b"{\"key\":\"a\",\"data\":{},\"emitted_at\":\"soon\"}");
                }
                5_008 => bytes.extend_from_slice(b"\"no object\""),
                _ => bytes.extend_from_slice(
                    json!({"key": format!("m{n}"), "data": {"id": format!("m{n}"), "size": n}})
                        .to_string()
                        .as_bytes(),
                ),
            }
            bytes.extend_from_slice(if n % 3 == 0 { b"\r\n\n" } else { b"\n" });
        }
        let done = fixture.ingest_bytes("home", "messages", &bytes);
        assert_eq!(
            (
                done.records_attempted,
                done.records_accepted,
                done.records_rejected
            ),
            (10_000, 9_991, 9)
        );
        let told: Vec<(u64, &str)> = done
            .rejections
            .iter()
            .map(|one| (one.input_index, one.code))
            .collect();
        assert_eq!(
            told,
            [
                (5_000, "malformed_ndjson"),
                (5_001, "invalid_utf8"),
                (5_002, "invalid_record_identity"),
                (5_003, "invalid_record"),
                (5_004, "invalid_record_identity"),
                (5_005, "invalid_record_identity"),
                (5_006, "invalid_record"),
                (5_007, "invalid_record"),
                (5_008, "invalid_record"),
            ]
        );
        assert!(record(&fixture, "home", "m9999").is_some());
        // Identical data changes nothing.
        let again = fixture.ingest_bytes("home", "messages", &bytes);
        assert_eq!(again.records_unchanged, 9_991);
        assert_eq!(
            again.rejections[0].receipt_id,
            done.rejections[0].receipt_id
        );
    });
}

#[test]
fn data_comes_back_as_it_was_written() {
    each_store(|fixture| {
        let odd = r#"{"id":"m","size":1.0,"big":12345678901234567890,"e":1e2,"nested":{"z":[1, {"a":null}]},"text":"\u00e9\n","labels":[]}"#;
        fixture.ingest_bytes(
            "home",
            "messages",
            format!("{{\"key\":\"m\",\"data\":{odd}}}").as_bytes(),
        );
        let query = RecordQuery {
            stream: "messages".to_owned(),
            id: "m".to_owned(),
            choice: choice("home"),
            ..RecordQuery::default()
        };
        let raw = fixture.records.record(&fixture.owner, &query).unwrap();
        assert!(raw.get().contains(odd), "{}", raw.get());
    });
}

#[test]
fn one_key_many_times_in_one_batch_ends_as_the_last() {
    each_store(|fixture| {
        let lines: Vec<Value> = (0..50).map(|n| json!({"key": format!("m{}", n % 3), "data": {"id": format!("m{}", n % 3), "size": n}})).collect();
        let done = fixture.ingest("home", "messages", &lines);
        assert_eq!(done.records_accepted, 50);
        assert_eq!(record(&fixture, "home", "m1").unwrap()["data"]["size"], 49);
        assert_eq!(
            fixture
                .list(&fixture.owner, &page("messages", 10))
                .records
                .len(),
            3
        );
        fixture.delete("home", "messages", "m1");
        fixture.delete("home", "messages", "never");
        assert!(record(&fixture, "home", "m1").is_none());
        fixture.put("home", "messages", "m1", json!({"id": "m1", "size": 1}));
        assert_eq!(record(&fixture, "home", "m1").unwrap()["data"]["size"], 1);
    });
}

#[test]
fn compound_keys_are_lists() {
    each_store(|fixture| {
        let done = fixture.ingest(
            "home",
            "notes",
            &[
                json!({"key": ["a", "1"], "data": {"book": "a", "page": 1, "text": "x"}}),
                json!({"key": "[\"a\",\"2\"]", "data": {"book": "a", "page": 2}}),
                json!({"key": ["a", "1"], "data": {"book": "a", "page": 2}}),
                json!({"key": ["a"], "data": {}}),
                json!({"key": "a", "data": {}}),
            ],
        );
        assert_eq!((done.records_accepted, done.records_rejected), (2, 3));
        let query = RecordQuery {
            stream: "notes".to_owned(),
            id: "[\"a\",\"1\"]".to_owned(),
            choice: choice("home"),
            ..RecordQuery::default()
        };
        assert_eq!(
            parsed(&fixture.records.record(&fixture.owner, &query).unwrap())["data"]["text"],
            "x"
        );
    });
}

#[test]
fn a_large_record_is_accepted_whole_or_not_at_all() {
    each_store_with(
        || RecordsOptions {
            max_line_bytes: 25_000_000,
            ..RecordsOptions::default()
        },
        |fixture| {
            let body = "wörd ".repeat(3_500_000);
            fixture.put("home", "messages", "m", json!({"id": "m", "body": body}));
            assert_eq!(record(&fixture, "home", "m").unwrap()["data"]["body"], body);
            let mut ingest = fixture
                .records
                .ingest(&fixture.owner, &target("home", "messages"))
                .unwrap();
            let line = json!({"key": "n", "data": {"id": "n", "body": "x".repeat(26_000_000)}})
                .to_string();
            let mut refused = None;
            for piece in line.as_bytes().chunks(1 << 20) {
                if let Err(error) = ingest.push(piece) {
                    refused = Some(error.code());
                    break;
                }
            }
            assert_eq!(refused, Some(Code::ResultTooLarge));
            assert!(record(&fixture, "home", "n").is_none());
        },
    );
}

#[test]
fn records_go_where_they_are_sent_or_nowhere() {
    each_store(|fixture| {
        let refused = |connection: &str, stream: &str| {
            fixture
                .records
                .ingest(&fixture.owner, &target(connection, stream))
                .err()
                .unwrap()
                .code()
        };
        assert_eq!(
            refused("nowhere", "messages"),
            Code::ConnectorInstanceNotFound
        );
        assert_eq!(refused("home", "nothing"), Code::StreamNotDeclared);
        let paused = rung_records::ConnectionChange {
            status: Some("paused".into()),
            display_name: None,
        };
        fixture
            .records
            .update_connection(&fixture.owner, "home", &paused)
            .unwrap();
        assert_eq!(refused("home", "messages"), Code::ConnectorInstanceClosed);
        let client = fixture.client(&[select("messages", &[])], &["work"]);
        let code = fixture
            .records
            .ingest(&client, &target("work", "messages"))
            .err()
            .unwrap()
            .code();
        assert_eq!(code, Code::PermissionError);
    });
}

#[test]
fn strictness_is_a_choice() {
    each_store_with(
        || RecordsOptions {
            strict: true,
            ..RecordsOptions::default()
        },
        |fixture| {
            let done = fixture.ingest(
                "home",
                "messages",
                &[
                    json!({"key": "a", "data": {"id": "a", "size": 1}}),
                    json!({"key": "b", "data": {"id": "b", "size": "large"}}),
                    json!({"key": "c", "data": {"size": 1}}),
                ],
            );
            assert_eq!(done.records_accepted, 1);
            let mut grows = manifest();
            grows["streams"][1]["semantics"] = json!("append_only");
            fixture.records.register_source(grows).unwrap();
            let line = |title: &str| json!({"key": "t", "data": {"id": "t", "title": title}});
            let taken = fixture.ingest(
                "home",
                "threads",
                &[
                    line("a"),
                    line("a"),
                    line("b"),
                    json!({"key": "t", "op": "delete"}),
                    json!({"key": "u", "data": {"id": "u"}}),
                ],
            );
            assert_eq!((taken.records_accepted, taken.records_unchanged), (3, 1));
            let refused: Vec<u64> = taken.rejections.iter().map(|one| one.input_index).collect();
            assert_eq!(refused, [2, 3]);
            assert!(
                done.rejections[0].message.contains("size"),
                "{:?}",
                done.rejections
            );
        },
    );
}

#[test]
fn a_search_finds_records_just_ingested() {
    each_store(|fixture| {
        for n in 0..5 {
            fixture.put(
                "home",
                "messages",
                "m",
                json!({"id": "m", "body": format!("round {n} zebra{n}")}),
            );
            let query = |q: String| SearchQuery {
                q,
                limit: 5,
                ..SearchQuery::default()
            };
            let hits = |q: String| {
                fixture
                    .records
                    .search(&fixture.owner, &query(q))
                    .unwrap()
                    .hits
                    .len()
            };
            assert_eq!(hits(format!("zebra{n}")), 1);
            assert_eq!(hits("round".to_owned()), 1);
            if n > 0 {
                assert_eq!(
                    hits(format!("zebra{}", n - 1)),
                    0,
                    "what was there before is gone"
                );
            }
        }
    });
}
