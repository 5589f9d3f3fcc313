//! `rung db dump`: all of a database as text: its options, its schema, and a line for each datom.

use std::io::{BufWriter, Write};
use std::path::Path;

use rung_edn::{Map, Value};
use rung_fault::{Code, Fault};

use super::Databases;
use crate::exit::{Result, output};

pub(super) fn run(folder: &Path, databases: &Databases) -> Result {
    let db = databases.to_read(folder)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let options = db.options().map_err(Fault::from)?;
    writeln!(out, "{}", Value::Map(options)).map_err(output)?;
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
        moment.each_datom(|datom| {
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
        // Nobody reads any further.
        rung_datalog::Error::Cancelled => Ok(()),
        error => Err(Fault::from(error)),
    })?;
    match unwritten {
        Some(error) => Err(output(error)),
        None => out.flush().map_err(output),
    }
}

/// The fault of a text that is no dump.
pub(super) fn no_dump(line: usize, why: impl std::fmt::Display) -> Fault {
    let why = format!("line {line} is not of a dump: {why}");
    Fault::new(Code::InvalidArguments, why)
        .with_hint("a dump has the options, the schema, and then a line [entity attribute value] for each datom")
}
