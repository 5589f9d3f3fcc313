//! The tools of one source: who may use them, how their arguments are read, when they end, and how they reply.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rung_auth::Permit;
use rung_fault::{Code, Face, Fault};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::arguments::{self, Arguments};
use crate::card::{Card, Hints, TaskUse};
use crate::deadline::{Cancellation, within_deadline};
use crate::payload::render_payload;
use crate::render::render;
use crate::reply::{Rendering, Reply, ResultSink, to_raw_json};
use crate::schema::has_root_alternatives;
use crate::source::{BoxFuture, Call, ToolSource, unknown_tool};
use crate::tool::{Answer, ArgumentRules, Body, Tool, ToolContext, ToolSet};
use crate::{Error, Result, Schema};

/// Bytes of a tool's name that every client accepts.
const MAX_NAME_BYTES: usize = 64;

/// A set of tools.
pub struct Toolbox<S: ToolSet> {
    set: Arc<S>,
    entries: Vec<Entry<S>>,
    cards: Arc<[Arc<Card>]>,
    by_name: HashMap<&'static str, usize>,
    result_sink: Arc<dyn ResultSink>,
}

struct Entry<S: ToolSet> {
    card: Arc<Card>,
    schema: Schema,
    tool: &'static dyn ErasedTool<S>,
}

impl<S: ToolSet> Toolbox<S> {
    /// Creates a toolbox, if the names and schemas of the tools are valid. Long results are stored in `result_sink`.
    pub fn new(
        set: Arc<S>,
        tools: &[&'static dyn ErasedTool<S>],
        result_sink: Arc<dyn ResultSink>,
    ) -> Result<Self> {
        let mut entries = Vec::new();
        let mut by_name = HashMap::new();
        for (at, tool) in tools.iter().enumerate() {
            let card = tool.card()?;
            if by_name.insert(tool.name(), at).is_some() {
                return Err(Error::NameTaken(tool.name()));
            }
            entries.push(Entry {
                schema: Schema::compile(&card.input_schema)?,
                card: Arc::new(card),
                tool: *tool,
            });
        }
        Ok(Self {
            set,
            cards: entries.iter().map(|entry| entry.card.clone()).collect(),
            entries,
            by_name,
            result_sink,
        })
    }

    /// Returns the state that the tools share.
    pub fn set(&self) -> &Arc<S> {
        &self.set
    }

    /// Returns the tools that a permit may use, if it may access anything.
    fn permitted<'a>(
        &'a self,
        permit: &'a Permit,
        is_open: bool,
    ) -> impl Iterator<Item = &'a Entry<S>> {
        let permits = move |entry: &&Entry<S>| is_open && self.set.permits(permit, &entry.card);
        self.entries.iter().filter(permits)
    }

    /// Returns the tool of a name, if the permit may use it. The fault of any other name lists the tools that it may use.
    fn find(&self, permit: &Permit, is_open: bool, name: &str) -> Result<&Entry<S>, Fault> {
        let entry = self.by_name.get(name).map(|at| &self.entries[*at]);
        let granted = entry.filter(|entry| is_open && self.set.permits(permit, &entry.card));
        granted.ok_or_else(|| {
            let permitted = self.permitted(permit, is_open);
            unknown_tool(name, permitted.map(|entry| &*entry.card.name))
        })
    }

    async fn run(
        &self,
        call: &Call,
        entry: &Entry<S>,
        access: S::Access,
        raw: &RawValue,
    ) -> Result<Reply, S::Error> {
        let card = &entry.card;
        let read = arguments::read(raw, &entry.schema, &entry.tool.rules());
        let read = read.map_err(|fault| self.set.arguments_fault(card, fault))?;
        self.set.check(call, card, &read.value)?;
        let cancellation = Cancellation::new(call.deadline, Arc::new(AtomicBool::new(false)));
        // The future is dropped when the client cancels the call.
        let _cancels = cancellation.cancel_on_drop();
        let scope = CallScope {
            call,
            set: &self.set,
            access,
            card,
            cards: &self.cards,
            cancellation,
        };
        let work = entry.tool.run(scope, read);
        let answer = within_deadline(call, entry.card.hints, work).await??;
        match answer {
            Answer::Fitted(reply, max_bytes) => {
                let bytes = reply.form_bytes();
                if bytes > max_bytes {
                    return Err(too_large(bytes, max_bytes).into());
                }
                Ok(reply)
            }
            Answer::Output(output) => {
                // Without a schema, structured content would only repeat the text.
                let is_described = card.output_schema.is_some() || output.text.is_some();
                let rendering = Rendering {
                    structured: call.rendering.structured && is_described,
                    ..call.rendering
                };
                Ok(render(output, rendering, call, self.result_sink.clone()).await?)
            }
            Answer::Payload(payload, limits) => {
                Ok(render_payload(payload, limits, call, self.result_sink.clone()).await?)
            }
            Answer::Relayed(relayed) => {
                Ok(Reply::relay(relayed, call, self.result_sink.clone()).await?)
            }
        }
    }
}

impl<S: ToolSet> ToolSource for Toolbox<S> {
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<Card>, Fault>> {
        Box::pin(async move {
            let is_open = self.set.is_open(permit).await?;
            let permitted = self.permitted(permit, is_open);
            Ok(permitted.map(|entry| (*entry.card).clone()).collect())
        })
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Card, Fault>> {
        Box::pin(async move {
            // Most names belong to other sources.
            let is_open = self.by_name.contains_key(name) && self.set.is_open(permit).await?;
            let entry = self.find(permit, is_open, name)?;
            Ok((*entry.card).clone())
        })
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            let limited = self.set.limit(call);
            let call = &*limited;
            let refused = |fault: Fault| Reply::failed(&fault, Face::Rung, call);
            let Some(entry) = self.by_name.get(name).map(|at| &self.entries[*at]) else {
                let is_open = self.set.is_open(&call.permit).await.unwrap_or_default();
                let permitted = self.permitted(&call.permit, is_open);
                return refused(unknown_tool(name, permitted.map(|entry| &*entry.card.name)));
            };
            let access = match self.set.resolve(&call.permit).await {
                Ok(access) => access,
                Err(error) => return self.set.failed(call, &entry.card, error).await,
            };
            let entry = match self.find(&call.permit, access.is_some(), name) {
                Ok(entry) => entry,
                Err(fault) => return refused(fault),
            };
            let Some(access) = access else {
                return refused(unknown_tool(name, std::iter::empty()));
            };
            match self.run(call, entry, access, arguments).await {
                Ok(reply) => reply,
                Err(error) => self.set.failed(call, &entry.card, error).await,
            }
        })
    }
}

/// What a call runs with.
pub struct CallScope<'a, S: ToolSet> {
    call: &'a Call,
    set: &'a Arc<S>,
    access: S::Access,
    card: &'a Arc<Card>,
    cards: &'a Arc<[Arc<Card>]>,
    cancellation: Cancellation,
}

impl<S: ToolSet> CallScope<'_, S> {
    fn context<'s>(&'s self, forwarded: &'s [(&'static str, Box<RawValue>)]) -> ToolContext<'s, S> {
        ToolContext {
            call: self.call,
            set: self.set,
            access: &self.access,
            tool: self.card,
            cards: self.cards,
            cancellation: &self.cancellation,
            forwarded,
        }
    }
}

/// A [`Tool`] with the type of its input erased.
pub trait ErasedTool<S: ToolSet>: Send + Sync {
    #[doc(hidden)]
    fn name(&self) -> &'static str;
    #[doc(hidden)]
    fn hints(&self) -> Hints;
    #[doc(hidden)]
    fn card(&self) -> Result<Card>;
    #[doc(hidden)]
    fn rules(&self) -> ArgumentRules;
    #[doc(hidden)]
    fn run<'a>(
        &'a self,
        scope: CallScope<'a, S>,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<Answer, S::Error>>;
}

impl<S: ToolSet, I: DeserializeOwned + Send + 'static> ErasedTool<S> for Tool<S, I> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn rules(&self) -> ArgumentRules {
        self.rules
    }

    fn hints(&self) -> Hints {
        self.hints
    }

    fn card(&self) -> Result<Card> {
        let name = self.name;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) || !name.bytes().all(plain) {
            return Err(Error::NameInvalid(name));
        }
        let mut input = self.input.full()?;
        if input["type"] != "object" || input["additionalProperties"] != false {
            return Err(Error::InputOpen(name));
        }
        // Some hosts require the field.
        if input.get("properties").is_none() {
            input["properties"] = json!({});
        }
        let output = self.output.map(|output| output());
        if output
            .as_ref()
            .is_some_and(|output| output["type"] != "object")
        {
            return Err(Error::OutputNotObject(name));
        }
        if has_root_alternatives(&input) || output.as_ref().is_some_and(has_root_alternatives) {
            return Err(Error::RootAlternatives(name));
        }
        let brief = self.input.brief()?;
        let listed = brief.map(|brief| brief_listing(name, self.description, &brief, self.hints));
        Ok(Card {
            name: name.into(),
            title: self.title.into(),
            description: self.description.into(),
            icon: self.icon,
            input_schema: Arc::new(input),
            output_schema: output.map(Arc::new),
            hints: self.hints,
            access: self.access,
            tasks: TaskUse::Never,
            is_entry: self.is_entry,
            search_hint: S::SEARCH_HINT,
            listed,
        })
    }

    fn run<'a>(
        &'a self,
        scope: CallScope<'a, S>,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<Answer, S::Error>> {
        Box::pin(async move {
            let input: I = arguments::to_input(arguments.value)
                .map_err(|fault| scope.set.arguments_fault(scope.card, fault))?;
            match self.body {
                Body::Immediate(run) => {
                    let context = S::Context::from(scope.context(&arguments.forwarded));
                    scope.set.answer(scope.call, run(&context, input)?)
                }
                Body::Async(run) => {
                    let context = S::Context::from(scope.context(&arguments.forwarded));
                    let outcome = run(&context, input).await?;
                    scope.set.answer(scope.call, outcome)
                }
                Body::Blocking(run) => {
                    let (call, set) = (scope.call.clone(), scope.set.clone());
                    let (card, cards) = (scope.card.clone(), scope.cards.clone());
                    let (access, cancellation) = (scope.access, scope.cancellation);
                    let done = tokio::task::spawn_blocking(move || {
                        let context = ToolContext {
                            call: &call,
                            set: &*set,
                            access: &access,
                            tool: &card,
                            cards: &cards,
                            cancellation: &cancellation,
                            forwarded: &arguments.forwarded,
                        };
                        let outcome = run(&S::Context::from(context), input)?;
                        set.answer(&call, outcome)
                    });
                    done.await
                        .map_err(|error| Fault::new(Code::Internal, error.to_string()))?
                }
            }
        })
    }
}

fn too_large(bytes: usize, max_bytes: usize) -> Fault {
    let why = format!(
        "the parts of this reply that are never cut take {bytes} bytes; the limit is {max_bytes}"
    );
    Fault::new(Code::ResultTooLarge, why).with_hint(
        "request less: a smaller limit, fewer fields, or a part of a field with read_record_field",
    )
}

/// Returns a tool as it is listed, without annotations that equal the protocol's defaults: every client pays for every byte.
fn brief_listing(name: &str, description: &str, input: &Value, hints: Hints) -> Arc<RawValue> {
    let mut tool = json!({"name": name, "description": description, "inputSchema": input});
    let mut annotate = |hint: &str, is: bool, default: bool| {
        if is != default {
            tool["annotations"][hint] = is.into();
        }
    };
    annotate("readOnlyHint", hints.read_only, false);
    // These have no meaning for read-only tools.
    if !hints.read_only {
        annotate("destructiveHint", hints.destructive, true);
        annotate("idempotentHint", hints.idempotent, false);
    }
    annotate("openWorldHint", hints.open_world, true);
    to_raw_json(&tool).into()
}
