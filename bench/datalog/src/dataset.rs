//! A dataset in one form for all engines: table rows that are also entities, and the queries about them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

const MAX_DATOMS_PER_TRANSACTION: usize = 100_000;

pub struct Dataset {
    pub name: &'static str,
    pub schema: &'static str,
    pub tables: Vec<EntityTable>,
    /// SQL that creates the tables.
    pub create_tables_sql: &'static str,
    /// SQL that creates the indexes, after the rows are inserted.
    pub create_indexes_sql: &'static str,
    pub queries: Vec<BenchQuery>,
}

/// One query, in Datalog and in SQL.
#[derive(Default)]
pub struct BenchQuery {
    pub name: &'static str,
    pub query: &'static str,
    pub rules: &'static str,
    pub inputs: &'static str,
    pub sql: Option<&'static str>,
}

impl BenchQuery {
    /// Returns the query inputs other than the database, as EDN.
    pub fn inputs_edn(&self) -> String {
        format!("[{} {}]", self.rules, self.inputs)
    }

    /// True if the result is one number, which is then compared instead of the number of rows.
    pub fn is_scalar(&self) -> bool {
        self.query.contains(") .")
    }
}

/// Entities with the same attributes. The first column is the entity.
pub struct EntityTable {
    pub name: &'static str,
    pub columns: &'static [&'static str],
    pub rows: Vec<Vec<Cell>>,
}

#[derive(Clone)]
pub enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Keyword(&'static str),
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Integer(number)
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

impl Dataset {
    /// Writes the data as transactions and returns the files.
    pub fn write_transactions(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let mut text = "[".to_owned();
        let mut datoms = 0;
        for table in &self.tables {
            for row in &table.rows {
                if datoms + row.len() > MAX_DATOMS_PER_TRANSACTION {
                    files.push(self.write_file(folder, files.len(), &text)?);
                    text.truncate(1);
                    datoms = 0;
                }
                datoms += write_entity(&mut text, table.columns, row)?;
            }
        }
        files.push(self.write_file(folder, files.len(), &text)?);
        Ok(files)
    }

    fn write_file(&self, folder: &Path, at: usize, text: &str) -> Result<PathBuf> {
        let file = folder.join(format!("{}-{at}.edn", self.name));
        std::fs::write(&file, format!("{text}]"))?;
        Ok(file)
    }
}

/// Writes one entity and returns the number of its datoms.
fn write_entity(text: &mut String, columns: &[&str], row: &[Cell]) -> Result<usize> {
    text.push('{');
    let mut datoms = 0;
    for (column, cell) in columns.iter().zip(row) {
        match cell {
            Cell::Null => continue,
            Cell::Integer(number) => write!(text, ":{column} {number} ")?,
            Cell::Real(number) => write!(text, ":{column} {number:?} ")?,
            Cell::Text(words) => write!(text, ":{column} \"{words}\" ")?,
            Cell::Keyword(name) => write!(text, ":{column} :{name} ")?,
        }
        datoms += 1;
    }
    text.push_str("}\n");
    // The entity id is not a datom.
    Ok(datoms - 1)
}
