//! `gateway.describe`: what a tool takes and gives.

use std::borrow::Cow;

use rung_fault::Fault;
use rung_tool::Reply;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Asking, Definition, READS, short};
use crate::redact::Masks;
use crate::seen::{Known, Risk};

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.describe",
    title: "Describe a tool",
    description: "What a tool takes. full: its schemas whole, as the server has them.",
    hints: READS,
    operates: false,
    properties: r#"{"tool_id": {"type": "string", "description": "server::tool"}, "full": {"type": "boolean"}}"#,
    required: &["tool_id"],
    run: |asking| Box::pin(run(asking)),
};

#[derive(Deserialize)]
struct Input {
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
    args: Vec<Argument<'a>>,
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
    /// How code uses it, where the user wants that to be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    code_snippet: Option<String>,
}

#[derive(Serialize)]
struct Argument<'a> {
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
    /// What it is an array of, where that is short.
    #[serde(skip_serializing_if = "Option::is_none")]
    item_schema: Option<&'a Value>,
    /// There is more to it than this: the full schema says what.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    nested: bool,
}

/// Characters of an argument's description.
const SHORT_CHARS: usize = 200;

async fn run(asking: Asking<'_>) -> Result<Reply, Fault> {
    let input: Input = asking.read()?;
    let (server, known) = asking.gateway.tool(asking.call, &input.tool_id).await?;
    let listed = |name: &str| known.listed(name);
    let schema = &*known.tool.input_schema;
    let state = asking.gateway.state();
    let names = asking.call.names;
    let destroys = "It may change or destroy something.";
    asking
        .reply(Output {
            server: server.name(),
            tool_name: &known.tool.name,
            title: known.title.as_deref(),
            description: &known.description,
            icons: listed("icons").filter(|_| input.full),
            args: arguments(schema, state.rules.masks()),
            input_schema: Some(schema).filter(|_| input.full),
            output_schema: listed("outputSchema").filter(|_| input.full),
            annotations: listed("annotations"),
            execution: listed("execution"),
            schema_dialect: known.dialect(),
            risk_hint: known.risk,
            safety_notes: (known.risk == Risk::High).then_some(destroys),
            invoke_as: names.show(super::invoke::DEFINITION.name),
            invoke_template: template(server.name(), &known),
            code_snippet: state.guidance.snippet(server.name(), &known, names),
        })
        .await
}

fn arguments<'s>(schema: &'s Value, masks: Masks<'_>) -> Vec<Argument<'s>> {
    let required = schema["required"].as_array().into_iter().flatten();
    let required: Vec<&str> = required.filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let argument = |name: &String, argument: &Value| {
        let said = argument["description"].as_str().unwrap_or_default();
        (
            short(&masks.text(said), SHORT_CHARS),
            required.contains(&name.as_str()),
            kind(argument),
        )
    };
    properties
        .map(|(name, schema)| {
            let (short_description, required, kind) = argument(name, schema);
            Argument {
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

/// The type of an argument, in a word.
fn kind(argument: &Value) -> String {
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

/// Keywords that say more of an argument than its type.
const DEEP: [&str; 22] = [
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

/// Bytes of the schema of an array's items that are told at once.
const ITEM_BYTES: usize = 300;

fn item_schema(argument: &Value) -> Option<&Value> {
    let items = argument.get("items")?;
    // Its type alone is said already.
    let says_more = items.as_object().is_some_and(|items| items.len() > 1);
    let is_short = || items.to_string().len() <= ITEM_BYTES;
    (says_more && is_short()).then_some(items)
}

fn is_nested(argument: &Value) -> bool {
    let has = |value: &Value| DEEP.iter().any(|keyword| value.get(*keyword).is_some());
    let items = &argument["items"];
    let items_are_told = item_schema(argument).is_some();
    has(argument) || !items_are_told && (has(items) || items.get("enum").is_some())
}

/// A call to fill in: what is required, by its type.
fn template(server: &str, known: &Known) -> Value {
    let schema = &known.tool.input_schema;
    let mut arguments = Map::new();
    let required = schema["required"].as_array().into_iter().flatten();
    for name in required.filter_map(Value::as_str) {
        let argument = &schema["properties"][name];
        let example = argument.get("default").or_else(|| argument["enum"].get(0));
        let shown = match example {
            Some(example) => example.clone(),
            None => format!("<{}>", kind(argument)).into(),
        };
        arguments.insert(name.to_owned(), shown);
    }
    json!({"tool_id": format!("{server}::{}", known.tool.name), "arguments": arguments})
}
