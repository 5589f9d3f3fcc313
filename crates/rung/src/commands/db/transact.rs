//! `rung db transact`.

use std::io::Write as _;

use rung_datalog::{Datom, TransactionResult};
use rung_edn::{Map, Value};
use rung_fault::Fault;

use super::{DatabaseOpener, show};
use crate::cli::DbTransactArgs;
use crate::exit::{Result, output_error};
use crate::table::format_table;

pub(super) fn run(args: &DbTransactArgs, databases: &DatabaseOpener) -> Result {
    let db = databases.open_for_writing(&args.folder)?;
    if let Some(schema) = &args.schema {
        db.update_schema(&super::parse_argument(schema)?)
            .map_err(Fault::from)?;
    }
    for data in super::parse_values(&super::read_argument(&args.data)?)? {
        let report = db.transact(&data).map_err(Fault::from)?;
        if args.form.is_for_programs() {
            show::print_value(&report_to_value(&report), &args.form)?;
        } else {
            print_report(&report)?;
        }
    }
    Ok(())
}

/// Maximum number of datoms in the table for people. EDN and JSON contain all.
const MAX_SHOWN_DATOMS: usize = 20;

/// Prints what a transaction did, as a table.
pub(super) fn print_report(report: &TransactionResult) -> Result {
    let name = |a: u32| match report.schema.by_id(a) {
        Some(attribute) => format!(":{}", attribute.name),
        None => a.to_string(),
    };
    let row = |datom: &Datom| {
        let did = if datom.added { "added" } else { "retracted" };
        let (e, value) = (datom.e.to_string(), show::format_cell(&datom.v));
        vec![e, name(datom.a), value, did.to_owned()]
    };
    let rows: Vec<Vec<String>> = report
        .datoms
        .iter()
        .take(MAX_SHOWN_DATOMS)
        .map(row)
        .collect();
    let mut out = std::io::stdout().lock();
    if !rows.is_empty() {
        let heading = ["ENTITY", "ATTRIBUTE", "VALUE", ""];
        write!(out, "{}", format_table(&heading, &rows)).map_err(output_error)?;
    }
    let (count, s) = match report.datoms.len() {
        1 => (1, ""),
        count => (count, "s"),
    };
    let more = if count > MAX_SHOWN_DATOMS {
        format!("; the first {MAX_SHOWN_DATOMS} are shown, --edn and --json print all")
    } else {
        String::new()
    };
    writeln!(out, "transaction {}: {count} datom{s}{more}", report.tx).map_err(output_error)?;
    for (said, e) in &report.tempids {
        writeln!(out, "{said} is entity {e}").map_err(output_error)?;
    }
    Ok(())
}

/// Returns what a transaction did, as a map.
fn report_to_value(report: &TransactionResult) -> Value {
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
