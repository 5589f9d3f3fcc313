//! Many items at once: in pieces there and back.

use std::ops::ControlFlow;

use rung_dtlv::{Database, Error, KvStore, Options, Pattern};
use rung_edn::Value;

use crate::asked::filled;
use crate::fake::{Fake, Mischief, edn, options};

fn many(count: i64) -> Vec<Value> {
    let fact = |e| edn(&format!("[:db/add {e} :n {e}]"));
    (1..=count).map(fact).collect()
}

#[test]
fn a_thousand_items_and_more_follow_in_pieces() {
    let fake = Fake::start();
    let database = Database::open(fake.session("things"), None, None).unwrap();
    database.transact(&many(999)).unwrap();
    assert!(fake.state.batches.lock().is_empty());
    let report = database.transact(&many(2_500)).unwrap();
    assert_eq!(*fake.state.batches.lock(), [1_000, 1_000, 500]);
    // The report comes in pieces too: facts, and after them what ids became.
    assert_eq!(report.tx_data.len(), 2_500);
    assert_eq!(report.max_entity, Some(77));
    assert_eq!(report.tempids.len(), 1);
}

#[test]
fn pairs_follow_in_pieces() {
    let fake = Fake::start();
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
fn a_long_answer_is_given_away_as_it_comes() {
    let fake = Fake::start();
    let database = filled(&fake);
    database.transact(&many(3_000)).unwrap();
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
    // Whoever has enough leaves the rest where it is, and the next question is answered as if nothing was.
    rows = 0;
    database
        .query_each(&query, &inputs, |_| seen(&mut rows, 10))
        .unwrap();
    assert_eq!(rows, 10);
    let pattern = Pattern {
        attribute: Some("n".into()),
        ..Pattern::default()
    };
    assert_eq!(database.count_datoms(&pattern).unwrap(), 3_000);
}

#[test]
fn more_than_is_held_at_once_is_refused() {
    let fake = Fake::start();
    let options = Options {
        max_items: 100,
        ..options()
    };
    let database = Database::open(fake.session_with("things", options), None, None).unwrap();
    fake.will([Mischief::Endless]);
    let error = database.query(&edn("[:find ?e]"), &[]).unwrap_err();
    assert!(
        matches!(error, Error::TooMany { max_items: 100 }),
        "{error}"
    );
    assert!(database.schema().is_ok());
}
