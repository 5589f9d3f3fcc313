//! Queries: every form of query on a small database.

#![allow(clippy::unwrap_used)]

use rung_datalog::{Bounds, Db, DbOptions};
use rung_edn::{Value, read};
use tempfile::TempDir;

struct Fixture {
    _folder: TempDir,
    db: Db,
}

fn database() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    let schema = "{:name {:db/unique :db.unique/identity, :db/valueType :db.type/string}
                   :age {:db/valueType :db.type/long}
                   :height {:db/valueType :db.type/double}
                   :aka {:db/cardinality :db.cardinality/many, :db/valueType :db.type/string}
                   :friend {:db/valueType :db.type/ref, :db/cardinality :db.cardinality/many}
                   :boss {:db/valueType :db.type/ref}
                   :address {:db/valueType :db.type/ref, :db/isComponent true}
                   :follow {:db/valueType :db.type/ref, :db/cardinality :db.cardinality/many}}";
    db.update_schema(&read(schema).unwrap()).unwrap();
    let people = "[{:db/id 1 :db/ident :ada :name \"Ada\" :age 36 :height 1.6 :aka [\"Countess\" \"A\"] :friend [2 3] :address {:db/id 10 :street \"Main\" :no 5}}
                   {:db/id 2 :name \"Bob\" :age 36 :boss 1 :friend [1]}
                   {:db/id 3 :name \"Cy\" :age 12 :boss 2 :aka [\"C\"]}
                   {:db/id 4 :name \"Di\" :boss 3}
                   {:db/id 21 :follow [22]} {:db/id 22 :follow [23]} {:db/id 23 :follow [21 24]} {:db/id 24 :follow [25]} {:db/id 25 :x 1}]";
    db.transact(&read(people).unwrap()).unwrap();
    Fixture {
        _folder: folder,
        db,
    }
}

impl Fixture {
    fn ask(&self, query: &str, inputs: &str) -> Result<Value, String> {
        let inputs = read(&format!("[{inputs}]")).unwrap();
        let inputs = inputs.as_sequence().unwrap();
        let answer = self
            .db
            .query(&read(query).unwrap(), inputs, &Bounds::default());
        answer
            .map(rung_datalog::QueryResult::into_value)
            .map_err(|error| error.to_string())
    }
}

/// Checks cases of query, inputs and expected result; sets in any order.
fn check(cases: &[(&str, &str, &str)]) {
    let db = database();
    for (query, inputs, expected) in cases {
        let found = db
            .ask(query, inputs)
            .unwrap_or_else(|error| panic!("{query}: {error}"));
        assert_eq!(found, read(expected).unwrap(), "{query}: {found}");
    }
}

#[test]
fn inputs_name_entities_by_lookup_refs_and_idents() {
    check(&[
        (
            "[:find ?a :in $ [?x ...] :where [?x :age ?a]]",
            "[[:name \"Ada\"] [:name \"Bob\"] [:name \"Cy\"]]",
            "#{[36] [12]}",
        ),
        (
            "[:find ?x ?a :in $ [?x ...] :where [?x :age ?a]]",
            "[:ada [:name \"Cy\"] 2 [:name \"nobody\"]]",
            "#{[:ada 36] [[:name \"Cy\"] 12] [2 36]}",
        ),
        (
            "[:find ?w ?n :in $ [[?x ?w]] :where [?e :boss ?x] [?e :name ?n]]",
            "[[[:name \"Ada\"] 1] [[:name \"Cy\"] 2] [:ada 3]]",
            "#{[1 \"Bob\"] [2 \"Di\"] [3 \"Bob\"]}",
        ),
        (
            "[:find ?a :in $ [?x ?y] :where [?x :age ?a] [?x :friend ?y]]",
            "[:ada [:name \"Bob\"]]",
            "#{[36]}",
        ),
        // A name stands for itself where the attribute is not known, and for its entity where it is.
        (
            "[:find ?n ?a :in $ [?x ...] :where [?e ?a ?x] [?e :name ?n]]",
            "[:ada [:name \"Bob\"]]",
            "#{[\"Ada\" :db/ident]}",
        ),
        (
            "[:find ?n :in $ ?a [?x ...] :where [?e ?a ?x] [?e :name ?n]]",
            ":boss [:ada [:name \"Bob\"]]",
            "#{[\"Bob\"] [\"Cy\"]}",
        ),
        // Equality compares the input values: an entity is a number.
        (
            "[:find ?x ?e :in $ [?x ...] :where [?x :age] [?e :boss] [(= ?x ?e)]]",
            "[:ada [:name \"Bob\"] 2]",
            "#{[2 2]}",
        ),
    ]);
}

#[test]
fn rows_of_other_sources_name_entities() {
    check(&[(
        "[:find ?a :in $ $rows :where [$rows ?x] [?x :age ?a]]",
        "[[[:name \"Ada\"]] [[:name \"Cy\"]]]",
        "#{[36] [12]}",
    )]);
}

#[test]
fn rules_are_called_with_names_of_entities() {
    let rules = "[[(above ?e ?b) [?e :boss ?b]] [(above ?e ?b) [?e :boss ?x] (above ?x ?b)]]";
    let mutual = "[[(above ?e ?b) [?e :boss ?b]] [(above ?e ?b) (over ?e ?b)] [(over ?e ?b) [?e :boss ?x] (above ?x ?b)]]";
    let db = database();
    for rules in [rules, mutual] {
        for (query, given, expected) in [
            (
                "[:find ?x ?b :in $ % [?x ...] :where (above ?x ?b)]",
                "[[:name \"Di\"] [:name \"Cy\"]]",
                "#{[[:name \"Di\"] 3] [[:name \"Di\"] 2] [[:name \"Di\"] 1] [[:name \"Cy\"] 2] [[:name \"Cy\"] 1]}",
            ),
            (
                "[:find ?x ?y :in $ % [[?x ?y]] :where (above ?x ?y)]",
                "[[[:name \"Di\"] :ada] [:ada [:name \"Di\"]] [4 [:name \"Cy\"]]]",
                "#{[[:name \"Di\"] :ada] [4 [:name \"Cy\"]]}",
            ),
            // A name in one call is no answer to another call.
            (
                "[:find ?x ?b :in $ % ?n :where (above ?x ?n) (above ?x ?b)]",
                ":ada",
                "#{[2 1] [3 1] [3 2] [4 1] [4 2] [4 3]}",
            ),
            (
                "[:find ?x ?b :in $ % ?n :where (above [:name \"Di\"] ?n) (above ?x ?b)]",
                ":ada",
                "#{[2 1] [3 1] [3 2] [4 1] [4 2] [4 3]}",
            ),
        ] {
            let found = db.ask(query, &format!("{rules} {given}"));
            let found = found.unwrap_or_else(|error| panic!("{query}: {error}"));
            assert_eq!(found, read(expected).unwrap(), "{query}: {found}");
        }
    }
}

#[test]
fn each_recursion_of_a_pull_has_its_own_depth() {
    let db = database();
    let chain = "[{:db/id 31 :name \"a\" :boss 32 :follow [33]} {:db/id 32 :name \"b\" :boss 34 :follow [35]}
                  {:db/id 33 :name \"c\" :boss 36 :follow [37]} {:db/id 34 :name \"d\"} {:db/id 35 :name \"e\"}
                  {:db/id 36 :name \"f\"} {:db/id 37 :name \"g\" :boss 38} {:db/id 38 :name \"h\"}]";
    db.db.transact(&read(chain).unwrap()).unwrap();
    for (pattern, expected) in [
        (
            "[:name {:boss 1} {:follow 1}]",
            "{:name \"a\" :boss {:name \"b\" :follow [{:name \"e\"}]} :follow [{:name \"c\" :boss {:name \"f\"}}]}",
        ),
        (
            "[:name {:boss 1} {:follow 2}]",
            "{:name \"a\" :boss {:name \"b\" :follow [{:name \"e\"}]} :follow [{:name \"c\" :boss {:name \"f\"} :follow [{:name \"g\" :boss {:name \"h\"}}]}]}",
        ),
        (
            "[:name {:boss 1} {:follow ...}]",
            "{:name \"a\" :boss {:name \"b\" :follow [{:name \"e\"}]} :follow [{:name \"c\" :boss {:name \"f\"} :follow [{:name \"g\" :boss {:name \"h\"}}]}]}",
        ),
        (
            "[:name {:boss 2}]",
            "{:name \"a\" :boss {:name \"b\" :boss {:name \"d\"}}}",
        ),
    ] {
        let found = db
            .db
            .pull(&read(pattern).unwrap(), &Value::Long(31))
            .unwrap();
        assert_eq!(found, read(expected).unwrap(), "{pattern}: {found}");
    }
}

#[test]
fn floats_are_found_by_the_digits_they_are_written_with() {
    let db = database();
    let schema = "{:size {:db/valueType :db.type/float} :width {:db/valueType :db.type/double}
                   :pair {:db/valueType :db.type/tuple, :db/tupleTypes [:db.type/float :db.type/string]}}";
    db.db.update_schema(&read(schema).unwrap()).unwrap();
    let sizes = "[{:db/id 1 :size 1.73 :width 1.73 :pair [1.73 \"x\"]} {:db/id 2 :size 0.1 :width 1.73} {:db/id 3 :size 2.5 :width 0.1} {:db/id 4 :size -1.0E-30}]";
    db.db.transact(&read(sizes).unwrap()).unwrap();
    for (query, inputs, expected) in [
        ("[:find ?e :where [?e :size 1.73]]", "", "#{[1]}"),
        ("[:find ?v . :where [1 :size ?v]]", "", "1.73"),
        ("[:find ?e :in $ ?v :where [?e :size ?v]]", "1.73", "#{[1]}"),
        (
            "[:find ?e ?v :in $ [?v ...] :where [?e :size ?v]]",
            "[1.73 0.1 2.5 7.0 -1.0E-30]",
            "#{[1 1.73] [2 0.1] [3 2.5] [4 -1.0E-30]}",
        ),
        (
            "[:find ?e :where [?e :size ?v] [(= ?v 1.73)]]",
            "",
            "#{[1]}",
        ),
        (
            "[:find ?e :where [?e :size ?v] [(<= 0.1 ?v 1.73)]]",
            "",
            "#{[1] [2]}",
        ),
        (
            "[:find ?e :where [?e :size ?v] [(< ?v 1.73)]]",
            "",
            "#{[2] [4]}",
        ),
        (
            "[:find ?e ?f :where [?e :size ?v] [?f :width ?v]]",
            "",
            "#{[1 1] [1 2] [2 3]}",
        ),
        (
            "[:find ?e :where [?e :size ?v] [?e :width ?v] [?e :name ?n] [?e :age 36]]",
            "",
            "#{[1]}",
        ),
        (
            "[:find ?e ?a :where [?e ?a 1.73]]",
            "",
            "#{[1 :size] [1 :width] [2 :width]}",
        ),
        ("[:find ?a :where [1 ?a 1.73]]", "", "#{[:size] [:width]}"),
        ("[:find ?e :where [?e :pair [1.73 \"x\"]]]", "", "#{[1]}"),
        (
            "[:find ?e :where [?e :name] [(get-else $ ?e :size 0.0) ?v] [(= ?v 1.73)]]",
            "",
            "#{[1]}",
        ),
        ("[:find (sum ?v) . :where [1 :size ?v]]", "", "1.73"),
    ] {
        let found = db
            .ask(query, inputs)
            .unwrap_or_else(|error| panic!("{query}: {error}"));
        assert_eq!(found, read(expected).unwrap(), "{query}: {found}");
    }
    let pulled = db.db.pull(&read("[:size]").unwrap(), &Value::Long(1));
    assert_eq!(pulled.unwrap(), read("{:size 1.73}").unwrap());
}

#[test]
fn patterns_are_joined() {
    check(&[
        ("[:find ?e :where [?e :name \"Ada\"]]", "", "#{[1]}"),
        (
            "[:find ?n :where [?e :age 36] [?e :name ?n]]",
            "",
            "#{[\"Ada\"] [\"Bob\"]}",
        ),
        (
            "[:find ?n ?b :where [?e :boss ?x] [?x :name ?b] [?e :name ?n]]",
            "",
            "#{[\"Bob\" \"Ada\"] [\"Cy\" \"Bob\"] [\"Di\" \"Cy\"]}",
        ),
        ("[:find ?e :where [?e :boss :ada]]", "", "#{[2]}"),
        ("[:find ?e :where [?e :boss [:name \"Bob\"]]]", "", "#{[3]}"),
        (
            "[:find ?n :where [[:name \"Cy\"] :boss ?x] [?x :name ?n]]",
            "",
            "#{[\"Bob\"]}",
        ),
        ("[:find ?a :where [4 ?a _]]", "", "#{[:name] [:boss]}"),
        (
            "[:find ?e ?a :where [?e ?a 36]]",
            "",
            "#{[1 :age] [2 :age]}",
        ),
        ("[:find ?e :where [?e :aka]]", "", "#{[1] [3]}"),
        (
            "[:find ?a ?b :where [?a :friend ?b] [?b :friend ?a]]",
            "",
            "#{[1 2] [2 1]}",
        ),
        ("[:find ?e :where [?e :friend ?e]]", "", "#{}"),
        ("[:find ?e :where [?e :unknown 1]]", "", "#{}"),
        (
            "[:find ?x ?y :where [?x :name \"Ada\"] [?y :name \"Bob\"]]",
            "",
            "#{[1 2]}",
        ),
        ("[:find ?e :where [?e :height 1.6]]", "", "#{[1]}"),
        ("{:find [?e] :where [[?e :name \"Ada\"]]}", "", "#{[1]}"),
    ]);
}

#[test]
fn what_is_found_has_its_form() {
    check(&[
        (
            "[:find [?n ...] :where [?e :age 12] [?e :name ?n]]",
            "",
            "[\"Cy\"]",
        ),
        (
            "[:find [?n ?a] :where [3 :name ?n] [3 :age ?a]]",
            "",
            "[\"Cy\" 12]",
        ),
        ("[:find ?n . :where [3 :name ?n]]", "", "\"Cy\""),
        ("[:find ?n . :where [99 :name ?n]]", "", "nil"),
        ("[:find [?n ?m] :where [99 :name ?n] [99 :x ?m]]", "", "nil"),
        (
            "[:find ?n ?a :keys name age :where [?e :age ?a] [?e :name ?n] [(< ?a 20)]]",
            "",
            "#{{:name \"Cy\" :age 12}}",
        ),
        (
            "[:find ?n :strs n :where [3 :name ?n]]",
            "",
            "#{{\"n\" \"Cy\"}}",
        ),
        (
            "[:find (pull ?e [:name {:boss [:name]}]) :where [?e :name \"Cy\"]]",
            "",
            "[[{:name \"Cy\", :boss {:name \"Bob\"}}]]",
        ),
        (
            "[:find (pull ?e pattern) . :in $ ?n pattern :where [?e :name ?n]]",
            "\"Bob\" [:age]",
            "{:age 36}",
        ),
    ]);
}

#[test]
fn values_are_given() {
    check(&[
        (
            "[:find ?e :in $ ?n :where [?e :name ?n]]",
            "\"Bob\"",
            "#{[2]}",
        ),
        (
            "[:find ?e :in $ [?n ...] :where [?e :name ?n]]",
            "[\"Bob\" \"Di\" \"No\"]",
            "#{[2] [4]}",
        ),
        (
            "[:find ?e :in $ [?n ?a] :where [?e :name ?n] [?e :age ?a]]",
            "[\"Bob\" 36]",
            "#{[2]}",
        ),
        (
            "[:find ?n ?x :in $ [[?n ?x]] :where [_ :name ?n]]",
            "[[\"Bob\" 1] [\"Zed\" 2]]",
            "#{[\"Bob\" 1]}",
        ),
        (
            "[:find ?a :in $ ?e :where [?e :age ?a]]",
            "[:name \"Cy\"]",
            "#{[12]}",
        ),
        (
            "[:find ?a :in $ [?e ...] :where [?e :age ?a]]",
            "[[:name \"Cy\"] :ada]",
            "#{[12] [36]}",
        ),
        (
            "[:find ?n :in $ ?b :where [?e :boss ?b] [?e :name ?n]]",
            ":ada",
            "#{[\"Bob\"]}",
        ),
        ("[:find ?x :in [?x ...]]", "[1 2 1]", "#{[1] [2]}"),
        ("[:find ?x ?y :in ?x ?y]", "1 2", "#{[1 2]}"),
        (
            "[:find ?n ?z :in $ $more :where [?e :name ?n] [$more ?n ?z]]",
            "[[\"Ada\" :first] [\"Di\" :last]]",
            "#{[\"Ada\" :first] [\"Di\" :last]}",
        ),
        (
            "[:find ?e :in $ [?n ...] :where [?e :name ?n]]",
            "[]",
            "#{}",
        ),
        (
            "[:find ?e :in $ _ ?n :where [?e :name ?n]]",
            "5 \"Ada\"",
            "#{[1]}",
        ),
    ]);
}

#[test]
fn conditions_and_functions() {
    check(&[
        (
            "[:find ?e :where [?e :age ?a] [(> ?a 20)]]",
            "",
            "#{[1] [2]}",
        ),
        (
            "[:find ?e :where [?e :age ?a] [(<= 12 ?a 20)]]",
            "",
            "#{[3]}",
        ),
        (
            "[:find ?x :where [?e :age ?a] [(* ?a 2) ?x]]",
            "",
            "#{[72] [24]}",
        ),
        (
            "[:find ?x :where [?e :age ?a] [(+ (* ?a 2) 1) ?x]]",
            "",
            "#{[73] [25]}",
        ),
        (
            "[:find ?e ?a :where [?e :name] [(get-else $ ?e :age 0) ?a]]",
            "",
            "#{[1 36] [2 36] [3 12] [4 0]}",
        ),
        (
            "[:find ?e :where [?e :name] [(missing? $ ?e :age)]]",
            "",
            "#{[4]}",
        ),
        (
            "[:find ?a ?v :where [4 :name] [(get-some $ 4 :age :name) [?a ?v]]]",
            "",
            "#{[:name \"Di\"]}",
        ),
        (
            "[:find ?x :where [(ground [1 2 3]) [?x ...]] [(even? ?x)]]",
            "",
            "#{[2]}",
        ),
        (
            "[:find ?a ?b :where [(ground [[1 2] [3 4]]) [[?a ?b]]]]",
            "",
            "#{[1 2] [3 4]}",
        ),
        (
            "[:find ?a ?b :where [(ground [1 [2 3]]) [?a [_ ?b]]]]",
            "",
            "#{[1 3]}",
        ),
        (
            "[:find ?n :where [_ :name ?n] [(re-find \"^[AB]\" ?n)]]",
            "",
            "#{[\"Ada\"] [\"Bob\"]}",
        ),
        (
            "[:find ?n :where [_ :name ?n] [(like ?n \"%d%\")]]",
            "",
            "#{[\"Ada\"]}",
        ),
        (
            "[:find ?n :where [_ :name ?n] [(in ?n [\"Cy\" \"Di\"])]]",
            "",
            "#{[\"Cy\"] [\"Di\"]}",
        ),
        (
            "[:find ?s . :where [1 :name ?n] [(str ?n \"-\" 1 :k nil) ?s]]",
            "",
            "\"Ada-1:k\"",
        ),
        (
            "[:find ?e :where [?e :age ?a] [(= ?a 36)] [?e :boss]]",
            "",
            "#{[2]}",
        ),
        (
            "[:find ?a :where [1 :age ?a] [(identity ?a) ?b] [(= ?a ?b)]]",
            "",
            "#{[36]}",
        ),
        (
            "[:find ?a :where [?e :age ?a] [(- ?a 24) ?b] [?f :age ?b]]",
            "",
            "#{[36]}",
        ),
        (
            "[:find ?x . :in $ ?f :where [1 :age ?a] [(?f ?a) ?x]]",
            "inc",
            "37",
        ),
        (
            "[:find ?n :where [(q [:find [?x ...] :where [?x :age 36]] $) [?e ...]] [?e :name ?n]]",
            "",
            "#{[\"Ada\"] [\"Bob\"]}",
        ),
        ("[:find ?x . :where [(apply + 1 [2 3]) ?x]]", "", "6"),
        ("[:find ?x . :where [(/ 1 2) ?x]]", "", "1/2"),
        ("[:find ?x . :where [(and 1 (or nil false 2)) ?x]]", "", "2"),
    ]);
}

#[test]
fn what_is_left_of_the_smallest_number_fits() {
    check(&[(
        "[:find ?x ?y :in $ ?n :where [(rem ?n -1) ?x] [(mod ?n -1) ?y]]",
        "-9223372036854775808",
        "#{[0 0]}",
    )]);
}

#[test]
fn what_does_not_hold_and_what_may() {
    check(&[
        (
            "[:find ?n :where [?e :name ?n] (not [?e :age])]",
            "",
            "#{[\"Di\"]}",
        ),
        (
            "[:find ?n :where [?e :name ?n] (not [?e :age ?a] [(> ?a 20)])]",
            "",
            "#{[\"Cy\"] [\"Di\"]}",
        ),
        (
            "[:find ?n :where [?e :name ?n] (not-join [?e] [?x :boss ?e] [?x :age ?a] [(< ?a 20)])]",
            "",
            "#{[\"Ada\"] [\"Cy\"] [\"Di\"]}",
        ),
        (
            "[:find ?n :where [?e :name ?n] (or [?e :age 12] [?e :aka \"A\"])]",
            "",
            "#{[\"Cy\"] [\"Ada\"]}",
        ),
        (
            "[:find ?n :where [?e :name ?n] (or-join [?e] [?e :age 12] (and [?x :boss ?e] [?x :age 36]))]",
            "",
            "#{[\"Cy\"] [\"Ada\"]}",
        ),
        (
            "[:find ?e ?y :where (or-join [?e ?y] (and [?e :age ?y]) (and [?e :boss ?y]))]",
            "",
            "#{[1 36] [2 36] [3 12] [2 1] [3 2] [4 3]}",
        ),
        (
            "[:find ?n :where [?e :name ?n] (or (not [?e :age]) [?e :age 12])]",
            "",
            "#{[\"Di\"] [\"Cy\"]}",
        ),
        (
            "[:find ?x :where (or [(ground 1) ?x] [(ground 2) ?x])]",
            "",
            "#{[1] [2]}",
        ),
    ]);
}

#[test]
fn rules_call_themselves() {
    let left = "[[(leads ?x ?y) [?x :follow ?y]] [(leads ?x ?y) (leads ?x ?z) [?z :follow ?y]]]";
    let right = "[[(leads ?x ?y) [?x :follow ?y]] [(leads ?x ?y) [?x :follow ?z] (leads ?z ?y)]]";
    let both = "[[(leads ?x ?y) [?x :follow ?y]] [(leads ?x ?y) (leads ?x ?z) (leads ?z ?y)]]";
    for rules in [left, right, both] {
        check(&[
            (
                "[:find ?y :in $ % :where (leads 21 ?y)]",
                rules,
                "#{[21] [22] [23] [24] [25]}",
            ),
            (
                "[:find ?y :in $ % ?x :where (leads ?x ?y)]",
                &format!("{rules} 24"),
                "#{[25]}",
            ),
            (
                "[:find ?x :in $ % :where (leads ?x 25)]",
                rules,
                "#{[21] [22] [23] [24]}",
            ),
            (
                "[:find ?x ?y :in $ % :where (leads ?x ?y) [?x :follow 25]]",
                rules,
                "#{[24 25]}",
            ),
            (
                "[:find (count ?y) . :in $ % :where [?x :follow] (leads ?x ?y)]",
                rules,
                "5",
            ),
            (
                "[:find ?x . :in $ % :where [?x :x] (leads 21 ?x)]",
                rules,
                "25",
            ),
        ]);
    }
    // Recursive calls with unchanged and with swapped arguments are evaluated apart from the base branch.
    let passed = "[[(r ?a ?k ?b) [?a :follow ?b]] [(r ?a ?k ?b) [?a :follow ?m] (r ?m ?k ?b)]]";
    let turned = "[[(r ?a ?b ?y) [?a :friend ?b] [?b :age ?y]] [(r ?a ?b ?y) [?a :friend ?b] (r ?b ?a ?y)] [(r ?a ?b ?y) [?a :friend ?b] (r ?a ?a ?y)]]";
    check(&[
        (
            "[:find ?b :in $ % :where (r 21 :x ?b)]",
            passed,
            "#{[21] [22] [23] [24] [25]}",
        ),
        ("[:find ?y :in $ % :where (r 1 3 ?y)]", turned, "#{[12]}"),
    ]);
    // Required arguments of a rule are bound before the call.
    let older =
        "[[(older ?x ?y) [(> ?x ?y)]] [(next ?x ?y) (after ?x ?y)] [(after ?x ?y) [(+ ?x 1) ?y]]]";
    check(&[
        (
            "[:find ?n ?o :in $ % :where [?e :age ?x] [?f :age ?y] (older ?x ?y) [?e :name ?n] [?f :name ?o]]",
            older,
            "#{[\"Ada\" \"Cy\"] [\"Bob\" \"Cy\"]}",
        ),
        (
            "[:find ?x ?y :in $ % :where [?e :boss ?x] (next ?x ?y) [?y :boss ?x]]",
            older,
            "#{[1 2] [2 3] [3 4]}",
        ),
    ]);
    let odd = "[[(odd ?x ?y) [?x :follow ?y]] [(odd ?x ?y) [?x :follow ?z] (even ?z ?y)] [(even ?x ?y) [?x :follow ?z] (odd ?z ?y)]]";
    let unlike = "[[(far ?x ?y) (leads ?x ?y) (not [?x :follow ?y])] [(leads ?x ?y) [?x :follow ?y]] [(leads ?x ?y) [?x :follow ?z] (leads ?z ?y)]]";
    check(&[
        ("[:find ?y :in $ % :where (odd 24 ?y)]", odd, "#{[25]}"),
        (
            "[:find ?y :in $ % :where (even 23 ?y)]",
            odd,
            "#{[22] [21] [23] [24] [25]}",
        ),
        (
            "[:find ?y :in $ % :where (far 22 ?y)]",
            unlike,
            "#{[21] [22] [24] [25]}",
        ),
        (
            "[:find ?e :in $ % :where (known ?e 36)]",
            "[[(known ?e ?a) (or-join [?e ?a] [?e :age ?a] (and [?x :boss ?e] (known ?x ?a)))]]",
            "#{[1] [2]}",
        ),
    ]);
}

#[test]
fn groups_and_order() {
    check(&[
        ("[:find (count ?e) . :where [?e :name]]", "", "4"),
        (
            "[:find ?a (count ?e) :where [?e :age ?a]]",
            "",
            "[[12 1] [36 2]]",
        ),
        (
            "[:find (sum ?a) (avg ?a) (median ?a) :with ?e :where [?e :age ?a]]",
            "",
            "[[84 28.0 36]]",
        ),
        ("[:find (sum ?a) . :where [?e :age ?a]]", "", "48"),
        (
            "[:find (min ?a) (max ?a) (count-distinct ?a) :with ?e :where [?e :age ?a]]",
            "",
            "[[12 36 2]]",
        ),
        ("[:find (min 2 ?e) . :where [?e :name]]", "", "[1 2]"),
        ("[:find (max 2 ?e) . :where [?e :name]]", "", "[3 4]"),
        (
            "[:find (distinct ?a) . :where [?e :age ?a]]",
            "",
            "#{12 36}",
        ),
        (
            "[:find (+ (sum ?a) (* 2 (count ?e))) . :where [?e :age ?a]]",
            "",
            "90",
        ),
        (
            "[:find ?n ?a :where [?e :name ?n] [?e :age ?a] :order-by [?a :desc ?n :asc]]",
            "",
            "[[\"Ada\" 36] [\"Bob\" 36] [\"Cy\" 12]]",
        ),
        (
            "[:find ?n :where [?e :name ?n] :order-by ?n :limit 2]",
            "",
            "[[\"Ada\"] [\"Bob\"]]",
        ),
        (
            "[:find ?n :where [?e :name ?n] :order-by [0 :desc] :offset 1 :limit 2]",
            "",
            "[[\"Cy\"] [\"Bob\"]]",
        ),
        (
            "[:find ?n :in $ ?l :where [?e :name ?n] :order-by ?n :limit ?l]",
            "1",
            "[[\"Ada\"]]",
        ),
        (
            "[:find ?a (count ?e) :where [?e :age ?a] :having [(> (count ?e) 1)]]",
            "",
            "[[36 2]]",
        ),
    ]);
}

#[test]
fn what_cannot_be_answered_says_why() {
    let db = database();
    for (query, inputs, why) in [
        (
            "[:find ?x :where [?e :name]]",
            "",
            "?x is in :find, but no clause or input has it",
        ),
        (
            "[:find ?e :where [?e :age ?a] [(slurp \"x\")]]",
            "",
            "slurp is not a built-in function",
        ),
        (
            "[:find ?e :where [?e :age ?a] [(clojure.core/slurp \"x\") ?y]]",
            "",
            "clojure.core/slurp is not a built-in function",
        ),
        (
            "[:find ?e :where [?e :age ?a] [(.exec ?a)]]",
            "",
            ".exec is not a built-in function",
        ),
        (
            "[:find ?e :where [?e :age] [(< ?b 3)]]",
            "",
            "no clause or input binds ?b",
        ),
        (
            "[:find ?e :in $ ?x :where [?e :age ?x]]",
            "",
            "takes 1 inputs besides the database; 0 were passed",
        ),
        ("[:find ?e :where [?e :age 1]]", "5", "takes 0 inputs"),
        ("[:find ?e :where (leads ?e 1)]", "", "name % in :in"),
        (
            "[:find ?e :in $ % :where (nope ?e 1)]",
            "[]",
            "the rule nope does not exist",
        ),
        (
            "[:find ?e :in $ % :where (r ?e)]",
            "[[(r ?x ?y) [?x :age ?y]]]",
            "takes 2 arguments",
        ),
        (
            "[:find ?e :in $ % :where (r ?e)]",
            "[[(r ?x) [?x :age] (not (r ?x))]]",
            "calls itself within not",
        ),
        (
            "[:find ?e :where (or [?e :age 1] [?f :age 2])]",
            "",
            "must have the same variables",
        ),
        ("[:find ?e :wher [?e :age 1]]", "", ":wher is a constant"),
        (
            "[:find ?e :where [?e :age 1] :order-by ?x]",
            "",
            "is not in :find",
        ),
        (
            "[:find ?e :where [$other ?e :age 1]]",
            "",
            "the source $other",
        ),
        (
            "[:find (total ?e) :where [?e :age]]",
            "",
            "total is not an aggregate",
        ),
        (
            "[:find ?x :where [1 :age ?a] [(/ ?a 0) ?x]]",
            "",
            "division by zero",
        ),
        (
            "[:find ?x :where [1 :age ?a] [(+ ?a \"x\") ?x]]",
            "",
            "\"x\" is not a number",
        ),
        (
            "[:find ?x :where [1 :age ?a] [(* 9223372036854775807 ?a) ?x]]",
            "",
            "64-bit",
        ),
    ] {
        let error = db.ask(query, inputs).expect_err(query);
        assert!(error.contains(why), "{query}: {error}");
    }
}

#[test]
fn a_query_ends_when_it_must() {
    let db = database();
    let rows: Vec<String> = (0..400)
        .map(|n| format!("[:db/add {} :n {n}]", n + 1_000))
        .collect();
    db.db
        .transact(&read(&format!("[{}]", rows.join(" "))).unwrap())
        .unwrap();
    let product =
        read("[:find (count ?a) . :with ?b ?c ?d :where [?a :n] [?b :n] [?c :n] [?d :n]]").unwrap();
    let bounds = Bounds {
        max_ms: Some(30),
        ..Bounds::default()
    };
    let began = std::time::Instant::now();
    let error = db.db.query(&product, &[], &bounds).unwrap_err();
    assert!(error.to_string().contains("30 ms"), "{error}");
    assert!(began.elapsed().as_millis() < 2_000);
    let error = db.ask("[:find (count ?a) . :where [?a :n ?x] [?b :n ?y] [?c :n ?z] [(< ?x ?y ?z)] :timeout 20]", "").unwrap_err();
    assert!(error.contains("20 ms"), "{error}");
    let bounds = Bounds {
        max_bytes: 1 << 20,
        ..Bounds::default()
    };
    let error = db
        .db
        .query(
            &read("[:find ?a ?b ?c :where [?a :n] [?b :n] [?c :n]]").unwrap(),
            &[],
            &bounds,
        )
        .unwrap_err();
    assert!(error.to_string().contains("1048576 bytes"), "{error}");
}

/// Regression: two components on each level, each with the same two components. Every level doubled the result without a limit.
#[test]
fn a_pull_ends_when_it_must() {
    let db = database();
    let schema = "{:part {:db/valueType :db.type/ref, :db/isComponent true, :db/cardinality :db.cardinality/many}}";
    db.db.update_schema(&read(schema).unwrap()).unwrap();
    let levels: Vec<String> = (500..700)
        .step_by(2)
        .map(|e| {
            let parts = format!("[{} {}]", e + 2, e + 3);
            format!(
                "{{:db/id {e} :part {parts}}} {{:db/id {} :part {parts}}}",
                e + 1
            )
        })
        .collect();
    let levels = format!("[{}]", levels.join(" "));
    db.db.transact(&read(&levels).unwrap()).unwrap();
    let pulled = |pattern: &str, bounds: &Bounds| {
        let pattern = read(pattern).unwrap();
        let told = db.db.pull_with_bounds(&pattern, &Value::Long(500), bounds);
        told.expect_err("there is no end to it").to_string()
    };
    let asked = |bounds: &Bounds| {
        let query = read("[:find (pull ?e [*]) . :where [?e :part 502]]").unwrap();
        let told = db.db.query(&query, &[], bounds);
        told.expect_err("there is no end to it").to_string()
    };
    let few = Bounds {
        max_bytes: 1 << 20,
        ..Bounds::default()
    };
    let short = Bounds {
        max_ms: Some(20),
        ..Bounds::default()
    };
    let gone = Bounds {
        cancelled: Some(std::sync::Arc::new(true.into())),
        ..Bounds::default()
    };
    for pattern in ["[*]", "[{:part ...}]", "[{:part 150}]"] {
        assert!(pulled(pattern, &few).contains("1048576 bytes"));
        assert!(pulled(pattern, &short).contains("20 ms"));
        assert!(!pulled(pattern, &gone).is_empty());
    }
    assert!(asked(&few).contains("1048576 bytes"));
    assert!(asked(&short).contains("20 ms"));
}

#[test]
fn a_plan_is_shown_with_what_was_expected_and_found() {
    let db = database();
    let query =
        read("[:find ?n :where [?e :name ?n] [?e :age ?a] [(> ?a 20)] [?e :aka \"A\"]]").unwrap();
    let (answer, steps) = db.db.explain(&query, &[], &Bounds::default()).unwrap();
    assert_eq!(answer.rows.len(), 1);
    assert_eq!(steps[0].clause, "[?e :aka \"A\"]");
    assert_eq!((steps[0].expected, steps[0].rows), (Some(1), 1));
    assert_eq!(steps.len(), 4);
}

#[test]
fn entities_are_pulled() {
    let db = database();
    let pull = |pattern: &str, entity: &str| {
        let found = db.db.pull(&read(pattern).unwrap(), &read(entity).unwrap());
        found.map_or_else(|error| error.to_string(), |value| value.to_string())
    };
    for (pattern, entity, expected) in [
        ("[:name :age :none]", "1", "{:name \"Ada\", :age 36}"),
        (
            "[*]",
            "3",
            "{:db/id 3, :name \"Cy\", :age 12, :aka [\"C\"], :boss {:db/id 2}}",
        ),
        (
            "[\"*\"]",
            ":ada",
            "{:db/id 1, :db/ident :ada, :name \"Ada\", :age 36, :height 1.6, :aka [\"A\" \"Countess\"], :friend [{:db/id 2} {:db/id 3}], :address {:db/id 10, :street \"Main\", :no 5}}",
        ),
        (
            "[:name {:boss [:name]}]",
            "[:name \"Cy\"]",
            "{:name \"Cy\", :boss {:name \"Bob\"}}",
        ),
        (
            "[:name {:boss ...}]",
            "4",
            "{:name \"Di\", :boss {:name \"Cy\", :boss {:name \"Bob\", :boss {:name \"Ada\"}}}}",
        ),
        (
            "[:name {:boss 1}]",
            "4",
            "{:name \"Di\", :boss {:name \"Cy\"}}",
        ),
        (
            "[:db/id {:follow ...}]",
            "21",
            "{:db/id 21, :follow [{:db/id 22, :follow [{:db/id 23, :follow [{:db/id 21, :follow [{:db/id 22}]} {:db/id 24, :follow [{:db/id 25}]}]}]}]}",
        ),
        ("[:_boss]", "1", "{:_boss [{:db/id 2}]}"),
        ("[{:_boss [:name]}]", "1", "{:_boss [{:name \"Bob\"}]}"),
        ("[:_address]", "10", "{:_address {:db/id 1}}"),
        (
            "[[:name :as :called] [:none :default 5] [:aka :limit 1]]",
            "1",
            "{:called \"Ada\", :none 5, :aka [\"A\"]}",
        ),
        (
            "[(limit :aka 1) (default :none 7)]",
            "1",
            "{:aka [\"A\"], :none 7}",
        ),
        ("[[:age :xform inc]]", "1", "{:age 37}"),
        ("[:name]", "99", "nil"),
        ("[:name]", "[:name \"No\"]", "nil"),
        (
            "[{:name [:x]}]",
            "1",
            ":name is not a reference, so no entity can be pulled through it",
        ),
        (
            "[:_name]",
            "1",
            ":_name reverses :name, which is not a reference",
        ),
        (
            "[5]",
            "1",
            "5 is not a part of a pull pattern; a part is an attribute, a map or *",
        ),
        (
            "[[:age :xform slurp]]",
            "1",
            "slurp is not a built-in function; a rule is called as a clause of its own, (rule ?x)",
        ),
    ] {
        assert_eq!(pull(pattern, entity), expected, "{pattern}");
    }
}

#[test]
fn memory_that_is_let_go_of_can_be_had_again() {
    let db = database();
    let rows: Vec<String> = (0..1_000)
        .map(|n| format!("[:db/add {} :n {n}]", n + 1_000))
        .collect();
    let data = format!("[{}]", rows.join(" "));
    db.db.transact(&read(&data).unwrap()).unwrap();
    let steps: Vec<String> = (0..20).map(|n| format!("[(not= ?n {n})]")).collect();
    let query = format!("[:find ?e ?n :where [?e :n ?n] {}]", steps.join(" "));
    let bounds = Bounds {
        max_bytes: 200_000,
        ..Bounds::default()
    };
    let answer = db.db.query(&read(&query).unwrap(), &[], &bounds).unwrap();
    assert_eq!(answer.rows.len(), 980);
}

#[test]
fn what_grows_round_by_round_ends_in_an_error() {
    let db = database();
    for (grows, from) in [
        ("[(vector ?y) ?x]", "1"),
        ("[(vector ?y ?y) ?x]", "1"),
        ("[(str ?y ?y) ?x]", "\"ab\""),
        ("[(* ?y ?y) ?x]", "99999999999999999999N"),
        ("[(hash-map ?y ?y) ?x]", "1"),
    ] {
        let rules = format!("[[(r ?x) [(ground {from}) ?x]] [(r ?x) (r ?y) {grows}]]");
        let error = db
            .ask(
                "[:find (count ?x) . :in $ % :where (r ?x) :timeout 20000]",
                &rules,
            )
            .expect_err(grows);
        assert!(
            error.contains("too large")
                || error.contains("too many digits")
                || error.contains("bytes"),
            "{grows}: {error}"
        );
    }
}
