//! The same questions in SQL.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Result;
use rusqlite::{Connection, params_from_iter, types::Value};

use crate::data::{Cell, Data, Question};
use crate::time::{PATIENCE, Took, median};

pub struct Sqlite {
    sql: Connection,
    pub load: Duration,
}

impl Sqlite {
    pub fn load(file: &Path, data: &Data) -> Result<Self> {
        let sql = Connection::open(file)?;
        sql.execute_batch("pragma journal_mode = wal; pragma cache_size = -200000; begin")?;
        let began = Instant::now();
        sql.execute_batch(data.sql)?;
        for table in &data.tables {
            let marks = vec!["?"; table.columns.len()].join(", ");
            let insert = format!("insert or ignore into {} values ({marks})", table.name);
            let mut insert = sql.prepare(&insert)?;
            for row in &table.rows {
                insert.execute(params_from_iter(row.iter().map(value)))?;
            }
        }
        sql.execute_batch(data.indexes)?;
        sql.execute_batch("commit; analyze")?;
        let load = began.elapsed();
        Ok(Self { sql, load })
    }

    pub fn time(&self, question: &Question) -> Option<Result<Took>> {
        let text = question.sql?;
        // It is stopped where nobody would wait any longer.
        let (done, waits) = mpsc::channel::<()>();
        let handle = self.sql.get_interrupt_handle();
        let watch = std::thread::spawn(move || {
            if waits.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                handle.interrupt();
            }
        });
        let took = self.time_one(text, question.is_number());
        drop(done);
        watch.join().ok()?;
        Some(took)
    }

    fn time_one(&self, text: &str, is_number: bool) -> Result<Took> {
        let mut statement = self.sql.prepare(text)?;
        let columns = statement.column_count();
        median(|| {
            let mut rows = statement.query([])?;
            let (mut count, mut last) = (0, 0);
            while let Some(row) = rows.next()? {
                count += 1;
                // Every value is taken out, as it is by the other engines.
                for column in 0..columns {
                    if let Value::Integer(number) = row.get(column)? {
                        last = number;
                    }
                }
            }
            Ok(if is_number {
                usize::try_from(last)?
            } else {
                count
            })
        })
    }
}

fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Nothing => Value::Null,
        Cell::Number(number) => Value::Integer(*number),
        Cell::Real(number) => Value::Real(*number),
        Cell::Text(text) => Value::Text(text.clone()),
        Cell::Keyword(name) => Value::Text(format!(":{name}")),
    }
}
