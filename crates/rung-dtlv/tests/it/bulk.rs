//! Requests and responses in batches.

use std::ops::ControlFlow;

use rung_dtlv::{DatomPattern, DtlvDatabase, Error, KvStore, Options};
use rung_edn::Value;

use crate::fake::{FakeServer, ServerFault, edn, options};
use crate::requests::open_filled_database;

fn facts(count: i64) -> Vec<Value> {
    let fact = |e| edn(&format!("[:db/add {e} :n {e}]"));
    (1..=count).map(fact).collect()
}

#[test]
fn a_thousand_items_and_more_follow_in_pieces() {
    let fake = FakeServer::start();
    let database = DtlvDatabase::open(fake.session("things"), None, None).unwrap();
    database.transact(&facts(999)).unwrap();
    assert!(fake.state.batches.lock().is_empty());
    let report = database.transact(&facts(2_500)).unwrap();
    assert_eq!(*fake.state.batches.lock(), [1_000, 1_000, 500]);
    // The report arrives in batches too: datoms, then pairs of ids.
    assert_eq!(report.tx_data.len(), 2_500);
    assert_eq!(report.max_entity, Some(77));
    assert_eq!(report.tempids.len(), 1);
}

#[test]
fn pairs_follow_in_pieces() {
    let fake = FakeServer::start();
    let store = KvStore::open(fake.session("things?store=kv"), None).unwrap();
    let put = |key| edn(&format!("[:put {key} :v]"));
    let operations: Vec<_> = (0..1_000).map(put).collect();
    let data = Value::keyword("data");
    store
        .transact(Some("t"), &operations, (&data, &data))
        .unwrap();
    assert_eq!(*fake.state.batches.lock(), [1_000]);
    assert_eq!(
        store.range_count("t", &edn("[:all]"), &data).unwrap(),
        1_000
    );
}

#[test]
fn a_long_response_is_streamed() {
    let fake = FakeServer::start();
    let database = open_filled_database(&fake);
    database.transact(&facts(3_000)).unwrap();
    let query = edn("[:find ?e ?v :in $ ?a :where [?e ?a ?v]]");
    let inputs = [Value::keyword("n")];
    let whole = database.query(&query, &inputs).unwrap();
    assert!(matches!(whole, Value::Set(rows) if rows.len() == 3_000));
    let mut rows = 0;
    let seen = |rows: &mut i32, max| {
        *rows += 1;
        if *rows == max {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    database
        .query_each(&query, &inputs, |_| seen(&mut rows, 0))
        .unwrap();
    assert_eq!(rows, 3_000);
    // After a break the rest is discarded, and the next request works.
    rows = 0;
    database
        .query_each(&query, &inputs, |_| seen(&mut rows, 10))
        .unwrap();
    assert_eq!(rows, 10);
    let pattern = DatomPattern {
        attribute: Some("n".into()),
        ..DatomPattern::default()
    };
    assert_eq!(database.count_datoms(&pattern).unwrap(), 3_000);
}

#[test]
fn a_response_over_the_item_limit_is_an_error() {
    let fake = FakeServer::start();
    let options = Options {
        max_items: 100,
        ..options()
    };
    let database = DtlvDatabase::open(fake.session_with("things", options), None, None).unwrap();
    fake.queue_faults([ServerFault::Endless]);
    let error = database.query(&edn("[:find ?e]"), &[]).unwrap_err();
    assert!(
        matches!(error, Error::TooMany { max_items: 100 }),
        "{error}"
    );
    assert!(database.schema().is_ok());
}
