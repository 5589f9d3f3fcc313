//! `rung db dump`: writes a database as text: its options, its schema, and one line per datom.

use std::io::{BufWriter, Write};
use std::path::Path;

use rung_edn::{Map, Value};
use rung_fault::{Code, Fault};

use super::DatabaseOpener;
use crate::exit::{Result, output_error};

pub(super) fn run(folder: &Path, databases: &DatabaseOpener) -> Result {
    let db = databases.open_for_reading(folder)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let options = db.options().map_err(Fault::from)?;
    writeln!(out, "{}", Value::Map(options)).map_err(output_error)?;
    let mut unwritten = None;
    db.read(|moment| {
        let schema: Map = match moment.schema().to_value() {
            Value::Map(schema) => schema,
            _ => Map::new(),
        };
        let mut write = |line: &str| {
            writeln!(out, "{line}")
                .map_err(|error| unwritten = Some(error))
                .is_ok()
        };
        if !write(&Value::Map(schema).to_string()) {
            return Ok(());
        }
        moment.visit_all(|datom| {
            let attribute = moment.schema().by_id(datom.a);
            let name = attribute
                .map(|attribute| attribute.name.to_string())
                .unwrap_or_default();
            if write(&format!("[{} :{name} {}]", datom.e, datom.v)) {
                Ok(())
            } else {
                Err(rung_datalog::Error::Cancelled)
            }
        })
    })
    .or_else(|error| match error {
        // Writing failed, so the iteration was stopped: the output error is reported below.
        rung_datalog::Error::Cancelled => Ok(()),
        error => Err(Fault::from(error)),
    })?;
    match unwritten {
        Some(error) => Err(output_error(error)),
        None => out.flush().map_err(output_error),
    }
}

/// Returns the fault for a line that does not belong to a dump.
pub(super) fn invalid_dump_line(line: usize, why: impl std::fmt::Display) -> Fault {
    let why = format!("line {line} is not a line of a dump: {why}");
    Fault::new(Code::InvalidArguments, why)
        .with_hint("a dump has a line of options, a line of schema, and a line [entity attribute value] for each datom")
}
