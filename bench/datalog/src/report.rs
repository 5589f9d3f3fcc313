//! Prints the measurements as a table.

use anyhow::{Result, ensure};

use crate::timing::{Timing, format_ms};

/// The timings of one query. An engine that did not run it is `None`.
pub struct QueryTimings {
    pub data: &'static str,
    pub name: &'static str,
    pub rung: Result<Timing>,
    pub sqlite: Option<Result<Timing>>,
    pub datalevin: Option<Result<Timing>>,
}

fn speedup(ours: &Result<Timing>, theirs: &Option<Result<Timing>>) -> Option<f64> {
    let (ours, theirs) = (ours.as_ref().ok()?, theirs.as_ref()?.as_ref().ok()?);
    Some(theirs.time.as_secs_f64() / ours.time.as_secs_f64())
}

impl QueryTimings {
    pub fn speedup_over_sqlite(&self) -> Option<f64> {
        speedup(&self.rung, &self.sqlite)
    }

    pub fn speedup_over_datalevin(&self) -> Option<f64> {
        speedup(&self.rung, &self.datalevin)
    }

    fn by_engine(&self) -> [(&'static str, Option<&Result<Timing>>); 3] {
        [
            ("Rung", Some(&self.rung)),
            ("SQLite", self.sqlite.as_ref()),
            ("Datalevin", self.datalevin.as_ref()),
        ]
    }

    /// Returns an error unless all engines found the same number of rows.
    pub fn check_row_counts(&self) -> Result<()> {
        let found = |took: Option<&Result<Timing>>| Some(took?.as_ref().ok()?.rows);
        let found = self.by_engine().map(|(engine, took)| (engine, found(took)));
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
        let cell = |took: Option<&Result<Timing>>| match took {
            None => String::new(),
            Some(Ok(took)) => format_ms(took.time),
            Some(Err(_)) => "failed".to_owned(),
        };
        let times =
            |ratio: Option<f64>| ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
        let rows = self
            .by_engine()
            .into_iter()
            .find_map(|(_, took)| took?.as_ref().ok());
        println!(
            "{:<10} {:<26} {:>7} {:>10} {:>10} {:>7} {:>12} {:>7}",
            self.data,
            self.name,
            rows.map(|took| took.rows.to_string()).unwrap_or_default(),
            cell(Some(&self.rung)),
            cell(self.sqlite.as_ref()),
            times(self.speedup_over_sqlite()),
            cell(self.datalevin.as_ref()),
            times(self.speedup_over_datalevin()),
        );
        for (engine, took) in self.by_engine() {
            if let Some(Err(error)) = took {
                println!("           {engine}: {error:#}");
            }
        }
    }
}

pub fn print_heading() {
    println!(
        "\n{:<10} {:<26} {:>7} {:>10} {:>10} {:>7} {:>12} {:>7}",
        "data", "question", "rows", "rung ms", "sqlite ms", "ratio", "datalevin ms", "ratio"
    );
}
