//! All requests to a server that works.

use std::ops::ControlFlow;

use rung_dtlv::{
    DatomIndex, DatomPattern, DtlvDatabase, DtlvStoreKind, Error, KvStore, SearchEngine,
    VectorIndex,
};
use rung_edn::{Map, Value};

use crate::fake::{FakeServer, edn};

fn data() -> Value {
    Value::keyword("data")
}

pub(crate) fn open_filled_database(fake: &FakeServer) -> DtlvDatabase {
    let database = DtlvDatabase::open(fake.session("things"), None, None).unwrap();
    let facts = edn(
        r#"[[:db/add 1 :name "Ann"] [:db/add 2 :name "Ben"] [:db/add 1 :age 30] [:db/add 2 :age 30]]"#,
    );
    database.transact(facts.as_sequence().unwrap()).unwrap();
    database
}

#[test]
fn facts_are_written_and_read() {
    let fake = FakeServer::start();
    let database = open_filled_database(&fake);
    assert_eq!(database.info().max_entity, Some(9));
    assert_eq!(database.info().max_tx, Some(3));
    assert!(database.info().schema.is_some());
    let query = edn("[:find ?e ?v :in $ ?a :where [?e ?a ?v]]");
    let rows = database.query(&query, &[Value::keyword("name")]).unwrap();
    assert_eq!(rows, edn(r#"#{[1 "Ann"] [2 "Ben"]}"#));
    let pulled = database.entity(&edn(r#"[:name "Ben"]"#)).unwrap();
    assert_eq!(pulled, edn(r#"{:db/id 2 :name "Ben" :age 30}"#));
    assert_eq!(
        database.entity_id(&edn(r#"[:name "Ben"]"#)).unwrap(),
        Some(2)
    );
    assert_eq!(database.entity_id(&edn(r#"[:name "Zoe"]"#)).unwrap(), None);
    let many = database
        .pull_many(&edn("[*]"), &[1.into(), 3.into()])
        .unwrap();
    assert_eq!(many, edn(r#"[{:db/id 1 :name "Ann" :age 30} nil]"#));
    assert!(
        database
            .explain(Map::new(), &query, &[])
            .unwrap()
            .as_map()
            .is_some()
    );
    assert!(database.schema().unwrap().as_map().is_some());
    let found = database.fulltext_datoms(&"ann".into(), Map::new()).unwrap();
    assert_eq!(found, edn(r#"([1 :name "Ann"])"#));
    database.close().unwrap();
}

#[test]
fn a_report_says_what_was_done() {
    let fake = FakeServer::start();
    let database = open_filled_database(&fake);
    let facts = [edn("[:db/add 5 :name \"Eve\"]")];
    let report = database.simulate(&facts).unwrap();
    assert_eq!(report.tx_data.len(), 1);
    assert_eq!(database.entity(&5.into()).unwrap(), Value::Nil);
    let report = database.transact(&facts).unwrap();
    assert_eq!(report.tx_data[0].entity, 5);
    assert_eq!(report.tx_data[0].value, "Eve".into());
    assert!(report.tx_data[0].added);
    assert_eq!((report.tx, report.max_entity), (Some(7), Some(77)));
    assert_eq!(Value::Map(report.tempids), edn("{\"new\" 5}"));
    assert!(database.entity(&5.into()).unwrap().as_map().is_some());
}

#[test]
fn facts_are_found_by_each_of_their_parts() {
    let fake = FakeServer::start();
    let database = open_filled_database(&fake);
    let (name, age) = (|| Some("name".into()), || Some("age".into()));
    for (entity, attribute, value, expected) in [
        (None, None, None, 4),
        (Some(1), None, None, 2),
        (Some(1), name(), None, 1),
        (Some(1), name(), Some("Ann".into()), 1),
        (Some(1), name(), Some("Ben".into()), 0),
        (Some(1), None, Some(30.into()), 1),
        (None, age(), None, 2),
        (None, age(), Some(30.into()), 2),
        (None, None, Some(30.into()), 2),
        (Some(3), None, None, 0),
    ] {
        let pattern = DatomPattern {
            entity,
            attribute,
            value,
        };
        let mut found = 0;
        database
            .search_datoms(&pattern, |_| {
                found += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(found, expected, "{pattern:?}");
        assert_eq!(
            database.count_datoms(&pattern).unwrap(),
            expected,
            "{pattern:?}"
        );
    }
    let mut entities = Vec::new();
    let pattern = DatomPattern {
        attribute: name(),
        ..DatomPattern::default()
    };
    let mut first = |datom: rung_dtlv::Datom| {
        entities.push(datom.entity);
        ControlFlow::Break(())
    };
    database
        .datoms(DatomIndex::Ave, &pattern, &mut first)
        .unwrap();
    let error = database
        .datoms(DatomIndex::Eav, &pattern, first)
        .unwrap_err();
    assert!(matches!(error, Error::InvalidRequest(_)));
    assert_eq!(entities, [1]);
}

#[test]
fn pairs_are_written_and_read() {
    let fake = FakeServer::start();
    assert_eq!(fake.target("Things?store=kv").store(), DtlvStoreKind::Kv);
    let store = KvStore::open(fake.session("Things?store=kv"), None).unwrap();
    let types = (&data(), &data());
    store.open_table("t", None).unwrap();
    let operations = [
        edn("[:put 1 \"one\"]"),
        edn("[:put 2 \"two\"]"),
        edn("[:put 3 nil]"),
        edn("[:del 3]"),
    ];
    store.transact(Some("t"), &operations, types).unwrap();
    assert_eq!(
        store.get("t", &1.into(), types, false).unwrap(),
        "one".into()
    );
    assert_eq!(
        store.get("t", &1.into(), types, true).unwrap(),
        edn("[1 \"one\"]")
    );
    assert_eq!(store.get("t", &9.into(), types, false).unwrap(), Value::Nil);
    assert_eq!(store.range_count("t", &edn("[:all]"), &data()).unwrap(), 2);
    let mut pairs = Vec::new();
    store
        .range("t", &edn("[:all]"), types, |pair| {
            pairs.push(pair);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(Value::Vector(pairs), edn("[[1 \"one\"] [2 \"two\"]]"));
    assert_eq!(store.tables().unwrap(), edn("[\"t\"]"));
    store.close().unwrap();
}

#[test]
fn texts_and_vectors_are_found() {
    let fake = FakeServer::start();
    let store = KvStore::open(fake.session("things?store=kv"), None).unwrap();
    let texts = SearchEngine::open(store.clone(), None).unwrap();
    texts.add(&1.into(), "red fox").unwrap();
    texts.add(&2.into(), "blue fox").unwrap();
    assert_eq!(
        texts.search(&"fox".into(), Map::new()).unwrap(),
        edn("(1 2)")
    );
    assert!(texts.has(&1.into()).unwrap() && !texts.has(&3.into()).unwrap());
    texts.remove(&1.into()).unwrap();
    let error = texts.remove(&1.into()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server refused remove-doc: Document does not exist."
    );
    assert_eq!(texts.count().unwrap(), 1);
    texts.clear().unwrap();
    assert_eq!(texts.count().unwrap(), 0);

    let dimensions = edn("{:dimensions 2}").as_map().unwrap().clone();
    let vectors = VectorIndex::open(store, dimensions).unwrap();
    vectors.add(&"a".into(), &[0.0, 1.0]).unwrap();
    vectors.add(&"b".into(), &[1.0, 0.0]).unwrap();
    let near = vectors.search(&[0.9, 0.1], Map::new()).unwrap();
    assert_eq!(near, edn("[\"b\" \"a\"]"));
    assert!(vectors.has(&"a".into()).unwrap());
    vectors.remove(&"a".into()).unwrap();
    assert!(!vectors.has(&"a".into()).unwrap());
    assert_eq!(vectors.info().unwrap(), edn("{:size 1}"));
    vectors.close().unwrap();
}
