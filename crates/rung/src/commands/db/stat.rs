//! `rung db stat`

use std::io::Write as _;
use std::path::Path;

use rung_fault::Fault;

use super::Databases;
use crate::exit::{Result, output};

pub(super) fn run(folder: &Path, databases: &Databases) -> Result {
    let db = databases.to_read(folder)?;
    let counted = db.read(|moment| {
        let attributes = moment.schema().attributes().count();
        Ok((
            moment.count()?,
            attributes,
            moment.max_entity()?,
            moment.max_transaction()?,
        ))
    });
    let (datoms, attributes, max_entity, transactions) = counted.map_err(Fault::from)?;
    let bytes = db.disk_bytes().map_err(Fault::from)?;
    let mut out = std::io::stdout().lock();
    for (name, count) in [
        ("datoms", datoms),
        ("attributes", attributes as u64),
        ("greatest entity", max_entity),
        ("transactions", transactions),
        ("bytes on disk", bytes),
    ] {
        writeln!(out, "{name:<16} {count}").map_err(output)?;
    }
    Ok(())
}
