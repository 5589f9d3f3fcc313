//! Full-text and vector search: indexes change in the same transaction as the facts.

#![allow(clippy::unwrap_used)]

use rung_datalog::{Bounds, Db, DbOptions};
use rung_edn::{Value, read};

fn ask(db: &Db, query: &str, inputs: &str) -> Result<String, String> {
    let inputs = read(&format!("[{inputs}]")).unwrap();
    let answer = db.query(
        &read(query).unwrap(),
        inputs.as_sequence().unwrap(),
        &Bounds::default(),
    );
    let mut rows: Vec<String> = match answer.map_err(|error| error.to_string())?.into_value() {
        Value::Set(rows) => rows.iter().map(ToString::to_string).collect(),
        other => vec![other.to_string()],
    };
    rows.sort();
    Ok(rows.join(" "))
}

#[test]
fn documents_are_found_by_their_words() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    let plain = "{:doc {:db/valueType :db.type/idoc} :page {:db/valueType :db.type/idoc :db/idocFormat :markdown :db/fulltext true}}";
    db.update_schema(&read(plain).unwrap()).unwrap();
    // Values that existed before the attribute was indexed are found as well.
    let data = "[{:db/id 1 :doc {:title \"The red fox\" :pages [{:text \"over\\nhills\"} {:text \"and dales\" :number 1729}]}}]";
    db.transact(&read(data).unwrap()).unwrap();
    let schema =
        "{:doc {:db/valueType :db.type/idoc :db/fulltext true :db.fulltext/autoDomain true}}";
    db.update_schema(&read(schema).unwrap()).unwrap();
    let data =
        "[{:db/id 2 :doc {:title \"A house\"}} {:db/id 3 :page \"# Old wolves\\n\\nThey sleep.\"}]";
    db.transact(&read(data).unwrap()).unwrap();
    let find = "[:find ?e ?a :in $ ?q :where [(fulltext $ ?q) [[?e ?a ?v]]]]";
    for (words, expected) in [
        ("\"fox\"", "[1 :doc]"),
        ("\"hills\"", "[1 :doc]"),
        ("\"1729\"", "[1 :doc]"),
        ("\"title\"", "[1 :doc] [2 :doc]"),
        ("\"sleep\"", "[3 :page]"),
        ("\"wolves\"", "[3 :page]"),
        ("[:and \"title\" \"house\"]", "[2 :doc]"),
        ("\"nothing\"", ""),
    ] {
        assert_eq!(ask(&db, find, words), Ok(expected.to_owned()), "{words}");
    }
    let own = "[:find ?v :in $ ?q :where [(fulltext $ :doc ?q) [[_ _ ?v]]]]";
    assert_eq!(
        ask(&db, own, "\"house\""),
        Ok("[{:title \"A house\"}]".to_owned())
    );
    // Changed values are found, old ones are not.
    let patch = "[[:db.fn/patchIdoc 2 :doc [[:set [:title] \"A barn\"]]] [:db/retractEntity 1]]";
    db.transact(&read(patch).unwrap()).unwrap();
    assert_eq!(ask(&db, find, "\"barn\""), Ok("[2 :doc]".to_owned()));
    assert_eq!(ask(&db, find, "\"house\""), Ok(String::new()));
    assert_eq!(ask(&db, find, "\"fox\""), Ok(String::new()));
}

#[test]
fn texts_are_found_by_their_words() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    // Values that existed before the attribute was indexed are found as well.
    db.transact(&read("[{:db/id 1 :note \"the red fox\"}]").unwrap())
        .unwrap();
    let schema = "{:note {:db/valueType :db.type/string :db/fulltext true}
                   :title {:db/valueType :db.type/string :db/fulltext true :db.fulltext/domains [\"titles\"] :db.fulltext/autoDomain true}}";
    db.update_schema(&read(schema).unwrap()).unwrap();
    let data = "[{:db/id 2 :note \"a red house\" :title \"Red\"} {:db/id 3 :note \"blue sea\" :title \"A fox\"}]";
    db.transact(&read(data).unwrap()).unwrap();
    let find = "[:find ?e ?a :in $ ?q :where [(fulltext $ ?q) [[?e ?a ?v]]]]";
    assert_eq!(
        ask(&db, find, "\"red\""),
        Ok("[1 :note] [2 :note] [2 :title]".to_owned())
    );
    assert_eq!(
        ask(&db, find, "[:and \"red\" \"fox\"]"),
        Ok("[1 :note]".to_owned())
    );
    let own = "[:find ?e ?v :in $ ?q :where [(fulltext $ :title ?q) [[?e _ ?v]]]]";
    assert_eq!(ask(&db, own, "\"fox\""), Ok("[3 \"A fox\"]".to_owned()));
    let within = "[:find ?e :in $ ?q :where [(fulltext $ ?q {:domains [\"titles\"]}) [[?e]]]]";
    assert_eq!(ask(&db, within, "\"red\""), Ok("[2]".to_owned()));
    // With a join.
    let joined = "[:find ?t :in $ ?q :where [(fulltext $ :note ?q) [[?e]]] [?e :title ?t]]";
    assert_eq!(ask(&db, joined, "\"red\""), Ok("[\"Red\"]".to_owned()));
    // Changed values are found, those of a failed transaction are not.
    db.transact(&read("[[:db/add 1 :note \"a grey wolf\"] [:db/retractEntity 2]]").unwrap())
        .unwrap();
    assert_eq!(ask(&db, find, "\"red\""), Ok(String::new()));
    assert_eq!(ask(&db, find, "\"wolf\""), Ok("[1 :note]".to_owned()));
    assert!(
        db.transact(&read("[{:db/id 5 :note \"wolf\"} [:db/cas 1 :note \"x\" \"y\"]]").unwrap())
            .is_err()
    );
    assert_eq!(ask(&db, find, "\"wolf\""), Ok("[1 :note]".to_owned()));
    drop(db);
    let reading = DbOptions {
        create: false,
        writable: false,
        ..DbOptions::default()
    };
    let db = Db::open(folder.path(), &reading).unwrap();
    assert_eq!(ask(&db, find, "\"wolf\""), Ok("[1 :note]".to_owned()));
    let best = db
        .fulltext(
            &Value::text("grey wolf fox"),
            &Value::Nil,
            &Bounds::default(),
        )
        .unwrap();
    assert_eq!(
        best[0][0],
        Value::Long(1),
        "who has more of the words comes first"
    );
    assert!(
        ask(
            &db,
            "[:find ?e :where [(fulltext $ :none \"x\") [[?e]]]]",
            ""
        )
        .is_err()
    );
}

#[test]
fn vectors_are_found_by_what_is_near() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    let Value::Map(options) = read("{:vector-opts {:dimensions 2}}").unwrap() else {
        panic!("a map");
    };
    db.set_options(&options).unwrap();
    db.update_schema(&read("{:at {:db/valueType :db.type/vec}}").unwrap())
        .unwrap();
    let data = "[{:db/id 1 :at [0 0] :n \"a\"} {:db/id 2 :at [1 0]} {:db/id 3 :at [5.5 5]}]";
    db.transact(&read(data).unwrap()).unwrap();
    let near = "[:find ?e ?d :in $ ?q :where [(vec-neighbors $ :at ?q {:top 2 :display :refs+dists}) [[?e _ _ ?d]]]]";
    assert_eq!(
        ask(&db, near, "[0.0 0.0]"),
        Ok("[1 0.0] [2 1.0]".to_owned())
    );
    db.transact(&read("[[:db/retractEntity 1] [:db/add 3 :at [0 1]]]").unwrap())
        .unwrap();
    assert_eq!(
        ask(&db, near, "[0.0 0.0]"),
        Ok("[2 1.0] [3 1.0]".to_owned())
    );
    assert!(
        db.transact(&read("[[:db/add 4 :at [1 2 3]]]").unwrap())
            .is_err(),
        "it has three numbers"
    );
    assert!(ask(&db, near, "[1.0]").is_err());
}

#[test]
fn what_no_index_can_be_made_with_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    db.update_schema(&read("{:note {:db/fulltext true}}").unwrap())
        .unwrap();
    for options in [
        "{:search-opts {:bogus 1}}",
        "{:vector-opts {:dimensions -1}}",
    ] {
        let Value::Map(options) = read(options).unwrap() else {
            panic!("a map");
        };
        let kept = db.set_options(&options);
        let schema = db.update_schema(&read("{:at {:db/valueType :db.type/vec}}").unwrap());
        assert!(kept.is_err() || schema.is_err());
    }
    drop(db);
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    db.transact(&read("[{:note \"still there\"}]").unwrap())
        .unwrap();
}

#[test]
fn an_attribute_moves_from_one_index_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    let schema = |domain: &str, on: bool| {
        let schema = format!("{{:note {{:db/fulltext {on} :db.fulltext/domains [\"{domain}\"]}}}}");
        db.update_schema(&read(&schema).unwrap()).unwrap();
    };
    schema("one", true);
    db.transact(&read("[{:db/id 1 :note \"red\"} {:db/id 2 :note \"red\"}]").unwrap())
        .unwrap();
    let find = |domain: &str| {
        ask(
            &db,
            &format!("[:find ?e :where [(fulltext $ \"red\" {{:domains [\"{domain}\"]}}) [[?e]]]]"),
            "",
        )
    };
    assert_eq!(find("one"), Ok("[1] [2]".to_owned()));
    schema("two", true);
    assert_eq!(find("two"), Ok("[1] [2]".to_owned()));
    schema("two", false);
    db.transact(&read("[[:db/retractEntity 1] {:db/id 3 :note \"red\"}]").unwrap())
        .unwrap();
    schema("one", true);
    assert_eq!(find("one"), Ok("[2] [3]".to_owned()));
    let top = "[:find ?e :where [(fulltext $ \"red\" {:top 2}) [[?e]]]]";
    assert_eq!(
        ask(&db, top, ""),
        Ok("[2] [3]".to_owned()),
        "nothing that is gone takes a place"
    );
}

#[test]
fn what_an_attribute_is_found_by_goes_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    let options = read("{:vector-opts {:dimensions 2}}").unwrap();
    db.set_options(options.as_map().unwrap()).unwrap();
    let schema = "{:at {:db/valueType :db.type/vec}
                   :note {:db/valueType :db.type/string :db/fulltext true :db.fulltext/autoDomain true}}";
    db.update_schema(&read(schema).unwrap()).unwrap();
    let data = "[{:db/id 1 :at [1.0 0.0] :note \"a red fox\"} {:db/id 2 :at [0.0 1.0]}]";
    db.transact(&read(data).unwrap()).unwrap();
    db.rename_attribute(&"at".into(), &"place".into()).unwrap();
    db.rename_attribute(&"note".into(), &"remark".into())
        .unwrap();
    let near = "[:find ?e ?a :where [(vec-neighbors $ [1.0 0.1] {:top 1}) [[?e ?a]]]]";
    assert_eq!(ask(&db, near, ""), Ok("[1 :place]".to_owned()));
    let named = "[:find ?e :where [(vec-neighbors $ :place [0.0 1.0] {:top 1}) [[?e]]]]";
    assert_eq!(ask(&db, named, ""), Ok("[2]".to_owned()));
    let words = "[:find ?e ?a :where [(fulltext $ \"fox\" {:domains [\"remark\"]}) [[?e ?a]]]]";
    assert_eq!(ask(&db, words, ""), Ok("[1 :remark]".to_owned()));
    db.transact(&read("[[:db/retract 1 :place [1.0 0.0]]]").unwrap())
        .unwrap();
    assert_eq!(ask(&db, near, ""), Ok("[2 :place]".to_owned()));
}
