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

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use catalog_search::shorten;
use rung_auth::Permit;
use rung_fault::{Code, Fault};
use rung_tool::{
    Answer, BoxFuture, Call, Card, ErasedTool, Hints, NameStyle, Reply, ToolContext, ToolSet,
    ToolSource, Toolbox,
};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::gateway::Gateway;
use crate::policy::PolicySubject;

/// Descriptions that several parameters share.
mod parameter {
    pub(super) const SERVER: &str = "Name of the server, as gateway.health lists it.";
    pub(super) const TASK_ID: &str =
        "The task: task_id in the reply of gateway.invoke or gateway.tasks_list.";
    pub(super) const FORCE: &str = "True cancels your active calls and tasks at this server.";
    pub(super) const IGNORED: &str = "Accepted for compatibility; not used.";
}

const TOOLS: [&dyn ErasedTool<GatewayTools>; 14] = [
    &catalog_search::TOOL,
    &describe::TOOL,
    &invoke::TOOL,
    &refresh::TOOL,
    &health::TOOL,
    &connect_server::TOOL,
    &disconnect_server::TOOL,
    &restart_server::TOOL,
    &list_pending::TOOL,
    &cancel::TOOL,
    &tasks_list::TOOL,
    &tasks_get::TOOL,
    &tasks_result::TOOL,
    &tasks_cancel::TOOL,
];

/// The tool that calls downstream tools.
pub(crate) const INVOKE_TOOL: &str = invoke::TOOL.name();

/// The tools that start or stop servers that other callers use too.
const OPERATOR_TOOLS: [&str; 4] = [
    connect_server::TOOL.name(),
    disconnect_server::TOOL.name(),
    refresh::TOOL.name(),
    restart_server::TOOL.name(),
];

/// Returns the names of all `gateway.*` tools.
pub fn names() -> impl Iterator<Item = &'static str> {
    TOOLS.into_iter().map(ErasedTool::name)
}

/// Returns true if the tool changes nothing.
pub(crate) fn is_read_only(name: &str) -> bool {
    let mut named = TOOLS.into_iter().filter(|tool| tool.name() == name);
    named.any(|tool| tool.hints().read_only)
}

/// Returns true if the tool starts or stops servers that other callers use too.
pub(crate) fn is_for_operators(name: &str) -> bool {
    OPERATOR_TOOLS.contains(&name)
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
pub struct Tools(Toolbox<GatewayTools>);

impl Tools {
    /// Creates the tools of a gateway.
    pub fn new(gateway: Gateway) -> Result<Self, Fault> {
        let sink = gateway.0.result_sink.clone();
        let set = Arc::new(GatewayTools(gateway));
        Ok(Self(Toolbox::new(set, &TOOLS, sink)?))
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

/// What the tools share: their gateway.
pub(crate) struct GatewayTools(Gateway);

/// The context of one call of a `gateway.*` tool.
pub(crate) struct GatewayContext<'a> {
    gateway: &'a Gateway,
    call: &'a Call,
    tools: ToolContext<'a, GatewayTools>,
}

impl<'a> From<ToolContext<'a, GatewayTools>> for GatewayContext<'a> {
    fn from(tools: ToolContext<'a, GatewayTools>) -> Self {
        Self {
            gateway: &tools.set.0,
            call: tools.call,
            tools,
        }
    }
}

impl ToolSet for GatewayTools {
    type Access = ();
    type Context<'a> = GatewayContext<'a>;
    type Outcome = Answer;
    type Error = Fault;
    const SEARCH_HINT: &'static str =
        "tools of other MCP servers and services: find, describe, call, follow, start";

    fn is_open<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<bool, Fault>> {
        Box::pin(std::future::ready(Ok(self.0.is_shown())))
    }

    fn resolve<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<Option<()>, Fault>> {
        Box::pin(std::future::ready(Ok(self.0.is_shown().then_some(()))))
    }

    fn permits(&self, permit: &Permit, tool: &Card) -> bool {
        let state = self.0.state();
        state.is_visible(permit, PolicySubject::GatewayTool(&tool.name))
            && (!is_for_operators(&tool.name) || state.access.may_operate(permit))
    }

    fn limit<'a>(&self, call: &'a Call) -> Cow<'a, Call> {
        self.0.within_policy(call)
    }

    fn answer(&self, _: &Call, answer: Answer) -> Result<Answer, Fault> {
        Ok(answer)
    }

    fn failed<'a>(&'a self, call: &'a Call, _: &'a Card, fault: Fault) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            let fault = with_tool_names(fault, call.name_style);
            Reply {
                // An unknown downstream tool does not mean that the `gateway.*` tool is unknown.
                fault: None,
                ..self.0.failed(fault, call).await
            }
        })
    }
}

impl GatewayContext<'_> {
    /// Returns the `gateway.*` tool that the caller names, if its permit includes the tool.
    fn find_tool(&self, name: &str) -> Option<&Card> {
        let is_meant = |own: &str| own == name || self.call.name_style.apply(own) == name;
        let mut named = self.tools.cards.iter().filter(|card| is_meant(&card.name));
        let permits = |card: &&Arc<Card>| self.tools.set.permits(&self.call.permit, card);
        named.find(permits).map(|card| &**card)
    }

    /// Returns the facts as the answer, with secrets masked.
    fn answer(&self, facts: impl Serialize) -> Result<Answer, Fault> {
        let facts = serde_json::to_value(facts)
            .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
        let facts = self
            .gateway
            .state()
            .access
            .caller_redactor()
            .redact_value(facts);
        Ok(Answer::Output(facts.into()))
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

/// Returns the schema with the names of `gateway.*` tools in its descriptions written in this style.
fn schema_with_names(schema: &Value, names: NameStyle) -> Value {
    let mut schema = schema.clone();
    if names != NameStyle::Dotted {
        rename_in_descriptions(&mut schema, names);
    }
    schema
}

fn rename_in_descriptions(schema: &mut Value, names: NameStyle) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = with_names(text, names);
    }
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(serde_json::Map::values_mut) {
        rename_in_descriptions(property, names);
    }
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
        for tool in TOOLS {
            let card = tool.card().unwrap();
            assert_described(tool.name(), &card.input_schema);
        }
    }
}
