//! How tables came to be what they are: step after step, forward only.

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::{Tx, params};
use crate::{Error, Result};

/// A step: its name, and its statements.
pub(super) type Step = (&'static str, &'static str);

/// Takes the steps that were not taken yet. Whoever calls has locked the store.
pub(super) fn run(tx: &mut dyn Tx, steps: &[Step]) -> Result<()> {
    tx.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations (
            version BIGINT PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL)",
        &[],
    )?;
    let taken = tx.all(
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
        return Err(Error::Newer);
    }
    for (at, (name, sql)) in steps.iter().enumerate() {
        let digest = HEXLOWER.encode(&Sha256::digest(sql.as_bytes()));
        if let Some((_, _, same)) = taken.get(at) {
            if *same != digest {
                return Err(Error::Broken(format!(
                    "migration {name} is not the one that was run"
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
