//! The SQL store. Nothing in this module is specific to one engine.
//!
//! Both engines run the same statements. Their own files hold the differences: table definitions, batch sizes and
//! durability. Parameters are written `?1`, `?2`, ...

mod migrate;
mod postgres;
mod sqlite;

use crate::Result;

pub use self::postgres::{Options as PostgresOptions, Postgres};
pub use self::sqlite::Sqlite;

/// A parameter or a column value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    Null,
    Int(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Value<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Builds the parameters of a statement.
macro_rules! params {
    ($($value:expr),* $(,)?) => { &[$($crate::store::Value::from($value)),*] };
}
pub(crate) use params;

/// A row of a query result.
pub trait SqlRow {
    fn get(&self, column: usize) -> Result<Value<'_>>;
}

impl dyn SqlRow + '_ {
    /// Returns an integer. Null is an error.
    pub fn int(&self, column: usize) -> Result<i64> {
        match self.get(column)? {
            Value::Int(number) => Ok(number),
            _ => Err(unexpected_type(column)),
        }
    }

    /// Returns an integer, or `None` for null.
    pub fn maybe_int(&self, column: usize) -> Result<Option<i64>> {
        match self.get(column)? {
            Value::Null => Ok(None),
            _ => self.int(column).map(Some),
        }
    }

    /// Returns a text. Null is an error.
    pub fn text(&self, column: usize) -> Result<&str> {
        match self.get(column)? {
            Value::Text(text) => Ok(text),
            _ => Err(unexpected_type(column)),
        }
    }

    /// Returns a text, or `None` for null.
    pub fn maybe_text(&self, column: usize) -> Result<Option<&str>> {
        match self.get(column)? {
            Value::Null => Ok(None),
            _ => self.text(column).map(Some),
        }
    }

    /// Returns bytes. Null is an error.
    pub fn bytes(&self, column: usize) -> Result<&[u8]> {
        match self.get(column)? {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(unexpected_type(column)),
        }
    }
}

fn unexpected_type(column: usize) -> crate::Error {
    crate::Error::Broken(format!("column {column} has an unexpected type"))
}

/// Handles a row. Returns false to stop.
pub type RowHandler<'f> = &'f mut dyn FnMut(&dyn SqlRow) -> Result<bool>;

/// A transaction: a consistent snapshot to read, or an atomic write.
pub trait Tx {
    /// Runs a query and calls `each` with every row.
    fn query(&mut self, sql: &str, params: &[Value<'_>], each: RowHandler<'_>) -> Result<()>;

    /// Runs a statement and returns the number of affected rows.
    fn execute(&mut self, sql: &str, params: &[Value<'_>]) -> Result<u64>;

    /// Inserts rows, given as consecutive values.
    fn insert(&mut self, insert: BulkInsert, values: &[Value<'_>]) -> Result<()>;
}

/// A multi-row insert statement.
#[derive(Debug, Clone, Copy)]
pub struct BulkInsert {
    /// `INSERT INTO table (columns)`.
    pub into: &'static str,
    /// Number of columns.
    pub width: usize,
    /// The `ON CONFLICT` clause, or empty.
    pub conflict: &'static str,
}

impl BulkInsert {
    /// Builds the statement for `rows` rows.
    fn sql(&self, rows: usize) -> String {
        use std::fmt::Write as _;
        let mut sql = format!("{} VALUES ", self.into);
        for row in 0..rows {
            sql.push_str(if row == 0 { "(" } else { ", (" });
            for column in 0..self.width {
                let comma = if column == 0 { "" } else { ", " };
                let _never_fails = write!(sql, "{comma}?{}", row * self.width + column + 1);
            }
            sql.push(')');
        }
        sql.push(' ');
        sql.push_str(self.conflict);
        sql
    }
}

impl dyn Tx + '_ {
    /// Returns the first row, if there is one.
    pub fn query_one<T>(
        &mut self,
        sql: &str,
        params: &[Value<'_>],
        read: impl Fn(&dyn SqlRow) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut found = None;
        self.query(sql, params, &mut |row| {
            found = Some(read(row)?);
            Ok(false)
        })?;
        Ok(found)
    }

    /// Returns all rows.
    pub fn query_all<T>(
        &mut self,
        sql: &str,
        params: &[Value<'_>],
        read: impl Fn(&dyn SqlRow) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut found = Vec::new();
        self.query(sql, params, &mut |row| {
            found.push(read(row)?);
            Ok(true)
        })?;
        Ok(found)
    }
}

/// The body of a transaction.
pub type TxWork<'f> = &'f mut dyn FnMut(&mut dyn Tx) -> Result<()>;

/// A transactional SQL store.
pub trait SqlStore: Send + Sync {
    /// Runs a read-only transaction on a consistent snapshot.
    fn read(&self, work: TxWork<'_>) -> Result<()>;

    /// Runs a write transaction. Its changes are durable when this returns, or none were made.
    fn write(&self, work: TxWork<'_>) -> Result<()>;

    /// Copies a snapshot of the store to a new file.
    fn copy_to(&self, path: &std::path::Path) -> Result<()>;

    /// Releases free space and overwrites its content.
    fn scrub(&self) -> Result<()>;

    /// Updates the statistics of the query planner.
    fn analyze(&self) -> Result<()>;

    /// Returns the name: `sqlite` or `postgres`.
    fn engine(&self) -> &'static str;
}

impl dyn SqlStore + '_ {
    /// Runs a read-only transaction and returns its result.
    pub fn read_tx<T>(&self, work: impl FnOnce(&mut dyn Tx) -> Result<T>) -> Result<T> {
        let (mut work, mut done) = (Some(work), None);
        self.read(&mut |tx| {
            let work = work.take().expect("reading is not repeated");
            done = Some(work(tx)?);
            Ok(())
        })?;
        Ok(done.expect("the work was done"))
    }

    /// Runs a write transaction and returns its result.
    pub fn write_tx<T>(&self, work: impl FnOnce(&mut dyn Tx) -> Result<T>) -> Result<T> {
        let (mut work, mut done) = (Some(work), None);
        self.write(&mut |tx| {
            let work = work.take().expect("writing is not repeated");
            done = Some(work(tx)?);
            Ok(())
        })?;
        Ok(done.expect("the work was done"))
    }
}
