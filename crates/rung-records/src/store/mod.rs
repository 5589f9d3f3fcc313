//! Where everything lies: SQL, and nothing that is of one engine only.
//!
//! Both engines run the same statements. What differs between them is how tables are made, how many rows go in at
//! once, and what is done to be durable; that is in their own files. Parameters are written `?1`, `?2`, ...

mod migrate;
mod postgres;
mod sqlite;

use crate::Result;

pub use self::postgres::{Options as PostgresOptions, Postgres};
pub use self::sqlite::Sqlite;

/// A value on its way in or out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Nothing.
    Null,
    /// A whole number.
    Int(i64),
    /// A text.
    Text(&'a str),
    /// Bytes.
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

/// The parameters of a statement, from whatever can be a value.
macro_rules! params {
    ($($value:expr),* $(,)?) => { &[$($crate::store::Value::from($value)),*] };
}
pub(crate) use params;

/// One row of an answer.
pub trait Row {
    /// The value in a column.
    fn get(&self, column: usize) -> Result<Value<'_>>;
}

impl dyn Row + '_ {
    /// A number; what is nothing is none.
    pub fn int(&self, column: usize) -> Result<i64> {
        match self.get(column)? {
            Value::Int(number) => Ok(number),
            _ => Err(unexpected(column)),
        }
    }

    /// A number or nothing.
    pub fn maybe_int(&self, column: usize) -> Result<Option<i64>> {
        match self.get(column)? {
            Value::Null => Ok(None),
            _ => self.int(column).map(Some),
        }
    }

    /// A text.
    pub fn text(&self, column: usize) -> Result<&str> {
        match self.get(column)? {
            Value::Text(text) => Ok(text),
            _ => Err(unexpected(column)),
        }
    }

    /// A text or nothing.
    pub fn maybe_text(&self, column: usize) -> Result<Option<&str>> {
        match self.get(column)? {
            Value::Null => Ok(None),
            _ => self.text(column).map(Some),
        }
    }

    /// Bytes.
    pub fn bytes(&self, column: usize) -> Result<&[u8]> {
        match self.get(column)? {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(unexpected(column)),
        }
    }
}

fn unexpected(column: usize) -> crate::Error {
    crate::Error::Broken(format!(
        "column {column} holds something else than was written there"
    ))
}

/// What is done with each row. `false` ends it.
pub type Each<'f> = &'f mut dyn FnMut(&dyn Row) -> Result<bool>;

/// A view of the store that does not change while it is looked at, or a change that happens whole or not at all.
pub trait Tx {
    /// Asks, and hands over row after row.
    fn query(&mut self, sql: &str, params: &[Value<'_>], each: Each<'_>) -> Result<()>;

    /// Changes, and says how many rows.
    fn execute(&mut self, sql: &str, params: &[Value<'_>]) -> Result<u64>;

    /// Puts in many rows of one width.
    fn insert(&mut self, insert: Insert, values: &[Value<'_>]) -> Result<()>;
}

/// How rows are put in.
#[derive(Debug, Clone, Copy)]
pub struct Insert {
    /// `INSERT INTO table (columns)`.
    pub into: &'static str,
    /// How many columns.
    pub width: usize,
    /// `ON CONFLICT ...`, or nothing.
    pub conflict: &'static str,
}

impl Insert {
    /// The statement for `rows` rows.
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
    /// The one row that is there, or none.
    pub fn one<T>(
        &mut self,
        sql: &str,
        params: &[Value<'_>],
        read: impl Fn(&dyn Row) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut found = None;
        self.query(sql, params, &mut |row| {
            found = Some(read(row)?);
            Ok(false)
        })?;
        Ok(found)
    }

    /// All rows, as they are read.
    pub fn all<T>(
        &mut self,
        sql: &str,
        params: &[Value<'_>],
        read: impl Fn(&dyn Row) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut found = Vec::new();
        self.query(sql, params, &mut |row| {
            found.push(read(row)?);
            Ok(true)
        })?;
        Ok(found)
    }
}

/// What is done within a transaction.
pub type Work<'f> = &'f mut dyn FnMut(&mut dyn Tx) -> Result<()>;

/// A store.
pub trait Store: Send + Sync {
    /// Looks at one moment of it.
    fn read(&self, work: Work<'_>) -> Result<()>;

    /// Changes it. What was changed is on disk when this returns, or nothing was.
    fn write(&self, work: Work<'_>) -> Result<()>;

    /// A copy of the whole store at one moment, in a new file.
    fn copy_to(&self, path: &std::path::Path) -> Result<()>;

    /// Gives back room, and overwrites what was in it.
    fn scrub(&self) -> Result<()>;

    /// Learns how much of what there is, so that questions are answered the short way.
    fn learn(&self) -> Result<()>;

    /// The word for it: `sqlite` or `postgres`.
    fn engine(&self) -> &'static str;
}

impl dyn Store + '_ {
    /// Looks at one moment of the store.
    pub fn reading<T>(&self, work: impl FnOnce(&mut dyn Tx) -> Result<T>) -> Result<T> {
        let (mut work, mut done) = (Some(work), None);
        self.read(&mut |tx| {
            let work = work.take().expect("reading is not repeated");
            done = Some(work(tx)?);
            Ok(())
        })?;
        Ok(done.expect("the work was done"))
    }

    /// Changes the store.
    pub fn writing<T>(&self, work: impl FnOnce(&mut dyn Tx) -> Result<T>) -> Result<T> {
        let (mut work, mut done) = (Some(work), None);
        self.write(&mut |tx| {
            let work = work.take().expect("writing is not repeated");
            done = Some(work(tx)?);
            Ok(())
        })?;
        Ok(done.expect("the work was done"))
    }
}
