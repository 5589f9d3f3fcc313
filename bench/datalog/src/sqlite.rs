//! The same queries in SQLite.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Result;
use rusqlite::{Connection, params_from_iter, types::Value};

use crate::dataset::{Cell, Dataset, BenchQuery};
use crate::timing::{QUERY_TIMEOUT, Timing, median_time};

pub struct Sqlite {
    connection: Connection,
    pub load_time: Duration,
}

impl Sqlite {
    pub fn load(file: &Path, data: &Dataset) -> Result<Self> {
        let sql = Connection::open(file)?;
        sql.execute_batch("pragma journal_mode = wal; pragma cache_size = -200000; begin")?;
        let began = Instant::now();
        sql.execute_batch(data.create_tables_sql)?;
        for table in &data.tables {
            let marks = vec!["?"; table.columns.len()].join(", ");
            let insert = format!("insert or ignore into {} values ({marks})", table.name);
            let mut insert = sql.prepare(&insert)?;
            for row in &table.rows {
                insert.execute(params_from_iter(row.iter().map(to_sql_value)))?;
            }
        }
        sql.execute_batch(data.create_indexes_sql)?;
        sql.execute_batch("commit; analyze")?;
        let load = began.elapsed();
        Ok(Self { connection: sql, load_time: load })
    }

    pub fn time(&self, question: &BenchQuery) -> Option<Result<Timing>> {
        let text = question.sql?;
        // The query is interrupted after the timeout.
        let (done, waits) = mpsc::channel::<()>();
        let handle = self.connection.get_interrupt_handle();
        let watch = std::thread::spawn(move || {
            if waits.recv_timeout(QUERY_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
                handle.interrupt();
            }
        });
        let took = self.time_sql(text, question.is_scalar());
        drop(done);
        watch.join().ok()?;
        Some(took)
    }

    fn time_sql(&self, text: &str, is_number: bool) -> Result<Timing> {
        let mut statement = self.connection.prepare(text)?;
        let columns = statement.column_count();
        median_time(|| {
            let mut rows = statement.query([])?;
            let (mut count, mut last) = (0, 0);
            while let Some(row) = rows.next()? {
                count += 1;
                // Every value is read, as with the other engines.
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

fn to_sql_value(cell: &Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Integer(number) => Value::Integer(*number),
        Cell::Real(number) => Value::Real(*number),
        Cell::Text(text) => Value::Text(text.clone()),
        Cell::Keyword(name) => Value::Text(format!(":{name}")),
    }
}
