//! The same records in plain SQLite tables, with hand-written indexes.

use std::path::Path;

use anyhow::Result;
use rusqlite::Connection;

use crate::corpus::{Corpus, STREAMS};

pub struct PlainSqlite(Connection);

impl PlainSqlite {
    pub fn open(path: &Path) -> Result<Self> {
        let db = Connection::open(path)?;
        db.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -24000;
             CREATE TABLE messages (id TEXT PRIMARY KEY, at TEXT, data TEXT);
             CREATE INDEX messages_at ON messages (at, id);
             CREATE TABLE orders (id TEXT PRIMARY KEY, at TEXT, status TEXT, data TEXT);
             CREATE INDEX orders_at ON orders (at, id);
             CREATE TABLE contacts (id TEXT PRIMARY KEY, data TEXT);
             CREATE TABLE notes (id TEXT PRIMARY KEY, at TEXT, text TEXT, data TEXT);
             CREATE VIRTUAL TABLE words USING fts5(subject, body, content='', tokenize='unicode61');",
        )?;
        Ok(Self(db))
    }

    /// Inserts all records, 4,000 per transaction.
    pub fn insert_corpus(&mut self, corpus: &Corpus) -> Result<()> {
        for (stream, _) in STREAMS {
            for first in (0..corpus.count(stream)).step_by(4_000) {
                let tx = self.0.transaction()?;
                for n in first..(first + 4_000).min(corpus.count(stream)) {
                    let (id, data) = corpus.record(stream, n);
                    let text = data.to_string();
                    match stream {
                        "messages" => {
                            tx.prepare_cached("INSERT INTO messages VALUES (?1, ?2, ?3)")?.execute((&id, data["sent_at"].as_str(), &text))?;
                            let row = tx.last_insert_rowid();
                            tx.prepare_cached("INSERT INTO words (rowid, subject, body) VALUES (?1, ?2, ?3)")?
                                .execute((row, data["subject"].as_str(), data["body"].as_str()))?;
                        }
                        "orders" => {
                            tx.prepare_cached("INSERT INTO orders VALUES (?1, ?2, ?3, ?4)")?
                                .execute((&id, data["ordered_at"].as_str(), data["status"].as_str(), &text))?;
                        }
                        "contacts" => {
                            tx.prepare_cached("INSERT INTO contacts VALUES (?1, ?2)")?.execute((&id, &text))?;
                        }
                        _ => {
                            tx.prepare_cached("INSERT INTO notes VALUES (?1, ?2, ?3, ?4)")?
                                .execute((&id, data["written_at"].as_str(), data["text"].as_str(), &text))?;
                        }
                    }
                }
                tx.commit()?;
            }
        }
        Ok(())
    }

    /// Runs a query, reads all values, and returns their size in bytes.
    pub fn run_query(&self, sql: &str) -> Result<usize> {
        let mut statement = self.0.prepare_cached(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        let mut bytes = 0;
        while let Some(row) = rows.next()? {
            for at in 0..columns {
                bytes += match row.get_ref(at)? {
                    rusqlite::types::ValueRef::Text(text) => text.len(),
                    _ => 8,
                };
            }
        }
        Ok(bytes)
    }
}
