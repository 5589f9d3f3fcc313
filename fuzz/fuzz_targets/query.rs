//! Arbitrary queries, inputs and pull patterns return a result or an error within the bounds.
//!
//! Parsers: crates/rung-datalog/src/query/parse.rs crates/rung-datalog/src/pull.rs crates/rung-edn/src

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use rung_datalog::{Bounds, Db, DbOptions};
use rung_edn::Reader;

fn database() -> &'static Db {
    static DB: OnceLock<Db> = OnceLock::new();
    DB.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder").keep();
        let db = Db::open(&folder, &DbOptions::default()).expect("a database");
        let schema = "{:n {:db/unique :db.unique/identity} :r {:db/valueType :db.type/ref :db/cardinality :db.cardinality/many} :d {:db/valueType :db.type/idoc} :m {:db/valueType :db.type/idoc :db/idocFormat :markdown}}";
        db.update_schema(&rung_edn::read(schema).expect("EDN")).expect("a schema");
        let data = "[{:n 1 :a \"x\" :r [2 3]} {:n 2 :a 5 :r [1] :d {:a [1 {:b 2.5}] :c nil}} {:n 3 :a :k :m \"# One\\ntext\\n## Two\\n- a\"}]";
        db.transact(&rung_edn::read(data).expect("EDN")).expect("a transaction");
        db
    })
}

fuzz_target!(|text: &str| {
    let mut reader = Reader::new(text);
    let mut given = Vec::new();
    while let Ok(Some(value)) = reader.next_value() {
        given.push(value);
    }
    let Some((first, rest)) = given.split_first() else { return };
    let bounds = Bounds {
        max_ms: Some(50),
        max_bytes: 8 << 20,
        cancelled: None,
    };
    let db = database();
    let _answered = db.query(first, rest, &bounds).map(|answer| answer.into_value().to_string());
    if let Some(entity) = rest.first() {
        let _pulled = db.pull(first, entity);
    }
});
