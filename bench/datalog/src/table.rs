//! What was measured, as lines to read.

use anyhow::{Result, ensure};

use crate::time::{Took, ms};

/// What came of one question. What was not asked of an engine is not there.
pub struct Line {
    pub data: &'static str,
    pub name: &'static str,
    pub rung: Result<Took>,
    pub sqlite: Option<Result<Took>>,
    pub datalevin: Option<Result<Took>>,
}

fn ratio(ours: &Result<Took>, theirs: &Option<Result<Took>>) -> Option<f64> {
    let (ours, theirs) = (ours.as_ref().ok()?, theirs.as_ref()?.as_ref().ok()?);
    Some(theirs.time.as_secs_f64() / ours.time.as_secs_f64())
}

impl Line {
    /// How many times as fast as SQLite.
    pub fn to_sqlite(&self) -> Option<f64> {
        ratio(&self.rung, &self.sqlite)
    }

    /// How many times as fast as Datalevin.
    pub fn to_datalevin(&self) -> Option<f64> {
        ratio(&self.rung, &self.datalevin)
    }

    fn all(&self) -> [(&'static str, Option<&Result<Took>>); 3] {
        [
            ("Rung", Some(&self.rung)),
            ("SQLite", self.sqlite.as_ref()),
            ("Datalevin", self.datalevin.as_ref()),
        ]
    }

    /// All engines must have found as many rows.
    pub fn agree(&self) -> Result<()> {
        let found = |took: Option<&Result<Took>>| Some(took?.as_ref().ok()?.rows);
        let found = self.all().map(|(engine, took)| (engine, found(took)));
        let mut rows = found.iter().filter_map(|(_, rows)| *rows);
        let first = rows.next();
        ensure!(
            rows.all(|rows| Some(rows) == first),
            "{}: the engines do not agree: {found:?}",
            self.name
        );
        Ok(())
    }

    pub fn print(&self) {
        let cell = |took: Option<&Result<Took>>| match took {
            None => String::new(),
            Some(Ok(took)) => ms(took.time),
            Some(Err(_)) => "failed".to_owned(),
        };
        let times =
            |ratio: Option<f64>| ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
        let rows = self
            .all()
            .into_iter()
            .find_map(|(_, took)| took?.as_ref().ok());
        println!(
            "{:<10} {:<26} {:>7} {:>10} {:>10} {:>7} {:>12} {:>7}",
            self.data,
            self.name,
            rows.map(|took| took.rows.to_string()).unwrap_or_default(),
            cell(Some(&self.rung)),
            cell(self.sqlite.as_ref()),
            times(self.to_sqlite()),
            cell(self.datalevin.as_ref()),
            times(self.to_datalevin()),
        );
        for (engine, took) in self.all() {
            if let Some(Err(error)) = took {
                println!("           {engine}: {error:#}");
            }
        }
    }
}

pub fn heading() {
    println!(
        "\n{:<10} {:<26} {:>7} {:>10} {:>10} {:>7} {:>12} {:>7}",
        "data", "question", "rows", "rung ms", "sqlite ms", "ratio", "datalevin ms", "ratio"
    );
}
