//! `rung db schema`.

use std::io::Write as _;

use rung_datalog::Unique;
use rung_fault::{Code, Fault};

use super::{DatabaseOpener, show};
use crate::cli::DbSchemaArgs;
use crate::exit::{Result, output_error};
use crate::table::format_table;

pub(super) fn run(args: &DbSchemaArgs, databases: &DatabaseOpener) -> Result {
    let db = if args.set.is_some() || args.options.is_some() {
        databases.open_for_writing(&args.folder)?
    } else {
        databases.open_for_reading(&args.folder)?
    };
    if let Some(given) = &args.options {
        let given = super::parse_argument(given)?;
        let Some(options) = given.as_map() else {
            let why = format!("--options must be a map in EDN, not {}", given.kind());
            return Err(Fault::new(Code::InvalidArguments, why).into());
        };
        db.set_options(options).map_err(Fault::from)?;
    }
    if let Some(given) = &args.set {
        db.update_schema(&super::parse_argument(given)?)
            .map_err(Fault::from)?;
    }
    let (schema, counts) = db
        .read(|moment| {
            let schema = moment.schema().clone();
            let counts = schema
                .attributes()
                .map(|attribute| moment.count_of(attribute.id));
            Ok((schema.clone(), counts.collect::<Result<Vec<_>, _>>()?))
        })
        .map_err(Fault::from)?;
    if args.form.is_for_programs() {
        return show::print_value(&schema.to_value(), &args.form);
    }
    let rows: Vec<Vec<String>> = schema
        .attributes()
        .zip(counts)
        .map(|(attribute, count)| {
            let unique = match attribute.unique {
                Some(Unique::Identity) => "identity",
                Some(Unique::Value) => "value",
                None => "",
            };
            vec![
                format!(":{}", attribute.name),
                attribute
                    .kind
                    .map_or("any", rung_datalog::Type::name)
                    .to_owned(),
                if attribute.many { "many" } else { "one" }.to_owned(),
                unique.to_owned(),
                count.to_string(),
            ]
        })
        .collect();
    let heading = ["ATTRIBUTE", "TYPE", "VALUES", "UNIQUE", "DATOMS"];
    let mut out = std::io::stdout().lock();
    write!(out, "{}", format_table(&heading, &rows)).map_err(output_error)
}
