//! `rung db import`: imports a dump, a CSV table or JSON documents.

use std::fs::File;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rung_datalog::{Db, Schema, Type};
use rung_db::json::from_json;
use rung_edn::{Map, Name, Value, read};
use rung_fault::{Code, Fault};
use serde::Deserializer as _;
use serde::de::{SeqAccess, Visitor};

use super::DatabaseOpener;
use super::dump::invalid_dump_line;
use crate::cli::{DbFormat, DbImportArgs};
use crate::exit::{CommandError, Result};
use crate::print::note;

/// Maximum number of entities or datoms in one transaction.
const BATCH_SIZE: usize = 20_000;
/// Interval of progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

pub(super) fn run(args: &DbImportArgs, databases: &DatabaseOpener) -> Result {
    let format = args
        .format
        .or_else(|| format_of_file(&args.file))
        .ok_or_else(|| {
            let why = format!(
                "the name of {} does not show its format",
                args.file.display()
            );
            Fault::new(Code::InvalidArguments, why)
                .with_hint("set --format dump, csv, json or ndjson")
        })?;
    let file = File::open(&args.file).map_err(|error| read_fault(&args.file, &error))?;
    let db = databases.open_for_writing(&args.folder)?;
    if let Some(schema) = &args.schema {
        db.update_schema(&super::parse_argument(schema)?)
            .map_err(Fault::from)?;
    }
    let mapping = match &args.mapping {
        Some(mapping) => match super::parse_argument(mapping)? {
            Value::Map(mapping) => mapping,
            other => {
                let why = format!(
                    "--mapping must be a map of columns to attributes, not {}",
                    other.kind()
                );
                return Err(Fault::new(Code::InvalidArguments, why).into());
            }
        },
        None => Map::new(),
    };
    let mut import = Import {
        db: &db,
        mapping,
        prefix: args.prefix.clone(),
        batch: Vec::new(),
        imported: 0,
        last_progress: Instant::now(),
        shows_progress: std::io::stderr().is_terminal(),
    };
    match format {
        DbFormat::Dump => import.import_dump(BufReader::new(file))?,
        DbFormat::Csv => import.import_csv(file)?,
        DbFormat::Json => import.import_json(BufReader::new(file))?,
        DbFormat::Ndjson => import.import_ndjson(BufReader::new(file))?,
    }
    import.commit()?;
    if import.shows_progress {
        note!("");
    }
    note!(
        "imported {} {}",
        import.imported,
        if format == DbFormat::Dump {
            "datoms"
        } else {
            "entities"
        }
    );
    Ok(())
}

fn format_of_file(file: &Path) -> Option<DbFormat> {
    match file.extension()?.to_str()? {
        "edn" | "dump" | "dtlv" => Some(DbFormat::Dump),
        "csv" => Some(DbFormat::Csv),
        "json" => Some(DbFormat::Json),
        "ndjson" | "jsonl" => Some(DbFormat::Ndjson),
        _ => None,
    }
}

fn read_fault(file: &Path, error: &std::io::Error) -> Fault {
    Fault::new(
        Code::InvalidArguments,
        format!("{} cannot be read: {error}", file.display()),
    )
}

fn import_fault(place: impl std::fmt::Display, why: impl std::fmt::Display) -> Fault {
    Fault::new(Code::InvalidArguments, format!("{place}: {why}"))
}

struct Import<'d> {
    db: &'d Db,
    /// Map of columns to attributes.
    mapping: Map,
    /// The namespace of columns that the mapping does not name.
    prefix: Option<String>,
    batch: Vec<Value>,
    imported: usize,
    last_progress: Instant,
    shows_progress: bool,
}

impl Import<'_> {
    fn add(&mut self, form: Value) -> Result {
        self.batch.push(form);
        if self.batch.len() >= BATCH_SIZE {
            self.commit()
        } else {
            Ok(())
        }
    }

    fn commit(&mut self) -> Result {
        if self.batch.is_empty() {
            return Ok(());
        }
        let count = self.batch.len();
        let batch = Value::Vector(std::mem::take(&mut self.batch));
        self.db.transact(&batch).map_err(Fault::from)?;
        self.imported += count;
        if self.shows_progress && self.last_progress.elapsed() >= PROGRESS_INTERVAL {
            self.last_progress = Instant::now();
            crate::print::prompt!("\r{} imported", self.imported);
            let _shown = std::io::stderr().flush();
        }
        Ok(())
    }

    fn import_dump(&mut self, file: BufReader<File>) -> Result {
        let mut at = 0;
        let mut heads = 0;
        // The dump contains the entity times as datoms: enable `auto-entity-time?` only after they are imported.
        let mut timed = Map::new();
        for line in file.lines() {
            at += 1;
            let line = line.map_err(|error| invalid_dump_line(at, error))?;
            if line.trim().is_empty() {
                continue;
            }
            let value = read(&line).map_err(|error| invalid_dump_line(at, error))?;
            match (value, heads) {
                (Value::Map(mut options), 0) => {
                    timed.extend(options.shift_remove_entry(&Value::keyword("auto-entity-time?")));
                    self.db.set_options(&options).map_err(Fault::from)?;
                    heads = 1;
                }
                (schema @ Value::Map(_), 1) => {
                    self.db.update_schema(&schema).map_err(Fault::from)?;
                    heads = 2;
                }
                (Value::Vector(mut datom), _) if datom.len() == 3 => {
                    datom.insert(0, Value::keyword("db/add"));
                    self.add(Value::Vector(datom))?;
                }
                (other, _) => {
                    return Err(
                        invalid_dump_line(at, format!("unexpected {}", other.kind())).into(),
                    );
                }
            }
        }
        self.commit()?;
        Ok(self.db.set_options(&timed).map_err(Fault::from)?)
    }

    /// Returns the attribute of a column, or `None` if the mapping skips it.
    fn attribute_of_column(&self, column: &str) -> Option<Name> {
        match self
            .mapping
            .get(&Value::text(column))
            .or_else(|| self.mapping.get(&Value::keyword(column)))
        {
            Some(Value::Keyword(name)) => Some(name.clone()),
            // A column that is mapped to nil is skipped.
            Some(_) => None,
            None => {
                // Headings may contain any character; attribute names have neither spaces nor brackets.
                let bare = column.strip_prefix(':').unwrap_or(column);
                let plain = |c: char| c.is_alphanumeric() || "._-*+!?/".contains(c);
                let bare: String = bare
                    .chars()
                    .map(|c| if plain(c) { c } else { '-' })
                    .collect();
                Some(match &self.prefix {
                    Some(prefix) => Name::with_namespace(prefix, &bare),
                    None => Name::new(bare),
                })
            }
        }
    }

    fn schema(&self) -> Result<std::sync::Arc<Schema>> {
        Ok(self
            .db
            .read(|moment| Ok(moment.schema().clone()))
            .map_err(Fault::from)?)
    }

    fn import_csv(&mut self, file: File) -> Result {
        let mut rows = csv::Reader::from_reader(file);
        let heading = rows
            .headers()
            .map_err(|error| import_fault("the heading row", error))?
            .clone();
        let schema = self.schema()?;
        let columns: Vec<Option<(Name, Option<Type>)>> = heading
            .iter()
            .map(|column| {
                let name = self.attribute_of_column(column.trim())?;
                let kind = schema.get(&name).and_then(|attribute| attribute.kind);
                Some((name, kind))
            })
            .collect();
        for (at, row) in rows.records().enumerate() {
            let row = row.map_err(|error| import_fault(format!("row {}", at + 1), error))?;
            let cells = row.iter().zip(&columns).filter_map(|(cell, column)| {
                let (name, kind) = column.as_ref()?;
                Some((Value::Keyword(name.clone()), parse_cell(cell, *kind)?))
            });
            let entity: Map = cells.collect();
            if !entity.is_empty() {
                self.add(Value::Map(entity))?;
            }
        }
        Ok(())
    }

    fn import_document(&mut self, document: &serde_json::Value, place: &str) -> Result {
        let serde_json::Value::Object(members) = document else {
            return Err(import_fault(place, "the document is not an object").into());
        };
        let members = members.iter().filter(|(_, value)| !value.is_null());
        let entity: Map = members
            .filter_map(|(name, value)| {
                Some((
                    Value::Keyword(self.attribute_of_column(name)?),
                    from_json(value),
                ))
            })
            .collect();
        if entity.is_empty() {
            Ok(())
        } else {
            self.add(Value::Map(entity))
        }
    }

    fn import_json(&mut self, file: BufReader<File>) -> Result {
        let mut items = ListVisitor {
            import: self,
            failed: None,
        };
        let read = serde_json::Deserializer::from_reader(file).deserialize_seq(&mut items);
        if let Some(stop) = items.failed {
            return Err(stop);
        }
        Ok(read.map_err(|error| import_fault("the file is not a list of objects", error))?)
    }

    fn import_ndjson(&mut self, file: BufReader<File>) -> Result {
        for (at, line) in file.lines().enumerate() {
            let place = format!("line {}", at + 1);
            let line = line.map_err(|error| import_fault(&place, error))?;
            if line.trim().is_empty() {
                continue;
            }
            let document =
                serde_json::from_str(&line).map_err(|error| import_fault(&place, error))?;
            self.import_document(&document, &place)?;
        }
        Ok(())
    }
}

/// Imports a list while it is parsed, so that the whole list is never in memory.
struct ListVisitor<'i, 'd> {
    import: &'i mut Import<'d>,
    /// Error of the item that stopped the import.
    failed: Option<CommandError>,
}

impl<'j> Visitor<'j> for &mut ListVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, told: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        told.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'j>>(self, mut items: A) -> std::result::Result<(), A::Error> {
        let mut at = 0;
        while let Some(document) = items.next_element::<serde_json::Value>()? {
            if let Err(stop) = self
                .import
                .import_document(&document, &format!("item {at}"))
            {
                self.failed = Some(stop);
                return Err(serde::de::Error::custom("an item was rejected"));
            }
            at += 1;
        }
        Ok(())
    }
}

/// Converts a cell to the type of its attribute. Without a type, numbers and booleans are recognised. An empty cell is skipped.
fn parse_cell(cell: &str, kind: Option<Type>) -> Option<Value> {
    if cell.is_empty() {
        return None;
    }
    let number = || {
        let digits = cell.strip_prefix('-').unwrap_or(cell);
        // Digits with a leading zero are an identifier, not a number.
        let padded =
            digits.starts_with('0') && digits[1..].starts_with(|c: char| c.is_ascii_digit());
        if padded || !digits.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let long = cell.parse().map(Value::Long).ok();
        long.or_else(|| cell.parse().ok().map(Value::Double))
    };
    let truth = || cell.parse().ok().map(Value::Bool);
    let of_edn = || read(cell).ok();
    let value = match kind {
        None => number().or_else(truth),
        Some(
            Type::String | Type::Keyword | Type::Symbol | Type::Uuid | Type::Boolean | Type::Idoc,
        ) => None,
        Some(Type::Instant) => read(&format!("#inst {}", Value::text(cell)))
            .ok()
            .or_else(number),
        Some(Type::Bytes) => read(&format!("#datalevin/bytes {}", Value::text(cell))).ok(),
        Some(Type::Long | Type::Double | Type::Float | Type::Ref) => number().or_else(of_edn),
        Some(Type::BigInt | Type::BigDec | Type::Tuple | Type::Vec) => of_edn(),
    };
    Some(value.unwrap_or_else(|| Value::text(cell)))
}
