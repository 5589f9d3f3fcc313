//! Attribute filters: a filtered database gives the same results as a database without the hidden attributes.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::*;
use rung_datalog::{AttributeFilter, Bounds, Db, DbOptions, IndexOrder, IndexScan};
use rung_edn::{Name, Value, read};

const SCHEMA: &str = "{:name {:db/valueType :db.type/string :db/unique :db.unique/identity}
    :friend {:db/valueType :db.type/ref :db/cardinality :db.cardinality/many}
    :part {:db/valueType :db.type/ref :db/isComponent true :db/cardinality :db.cardinality/many}
    :age {:db/valueType :db.type/long}
    :note {:db/valueType :db.type/string :db/fulltext true}
    :diary {:db/valueType :db.type/string :db/fulltext true :db.fulltext/autoDomain true}
    :where {:db/valueType :db.type/vec}
    :sheet {:db/valueType :db.type/idoc}
    :tag {:db/cardinality :db.cardinality/many}}";

const ATTRIBUTES: [&str; 9] = [
    "name", "friend", "part", "age", "note", "diary", "where", "sheet", "tag",
];

/// The queries. Each of them has a result if no attribute is hidden.
const QUESTIONS: &[&str] = &[
    "[:find ?e ?a ?v :where [?e ?a ?v]]",
    "[:find ?e ?v :where [?e :diary ?v]]",
    "[:find ?a :where [3 ?a]]",
    "[:find ?e ?a :where [?e ?a 2]]",
    "[:find ?e ?a ?f :where [?e ?a ?f] [?f :age]]",
    "[:find (count ?e) . :where [?e]]",
    "[:find (count-distinct ?v) (max ?e) . :where [?e :tag ?v]]",
    "[:find ?n ?a :where [?e :name ?n] [?e :age ?a]]",
    "[:find ?n ?m :where [?e :name ?n] (not [?e :age]) [?e :friend ?f] [?f :name ?m]]",
    "[:find ?e :where (or [?e :age 1] [?e :tag 1])]",
    "[:find ?e :where [?e :tag] [(missing? $ ?e :age)]]",
    "[:find ?e ?v :where [?e :tag] [(get-else $ ?e :age -1) ?v]]",
    "[:find ?e ?v :where [?e :tag] [(get-some $ ?e :diary :note :age) ?v]]",
    "[:find ?x ?y :in $ % :where (reach ?x ?y) :rules]",
    "[:find (pull ?e [*]) :where [?e :name]]",
    "[:find (pull ?e [:name {:friend [:name :age]} {:_friend [:name]} :_part {:part [*]}]) :where [?e]]",
    "[:find (pull ?e [{:friend 2} :name]) :where [?e :friend]]",
    "[:find ?e ?a ?v :where [(fulltext $ \"red\") [[?e ?a ?v]]]]",
    "[:find ?e ?v :where [(fulltext $ \"fox\" {:display :texts}) [[?e _ _ ?v]]]]",
    "[:find ?e :where [(fulltext $ :diary \"red\") [[?e]]]]",
    "[:find ?e :where [(fulltext $ \"red\" {:domains [\"diary\"]}) [[?e]]]]",
    "[:find ?e ?a :where [(vec-neighbors $ [1.0 0.0] {:top 20}) [[?e ?a]]]]",
    "[:find ?e :where [(idoc-match $ :sheet {:size (> 1)}) [[?e]]]]",
    "[:find ?e ?a :where [(idoc-match $ {:size 2}) [[?e ?a]]]]",
    "[:find ?e ?v :where [?e :sheet ?d] [(idoc-get ?d :size) ?v]]",
    "[:find ?t :where [[:name \"n2\"] :tag ?t]]",
    "[:find ?e ?n :where [?e :friend [:name \"n1\"]] [?e :name ?n]]",
    "[:find ?e :in $ ?a :where [?e ?a _] :attributes]",
    "[:find [?v ...] :where [_ :age ?v] :order-by ?v :limit 3]",
    "[:find ?e ?a :where [?e ?a ?v] [(= ?v 1)]]",
];

#[derive(Debug, Clone)]
struct TestFact {
    e: i64,
    a: &'static str,
    v: i64,
}

impl TestFact {
    fn value(&self) -> String {
        let v = self.v;
        match self.a {
            "name" => format!("\"n{}\"", self.e),
            "friend" | "part" => format!("{}", 1 + v),
            "note" | "diary" => ["\"a red fox\"", "\"blue sea\"", "\"red house\"", "\"fox\""]
                [usize::try_from(v).unwrap() % 4]
                .to_owned(),
            "where" => format!("[{v}.0 1.0]"),
            "sheet" => format!("{{:size {v} :of {{:tag {v}}}}}"),
            _ => v.to_string(),
        }
    }
}

fn test_facts() -> impl Strategy<Value = Vec<TestFact>> {
    let one = (1..9_i64, prop::sample::select(&ATTRIBUTES), 0..4_i64);
    prop::collection::vec(one.prop_map(|(e, a, v)| TestFact { e, a, v }), 1..40)
}

fn database(said: &[TestFact], schema: &Value) -> (tempfile::TempDir, Db) {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    let options = read("{:vector-opts {:dimensions 2}}").unwrap();
    db.set_options(options.as_map().unwrap()).unwrap();
    db.update_schema(schema).unwrap();
    let mut last = BTreeSet::new();
    // For attributes of cardinality one, use only the first fact, so that the value does not depend on other facts.
    let first = said.iter().filter(|said| {
        let one = !matches!(said.a, "friend" | "part" | "tag");
        !one || last.insert((said.e, said.a))
    });
    let facts = first.map(|said| format!("[:db/add {} :{} {}]", said.e, said.a, said.value()));
    let facts = format!("[{}]", facts.collect::<Vec<_>>().join(" "));
    db.transact(&read(&facts).unwrap()).unwrap();
    (folder, db)
}

fn ask(db: &Db, query: &str) -> Result<String, String> {
    let rules = "[[(reach ?x ?y) [?x :friend ?y]] [(reach ?x ?y) [?x :friend ?z] (reach ?z ?y)]]";
    let (query, input) = match query.strip_suffix(" :rules]") {
        Some(query) => (format!("{query}]"), rules.to_owned()),
        None => match query.strip_suffix(" :attributes]") {
            Some(query) => (format!("{query}]"), ":diary".to_owned()),
            None => (query.to_owned(), String::new()),
        },
    };
    let inputs = read(&format!("[{input}]")).unwrap();
    let inputs = inputs.as_sequence().unwrap();
    let answer = db.query(&read(&query).unwrap(), inputs, &Bounds::default());
    Ok(sorted(answer.map_err(|_| "refused".to_owned())?.into_value()).to_string())
}

/// Sorts a value, so that it does not depend on the order of results.
fn sorted(value: Value) -> Value {
    let rows = match value {
        Value::Set(rows) => rows.into_iter().map(sorted).collect::<Vec<_>>(),
        Value::Map(members) => members
            .into_iter()
            .map(|(name, value)| Value::Vector(vec![name, sorted(value)]))
            .collect(),
        Value::Vector(items) => return Value::Vector(items.into_iter().map(sorted).collect()),
        other => return other,
    };
    let mut rows: Vec<(String, Value)> =
        rows.into_iter().map(|row| (row.to_string(), row)).collect();
    rows.sort_by(|one, other| one.0.cmp(&other.0));
    Value::Vector(rows.into_iter().map(|(_, row)| row).collect())
}

/// Formats datoms with the names of their attributes, because their ids differ.
fn datoms(db: &Db, order: IndexOrder, reach: IndexScan, parts: &str) -> Vec<String> {
    let parts = read(parts).unwrap();
    let found = db.datoms(order, reach, parts.as_sequence().unwrap(), 7);
    let schema = db.read(|moment| Ok(moment.schema().clone())).unwrap();
    let shown = found.unwrap().into_iter().map(|datom| {
        let name = &schema.by_id(datom.a).unwrap().name;
        format!("{} {name} {}", datom.e, datom.v)
    });
    shown.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn what_is_not_seen_is_not_there(said in test_facts(), seen in prop::sample::subsequence(&ATTRIBUTES[..], 0..ATTRIBUTES.len())) {
        let schema = read(SCHEMA).unwrap();
        let (_folder, db) = database(&said, &schema);
        let names: Vec<Name> = seen.iter().map(|name| (*name).into()).collect();
        let narrow = db.filtered(AttributeFilter::new(move |name| names.contains(name))).unwrap();
        let visible: Vec<TestFact> = said.iter().filter(|said| seen.contains(&said.a)).cloned().collect();
        let members = schema.as_map().unwrap().iter();
        let known = members.filter(|(name, _)| seen.iter().any(|seen| name.to_string() == format!(":{seen}")));
        let known = Value::Map(known.map(|(name, value)| (name.clone(), value.clone())).collect());
        let (_other, twin) = database(&visible, &known);
        for question in QUESTIONS {
            prop_assert_eq!(ask(&narrow, question), ask(&twin, question), "{} seeing {:?}", question, seen);
        }
        for e in 1..9 {
            let entity = Value::Long(e);
            prop_assert_eq!(narrow.entity(&entity).unwrap(), twin.entity(&entity).unwrap());
        }
        for reach in [IndexScan::Prefix, IndexScan::Forward, IndexScan::Backward] {
            for parts in ["[]", "[4]", "[:db.none/such]"] {
                let order = if parts.contains(':') { IndexOrder::Ave } else { IndexOrder::Eav };
                prop_assert_eq!(datoms(&narrow, order, reach, parts), datoms(&twin, order, reach, parts));
            }
        }
        let counts = |db: &Db| db.read(|moment| Ok(moment.count()? + 1)).unwrap();
        prop_assert_eq!(counts(&narrow), counts(&twin));
        prop_assert!(narrow.transact(&read("[[:db/add 1 :tag 9]]").unwrap()).is_err());
        let new = read("{:new {}}").unwrap();
        prop_assert!(narrow.update_schema(&new).is_err());
    }
}

#[test]
fn every_question_has_an_answer_where_all_is_seen() {
    let all: Vec<TestFact> = (1..9)
        .flat_map(|e| ATTRIBUTES.map(|a| TestFact { e, a, v: e % 4 }))
        .filter(|said| said.a != "age" || said.e % 3 > 0)
        .collect();
    let (_folder, db) = database(&all, &read(SCHEMA).unwrap());
    for question in QUESTIONS {
        let answer = ask(&db, question).unwrap();
        assert!(answer != "[]" && answer != "nil", "{question}: {answer}");
    }
}

#[test]
fn what_is_seen_follows_the_schema() {
    let (_folder, db) = database(&[], &read("{}").unwrap());
    let narrow = db
        .filtered(AttributeFilter::new(|name| {
            name.as_str().starts_with("open/")
        }))
        .unwrap();
    let find = "[:find ?e ?v :where [?e ?a ?v]]";
    db.transact(&read("[[:db/add 1 :open/a 1] [:db/add 1 :shut/a 2]]").unwrap())
        .unwrap();
    assert_eq!(ask(&narrow, find), Ok("[[1 1]]".to_owned()));
    db.rename_attribute(&"shut/a".into(), &"open/b".into())
        .unwrap();
    assert_eq!(ask(&narrow, find), Ok("[[1 1] [1 2]]".to_owned()));
    // A second filter cannot show more than the first.
    let less = narrow
        .filtered(AttributeFilter::new(|name| name.as_str().ends_with('b')))
        .unwrap();
    assert_eq!(ask(&less, find), Ok("[[1 2]]".to_owned()));
}
