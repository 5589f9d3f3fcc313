//! The engine against a naive twin: whatever the plan, the answer is that of trying every fact for every pattern, one after the other.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rung_datalog::{Bounds, Db, Options};
use rung_edn::{Value, read};

/// Entities and values are small numbers, so that much of it meets.
type Fact = (i64, &'static str, i64);
type Row = BTreeMap<u8, i64>;

const ATTRIBUTES: [&str; 4] = ["a", "b", "m", "r"];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Term {
    Var(u8),
    Constant(i64),
    Blank,
}

#[derive(Debug, Clone)]
enum Clause {
    Pattern(Term, &'static str, Term),
    Compare(&'static str, u8, Term),
    Plus(u8, i64, u8),
    Not(Vec<Clause>),
    Or(Vec<Vec<Clause>>),
    Leads(Term, Term),
}

impl Term {
    fn text(self) -> String {
        match self {
            Self::Var(var) => format!("?x{var}"),
            Self::Constant(value) => value.to_string(),
            Self::Blank => "_".to_owned(),
        }
    }

    fn agrees(self, row: &Row, value: i64) -> Option<Row> {
        match self {
            Self::Blank => Some(row.clone()),
            Self::Constant(own) => (own == value).then(|| row.clone()),
            Self::Var(var) => {
                let mut row = row.clone();
                let known = *row.entry(var).or_insert(value);
                (known == value).then_some(row)
            }
        }
    }
}

fn vars(clause: &Clause, into: &mut BTreeSet<u8>) {
    let mut term = |term: &Term| {
        if let Term::Var(var) = term {
            into.insert(*var);
        }
    };
    match clause {
        Clause::Pattern(e, _, v) => {
            term(e);
            term(v);
        }
        Clause::Leads(x, y) => {
            term(x);
            term(y);
        }
        Clause::Compare(_, var, other) => {
            term(&Term::Var(*var));
            term(other);
        }
        Clause::Plus(from, _, to) => {
            into.insert(*from);
            into.insert(*to);
        }
        Clause::Not(clauses) => clauses.iter().for_each(|clause| vars(clause, into)),
        Clause::Or(branches) => branches
            .iter()
            .flatten()
            .for_each(|clause| vars(clause, into)),
    }
}

fn text(clause: &Clause) -> String {
    let all = |clauses: &[Clause]| clauses.iter().map(text).collect::<Vec<_>>().join(" ");
    match clause {
        Clause::Pattern(e, a, v) => format!("[{} :{a} {}]", e.text(), v.text()),
        Clause::Compare(op, var, other) => format!("[({op} ?x{var} {})]", other.text()),
        Clause::Plus(from, by, to) => format!("[(+ ?x{from} {by}) ?x{to}]"),
        Clause::Not(clauses) => format!("(not {})", all(clauses)),
        Clause::Or(branches) => {
            let branches = branches
                .iter()
                .map(|branch| format!("(and {})", all(branch)));
            format!("(or {})", branches.collect::<Vec<_>>().join(" "))
        }
        Clause::Leads(x, y) => format!("(leads {} {})", x.text(), y.text()),
    }
}

/// Pairs of which one leads to the other, over any number of steps.
fn closure(facts: &BTreeSet<Fact>) -> BTreeSet<(i64, i64)> {
    let mut pairs: BTreeSet<(i64, i64)> = facts
        .iter()
        .filter(|(_, a, _)| *a == "r")
        .map(|(e, _, v)| (*e, *v))
        .collect();
    loop {
        let more: Vec<(i64, i64)> = pairs
            .iter()
            .flat_map(|(x, z)| {
                pairs
                    .iter()
                    .filter(move |(own, _)| own == z)
                    .map(move |(_, y)| (*x, *y))
            })
            .collect();
        let before = pairs.len();
        pairs.extend(more);
        if pairs.len() == before {
            return pairs;
        }
    }
}

/// Every row for which the clauses hold. What takes away stands after what gives.
fn solved(facts: &BTreeSet<Fact>, clauses: &[Clause], rows: Vec<Row>) -> Vec<Row> {
    let mut rows = rows;
    for clause in clauses {
        rows = rows
            .iter()
            .flat_map(|row| one(facts, clause, row))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
    }
    rows
}

fn one(facts: &BTreeSet<Fact>, clause: &Clause, row: &Row) -> Vec<Row> {
    match clause {
        Clause::Pattern(e, a, v) => facts
            .iter()
            .filter(|(_, own, _)| own == a)
            .filter_map(|(own_e, _, own_v)| v.agrees(&e.agrees(row, *own_e)?, *own_v))
            .collect(),
        Clause::Leads(x, y) => closure(facts)
            .iter()
            .filter_map(|(from, to)| y.agrees(&x.agrees(row, *from)?, *to))
            .collect(),
        Clause::Compare(op, var, other) => {
            let of = |term: &Term| match term {
                Term::Var(var) => row[var],
                Term::Constant(value) => *value,
                Term::Blank => 0,
            };
            let (one, other) = (row[var], of(other));
            let holds = match *op {
                "<" => one < other,
                ">=" => one >= other,
                "=" => one == other,
                _ => one != other,
            };
            holds.then(|| row.clone()).into_iter().collect()
        }
        Clause::Plus(from, by, to) => Term::Var(*to)
            .agrees(row, row[from] + by)
            .into_iter()
            .collect(),
        Clause::Not(clauses) => {
            let holds = !solved(facts, clauses, vec![row.clone()]).is_empty();
            (!holds).then(|| row.clone()).into_iter().collect()
        }
        Clause::Or(branches) => branches
            .iter()
            .flat_map(|branch| solved(facts, branch, vec![row.clone()]))
            .collect(),
    }
}

fn term() -> impl Strategy<Value = Term> {
    prop_oneof![6 => (0_u8..4).prop_map(Term::Var), 2 => (1_i64..7).prop_map(Term::Constant), 1 => Just(Term::Blank)]
}

fn pattern() -> impl Strategy<Value = Clause> {
    (term(), prop::sample::select(&ATTRIBUTES), term())
        .prop_map(|(e, a, v)| Clause::Pattern(e, a, v))
}

fn leads() -> impl Strategy<Value = Clause> {
    let side = || prop_oneof![4 => (0_u8..4).prop_map(Term::Var), 1 => (1_i64..7).prop_map(Term::Constant)];
    (side(), side()).prop_map(|(x, y)| Clause::Leads(x, y))
}

fn facts() -> impl Strategy<Value = BTreeSet<Fact>> {
    let fact = (1_i64..7, prop::sample::select(&ATTRIBUTES), 1_i64..7);
    prop::collection::vec(fact, 0..40).prop_map(|facts| {
        let mut kept: BTreeSet<Fact> = BTreeSet::new();
        for (e, a, v) in facts {
            // Two of the attributes have one value alone: the last one.
            if a == "a" || a == "b" {
                kept.retain(|(own, name, _)| !(*own == e && *name == a));
            }
            kept.insert((e, a, v));
        }
        kept
    })
}

/// Clauses that give variables values, and after them some that only take away.
fn query() -> impl Strategy<Value = (Vec<Clause>, Vec<Clause>)> {
    let gives = prop::collection::vec(prop_oneof![6 => pattern(), 1 => leads()], 1..5);
    let takes = prop_oneof![
        3 => (prop::sample::select(&["<", ">=", "=", "not="]), 0_u8..4, term()).prop_map(|(op, var, other)| Clause::Compare(op, var, other)),
        1 => (0_u8..4, -2_i64..3, 4_u8..6).prop_map(|(from, by, to)| Clause::Plus(from, by, to)),
        2 => prop::collection::vec(pattern(), 1..3).prop_map(Clause::Not),
        1 => leads().prop_map(|leads| Clause::Not(vec![leads])),
        2 => prop::collection::vec(prop::collection::vec(pattern(), 1..3), 1..3).prop_map(Clause::Or),
    ];
    (gives, prop::collection::vec(takes, 0..3))
}

const LEFT: &str = "[[(leads ?x ?y) [?x :r ?y]] [(leads ?x ?y) (leads ?x ?z) [?z :r ?y]]]";
const RIGHT: &str = "[[(leads ?x ?y) [?x :r ?y]] [(leads ?x ?y) [?x :r ?z] (leads ?z ?y)]]";
const BOTH: &str = "[[(leads ?x ?y) [?x :r ?y]] [(leads ?x ?y) (leads ?x ?z) (leads ?z ?y)]]";
const MUTUAL: &str =
    "[[(leads ?x ?y) [?x :r ?y]] [(leads ?x ?y) (on ?x ?y)] [(on ?x ?y) [?x :r ?z] (leads ?z ?y)]]";

fn database(facts: &BTreeSet<Fact>) -> (tempfile::TempDir, Db) {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &Options::default()).unwrap();
    let schema = "{:a {:db/valueType :db.type/long} :b {} :m {:db/cardinality :db.cardinality/many} :r {:db/valueType :db.type/ref, :db/cardinality :db.cardinality/many}}";
    db.update_schema(&read(schema).unwrap()).unwrap();
    let adds: Vec<String> = facts
        .iter()
        .map(|(e, a, v)| format!("[:db/add {e} :{a} {v}]"))
        .collect();
    db.transact(&read(&format!("[{}]", adds.join(" "))).unwrap())
        .unwrap();
    (folder, db)
}

proptest! {
    #[test]
    fn the_answer_is_that_of_the_naive_twin(facts in facts(), (gives, takes) in query(), rules in prop::sample::select(&[LEFT, RIGHT, BOTH, MUTUAL])) {
        let mut given = BTreeSet::new();
        for clause in &gives {
            vars(clause, &mut given);
        }
        prop_assume!(!given.is_empty());
        // What takes away speaks of what was given; an `or` says the same of the same in every branch.
        let mut clauses = gives.clone();
        for clause in takes {
            let mut own = BTreeSet::new();
            vars(&clause, &mut own);
            let fits = match &clause {
                Clause::Plus(from, _, to) => given.contains(from) && given.insert(*to),
                Clause::Or(branches) => branches.iter().all(|branch| {
                    let mut own = BTreeSet::new();
                    for clause in branch {
                        vars(clause, &mut own);
                    }
                    own.is_subset(&given) && !own.is_empty() && {
                        let mut first = BTreeSet::new();
                        for clause in &branches[0] {
                            vars(clause, &mut first);
                        }
                        first == own
                    }
                }),
                Clause::Compare(_, _, Term::Blank) => false,
                _ => own.is_subset(&given),
            };
            if fits {
                clauses.push(clause);
            }
        }
        let found: BTreeSet<Vec<i64>> = solved(&facts, &clauses, vec![Row::new()]).iter().map(|row| given.iter().filter_map(|var| row.get(var).copied()).collect()).collect();
        let (_folder, db) = database(&facts);
        let find: Vec<String> = given.iter().map(|var| format!("?x{var}")).collect();
        // In any order: the plan is not the query's.
        let mut written: Vec<String> = clauses.iter().map(text).collect();
        written.reverse();
        let query = format!("[:find {} :in $ % :where {}]", find.join(" "), written.join(" "));
        let rules = read(rules).unwrap();
        let answer = db.query(&read(&query).unwrap(), &[rules], &Bounds::default());
        let answer = answer.map_err(|error| TestCaseError::fail(format!("{query}: {error}")))?;
        let rows: BTreeSet<Vec<i64>> = answer.rows.iter().map(|row| row.iter().map(|value| value.as_i64().unwrap()).collect()).collect();
        prop_assert_eq!(rows.len(), answer.rows.len(), "each row is there once: {}", &query);
        prop_assert_eq!(rows, found, "{}", query);
    }

    #[test]
    fn groups_are_those_of_the_naive_twin(facts in facts(), pattern in pattern(), other in pattern()) {
        let mut given = BTreeSet::new();
        vars(&pattern, &mut given);
        vars(&other, &mut given);
        let Some((by, of)) = given.first().zip(given.last()).filter(|(by, of)| by != of) else { return Ok(()) };
        let rows = solved(&facts, &[pattern.clone(), other.clone()], vec![Row::new()]);
        let pairs: BTreeSet<(i64, i64)> = rows.iter().map(|row| (row[by], row[of])).collect();
        let mut groups: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for (by, of) in pairs {
            groups.entry(by).or_default().push(of);
        }
        let long = |number: usize| i64::try_from(number).unwrap();
        let expected: BTreeSet<Vec<i64>> = groups.into_iter().map(|(by, all)| vec![by, long(all.len()), all.iter().sum(), all[0], all[all.len() - 1]]).collect();
        let (_folder, db) = database(&facts);
        let query = format!("[:find ?x{by} (count ?x{of}) (sum ?x{of}) (min ?x{of}) (max ?x{of}) :where {} {}]", text(&pattern), text(&other));
        let answer = db.query(&read(&query).unwrap(), &[], &Bounds::default()).unwrap();
        let rows: BTreeSet<Vec<i64>> = answer.rows.iter().map(|row| row.iter().map(|value: &Value| value.as_i64().unwrap()).collect()).collect();
        prop_assert_eq!(rows, expected, "{}", query);
    }
}
