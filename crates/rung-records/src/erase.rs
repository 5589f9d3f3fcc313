//! Erasure: erased data remains in no file.

use crate::scope::{Bearer, Collection, connection, connections};
use crate::store::{Tx, params};
use crate::write;
use crate::{Error, Records, Result};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EraseReport {
    pub connections: usize,
    pub records: i64,
}

/// The tables that hold the data of a collection.
pub(crate) const COLLECTION_TABLES: [&str; 6] =
    ["record", "fact", "posting", "tail", "dead", "chunk"];

impl Records {
    /// Erases a connection and all its data.
    pub fn erase_connection(&self, bearer: &Bearer, id: &str) -> Result<EraseReport> {
        bearer.require_owner()?;
        let erased = self.store.write_tx(|tx| {
            if connection(tx, bearer.subject, id)?.is_none() {
                let known = connections(tx, bearer.subject)?;
                let known = known.iter().map(|one| one.id.as_str());
                return Err(Error::ConnectionNotFound.with_similar_names(id, known));
            }
            erase_data(tx, bearer.subject, id)
        })?;
        self.store.scrub()?;
        Ok(erased)
    }

    /// Erases all data of a subject.
    pub fn erase_subject(&self, bearer: &Bearer) -> Result<EraseReport> {
        bearer.require_owner()?;
        let subject = bearer.subject;
        let erased = self.store.write_tx(|tx| {
            let mut erased = EraseReport::default();
            for one in connections(tx, subject)? {
                let part = erase_data(tx, subject, &one.id)?;
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
            // Authorization requests and codes mention accounts and records.
            for table in ["petition", "code"] {
                tx.execute(&format!("DELETE FROM {table}"), &[])?;
            }
            Ok(erased)
        })?;
        self.store.scrub()?;
        Ok(erased)
    }

    /// Sets how long records of a stream are kept, in seconds. `None`: forever.
    pub fn set_retention(
        &self,
        bearer: &Bearer,
        connection: &str,
        stream: &str,
        keep_s: Option<i64>,
    ) -> Result<()> {
        bearer.require_owner()?;
        self.store.write_tx(|tx| {
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

fn erase_data(tx: &mut dyn Tx, subject: i64, connection: &str) -> Result<EraseReport> {
    write::lock_subject(tx, subject)?;
    let mut erased = EraseReport {
        connections: 1,
        records: 0,
    };
    for collection in Collection::all(tx, subject, connection)? {
        erased.records += collection.records;
    }
    // Includes collections that are being rebuilt or were replaced.
    let all = tx.query_all(
        "SELECT no FROM collection WHERE subject = ?1 AND connection = ?2",
        params![subject, connection],
        |row| row.int(0),
    )?;
    for no in all {
        for table in COLLECTION_TABLES {
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
