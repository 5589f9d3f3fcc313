//! The engine against a naive reference implementation, which tries every fact for every pattern: the results must be equal,
//! whatever the plan.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rung_datalog::{Bounds, Db, DbOptions};
use rung_edn::{Value, read};

/// Entities and values are small numbers, so that many of them are equal.
type Fact = (i64, &'static str, i64);
type Row = BTreeMap<u8, NaiveCell>;

const ATTRIBUTES: [&str; 4] = ["a", "b", "m", "r"];

/// The value of a variable. A lookup ref or an ident stays as it is: it stands for its entity only where an entity is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NaiveCell {
    Number(i64),
    Lookup(i64),
    Ident(i64),
}

/// The kind of value that a position in a pattern expects.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Expected {
    Entity,
    Value,
}

impl NaiveCell {
    fn number(self) -> i64 {
        match self {
            Self::Number(number) | Self::Lookup(number) | Self::Ident(number) => number,
        }
    }

    fn matches(self, value: i64, expected: Expected) -> bool {
        match self {
            Self::Number(number) => number == value,
            // Entities up to 6 have names, others have none.
            Self::Lookup(number) | Self::Ident(number) => {
                expected == Expected::Entity && number == value && (1..=NAMED).contains(&number)
            }
        }
    }

    fn value(self) -> Value {
        let text = match self {
            Self::Number(number) => number.to_string(),
            Self::Lookup(number) => format!("[:code \"c{number}\"]"),
            Self::Ident(number) => format!(":e/e{number}"),
        };
        read(&text).unwrap()
    }
}

/// Entities that have a `:code` and a `:db/ident`.
const NAMED: i64 = 6;

#[derive(Debug, Clone, Copy, PartialEq)]
enum NaiveTerm {
    Var(u8),
    Constant(i64),
    Blank,
}

#[derive(Debug, Clone)]
enum NaiveClause {
    Pattern(NaiveTerm, &'static str, NaiveTerm),
    Compare(&'static str, u8, NaiveTerm),
    Plus(u8, i64, u8),
    Not(Vec<NaiveClause>),
    Or(Vec<Vec<NaiveClause>>),
    Leads(NaiveTerm, NaiveTerm),
}

impl NaiveTerm {
    fn text(self) -> String {
        match self {
            Self::Var(var) => format!("?x{var}"),
            Self::Constant(value) => value.to_string(),
            Self::Blank => "_".to_owned(),
        }
    }

    fn agrees(self, row: &Row, value: i64, expected: Expected) -> Option<Row> {
        match self {
            Self::Blank => Some(row.clone()),
            Self::Constant(own) => (own == value).then(|| row.clone()),
            Self::Var(var) => {
                let mut row = row.clone();
                let known = *row.entry(var).or_insert(NaiveCell::Number(value));
                known.matches(value, expected).then_some(row)
            }
        }
    }
}

fn vars(clause: &NaiveClause, into: &mut BTreeSet<u8>) {
    let mut term = |term: &NaiveTerm| {
        if let NaiveTerm::Var(var) = term {
            into.insert(*var);
        }
    };
    match clause {
        NaiveClause::Pattern(e, _, v) => {
            term(e);
            term(v);
        }
        NaiveClause::Leads(x, y) => {
            term(x);
            term(y);
        }
        NaiveClause::Compare(_, var, other) => {
            term(&NaiveTerm::Var(*var));
            term(other);
        }
        NaiveClause::Plus(from, _, to) => {
            into.insert(*from);
            into.insert(*to);
        }
        NaiveClause::Not(clauses) => clauses.iter().for_each(|clause| vars(clause, into)),
        NaiveClause::Or(branches) => branches
            .iter()
            .flatten()
            .for_each(|clause| vars(clause, into)),
    }
}

fn text(clause: &NaiveClause) -> String {
    let all = |clauses: &[NaiveClause]| clauses.iter().map(text).collect::<Vec<_>>().join(" ");
    match clause {
        NaiveClause::Pattern(e, a, v) => format!("[{} :{a} {}]", e.text(), v.text()),
        NaiveClause::Compare(op, var, other) => format!("[({op} ?x{var} {})]", other.text()),
        NaiveClause::Plus(from, by, to) => format!("[(+ ?x{from} {by}) ?x{to}]"),
        NaiveClause::Not(clauses) => format!("(not {})", all(clauses)),
        NaiveClause::Or(branches) => {
            let branches = branches
                .iter()
                .map(|branch| format!("(and {})", all(branch)));
            format!("(or {})", branches.collect::<Vec<_>>().join(" "))
        }
        NaiveClause::Leads(x, y) => format!("(leads {} {})", x.text(), y.text()),
    }
}

/// Returns the pairs of entities of which the first leads to the second, over any number of steps.
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

/// Returns every row for which the clauses hold. Clauses that filter must follow those that bind.
fn solve(facts: &BTreeSet<Fact>, clauses: &[NaiveClause], rows: Vec<Row>) -> Vec<Row> {
    let mut rows = rows;
    for clause in clauses {
        rows = rows
            .iter()
            .flat_map(|row| match_clause(facts, clause, row))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
    }
    rows
}

fn match_clause(facts: &BTreeSet<Fact>, clause: &NaiveClause, row: &Row) -> Vec<Row> {
    match clause {
        NaiveClause::Pattern(e, a, v) => facts
            .iter()
            .filter(|(_, own, _)| own == a)
            .filter_map(|(own_e, _, own_v)| {
                let expected = match *a {
                    "r" => Expected::Entity,
                    _ => Expected::Value,
                };
                v.agrees(&e.agrees(row, *own_e, Expected::Entity)?, *own_v, expected)
            })
            .collect(),
        NaiveClause::Leads(x, y) => closure(facts)
            .iter()
            .filter_map(|(from, to)| {
                let row = x.agrees(row, *from, Expected::Entity)?;
                y.agrees(&row, *to, Expected::Entity)
            })
            .collect(),
        NaiveClause::Compare(op, var, other) => {
            let of = |term: &NaiveTerm| match term {
                NaiveTerm::Var(var) => row[var],
                NaiveTerm::Constant(value) => NaiveCell::Number(*value),
                NaiveTerm::Blank => NaiveCell::Number(0),
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
        NaiveClause::Plus(from, by, to) => NaiveTerm::Var(*to)
            .agrees(row, row[from].number() + by, Expected::Value)
            .into_iter()
            .collect(),
        NaiveClause::Not(clauses) => {
            let holds = !solve(facts, clauses, vec![row.clone()]).is_empty();
            (!holds).then(|| row.clone()).into_iter().collect()
        }
        NaiveClause::Or(branches) => branches
            .iter()
            .flat_map(|branch| solve(facts, branch, vec![row.clone()]))
            .collect(),
    }
}

fn term() -> impl Strategy<Value = NaiveTerm> {
    prop_oneof![6 => (0_u8..4).prop_map(NaiveTerm::Var), 2 => (1_i64..7).prop_map(NaiveTerm::Constant), 1 => Just(NaiveTerm::Blank)]
}

fn pattern() -> impl Strategy<Value = NaiveClause> {
    (term(), prop::sample::select(&ATTRIBUTES), term())
        .prop_map(|(e, a, v)| NaiveClause::Pattern(e, a, v))
}

fn leads() -> impl Strategy<Value = NaiveClause> {
    let side = || prop_oneof![4 => (0_u8..4).prop_map(NaiveTerm::Var), 1 => (1_i64..7).prop_map(NaiveTerm::Constant)];
    (side(), side()).prop_map(|(x, y)| NaiveClause::Leads(x, y))
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

/// Generates clauses that bind variables, and clauses that only filter.
fn query() -> impl Strategy<Value = (Vec<NaiveClause>, Vec<NaiveClause>)> {
    let gives = prop::collection::vec(prop_oneof![6 => pattern(), 1 => leads()], 1..5);
    let takes = prop_oneof![
        3 => (prop::sample::select(&["<", ">=", "=", "not="]), 0_u8..4, term()).prop_map(|(op, var, other)| NaiveClause::Compare(op, var, other)),
        1 => (0_u8..4, -2_i64..3, 4_u8..6).prop_map(|(from, by, to)| NaiveClause::Plus(from, by, to)),
        2 => prop::collection::vec(pattern(), 1..3).prop_map(NaiveClause::Not),
        1 => leads().prop_map(|leads| NaiveClause::Not(vec![leads])),
        2 => prop::collection::vec(prop::collection::vec(pattern(), 1..3), 1..3).prop_map(NaiveClause::Or),
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
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
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

/// Creates a database in which each entity has a name: a `:code`, and a `:db/ident`.
fn named_database(facts: &BTreeSet<Fact>) -> (tempfile::TempDir, Db) {
    let (folder, db) = database(facts);
    let schema = "{:code {:db/valueType :db.type/string, :db/unique :db.unique/identity}}";
    db.update_schema(&read(schema).unwrap()).unwrap();
    let names = (1..=NAMED).map(|e| format!("{{:db/id {e} :code \"c{e}\" :db/ident :e/e{e}}}"));
    let names: Vec<String> = names.collect();
    db.transact(&read(&format!("[{}]", names.join(" "))).unwrap())
        .unwrap();
    (folder, db)
}

/// A query input: its form of binding, and the rows of the variables.
#[derive(Debug, Clone)]
enum Input {
    Scalar(u8, NaiveCell),
    Collection(u8, Vec<NaiveCell>),
    Tuple([u8; 2], [NaiveCell; 2]),
    Relation([u8; 2], Vec<[NaiveCell; 2]>),
}

impl Input {
    fn binding(&self) -> String {
        match self {
            Self::Scalar(var, _) => format!("?x{var}"),
            Self::Collection(var, _) => format!("[?x{var} ...]"),
            Self::Tuple([one, other], _) => format!("[?x{one} ?x{other}]"),
            Self::Relation([one, other], _) => format!("[[?x{one} ?x{other}]]"),
        }
    }

    fn value(&self) -> Value {
        let pair =
            |cells: &[NaiveCell; 2]| Value::Vector(cells.iter().map(|cell| cell.value()).collect());
        match self {
            Self::Scalar(_, cell) => cell.value(),
            Self::Collection(_, cells) => {
                Value::Vector(cells.iter().map(|cell| cell.value()).collect())
            }
            Self::Tuple(_, cells) => pair(cells),
            Self::Relation(_, rows) => Value::Vector(rows.iter().map(pair).collect()),
        }
    }

    fn vars(&self) -> Vec<u8> {
        match self {
            Self::Scalar(var, _) | Self::Collection(var, _) => vec![*var],
            Self::Tuple(vars, _) | Self::Relation(vars, _) => vars.to_vec(),
        }
    }

    fn rows(&self) -> Vec<Vec<NaiveCell>> {
        match self {
            Self::Scalar(_, cell) => vec![vec![*cell]],
            Self::Collection(_, cells) => cells.iter().map(|cell| vec![*cell]).collect(),
            Self::Tuple(_, cells) => vec![cells.to_vec()],
            Self::Relation(_, rows) => rows.iter().map(|row| row.to_vec()).collect(),
        }
    }

    /// Returns the cross product of rows with the rows of the input.
    fn joined(&self, rows: &[Row]) -> Vec<Row> {
        let mut joined = Vec::new();
        for row in rows {
            for cells in self.rows() {
                let mut row = row.clone();
                row.extend(self.vars().into_iter().zip(cells));
                joined.push(row);
            }
        }
        joined
    }
}

fn cell() -> impl Strategy<Value = NaiveCell> {
    prop_oneof![
        2 => (1_i64..7).prop_map(NaiveCell::Number),
        3 => (1_i64..8).prop_map(NaiveCell::Lookup),
        2 => (1_i64..8).prop_map(NaiveCell::Ident),
    ]
}

/// Generates an input for the first variables, and optionally another one for the last.
fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let pair = || [cell(), cell()];
    let first = prop_oneof![
        1 => cell().prop_map(|cell| Input::Scalar(0, cell)),
        3 => prop::collection::vec(cell(), 0..6).prop_map(|cells| Input::Collection(0, cells)),
        1 => pair().prop_map(|cells| Input::Tuple([0, 1], cells)),
        3 => prop::collection::vec(pair(), 0..6).prop_map(|rows| Input::Relation([0, 1], rows)),
    ];
    let last = prop::collection::vec(cell(), 1..4).prop_map(|cells| Input::Collection(3, cells));
    (first, prop::option::of(last))
        .prop_map(|(first, last)| [first].into_iter().chain(last).collect())
}

/// Returns the clauses of `takes` whose variables are bound.
fn bound_clauses(given: &mut BTreeSet<u8>, takes: Vec<NaiveClause>) -> Vec<NaiveClause> {
    let mut fitting = Vec::new();
    for clause in takes {
        let mut own = BTreeSet::new();
        vars(&clause, &mut own);
        let fits = match &clause {
            NaiveClause::Plus(from, _, to) => given.contains(from) && given.insert(*to),
            // Both branches of an `or` must have the same variables.
            NaiveClause::Or(branches) => branches.iter().all(|branch| {
                let mut own = BTreeSet::new();
                for clause in branch {
                    vars(clause, &mut own);
                }
                own.is_subset(given) && !own.is_empty() && {
                    let mut first = BTreeSet::new();
                    for clause in &branches[0] {
                        vars(clause, &mut first);
                    }
                    first == own
                }
            }),
            NaiveClause::Compare(_, _, NaiveTerm::Blank) => false,
            _ => own.is_subset(given),
        };
        if fits {
            fitting.push(clause);
        }
    }
    fitting
}

proptest! {
    #[test]
    fn the_answer_is_that_of_the_naive_twin(facts in facts(), (gives, takes) in query(), rules in prop::sample::select(&[LEFT, RIGHT, BOTH, MUTUAL])) {
        let mut given = BTreeSet::new();
        for clause in &gives {
            vars(clause, &mut given);
        }
        prop_assume!(!given.is_empty());
        let mut clauses = gives.clone();
        clauses.extend(bound_clauses(&mut given, takes));
        let found: BTreeSet<Vec<i64>> = solve(&facts, &clauses, vec![Row::new()]).iter().map(|row| given.iter().filter_map(|var| Some(row.get(var)?.number())).collect()).collect();
        let (_folder, db) = database(&facts);
        let find: Vec<String> = given.iter().map(|var| format!("?x{var}")).collect();
        // Any order of clauses must give the same result.
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
    fn inputs_may_name_entities_in_every_form_of_binding(facts in facts(), (gives, takes) in query(), inputs in inputs(), rules in prop::sample::select(&[LEFT, RIGHT, BOTH, MUTUAL])) {
        let named: BTreeSet<u8> = inputs.iter().flat_map(Input::vars).collect();
        let mut given = named.clone();
        for clause in &gives {
            vars(clause, &mut given);
        }
        // A name is equal only to itself. It cannot be compared with numbers or added to them.
        let is_sound = |clause: &NaiveClause| match clause {
            NaiveClause::Compare(op, var, other) => {
                let is_number = |var: &u8| !named.contains(var);
                let other = if let NaiveTerm::Var(other) = other { is_number(other) } else { true };
                matches!(*op, "=" | "not=") || (is_number(var) && other)
            }
            NaiveClause::Plus(from, _, _) => !named.contains(from),
            _ => true,
        };
        let takes = takes.into_iter().filter(is_sound).collect();
        let mut clauses = gives.clone();
        clauses.extend(bound_clauses(&mut given, takes));
        let start = inputs.iter().fold(vec![Row::new()], |rows, input| input.joined(&rows));
        let found: BTreeSet<Vec<Value>> = solve(&facts, &clauses, start).iter().map(|row| given.iter().map(|var| row[var].value()).collect()).collect();
        let (_folder, db) = named_database(&facts);
        let find: Vec<String> = given.iter().map(|var| format!("?x{var}")).collect();
        let bindings: Vec<String> = inputs.iter().map(Input::binding).collect();
        let written: Vec<String> = clauses.iter().rev().map(text).collect();
        let query = format!("[:find {} :in $ % {} :where {}]", find.join(" "), bindings.join(" "), written.join(" "));
        let values: Vec<Value> = [read(rules).unwrap()].into_iter().chain(inputs.iter().map(Input::value)).collect();
        let shown = format!("{query} given {}", Value::Vector(values.clone()));
        let answer = db.query(&read(&query).unwrap(), &values, &Bounds::default());
        let answer = answer.map_err(|error| TestCaseError::fail(format!("{shown}: {error}")))?;
        let rows: BTreeSet<Vec<Value>> = answer.rows.iter().cloned().collect();
        prop_assert_eq!(rows.len(), answer.rows.len(), "each row is there once: {}", &shown);
        prop_assert_eq!(rows, found, "{}", shown);
    }

    #[test]
    fn groups_are_those_of_the_naive_twin(facts in facts(), pattern in pattern(), other in pattern()) {
        let mut given = BTreeSet::new();
        vars(&pattern, &mut given);
        vars(&other, &mut given);
        let Some((by, of)) = given.first().zip(given.last()).filter(|(by, of)| by != of) else { return Ok(()) };
        let rows = solve(&facts, &[pattern.clone(), other.clone()], vec![Row::new()]);
        let pairs: BTreeSet<(i64, i64)> = rows.iter().map(|row| (row[by].number(), row[of].number())).collect();
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
