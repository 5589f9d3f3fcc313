//! The `gateway.*` tools, one file each. `ALL` has the order in which they are listed.

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

pub(crate) use catalog_search::shorten;
use rung_auth::{Access, Permit};
use rung_fault::{Code, Face, Fault};
use rung_tool::{
    BoxFuture, Call, Card, Hints, NameStyle, Reply, Schema, TaskUse, ToolSource, arguments,
    unknown_tool,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::answer::{Limits, said_by_us};
use crate::gateway::Gateway;
use crate::policy::PolicySubject;

/// The definition of a `gateway.*` tool.
struct Definition {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    hints: Hints,
    /// True if the tool starts or stops servers that other callers use too.
    operates: bool,
    /// The `properties` of its input schema, as JSON.
    properties: &'static str,
    /// A description of every parameter, by its path in `properties`. `gateway.describe` shows them; in the list they would cost
    /// every client tokens.
    parameters: &'static [(&'static str, &'static str)],
    required: &'static [&'static str],
    run: for<'a> fn(Asking<'a>) -> BoxFuture<'a, Result<Reply, Fault>>,
}

/// Descriptions that several parameters share.
mod parameter {
    pub(super) const SERVER: &str = "Name of the server, as gateway.health lists it.";
    pub(super) const TASK_ID: &str =
        "The task: task_id in the reply of gateway.invoke or gateway.tasks_list.";
    pub(super) const FORCE: &str = "True cancels your active calls and tasks at this server.";
    pub(super) const IGNORED: &str = "Accepted for compatibility; not used.";
}

/// A call of a `gateway.*` tool.
#[derive(Clone, Copy)]
struct Asking<'a> {
    gateway: &'a Gateway,
    call: &'a Call,
    schema: &'a Schema,
    /// The schema that `schema` was compiled from.
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

/// The tool that calls downstream tools.
pub(crate) const INVOKE_TOOL: &str = invoke::DEFINITION.name;

/// Returns the names of all `gateway.*` tools.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|definition| definition.name)
}

/// Returns true if the tool changes nothing.
pub(crate) fn is_read_only(name: &str) -> bool {
    let mut named = ALL.into_iter().filter(|definition| definition.name == name);
    named.any(|definition| definition.hints.read_only)
}

/// Returns true if the tool starts or stops servers that other callers use too.
pub(crate) fn is_for_operators(name: &str) -> bool {
    let mut named = ALL.into_iter().filter(|definition| definition.name == name);
    named.any(|definition| definition.operates)
}

/// Hints of tools that only read.
const READ_HINTS: Hints = Hints::READ;
/// Hints of tools that start or stop servers and can be repeated.
const OPERATOR_HINTS: Hints = Hints {
    read_only: false,
    destructive: false,
    idempotent: true,
    open_world: true,
};

/// The `gateway.*` tools as a tool source.
pub struct Tools {
    gateway: Gateway,
    entries: Vec<Entry>,
}

struct Entry {
    card: Card,
    schema: Schema,
    /// The schema that `schema` was compiled from.
    takes: Value,
    definition: &'static Definition,
}

impl Tools {
    /// Creates the tools of a gateway.
    pub fn new(gateway: Gateway) -> Result<Self, Fault> {
        let entry = |definition: &'static Definition| {
            let schema = listed_schema(definition)?;
            let listed = list_entry(definition, &schema)?;
            let takes = validation_schema(&schema)?;
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

    fn is_granted(&self, entry: &Entry, permit: &Permit) -> bool {
        entry.definition.is_granted(&self.gateway, permit)
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
            // Some clients send null for no arguments.
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

impl Definition {
    /// Returns true if the permit may use the tool. No other code decides that.
    fn is_granted(&self, gateway: &Gateway, permit: &Permit) -> bool {
        let state = gateway.state();
        gateway.is_shown()
            && state.is_visible(permit, PolicySubject::GatewayTool(self.name))
            && (!self.operates || state.access.may_operate(permit))
    }

    /// Returns the full schema, with a description of every parameter.
    fn described_schema(&self, names: NameStyle) -> Result<Value, Fault> {
        let mut schema = validation_schema(&listed_schema(self)?)?;
        for (path, text) in self.parameters {
            let pointer = format!("/properties/{}", path.replace('.', "/properties/"));
            if let Some(parameter) = schema.pointer_mut(&pointer) {
                parameter["description"] = with_names(text, names).into();
            }
        }
        Ok(schema)
    }
}

/// Returns the definition of the `gateway.*` tool that the caller names, if its permit includes the tool.
fn find_definition(gateway: &Gateway, call: &Call, name: &str) -> Option<&'static Definition> {
    let is_meant = |own: &str| own == name || call.name_style.apply(own) == name;
    let mut named = ALL.into_iter().filter(|own| is_meant(own.name));
    named.find(|own| own.is_granted(gateway, &call.permit))
}

/// Returns the input schema as it is listed.
fn listed_schema(definition: &Definition) -> Result<Value, Fault> {
    let properties: Value = serde_json::from_str(definition.properties)
        .map_err(|error| Fault::new(Code::Internal, format!("{}: {error}", definition.name)))?;
    let mut schema = json!({"type": "object", "properties": properties});
    if !definition.required.is_empty() {
        schema["required"] = definition.required.into();
    }
    schema["additionalProperties"] = false.into();
    Ok(schema)
}

/// Returns the full schema for validation: the listed one plus details that would cost tokens in every list.
fn validation_schema(schema: &Value) -> Result<Value, Fault> {
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

/// Returns a tool as it is listed, without annotations that equal the protocol's defaults: every client pays for every byte.
fn list_entry(definition: &Definition, schema: &Value) -> Result<Box<RawValue>, Fault> {
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
    // These have no meaning for read-only tools.
    if !hints.read_only {
        said("destructiveHint", hints.destructive, true);
        said("idempotentHint", hints.idempotent, false);
    }
    said("openWorldHint", hints.open_world, true);
    serde_json::value::to_raw_value(&tool)
        .map_err(|error| Fault::new(Code::Internal, error.to_string()))
}

/// Removes null members, which many clients send for absent ones. Only members of the schema: arguments for a downstream
/// server are forwarded unchanged.
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
    /// Validates the arguments against the schema and deserializes them.
    fn read<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        serde_json::from_value(self.accepted()?)
            .map_err(|error| Fault::new(Code::InvalidArguments, error.to_string()))
    }

    /// Validates the arguments against the schema and returns them as JSON.
    fn accepted(&self) -> Result<Value, Fault> {
        let mut value: Value = serde_json::from_str(self.arguments.get())
            .map_err(|error| Fault::new(Code::InvalidArguments, error.to_string()))?;
        drop_nulls(&mut value, self.takes);
        arguments::check(self.schema, &value)?;
        Ok(value)
    }

    /// Renders the facts as the reply, with secrets masked and within the limits.
    async fn reply(&self, facts: impl Serialize) -> Result<Reply, Fault> {
        let facts = serde_json::to_value(facts)
            .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
        let facts = self
            .gateway
            .state()
            .access
            .caller_redactor()
            .redact_value(facts);
        let limits = Limits::of(self.gateway, self.call, None);
        let keep = self.gateway.0.result_sink.clone();
        said_by_us(facts, limits, self.call, keep).await
    }
}

impl ToolSource for Tools {
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<Card>, Fault>> {
        let entries = self.entries.iter();
        let granted = entries.filter(|entry| self.is_granted(entry, permit));
        let cards = granted.map(|entry| entry.card.clone()).collect();
        Box::pin(std::future::ready(Ok(cards)))
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Card, Fault>> {
        let card = self.find(permit, name).map(|entry| entry.card.clone());
        Box::pin(std::future::ready(card))
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            let entry = match self.find(&call.permit, name) {
                Ok(entry) => entry,
                Err(fault) => return Reply::failed(&fault, Face::Rung, call),
            };
            match self.answer(entry, call, arguments).await {
                Ok(reply) => reply,
                Err(fault) => Reply {
                    // An unknown downstream tool does not mean that the `gateway.*` tool is unknown.
                    fault: None,
                    ..self
                        .gateway
                        .failed(with_tool_names(fault, call.name_style), call)
                        .await
                },
            }
        })
    }
}

/// Returns the fault with tool names in its hint written in the caller's style.
pub(crate) fn with_tool_names(fault: Fault, names: NameStyle) -> Fault {
    if names == NameStyle::Dotted {
        return fault;
    }
    match fault.hint().map(|hint| with_names(hint, names)) {
        Some(hint) => fault.with_hint(hint),
        None => fault,
    }
}

/// Returns the text with the names of `gateway.*` tools written in this style.
fn with_names(text: &str, names: NameStyle) -> String {
    match names {
        NameStyle::Dotted => text.to_owned(),
        NameStyle::Plain => text.replace("gateway.", "gateway_"),
    }
}

/// Formats milliseconds since 1970 as ISO 8601.
fn iso_timestamp(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or_default();
    jiff::Timestamp::from_millisecond(ms)
        .unwrap_or_default()
        .to_string()
}

/// Returns seconds, rounded to a tenth.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that every property, at any depth, has a description.
    fn assert_described(path: &str, schema: &Value) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            let text = property["description"].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "{path} has no description");
            assert_described(&path, property);
        }
    }

    #[test]
    fn every_parameter_has_a_description() {
        for definition in ALL {
            let schema = definition.described_schema(NameStyle::Dotted).unwrap();
            assert_described(definition.name, &schema);
            for (path, _) in definition.parameters {
                let pointer = format!("/properties/{}", path.replace('.', "/properties/"));
                let known = schema.pointer(&pointer).is_some();
                assert!(known, "{} has no parameter {path}", definition.name);
            }
        }
    }
}
