//! Our own tools, as a source.

use std::collections::HashMap;
use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::{Code, Face, Fault};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::card::{Card, TaskUse};
use crate::reply::{Answer, Keep, Reply, render};
use crate::schema::{of_input, of_output};
use crate::source::{Call, Pending, ToolSource, unknown_tool};
use crate::{Error, Result, Schema, Tool, arguments};

/// Bytes of a tool's name: what every client takes.
const MAX_NAME_BYTES: usize = 64;

/// A set of tools.
pub struct Toolbox {
    tools: Vec<Entry>,
    by_name: HashMap<&'static str, usize>,
    face: Face,
    keep: Arc<dyn Keep>,
}

struct Entry {
    card: Card,
    schema: Schema,
    tool: Box<dyn Untyped>,
}

impl Entry {
    /// The one place where it is decided whether a tool is there for a permit.
    fn is_granted(&self, permit: &Permit) -> bool {
        self.card.access <= permit.access()
    }
}

/// Puts a toolbox together.
pub struct ToolboxBuilder(Toolbox);

impl Toolbox {
    /// A box whose errors look as `face` wants them, and whose long results go to `keep`.
    pub fn builder(face: Face, keep: Arc<dyn Keep>) -> ToolboxBuilder {
        ToolboxBuilder(Self {
            tools: Vec::new(),
            by_name: HashMap::new(),
            face,
            keep,
        })
    }

    /// The tools that a permit may use.
    fn granted<'a>(&'a self, permit: &'a Permit) -> impl Iterator<Item = &'a Entry> {
        self.tools.iter().filter(|entry| entry.is_granted(permit))
    }

    fn find(&self, permit: &Permit, name: &str) -> Result<&Entry, Fault> {
        let entry = self.by_name.get(name).map(|at| &self.tools[*at]);
        let granted = entry.filter(|entry| entry.is_granted(permit));
        granted.ok_or_else(|| {
            let names = self.granted(permit).map(|entry| &*entry.card.name);
            unknown_tool(name, names)
        })
    }

    async fn answer(&self, call: &Call, name: &str, arguments: &RawValue) -> Result<Reply, Fault> {
        let entry = self.find(&call.permit, name)?;
        let arguments = serde_json::from_str(arguments.get())
            .map_err(|error| Fault::new(Code::InvalidArguments, error.to_string()))?;
        // A client that has nothing to say may send null or leave the arguments out.
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
                .map_err(|_| Fault::new(Code::DeadlineExceeded, "the call took too long"))??,
        };
        render(answer, call, self.keep.clone()).await
    }
}

impl ToolboxBuilder {
    /// Adds a tool, if its name and schemas are sound.
    pub fn tool<T: Tool>(mut self, tool: T) -> Result<Self> {
        let name = T::NAME;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) || !name.bytes().all(plain) {
            return Err(Error::NameInvalid(name));
        }
        let mut input = of_input::<T::Input>();
        if input["type"] != "object" || input["additionalProperties"] != false {
            return Err(Error::InputOpen(name));
        }
        // Some hosts insist on the member.
        if input.get("properties").is_none() {
            input["properties"] = json!({});
        }
        let mut output = of_output::<T::Output>();
        if output["type"] != "object" {
            return Err(Error::OutputNotObject(name));
        }
        // Where the ladder says what it cut, and a call why it failed.
        output["properties"]["meta"] = json!({"type": "object"});
        output["properties"]["error"] = json!({"type": "object"});
        let entry = Entry {
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

    /// The box.
    pub fn build(self) -> Toolbox {
        self.0
    }
}

impl ToolSource for Toolbox {
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<Card>, Fault>> {
        let cards = self
            .granted(permit)
            .map(|entry| entry.card.clone())
            .collect();
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
            match self.answer(call, name, arguments).await {
                Ok(reply) => reply,
                Err(fault) => Reply::failed(&fault, self.face, call),
            }
        })
    }
}

/// A tool with its types out of sight.
trait Untyped: Send + Sync {
    fn run<'a>(
        &'a self,
        call: &'a Call,
        arguments: Value,
    ) -> Pending<'a, Result<Answer<Value>, Fault>>;
}

impl<T: Tool> Untyped for T {
    fn run<'a>(
        &'a self,
        call: &'a Call,
        arguments: Value,
    ) -> Pending<'a, Result<Answer<Value>, Fault>> {
        Box::pin(async move {
            // The schema has accepted them, so this says where the schema and the type disagree.
            let input = serde_json::from_value(arguments)
                .map_err(|error| Fault::new(Code::InvalidArguments, error.to_string()))?;
            let answer = Tool::run(self, call, input).await.map_err(Into::into)?;
            let data = serde_json::to_value(answer.data)
                .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
            Ok(Answer {
                data,
                text: answer.text,
                links: answer.links,
            })
        })
    }
}
