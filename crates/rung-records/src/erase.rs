//! Taking out for good: what is erased is in no file any more.

use crate::scope::{Bearer, Collection, connection, connections};
use crate::store::{Tx, params};
use crate::write;
use crate::{Error, Records, Result};

/// What was erased.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Erased {
    /// Connections.
    pub connections: usize,
    /// Records.
    pub records: i64,
}

/// Everything that a collection lies in.
pub(crate) const TABLES: [&str; 6] = ["record", "fact", "posting", "tail", "dead", "chunk"];

impl Records {
    /// Erases a connection and everything that came from it.
    pub fn erase_connection(&self, bearer: &Bearer, id: &str) -> Result<Erased> {
        bearer.require_owner()?;
        let erased = self.store.writing(|tx| {
            connection(tx, bearer.subject, id)?.ok_or(Error::ConnectionNotFound)?;
            erase(tx, bearer.subject, id)
        })?;
        self.store.scrub()?;
        Ok(erased)
    }

    /// Erases everything of a subject.
    pub fn erase_subject(&self, bearer: &Bearer) -> Result<Erased> {
        bearer.require_owner()?;
        let subject = bearer.subject;
        let erased = self.store.writing(|tx| {
            let mut erased = Erased::default();
            for one in connections(tx, subject)? {
                let part = erase(tx, subject, &one.id)?;
                erased.connections += part.connections;
                erased.records += part.records;
            }
            for table in [
                "blob_part",
                "blob",
                "blob_binding",
                "state",
                "grant_fact",
                "package",
                "token",
                "refresh",
                "login",
                "session",
                "browser",
                "disclosure",
            ] {
                tx.execute(
                    &format!("DELETE FROM {table} WHERE subject = ?1"),
                    params![subject],
                )?;
            }
            // What was asked for and decided names accounts and records.
            for table in ["petition", "code"] {
                tx.execute(&format!("DELETE FROM {table}"), &[])?;
            }
            Ok(erased)
        })?;
        self.store.scrub()?;
        Ok(erased)
    }

    /// How long records of a stream are kept, in seconds. `None` for ever.
    pub fn keep_for(
        &self,
        bearer: &Bearer,
        connection: &str,
        stream: &str,
        keep_s: Option<i64>,
    ) -> Result<()> {
        bearer.require_owner()?;
        self.store.writing(|tx| {
            let done = tx.execute(
                "UPDATE collection SET keep_s = ?4 WHERE subject = ?1 AND connection = ?2 AND stream = ?3",
                params![bearer.subject, connection, stream, keep_s],
            )?;
            if done == 0 {
                return Err(Error::NotFound(format!("connection {connection} has no records of {stream}")));
            }
            Ok(())
        })
    }
}

fn erase(tx: &mut dyn Tx, subject: i64, connection: &str) -> Result<Erased> {
    write::lock(tx, subject)?;
    let mut erased = Erased {
        connections: 1,
        records: 0,
    };
    for collection in Collection::all(tx, subject, connection)? {
        erased.records += collection.records;
    }
    // Those that are being made, and those that others took the place of, as well.
    let all = tx.all(
        "SELECT no FROM collection WHERE subject = ?1 AND connection = ?2",
        params![subject, connection],
        |row| row.int(0),
    )?;
    for no in all {
        for table in TABLES {
            let sql = format!("DELETE FROM {table} WHERE subject = ?1 AND collection = ?2");
            tx.execute(&sql, params![subject, no])?;
        }
        tx.execute(
            "DELETE FROM blob_part WHERE subject = ?1 AND blob IN (
                SELECT blob FROM blob_binding WHERE subject = ?1 AND collection = ?2
                EXCEPT SELECT blob FROM blob_binding WHERE subject = ?1 AND collection <> ?2)",
            params![subject, no],
        )?;
        tx.execute(
            "DELETE FROM blob WHERE subject = ?1 AND id IN (
                SELECT blob FROM blob_binding WHERE subject = ?1 AND collection = ?2
                EXCEPT SELECT blob FROM blob_binding WHERE subject = ?1 AND collection <> ?2)",
            params![subject, no],
        )?;
        tx.execute(
            "DELETE FROM blob_binding WHERE subject = ?1 AND collection = ?2",
            params![subject, no],
        )?;
    }
    for table in ["state", "collection"] {
        let sql = format!("DELETE FROM {table} WHERE subject = ?1 AND connection = ?2");
        tx.execute(&sql, params![subject, connection])?;
    }
    tx.execute(
        "DELETE FROM connection WHERE subject = ?1 AND id = ?2",
        params![subject, connection],
    )?;
    Ok(erased)
}
