//! Transactions: what they do, and what they refuse.

#![allow(clippy::unwrap_used)]

use rung_datalog::{Db, DbOptions, Snapshot, TransactionResult};
use rung_edn::{Name, Value, read};
use tempfile::TempDir;

struct Fixture {
    _folder: TempDir,
    db: Db,
}

fn database(schema: &str) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    db.update_schema(&read(schema).unwrap()).unwrap();
    Fixture {
        _folder: folder,
        db,
    }
}

impl Fixture {
    fn transact(&self, text: &str) -> TransactionResult {
        self.db
            .transact(&read(text).unwrap())
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn assert_refused(&self, text: &str) -> String {
        let before = self.all();
        let error = self.db.transact(&read(text).unwrap()).expect_err(text);
        assert_eq!(self.all(), before, "nothing of it was done");
        error.to_string()
    }

    /// Returns every datom, and checks that the counts agree.
    fn all(&self) -> Vec<String> {
        self.db.read(|moment| Ok(datoms(moment))).unwrap()
    }

    fn facts_of(&self, e: u64) -> String {
        let prefix = format!("[{e} ");
        let own = self
            .all()
            .into_iter()
            .filter(|datom| datom.starts_with(&prefix));
        own.map(|datom| datom[prefix.len()..datom.len() - 1].to_owned())
            .collect::<Vec<_>>()
            .join(", ")
    }
}

fn datoms(moment: &Snapshot<'_>) -> Vec<String> {
    let mut all = Vec::new();
    let name = |a: u32| moment.schema().by_id(a).unwrap().name.clone();
    moment
        .visit_all(|datom| {
            all.push(format!("[{} :{} {}]", datom.e, name(datom.a), datom.v));
            Ok(())
        })
        .unwrap();
    let counted: u64 = moment
        .schema()
        .attributes()
        .map(|attribute| moment.count_of(attribute.id).unwrap())
        .sum();
    assert_eq!(
        counted,
        all.len() as u64,
        "what is counted is what is there"
    );
    all
}

fn format_report(report: &TransactionResult) -> String {
    let each = report.datoms.iter().map(|datom| {
        let name = &report.schema.by_id(datom.a).unwrap().name;
        format!(
            "{}[{} :{name} {}]",
            if datom.added { '+' } else { '-' },
            datom.e,
            datom.v
        )
    });
    each.collect::<Vec<_>>().join(" ")
}

const PEOPLE: &str = "{:name {:db/unique :db.unique/identity, :db/valueType :db.type/string}
                       :email {:db/unique :db.unique/value}
                       :aka {:db/cardinality :db.cardinality/many}
                       :age {:db/valueType :db.type/long}
                       :friend {:db/valueType :db.type/ref, :db/cardinality :db.cardinality/many}
                       :boss {:db/valueType :db.type/ref}
                       :address {:db/valueType :db.type/ref, :db/isComponent true}}";

#[test]
fn facts_come_and_go() {
    let db = database(PEOPLE);
    let report = db.transact("[{:db/id -1 :name \"Ada\" :aka [\"A\" \"Countess\"] :age 36} [:db/add \"t\" :name \"Bob\"]]");
    assert_eq!(
        format_report(&report),
        "+[1 :name \"Ada\"] +[1 :aka \"A\"] +[1 :aka \"Countess\"] +[1 :age 36] +[2 :name \"Bob\"]"
    );
    assert_eq!(Value::Map(report.tempids).to_string(), "{-1 1, \"t\" 2}");
    assert_eq!(report.tx, 1);
    assert_eq!(
        format_report(&db.transact("[[:db/add 1 :age 36] [:db/add 1 :age 37]]")),
        "-[1 :age 36] +[1 :age 37]"
    );
    assert_eq!(
        format_report(&db.transact(
            "[[:db/retract 1 :aka \"A\"] [:db/retract 1 :aka \"none\"] [:db/retract 2 :name]]"
        )),
        "-[1 :aka \"A\"] -[2 :name \"Bob\"]"
    );
    assert_eq!(db.facts_of(1), ":name \"Ada\", :aka \"Countess\", :age 37");
    db.transact("[[:db.fn/retractAttribute [:name \"Ada\"] :aka]]");
    assert_eq!(db.facts_of(1), ":name \"Ada\", :age 37");
    db.transact("[[:db/retractEntity [:name \"Ada\"]]]");
    assert!(db.all().is_empty());
}

#[test]
fn whoever_says_a_name_means_its_entity() {
    let db = database(PEOPLE);
    db.transact("[{:name \"Ada\"} {:name \"Bob\"}]");
    let report = db.transact("[{:name \"Ada\" :age 1} {:db/id -5 :name \"Bob\" :age 2} [:db/add -6 :name \"Ada\"] [:db/add -6 :age 3]]");
    assert_eq!(Value::Map(report.tempids).to_string(), "{-5 2, -6 1}");
    assert_eq!(
        (db.facts_of(1), db.facts_of(2)),
        (
            ":name \"Ada\", :age 3".into(),
            ":name \"Bob\", :age 2".into()
        )
    );
    // The temporary id was bound to a new entity before its name turned out to be that of an existing one.
    let report = db.transact("[[:db/add -1 :age 7] [:db/add -2 :friend -1] [:db/add -2 :name \"New\"] [:db/add -1 :name \"Ada\"]]");
    assert_eq!(Value::Map(report.tempids).to_string(), "{-1 1, -2 3}");
    assert_eq!(db.facts_of(1), ":name \"Ada\", :age 7");
    assert_eq!(db.facts_of(3), ":name \"New\", :friend 1");
    assert!(
        db.assert_refused("[{:db/id 2 :name \"Ada\"}]")
            .contains("entity 2, but its :name belongs to entity 1")
    );
    assert!(
        db.assert_refused("[[:db/add -1 :name \"Ada\"] [:db/add -1 :name \"Bob\"]]")
            .contains("resolves to")
    );
    db.transact("[[:db/add 1 :email \"a@x\"]]");
    assert!(
        db.assert_refused("[{:name \"Bob\" :email \"a@x\"}]")
            .contains("must be unique")
    );
}

#[test]
fn entities_are_called_by_names_and_lookups() {
    let db = database(PEOPLE);
    db.transact("[{:db/id 10 :db/ident :ada :name \"Ada\"} {:name \"Bob\" :boss :ada :friend [[:name \"Ada\"] :ada]}]");
    assert_eq!(db.facts_of(11), ":name \"Bob\", :friend 10, :boss 10");
    db.transact("[[:db/add :ada :friend [:name \"Bob\"]] {:db/id [:name \"Bob\"] :age 5}]");
    assert_eq!(db.facts_of(10), ":db/ident :ada, :name \"Ada\", :friend 11");
    for (wrong, why) in [
        (
            "[[:db/add [:name \"Nobody\"] :age 1]]",
            "no entity has the ident [:name \"Nobody\"]",
        ),
        ("[[:db/add [:age 5] :age 1]]", "not :db/unique"),
        (
            "[[:db/add :nobody :age 1]]",
            "no entity has the ident :nobody",
        ),
        (
            "[{:name \"X\" :boss :nobody}]",
            "no entity has the ident :nobody",
        ),
    ] {
        assert!(db.assert_refused(wrong).contains(why), "{wrong}");
    }
}

#[test]
fn maps_within_maps_become_entities() {
    let db = database(PEOPLE);
    db.transact("[{:name \"Ada\" :address {:street \"X\"} :friend [{:name \"Bob\"} {:name \"Cy\" :_boss {:name \"Di\"}}]}]");
    assert_eq!(
        db.facts_of(1),
        ":name \"Ada\", :friend 3, :friend 4, :address 2"
    );
    assert_eq!(db.facts_of(5), ":name \"Di\", :boss 4");
    db.transact("[{:db/id 1 :_friend [3 [:name \"Cy\"]]}]");
    assert_eq!(db.facts_of(3), ":name \"Bob\", :friend 1");
    // Components and references to the entity are removed as well.
    db.transact("[[:db.fn/retractEntity 1]]");
    assert_eq!(db.facts_of(2) + &db.facts_of(1), "");
    assert_eq!(db.facts_of(3), ":name \"Bob\"");
}

/// Regression: components were removed recursively, and a long chain of them overflowed the stack.
#[test]
fn parts_go_with_their_whole_however_deep() {
    let db = database(
        "{:part {:db/valueType :db.type/ref, :db/isComponent true} :see {:db/valueType :db.type/ref}}",
    );
    let chain: Vec<String> = (1..=50_000)
        .map(|e| format!("[:db/add {e} :part {}]", e + 1))
        .collect();
    db.transact(&format!("[{}]", chain.join(" ")));
    // The chain is a cycle, and another entity refers into it.
    db.transact(
        "[[:db/add 50001 :part 1] [:db/add 90000 :see 40000] [:db/add 90000 :name \"other\"]]",
    );
    let report = db.transact("[[:db/retractEntity 1]]");
    assert_eq!(report.datoms.len(), 50_002);
    assert_eq!(db.all(), ["[90000 :name \"other\"]"]);
}

#[test]
fn a_value_is_compared_before_it_is_set() {
    let db = database(PEOPLE);
    db.transact("[{:name \"Ada\" :age 1}]");
    db.transact("[[:db/cas 1 :age 1 2] [:db.fn/cas 1 :boss nil 1]]");
    assert_eq!(db.facts_of(1), ":name \"Ada\", :age 2, :boss 1");
    assert!(
        db.assert_refused("[[:db/cas 1 :age 1 3]]")
            .contains("entity 1 has :age 2, not 1")
    );
    assert!(
        db.assert_refused("[[:db/cas 1 :age nil 3]]")
            .contains("not nil")
    );
}

#[test]
fn tuples_follow_their_parts() {
    let db = database(
        "{:a {} :b {} :ab {:db/tupleAttrs [:a :b], :db/unique :db.unique/identity}
          :pair {:db/tupleTypes [:db.type/long :db.type/string]} :list {:db/tupleType :db.type/keyword}}",
    );
    db.transact("[{:a 1 :b 2}]");
    assert_eq!(db.facts_of(1), ":a 1, :b 2, :ab [1 2]");
    db.transact("[{:a 1 :b 2 :c 3} [:db/add 9 :a 4]]");
    assert_eq!(db.facts_of(1), ":a 1, :b 2, :ab [1 2], :c 3");
    assert_eq!(db.facts_of(9), ":a 4, :ab [4 nil]");
    db.transact("[[:db/add [:ab [1 2]] :b 5]]");
    assert_eq!(db.facts_of(1), ":a 1, :b 5, :ab [1 5], :c 3");
    db.transact("[[:db/retract 9 :a]]");
    assert_eq!(db.facts_of(9), "");
    assert!(
        db.assert_refused("[[:db/add 1 :ab [7 8]]]")
            .contains("a tuple of other attributes")
    );
    db.transact("[[:db/add 1 :ab [1 5]] {:db/id 20 :pair [1 \"x\"] :list [:k :l]}]");
    assert_eq!(db.facts_of(20), ":pair [1 \"x\"], :list [:k :l]");
    assert!(
        db.assert_refused("[[:db/add 20 :pair [1]]]")
            .contains("type tuple")
    );
    assert!(
        db.assert_refused("[[:db/add 20 :list [1]]]")
            .contains("type tuple")
    );
}

#[test]
fn values_are_made_what_their_attribute_has() {
    let types = [
        "string", "long", "double", "float", "bigint", "bigdec", "boolean", "keyword", "symbol",
        "instant", "uuid", "bytes",
    ];
    let schema: Vec<String> = types
        .iter()
        .map(|name| format!(":{name} {{:db/valueType :db.type/{name}}}"))
        .collect();
    let db = database(&format!("{{{}}}", schema.join(" ")));
    for (attribute, given, kept) in [
        ("string", "\"a\"", "\"a\""),
        ("long", "3.7", "3"),
        ("double", "3", "3.0"),
        ("float", "0.1", "0.1"),
        ("bigint", "5", "5N"),
        ("bigint", "-99999999999999999999N", "-99999999999999999999N"),
        ("bigdec", "1.5", "1.5M"),
        ("bigdec", "1.50M", "1.50M"),
        ("boolean", "\"true\"", "true"),
        ("keyword", "\":a/b\"", ":a/b"),
        ("symbol", "\"s\"", "s"),
        ("instant", "0", "#inst \"1970-01-01T00:00:00.000-00:00\""),
        (
            "uuid",
            "\"0f9a1c52-6f1e-4d0b-9d6e-8f1b2c3d4e5f\"",
            "#uuid \"0f9a1c52-6f1e-4d0b-9d6e-8f1b2c3d4e5f\"",
        ),
        (
            "bytes",
            "#datalevin/bytes \"AAAB\"",
            "#datalevin/bytes \"AAAB\"",
        ),
        ("anything", "{:a [1 #{2}]}", "{:a [1 #{2}]}"),
    ] {
        db.transact(&format!("[[:db/add 1 :{attribute} {given}]]"));
        let found = db.db.read(|moment| {
            let a = moment.attribute(&Name::new(attribute)).unwrap().id;
            moment.values(1, a)
        });
        assert_eq!(found.unwrap()[0].to_string(), kept, "{attribute} {given}");
    }
    for (attribute, wrong) in [
        ("long", "\"1\""),
        ("instant", "\"2020-01-01\""),
        ("uuid", "\"x\""),
        ("string", "1"),
        ("boolean", "1"),
        ("long", "nil"),
    ] {
        db.assert_refused(&format!("[[:db/add 1 :{attribute} {wrong}]]"));
    }
}

#[test]
fn what_cannot_be_understood_is_refused_by_name() {
    let db = database(PEOPLE);
    for (wrong, why) in [
        ("{}", "a transaction must be a vector"),
        ("[1]", "neither"),
        ("[{}]", "has no attributes"),
        ("[[:db/add 1 :age]]", "does not have the arguments"),
        ("[[:db/nothing 1]]", ":db/nothing is not an operation"),
        ("[[:db.fn/call f]]", ":db.fn/call is not an operation"),
        (
            "[[:db/add 99999999999999999 :age 1]]",
            "not the number of an entity",
        ),
        ("[[:db/add 1 5 1]]", "an attribute is a keyword"),
        ("[[:db/retract -1 :age 1]]", "additions only"),
        ("[[:db/add 1 :friend -7]]", "used only as a value"),
        ("[{:name \"X\" :_age 1}]", "to be a reference"),
    ] {
        let given = read(wrong).unwrap();
        let error = db.db.transact(&given).expect_err(wrong).to_string();
        assert!(error.contains(why), "{wrong}: {error}");
    }
}

#[test]
fn long_values_are_kept_whole() {
    let db = database(PEOPLE);
    let long = "x".repeat(5_000);
    let longer = format!("{long}y");
    db.transact(&format!(
        "[{{:name \"{long}\"}} {{:name \"{longer}\" :note \"{long}\"}}]"
    ));
    assert_eq!(db.all().len(), 3);
    db.transact(&format!("[{{:name \"{longer}\" :age 1}}]"));
    assert_eq!(
        db.facts_of(2),
        format!(":name \"{longer}\", :age 1, :note \"{long}\"")
    );
    db.transact("[[:db/retractEntity 2]]");
    assert_eq!(db.facts_of(1), format!(":name \"{long}\""));
}

#[test]
fn a_schema_changes_as_far_as_the_data_allows() {
    let db = database(PEOPLE);
    db.transact("[{:name \"Ada\" :aka [\"a\" \"b\"] :note 1} {:name \"Bob\" :note 1}]");
    let refused = |text: &str| {
        db.db
            .update_schema(&read(text).unwrap())
            .unwrap_err()
            .to_string()
    };
    assert!(
        refused("{:name {:db/valueType :db.type/long}}").contains("type of stored values is fixed")
    );
    assert!(refused("{:aka {:db/cardinality :db.cardinality/one}}").contains("several values"));
    assert!(refused("{:note {:db/unique :db.unique/value}}").contains("the same value"));
    assert!(refused("{:note {:db/valueType :db.type/string}}").contains("not of the new type"));
    assert!(refused("{:x {:db/isComponent true}}").contains("needs :db/valueType"));
    assert!(refused("{:x {:db/valueType :db.type/strange}}").contains("cannot have"));
    db.db
        .update_schema(&read("{:note {:db/valueType :db.type/long}}").unwrap())
        .unwrap();
    db.db
        .rename_attribute(&"note".into(), &"remark".into())
        .unwrap();
    assert_eq!(db.facts_of(2), ":name \"Bob\", :remark 1");
}

#[test]
fn a_closed_schema_takes_no_other_attributes() {
    let db = database(PEOPLE);
    let options = read("{:closed-schema? true}").unwrap();
    db.db.set_options(options.as_map().unwrap()).unwrap();
    assert!(
        db.assert_refused("[{:name \"Ada\" :other 1}]")
            .contains("the schema is closed")
    );
}

#[test]
fn everything_is_there_when_it_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    {
        let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
        db.transact(&read("[{:a 1 :b \"x\"}]").unwrap()).unwrap();
    }
    let closed = DbOptions {
        create: false,
        writable: false,
        ..DbOptions::default()
    };
    let db = Db::open(folder.path(), &closed).unwrap();
    assert_eq!(
        db.read(|moment| Ok(datoms(moment))).unwrap(),
        ["[1 :a 1]", "[1 :b \"x\"]"]
    );
    assert!(
        db.transact(&read("[{:a 2}]").unwrap())
            .unwrap_err()
            .to_string()
            .contains("reading only")
    );
    drop(db);
    let elsewhere = folder.path().join("none");
    assert!(Db::open(&elsewhere, &closed).is_err());
    assert!(
        !elsewhere.exists(),
        "what is opened for reading is not made"
    );
}

#[test]
fn it_is_said_when_entities_came_and_changed() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    let Value::Map(options) = read("{:auto-entity-time? true}").unwrap() else {
        panic!("a map");
    };
    db.set_options(&options).unwrap();
    let times = |e: u64| {
        let query =
            read("[:find [?c ?u] :in $ ?e :where [?e :db/created-at ?c] [?e :db/updated-at ?u]]");
        let inputs = [Value::Long(i64::try_from(e).unwrap())];
        let answer = db.query(&query.unwrap(), &inputs, &rung_datalog::Bounds::default());
        let row = answer.unwrap().rows.into_iter().next();
        row.map(|row| (row[0].as_i64().unwrap(), row[1].as_i64().unwrap()))
    };
    db.transact(&read("[{:db/id 1 :n 1} {:db/id 2 :n 2}]").unwrap())
        .unwrap();
    let (created, updated) = times(1).unwrap();
    assert_eq!(created, updated);
    std::thread::sleep(std::time::Duration::from_millis(5));
    db.transact(&read("[[:db/add 1 :n 3] [:db/retractEntity 2]]").unwrap())
        .unwrap();
    let (still, later) = times(1).unwrap();
    assert_eq!(still, created);
    assert!(later > updated);
    assert_eq!(times(2), None);
}
