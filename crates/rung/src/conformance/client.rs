//! Client scenarios of the MCP conformance suite: one per run, against the suite's server.

use std::sync::Arc;

use rung_fault::{Code, Fault};
use rung_mcp::Capabilities;
use rung_mcp::connect::{
    Delegate, DelegateError, Era, Error, ListKind, Options, RequestOptions, ServerAddress,
    ServerConnection, ServerTarget,
};
use rung_tool::BoxFuture;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// Runs the scenario that `MCP_CONFORMANCE_SCENARIO` names.
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
    let connection = ServerConnection::new(
        ServerTarget::Address(ServerAddress::new(url)),
        options,
        Arc::new(AcceptingDelegate),
    );
    let (name, context) = (
        variable("MCP_CONFORMANCE_SCENARIO"),
        variable("MCP_CONFORMANCE_CONTEXT"),
    );
    let done = run_scenario(&connection, &name, &context);
    done.await.map_err(Error::into_fault)?;
    connection.close().await;
    Ok(())
}

async fn run_scenario(
    connection: &ServerConnection,
    name: &str,
    context: &str,
) -> Result<(), Error> {
    let how = RequestOptions::default();
    let tools = connection.tools(&how).await?;
    let call = async |name: &str, arguments: &Value| -> Result<(), Error> {
        let Some(tool) = tools.tools.iter().find(|tool| &*tool.name == name) else {
            return Ok(());
        };
        let arguments = to_raw_value(arguments).expect("an object");
        connection
            .call(tool, &arguments, RequestOptions::default())
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
                (ListKind::Resources, "resources/read", "uri"),
                (ListKind::Prompts, "prompts/get", "name"),
            ] {
                let listed = connection.list(kind, &how).await?;
                let Some(first) = listed.items.first() else {
                    continue;
                };
                let first: Value = serde_json::from_str(first.get()).unwrap_or_default();
                let params = to_raw_value(&json!({key: first[key]})).expect("an object");
                connection
                    .request_to_end(method, &params, how.clone())
                    .await?;
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
        // Call every listed tool, with a sample value for each argument.
        _ => {
            for tool in &tools.tools {
                call(&tool.name, &sample_object(&tool.input_schema)).await?;
            }
        }
    }
    Ok(())
}

/// Builds an object that a schema of the suite accepts.
fn sample_object(schema: &Value) -> Value {
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

/// A client that accepts every elicitation and sampling request, with default values where the schema has them.
struct AcceptingDelegate;

impl Delegate for AcceptingDelegate {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            form_elicitation: true,
            sampling: true,
            roots: true,
            ..Capabilities::default()
        }
    }

    fn on_request<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, DelegateError>> {
        let params: Value = params
            .and_then(|params| serde_json::from_str(params.get()).ok())
            .unwrap_or_default();
        let answer = match method {
            "elicitation/create" => {
                json!({"action": "accept", "content": sample_object(&params["requestedSchema"])})
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
