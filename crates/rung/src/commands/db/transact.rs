//! `rung db transact`

use std::io::Write as _;

use rung_datalog::{Datom, Report};
use rung_edn::{Map, Value};
use rung_fault::Fault;

use super::{Databases, show};
use crate::cli::DbTransactArgs;
use crate::exit::{Result, output};
use crate::table::table;

pub(super) fn run(args: &DbTransactArgs, databases: &Databases) -> Result {
    let db = databases.to_write(&args.folder)?;
    if let Some(schema) = &args.schema {
        db.update_schema(&super::value(schema)?)
            .map_err(Fault::from)?;
    }
    for data in super::values(&super::text(&args.data)?)? {
        let report = db.transact(&data).map_err(Fault::from)?;
        if args.form.is_for_programs() {
            show::value(&told(&report), &args.form)?;
        } else {
            show_report(&report)?;
        }
    }
    Ok(())
}

/// Datoms that are shown to people. Programs are told all of them.
const SHOWN: usize = 20;

/// What a transaction did, for people.
pub(super) fn show_report(report: &Report) -> Result {
    let name = |a: u32| match report.schema.by_id(a) {
        Some(attribute) => format!(":{}", attribute.name),
        None => a.to_string(),
    };
    let row = |datom: &Datom| {
        let did = if datom.added { "added" } else { "retracted" };
        let (e, value) = (datom.e.to_string(), show::cell(&datom.v));
        vec![e, name(datom.a), value, did.to_owned()]
    };
    let rows: Vec<Vec<String>> = report.datoms.iter().take(SHOWN).map(row).collect();
    let mut out = std::io::stdout().lock();
    if !rows.is_empty() {
        let heading = ["entity", "attribute", "value", ""];
        write!(out, "{}", table(&heading, &rows)).map_err(output)?;
    }
    let (count, s) = match report.datoms.len() {
        1 => (1, ""),
        count => (count, "s"),
    };
    let more = if count > SHOWN {
        format!(", of which the first {SHOWN} are shown; --edn or --json tell all")
    } else {
        String::new()
    };
    writeln!(out, "transaction {}: {count} datom{s}{more}", report.tx).map_err(output)?;
    for (said, e) in &report.tempids {
        writeln!(out, "{said} is entity {e}").map_err(output)?;
    }
    Ok(())
}

/// What a transaction did, as a map.
fn told(report: &Report) -> Value {
    let long = |number: u64| Value::Long(i64::try_from(number).unwrap_or(i64::MAX));
    let datoms = report.datoms.iter().map(|datom| {
        let attribute = report.schema.by_id(datom.a);
        let name = attribute.map_or(Value::Nil, |attribute| {
            Value::Keyword(attribute.name.clone())
        });
        Value::Vector(vec![
            long(datom.e),
            name,
            datom.v.clone(),
            Value::Bool(datom.added),
        ])
    });
    let members: Map = [
        ("tx", long(report.tx)),
        ("tempids", Value::Map(report.tempids.clone())),
        ("tx-data", Value::Vector(datoms.collect())),
    ]
    .into_iter()
    .map(|(name, value)| (Value::keyword(name), value))
    .collect();
    Value::Map(members)
}
