//! A set of data in one form for all engines: rows of tables that are entities too, and what is asked of them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// Datoms in one transaction, at most.
const DATOMS: usize = 100_000;

pub struct Data {
    pub name: &'static str,
    pub schema: &'static str,
    pub tables: Vec<Table>,
    /// The tables in SQL.
    pub sql: &'static str,
    /// Their indexes, made when the rows are in.
    pub indexes: &'static str,
    pub questions: Vec<Question>,
}

/// A question, in Datalog and in SQL.
#[derive(Default)]
pub struct Question {
    pub name: &'static str,
    pub query: &'static str,
    pub rules: &'static str,
    pub inputs: &'static str,
    pub sql: Option<&'static str>,
}

impl Question {
    /// What is given beside the database.
    pub fn given(&self) -> String {
        format!("[{} {}]", self.rules, self.inputs)
    }

    /// Whether the answer is one number, which then stands for the number of rows.
    pub fn is_number(&self) -> bool {
        self.query.contains(") .")
    }
}

/// Entities with the same attributes. The first column is the entity.
pub struct Table {
    pub name: &'static str,
    pub columns: &'static [&'static str],
    pub rows: Vec<Vec<Cell>>,
}

#[derive(Clone)]
pub enum Cell {
    Nothing,
    Number(i64),
    Real(f64),
    Text(String),
    Keyword(&'static str),
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Data {
    /// Writes the data as transactions, and says in which files.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let mut text = "[".to_owned();
        let mut datoms = 0;
        for table in &self.tables {
            for row in &table.rows {
                if datoms + row.len() > DATOMS {
                    files.push(self.write_one(folder, files.len(), &text)?);
                    text.truncate(1);
                    datoms = 0;
                }
                datoms += entity(&mut text, table.columns, row)?;
            }
        }
        files.push(self.write_one(folder, files.len(), &text)?);
        Ok(files)
    }

    fn write_one(&self, folder: &Path, at: usize, text: &str) -> Result<PathBuf> {
        let file = folder.join(format!("{}-{at}.edn", self.name));
        std::fs::write(&file, format!("{text}]"))?;
        Ok(file)
    }
}

/// Writes one entity, and gives the number of its datoms.
fn entity(text: &mut String, columns: &[&str], row: &[Cell]) -> Result<usize> {
    text.push('{');
    let mut datoms = 0;
    for (column, cell) in columns.iter().zip(row) {
        match cell {
            Cell::Nothing => continue,
            Cell::Number(number) => write!(text, ":{column} {number} ")?,
            Cell::Real(number) => write!(text, ":{column} {number:?} ")?,
            Cell::Text(words) => write!(text, ":{column} \"{words}\" ")?,
            Cell::Keyword(name) => write!(text, ":{column} :{name} ")?,
        }
        datoms += 1;
    }
    text.push_str("}\n");
    // The entity itself is none.
    Ok(datoms - 1)
}
