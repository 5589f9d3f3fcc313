//! Schema migrations: numbered, forward only.

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::{Tx, params};
use crate::{Error, Result};

/// The name and the statements of a migration.
pub(super) type Migration = (&'static str, &'static str);

/// Runs the pending migrations. The caller holds the lock on the store.
pub(super) fn run_migrations(tx: &mut dyn Tx, steps: &[Migration]) -> Result<()> {
    tx.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations (
            version BIGINT PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL)",
        &[],
    )?;
    let taken = tx.query_all(
        "SELECT version, name, sha256 FROM schema_migrations ORDER BY version",
        &[],
        |row| {
            Ok((
                row.int(0)?,
                row.text(1)?.to_owned(),
                row.text(2)?.to_owned(),
            ))
        },
    )?;
    if taken.len() > steps.len() {
        return Err(Error::NewerFormat);
    }
    for (at, (name, sql)) in steps.iter().enumerate() {
        let digest = HEXLOWER.encode(&Sha256::digest(sql.as_bytes()));
        if let Some((_, _, same)) = taken.get(at) {
            if *same != digest {
                return Err(Error::Broken(format!(
                    "migration {name} differs from the one that was run"
                )));
            }
            continue;
        }
        for statement in sql
            .split(";\n")
            .map(str::trim)
            .filter(|sql| !sql.is_empty())
        {
            tx.execute(statement, &[])?;
        }
        let version = i64::try_from(at).unwrap_or(i64::MAX);
        tx.execute(
            "INSERT INTO schema_migrations (version, name, sha256) VALUES (?1, ?2, ?3)",
            params![version, *name, &digest],
        )?;
    }
    Ok(())
}
