//! A tool: its definition and its body in one value. One file each.
//!
//! The tools of a source share a [`ToolSet`]: what a call may access, what a body works with, and how errors are reported.

use std::borrow::Cow;
use std::sync::Arc;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Fault};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::card::{Card, Hints};
use crate::deadline::Cancellation;
use crate::payload::{Payload, PayloadLimits};
use crate::relay::Relayed;
use crate::reply::{Reply, ToolOutput};
use crate::schema;
use crate::source::{BoxFuture, Call};

/// The state that the tools of a source share.
pub trait ToolSet: Send + Sync + Sized + 'static {
    /// What a permit may access; resolved once per call, before its arguments are read.
    type Access: Send + Sync;
    /// What a body works with.
    type Context<'a>: From<ToolContext<'a, Self>> + Send + Sync;
    /// What a body returns.
    type Outcome: Send;
    /// The error of a call.
    type Error: From<Fault> + Send;
    /// Words by which clients find the tools, besides their names and descriptions.
    const SEARCH_HINT: &'static str;

    /// Returns true if a permit may access anything. If not, no tool exists for it.
    fn is_open<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<bool, Fault>>;

    /// Resolves what the permit of a call may access. `None` if that is nothing.
    fn resolve<'a>(
        &'a self,
        permit: &'a Permit,
    ) -> BoxFuture<'a, Result<Option<Self::Access>, Self::Error>>;

    /// Returns true if a permit that may access anything may use this tool.
    fn permits(&self, permit: &Permit, tool: &Card) -> bool {
        tool.access <= permit.access()
    }

    /// Rewrites a fault of the arguments before it is reported.
    fn arguments_fault(&self, tool: &Card, fault: Fault) -> Fault {
        let _ = tool;
        fault
    }

    /// Rejects a call after its arguments were validated.
    fn check(&self, call: &Call, tool: &Card, arguments: &Value) -> Result<(), Self::Error> {
        let _ = (call, tool, arguments);
        Ok(())
    }

    /// Narrows the limits of a call before its tool runs.
    fn limit<'a>(&self, call: &'a Call) -> Cow<'a, Call> {
        Cow::Borrowed(call)
    }

    /// Turns what a body returned into what the toolbox fits. Runs on the thread of the body.
    fn answer(&self, call: &Call, outcome: Self::Outcome) -> Result<Answer, Self::Error>;

    /// Builds the reply to a failed call of a tool.
    fn failed<'a>(
        &'a self,
        call: &'a Call,
        tool: &'a Card,
        error: Self::Error,
    ) -> BoxFuture<'a, Reply>;
}

/// What a tool has to say.
#[derive(Debug)]
pub enum Answer {
    /// Data, of which the reply shows as much as fits.
    Output(ToolOutput<Value>),
    /// A result of another server.
    Relayed(Relayed),
    /// A payload, of which the reply shows as much as fits.
    Payload(Payload, PayloadLimits),
    /// A reply that `fit_rows`, `fit_text`, `fit_part` or `first_fitting` returned, and the bytes of each form at most. Names and
    /// identifiers are never cut, so it can be larger, and is then refused.
    Fitted(Reply, usize),
}

impl Answer {
    /// Creates an answer of typed data.
    pub fn output<T: Serialize>(output: ToolOutput<T>) -> Result<Self, Fault> {
        let data = serde_json::to_value(output.data)
            .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
        Ok(Self::Output(ToolOutput {
            data,
            text: output.text,
            links: output.links,
        }))
    }
}

/// A call of a tool, as its set builds a context from it.
pub struct ToolContext<'a, S: ToolSet> {
    /// The call.
    pub call: &'a Call,
    /// The state that the tools share.
    pub set: &'a S,
    /// What the permit of the call may access.
    pub access: &'a S::Access,
    /// The tool, with the full schema of its input.
    pub tool: &'a Card,
    /// All tools of the set.
    pub cards: &'a [Arc<Card>],
    /// Ends the call early.
    pub cancellation: &'a Cancellation,
    pub(crate) forwarded: &'a [(&'static str, Box<RawValue>)],
}

impl<S: ToolSet> Clone for ToolContext<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: ToolSet> Copy for ToolContext<'_, S> {}

impl<'a, S: ToolSet> ToolContext<'a, S> {
    /// Returns an argument that is forwarded as it came: see [`Tool::forwarding`].
    pub fn forwarded(&self, name: &str) -> Option<&'a RawValue> {
        let mut named = self.forwarded.iter().filter(|(own, _)| *own == name);
        named.next().map(|(_, raw)| &**raw)
    }
}

/// A tool that an agent can call. `I` is the type of its input.
pub struct Tool<S: ToolSet, I> {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    pub(crate) icon: Option<&'static str>,
    pub(crate) hints: Hints,
    pub(crate) access: Access,
    pub(crate) is_entry: bool,
    pub(crate) input: InputSchema,
    pub(crate) output: Option<fn() -> Value>,
    pub(crate) rules: ArgumentRules,
    pub(crate) body: Body<S, I>,
}

/// Where the schema of an input comes from.
#[derive(Clone, Copy)]
pub enum InputSchema {
    /// A function that builds it.
    Built(fn() -> Value),
    /// JSON text, with parts that lists leave out, because every client pays for every byte of a list.
    Text {
        /// The `properties` as they are listed.
        properties: &'static str,
        /// Further keywords of some properties, as JSON; empty if there are none.
        details: &'static str,
        /// The required properties.
        required: &'static [&'static str],
        /// A description of every property, by its dotted path.
        descriptions: &'static [(&'static str, &'static str)],
    },
    /// A table of parameters. Numbers are integers of at least 0; lists leave that out.
    Table(&'static [Parameter]),
}

/// A parameter: its name, its type, whether it is required, and its description.
pub type Parameter = (&'static str, ParameterType, bool, &'static str);

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterType {
    /// Any JSON value.
    Any,
    /// A string.
    Text,
    /// A boolean.
    Boolean,
    /// An integer of at least 0.
    Count,
    /// An array.
    List,
}

impl InputSchema {
    /// Returns the schema against which arguments are validated.
    pub(crate) fn full(self) -> Result<Value, crate::Error> {
        match self {
            Self::Built(build) => Ok(build()),
            Self::Table(parameters) => Ok(table_schema(parameters, true)),
            Self::Text {
                properties,
                details,
                required,
                descriptions,
            } => {
                let mut properties = parse_schema(properties)?;
                if !details.is_empty() {
                    merge(&mut properties, parse_schema(details)?);
                }
                for (path, text) in descriptions {
                    let pointer = format!("/{}", path.replace('.', "/properties/"));
                    let Some(property) = properties.pointer_mut(&pointer) else {
                        let why = format!("it has no property {path}");
                        return Err(crate::Error::SchemaInvalid(why));
                    };
                    property["description"] = (*text).into();
                }
                for property in properties
                    .as_object_mut()
                    .into_iter()
                    .flat_map(Map::values_mut)
                {
                    if property.get("properties").is_some() {
                        property["additionalProperties"] = false.into();
                    }
                }
                Ok(object_schema(&properties, required))
            }
        }
    }

    /// Returns the schema for lists, if that is shorter.
    pub(crate) fn brief(self) -> Result<Option<Value>, crate::Error> {
        Ok(match self {
            Self::Built(_) => None,
            Self::Table(parameters) => Some(table_schema(parameters, false)),
            Self::Text {
                properties,
                required,
                ..
            } => Some(object_schema(&parse_schema(properties)?, required)),
        })
    }
}

fn parse_schema(text: &str) -> Result<Value, crate::Error> {
    serde_json::from_str(text).map_err(|error| crate::Error::SchemaInvalid(error.to_string()))
}

fn object_schema(properties: &Value, required: &[&str]) -> Value {
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema["additionalProperties"] = false.into();
    schema
}

/// Adds the members of `more` to those of `value`, at any depth.
fn merge(value: &mut Value, more: Value) {
    match (value, more) {
        (Value::Object(members), Value::Object(more)) => {
            for (name, more) in more {
                merge(members.entry(name).or_insert(Value::Null), more);
            }
        }
        (value, more) => *value = more,
    }
}

fn table_schema(parameters: &[Parameter], full: bool) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, kind, is_required, description) in parameters {
        let mut property = match kind {
            ParameterType::Any => json!({}),
            ParameterType::Text => json!({"type": "string"}),
            ParameterType::Boolean => json!({"type": "boolean"}),
            ParameterType::Count if full => json!({"type": "integer", "minimum": 0}),
            ParameterType::Count => json!({"type": "integer"}),
            ParameterType::List => json!({"type": "array"}),
        };
        property["description"] = (*description).into();
        properties.insert((*name).to_owned(), property);
        if *is_required {
            required.push(json!(name));
        }
    }
    let mut schema =
        json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

/// How arguments are read where a tool differs from the others.
#[derive(Debug, Clone, Copy, Default)]
pub struct ArgumentRules {
    /// Arguments that are forwarded as they came, and only checked for being objects.
    pub(crate) forwarded: &'static [&'static str],
    /// Arguments that must be objects, and not the JSON of an object in a string.
    pub(crate) no_json_text: &'static [&'static str],
}

/// The body of a tool.
pub enum Body<S: ToolSet, I> {
    /// Runs on the runtime, and neither waits nor blocks.
    Immediate(SyncBody<S, I>),
    /// Runs on the runtime, and never blocks.
    Async(for<'a, 'b> fn(&'b S::Context<'a>, I) -> BodyFuture<'b, S>),
    /// Runs on a thread where it may block.
    Blocking(SyncBody<S, I>),
}

/// A body that is a plain function.
pub type SyncBody<S, I> = for<'a, 'b> fn(
    &'b <S as ToolSet>::Context<'a>,
    I,
) -> Result<<S as ToolSet>::Outcome, <S as ToolSet>::Error>;

/// The future of an asynchronous body.
pub type BodyFuture<'a, S> = BoxFuture<'a, Result<<S as ToolSet>::Outcome, <S as ToolSet>::Error>>;

impl<S: ToolSet, I> Tool<S, I> {
    /// Creates a tool that only reads data that Rung holds.
    pub const fn new(
        name: &'static str,
        description: &'static str,
        input: InputSchema,
        body: Body<S, I>,
    ) -> Self {
        Self {
            name,
            title: name,
            description,
            icon: None,
            hints: Hints::READ,
            access: Access::Read,
            is_entry: false,
            input,
            output: None,
            rules: ArgumentRules {
                forwarded: &[],
                no_json_text: &[],
            },
            body,
        }
    }

    /// Sets the title that hosts show to people.
    #[must_use]
    pub const fn titled(mut self, title: &'static str) -> Self {
        self.title = title;
        self
    }

    /// Sets the URI of an SVG icon.
    #[must_use]
    pub const fn with_icon(mut self, icon: &'static str) -> Self {
        self.icon = Some(icon);
        self
    }

    /// Sets the annotations.
    #[must_use]
    pub const fn with_hints(mut self, hints: Hints) -> Self {
        self.hints = hints;
        self
    }

    /// Sets the access that a permit must allow.
    #[must_use]
    pub const fn requiring(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Declares that a model begins with this tool.
    #[must_use]
    pub const fn as_entry(mut self) -> Self {
        self.is_entry = true;
        self
    }

    /// Sets the schema of the structured content.
    #[must_use]
    pub const fn with_output(mut self, output: fn() -> Value) -> Self {
        self.output = Some(output);
        self
    }

    /// Names arguments that are objects for somebody else: they are forwarded byte for byte, never parsed and rebuilt.
    #[must_use]
    pub const fn forwarding(mut self, names: &'static [&'static str]) -> Self {
        self.rules.forwarded = names;
        self
    }

    /// Names arguments that must be objects. Other objects may also be sent as a string that holds their JSON.
    #[must_use]
    pub const fn without_json_text(mut self, names: &'static [&'static str]) -> Self {
        self.rules.no_json_text = names;
        self
    }

    /// Returns the name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the annotations.
    pub const fn hints(&self) -> Hints {
        self.hints
    }
}

/// Returns the input schema of a type: closed, and without null.
pub fn input_schema_of<T: JsonSchema>() -> Value {
    schema::input_schema::<T>()
}

/// Returns the output schema of a type. `meta` lists what the ladder cut; `error` says why a call failed.
pub fn output_schema_of<T: JsonSchema>() -> Value {
    let mut output = schema::output_schema::<T>();
    output["properties"]["meta"] = json!({"type": "object"});
    output["properties"]["error"] = json!({"type": "object"});
    output
}
