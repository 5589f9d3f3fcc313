//! The tools, one file each, in the order in which they are listed.

mod add_document;
mod add_vector;
mod api_info;
mod clear_documents;
mod close_database;
mod close_kv;
mod close_search_index;
mod close_vector_index;
mod count_datoms;
mod datoms;
mod document_count;
mod document_indexed;
mod entity;
mod fulltext_datoms;
mod kv_get;
mod kv_range;
mod kv_transact;
mod open_database;
mod open_kv;
mod open_search_index;
mod open_vector_index;
mod pull;
mod pull_many;
mod query;
mod remove_document;
mod remove_vector;
mod search_datoms;
mod search_documents;
mod transact;
mod vector_index_info;
mod vector_indexed;
mod vector_search;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rung_auth::{Access, Permit};
use rung_datalog::{Bounds, Datom, Db, Order, Reach, Schema as Attributes};
use rung_edn::Value as Edn;
use rung_fault::{Code, Detail, Face, Fault};
use rung_kv::typed::Tables;
use rung_ladder::Handle;
use rung_search::text::TextIndex;
use rung_search::vectors::VectorIndex;
use rung_tool::{
    Call, Card, Hints, Keep, Pending, Reply, Schema, TaskUse, ToolSource, arguments, unknown_tool,
    written,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::json::{given, to_json};
use crate::open::Handles;
use crate::page::Pages;
use crate::shape::{self, Outcome};

/// How much of a result is sent.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Items of a list.
    pub max_items: usize,
    /// Bytes of a message.
    pub max_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_items: 200,
            max_bytes: 524_288,
        }
    }
}

/// How the tools behave.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether anything may be made or changed.
    pub allow_writes: bool,
    /// How much of a result is sent.
    pub limits: Limits,
    /// Folders within which databases may be; anywhere where there are none.
    pub roots: Vec<PathBuf>,
    /// The version that is told.
    pub version: &'static str,
}

/// The tools.
pub struct Tools {
    entries: Vec<Entry>,
    state: Arc<State>,
}

/// What a call works with.
struct State {
    options: Options,
    handles: Handles,
    keep: Arc<dyn Keep>,
}

struct Entry {
    card: Card,
    schema: Schema,
    definition: &'static Definition,
}

/// What a tool says of itself, and does.
struct Definition {
    name: &'static str,
    description: &'static str,
    writes: bool,
    /// Its arguments: name, type, and whether it is required.
    arguments: &'static [(&'static str, Kind, bool)],
    run: fn(&Asking<'_>, Value) -> Result<Outcome, Fault>,
}

/// What an argument is.
#[derive(Clone, Copy)]
enum Kind {
    Any,
    Text,
    Whether,
    Number,
    List,
}

const ALL: [&Definition; 32] = [
    &add_document::DEFINITION,
    &add_vector::DEFINITION,
    &api_info::DEFINITION,
    &clear_documents::DEFINITION,
    &close_database::DEFINITION,
    &close_kv::DEFINITION,
    &close_search_index::DEFINITION,
    &close_vector_index::DEFINITION,
    &count_datoms::DEFINITION,
    &datoms::DEFINITION,
    &document_count::DEFINITION,
    &document_indexed::DEFINITION,
    &entity::DEFINITION,
    &fulltext_datoms::DEFINITION,
    &kv_get::DEFINITION,
    &kv_range::DEFINITION,
    &kv_transact::DEFINITION,
    &open_database::DEFINITION,
    &open_kv::DEFINITION,
    &open_search_index::DEFINITION,
    &open_vector_index::DEFINITION,
    &pull::DEFINITION,
    &pull_many::DEFINITION,
    &query::DEFINITION,
    &remove_document::DEFINITION,
    &remove_vector::DEFINITION,
    &search_datoms::DEFINITION,
    &search_documents::DEFINITION,
    &transact::DEFINITION,
    &vector_index_info::DEFINITION,
    &vector_indexed::DEFINITION,
    &vector_search::DEFINITION,
];

/// A call under way.
struct Asking<'a> {
    call: &'a Call,
    state: &'a State,
    bounds: Bounds,
}

impl Tools {
    /// The tools. What is too long for a reply is kept by `keep`.
    pub fn new(options: Options, keep: Arc<dyn Keep>) -> Result<Self, Fault> {
        let entries = ALL.iter().map(|definition| Entry::new(definition));
        Ok(Self {
            entries: entries.collect::<Result<_, _>>()?,
            state: Arc::new(State {
                options,
                handles: Handles::default(),
                keep,
            }),
        })
    }

    fn find(&self, name: &str) -> Result<&Entry, Fault> {
        let found = self.entries.iter().find(|entry| &*entry.card.name == name);
        found.ok_or_else(|| unknown_tool(name, self.entries.iter().map(|entry| &*entry.card.name)))
    }

    async fn answer(&self, call: &Call, name: &str, raw: &RawValue) -> Result<Reply, Fault> {
        let entry = self.find(name)?;
        let wrong =
            |error: serde_json::Error| Fault::new(Code::InvalidArguments, error.to_string());
        let given = match serde_json::from_str(raw.get()).map_err(wrong)? {
            Value::Null => json!({}),
            given => given,
        };
        arguments::check(&entry.schema, &given).map_err(named)?;
        if entry.definition.writes && !self.state.options.allow_writes {
            let why = format!("{name} changes something, and nothing may be changed here");
            return Err(Fault::new(Code::WritesDisabled, why)
                .with_hint("whoever starts the server allows it with --allow-writes"));
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        // Whoever no longer waits drops this.
        let _waiting = Waiting(cancelled.clone());
        let (call, state, run) = (call.clone(), self.state.clone(), entry.definition.run);
        let done = tokio::task::spawn_blocking(move || {
            let asking = Asking {
                bounds: bounds(&call, cancelled),
                call: &call,
                state: &state,
            };
            let outcome = run(&asking, given)?;
            shape::reply(outcome, &call, state.options.limits, &state.keep)
        });
        done.await
            .map_err(|error| Fault::new(Code::Internal, error.to_string()))?
    }
}

/// Somebody who waits for a query.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn bounds(call: &Call, cancelled: Arc<AtomicBool>) -> Bounds {
    let left = call
        .deadline
        .map(|end| end.saturating_duration_since(Instant::now()));
    Bounds {
        max_ms: left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
        cancelled: Some(cancelled),
        ..Bounds::default()
    }
}

/// Which argument is wrong, under the name that callers of these tools look for.
fn named(fault: Fault) -> Fault {
    let path = fault
        .detail(Detail::Path)
        .and_then(Value::as_str)
        .map(str::to_owned);
    match path {
        Some(path) if !path.is_empty() => fault.with(Detail::Field, path),
        _ => fault,
    }
}

impl Entry {
    fn new(definition: &'static Definition) -> Result<Self, Fault> {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for (name, kind, is_required) in definition.arguments {
            properties.insert((*name).to_owned(), kind.schema());
            if *is_required {
                required.push(json!(name));
            }
        }
        let mut input =
            json!({"type": "object", "properties": properties, "additionalProperties": false});
        if !required.is_empty() {
            input["required"] = required.into();
        }
        // Listed with no more than callers of these tools know, so that the list stays as short as theirs.
        let mut listed = json!({"name": definition.name, "description": definition.description, "inputSchema": &input});
        if !definition.writes {
            listed["annotations"] = json!({"readOnlyHint": true});
        }
        Ok(Self {
            schema: Schema::compile(&input)?,
            card: Card {
                name: definition.name.into(),
                title: definition.name.into(),
                description: definition.description.into(),
                icon: None,
                input_schema: Arc::new(input),
                output_schema: None,
                hints: Hints {
                    read_only: !definition.writes,
                    ..Hints::READ
                },
                access: Access::Read,
                tasks: TaskUse::Never,
                listed: Some(written(&listed).into()),
            },
            definition,
        })
    }
}

impl Kind {
    fn schema(self) -> Value {
        match self {
            Self::Any => json!({}),
            Self::Text => json!({"type": "string"}),
            Self::Whether => json!({"type": "boolean"}),
            Self::Number => json!({"type": "integer"}),
            Self::List => json!({"type": "array"}),
        }
    }
}

impl ToolSource for Tools {
    fn list<'a>(&'a self, _: &'a Permit) -> Pending<'a, Result<Vec<Card>, Fault>> {
        let cards = self
            .entries
            .iter()
            .map(|entry| entry.card.clone())
            .collect();
        Box::pin(std::future::ready(Ok(cards)))
    }

    fn describe<'a>(&'a self, _: &'a Permit, name: &'a str) -> Pending<'a, Result<Card, Fault>> {
        Box::pin(std::future::ready(
            self.find(name).map(|entry| entry.card.clone()),
        ))
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> Pending<'a, Reply> {
        Box::pin(async move {
            let answered = self.answer(call, name, arguments).await;
            answered.unwrap_or_else(|fault| Reply::failed(&fault, Face::Datalevin, call))
        })
    }
}

/// The arguments of a call.
fn read<T: DeserializeOwned>(given: Value) -> Result<T, Fault> {
    serde_json::from_value(given)
        .map_err(|error| Fault::new(Code::InvalidArguments, error.to_string()))
}

/// The arguments of a tool that closes something, or asks for nothing more.
#[derive(Deserialize)]
struct OfDatabase {
    database: String,
}

/// The arguments of a tool that opens an index.
#[derive(Deserialize)]
struct OfKv {
    kv: String,
    opts: Option<Value>,
}

/// The arguments of a tool that concerns an index of texts as a whole.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfSearch {
    search_index: String,
}

/// The arguments of a tool that concerns a text.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfDocument {
    search_index: String,
    doc_ref: Value,
}

/// The arguments of a tool that concerns an index of vectors as a whole.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfVectors {
    vector_index: String,
}

/// The arguments of a tool that concerns the vectors of a reference.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfVector {
    vector_index: String,
    vector_ref: Value,
}

/// Where an index is, where nobody says.
const DOMAIN: &str = "datalevin";

/// Options that are given, or none.
fn options(given: Option<&Value>) -> Result<Edn, Fault> {
    Ok(part(given)?.unwrap_or_else(|| Edn::Map(rung_edn::Map::new())))
}

/// The name of an index, and its other options.
fn domain_and_rest(given: Option<&Value>) -> Result<(String, Edn), Fault> {
    let Edn::Map(mut rest) = options(given)? else {
        let why = "opts is a map, as {\":domain\": \"notes\"}";
        return Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "opts"));
    };
    let domain = match rest.shift_remove(&Edn::keyword("domain")) {
        None => DOMAIN.to_owned(),
        Some(Edn::String(name)) => name.to_string(),
        Some(other) => {
            let why = format!(":domain is a text, and {other} is none");
            return Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "opts"));
        }
    };
    Ok((domain, Edn::Map(rest)))
}

/// A reference as an index has it.
fn reference(value: &Value) -> Result<Vec<u8>, Fault> {
    Ok(rung_kv::encode::encode(&given(value)?))
}

/// The numbers of a vector.
#[expect(
    clippy::cast_possible_truncation,
    reason = "vectors have numbers of 32 bits"
)]
fn numbers(values: &[Value], field: &str) -> Result<Vec<f32>, Fault> {
    let numbers = values
        .iter()
        .map(|value| value.as_f64().map(|number| number as f32));
    numbers.collect::<Option<_>>().ok_or_else(|| {
        let why = format!("{field} has numbers alone");
        Fault::new(Code::InvalidArguments, why).with(Detail::Field, field)
    })
}

impl Asking<'_> {
    fn search_index(&self, id: &str) -> Result<(Arc<Tables>, TextIndex), Fault> {
        self.state.handles.search_index(self.permit(), id)
    }

    fn vector_index(&self, id: &str) -> Result<(Arc<Tables>, VectorIndex), Fault> {
        self.state.handles.vector_index(self.permit(), id)
    }

    fn permit(&self) -> &Permit {
        &self.call.permit
    }

    fn database(&self, id: &str) -> Result<Arc<Db>, Fault> {
        self.state.handles.database(self.permit(), id)
    }

    /// A folder that may be opened.
    fn folder(&self, dir: &str) -> Result<PathBuf, Fault> {
        let folder = PathBuf::from(dir);
        let roots = &self.state.options.roots;
        if roots.is_empty() {
            return Ok(folder);
        }
        // Of what is not there yet, the part that is decides.
        let above = |above: &Path| {
            let is_here = above.as_os_str().is_empty();
            let above = if is_here { Path::new(".") } else { above };
            above.canonicalize().ok()
        };
        let there = folder.ancestors().find_map(above);
        let is_plain = !folder
            .components()
            .any(|part| part == std::path::Component::ParentDir);
        let within = |root: &PathBuf| {
            there
                .as_deref()
                .is_some_and(|there: &Path| there.starts_with(root))
        };
        if is_plain && roots.iter().any(within) {
            return Ok(folder);
        }
        let why = format!("{dir} is not in a folder where databases may be");
        Err(Fault::new(Code::PermissionError, why).with(Detail::Field, "dir"))
    }

    /// The folder that a call names; what is remote cannot be reached.
    fn target(&self, dir: Option<&str>, uri: Option<&str>) -> Result<PathBuf, Fault> {
        match (dir, uri) {
            (Some(dir), None) => self.folder(dir),
            (None, Some(_)) => {
                let why = "databases elsewhere cannot be opened: name a folder with dir";
                Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "uri"))
            }
            _ => {
                let why = "exactly one of dir and uri says what is opened";
                Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "dir|uri"))
            }
        }
    }

    /// A list that `make` gives item by item, as it is found.
    fn list(
        &self,
        head: Map<String, Value>,
        is_set: bool,
        make: impl FnOnce(&mut dyn FnMut(String) -> bool) -> Result<(), Fault> + Send,
    ) -> Result<Outcome, Fault> {
        let limits = self.state.options.limits;
        let most = limits.max_bytes.min(self.call.budget.max_bytes);
        let pages = Pages {
            max_items: limits.max_items,
            max_bytes: most / 2,
            around: ["[", ",\n", "]"],
        };
        let keep = |body: &mut dyn std::io::Read| -> Result<Handle, Fault> {
            self.state
                .keep
                .keep(self.permit(), "application/json", body)
        };
        let page = pages.of(make, keep)?;
        Ok(Outcome::List { head, page, is_set })
    }
}

fn head(name: &str, id: &str) -> Map<String, Value> {
    [(name.to_owned(), json!(id))].into_iter().collect()
}

fn with_result(mut head: Map<String, Value>, result: Value) -> Outcome {
    head.insert("result".to_owned(), result);
    Outcome::Whole(head)
}

/// A datom as callers know it.
fn datom_json(datom: &Datom, attributes: &Attributes, tx: u64) -> Value {
    let name = attributes
        .by_id(datom.a)
        .map(|attribute| format!(":{}", attribute.name));
    json!({"e": datom.e, "a": name, "v": to_json(&datom.v), "tx": tx, "added": datom.added})
}

/// Datoms of an order from their first parts on, so many after so many.
fn datoms_page(
    asking: &Asking<'_>,
    id: &str,
    (order, parts): (Order, Vec<Edn>),
    (limit, offset): (Option<usize>, Option<usize>),
) -> Result<Outcome, Fault> {
    let db = asking.database(id)?;
    let (limit, offset) = (limit.unwrap_or(MAX_LIMIT), offset.unwrap_or(0));
    asking.list(head("database", id), false, |give| {
        let read = db.read(|moment| {
            let most = limit.saturating_add(offset);
            let datoms = moment.datoms(order, Reach::Within, &parts, most)?;
            for datom in datoms.iter().skip(offset) {
                if !give(datom_json(datom, moment.schema(), 1).to_string()) {
                    break;
                }
            }
            Ok(())
        });
        Ok(read?)
    })
}

/// Items where nobody says how many.
const MAX_LIMIT: usize = 10_000;

/// A part of a datom that is looked for, where it is said.
fn part(value: Option<&Value>) -> Result<Option<Edn>, Fault> {
    value
        .filter(|value| !value.is_null())
        .map(given)
        .transpose()
}
