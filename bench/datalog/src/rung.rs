//! Rung's engine.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rung_datalog::{Bounds, Db, DbOptions};
use rung_edn::{Value, read};

use crate::dataset::{Dataset, BenchQuery};
use crate::timing::{QUERY_TIMEOUT, Timing, median_time};

pub struct Rung {
    db: Db,
    pub datoms: usize,
    pub load_time: Duration,
    /// Duration of the longest transaction and the number of its datoms.
    pub slowest_transaction: (Duration, usize),
    pub open_time: Duration,
}

impl Rung {
    pub fn load(folder: &Path, data: &Dataset, files: &[PathBuf]) -> Result<Self> {
        let db = Db::open(folder, &DbOptions::default())?;
        db.update_schema(&read(data.schema)?)?;
        let (mut datoms, mut load, mut slowest) = (0, Duration::ZERO, (Duration::ZERO, 0));
        for file in files {
            // Parsing the EDN is not timed.
            let forms = read(&std::fs::read_to_string(file)?)?;
            let began = Instant::now();
            let report = db.transact(&forms)?;
            let time = began.elapsed();
            datoms += report.datoms.len();
            load += time;
            slowest = slowest.max((time, report.datoms.len()));
        }
        drop(db);
        let options = DbOptions {
            create: false,
            writable: false,
            ..DbOptions::default()
        };
        let began = Instant::now();
        let db = Db::open(folder, &options)?;
        let open = began.elapsed();
        Ok(Self {
            db,
            datoms,
            load_time: load,
            slowest_transaction: slowest,
            open_time: open,
        })
    }

    pub fn time(&self, question: &BenchQuery) -> Result<Timing> {
        let query = read(question.query)?;
        let inputs = read(&question.inputs_edn())?;
        let inputs = inputs.as_sequence().context("inputs")?;
        median_time(|| {
            let rows = self.db.query(&query, inputs, &query_bounds())?.rows;
            Ok(match rows.first().and_then(|row| row.first()) {
                Some(Value::Long(number)) if question.is_scalar() => usize::try_from(*number)?,
                _ => rows.len(),
            })
        })
    }

    /// Prints the query plan, one line per step.
    pub fn print_explanation(&self, question: &BenchQuery) -> Result<()> {
        let inputs = read(&question.inputs_edn())?;
        let inputs = inputs.as_sequence().context("inputs")?;
        let (_, steps) = self.db.explain(&read(question.query)?, inputs, &query_bounds())?;
        for step in steps {
            let indent = "  ".repeat(step.depth);
            let expected = step.expected.map(|rows| format!(" of {rows} expected"));
            println!(
                "    {:>8} us {:>8} rows{} {indent}{} ({})",
                step.elapsed_us,
                step.rows,
                expected.unwrap_or_default(),
                step.clause,
                step.method
            );
        }
        Ok(())
    }
}

fn query_bounds() -> Bounds {
    Bounds {
        max_ms: u64::try_from(QUERY_TIMEOUT.as_millis()).ok(),
        ..Bounds::default()
    }
}
