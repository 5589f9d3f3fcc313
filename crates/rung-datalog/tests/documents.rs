//! Documents: the index always agrees with the documents, and a search that takes too long is stopped.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::*;
use rung_datalog::{Bounds, Db, DbOptions, Error};
use rung_edn::{Value, read};
use tempfile::TempDir;

fn database() -> (TempDir, Db) {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    let schema = "{:doc {:db/valueType :db.type/idoc}
                   :docs {:db/valueType :db.type/idoc :db/cardinality :db.cardinality/many}
                   :page {:db/valueType :db.type/idoc :db/idocFormat :markdown}}";
    db.update_schema(&read(schema).unwrap()).unwrap();
    (folder, db)
}

fn find_documents(db: &Db, attribute: &str, condition: &str) -> BTreeSet<Vec<Value>> {
    let query =
        format!("[:find ?e ?v :in $ ?q :where [(idoc-match $ {attribute} ?q) [[?e _ ?v]]]]");
    let inputs = [read(condition).unwrap()];
    let answer = db.query(&read(&query).unwrap(), &inputs, &Bounds::default());
    answer.unwrap().rows.into_iter().collect()
}

/// Generates small documents, so that they have much in common.
fn document() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (0..4_i64).prop_map(|number| number.to_string()),
        (0..3_i64).prop_map(|number| format!("{number}.5")),
        prop::sample::select(&["\"x\"", "\"y\"", ":k", "nil", "true"][..]).prop_map(String::from),
    ];
    let value = leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|items| format!("[{}]", items.join(" "))),
            prop::collection::btree_map(
                prop_oneof![Just(":a"), Just(":b"), Just("\"a\"")],
                inner,
                0..3
            )
            .prop_map(|members| format_map(members.into_iter())),
        ]
    });
    prop::collection::btree_map(
        prop_oneof![Just(":a"), Just(":b"), Just("\"a\"")],
        value,
        0..3,
    )
    .prop_map(|members| format_map(members.into_iter()))
}

fn format_map<'m>(members: impl Iterator<Item = (&'m str, String)>) -> String {
    let members: Vec<String> = members
        .map(|(key, value)| format!("{key} {value}"))
        .collect();
    format!("{{{}}}", members.join(" "))
}

fn condition() -> impl Strategy<Value = String> {
    const LEAVES: [&str; 11] = [
        "1",
        "2",
        "1.5",
        "\"x\"",
        ":k",
        "true",
        "(nil?)",
        "(> 1)",
        "(<= 2)",
        "(< 0.5)",
        "(>= \"x\")",
    ];
    let leaf = prop::sample::select(&LEAVES[..]).prop_map(String::from);
    let below = leaf.prop_recursive(3, 10, 2, |inner| {
        let key = prop_oneof![
            Just(":a"),
            Just(":b"),
            Just("\"a\""),
            Just(":?"),
            Just(":*"),
            Just("0")
        ];
        prop_oneof![
            prop::collection::btree_map(key, inner.clone(), 0..3)
                .prop_map(|members| format_map(members.into_iter())),
            prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|all| format!("[:and {}]", all.join(" "))),
            prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|all| format!("[:or {}]", all.join(" "))),
            inner.prop_map(|one| format!("[:not {one}]")),
        ]
    });
    let key = prop_oneof![
        Just(":a"),
        Just(":b"),
        Just("\"a\""),
        Just(":?"),
        Just(":*")
    ];
    prop::collection::btree_map(key, below, 1..3)
        .prop_map(|members| format_map(members.into_iter()))
}

#[derive(Debug, Clone)]
enum Change {
    Put(u64, String),
    Retract(u64, usize),
    Patch(u64, String),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (1..4_u64, document()).prop_map(|(e, document)| Change::Put(e, document)),
        (1..4_u64, 0..3_usize).prop_map(|(e, at)| Change::Retract(e, at)),
        (1..4_u64, document()).prop_map(|(e, value)| Change::Patch(e, value)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A double negation gives the same result: negated conditions scan every document, all others use the index.
    #[test]
    fn what_is_looked_up_is_what_is_there(changes in prop::collection::vec(change(), 1..12), conditions in prop::collection::vec(condition(), 1..8)) {
        let (_folder, db) = database();
        for change in changes {
            let data = match change {
                Change::Put(e, document) => format!("[[:db/add {e} :doc {document}] [:db/add {e} :docs {document}]]"),
                Change::Retract(e, at) => {
                    let query = format!("[:find [?v ...] :where [{e} :docs ?v]]");
                    let docs = db.query(&read(&query).unwrap(), &[], &Bounds::default()).unwrap();
                    match docs.rows.get(at) {
                        Some(row) => format!("[[:db/retract {e} :docs {}]]", row[0]),
                        None => format!("[[:db.fn/retractAttribute {e} :doc]]"),
                    }
                }
                Change::Patch(e, value) => format!("[[:db.fn/patchIdoc {e} :doc [[:set [:b] {value}] [:unset \"a\"]]]]"),
            };
            db.transact(&read(&data).unwrap()).unwrap();
        }
        for condition in conditions {
            for attribute in [":doc", ":docs"] {
                let by_index = find_documents(&db, attribute, &condition);
                let by_looking = find_documents(&db, attribute, &format!("[:not [:not {condition}]]"));
                prop_assert_eq!(by_index, by_looking, "{} {}", attribute, condition);
            }
        }
    }
}

#[test]
fn whoever_looks_too_long_is_stopped() {
    let (_folder, db) = database();
    let depth = 120;
    let document = format!("{}1{}", "{:a ".repeat(depth), "}".repeat(depth));
    let data = format!("[[:db/add 1 :doc {document}]]");
    db.transact(&read(&data).unwrap()).unwrap();
    let condition = format!("{}2{}", "{:* {:a ".repeat(20), "}}".repeat(20));
    let query = format!("[:find ?e :where [(idoc-match $ :doc {condition}) [[?e]]]]");
    let bounds = Bounds {
        max_ms: Some(100),
        ..Bounds::default()
    };
    let answer = db.query(&read(&query).unwrap(), &[], &bounds);
    assert!(matches!(answer, Err(Error::Timeout { .. })), "{answer:?}");
}

#[test]
fn long_values_and_paths_are_found() {
    let (_folder, db) = database();
    let (long, key) = ("x".repeat(3_000), "k".repeat(700));
    let data = format!(
        "[[:db/add 1 :doc {{:text \"{long}a\" :{key} 1}}] [:db/add 2 :doc {{:text \"{long}b\" :{key} 2}}]]"
    );
    db.transact(&read(&data).unwrap()).unwrap();
    for (condition, e) in [
        (format!("{{:text \"{long}b\"}}"), 2),
        (format!("{{:text (> \"{long}a\")}}"), 2),
        (format!("{{:text (<= \"{long}a\")}}"), 1),
        (format!("{{:{key} 1}}"), 1),
        (format!("{{:{key} (> 1)}}"), 2),
    ] {
        let found = find_documents(&db, ":doc", &condition);
        let entities: Vec<&Value> = found.iter().map(|row| &row[0]).collect();
        assert_eq!(entities, [&Value::Long(e)]);
    }
}

#[test]
fn markdown_is_read_by_its_headings() {
    let (_folder, db) = database();
    let text = "Lead.\n\n# 1. Getting started\n\nFirst words.\n\n## Install\n\n- one\n- two\n\n## Install\n\nAgain.\n";
    let data = Value::Vector(vec![Value::Vector(vec![
        Value::keyword("db/add"),
        Value::Long(1),
        Value::keyword("page"),
        Value::text(text),
    ])]);
    db.transact(&data).unwrap();
    let wanted = "{:_text \"Lead.\" :getting-started {:_text \"First words.\" :install [\"one\\ntwo\" \"Again.\"]}}";
    let found = find_documents(
        &db,
        ":page",
        "{\"Getting started\" {\"Install\" \"Again.\"}}",
    );
    assert_eq!(found.into_iter().next().unwrap()[1], read(wanted).unwrap());
}
