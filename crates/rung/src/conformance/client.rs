//! What the protocol's own test suite has a client do: one scenario a run, against the server it starts.

use std::sync::Arc;

use rung_fault::{Code, Fault};
use rung_mcp::Capabilities;
use rung_mcp::connect::{
    Address, Connection, Delegate, Era, Error, How, Kind, Options, Target, Unanswered,
};
use rung_tool::Pending;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// Does what the scenario asks of a client.
pub(crate) async fn run(url: &str) -> Result<(), Fault> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let wrong = |why: String| Fault::new(Code::InvalidArguments, why);
    let url = url
        .parse()
        .map_err(|_| wrong(format!("no address: {url}")))?;
    let era = match variable("MCP_CONFORMANCE_PROTOCOL_VERSION").as_str() {
        "2026-07-28" => Era::Modern,
        _ => Era::Legacy,
    };
    let options = Options {
        era: Some(era),
        ..Options::new("the suite's server")
    };
    let connection = Connection::new(
        Target::Address(Address::new(url)),
        options,
        Arc::new(Willing),
    );
    let (name, context) = (
        variable("MCP_CONFORMANCE_SCENARIO"),
        variable("MCP_CONFORMANCE_CONTEXT"),
    );
    let done = scenario(&connection, &name, &context);
    done.await.map_err(Error::into_fault)?;
    connection.close().await;
    Ok(())
}

async fn scenario(connection: &Connection, name: &str, context: &str) -> Result<(), Error> {
    let how = How::default();
    let tools = connection.tools(&how).await?;
    let call = async |name: &str, arguments: &Value| -> Result<(), Error> {
        let Some(tool) = tools.tools.iter().find(|tool| &*tool.name == name) else {
            return Ok(());
        };
        let arguments = to_raw_value(arguments).expect("an object");
        connection
            .call(tool, &arguments, How::default())
            .await
            .map(drop)
    };
    match name {
        "http-custom-headers" => {
            let context: Value = serde_json::from_str(context).unwrap_or_default();
            for one in context["toolCalls"].as_array().into_iter().flatten() {
                call(one["name"].as_str().unwrap_or_default(), &one["arguments"]).await?;
            }
        }
        "http-standard-headers" => {
            call("test_headers", &json!({})).await?;
            for (kind, method, key) in [
                (Kind::Resources, "resources/read", "uri"),
                (Kind::Prompts, "prompts/get", "name"),
            ] {
                let listed = connection.list(kind, &how).await?;
                let Some(first) = listed.items.first() else {
                    continue;
                };
                let first: Value = serde_json::from_str(first.get()).unwrap_or_default();
                let params = to_raw_value(&json!({key: first[key]})).expect("an object");
                connection.converse(method, &params, how.clone()).await?;
            }
        }
        "json-schema-2020-12-preservation" => {
            let tool = tools
                .tools
                .iter()
                .find(|tool| &*tool.name == "json_schema_2020_12_tool");
            if let Some(tool) = tool {
                call("json_schema_echo", &json!({"schema": *tool.input_schema})).await?;
            }
        }
        "json-schema-ref-no-deref" => {}
        // Every tool that was not left out, with something in it for each argument it wants.
        _ => {
            for tool in &tools.tools {
                call(&tool.name, &sample(&tool.input_schema)).await?;
            }
        }
    }
    Ok(())
}

/// An object that a schema accepts, as far as these schemas go.
fn sample(schema: &Value) -> Value {
    let properties = schema["properties"].as_object();
    let members = properties.into_iter().flatten().map(|(name, property)| {
        let value = match (&property["default"], property["type"].as_str()) {
            (default, _) if !default.is_null() => default.clone(),
            (_, Some("number" | "integer")) => 5.into(),
            (_, Some("boolean")) => true.into(),
            (_, Some("object")) => json!({}),
            (_, Some("array")) => json!([]),
            _ => "something".into(),
        };
        (name.clone(), value)
    });
    Value::Object(members.collect::<Map<_, _>>())
}

/// A client that answers what it is asked, with the defaults where there are some.
struct Willing;

impl Delegate for Willing {
    fn can(&self) -> Capabilities {
        Capabilities {
            form: true,
            sample: true,
            roots: true,
            ..Capabilities::default()
        }
    }

    fn ask<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> Pending<'a, Result<Box<RawValue>, Unanswered>> {
        let params: Value = params
            .and_then(|params| serde_json::from_str(params.get()).ok())
            .unwrap_or_default();
        let answer = match method {
            "elicitation/create" => {
                json!({"action": "accept", "content": sample(&params["requestedSchema"])})
            }
            "sampling/createMessage" => {
                let content = json!({"type": "text", "text": "something"});
                json!({"role": "assistant", "content": content, "model": "none", "stopReason": "endTurn"})
            }
            _ => json!({"roots": []}),
        };
        Box::pin(std::future::ready(Ok(
            to_raw_value(&answer).expect("an object")
        )))
    }
}
