//! `gateway.describe`: arguments, schemas and risk of a tool.

use std::borrow::Cow;

use rung_fault::Fault;
use rung_tool::{Answer, Body, Card, InputSchema, Tool};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{GatewayContext, GatewayTools, READ_HINTS, schema_with_names, shorten, with_names};
use crate::catalog::{CatalogTool, DEFAULT_DIALECT, Risk};
use crate::redact::CallerRedactor;

pub(super) const TOOL: Tool<GatewayTools, Input> = Tool::new(
    "gateway.describe",
    "Shows a tool's arguments (gateway tools, too). full: its complete schemas.",
    InputSchema::Text {
        properties: r#"{"tool_id": {"type": "string", "description": "server::tool"}, "full": {"type": "boolean"}}"#,
        details: "",
        required: &["tool_id"],
        descriptions: &[
        (
            "tool_id",
            "The tool: server::tool, or the name of a gateway.* tool.",
        ),
        ("full", "True returns the complete schemas."),
    ],
    },
    Body::Async(|context, input| Box::pin(run(context, input))),
)
.titled("Describe a tool")
.with_hints(READ_HINTS)
.as_entry();

#[derive(Deserialize)]
pub(super) struct Input {
    tool_id: String,
    #[serde(default)]
    full: bool,
}

#[derive(Serialize)]
struct Output<'a> {
    server: &'a str,
    tool_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    icons: Option<Value>,
    args: Vec<ToolArgument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution: Option<Value>,
    schema_dialect: &'a str,
    risk_hint: Risk,
    #[serde(skip_serializing_if = "Option::is_none")]
    safety_notes: Option<&'static str>,
    invoke_as: Cow<'static, str>,
    invoke_template: Value,
    /// Code that calls the tool, if the guidance has snippets.
    #[serde(skip_serializing_if = "Option::is_none")]
    code_snippet: Option<String>,
}

#[derive(Serialize)]
struct ToolArgument<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: String,
    required: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    short_description: String,
    #[serde(rename = "enum", skip_serializing_if = "Option::is_none")]
    one_of: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    examples: Option<&'a Value>,
    /// Schema of an array's items, if it is short.
    #[serde(skip_serializing_if = "Option::is_none")]
    item_schema: Option<&'a Value>,
    /// True if only the full schema describes the argument completely.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    nested: bool,
}

const MAX_DESCRIPTION_CHARS: usize = 200;

async fn run(context: &GatewayContext<'_>, input: Input) -> Result<Answer, Fault> {
    if let Some(own) = context.find_tool(&input.tool_id) {
        return describe_own(context, own, input.full);
    }
    let (server, known) = context
        .gateway
        .resolve_tool(context.call, &input.tool_id)
        .await?;
    let listed = |name: &str| known.definition_member(name);
    let schema = &*known.tool.input_schema;
    let state = context.gateway.state();
    let names = context.call.name_style;
    let destroys = "The tool may change or destroy something.";
    context.answer(Output {
        server: server.name(),
        tool_name: &known.tool.name,
        title: known.title.as_deref(),
        description: &known.description,
        icons: listed("icons").filter(|_| input.full),
        args: summarize_arguments(schema, state.access.caller_redactor()),
        input_schema: Some(schema).filter(|_| input.full),
        output_schema: listed("outputSchema").filter(|_| input.full),
        annotations: listed("annotations"),
        execution: listed("execution"),
        schema_dialect: known.schema_dialect(),
        risk_hint: known.risk,
        safety_notes: (known.risk == Risk::High).then_some(destroys),
        invoke_as: names.apply(super::INVOKE_TOOL),
        invoke_template: invoke_template(server.name(), &known),
        code_snippet: state.guidance.snippet(server.name(), &known, names),
    })
}

/// Describes a `gateway.*` tool, with more of its parameters than the list shows.
fn describe_own(context: &GatewayContext<'_>, own: &Card, full: bool) -> Result<Answer, Fault> {
    let names = context.call.name_style;
    let schema = schema_with_names(&own.input_schema, names);
    let hints = own.hints;
    let state = context.gateway.state();
    let mut described = json!({
        "tool_name": names.apply(&own.name),
        "title": own.title,
        "description": with_names(&own.description, names),
        "args": summarize_arguments(&schema, state.access.caller_redactor()),
        "annotations": {
            "readOnlyHint": hints.read_only,
            "destructiveHint": hints.destructive,
            "idempotentHint": hints.idempotent,
            "openWorldHint": hints.open_world,
        },
        "schema_dialect": DEFAULT_DIALECT,
        "invoke_as": names.apply(&own.name),
        "invoke_template": argument_template(&schema),
    });
    if full {
        described["input_schema"] = schema;
    }
    context.answer(described)
}

fn summarize_arguments<'s>(schema: &'s Value, masks: CallerRedactor<'_>) -> Vec<ToolArgument<'s>> {
    let required = schema["required"].as_array().into_iter().flatten();
    let required: Vec<&str> = required.filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let argument = |name: &String, argument: &Value| {
        let said = argument["description"].as_str().unwrap_or_default();
        (
            shorten(&masks.redact_text(said), MAX_DESCRIPTION_CHARS),
            required.contains(&name.as_str()),
            type_name(argument),
        )
    };
    properties
        .map(|(name, schema)| {
            let (short_description, required, kind) = argument(name, schema);
            ToolArgument {
                name,
                kind,
                required,
                short_description,
                one_of: schema.get("enum"),
                default: schema.get("default"),
                examples: schema.get("examples"),
                item_schema: item_schema(schema),
                nested: is_nested(schema),
            }
        })
        .collect()
}

/// Returns the type of an argument in a few words.
fn type_name(argument: &Value) -> String {
    match &argument["type"] {
        Value::String(kind) if kind == "array" => match argument["items"]["type"].as_str() {
            Some(items) => format!("array of {items}"),
            None => kind.clone(),
        },
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => {
            let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
            kinds.join(" or ")
        }
        _ if argument.get("enum").is_some() => "enum".to_owned(),
        _ => "any".to_owned(),
    }
}

/// Schema keywords that constrain an argument beyond its type.
const CONSTRAINT_KEYWORDS: [&str; 22] = [
    "properties",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "pattern",
    "minimum",
    "maximum",
    "format",
    "const",
    "not",
    "if",
    "multipleOf",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "prefixItems",
    "patternProperties",
];

/// Longest item schema that is included.
const MAX_ITEM_SCHEMA_BYTES: usize = 300;

fn item_schema(argument: &Value) -> Option<&Value> {
    let items = argument.get("items")?;
    // The type alone is already in `type`.
    let says_more = items.as_object().is_some_and(|items| items.len() > 1);
    let is_short = || items.to_string().len() <= MAX_ITEM_SCHEMA_BYTES;
    (says_more && is_short()).then_some(items)
}

fn is_nested(argument: &Value) -> bool {
    let has = |value: &Value| {
        CONSTRAINT_KEYWORDS
            .iter()
            .any(|keyword| value.get(*keyword).is_some())
    };
    let items = &argument["items"];
    let items_are_told = item_schema(argument).is_some();
    has(argument) || !items_are_told && (has(items) || items.get("enum").is_some())
}

/// Returns a call to fill in, with a value or type for each required argument.
fn invoke_template(server: &str, known: &CatalogTool) -> Value {
    let arguments = argument_template(&known.tool.input_schema);
    json!({"tool_id": format!("{server}::{}", known.tool.name), "arguments": arguments})
}

/// Returns the required arguments, each with a value or its type.
fn argument_template(schema: &Value) -> Map<String, Value> {
    let mut arguments = Map::new();
    let required = schema["required"].as_array().into_iter().flatten();
    for name in required.filter_map(Value::as_str) {
        let argument = &schema["properties"][name];
        let example = argument.get("default").or_else(|| argument["enum"].get(0));
        let shown = match example {
            Some(example) => example.clone(),
            None => format!("<{}>", type_name(argument)).into(),
        };
        arguments.insert(name.to_owned(), shown);
    }
    arguments
}
