//! `rung db stat`.

use std::io::Write as _;
use std::path::Path;

use rung_fault::Fault;
use serde_json::json;

use super::DatabaseOpener;
use crate::exit::{Result, output_error};

pub(super) fn run(folder: &Path, as_json: bool, databases: &DatabaseOpener) -> Result {
    let db = databases.open_for_reading(folder)?;
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
    if as_json {
        let counts = json!({
            "datoms": datoms, "attributes": attributes, "max_entity": max_entity,
            "transactions": transactions, "disk_bytes": bytes,
        });
        return writeln!(out, "{counts:#}").map_err(output_error);
    }
    for (name, count) in [
        ("datoms", datoms),
        ("attributes", attributes as u64),
        ("highest entity", max_entity),
        ("transactions", transactions),
        ("bytes on disk", bytes),
    ] {
        writeln!(out, "{name:<16} {count}").map_err(output_error)?;
    }
    Ok(())
}
