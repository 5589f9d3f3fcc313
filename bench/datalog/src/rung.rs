//! Our own engine.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rung_datalog::{Bounds, Db, Options};
use rung_edn::{Value, read};

use crate::data::{Data, Question};
use crate::time::{PATIENCE, Took, median};

pub struct Rung {
    db: Db,
    pub datoms: usize,
    pub load: Duration,
    /// The longest transaction, with the number of its datoms.
    pub slowest: (Duration, usize),
    pub open: Duration,
}

impl Rung {
    pub fn load(folder: &Path, data: &Data, files: &[PathBuf]) -> Result<Self> {
        let db = Db::open(folder, &Options::default())?;
        db.update_schema(&read(data.schema)?)?;
        let (mut datoms, mut load, mut slowest) = (0, Duration::ZERO, (Duration::ZERO, 0));
        for file in files {
            // Reading the text is no part of it.
            let forms = read(&std::fs::read_to_string(file)?)?;
            let began = Instant::now();
            let report = db.transact(&forms)?;
            let time = began.elapsed();
            datoms += report.datoms.len();
            load += time;
            slowest = slowest.max((time, report.datoms.len()));
        }
        drop(db);
        let options = Options {
            create: false,
            writable: false,
            ..Options::default()
        };
        let began = Instant::now();
        let db = Db::open(folder, &options)?;
        let open = began.elapsed();
        Ok(Self {
            db,
            datoms,
            load,
            slowest,
            open,
        })
    }

    pub fn time(&self, question: &Question) -> Result<Took> {
        let query = read(question.query)?;
        let inputs = read(&question.given())?;
        let inputs = inputs.as_sequence().context("inputs")?;
        median(|| {
            let rows = self.db.query(&query, inputs, &bounds())?.rows;
            Ok(match rows.first().and_then(|row| row.first()) {
                Some(Value::Long(number)) if question.is_number() => usize::try_from(*number)?,
                _ => rows.len(),
            })
        })
    }

    /// How a question is answered, step by step.
    pub fn explain(&self, question: &Question) -> Result<()> {
        let inputs = read(&question.given())?;
        let inputs = inputs.as_sequence().context("inputs")?;
        let (_, steps) = self.db.explain(&read(question.query)?, inputs, &bounds())?;
        for step in steps {
            let indent = "  ".repeat(step.depth);
            let expected = step.expected.map(|rows| format!(" of {rows} expected"));
            println!(
                "    {:>8} us {:>8} rows{} {indent}{} ({})",
                step.us,
                step.rows,
                expected.unwrap_or_default(),
                step.clause,
                step.way
            );
        }
        Ok(())
    }
}

fn bounds() -> Bounds {
    Bounds {
        max_ms: u64::try_from(PATIENCE.as_millis()).ok(),
        ..Bounds::default()
    }
}
