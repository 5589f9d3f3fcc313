//! `rung db import`: a dump, a table or documents become datoms.

use std::fs::File;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rung_datalog::{Db, Schema, Type};
use rung_db::json::of_json;
use rung_edn::{Map, Name, Value, read};
use rung_fault::{Code, Fault};
use serde::Deserializer as _;
use serde::de::{SeqAccess, Visitor};

use super::Databases;
use super::dump::no_dump;
use crate::cli::{DbFormat, DbImportArgs};
use crate::exit::{Result, Stop};

/// Entities or datoms of one transaction.
const BATCH: usize = 20_000;
/// How often progress is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

pub(super) fn run(args: &DbImportArgs, databases: &Databases) -> Result {
    let format = args.format.or_else(|| by_name(&args.file)).ok_or_else(|| {
        let why = format!(
            "the format of {} cannot be told from its name",
            args.file.display()
        );
        Fault::new(Code::InvalidArguments, why)
            .with_hint("say it with --format dump, csv, json or ndjson")
    })?;
    let file = File::open(&args.file).map_err(|error| unreadable(&args.file, &error))?;
    let db = databases.to_write(&args.folder)?;
    if let Some(schema) = &args.schema {
        db.update_schema(&super::value(schema)?)
            .map_err(Fault::from)?;
    }
    let mapping = match &args.mapping {
        Some(mapping) => match super::value(mapping)? {
            Value::Map(mapping) => mapping,
            other => {
                let why =
                    format!("a mapping is a map of columns to attributes, and {other} is none");
                return Err(Fault::new(Code::InvalidArguments, why).into());
            }
        },
        None => Map::new(),
    };
    let mut import = Import {
        db: &db,
        mapping,
        prefix: args.prefix.clone(),
        waiting: Vec::new(),
        done: 0,
        shown: Instant::now(),
        progress: std::io::stderr().is_terminal(),
    };
    match format {
        DbFormat::Dump => import.dump(BufReader::new(file))?,
        DbFormat::Csv => import.csv(file)?,
        DbFormat::Json => import.json(BufReader::new(file))?,
        DbFormat::Ndjson => import.ndjson(BufReader::new(file))?,
    }
    import.commit()?;
    if import.progress {
        eprintln!();
    }
    eprintln!(
        "imported {} {}",
        import.done,
        if format == DbFormat::Dump {
            "datoms"
        } else {
            "entities"
        }
    );
    Ok(())
}

fn by_name(file: &Path) -> Option<DbFormat> {
    match file.extension()?.to_str()? {
        "edn" | "dump" | "dtlv" => Some(DbFormat::Dump),
        "csv" => Some(DbFormat::Csv),
        "json" => Some(DbFormat::Json),
        "ndjson" | "jsonl" => Some(DbFormat::Ndjson),
        _ => None,
    }
}

fn unreadable(file: &Path, error: &std::io::Error) -> Fault {
    Fault::new(
        Code::InvalidArguments,
        format!("{} cannot be read: {error}", file.display()),
    )
}

fn wrong(place: impl std::fmt::Display, why: impl std::fmt::Display) -> Fault {
    Fault::new(Code::InvalidArguments, format!("{place}: {why}"))
}

struct Import<'d> {
    db: &'d Db,
    /// Columns to attributes.
    mapping: Map,
    /// The namespace of columns that the mapping does not name.
    prefix: Option<String>,
    waiting: Vec<Value>,
    done: usize,
    shown: Instant,
    progress: bool,
}

impl Import<'_> {
    fn add(&mut self, form: Value) -> Result {
        self.waiting.push(form);
        if self.waiting.len() >= BATCH {
            self.commit()
        } else {
            Ok(())
        }
    }

    fn commit(&mut self) -> Result {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let count = self.waiting.len();
        let batch = Value::Vector(std::mem::take(&mut self.waiting));
        self.db.transact(&batch).map_err(Fault::from)?;
        self.done += count;
        if self.progress && self.shown.elapsed() >= SHOWN_EVERY {
            self.shown = Instant::now();
            eprint!("\r{} imported", self.done);
            let _shown = std::io::stderr().flush();
        }
        Ok(())
    }

    fn dump(&mut self, file: BufReader<File>) -> Result {
        let mut at = 0;
        let mut heads = 0;
        // When entities came and changed is among the datoms: it is told anew only once they are in.
        let mut timed = Map::new();
        for line in file.lines() {
            at += 1;
            let line = line.map_err(|error| no_dump(at, error))?;
            if line.trim().is_empty() {
                continue;
            }
            let value = read(&line).map_err(|error| no_dump(at, error))?;
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
                    return Err(no_dump(at, format!("{} is neither", other.kind())).into());
                }
            }
        }
        self.commit()?;
        Ok(self.db.set_options(&timed).map_err(Fault::from)?)
    }

    /// The attribute of a column.
    fn attribute(&self, column: &str) -> Option<Name> {
        match self
            .mapping
            .get(&Value::text(column))
            .or_else(|| self.mapping.get(&Value::keyword(column)))
        {
            Some(Value::Keyword(name)) => Some(name.clone()),
            // What is mapped to nothing is left out.
            Some(_) => None,
            None => {
                // A heading may be anything; a name has neither spaces nor brackets.
                let bare = column.strip_prefix(':').unwrap_or(column);
                let plain = |c: char| c.is_alphanumeric() || "._-*+!?/".contains(c);
                let bare: String = bare
                    .chars()
                    .map(|c| if plain(c) { c } else { '-' })
                    .collect();
                Some(match &self.prefix {
                    Some(prefix) => Name::within(prefix, &bare),
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

    fn csv(&mut self, file: File) -> Result {
        let mut rows = csv::Reader::from_reader(file);
        let heading = rows
            .headers()
            .map_err(|error| wrong("the heading", error))?
            .clone();
        let schema = self.schema()?;
        let columns: Vec<Option<(Name, Option<Type>)>> = heading
            .iter()
            .map(|column| {
                let name = self.attribute(column.trim())?;
                let kind = schema.get(&name).and_then(|attribute| attribute.kind);
                Some((name, kind))
            })
            .collect();
        for (at, row) in rows.records().enumerate() {
            let row = row.map_err(|error| wrong(format!("row {}", at + 1), error))?;
            let cells = row.iter().zip(&columns).filter_map(|(cell, column)| {
                let (name, kind) = column.as_ref()?;
                Some((Value::Keyword(name.clone()), typed(cell, *kind)?))
            });
            let entity: Map = cells.collect();
            if !entity.is_empty() {
                self.add(Value::Map(entity))?;
            }
        }
        Ok(())
    }

    fn document(&mut self, document: &serde_json::Value, place: &str) -> Result {
        let serde_json::Value::Object(members) = document else {
            return Err(wrong(place, "a document is an object").into());
        };
        let members = members.iter().filter(|(_, value)| !value.is_null());
        let entity: Map = members
            .filter_map(|(name, value)| {
                Some((Value::Keyword(self.attribute(name)?), of_json(value)))
            })
            .collect();
        if entity.is_empty() {
            Ok(())
        } else {
            self.add(Value::Map(entity))
        }
    }

    fn json(&mut self, file: BufReader<File>) -> Result {
        let mut items = Items {
            import: self,
            failed: None,
        };
        let read = serde_json::Deserializer::from_reader(file).deserialize_seq(&mut items);
        if let Some(stop) = items.failed {
            return Err(stop);
        }
        Ok(read.map_err(|error| wrong("a list of objects was expected", error))?)
    }

    fn ndjson(&mut self, file: BufReader<File>) -> Result {
        for (at, line) in file.lines().enumerate() {
            let place = format!("line {}", at + 1);
            let line = line.map_err(|error| wrong(&place, error))?;
            if line.trim().is_empty() {
                continue;
            }
            let document = serde_json::from_str(&line).map_err(|error| wrong(&place, error))?;
            self.document(&document, &place)?;
        }
        Ok(())
    }
}

/// Takes in a list as it is read, so that it is never in memory as a whole.
struct Items<'i, 'd> {
    import: &'i mut Import<'d>,
    /// Why an item was not taken in.
    failed: Option<Stop>,
}

impl<'j> Visitor<'j> for &mut Items<'_, '_> {
    type Value = ();

    fn expecting(&self, told: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        told.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'j>>(self, mut items: A) -> std::result::Result<(), A::Error> {
        let mut at = 0;
        while let Some(document) = items.next_element::<serde_json::Value>()? {
            if let Err(stop) = self.import.document(&document, &format!("item {at}")) {
                self.failed = Some(stop);
                return Err(serde::de::Error::custom("an item was not taken in"));
            }
            at += 1;
        }
        Ok(())
    }
}

/// A cell as its attribute has it; where that has no type, a number is one, and so is truth. An empty cell says nothing.
fn typed(cell: &str, kind: Option<Type>) -> Option<Value> {
    if cell.is_empty() {
        return None;
    }
    let number = || {
        let digits = cell.strip_prefix('-').unwrap_or(cell);
        // What begins with a zero is a name made of digits.
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
