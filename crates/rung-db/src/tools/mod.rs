//! The tools, one file each, in listing order.

#![allow(
    clippy::needless_pass_by_value,
    reason = "a tool's body owns its input"
)]

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

use rung_auth::{Access, Permit};
use rung_datalog::Embed;
use rung_fault::{Code, Detail, Face, Fault};
use rung_tool::{
    Answer, Body, BoxFuture, Call, Card, ErasedTool, Hints, InputSchema, Parameter, Payload,
    PayloadLimits, Reply, ResultSink, Tool, ToolSet, ToolSource, Toolbox,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::context::{DatabaseContext, envelope};
use crate::handles::Handles;
use crate::named::{NamedDatabase, StoreKind};
use crate::remote::{RemoteServer, mask_addresses};

/// Configuration of the tools.
#[derive(Debug, Clone)]
pub struct Options {
    /// Allow creating and changing databases.
    pub allow_writes: bool,
    pub limits: PayloadLimits,
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
}

/// The tools of databases.
pub struct Tools(Toolbox<Databases>);

impl Tools {
    /// Creates the tools. `result_sink` stores results that are too long for a reply.
    pub fn new(options: Options, result_sink: Arc<dyn ResultSink>) -> Result<Self, Fault> {
        let set = Databases {
            handles: Handles::new(options.embed.clone()),
            options,
            sink: result_sink.clone(),
        };
        Ok(Self(Toolbox::new(Arc::new(set), &TOOLS, result_sink)?))
    }

    /// Returns the databases that a caller may open by name, with their kind and the caller's access.
    pub fn databases(&self, permit: &Permit) -> Vec<(String, StoreKind, Access)> {
        let known = self.0.set().options.databases.iter();
        let granted = known.filter_map(|known| {
            let granted = known.access_for(permit)?;
            Some((known.name.clone(), known.kind, granted.access))
        });
        granted.collect()
    }
}

impl ToolSource for Tools {
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<Card>, Fault>> {
        self.0.list(permit)
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Card, Fault>> {
        self.0.describe(permit, name)
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> BoxFuture<'a, Reply> {
        self.0.call(call, name, arguments)
    }
}

/// State shared by all calls.
pub(crate) struct Databases {
    pub(crate) options: Options,
    pub(crate) handles: Handles,
    pub(crate) sink: Arc<dyn ResultSink>,
}

/// Datalevin's own tools, then those that its server lacks.
const TOOLS: [&dyn ErasedTool<Databases>; 42] = [
    &add_document::TOOL,
    &add_vector::TOOL,
    &api_info::TOOL,
    &clear_documents::TOOL,
    &close_database::TOOL,
    &close_kv::TOOL,
    &close_search_index::TOOL,
    &close_vector_index::TOOL,
    &count_datoms::TOOL,
    &datoms::TOOL,
    &document_count::TOOL,
    &document_indexed::TOOL,
    &entity::TOOL,
    &fulltext_datoms::TOOL,
    &kv_get::TOOL,
    &kv_range::TOOL,
    &kv_transact::TOOL,
    &open_database::TOOL,
    &open_kv::TOOL,
    &open_search_index::TOOL,
    &open_vector_index::TOOL,
    &pull::TOOL,
    &pull_many::TOOL,
    &query::TOOL,
    &remove_document::TOOL,
    &remove_vector::TOOL,
    &search_datoms::TOOL,
    &search_documents::TOOL,
    &transact::TOOL,
    &vector_index_info::TOOL,
    &vector_indexed::TOOL,
    &vector_search::TOOL,
    &db_list::TOOL,
    &db_schema::TOOL,
    &db_explain::TOOL,
    &db_search::TOOL,
    &db_seek::TOOL,
    &db_range::TOOL,
    &db_count::TOOL,
    &db_rank::TOOL,
    &db_add_documents::TOOL,
    &db_add_vectors::TOOL,
];

/// Hints of the tools. The defaults of the protocol, except for what only reads: a list is as short as Datalevin's.
const fn hints(read_only: bool) -> Hints {
    Hints {
        read_only,
        destructive: true,
        idempotent: false,
        open_world: true,
    }
}

/// The body of a tool.
type DatabaseBody<I> = for<'a, 'b> fn(&'b DatabaseContext<'a>, I) -> Result<Payload, Fault>;

/// Creates a tool that changes nothing.
const fn reading_tool<I>(
    name: &'static str,
    description: &'static str,
    parameters: &'static [Parameter],
    run: DatabaseBody<I>,
) -> Tool<Databases, I> {
    let input = InputSchema::Table(parameters);
    Tool::new(
        name,
        description,
        input,
        Body::<Databases, I>::Blocking(run),
    )
    .with_hints(hints(true))
}

/// Creates a tool that changes a database.
const fn writing_tool<I>(
    name: &'static str,
    description: &'static str,
    parameters: &'static [Parameter],
    run: DatabaseBody<I>,
) -> Tool<Databases, I> {
    let input = InputSchema::Table(parameters);
    Tool::new(
        name,
        description,
        input,
        Body::<Databases, I>::Blocking(run),
    )
    .with_hints(hints(false))
}

impl Databases {
    /// Returns true if a permit can open any database.
    fn opens_any(&self, permit: &Permit) -> bool {
        let is_granted = |known: &NamedDatabase| known.access_for(permit).is_some();
        self.options.any_folder || self.options.databases.iter().any(is_granted)
    }
}

impl ToolSet for Databases {
    type Access = ();
    type Context<'a> = DatabaseContext<'a>;
    type Outcome = Payload;
    type Error = Fault;
    const SEARCH_HINT: &'static str =
        "database: facts, Datalog queries, keys and values, full-text and vector search";

    fn is_open<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<bool, Fault>> {
        Box::pin(std::future::ready(Ok(self.opens_any(permit))))
    }

    fn resolve<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Option<()>, Fault>> {
        let opens = self.opens_any(permit).then_some(());
        Box::pin(std::future::ready(Ok(opens)))
    }

    /// Returns the field name and the code that Datalevin clients expect, with passwords masked.
    fn arguments_fault(&self, tool: &Card, fault: Fault) -> Fault {
        let path = fault.detail(Detail::Path).and_then(Value::as_str);
        let path = path.unwrap_or_default();
        let kind = tool.input_schema["properties"][path]["type"].as_str();
        let code = match kind {
            Some("integer" | "array") => Code::InvalidRequest,
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

    /// Rejects a change of a read-only resource.
    fn check(&self, call: &Call, tool: &Card, arguments: &Value) -> Result<(), Fault> {
        if tool.hints.read_only {
            return Ok(());
        }
        let name = &tool.name;
        let refused = |why: String, hint: &'static str| {
            Err(Fault::new(Code::WritesDisabled, why).with_hint(hint))
        };
        if !self.options.allow_writes {
            let why = format!("{name} writes, and the server allows no writes");
            return refused(
                why,
                "the operator starts the server with --allow-writes to allow writes",
            );
        }
        let named = ["database", "kv", "searchIndex", "vectorIndex"];
        let mut ids = named
            .iter()
            .filter_map(|name| arguments.get(*name)?.as_str());
        let read_only = |id: &str| self.handles.access(&call.permit, id) == Some(Access::Read);
        if ids.any(read_only) {
            let why = format!("{name} writes, and the caller may only read this resource");
            return refused(why, "ask the owner for a grant with mode write");
        }
        Ok(())
    }

    fn answer(&self, _: &Call, outcome: Payload) -> Result<Answer, Fault> {
        Ok(Answer::Payload(outcome, self.options.limits))
    }

    fn failed<'a>(&'a self, call: &'a Call, tool: &'a Card, fault: Fault) -> BoxFuture<'a, Reply> {
        let face = if tool.name.starts_with("rung.") {
            Face::Rung
        } else {
            Face::Datalevin
        };
        Box::pin(std::future::ready(Reply::failed(&fault, face, call)))
    }
}

/// The arguments of a tool without any.
#[derive(Deserialize)]
struct NoInput {}

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
