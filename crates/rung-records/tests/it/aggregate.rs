use rung_fault::{Code, Coded as _};
use rung_records::{AggregateQuery, Bearer, ConnectionFilter, Granularity, Metric, RecordFilter};
use serde_json::{Value, json};

use crate::support::*;

fn query(metric: Metric) -> AggregateQuery {
    AggregateQuery {
        stream: "messages".to_owned(),
        choice: ConnectionFilter::default(),
        metric,
        field: None,
        group_by: None,
        group_by_time: None,
        time_zone: None,
        limit: None,
        filters: Vec::new(),
    }
}

fn field_query(metric: Metric, field: &str) -> AggregateQuery {
    AggregateQuery {
        field: Some(field.to_owned()),
        ..query(metric)
    }
}

fn fill_messages(fixture: &Fixture) {
    for n in 0..20i64 {
        let connection = if n < 12 { "home" } else { "work" };
        let mut data = json!({"id": format!("m{n}"), "from": format!("p{}", n % 4), "size": n, "price": n as f64 * 0.1,
            "sent_at": format!("2026-03-{:02}T23:30:00Z", 1 + n)});
        if n % 5 == 0 {
            data.as_object_mut().unwrap().remove("from");
            data["sent_at"] = Value::Null;
        }
        fixture.put(connection, "messages", &format!("m{n}"), data);
    }
}

#[test]
fn all_connections_count_as_one() {
    each_store(|fixture| {
        fill_messages(&fixture);
        let ask = |bearer: &Bearer, query: &AggregateQuery| {
            fixture.records.aggregate(bearer, query).unwrap()
        };
        let owner = &fixture.owner;
        assert_eq!(ask(owner, &query(Metric::Count))["value"], 20);
        assert_eq!(ask(owner, &field_query(Metric::Sum, "size"))["value"], 190);
        let price = ask(owner, &field_query(Metric::Sum, "price"))["value"]
            .as_f64()
            .unwrap();
        assert!((price - 19.0).abs() < 1e-9, "{price}");
        assert_eq!(ask(owner, &field_query(Metric::Min, "size"))["value"], 0);
        assert_eq!(ask(owner, &field_query(Metric::Max, "size"))["value"], 19);
        assert_eq!(
            ask(owner, &field_query(Metric::Max, "sent_at"))["value"],
            "2026-03-20T23:30:00Z"
        );
        assert_eq!(
            ask(owner, &field_query(Metric::CountDistinct, "from"))["value"],
            4,
            "over the union, not by connection"
        );
        assert_eq!(
            ask(owner, &field_query(Metric::CountDistinct, "size"))["value"],
            20
        );
        let by = AggregateQuery {
            group_by: Some("from".into()),
            limit: Some(2),
            ..query(Metric::Count)
        };
        let answer = ask(owner, &by);
        assert_eq!(
            answer["groups"],
            json!([{"key": "p0", "count": 4}, {"key": "p1", "count": 4}])
        );
        assert_eq!(answer["other_count"], 12);
        let by = AggregateQuery {
            group_by: Some("from".into()),
            limit: Some(100),
            ..query(Metric::Count)
        };
        assert_eq!(
            ask(owner, &by)["groups"].as_array().unwrap().len(),
            5,
            "what has none is a group"
        );
        let home = AggregateQuery {
            choice: choice("home"),
            ..query(Metric::Count)
        };
        assert_eq!(ask(owner, &home)["value"], 12);
        let filters = vec![RecordFilter {
            field: "size".into(),
            operator: Some("gte".into()),
            value: "10".into(),
        }];
        let some = AggregateQuery {
            filters,
            ..field_query(Metric::Sum, "size")
        };
        let answer = ask(owner, &some);
        assert_eq!(
            (&answer["value"], &answer["filtered_record_count"]),
            (&json!(145), &json!(10))
        );
        let filters = vec![RecordFilter {
            field: "from".into(),
            operator: None,
            value: "nobody".into(),
        }];
        assert_eq!(
            ask(
                owner,
                &AggregateQuery {
                    filters,
                    ..field_query(Metric::Min, "size")
                }
            )["value"],
            Value::Null
        );
    });
}

#[test]
fn time_buckets_follow_the_time_zone() {
    each_store(|fixture| {
        fill_messages(&fixture);
        let by = |granularity, zone: Option<&str>, limit, filters: Vec<RecordFilter>| {
            let query = AggregateQuery {
                group_by_time: Some(("sent_at".into(), granularity)),
                time_zone: zone.map(str::to_owned),
                limit: Some(limit),
                filters,
                ..query(Metric::Count)
            };
            fixture.records.aggregate(&fixture.owner, &query).unwrap()
        };
        let months = by(Granularity::Month, None, 10, vec![]);
        assert_eq!(
            months["groups"],
            json!([{"key": "2026-03-01", "count": 16}, {"key": null, "count": 4}])
        );
        let days = by(Granularity::Day, Some("Europe/Berlin"), 3, vec![]);
        assert_eq!(
            days["groups"][0],
            json!({"key": "2026-03-03", "count": 1}),
            "half past eleven is tomorrow there"
        );
        assert_eq!(days["other_count"], 17);
        let weeks = by(Granularity::Week, None, 10, vec![]);
        assert_eq!(
            weeks["groups"][0],
            json!({"key": "2026-03-02", "count": 6}),
            "weeks begin on Monday"
        );
        assert_eq!(
            by(Granularity::Quarter, None, 10, vec![])["groups"][0]["key"],
            "2026-01-01"
        );
        assert_eq!(
            by(Granularity::Hour, None, 10, vec![])["groups"][0]["key"],
            "2026-03-02T23:00"
        );
        assert_eq!(
            by(Granularity::Minute, Some("Asia/Kathmandu"), 10, vec![])["groups"][0]["key"],
            "2026-03-03T05:15"
        );
        let few = vec![RecordFilter {
            field: "size".into(),
            operator: Some("lt".into()),
            value: "4".into(),
        }];
        assert_eq!(
            by(Granularity::Day, None, 10, few)["groups"],
            json!([
            {"key": "2026-03-02", "count": 1}, {"key": "2026-03-03", "count": 1}, {"key": "2026-03-04", "count": 1}, {"key": null, "count": 1}])
        );
        let query = AggregateQuery {
            group_by_time: Some(("sent_at".into(), Granularity::Day)),
            time_zone: Some("Mars/Olympus".into()),
            ..query(Metric::Count)
        };
        assert_eq!(
            fixture
                .records
                .aggregate(&fixture.owner, &query)
                .unwrap_err()
                .code(),
            Code::InvalidRequest
        );
    });
}

#[test]
fn only_what_is_declared_and_granted_is_counted() {
    each_store(|fixture| {
        fill_messages(&fixture);
        let client = fixture.client(&[select("messages", &["size"])], &["home"]);
        let refused = |bearer: &Bearer, query: &AggregateQuery| {
            fixture.records.aggregate(bearer, query).unwrap_err().code()
        };
        assert_eq!(
            fixture
                .records
                .aggregate(&client, &query(Metric::Count))
                .unwrap()["value"],
            12
        );
        assert_eq!(
            refused(&client, &field_query(Metric::Sum, "price")),
            Code::FieldNotGranted
        );
        assert_eq!(
            refused(
                &client,
                &AggregateQuery {
                    group_by: Some("from".into()),
                    ..query(Metric::Count)
                }
            ),
            Code::FieldNotGranted
        );
        assert_eq!(
            refused(&fixture.owner, &field_query(Metric::Sum, "from")),
            Code::InvalidRequest
        );
        assert_eq!(
            refused(&fixture.owner, &field_query(Metric::Sum, "nope")),
            Code::UnknownField
        );
        assert_eq!(
            refused(&fixture.owner, &query(Metric::Sum)),
            Code::InvalidRequest
        );
        assert_eq!(
            refused(&fixture.owner, &field_query(Metric::Count, "size")),
            Code::InvalidRequest
        );
    });
}

#[test]
fn long_texts_are_groups_of_their_own() {
    each_store(|fixture| {
        for (id, from) in [
            ("a", "x".repeat(300)),
            ("b", format!("y{}", "z".repeat(20_000))),
            ("c", format!("y{}", "q".repeat(20_000))),
        ] {
            fixture.put("home", "messages", id, json!({"id": id, "from": from}));
        }
        let by = AggregateQuery {
            group_by: Some("from".into()),
            ..query(Metric::Count)
        };
        let groups = fixture.records.aggregate(&fixture.owner, &by).unwrap()["groups"].clone();
        let sizes: Vec<usize> = groups
            .as_array()
            .unwrap()
            .iter()
            .map(|group| group["key"].as_str().unwrap().len())
            .collect();
        assert_eq!(sizes, [300, 20_001, 20_001]);
    });
}

/// A source with a date field and a time field.
fn diary_manifest() -> Value {
    let times = ["day", "at"];
    json!({
        "protocol_version": "0.1.0", "connector_id": "diary", "version": "1.0.0", "display_name": "Diary",
        "manifest_uri": "https://registry.pdpp.dev/connectors/diary",
        "streams": [{
            "name": "entries", "primary_key": ["id"], "cursor_field": "day", "consent_time_field": "day",
            "selection": {"fields": true},
            "schema": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"},
                "day": {"type": "string", "format": "date"}, "at": {"type": "string", "format": "date-time"}}},
            "query": {
                "range_filters": {"day": ["gte", "gt", "lte", "lt"], "at": ["gte", "lt"]},
                "aggregations": {"count": true, "min": times, "max": times, "group_by_time": times}}
        }]
    })
}

fn fill_diary(fixture: &Fixture, entries: &[(&str, &str)]) {
    fixture.records.register_source(diary_manifest()).unwrap();
    let owner = &fixture.owner;
    fixture
        .records
        .put_connection(owner, "book", "diary", None)
        .unwrap();
    let target = rung_records::StreamTarget {
        connector_id: "diary".to_owned(),
        connection_id: Some("book".to_owned()),
        stream: "entries".to_owned(),
    };
    let mut ingest = fixture.records.ingest(owner, &target).unwrap();
    for (n, (day, at)) in entries.iter().enumerate() {
        let id = format!("e{n}");
        let line = json!({"key": id, "data": {"id": id, "day": day, "at": at}});
        ingest.push(format!("{line}\n").as_bytes()).unwrap();
    }
    assert_eq!(ingest.finish().unwrap().records_rejected, 0);
}

fn by_time(
    fixture: &Fixture,
    field: &str,
    granularity: Granularity,
    zone: &str,
    filters: &[RecordFilter],
) -> Vec<(String, i64)> {
    let asked = AggregateQuery {
        stream: "entries".to_owned(),
        choice: choice("book"),
        group_by_time: Some((field.to_owned(), granularity)),
        time_zone: Some(zone.to_owned()),
        limit: Some(100),
        filters: filters.to_vec(),
        ..query(Metric::Count)
    };
    let told = fixture.records.aggregate(&fixture.owner, &asked).unwrap();
    let group = |group: &Value| {
        let key = group["key"].as_str().unwrap_or("null").to_owned();
        (key, group["count"].as_i64().unwrap())
    };
    told["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(group)
        .collect()
}

fn range(field: &str, bound: &str, value: &str) -> RecordFilter {
    RecordFilter {
        field: field.to_owned(),
        operator: Some(bound.to_owned()),
        value: value.to_owned(),
    }
}

#[test]
fn a_field_of_days_is_grouped_by_its_own_day_in_every_zone() {
    each_store(|fixture| {
        let at = "2026-03-01T01:00:00Z";
        fill_diary(
            &fixture,
            &[("2026-03-01", at), ("2026-03-01", at), ("2026-03-02", at)],
        );
        // With a filter, groups are computed by another query.
        let all = [range("day", "gte", "2000-01-01")];
        for zone in ["UTC", "America/New_York", "Pacific/Kiritimati"] {
            for filters in [&[][..], &all] {
                let days = by_time(&fixture, "day", Granularity::Day, zone, filters);
                let own = [("2026-03-01".to_owned(), 2), ("2026-03-02".to_owned(), 1)];
                assert_eq!(days, own, "{zone}");
                let months = by_time(&fixture, "day", Granularity::Month, zone, filters);
                assert_eq!(months, [("2026-03-01".to_owned(), 3)], "{zone}");
                let weeks = by_time(&fixture, "day", Granularity::Week, zone, filters);
                let own = [("2026-02-23".to_owned(), 2), ("2026-03-02".to_owned(), 1)];
                assert_eq!(weeks, own, "{zone}");
            }
        }
        // A time falls into the day of the requested zone.
        let days = by_time(&fixture, "at", Granularity::Day, "America/New_York", &[]);
        assert_eq!(days, [("2026-02-28".to_owned(), 3)]);
    });
}

#[test]
fn the_last_and_the_first_day_are_days() {
    each_store(|fixture| {
        let last = [
            "9999-12-31T23:59:59.999999999Z",
            "9999-12-31T23:59:59-12:00",
            "9999-12-31",
        ];
        let first = ["-009999-01-01T00:00:00Z", "-009999-01-01T00:00:00+12:00"];
        let mut entries = vec![
            ("9999-12-30", "9999-12-30T23:00:00Z"),
            ("2026-01-01", "2026-01-01T00:00:00Z"),
        ];
        entries.extend(last.map(|at| ("9999-12-31", at)));
        entries.extend(first.map(|at| ("-009999-01-01", at)));
        fill_diary(&fixture, &entries);
        for zone in ["UTC", "Pacific/Kiritimati", "America/New_York"] {
            for filters in [vec![], vec![range("day", "lte", "9999-12-31")]] {
                let days = by_time(&fixture, "day", Granularity::Day, zone, &filters);
                let own = [
                    ("-009999-01-01", 2),
                    ("2026-01-01", 1),
                    ("9999-12-30", 1),
                    ("9999-12-31", 3),
                ];
                let own: Vec<_> = own.iter().map(|(day, n)| ((*day).to_owned(), *n)).collect();
                assert_eq!(days, own, "{zone}");
                let years = by_time(&fixture, "at", Granularity::Year, zone, &filters);
                let counted: i64 = years.iter().map(|(_, count)| count).sum();
                assert_eq!(counted, 7, "{zone}: {years:?}");
                assert!(
                    years.iter().all(|(year, _)| year != "null"),
                    "{zone}: {years:?}"
                );
            }
        }
        let days = by_time(&fixture, "at", Granularity::Day, "UTC", &[]);
        assert_eq!(days.last().unwrap(), &("9999-12-31".to_owned(), 3));
        let count = |filters: &[RecordFilter]| {
            let asked = AggregateQuery {
                stream: "entries".to_owned(),
                choice: choice("book"),
                filters: filters.to_vec(),
                ..query(Metric::Count)
            };
            fixture.records.aggregate(&fixture.owner, &asked).unwrap()["value"].clone()
        };
        assert_eq!(count(&[range("day", "gte", "9999-12-31")]), 3);
        assert_eq!(count(&[range("day", "lt", "9999-12-31")]), 4);
        assert_eq!(count(&[range("at", "gte", "9999-12-31T23:59:59Z")]), 2);
        let equal = RecordFilter {
            operator: None,
            ..range("day", "", "9999-12-31")
        };
        assert_eq!(count(&[equal]), 3);
        let max = AggregateQuery {
            stream: "entries".to_owned(),
            choice: choice("book"),
            ..field_query(Metric::Max, "day")
        };
        let max = fixture.records.aggregate(&fixture.owner, &max).unwrap();
        assert_eq!(max["value"], "9999-12-31");
        // A grant that expires on the last day and covers the data before it.
        let until = rung_records::grant::StreamSelection {
            until: Some("9999-12-31".to_owned()),
            ..select("entries", &["day"])
        };
        let request = rung_records::GrantRequest {
            client: "agent".to_owned(),
            source: "diary".to_owned(),
            selections: vec![until],
            expires_ms: Some(253_402_214_400_000),
            ..rung_records::GrantRequest::default()
        };
        let (grant, token) = fixture
            .records
            .issue_grant(&fixture.owner, &request)
            .unwrap();
        assert_eq!(grant.expires_at.as_deref(), Some("9999-12-31T00:00:00Z"));
        let agent = fixture.records.authenticate(token.expose()).unwrap();
        let read = fixture.list(&agent, &page("entries", 10));
        assert_eq!(read.records.len(), 4);
    });
}
