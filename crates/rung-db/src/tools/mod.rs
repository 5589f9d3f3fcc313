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
use rung_fault::{Code, Detail, Face, Fault};
use rung_tool::{
    Call, Card, Hints, Keep, Pending, Reply, Schema, TaskUse, ToolSource, arguments, unknown_tool,
    written,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::asking::{Asking, head};
use crate::elsewhere::{Place, masked};
use crate::known::{Holds, Known};
use crate::open::Handles;
use crate::shape::{self, Outcome};
use crate::taker::Watch;

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
    /// Databases that are known by name.
    pub known: Vec<Known>,
    /// Whether others may be opened as well.
    pub anywhere: bool,
    /// Folders within which those may be; anywhere where there are none.
    pub roots: Vec<PathBuf>,
    /// The folder, canonical, below which databases are created when there are no roots; none are created without it.
    pub created_below: Option<PathBuf>,
    /// Servers elsewhere whose databases may be opened; any where there are none, and no databases elsewhere without this.
    pub servers: Option<Vec<Place>>,
    /// Who makes vectors of texts that are found by what they mean.
    pub embed: Option<Arc<dyn Embed>>,
    /// The version that is told.
    pub version: &'static str,
    /// How many tokens a text has.
    pub count_tokens: fn(&str) -> usize,
}

/// The tools.
pub struct Tools {
    entries: Vec<Entry>,
    state: Arc<State>,
}

/// What a call works with.
pub(crate) struct State {
    pub(crate) options: Options,
    pub(crate) handles: Handles,
    pub(crate) keep: Arc<dyn Keep>,
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

/// What others who have these tools do not have.
const OWN: [&Definition; 10] = [
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
    /// The databases that a caller may open by name, with what each holds and whether it may be changed.
    pub fn databases(&self, permit: &Permit) -> Vec<(String, Holds, Access)> {
        let known = self.state.options.known.iter();
        let granted = known.filter_map(|known| {
            let leave = known.leave(permit)?;
            Some((known.name.clone(), known.holds, leave.access))
        });
        granted.collect()
    }

    /// The tools. What is too long for a reply is kept by `keep`.
    pub fn new(options: Options, keep: Arc<dyn Keep>) -> Result<Self, Fault> {
        let all = ALL.iter().chain(&OWN);
        let entries = all.map(|definition| Entry::new(definition));
        Ok(Self {
            entries: entries.collect::<Result<_, _>>()?,
            state: Arc::new(State {
                handles: Handles::new(options.embed.clone()),
                options,
                keep,
            }),
        })
    }

    /// The tools that are there for somebody: all of them, if there is something to open.
    fn entries(&self, permit: &Permit) -> &[Entry] {
        let options = &self.state.options;
        let is_granted = |known: &Known| known.leave(permit).is_some();
        if options.anywhere || options.known.iter().any(is_granted) {
            return &self.entries;
        }
        &[]
    }

    fn find(&self, permit: &Permit, name: &str) -> Result<&Entry, Fault> {
        let entries = self.entries(permit);
        let found = entries.iter().find(|entry| &*entry.card.name == name);
        found.ok_or_else(|| unknown_tool(name, entries.iter().map(|entry| &*entry.card.name)))
    }

    /// Refuses to change what may only be read.
    fn check_writing(&self, permit: &Permit, name: &str, given: &Value) -> Result<(), Fault> {
        let refused = |why: String, hint: &'static str| {
            Err(Fault::new(Code::WritesDisabled, why).with_hint(hint))
        };
        if !self.state.options.allow_writes {
            let why = format!("{name} changes something, and nothing may be changed here");
            return refused(
                why,
                "whoever starts the server allows it with --allow-writes",
            );
        }
        let named = ["database", "kv", "searchIndex", "vectorIndex"];
        let mut ids = named.iter().filter_map(|name| given.get(*name)?.as_str());
        let read_only = |id: &str| self.state.handles.access(permit, id) == Some(Access::Read);
        if ids.any(read_only) {
            let why = format!("{name} changes something, and this may only be read by you");
            return refused(why, "ask its owner for a grant whose mode is write");
        }
        Ok(())
    }

    async fn answer(&self, call: &Call, name: &str, raw: &RawValue) -> Result<Reply, Fault> {
        let entry = self.find(&call.permit, name)?;
        let wrong =
            |error: serde_json::Error| Fault::new(Code::InvalidArguments, error.to_string());
        let given = match serde_json::from_str(raw.get()).map_err(wrong)? {
            Value::Null => json!({}),
            given => entry.without_nothing(given),
        };
        arguments::check(&entry.schema, &given).map_err(|fault| entry.named(&fault))?;
        entry.check_numbers(&given)?;
        if entry.definition.writes {
            self.check_writing(&call.permit, name, &given)?;
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        // Whoever no longer waits drops this.
        let _waiting = Waiting(cancelled.clone());
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

/// Somebody who waits for a query.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
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

    fn kind(&self, name: &str) -> Option<Kind> {
        let found = self.definition.arguments.iter();
        let mut found = found.filter(|(own, ..)| *own == name);
        found.next().map(|(_, kind, _)| *kind)
    }

    /// The arguments without those that may be left out and are null.
    fn without_nothing(&self, mut given: Value) -> Value {
        if let Value::Object(members) = &mut given {
            for (name, _, is_required) in self.definition.arguments {
                if !is_required && members.get(*name).is_some_and(Value::is_null) {
                    members.shift_remove(*name);
                }
            }
        }
        given
    }

    /// Which argument is wrong, under the name and the code that callers of these tools look for. What was given is repeated without
    /// passwords.
    fn named(&self, fault: &Fault) -> Fault {
        let path = fault.detail(Detail::Path).and_then(Value::as_str);
        let path = path.unwrap_or_default();
        let code = match self.kind(path) {
            Some(Kind::Number | Kind::List) => Code::InvalidRequest,
            _ => fault.code(),
        };
        let mut named = Fault::new(code, masked(fault.message()));
        if let Some(hint) = fault.hint() {
            named = named.with_hint(hint.to_owned());
        }
        if path.is_empty() {
            return named;
        }
        named.with(Detail::Field, path)
    }

    /// Refuses numbers that count nothing.
    fn check_numbers(&self, given: &Value) -> Result<(), Fault> {
        for (name, kind, _) in self.definition.arguments {
            let wrong = given.get(*name).filter(|given| given.as_u64().is_none());
            if let (Kind::Number, Some(wrong)) = (kind, wrong) {
                let why = format!("{name} is a whole number from 0 on, and {wrong} is none");
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
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<Card>, Fault>> {
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
    ) -> Pending<'a, Result<Card, Fault>> {
        Box::pin(std::future::ready(
            self.find(permit, name).map(|entry| entry.card.clone()),
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
            let face = if name.starts_with("rung.") {
                Face::Rung
            } else {
                Face::Datalevin
            };
            answered.unwrap_or_else(|fault| Reply::failed(&fault, face, call))
        })
    }
}

/// The arguments of a call.
fn read<T: DeserializeOwned>(given: Value) -> Result<T, Fault> {
    serde_json::from_value(given)
        .map_err(|error| Fault::new(Code::InvalidArguments, error.to_string()))
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

/// The numbers of a vector.
fn numbers(values: &[Value], field: &str) -> Result<Vec<f64>, Fault> {
    let numbers = values.iter().map(Value::as_f64);
    numbers.collect::<Option<_>>().ok_or_else(|| {
        let why = format!("{field} has numbers alone");
        Fault::new(Code::InvalidArguments, why).with(Detail::Field, field)
    })
}

/// What stands beside a result of a table.
fn of_table(kv: &str, dbi: &str) -> Map<String, Value> {
    let mut told = head("kv", kv);
    told.insert("dbi".to_owned(), json!(dbi));
    told
}
