//! The engine against a naive twin: whatever the plan, the answer is that of trying every fact for every pattern, one after the other.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rung_datalog::{Bounds, Db, Options};
use rung_edn::{Value, read};

/// Entities and values are small numbers, so that much of it meets.
type Fact = (i64, &'static str, i64);
type Row = BTreeMap<u8, Cell>;

const ATTRIBUTES: [&str; 4] = ["a", "b", "m", "r"];

/// What a variable stands for. A lookup ref or an ident stays as it was given: it stands for its entity only where an entity is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cell {
    Number(i64),
    Lookup(i64),
    Ident(i64),
}

/// What a place of a pattern expects.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Expected {
    Entity,
    Value,
}

impl Cell {
    fn number(self) -> i64 {
        match self {
            Self::Number(number) | Self::Lookup(number) | Self::Ident(number) => number,
        }
    }

    fn matches(self, value: i64, expected: Expected) -> bool {
        match self {
            Self::Number(number) => number == value,
            // Entities up to 6 have names; the names of others are not there.
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

    fn agrees(self, row: &Row, value: i64, expected: Expected) -> Option<Row> {
        match self {
            Self::Blank => Some(row.clone()),
            Self::Constant(own) => (own == value).then(|| row.clone()),
            Self::Var(var) => {
                let mut row = row.clone();
                let known = *row.entry(var).or_insert(Cell::Number(value));
                known.matches(value, expected).then_some(row)
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
            .filter_map(|(own_e, _, own_v)| {
                let expected = match *a {
                    "r" => Expected::Entity,
                    _ => Expected::Value,
                };
                v.agrees(&e.agrees(row, *own_e, Expected::Entity)?, *own_v, expected)
            })
            .collect(),
        Clause::Leads(x, y) => closure(facts)
            .iter()
            .filter_map(|(from, to)| {
                let row = x.agrees(row, *from, Expected::Entity)?;
                y.agrees(&row, *to, Expected::Entity)
            })
            .collect(),
        Clause::Compare(op, var, other) => {
            let of = |term: &Term| match term {
                Term::Var(var) => row[var],
                Term::Constant(value) => Cell::Number(*value),
                Term::Blank => Cell::Number(0),
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
            .agrees(row, row[from].number() + by, Expected::Value)
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

/// The same with a name for each entity: a `:code`, and a `:db/ident`.
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

/// What a query is given: how it binds variables, and the rows that it gives them.
#[derive(Debug, Clone)]
enum Input {
    Scalar(u8, Cell),
    Collection(u8, Vec<Cell>),
    Tuple([u8; 2], [Cell; 2]),
    Relation([u8; 2], Vec<[Cell; 2]>),
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
            |cells: &[Cell; 2]| Value::Vector(cells.iter().map(|cell| cell.value()).collect());
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

    fn rows(&self) -> Vec<Vec<Cell>> {
        match self {
            Self::Scalar(_, cell) => vec![vec![*cell]],
            Self::Collection(_, cells) => cells.iter().map(|cell| vec![*cell]).collect(),
            Self::Tuple(_, cells) => vec![cells.to_vec()],
            Self::Relation(_, rows) => rows.iter().map(|row| row.to_vec()).collect(),
        }
    }

    /// Every row that was there, with every row of this.
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

fn cell() -> impl Strategy<Value = Cell> {
    prop_oneof![
        2 => (1_i64..7).prop_map(Cell::Number),
        3 => (1_i64..8).prop_map(Cell::Lookup),
        2 => (1_i64..8).prop_map(Cell::Ident),
    ]
}

/// One input for the first variables, and perhaps another for the last.
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

/// Those of the clauses that only take away which speak of what was given.
fn fitting(given: &mut BTreeSet<u8>, takes: Vec<Clause>) -> Vec<Clause> {
    let mut fitting = Vec::new();
    for clause in takes {
        let mut own = BTreeSet::new();
        vars(&clause, &mut own);
        let fits = match &clause {
            Clause::Plus(from, _, to) => given.contains(from) && given.insert(*to),
            // An `or` says the same of the same in every branch.
            Clause::Or(branches) => branches.iter().all(|branch| {
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
            Clause::Compare(_, _, Term::Blank) => false,
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
        clauses.extend(fitting(&mut given, takes));
        let found: BTreeSet<Vec<i64>> = solved(&facts, &clauses, vec![Row::new()]).iter().map(|row| given.iter().filter_map(|var| Some(row.get(var)?.number())).collect()).collect();
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
    fn inputs_may_name_entities_in_every_form_of_binding(facts in facts(), (gives, takes) in query(), inputs in inputs(), rules in prop::sample::select(&[LEFT, RIGHT, BOTH, MUTUAL])) {
        let named: BTreeSet<u8> = inputs.iter().flat_map(Input::vars).collect();
        let mut given = named.clone();
        for clause in &gives {
            vars(clause, &mut given);
        }
        // A name is equal to itself and to nothing else; it has no place among numbers, and nothing is added to it.
        let is_sound = |clause: &Clause| match clause {
            Clause::Compare(op, var, other) => {
                let is_number = |var: &u8| !named.contains(var);
                let other = if let Term::Var(other) = other { is_number(other) } else { true };
                matches!(*op, "=" | "not=") || (is_number(var) && other)
            }
            Clause::Plus(from, _, _) => !named.contains(from),
            _ => true,
        };
        let takes = takes.into_iter().filter(is_sound).collect();
        let mut clauses = gives.clone();
        clauses.extend(fitting(&mut given, takes));
        let start = inputs.iter().fold(vec![Row::new()], |rows, input| input.joined(&rows));
        let found: BTreeSet<Vec<Value>> = solved(&facts, &clauses, start).iter().map(|row| given.iter().map(|var| row[var].value()).collect()).collect();
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
        let rows = solved(&facts, &[pattern.clone(), other.clone()], vec![Row::new()]);
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
