use std::cell::Cell;

use rung_fault::{Code, Coded as _};
use rung_records::{
    AggregateQuery, Bearer, ChangesQuery, CountMode, ListQuery, Metric, RecordFilter,
    RecordsOptions, SchemaQuery, SearchQuery, SortOrder,
};
use serde_json::{Value, json};

use crate::support::*;

/// The source with another order, another index and other searched fields.
fn changed_manifest() -> Value {
    let mut body = manifest();
    let stream = &mut body["streams"][0];
    stream["cursor_field"] = json!("size");
    stream["schema"]["properties"]["mood"] = json!({"type": "string"});
    stream["query"]["search"]["lexical_fields"] = json!(["from"]);
    stream["query"]["aggregations"]["group_by"] = json!(["mood"]);
    body
}

fn count(
    fixture: &Fixture,
    bearer: &Bearer,
    field: &str,
    value: &str,
) -> Result<Option<i64>, Code> {
    let filters = vec![RecordFilter {
        field: field.into(),
        operator: None,
        value: value.into(),
    }];
    let query = ListQuery {
        filters,
        count: CountMode::Exact,
        choice: choice("home"),
        ..page("messages", 1)
    };
    fixture
        .records
        .list(bearer, &query)
        .map(|page| page.count)
        .map_err(|error| error.code())
}

#[test]
fn what_a_later_declaration_needs_is_built_beside_readers_and_writers() {
    each_store(|fixture| {
        let message = |n: usize, mood: &str| {
            json!({"id": format!("m{n}"), "from": format!("person {n}"), "body": "long ".repeat(if n == 3 { 9_000 } else { 1 }),
                   "size": 10_000 - n, "mood": mood, "sent_at": format!("2026-01-{:02}", 1 + n % 28)})
        };
        let lines: Vec<Value> = (0..1_500)
            .map(|n| json!({"key": format!("m{n}"), "data": message(n, "calm")}))
            .collect();
        fixture.ingest("home", "messages", &lines);
        fixture.delete("home", "messages", "m7");
        let since = |mark: &str| ChangesQuery {
            stream: "messages".into(),
            choice: choice("home"),
            since: mark.into(),
            limit: 5_000,
            ..ChangesQuery::default()
        };
        let mark = fixture
            .records
            .changes(&fixture.owner, &since("beginning"))
            .unwrap()
            .next_changes_since;
        fixture.records.register_source(changed_manifest()).unwrap();
        assert_eq!(
            count(&fixture, &fixture.owner, "mood", "calm"),
            Err(Code::IndexBuilding)
        );
        let schema = fixture
            .records
            .schema(&fixture.owner, &SchemaQuery::default())
            .unwrap();
        assert_eq!(
            schema["connectors"][0]["streams"][0]["field_capabilities"]["mood"]["exact_filter"]["reason"],
            "index_building"
        );
        let steps = Cell::new(0);
        let done = fixture.records.maintenance(&|progress| {
            // Concurrent writes: copied records change, others are deleted, and new ones are added.
            let n = steps.replace(steps.get() + 1);
            assert!(progress.done <= progress.total, "{progress:?}");
            if n < 3 {
                fixture.put("home", "messages", &format!("m{n}"), message(n, "angry"));
                fixture.delete("home", "messages", &format!("m{}", 1_400 + n));
                fixture.put("home", "messages", &format!("new{n}"), json!({"id": format!("new{n}"), "mood": "new", "size": n, "from": "stranger"}));
                assert_eq!(fixture.list(&fixture.owner, &page("messages", 100)).records.len(), 100);
            }
        }).unwrap();
        assert_eq!(done.built, 1);
        assert!(steps.get() > 3);
        assert_eq!(
            count(&fixture, &fixture.owner, "mood", "calm"),
            Ok(Some(1_500 - 1 - 3 - 3))
        );
        assert_eq!(
            count(&fixture, &fixture.owner, "mood", "angry"),
            Ok(Some(3))
        );
        assert_eq!(count(&fixture, &fixture.owner, "mood", "new"), Ok(Some(3)));
        assert_eq!(
            count(&fixture, &fixture.owner, "body", &"long ".repeat(9_000)),
            Ok(Some(1))
        );
        let all = fixture.list(
            &fixture.owner,
            &ListQuery {
                order: Some(SortOrder::Asc),
                count: CountMode::Exact,
                ..page("messages", 4)
            },
        );
        assert_eq!(ids(&all)[..3], ["new0", "new1", "new2"], "by the new order");
        assert_eq!(all.count, Some(1_499));
        let found = |q: &str| {
            fixture
                .records
                .search(
                    &fixture.owner,
                    &SearchQuery {
                        q: q.into(),
                        limit: 1,
                        ..SearchQuery::default()
                    },
                )
                .unwrap()
                .total
        };
        assert_eq!(
            (
                found("person"),
                found("stranger"),
                found("person 7"),
                found("long")
            ),
            (1_496, 3, 0, 0)
        );
        let groups = AggregateQuery {
            stream: "messages".into(),
            choice: choice("home"),
            metric: Metric::Count,
            field: None,
            group_by: Some("mood".into()),
            group_by_time: None,
            time_zone: None,
            limit: None,
            filters: vec![],
        };
        assert_eq!(
            fixture.records.aggregate(&fixture.owner, &groups).unwrap()["groups"][0],
            json!({"key": "calm", "count": 1_493})
        );
        // The change history is intact.
        let changes = fixture
            .records
            .changes(&fixture.owner, &since(&mark))
            .unwrap();
        assert_eq!(changes.records.len(), 9);
        assert_eq!(
            fixture.records.maintenance(&|_| ()).unwrap(),
            Default::default(),
            "and nothing is left to do"
        );
    });
}

#[test]
fn records_are_deleted_after_their_retention() {
    each_store(|fixture| {
        fixture.put("home", "messages", "old", json!({"id": "old", "sent_at": "2020-01-01", "body": format!("fossil {}", "x".repeat(40_000))}));
        fixture.put(
            "home",
            "messages",
            "new",
            json!({"id": "new", "sent_at": "2999-01-01", "body": "fresh"}),
        );
        fixture.put(
            "home",
            "messages",
            "timeless",
            json!({"id": "timeless", "body": "fresh"}),
        );
        assert_eq!(fixture.records.maintenance(&|_| ()).unwrap().expired, 0);
        fixture
            .records
            .set_retention(&fixture.owner, "home", "messages", Some(86_400))
            .unwrap();
        let done = fixture.records.maintenance(&|_| ()).unwrap();
        assert_eq!((done.expired, done.cleaned), (1, 1));
        let mut left = ids(&fixture.list(&fixture.owner, &page("messages", 10)));
        left.sort();
        assert_eq!(left, ["new", "timeless"]);
        let found = fixture
            .records
            .search(
                &fixture.owner,
                &SearchQuery {
                    q: "fossil".into(),
                    limit: 1,
                    ..SearchQuery::default()
                },
            )
            .unwrap();
        assert_eq!(found.total, 0);
        assert!(
            fixture
                .records
                .set_retention(&fixture.owner, "home", "nothing", None)
                .is_err()
        );
    });
}

#[test]
fn a_cursor_older_than_the_history_has_expired() {
    each_store_with(
        || RecordsOptions {
            history: 5,
            ..RecordsOptions::default()
        },
        |fixture| {
            fixture.put("home", "messages", "m", json!({"id": "m", "size": 0}));
            let since = |mark: &str| ChangesQuery {
                stream: "messages".into(),
                choice: choice("home"),
                since: mark.into(),
                limit: 10,
                ..ChangesQuery::default()
            };
            let old = fixture
                .records
                .changes(&fixture.owner, &since("beginning"))
                .unwrap()
                .next_changes_since;
            for n in 1..20 {
                fixture.put("home", "messages", "m", json!({"id": "m", "size": n}));
            }
            fixture.records.maintenance(&|_| ()).unwrap();
            assert_eq!(
                fixture
                    .records
                    .changes(&fixture.owner, &since(&old))
                    .unwrap_err()
                    .code(),
                Code::CursorExpired
            );
            let again = fixture
                .records
                .changes(&fixture.owner, &since("beginning"))
                .unwrap();
            assert_eq!(
                parsed(&again.records[0])["data"]["size"],
                19,
                "what holds is always there"
            );
        },
    );
}

#[test]
fn words_of_what_is_gone_leave_the_index() {
    each_store(|fixture| {
        for round in 0..3 {
            let lines: Vec<Value> = (0..600).map(|n| json!({"key": format!("m{n}"), "data": {"id": format!("m{n}"), "body": format!("common round{round} unique{n}x{round}")}})).collect();
            fixture.ingest("home", "messages", &lines);
        }
        let found = |q: &str| {
            fixture
                .records
                .search(
                    &fixture.owner,
                    &SearchQuery {
                        q: q.into(),
                        limit: 1,
                        ..SearchQuery::default()
                    },
                )
                .unwrap()
                .total
        };
        assert_eq!(
            (found("common"), found("round1"), found("round2")),
            (600, 0, 600)
        );
        assert_eq!(fixture.records.maintenance(&|_| ()).unwrap().cleaned, 1);
        assert_eq!(
            (
                found("common"),
                found("round1"),
                found("round2"),
                found("unique5x2"),
                found("unique5x1")
            ),
            (600, 0, 600, 1, 0)
        );
        assert_eq!(fixture.records.maintenance(&|_| ()).unwrap().cleaned, 0);
        fixture.put(
            "home",
            "messages",
            "m0",
            json!({"id": "m0", "body": "common again"}),
        );
        assert_eq!((found("common"), found("again")), (600, 1));
    });
}
