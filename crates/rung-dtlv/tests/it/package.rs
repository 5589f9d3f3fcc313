//! The same requests to a server that runs the published package.
//!
//! `scripts/dtlv_server.py` starts one; `DTLV_SERVER=dtlv://user:password@host:port` names it. Without it the tests are skipped.

use std::ops::ControlFlow;
use std::sync::Arc;

use rung_dtlv::{
    DatomPattern, DtlvDatabase, DtlvSession, KvStore, Options, SearchEngine, VectorIndex,
};
use rung_edn::{Map, Value};

use crate::fake::edn;

/// Returns a session for a database name that is unique to this run.
fn session(name: &str, store: &str) -> Option<Arc<DtlvSession>> {
    let server = std::env::var("DTLV_SERVER").ok()?;
    let run = std::process::id();
    let target = format!("{server}/{name}{run}?store={store}")
        .parse()
        .unwrap();
    Some(Arc::new(DtlvSession::new(target, Options::default())))
}

#[test]
fn a_server_on_the_package_answers_what_is_asked_of_facts() {
    let Some(session) = session("rungFacts", "datalog") else {
        return;
    };
    let schema = edn(
        "{:name {:db/valueType :db.type/string :db/unique :db.unique/identity :db/fulltext true}
          :age {:db/valueType :db.type/long}
          :friend {:db/valueType :db.type/ref :db/cardinality :db.cardinality/many}}",
    );
    let database = DtlvDatabase::open(session, Some(schema), None).unwrap();
    assert!(database.info().schema.is_some());
    let facts =
        edn(r#"[{:db/id -1 :name "Ann" :age 30} {:db/id -2 :name "Ben" :age 31 :friend -1}]"#);
    let report = database.transact(facts.as_sequence().unwrap()).unwrap();
    assert_eq!(report.tx_data.len(), 5, "{report:?}");
    assert!(
        report.tx.is_some() && report.max_entity.is_some(),
        "{report:?}"
    );
    let (ann, ben) = (
        report.tempids[&Value::Long(-1)].clone(),
        report.tempids[&Value::Long(-2)].clone(),
    );

    let query =
        edn("[:find ?n ?a :in $ ?least :where [?e :name ?n] [?e :age ?a] [(>= ?a ?least)]]");
    let rows = database.query(&query, &[31.into()]).unwrap();
    assert_eq!(rows, edn(r#"#{["Ben" 31]}"#));
    let scalar = database
        .query(&edn("[:find (count ?e) . :where [?e :name]]"), &[])
        .unwrap();
    assert_eq!(scalar, 2.into());
    let pulled = database
        .pull(&edn("[:name {:friend [:name]}]"), &ben)
        .unwrap();
    assert_eq!(pulled, edn(r#"{:name "Ben" :friend [{:name "Ann"}]}"#));
    let by_name = edn(r#"[:name "Ann"]"#);
    assert_eq!(database.entity_id(&by_name).unwrap(), ann.as_i64());
    let many = database
        .pull_many(&edn("[:age]"), &[ann.clone(), ben])
        .unwrap();
    assert_eq!(many, edn("[{:age 30} {:age 31}]"));
    let plan = database.explain(Map::new(), &query, &[31.into()]).unwrap();
    assert!(plan.as_map().is_some(), "{plan}");
    let schema = database.schema().unwrap();
    assert!(
        schema
            .as_map()
            .unwrap()
            .contains_key(&Value::keyword("name"))
    );
    let found = database.fulltext_datoms(&"ann".into(), Map::new()).unwrap();
    assert_eq!(found.as_sequence().unwrap().len(), 1, "{found}");

    for (entity, attribute, value, expected) in [
        (ann.as_i64(), None, None, 2),
        (ann.as_i64(), Some("age".into()), None, 1),
        (None, Some("age".into()), Some(31.into()), 1),
        (None, Some("name".into()), None, 2),
        (None, None, None, 5),
        (None, None, Some("Ben".into()), 1),
    ] {
        let pattern = DatomPattern {
            entity,
            attribute,
            value,
        };
        let mut seen = 0;
        database
            .search_datoms(&pattern, |_| {
                seen += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(seen, expected, "{pattern:?}");
        assert_eq!(
            database.count_datoms(&pattern).unwrap(),
            expected,
            "{pattern:?}"
        );
    }

    let bad = database
        .transact(&[edn("[:db/add 1 :age \"thirty\"]")])
        .unwrap_err();
    assert!(
        bad.to_string().starts_with("the server refused tx-data: "),
        "{bad}"
    );
    let bad = database
        .query(&edn("[:find ?x :where [?e :name ?n]]"), &[])
        .unwrap_err();
    assert!(
        bad.to_string().starts_with("the server refused q: "),
        "{bad}"
    );

    // Request and response in batches.
    let facts: Vec<_> = (0..2_500).map(|n| edn(&format!("{{:age {n}}}"))).collect();
    let report = database.transact(&facts).unwrap();
    assert_eq!(report.tx_data.len(), 2_500);
    let rows = database
        .query(&edn("[:find ?e ?a :where [?e :age ?a]]"), &[])
        .unwrap();
    assert!(matches!(rows, Value::Set(rows) if rows.len() == 2_502));
    database.close().unwrap();
}

#[test]
fn a_server_on_the_package_answers_what_is_asked_of_pairs() {
    let Some(session) = session("rung-pairs", "kv") else {
        return;
    };
    let store = KvStore::open(session, None).unwrap();
    let data = Value::keyword("data");
    let types = (&data, &data);
    store.open_table("t", None).unwrap();
    let operations = [
        edn("[:put 1 \"one\"]"),
        edn("[:put 2 {:a [1 2]}]"),
        edn("[:put 3 3]"),
        edn("[:del 3]"),
    ];
    store.transact(Some("t"), &operations, types).unwrap();
    assert_eq!(
        store.get("t", &2.into(), types, false).unwrap(),
        edn("{:a [1 2]}")
    );
    assert_eq!(
        store.get("t", &1.into(), types, true).unwrap(),
        edn("[1 \"one\"]")
    );
    assert_eq!(store.range_count("t", &edn("[:all]"), &data).unwrap(), 2);
    let many: Vec<_> = (10..3_010)
        .map(|key| edn(&format!("[:put {key} :v]")))
        .collect();
    store.transact(Some("t"), &many, types).unwrap();
    let mut pairs = Vec::new();
    store
        .range("t", &edn("[:all]"), types, |pair| {
            pairs.push(pair);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(pairs.len(), 3_002);
    assert!(pairs.contains(&edn("[2 {:a [1 2]}]")));

    let texts = SearchEngine::open(store.clone(), None).unwrap();
    texts.add(&1.into(), "the red fox").unwrap();
    texts.add(&2.into(), "the blue whale").unwrap();
    assert_eq!(texts.search(&"fox".into(), Map::new()).unwrap(), edn("(1)"));
    assert!(texts.has(&1.into()).unwrap());
    assert_eq!(texts.count().unwrap(), 2);
    texts.remove(&1.into()).unwrap();
    assert_eq!(texts.count().unwrap(), 1);
    texts.clear().unwrap();
    assert_eq!(texts.count().unwrap(), 0);

    let dimensions = edn("{:dimensions 3}").as_map().unwrap().clone();
    let vectors = VectorIndex::open(store.clone(), dimensions).unwrap();
    vectors.add(&"a".into(), &[0.0, 1.0, 0.0]).unwrap();
    vectors.add(&"b".into(), &[1.0, 0.0, 0.0]).unwrap();
    let near = vectors.search(&[0.9, 0.1, 0.0], Map::new()).unwrap();
    assert_eq!(near.as_sequence().unwrap()[0], "b".into());
    assert!(vectors.has(&"a".into()).unwrap());
    vectors.remove(&"a".into()).unwrap();
    assert!(!vectors.has(&"a".into()).unwrap());
    assert!(vectors.info().unwrap().as_map().is_some());
    vectors.close().unwrap();
    store.close().unwrap();
}
