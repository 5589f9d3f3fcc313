//! `rung db transact`

use rung_datalog::Report;
use rung_edn::{Map, Value};
use rung_fault::Fault;

use super::show;
use crate::cli::DbTransactArgs;
use crate::exit::Result;

pub(super) fn run(args: &DbTransactArgs) -> Result {
    let db = super::to_write(&args.folder)?;
    if let Some(schema) = &args.schema {
        db.update_schema(&super::value(schema)?)
            .map_err(Fault::from)?;
    }
    for data in super::values(&super::text(&args.data)?)? {
        let report = db.transact(&data).map_err(Fault::from)?;
        show::value(&told(&report), &args.form)?;
    }
    Ok(())
}

/// What a transaction did, as a map.
pub(super) fn told(report: &Report) -> Value {
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
