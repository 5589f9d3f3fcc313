//! The same questions in SQL.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rung_edn::{Value, read};
use rusqlite::Connection;

pub struct Sqlite(Connection);

impl Sqlite {
    pub fn new(data: &Path) -> Result<Self> {
        let sql = Connection::open(data.join("sqlite.db"))?;
        sql.execute_batch(
            "pragma journal_mode = wal; create table people(e integer primary key, key text unique, name text, last_name text, sex text, age integer, salary integer);
             create table edges(e integer, v integer, primary key (e, v)) without rowid; begin",
        )?;
        let people = read(&std::fs::read_to_string(data.join("people.edn"))?)?;
        {
            let mut insert = sql.prepare("insert into people values (?, ?, ?, ?, ?, ?, ?)")?;
            for person in people.as_sequence().context("people")? {
                let person = person.as_map().context("a person")?;
                let of = |name: &str| match person.get(&Value::keyword(name)) {
                    Some(Value::Long(number)) => rusqlite::types::Value::Integer(*number),
                    Some(Value::String(text)) => rusqlite::types::Value::Text(text.to_string()),
                    Some(other) => rusqlite::types::Value::Text(other.to_string()),
                    None => rusqlite::types::Value::Null,
                };
                insert.execute(rusqlite::params_from_iter(["db/id", "key", "name", "last-name", "sex", "age", "salary"].map(of)))?;
            }
            let edges = read(&std::fs::read_to_string(data.join("graph.edn"))?)?;
            let mut insert = sql.prepare("insert or ignore into edges values (?, ?)")?;
            for edge in edges.as_sequence().context("edges")? {
                let edge = edge.as_sequence().context("an edge")?;
                insert.execute((edge[1].as_i64(), edge[3].as_i64()))?;
            }
        }
        sql.execute_batch(
            "create index by_name on people(name); create index by_last_name on people(last_name); create index by_sex on people(sex);
             create index by_age on people(age); create index by_salary on people(salary); create index by_target on edges(v, e); commit; analyze",
        )?;
        Ok(Self(sql))
    }

    pub fn time(&self, text: &str) -> Result<(Duration, usize)> {
        let mut statement = self.0.prepare(text)?;
        let counts = text.contains("select count(*) from r");
        let columns = statement.column_count();
        crate::median(|| {
            let mut rows = statement.query([])?;
            let (mut count, mut last) = (0, 0);
            while let Some(row) = rows.next()? {
                count += 1;
                // Every value is taken out, as it is by the other engines.
                for column in 0..columns {
                    if let rusqlite::types::Value::Integer(number) = row.get(column)? {
                        last = number;
                    }
                }
            }
            Ok(if counts { usize::try_from(last)? } else { count })
        })
    }
}
