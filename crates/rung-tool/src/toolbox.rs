//! Rung's own tools, as a source.

use std::collections::HashMap;
use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::{Code, Face, Fault};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::card::{Card, TaskUse};
use crate::reply::{Reply, ResultSink, ToolOutput, render};
use crate::schema::{input_schema, output_schema};
use crate::source::{BoxFuture, Call, ToolSource, unknown_tool};
use crate::{Error, Result, Schema, Tool, arguments};

/// Bytes of a tool's name that every client accepts.
const MAX_NAME_BYTES: usize = 64;

/// A set of tools.
pub struct Toolbox {
    tools: Vec<ToolboxEntry>,
    by_name: HashMap<&'static str, usize>,
    face: Face,
    result_sink: Arc<dyn ResultSink>,
}

struct ToolboxEntry {
    card: Card,
    schema: Schema,
    tool: Box<dyn ErasedTool>,
}

impl ToolboxEntry {
    /// Returns true if the permit may use the tool. Decided only here.
    fn is_granted(&self, permit: &Permit) -> bool {
        self.card.access <= permit.access()
    }
}

/// Builds a [`Toolbox`].
pub struct ToolboxBuilder(Toolbox);

impl Toolbox {
    /// Returns a builder. Errors are written for `face`; long results are stored in `keep`.
    pub fn builder(face: Face, keep: Arc<dyn ResultSink>) -> ToolboxBuilder {
        ToolboxBuilder(Self {
            tools: Vec::new(),
            by_name: HashMap::new(),
            face,
            result_sink: keep,
        })
    }

    /// Returns the tools that a permit may use.
    fn permitted<'a>(&'a self, permit: &'a Permit) -> impl Iterator<Item = &'a ToolboxEntry> {
        self.tools.iter().filter(|entry| entry.is_granted(permit))
    }

    fn find(&self, permit: &Permit, name: &str) -> Result<&ToolboxEntry, Fault> {
        let entry = self.by_name.get(name).map(|at| &self.tools[*at]);
        let granted = entry.filter(|entry| entry.is_granted(permit));
        granted.ok_or_else(|| {
            let names = self.permitted(permit).map(|entry| &*entry.card.name);
            unknown_tool(name, names)
        })
    }

    async fn run_tool(
        &self,
        call: &Call,
        name: &str,
        arguments: &RawValue,
    ) -> Result<Reply, Fault> {
        let entry = self.find(&call.permit, name)?;
        let arguments = serde_json::from_str(arguments.get())
            .map_err(|error| Fault::new(Code::InvalidArguments, error.to_string()))?;
        // A client may send null or leave the arguments out.
        let arguments = match arguments {
            Value::Null => json!({}),
            arguments => arguments,
        };
        arguments::check(&entry.schema, &arguments)?;
        let run = entry.tool.run(call, arguments);
        let answer = match call.deadline {
            None => run.await?,
            Some(deadline) => tokio::time::timeout_at(deadline.into(), run)
                .await
                .map_err(|_| {
                    Fault::new(
                        Code::DeadlineExceeded,
                        "the call did not finish before its deadline",
                    )
                })??,
        };
        render(answer, call, self.result_sink.clone()).await
    }
}

impl ToolboxBuilder {
    /// Adds a tool, if its name and schemas are valid.
    pub fn tool<T: Tool>(mut self, tool: T) -> Result<Self> {
        let name = T::NAME;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) || !name.bytes().all(plain) {
            return Err(Error::NameInvalid(name));
        }
        let mut input = input_schema::<T::Input>();
        if input["type"] != "object" || input["additionalProperties"] != false {
            return Err(Error::InputOpen(name));
        }
        // Some hosts require the member.
        if input.get("properties").is_none() {
            input["properties"] = json!({});
        }
        let mut output = output_schema::<T::Output>();
        if output["type"] != "object" {
            return Err(Error::OutputNotObject(name));
        }
        // `meta` lists what the ladder cut; `error` says why a call failed.
        output["properties"]["meta"] = json!({"type": "object"});
        output["properties"]["error"] = json!({"type": "object"});
        let entry = ToolboxEntry {
            schema: Schema::compile(&input)?,
            card: Card {
                name: name.into(),
                title: T::TITLE.into(),
                description: T::DESCRIPTION.into(),
                icon: T::ICON,
                input_schema: Arc::new(input),
                output_schema: Some(Arc::new(output)),
                hints: T::HINTS,
                access: T::ACCESS,
                tasks: TaskUse::Never,
                listed: None,
            },
            tool: Box::new(tool),
        };
        let toolbox = &mut self.0;
        if toolbox.by_name.insert(name, toolbox.tools.len()).is_some() {
            return Err(Error::NameTaken(name));
        }
        toolbox.tools.push(entry);
        Ok(self)
    }

    /// Returns the toolbox.
    pub fn build(self) -> Toolbox {
        self.0
    }
}

impl ToolSource for Toolbox {
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<Card>, Fault>> {
        let cards = self
            .permitted(permit)
            .map(|entry| entry.card.clone())
            .collect();
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
            match self.run_tool(call, name, arguments).await {
                Ok(reply) => reply,
                Err(fault) => Reply::failed(&fault, self.face, call),
            }
        })
    }
}

/// A tool with its types erased.
trait ErasedTool: Send + Sync {
    fn run<'a>(
        &'a self,
        call: &'a Call,
        arguments: Value,
    ) -> BoxFuture<'a, Result<ToolOutput<Value>, Fault>>;
}

impl<T: Tool> ErasedTool for T {
    fn run<'a>(
        &'a self,
        call: &'a Call,
        arguments: Value,
    ) -> BoxFuture<'a, Result<ToolOutput<Value>, Fault>> {
        Box::pin(async move {
            // The schema has accepted the arguments, so an error here means that the schema and the type disagree.
            let input = serde_json::from_value(arguments)
                .map_err(|error| Fault::new(Code::InvalidArguments, error.to_string()))?;
            let answer = Tool::run(self, call, input).await.map_err(Into::into)?;
            let data = serde_json::to_value(answer.data)
                .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
            Ok(ToolOutput {
                data,
                text: answer.text,
                links: answer.links,
            })
        })
    }
}
