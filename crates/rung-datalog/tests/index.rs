//! Direct index access.

#![allow(clippy::unwrap_used)]

use rung_datalog::{Datom, Db, DbOptions, IndexOrder, IndexScan};
use rung_edn::{Value, read};

fn database() -> (tempfile::TempDir, Db) {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    let schema = "{:name {:db/unique :db.unique/identity, :db/valueType :db.type/string} :age {:db/valueType :db.type/long}
                   :aka {:db/cardinality :db.cardinality/many} :boss {:db/valueType :db.type/ref}}";
    db.update_schema(&read(schema).unwrap()).unwrap();
    let long = "z".repeat(2_000);
    let data = format!(
        "[{{:db/id 1 :name \"Ada\" :age 36 :aka [\"A\" \"B\"] :boss 1}} {{:db/id 2 :name \"Bob\" :age 25 :boss 1}} {{:db/id 3 :name \"{long}\" :age 30}}]"
    );
    db.transact(&read(&data).unwrap()).unwrap();
    (folder, db)
}

fn format_datoms(db: &Db, datoms: &[Datom]) -> String {
    let schema = db.read(|moment| Ok(moment.schema().clone())).unwrap();
    let each = datoms.iter().map(|datom| {
        let value = datom.v.to_string();
        format!(
            "{} {} {}",
            datom.e,
            schema.by_id(datom.a).unwrap().name,
            &value[..value.len().min(8)]
        )
    });
    each.collect::<Vec<_>>().join(", ")
}

#[test]
fn datoms_are_in_their_order() {
    let (_folder, db) = database();
    let ask = |order, reach, parts: &str, limit| {
        let parts = read(parts).unwrap();
        format_datoms(
            &db,
            &db.datoms(order, reach, parts.as_sequence().unwrap(), limit)
                .unwrap(),
        )
    };
    assert_eq!(
        ask(IndexOrder::Eav, IndexScan::Prefix, "[1]", 99),
        "1 name \"Ada\", 1 age 36, 1 aka \"A\", 1 aka \"B\", 1 boss 1"
    );
    assert_eq!(
        ask(
            IndexOrder::Eav,
            IndexScan::Prefix,
            "[[:name \"Ada\"] :aka]",
            99
        ),
        "1 aka \"A\", 1 aka \"B\""
    );
    assert_eq!(
        ask(IndexOrder::Eav, IndexScan::Prefix, "[1 :aka \"B\"]", 99),
        "1 aka \"B\""
    );
    assert_eq!(
        ask(IndexOrder::Ave, IndexScan::Prefix, "[:age]", 99),
        "2 age 25, 3 age 30, 1 age 36"
    );
    assert_eq!(
        ask(IndexOrder::Ave, IndexScan::Prefix, "[:boss 1]", 1),
        "1 boss 1"
    );
    assert_eq!(
        ask(IndexOrder::Ave, IndexScan::Prefix, "[:boss 1 2]", 9),
        "2 boss 1"
    );
    assert_eq!(ask(IndexOrder::Ave, IndexScan::Prefix, "[:none]", 9), "");
    assert_eq!(
        ask(IndexOrder::Eav, IndexScan::Forward, "[2 :age]", 3),
        "2 age 25, 2 boss 1, 3 name \"zzzzzzz"
    );
    assert_eq!(
        ask(IndexOrder::Eav, IndexScan::Backward, "[2 :name]", 2),
        "2 name \"Bob\", 1 boss 1"
    );
    assert_eq!(
        ask(IndexOrder::Ave, IndexScan::Forward, "[:age 30]", 2),
        "3 age 30, 1 age 36"
    );
    assert_eq!(
        ask(IndexOrder::Ave, IndexScan::Backward, "[:age 30]", 2),
        "3 age 30, 2 age 25"
    );
    assert_eq!(
        ask(IndexOrder::Eav, IndexScan::Backward, "[]", 1),
        "3 age 30"
    );
    let range = |from: Value, to: Value| {
        format_datoms(&db, &db.index_range(&"age".into(), &from, &to, 9).unwrap())
    };
    assert_eq!(
        range(Value::Long(26), Value::Long(36)),
        "3 age 30, 1 age 36"
    );
    assert_eq!(range(Value::Nil, Value::Long(30)), "2 age 25, 3 age 30");
}

#[test]
fn an_entity_that_leads_to_itself_is_told() {
    let (_folder, db) = database();
    let told = |called: &str| {
        db.entity(&read(called).unwrap())
            .unwrap()
            .map(|entity| Value::Map(entity).to_string())
    };
    assert_eq!(
        told("[:name \"Ada\"]").unwrap(),
        "{:name \"Ada\", :age 36, :aka #{\"A\" \"B\"}, :boss {:db/id 1}, :db/id 1}"
    );
    assert_eq!(told("99"), None);
}
