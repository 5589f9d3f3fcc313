use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rung_fault::{Code, Coded as _};
use rung_records::{Bearer, ConnectionFilter, CountMode, ListQuery, RecordFilter, SortOrder};
use serde_json::{Value, json};

use crate::support::*;

/// Follows a list to its last page.
fn all_pages(fixture: &Fixture, bearer: &Bearer, mut query: ListQuery) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        let page = fixture.list(bearer, &query);
        assert!(page.records.len() <= query.limit);
        assert_eq!(page.has_more, page.next_cursor.is_some());
        found.extend(ids(&page));
        if page.next_cursor.is_none() {
            return found;
        }
        query.cursor = page.next_cursor;
    }
}

fn message(n: usize, sent_at: Option<&str>) -> Value {
    let mut data = json!({"id": format!("m{n}"), "from": format!("p{}", n % 3), "size": n, "unread": n.is_multiple_of(2)});
    if let Some(at) = sent_at {
        data["sent_at"] = json!(at);
    }
    data
}

#[test]
fn pages_are_in_order_and_what_has_no_time_comes_last() {
    each_store(|fixture| {
        let times = [
            Some("2026-01-02T00:00:00Z"),
            None,
            Some("2026-01-01T23:30:00-02:00"),
            Some(""),
            Some("2025-06-01"),
            Some("2026-01-02T00:00:00Z"),
        ];
        for (n, at) in times.iter().enumerate() {
            fixture.put("home", "messages", &format!("m{n}"), message(n, *at));
        }
        let up = ["m4", "m0", "m5", "m2", "m1", "m3"];
        for limit in 1..=7 {
            let query = ListQuery {
                order: Some(SortOrder::Asc),
                ..page("messages", limit)
            };
            assert_eq!(
                all_pages(&fixture, &fixture.owner, query),
                up,
                "limit {limit}"
            );
            let down: Vec<&str> = up.iter().rev().copied().collect();
            assert_eq!(
                all_pages(&fixture, &fixture.owner, page("messages", limit)),
                down,
                "limit {limit}"
            );
        }
    });
}

#[test]
fn several_connections_make_one_page() {
    each_store(|fixture| {
        for n in 0..30 {
            let at = format!("2026-01-{:02}T00:00:00Z", 1 + n / 2);
            let connection = if n % 2 == 0 { "home" } else { "work" };
            fixture.put(
                connection,
                "messages",
                &format!("m{}", n / 2),
                message(n / 2, Some(&at)),
            );
        }
        let page_one = fixture.list(
            &fixture.owner,
            &ListQuery {
                count: CountMode::Exact,
                ..page("messages", 7)
            },
        );
        assert_eq!(page_one.records.len(), 7);
        assert_eq!(page_one.count, Some(30));
        let mut seen = BTreeSet::new();
        let mut query = page("messages", 7);
        loop {
            let page = fixture.list(&fixture.owner, &query);
            for record in &page.records {
                let record = parsed(record);
                let place = (
                    record["id"].to_string(),
                    record["connection_id"].to_string(),
                );
                assert!(seen.insert(place), "{record} twice");
            }
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen.len(), 30);
    });
}

#[test]
fn filters_mean_what_they_say() {
    each_store(|fixture| {
        for n in 0..40 {
            let mut data = message(n, Some(&format!("2026-02-{:02}T12:00:00Z", 1 + n % 28)));
            data["price"] = json!(n as f64 / 4.0);
            data["body"] = json!(if n == 7 {
                "x".repeat(40_000)
            } else {
                format!("body {n}")
            });
            fixture.put("home", "messages", &format!("m{n}"), data);
        }
        let filter = |field: &str, bound: Option<&str>, value: &str| RecordFilter {
            field: field.to_owned(),
            operator: bound.map(str::to_owned),
            value: value.to_owned(),
        };
        let count = |filters: Vec<RecordFilter>| {
            let query = ListQuery {
                filters,
                count: CountMode::Exact,
                ..page("messages", 3)
            };
            let listed = all_pages(&fixture, &fixture.owner, query.clone());
            let counted = fixture.list(&fixture.owner, &query).count.unwrap();
            assert_eq!(listed.len() as i64, counted, "{query:?}");
            listed.len()
        };
        assert_eq!(count(vec![filter("from", None, "p1")]), 13);
        assert_eq!(count(vec![filter("id", None, "m5")]), 1);
        assert_eq!(count(vec![filter("id", None, "nobody")]), 0);
        assert_eq!(
            count(vec![
                filter("unread", None, "true"),
                filter("from", None, "p0")
            ]),
            7
        );
        assert_eq!(count(vec![filter("size", Some("gte"), "30")]), 10);
        assert_eq!(
            count(vec![
                filter("size", Some("gte"), "10"),
                filter("size", Some("lt"), "20.0")
            ]),
            10
        );
        assert_eq!(count(vec![filter("price", Some("gt"), "5")]), 19);
        assert_eq!(count(vec![filter("price", Some("lte"), "5.00")]), 21);
        assert_eq!(count(vec![filter("price", None, "2.50")]), 1);
        assert_eq!(count(vec![filter("sent_at", Some("lt"), "2026-02-03")]), 4);
        assert_eq!(
            count(vec![filter("sent_at", None, "2026-02-01T13:00:00+01:00")]),
            2
        );
        assert_eq!(
            count(vec![
                filter("sent_at", Some("gte"), "2026-02-27"),
                filter("from", None, "p2")
            ]),
            1
        );
        assert_eq!(count(vec![filter("body", None, "body 3")]), 1);
        assert_eq!(count(vec![filter("body", None, &"x".repeat(40_000))]), 1);
        for odd in [
            "' OR 1=1 --",
            "%",
            "$.a",
            "\\",
            "\"",
            "\u{0}",
            "'; DROP TABLE record; --",
        ] {
            assert_eq!(count(vec![filter("from", None, odd)]), 0);
        }
        let refused = |filters: Vec<RecordFilter>| {
            let query = ListQuery {
                filters,
                ..page("messages", 3)
            };
            fixture
                .records
                .list(&fixture.owner, &query)
                .unwrap_err()
                .code()
        };
        assert_eq!(refused(vec![filter("nope", None, "1")]), Code::UnknownField);
        assert_eq!(
            refused(vec![filter("labels", None, "1")]),
            Code::InvalidRequest
        );
        assert_eq!(
            refused(vec![filter("from", Some("gte"), "1")]),
            Code::InvalidRequest
        );
        assert_eq!(
            refused(vec![filter("size", Some("gt"), "1")]),
            Code::InvalidRequest,
            "not declared"
        );
        assert_eq!(
            refused(vec![filter("size", None, "1e999")]),
            Code::InvalidRequest
        );
        assert_eq!(
            refused(vec![filter("sent_at", Some("gte"), "yesterday")]),
            Code::InvalidRequest
        );
        assert_eq!(
            refused(vec![filter("from", None, "x"); 10_000]),
            Code::InvalidRequest
        );
    });
}

#[test]
fn a_cursor_is_bound_to_its_request() {
    each_store(|fixture| {
        for n in 0..9 {
            fixture.put(
                "home",
                "messages",
                &format!("m{n}"),
                message(n, Some("2026-01-01")),
            );
        }
        let cursor = fixture
            .list(&fixture.owner, &page("messages", 2))
            .next_cursor
            .unwrap();
        let asked = |bearer: &Bearer, query: ListQuery| {
            fixture
                .records
                .list(bearer, &query)
                .map(drop)
                .map_err(|error| error.code())
        };
        let query = ListQuery {
            cursor: Some(cursor.clone()),
            ..page("messages", 5)
        };
        assert_eq!(
            asked(&fixture.owner, query.clone()),
            Ok(()),
            "more at once is the same question"
        );
        let up = ListQuery {
            order: Some(SortOrder::Asc),
            ..query.clone()
        };
        assert_eq!(asked(&fixture.owner, up), Err(Code::InvalidCursor));
        let narrowed = ListQuery {
            choice: choice("home"),
            ..query.clone()
        };
        assert_eq!(asked(&fixture.owner, narrowed), Err(Code::InvalidCursor));
        let client = fixture.client(&[select("messages", &[])], &[]);
        assert_eq!(asked(&client, query.clone()), Err(Code::InvalidCursor));
        for forged in [
            "",
            "x",
            "AAAA",
            &cursor[1..],
            &format!("{cursor}A"),
            "\u{1F980}",
        ] {
            let forged = ListQuery {
                cursor: Some(forged.to_owned()),
                ..query.clone()
            };
            assert_eq!(asked(&fixture.owner, forged), Err(Code::InvalidCursor));
        }
    });
}

#[test]
fn related_records_are_read_along() {
    each_store(|fixture| {
        fixture.put("home", "threads", "t1", json!({"id": "t1", "title": "One"}));
        fixture.put("home", "threads", "t2", json!({"id": "t2"}));
        for n in 0..4 {
            let mut data = message(n, Some(&format!("2026-01-{:02}", 9 - n)));
            data["thread_id"] = json!("t1");
            fixture.put("home", "messages", &format!("m{n}"), data);
        }
        // Expansion stays within the connection.
        fixture.put(
            "work",
            "messages",
            "m9",
            json!({"id": "m9", "thread_id": "t1"}),
        );
        fixture.ingest("home", "notes", &[json!({"key": ["a", "1"], "data": {"book": "a", "page": 1, "thread_id": "t1", "text": "hi"}})]);
        let mut query = page("threads", 10);
        query.choice = choice("home");
        query.order = Some(SortOrder::Asc);
        query.expand.names = vec!["messages".to_owned(), "note".to_owned()];
        let found: Vec<Value> = fixture
            .list(&fixture.owner, &query)
            .records
            .iter()
            .map(|raw| parsed(raw))
            .collect();
        let messages = &found[0]["expanded"]["messages"];
        assert_eq!(messages["data"][0]["id"], "m3");
        assert_eq!(messages["data"].as_array().unwrap().len(), 2);
        assert_eq!(messages["has_more"], true);
        assert_eq!(found[0]["expanded"]["note"]["id"], "[\"a\",\"1\"]");
        assert_eq!(found[1]["expanded"]["messages"]["data"], json!([]));
        assert_eq!(found[1]["expanded"]["note"], Value::Null);
        let refused = |change: &dyn Fn(&mut ListQuery)| {
            let mut query = query.clone();
            change(&mut query);
            fixture
                .records
                .list(&fixture.owner, &query)
                .unwrap_err()
                .code()
        };
        assert_eq!(
            refused(&|query| query.expand.names = vec!["nope".into()]),
            Code::InvalidExpand
        );
        assert_eq!(
            refused(&|query| query.expand.names = vec!["messages.thread".into()]),
            Code::InvalidExpand
        );
        assert_eq!(
            refused(&|query| query.expand.limits = vec![("messages".into(), 6)]),
            Code::InvalidExpand
        );
        assert_eq!(
            refused(&|query| query.expand.limits = vec![("messages".into(), 0)]),
            Code::InvalidExpand
        );
        assert_eq!(
            refused(&|query| query.expand.limits = vec![("note".into(), 1)]),
            Code::InvalidExpand
        );
        assert_eq!(
            refused(&|query| query.expand.limits = vec![("other".into(), 1)]),
            Code::InvalidExpand
        );
    });
}

/// A random change to a stream.
#[derive(Debug, Clone)]
enum RandomChange {
    Put(usize, usize),
    Delete(usize),
}

fn random_change() -> impl Strategy<Value = RandomChange> {
    prop_oneof![
        4 => (0usize..25, 0usize..12).prop_map(|(key, day)| RandomChange::Put(key, day)),
        1 => (0usize..25).prop_map(RandomChange::Delete),
    ]
}

#[test]
fn pages_of_one_snapshot_have_no_gap_and_no_duplicate_under_concurrent_writes() {
    each_store(|fixture| {
        let apply = |step: &RandomChange| match step {
            RandomChange::Put(key, day) => {
                // Day 11 means none: a record without a time sorts last.
                let at = (*day < 11).then(|| format!("2026-01-{:02}T00:00:00Z", day + 1));
                fixture.put(
                    "home",
                    "messages",
                    &format!("m{key}"),
                    message(*key, at.as_deref()),
                );
            }
            RandomChange::Delete(key) => fixture.delete("home", "messages", &format!("m{key}")),
        };
        let cases = if std::env::var_os("PROPTEST_CASES").is_some() {
            60
        } else {
            12
        };
        let mut runner = TestRunner::new(Config {
            cases,
            ..Config::default()
        });
        let plan = (
            prop::collection::vec(random_change(), 5..30),
            prop::collection::vec(random_change(), 1..20),
            1usize..6,
            any::<bool>(),
            any::<bool>(),
        );
        let checked = runner.run(&plan, |(before, meanwhile, limit, up, filtered)| {
            for step in &before {
                apply(step);
            }
            let mut query = page("messages", limit);
            query.order = Some(if up { SortOrder::Asc } else { SortOrder::Desc });
            query.choice = ConnectionFilter::default();
            if filtered {
                query.filters = vec![RecordFilter {
                    field: "from".into(),
                    operator: None,
                    value: "p1".into(),
                }];
            }
            let expected = all_pages(
                &fixture,
                &fixture.owner,
                ListQuery {
                    limit: 100,
                    ..query.clone()
                },
            );
            let mut found = Vec::new();
            let mut meanwhile = meanwhile.iter();
            let mut deleted = Vec::new();
            loop {
                let page = fixture.list(&fixture.owner, &query);
                found.extend(ids(&page));
                query.cursor = page.next_cursor;
                if query.cursor.is_none() {
                    break;
                }
                for step in meanwhile.by_ref().take(3) {
                    if let RandomChange::Delete(key) = step {
                        deleted.push(*key);
                    }
                    apply(step);
                }
            }
            // Records deleted meanwhile are omitted; all others appear once, in order.
            let gone: Vec<String> = deleted.into_iter().map(|key| format!("m{key}")).collect();
            let mut left = expected.iter();
            for id in &found {
                let skipped: Vec<&String> = left.by_ref().take_while(|own| *own != id).collect();
                prop_assert!(
                    skipped.iter().all(|own| gone.contains(own)),
                    "{:?} of {:?}",
                    skipped,
                    expected
                );
            }
            prop_assert!(
                left.all(|own| gone.contains(own)),
                "{:?} of {:?}",
                found,
                expected
            );
            Ok(())
        });
        checked.unwrap();
    });
}

#[test]
fn what_is_deleted_is_not_read_by_an_old_cursor() {
    each_store(|fixture| {
        for n in 0..4 {
            fixture.put(
                "home",
                "messages",
                &format!("m{n}"),
                message(n, Some(&format!("2026-01-0{}", n + 1))),
            );
        }
        let first = fixture.list(&fixture.owner, &page("messages", 1));
        fixture.delete("home", "messages", "m1");
        let rest = ListQuery {
            cursor: first.next_cursor,
            ..page("messages", 9)
        };
        assert_eq!(ids(&fixture.list(&fixture.owner, &rest)), ["m2", "m0"]);
    });
}

#[test]
fn an_empty_text_is_a_value_and_has_no_place() {
    each_store(|fixture| {
        let mut by_text = manifest();
        by_text["streams"][1]["cursor_field"] = json!("title");
        by_text["streams"][1]["query"]["range_filters"] = json!({"title": ["lte", "gte"]});
        fixture.records.register_source(by_text).unwrap();
        for (id, title) in [("a", ""), ("b", "r1"), ("c", "r2"), ("d", "r3")] {
            fixture.put("home", "threads", id, json!({"id": id, "title": title}));
        }
        let asked = |bound: &str, value: &str| {
            let filters = vec![RecordFilter {
                field: "title".into(),
                operator: Some(bound.into()),
                value: value.into(),
            }];
            let page = fixture.list(
                &fixture.owner,
                &ListQuery {
                    filters,
                    count: CountMode::Exact,
                    ..page("threads", 9)
                },
            );
            assert_eq!(page.count, Some(page.records.len() as i64));
            page.records.len()
        };
        assert_eq!(
            (asked("lte", "r2"), asked("gte", "r2"), asked("gte", "")),
            (3, 2, 4)
        );
    });
}

#[test]
fn an_object_of_many_members_is_read_in_time() {
    each_store(|fixture| {
        let mut data = json!({"id": "m"});
        for n in 0..60_000 {
            data[format!("field{n}")] = json!(n);
        }
        fixture.put("home", "messages", "m", data);
        let query = ListQuery {
            fields: Some(vec!["id".into()]),
            ..page("messages", 1)
        };
        assert_eq!(
            parsed(&fixture.list(&fixture.owner, &query).records[0])["data"],
            json!({"id": "m"})
        );
    });
}
