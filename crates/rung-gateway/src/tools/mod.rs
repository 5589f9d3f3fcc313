//! The `gateway.*` tools, one file each, in the order in which they are listed.

mod cancel;
mod catalog_search;
mod connect_server;
mod describe;
mod disconnect_server;
mod health;
mod invoke;
mod list_pending;
mod refresh;
mod restart_server;
mod tasks_cancel;
mod tasks_get;
mod tasks_list;
mod tasks_result;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use catalog_search::short;
use rung_auth::{Access, Permit};
use rung_fault::{Code, Face, Fault};
use rung_tool::{
    Call, Card, Hints, Names, Pending, Reply, Schema, TaskUse, ToolSource, arguments, unknown_tool,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::answer::{Limits, said_by_us};
use crate::gateway::Gateway;
use crate::policy::Thing;

/// What a tool says of itself, and does.
struct Definition {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    hints: Hints,
    /// Whether it starts or stops what others use, too.
    operates: bool,
    /// What it takes: the properties of its schema, as JSON.
    properties: &'static str,
    required: &'static [&'static str],
    run: for<'a> fn(Asking<'a>) -> Pending<'a, Result<Reply, Fault>>,
}

/// A call of one of the tools.
#[derive(Clone, Copy)]
struct Asking<'a> {
    gateway: &'a Gateway,
    call: &'a Call,
    schema: &'a Schema,
    /// The same, as it is written.
    takes: &'a Value,
    arguments: &'a RawValue,
}

const ALL: [&Definition; 14] = [
    &catalog_search::DEFINITION,
    &describe::DEFINITION,
    &invoke::DEFINITION,
    &refresh::DEFINITION,
    &health::DEFINITION,
    &connect_server::DEFINITION,
    &disconnect_server::DEFINITION,
    &restart_server::DEFINITION,
    &list_pending::DEFINITION,
    &cancel::DEFINITION,
    &tasks_list::DEFINITION,
    &tasks_get::DEFINITION,
    &tasks_result::DEFINITION,
    &tasks_cancel::DEFINITION,
];

/// The name of the one that calls theirs.
pub(crate) const INVOKE: &str = invoke::DEFINITION.name;

/// The names of all of them.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|definition| definition.name)
}

/// Whether a tool changes nothing.
pub(crate) fn only_reads(name: &str) -> bool {
    let mut named = ALL.into_iter().filter(|definition| definition.name == name);
    named.any(|definition| definition.hints.read_only)
}

/// Whether a tool starts or stops what others use, too.
pub(crate) fn is_for_operators(name: &str) -> bool {
    let mut named = ALL.into_iter().filter(|definition| definition.name == name);
    named.any(|definition| definition.operates)
}

/// It reads what we know.
const READS: Hints = Hints::READ;
/// It starts or stops something, and can be done again.
const OPERATES: Hints = Hints {
    read_only: false,
    destructive: false,
    idempotent: true,
    open_world: true,
};

/// The `gateway.*` tools, as a source.
pub struct Tools {
    gateway: Gateway,
    entries: Vec<Entry>,
}

struct Entry {
    card: Card,
    schema: Schema,
    /// The same, as it is written.
    takes: Value,
    definition: &'static Definition,
}

impl Tools {
    /// The tools of a gateway.
    pub fn new(gateway: Gateway) -> Result<Self, Fault> {
        let entry = |definition: &'static Definition| {
            let properties: Value =
                serde_json::from_str(definition.properties).map_err(|error| {
                    Fault::new(Code::Internal, format!("{}: {error}", definition.name))
                })?;
            let mut schema = json!({"type": "object", "properties": properties});
            if !definition.required.is_empty() {
                schema["required"] = definition.required.into();
            }
            schema["additionalProperties"] = false.into();
            let listed = listed(definition, &schema)?;
            let takes = in_detail(&schema)?;
            Ok(Entry {
                schema: Schema::compile(&takes)?,
                takes,
                card: Card {
                    name: definition.name.into(),
                    title: definition.title.into(),
                    description: definition.description.into(),
                    icon: None,
                    input_schema: Arc::new(schema),
                    output_schema: None,
                    hints: definition.hints,
                    access: Access::Read,
                    tasks: TaskUse::Never,
                    listed: Some(listed.into()),
                },
                definition,
            })
        };
        let entries: Result<Vec<Entry>, Fault> = ALL.into_iter().map(entry).collect();
        Ok(Self {
            gateway,
            entries: entries?,
        })
    }

    /// The one place where it is decided whether a tool of ours is there for a permit.
    fn is_granted(&self, entry: &Entry, permit: &Permit) -> bool {
        let state = self.gateway.state();
        let name = entry.definition.name;
        let operates = entry.definition.operates;
        self.gateway.is_shown()
            && state.sees(permit, Thing::GatewayTool(name))
            && (!operates || state.rules.may_operate(permit))
    }

    fn find(&self, permit: &Permit, name: &str) -> Result<&Entry, Fault> {
        let mut named = self
            .entries
            .iter()
            .filter(|entry| &*entry.card.name == name);
        let found = named.next().filter(|entry| self.is_granted(entry, permit));
        found.ok_or_else(|| {
            let granted = self.entries.iter();
            let granted = granted.filter(|entry| self.is_granted(entry, permit));
            unknown_tool(name, granted.map(|entry| &*entry.card.name))
        })
    }

    async fn answer(
        &self,
        entry: &Entry,
        call: &Call,
        arguments: &RawValue,
    ) -> Result<Reply, Fault> {
        let nothing;
        let asking = Asking {
            gateway: &self.gateway,
            call,
            schema: &entry.schema,
            takes: &entry.takes,
            // A client that has nothing to say may send null.
            arguments: if arguments.get() == "null" {
                nothing = no_arguments();
                &nothing
            } else {
                arguments
            },
        };
        (entry.definition.run)(asking).await
    }
}

/// What a tool takes, with all that is known of it and that nobody would read in a list.
fn in_detail(schema: &Value) -> Result<Value, Fault> {
    let mut schema = schema.clone();
    let known: Value = serde_json::from_str(invoke::DEFINITION.properties)
        .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
    let text = json!({"type": ["string", "null"]});
    let trace = json!({"traceparent": text, "tracestate": text, "baggage": text});
    let members = schema["properties"].as_object_mut();
    for (name, member) in members.into_iter().flatten() {
        match name.as_str() {
            "options" => *member = known["options"].clone(),
            "trace_context" => member["properties"] = trace.clone(),
            _ => {}
        }
        if member.get("properties").is_some() {
            member["additionalProperties"] = false.into();
        }
    }
    Ok(schema)
}

/// A tool as it is listed. Every agent pays for every byte: what is as the protocol takes it to be anyway is not said.
fn listed(definition: &Definition, schema: &Value) -> Result<Box<RawValue>, Fault> {
    let mut tool = json!({
        "name": definition.name,
        "description": definition.description,
        "inputSchema": schema,
    });
    let hints = definition.hints;
    let mut said = |name: &str, is: bool, usually: bool| {
        if is != usually {
            tool["annotations"][name] = is.into();
        }
    };
    said("readOnlyHint", hints.read_only, false);
    // Of what only reads these mean nothing.
    if !hints.read_only {
        said("destructiveHint", hints.destructive, true);
        said("idempotentHint", hints.idempotent, false);
    }
    said("openWorldHint", hints.open_world, true);
    serde_json::value::to_raw_value(&tool)
        .map_err(|error| Fault::new(Code::Internal, error.to_string()))
}

/// Many clients write null for what they do not say. Only where we know the members: what goes on to a server goes as it came.
fn drop_nulls(given: &mut Value, schema: &Value) {
    let (Some(given), Some(known)) = (given.as_object_mut(), schema["properties"].as_object())
    else {
        return;
    };
    let required = schema["required"].as_array().into_iter().flatten();
    let required: Vec<&Value> = required.collect();
    given.retain(|name, value| {
        !value.is_null()
            || !known.contains_key(name)
            || required.iter().any(|required| *required == name)
    });
    for (name, value) in given {
        drop_nulls(value, known.get(name).unwrap_or(&Value::Null));
    }
}

fn no_arguments() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")
}

impl Asking<'_> {
    /// The arguments, once the schema has accepted them.
    fn read<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        serde_json::from_value(self.accepted()?)
            .map_err(|error| Fault::new(Code::InvalidArguments, error.to_string()))
    }

    /// The same, as JSON.
    fn accepted(&self) -> Result<Value, Fault> {
        let mut value: Value = serde_json::from_str(self.arguments.get())
            .map_err(|error| Fault::new(Code::InvalidArguments, error.to_string()))?;
        drop_nulls(&mut value, self.takes);
        arguments::check(self.schema, &value)?;
        Ok(value)
    }

    /// The reply that says this.
    async fn reply(&self, facts: impl Serialize) -> Result<Reply, Fault> {
        let facts = serde_json::to_value(facts)
            .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
        let facts = self.gateway.state().rules.masks().value(facts);
        let limits = Limits::of(self.gateway, self.call, None);
        let keep = self.gateway.0.keep.clone();
        said_by_us(facts, limits, self.call, keep).await
    }
}

impl ToolSource for Tools {
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<Card>, Fault>> {
        let entries = self.entries.iter();
        let granted = entries.filter(|entry| self.is_granted(entry, permit));
        let cards = granted.map(|entry| entry.card.clone()).collect();
        Box::pin(std::future::ready(Ok(cards)))
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> Pending<'a, Result<Card, Fault>> {
        let card = self.find(permit, name).map(|entry| entry.card.clone());
        Box::pin(std::future::ready(card))
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> Pending<'a, Reply> {
        Box::pin(async move {
            let entry = match self.find(&call.permit, name) {
                Ok(entry) => entry,
                Err(fault) => return Reply::failed(&fault, Face::Rung, call),
            };
            match self.answer(entry, call, arguments).await {
                Ok(reply) => reply,
                Err(fault) => Reply {
                    // That a tool of theirs is not there does not mean that ours is not.
                    fault: None,
                    ..self.gateway.failed(named(fault, call.names), call).await
                },
            }
        })
    }
}

/// A fault whose hint has the names that the caller knows tools by.
pub(crate) fn named(fault: Fault, names: Names) -> Fault {
    if names == Names::Dotted {
        return fault;
    }
    match fault
        .hint()
        .map(|hint| hint.replace("gateway.", "gateway_"))
    {
        Some(hint) => fault.with_hint(hint),
        None => fault,
    }
}

/// Milliseconds since 1970 as people write a time.
fn iso(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or_default();
    jiff::Timestamp::from_millisecond(ms)
        .unwrap_or_default()
        .to_string()
}

/// Seconds, to a tenth.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}
