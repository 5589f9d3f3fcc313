use rung_fault::{Code, Coded as _};
use rung_records::{Aggregate, Bearer, Choice, Filter, Granularity, Metric};
use serde_json::{Value, json};

use crate::support::*;

fn query(metric: Metric) -> Aggregate {
    Aggregate {
        stream: "messages".to_owned(),
        choice: Choice::default(),
        metric,
        field: None,
        group_by: None,
        group_by_time: None,
        time_zone: None,
        limit: None,
        filters: Vec::new(),
    }
}

fn of(metric: Metric, field: &str) -> Aggregate {
    Aggregate {
        field: Some(field.to_owned()),
        ..query(metric)
    }
}

fn filled(fixture: &Fixture) {
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
        filled(&fixture);
        let ask =
            |bearer: &Bearer, query: &Aggregate| fixture.records.aggregate(bearer, query).unwrap();
        let owner = &fixture.owner;
        assert_eq!(ask(owner, &query(Metric::Count))["value"], 20);
        assert_eq!(ask(owner, &of(Metric::Sum, "size"))["value"], 190);
        let price = ask(owner, &of(Metric::Sum, "price"))["value"]
            .as_f64()
            .unwrap();
        assert!((price - 19.0).abs() < 1e-9, "{price}");
        assert_eq!(ask(owner, &of(Metric::Min, "size"))["value"], 0);
        assert_eq!(ask(owner, &of(Metric::Max, "size"))["value"], 19);
        assert_eq!(
            ask(owner, &of(Metric::Max, "sent_at"))["value"],
            "2026-03-20T23:30:00Z"
        );
        assert_eq!(
            ask(owner, &of(Metric::CountDistinct, "from"))["value"],
            4,
            "over the union, not by connection"
        );
        assert_eq!(ask(owner, &of(Metric::CountDistinct, "size"))["value"], 20);
        let by = Aggregate {
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
        let by = Aggregate {
            group_by: Some("from".into()),
            limit: Some(100),
            ..query(Metric::Count)
        };
        assert_eq!(
            ask(owner, &by)["groups"].as_array().unwrap().len(),
            5,
            "what has none is a group"
        );
        let home = Aggregate {
            choice: choice("home"),
            ..query(Metric::Count)
        };
        assert_eq!(ask(owner, &home)["value"], 12);
        let filters = vec![Filter {
            field: "size".into(),
            bound: Some("gte".into()),
            value: "10".into(),
        }];
        let some = Aggregate {
            filters,
            ..of(Metric::Sum, "size")
        };
        let answer = ask(owner, &some);
        assert_eq!(
            (&answer["value"], &answer["filtered_record_count"]),
            (&json!(145), &json!(10))
        );
        let filters = vec![Filter {
            field: "from".into(),
            bound: None,
            value: "nobody".into(),
        }];
        assert_eq!(
            ask(
                owner,
                &Aggregate {
                    filters,
                    ..of(Metric::Min, "size")
                }
            )["value"],
            Value::Null
        );
    });
}

#[test]
fn time_is_told_by_the_clocks_of_a_place() {
    each_store(|fixture| {
        filled(&fixture);
        let by = |granularity, zone: Option<&str>, limit, filters: Vec<Filter>| {
            let query = Aggregate {
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
        let few = vec![Filter {
            field: "size".into(),
            bound: Some("lt".into()),
            value: "4".into(),
        }];
        assert_eq!(
            by(Granularity::Day, None, 10, few)["groups"],
            json!([
            {"key": "2026-03-02", "count": 1}, {"key": "2026-03-03", "count": 1}, {"key": "2026-03-04", "count": 1}, {"key": null, "count": 1}])
        );
        let query = Aggregate {
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
        filled(&fixture);
        let client = fixture.client(&[select("messages", &["size"])], &["home"]);
        let refused = |bearer: &Bearer, query: &Aggregate| {
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
            refused(&client, &of(Metric::Sum, "price")),
            Code::FieldNotGranted
        );
        assert_eq!(
            refused(
                &client,
                &Aggregate {
                    group_by: Some("from".into()),
                    ..query(Metric::Count)
                }
            ),
            Code::FieldNotGranted
        );
        assert_eq!(
            refused(&fixture.owner, &of(Metric::Sum, "from")),
            Code::InvalidRequest
        );
        assert_eq!(
            refused(&fixture.owner, &of(Metric::Sum, "nope")),
            Code::UnknownField
        );
        assert_eq!(
            refused(&fixture.owner, &query(Metric::Sum)),
            Code::InvalidRequest
        );
        assert_eq!(
            refused(&fixture.owner, &of(Metric::Count, "size")),
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
        let by = Aggregate {
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
