//! The tools, one file each, in listing order.

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
mod db_add_documents;
mod db_add_vectors;
mod db_count;
mod db_explain;
mod db_list;
mod db_range;
mod db_rank;
mod db_schema;
mod db_search;
mod db_seek;
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
mod parameters;
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

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rung_auth::{Access, Permit};
use rung_datalog::Embed;
use rung_edn::shorten;
use rung_fault::{Code, Detail, Face, Fault};
use rung_tool::{
    BoxFuture, Call, Card, Hints, Reply, ResultSink, Schema, TaskUse, ToolSource, arguments,
    to_raw_json, unknown_tool,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::asking::{Asking, envelope};
use crate::handles::Handles;
use crate::named::{NamedDatabase, StoreKind};
use crate::remote::{RemoteServer, mask_addresses};
use crate::shape::{self, Outcome};
use crate::taker::Watch;

/// Nesting of JSON arguments, at most: the limit of the parser.
const MAX_JSON_DEPTH: usize = 127;
/// Characters of a message about arguments, at most.
const MAX_SHOWN_CHARS: usize = 400;

/// The limits of a result.
#[derive(Debug, Clone, Copy)]
pub struct ResultLimits {
    /// Maximum items of a list.
    pub max_items: usize,
    /// Maximum bytes of a message.
    pub max_bytes: usize,
}

impl Default for ResultLimits {
    fn default() -> Self {
        Self {
            max_items: 200,
            max_bytes: 524_288,
        }
    }
}

/// Configuration of the tools.
#[derive(Debug, Clone)]
pub struct Options {
    /// Allow creating and changing databases.
    pub allow_writes: bool,
    pub limits: ResultLimits,
    /// Databases that are configured by name.
    pub databases: Vec<NamedDatabase>,
    /// Allow opening other folders.
    pub any_folder: bool,
    /// Folders that contain the other databases; any folder if empty.
    pub roots: Vec<PathBuf>,
    /// The canonical folder below which databases are created if there are no roots; without it none are created.
    pub created_below: Option<PathBuf>,
    /// Remote servers that may be used: any if empty, none if `None`.
    pub servers: Option<Vec<RemoteServer>>,
    /// The embedding provider for semantic search.
    pub embed: Option<Arc<dyn Embed>>,
    /// The version to report.
    pub version: &'static str,
    /// Counts the tokens of a text.
    pub count_tokens: fn(&str) -> usize,
}

pub struct Tools {
    entries: Vec<Entry>,
    state: Arc<ToolState>,
}

/// State shared by all calls.
pub(crate) struct ToolState {
    pub(crate) options: Options,
    pub(crate) handles: Handles,
    pub(crate) keep: Arc<dyn ResultSink>,
}

struct Entry {
    card: Card,
    schema: Schema,
    definition: &'static Definition,
}

/// The definition of a tool.
struct Definition {
    name: &'static str,
    description: &'static str,
    writes: bool,
    /// Arguments: name, type, whether required, and description.
    arguments: &'static [(&'static str, Kind, bool, &'static str)],
    run: fn(&Asking<'_>, Value) -> Result<Outcome, Fault>,
}

/// The type of an argument.
#[derive(Clone, Copy)]
enum Kind {
    Any,
    Text,
    Whether,
    Number,
    List,
}

const DATALEVIN_TOOLS: [&Definition; 32] = [
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

/// The `rung.*` tools, which Datalevin's own server lacks.
const RUNG_TOOLS: [&Definition; 10] = [
    &db_list::DEFINITION,
    &db_schema::DEFINITION,
    &db_explain::DEFINITION,
    &db_search::DEFINITION,
    &db_seek::DEFINITION,
    &db_range::DEFINITION,
    &db_count::DEFINITION,
    &db_rank::DEFINITION,
    &db_add_documents::DEFINITION,
    &db_add_vectors::DEFINITION,
];

impl Tools {
    /// Returns the databases that a caller may open by name, with their kind and the caller's access.
    pub fn databases(&self, permit: &Permit) -> Vec<(String, StoreKind, Access)> {
        let known = self.state.options.databases.iter();
        let granted = known.filter_map(|known| {
            let leave = known.access_for(permit)?;
            Some((known.name.clone(), known.kind, leave.access))
        });
        granted.collect()
    }

    /// Creates the tools. `keep` stores results that are too long for a reply.
    pub fn new(options: Options, keep: Arc<dyn ResultSink>) -> Result<Self, Fault> {
        let all = DATALEVIN_TOOLS.iter().chain(&RUNG_TOOLS);
        let entries = all.map(|definition| Entry::new(definition));
        Ok(Self {
            entries: entries.collect::<Result<_, _>>()?,
            state: Arc::new(ToolState {
                handles: Handles::new(options.embed.clone()),
                options,
                keep,
            }),
        })
    }

    /// Returns the tools for a caller: all of them if it can open anything, else none.
    fn entries(&self, permit: &Permit) -> &[Entry] {
        let options = &self.state.options;
        let is_granted = |known: &NamedDatabase| known.access_for(permit).is_some();
        if options.any_folder || options.databases.iter().any(is_granted) {
            return &self.entries;
        }
        &[]
    }

    fn find(&self, permit: &Permit, name: &str) -> Result<&Entry, Fault> {
        let entries = self.entries(permit);
        let found = entries.iter().find(|entry| &*entry.card.name == name);
        found.ok_or_else(|| unknown_tool(name, entries.iter().map(|entry| &*entry.card.name)))
    }

    /// Rejects a change of a read-only resource.
    fn check_writing(&self, permit: &Permit, name: &str, given: &Value) -> Result<(), Fault> {
        let refused = |why: String, hint: &'static str| {
            Err(Fault::new(Code::WritesDisabled, why).with_hint(hint))
        };
        if !self.state.options.allow_writes {
            let why = format!("{name} writes, and the server allows no writes");
            return refused(
                why,
                "the operator starts the server with --allow-writes to allow writes",
            );
        }
        let named = ["database", "kv", "searchIndex", "vectorIndex"];
        let mut ids = named.iter().filter_map(|name| given.get(*name)?.as_str());
        let read_only = |id: &str| self.state.handles.access(permit, id) == Some(Access::Read);
        if ids.any(read_only) {
            let why = format!("{name} writes, and the caller may only read this resource");
            return refused(why, "ask the owner for a grant with mode write");
        }
        Ok(())
    }

    async fn answer(&self, call: &Call, name: &str, raw: &RawValue) -> Result<Reply, Fault> {
        let entry = self.find(&call.permit, name)?;
        let given = match serde_json::from_str(raw.get()).map_err(|error| json_fault(&error))? {
            Value::Null => json!({}),
            given => entry.without_nothing(given),
        };
        arguments::check(&entry.schema, &given).map_err(|fault| entry.named(&fault))?;
        entry.check_numbers(&given)?;
        if entry.definition.writes {
            self.check_writing(&call.permit, name, &given)?;
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        // Dropping the call cancels it.
        let _waiting = CancelOnDrop(cancelled.clone());
        let (call, state, run) = (call.clone(), self.state.clone(), entry.definition.run);
        let done = tokio::task::spawn_blocking(move || {
            let asking = Asking {
                watch: Watch::new(call.deadline, cancelled),
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

/// Cancels a call when dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Entry {
    fn new(definition: &'static Definition) -> Result<Self, Fault> {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for (name, kind, is_required, description) in definition.arguments {
            let mut property = kind.schema();
            property["description"] = json!(description);
            properties.insert((*name).to_owned(), property);
            if *is_required {
                required.push(json!(name));
            }
        }
        let mut input =
            json!({"type": "object", "properties": properties, "additionalProperties": false});
        if !required.is_empty() {
            input["required"] = required.into();
        }
        // Listed as briefly as by Datalevin's server, so that the list is as short.
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
                listed: Some(to_raw_json(&listed).into()),
            },
            definition,
        })
    }

    fn kind(&self, name: &str) -> Option<Kind> {
        let found = self.definition.arguments.iter();
        let mut found = found.filter(|(own, ..)| *own == name);
        found.next().map(|(_, kind, ..)| *kind)
    }

    /// Removes optional arguments that are null.
    fn without_nothing(&self, mut given: Value) -> Value {
        if let Value::Object(members) = &mut given {
            for (name, _, is_required, _) in self.definition.arguments {
                if !is_required && members.get(*name).is_some_and(Value::is_null) {
                    members.shift_remove(*name);
                }
            }
        }
        given
    }

    /// Maps a validation fault to the field name and code that Datalevin clients expect, with passwords masked.
    fn named(&self, fault: &Fault) -> Fault {
        let path = fault.detail(Detail::Path).and_then(Value::as_str);
        let path = path.unwrap_or_default();
        let code = match self.kind(path) {
            Some(Kind::Number | Kind::List) => Code::InvalidRequest,
            _ => fault.code(),
        };
        let mut named = Fault::new(code, mask_addresses(fault.message()));
        if let Some(hint) = fault.hint() {
            named = named.with_hint(hint.to_owned());
        }
        if path.is_empty() {
            return named;
        }
        named.with(Detail::Field, path)
    }

    /// Rejects numbers that are not whole and non-negative.
    fn check_numbers(&self, given: &Value) -> Result<(), Fault> {
        for (name, kind, ..) in self.definition.arguments {
            let wrong = given.get(*name).filter(|given| given.as_u64().is_none());
            if let (Kind::Number, Some(wrong)) = (kind, wrong) {
                let why = format!("{name} must be an integer of at least 0, not {wrong}");
                return Err(Fault::new(Code::InvalidRequest, why).with(Detail::Field, *name));
            }
        }
        Ok(())
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
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<Card>, Fault>> {
        let cards = self
            .entries(permit)
            .iter()
            .map(|entry| entry.card.clone())
            .collect();
        Box::pin(std::future::ready(Ok(cards)))
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Card, Fault>> {
        Box::pin(std::future::ready(
            self.find(permit, name).map(|entry| entry.card.clone()),
        ))
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            let answered = self.answer(call, name, arguments).await;
            let face = if name.starts_with("rung.") {
                Face::Rung
            } else {
                Face::Datalevin
            };
            answered.unwrap_or_else(|fault| Reply::failed(&fault, face, call))
        })
    }
}

/// Parses the arguments of a call.
fn parse_input<T: DeserializeOwned>(given: Value) -> Result<T, Fault> {
    serde_json::from_value(given).map_err(|error| json_fault(&error))
}

/// Returns the fault for arguments that are not valid JSON or of another shape.
fn json_fault(error: &serde_json::Error) -> Fault {
    let why = error.to_string();
    if why.starts_with("recursion limit exceeded") {
        let (line, column) = (error.line(), error.column());
        let why = format!(
            "line {line}, column {column}: the arguments are nested deeper than {MAX_JSON_DEPTH} levels"
        );
        return Fault::new(Code::InvalidArguments, why);
    }
    Fault::new(
        Code::InvalidArguments,
        shorten(&why, MAX_SHOWN_CHARS).into_owned(),
    )
}

/// The arguments of a tool that opens an index.
#[derive(Deserialize)]
struct OpenIndexInput {
    kv: String,
    opts: Option<Value>,
}

/// The arguments of a tool for a full-text index.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SearchIndexInput {
    search_index: String,
}

/// The arguments of a tool for one text.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DocumentInput {
    search_index: String,
    doc_ref: Value,
}

/// The arguments of a tool for a vector index.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VectorIndexInput {
    vector_index: String,
}

/// The arguments of a tool for the vectors of a reference.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VectorInput {
    vector_index: String,
    vector_ref: Value,
}

/// Parses a vector.
fn parse_vector(values: &[Value], field: &str) -> Result<Vec<f64>, Fault> {
    let numbers = values.iter().map(Value::as_f64);
    numbers.collect::<Option<_>>().ok_or_else(|| {
        let why = format!("{field} must contain only numbers");
        Fault::new(Code::InvalidArguments, why).with(Detail::Field, field)
    })
}

/// Returns the envelope of a table's result.
fn table_envelope(kv: &str, dbi: &str) -> Map<String, Value> {
    let mut told = envelope("kv", kv);
    told.insert("dbi".to_owned(), json!(dbi));
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_arguments_is_short_and_names_its_position() {
        let message = |text: &str| {
            let read = serde_json::from_str::<Vec<Value>>(text);
            read.map_err(|error| json_fault(&error).message().to_owned())
        };
        let deep = message(&"[".repeat(100_000));
        assert_eq!(
            deep,
            Err("line 1, column 128: the arguments are nested deeper than 127 levels".to_owned())
        );
        let depth = MAX_JSON_DEPTH;
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(message(&nested(depth)).is_ok() && message(&nested(depth + 1)).is_err());
        let long = message(&format!("\"{}\"", "x".repeat(100_000)));
        assert!(long.is_err_and(|why| why.len() < 500));
    }
}
