//! Plans: where a query begins, when it stops, and what it keeps in memory. Other tests check the results.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use rung_datalog::{Bounds, Db, DbOptions, Error, PlanStep};
use rung_edn::{Value, read};
use tempfile::TempDir;

const FILMS: usize = 20_000;

/// Films of which nearly all have the same kind and few have a rare word, and a long chain.
fn films() -> (TempDir, Db) {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    let schema = "{:film/kind {:db/valueType :db.type/keyword}
                   :film/year {:db/valueType :db.type/long}
                   :word/film {:db/valueType :db.type/ref}
                   :word/text {:db/valueType :db.type/string}
                   :next {:db/valueType :db.type/ref}}";
    db.update_schema(&read(schema).unwrap()).unwrap();
    let mut text = "[".to_owned();
    for n in 1..=FILMS {
        let kind = if n % 50 == 0 { ":short" } else { ":long" };
        let word = if n % 4_000 == 0 { "rare" } else { "common" };
        let year = 1900 + n % 120;
        write!(
            text,
            "{{:db/id {n} :film/kind {kind} :film/year {year} :next {}}}
             {{:db/id {} :word/film {n} :word/text \"{word}\"}}",
            n % FILMS + 1,
            FILMS + n
        )
        .unwrap();
    }
    text.push(']');
    db.transact(&read(&text).unwrap()).unwrap();
    (folder, db)
}

fn explain(db: &Db, query: &str) -> (Vec<Vec<Value>>, Vec<PlanStep>) {
    let query = read(query).unwrap();
    let (answer, steps) = db.explain(&query, &[], &Bounds::default()).unwrap();
    (answer.rows, steps)
}

#[test]
fn a_query_begins_where_there_is_least() {
    let (_folder, db) = films();
    let (rows, steps) = explain(
        &db,
        "[:find ?f ?y :where [?f :film/kind :long] [?f :film/year ?y] [?w :word/film ?f] [?w :word/text \"rare\"]]",
    );
    assert_eq!(rows.len(), 0, "every rare film is short");
    assert!(steps[0].clause.contains("rare"), "{steps:?}");
    let (rows, steps) = explain(
        &db,
        "[:find ?w :where [?w :word/text \"common\"] [?w :word/film ?f] [?f :film/year ?y] [(> ?y 1990)] [?f :film/kind :short]]",
    );
    assert_eq!(rows.len(), 67);
    assert!(steps[0].clause.contains(":short"), "{steps:?}");
    let expected = steps[0].expected.unwrap();
    assert!((200..=800).contains(&expected), "about 400: {expected}");
}

#[test]
fn a_plan_that_came_true_is_followed_again() {
    let (_folder, db) = films();
    let query = "[:find (count ?w) . :where [?f :film/kind :short] [?w :word/film ?f] [?w :word/text \"common\"]]";
    let (first, before) = explain(&db, query);
    let (second, after) = explain(&db, query);
    assert_eq!(first, second);
    assert_eq!(
        after[0].expected,
        Some(before[0].rows),
        "what was found is expected now"
    );
    // After new films the stored plan is wrong, but the result is right.
    let mut text = "[".to_owned();
    for n in 1..=FILMS {
        write!(text, "[:db/add {n} :film/kind :short]").unwrap();
    }
    text.push(']');
    db.transact(&read(&text).unwrap()).unwrap();
    let (rows, _) = explain(&db, query);
    assert_eq!(rows, [[Value::Long(19_995)]]);
}

/// Clauses that were merged for few rows are evaluated one by one for many, and clauses that depend on them come later.
#[test]
fn a_plan_is_followed_with_other_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    let schema = "{:k {:db/valueType :db.type/long} :a {:db/valueType :db.type/long} :b {:db/valueType :db.type/long} :c {:db/valueType :db.type/long}}";
    db.update_schema(&read(schema).unwrap()).unwrap();
    let mut text = "[".to_owned();
    for n in 1..=3_000 {
        write!(
            text,
            "{{:db/id {n} :k {} :a {} :b {} :c {}}}",
            n % 40,
            n % 7,
            n % 11,
            n % 13
        )
        .unwrap();
    }
    text.push(']');
    db.transact(&read(&text).unwrap()).unwrap();
    let query = read("[:find (count ?e) (sum ?z) :in $ [?k ...] :where [?e :k ?k] [?e :a ?a] [?e :b ?b] [?e :c ?c] (or-join [[?c] ?z] [(+ ?c 1) ?z] (and [?z :c ?c] [(> ?c 13)]))]").unwrap();
    for most in [13, 38, 5, 39] {
        let keys: Vec<Value> = (0..=most).map(Value::Long).collect();
        let answer = db
            .query(&query, &[Value::Vector(keys)], &Bounds::default())
            .unwrap();
        let (mut count, mut sum) = (0, 0);
        for n in (1..=3_000).filter(|n| n % 40 <= most) {
            count += 1;
            sum += n % 13 + 1;
        }
        assert_eq!(answer.rows, [[Value::Long(count), Value::Long(sum)]]);
    }
}

#[test]
fn what_must_be_equal_is_looked_up() {
    let (_folder, db) = films();
    let query = "[:find (count ?f) . :where [?f :film/year ?y] [?g :next ?n] [(= ?f ?n)] [?g :film/kind :short]]";
    let (rows, steps) = explain(&db, query);
    assert_eq!(rows, [[Value::Long(400)]]);
    let most = steps.iter().map(|step| step.rows).max().unwrap();
    assert!(most <= FILMS, "{steps:?}");
    // Duplicate input values count once.
    let query =
        read("[:find ?f ?g :in $ [?y ...] :where [?f :film/year ?y] [?g :film/year ?y]]").unwrap();
    let years: Vec<Value> = (0..10_000).map(|n| Value::Long(1900 + n % 2)).collect();
    let answer = db
        .query(&query, &[Value::Vector(years)], &Bounds::default())
        .unwrap();
    assert_eq!(answer.rows.len(), 166 * 166 + 167 * 167);
}

#[test]
fn a_limit_stops_the_work() {
    let (_folder, db) = films();
    let query = "[:find ?f ?y :where [?f :film/year ?y] [?f :film/kind :long] :limit 5 :offset 2]";
    let (rows, steps) = explain(&db, query);
    assert_eq!(rows.len(), 5);
    let most = steps.iter().map(|step| step.rows).max().unwrap();
    assert!(most <= 256, "{steps:?}");
    let (rows, steps) = explain(&db, "[:find ?f . :where [?f :film/year ?y]]");
    assert_eq!(rows.len(), 1);
    assert!(steps[0].rows <= 256, "{steps:?}");
    // A limit above the number of rows, no limit, and more than one chunk.
    for (limit, there) in [(50_000, FILMS), (-1, FILMS), (7_000, 7_000)] {
        let query = format!("[:find ?f ?y :where [?f :film/year ?y] :limit {limit}]");
        let (rows, _) = explain(&db, &query);
        assert_eq!(rows.into_iter().collect::<BTreeSet<_>>().len(), there);
    }
}

#[test]
fn the_first_of_an_order_are_those_of_all() {
    let (_folder, db) = films();
    let query = "[:find ?y ?f :where [?f :film/year ?y] [?f :film/kind :short] :order-by [?y :desc ?f :asc]";
    let (all, _) = explain(&db, &format!("{query}]"));
    let (some, _) = explain(&db, &format!("{query} :limit 9 :offset 3]"));
    assert_eq!(all.len(), FILMS / 50);
    assert_eq!(some, all[3..12]);
}

#[test]
fn rows_flow_in_little_memory() {
    let (_folder, db) = films();
    let query = read("[:find ?f ?y ?w :where [?f :film/year ?y] [?w :word/film ?f]]").unwrap();
    let bounds = Bounds {
        max_bytes: 1_200_000,
        ..Bounds::default()
    };
    let whole = db.query(&query, &[], &bounds);
    assert!(matches!(whole, Err(Error::TooLarge { .. })), "{whole:?}");
    let whole = db.query(&query, &[], &Bounds::default()).unwrap();
    let mut pieces = Vec::new();
    let bounds = Bounds {
        max_bytes: 6_000_000,
        ..Bounds::default()
    };
    let head = db
        .visit_rows(&query, &[], &bounds, &mut |_, row| {
            pieces.push(row);
            Ok(true)
        })
        .unwrap();
    assert_eq!(head.columns, ["?f", "?y", "?w"]);
    assert_eq!(pieces.len(), FILMS);
    assert_eq!(
        pieces.into_iter().collect::<BTreeSet<_>>(),
        whole.rows.into_iter().collect::<BTreeSet<_>>()
    );
    // A row that is found in several chunks is returned once.
    let query = read("[:find ?y :where [?f :film/year ?y]]").unwrap();
    let mut years = Vec::new();
    let mut take = |_: &_, row| {
        years.push(row);
        Ok(true)
    };
    db.visit_rows(&query, &[], &Bounds::default(), &mut take)
        .unwrap();
    assert_eq!(years.len(), 120);
    assert_eq!(years.into_iter().collect::<BTreeSet<_>>().len(), 120);
}

#[test]
fn whoever_has_enough_is_told_no_more() {
    let (_folder, db) = films();
    let query = read("[:find ?f ?y :where [?f :film/year ?y]]").unwrap();
    let mut taken = 0;
    let mut take = |_: &_, _| {
        taken += 1;
        Ok(taken < 1_000)
    };
    db.visit_rows(&query, &[], &Bounds::default(), &mut take)
        .unwrap();
    assert_eq!(taken, 1_000);
}

#[test]
fn two_who_are_followed_to_where_they_meet() {
    let (_folder, db) = films();
    let rules = "[[(leads ?x ?y) [?x :next ?y]] [(leads ?x ?y) [?x :next ?z] (leads ?z ?y)]]";
    let query = "[:find (count ?x) . :in $ % :where (leads 7 ?x) (leads 9000 ?x)]";
    let inputs = [read(rules).unwrap()];
    let bounds = Bounds {
        max_bytes: 64 << 20,
        ..Bounds::default()
    };
    let answer = db.query(&read(query).unwrap(), &inputs, &bounds).unwrap();
    let all = Value::Long(i64::try_from(FILMS).unwrap());
    assert_eq!(answer.into_value(), all);
}

/// Enough rows for several threads, with and without a concurrent writer.
#[test]
fn many_rows_are_looked_up_in_one_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    let schema = "{:kind {:db/valueType :db.type/long}
                   :year {:db/valueType :db.type/long}
                   :name {:db/valueType :db.type/string}
                   :tag {:db/valueType :db.type/long :db/cardinality :db.cardinality/many}}";
    db.update_schema(&read(schema).unwrap()).unwrap();
    let count: i64 = 60_000;
    let mut text = "[".to_owned();
    for n in 1..=count {
        write!(
            text,
            "{{:db/id {n} :kind {} :year {n} :name \"n{n}\" :tag [{} {}]}}",
            n % 5 / 2,
            n % 3,
            3 + n % 4
        )
        .unwrap();
    }
    text.push(']');
    db.transact(&read(&text).unwrap()).unwrap();
    let wanted: Vec<i64> = (1..=count).filter(|n| n % 5 / 2 == 1).collect();
    assert!(wanted.len() > 20_000);
    let ask = |query: &str| {
        let answer = db
            .query(&read(query).unwrap(), &[], &Bounds::default())
            .unwrap();
        let rows = answer.rows.into_iter();
        rows.map(|row| {
            row.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect::<BTreeSet<_>>()
    };
    let one = "[:find ?e ?y :where [?e :kind 1] [?e :year ?y]]";
    let several = "[:find ?e ?y ?n :where [?e :kind 1] [?e :year ?y] [?e :name ?n]]";
    let many = "[:find ?e ?t :where [?e :kind 1] [?e :tag ?t]]";
    let check = || {
        assert_eq!(
            ask(one),
            wanted.iter().map(|n| format!("{n} {n}")).collect()
        );
        assert_eq!(
            ask(several),
            wanted.iter().map(|n| format!("{n} {n} \"n{n}\"")).collect()
        );
        let tags = wanted
            .iter()
            .flat_map(|n| [format!("{n} {}", n % 3), format!("{n} {}", 3 + n % 4)]);
        assert_eq!(ask(many), tags.collect());
    };
    check();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (db, is_done) = (&db, &done);
        scope.spawn(move || {
            let mut n = 0;
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                n += 1;
                db.transact(&read(&format!("[{{:db/id {} :other {n}}}]", count + n)).unwrap())
                    .unwrap();
            }
        });
        for _ in 0..3 {
            check();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
