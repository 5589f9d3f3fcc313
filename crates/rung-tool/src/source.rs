//! Sources of tools: toolboxes and other servers.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rung_auth::Permit;
use rung_fault::{Code, Detail, Fault};
use rung_ladder::{Budget, head, limits};
use serde_json::value::RawValue;

use crate::card::Card;
use crate::form::FormLimit;
use crate::names::NameStyle;
use crate::peer::{NullPeer, Peer};
use crate::reply::{Rendering, Reply};

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The context of one call: the caller, and the limits of the reply.
#[derive(Debug, Clone)]
pub struct Call {
    /// The caller and its grant.
    pub permit: Permit,
    /// The budget of each form of the reply.
    pub budget: Budget,
    /// Bytes of each form of a page of rows at most, if its caller named no size.
    pub page_bytes: usize,
    /// Bytes of pictures and sound that each form may have in addition.
    pub media_bytes: usize,
    /// Tokens of each form of the reply at most.
    pub max_tokens: usize,
    /// Bytes of the message around the reply, which do not count against the budget.
    pub envelope_bytes: usize,
    /// The forms the caller can read.
    pub rendering: Rendering,
    /// The instant after which the call is abandoned.
    pub deadline: Option<Instant>,
    /// The form of tool names that the caller uses.
    pub name_style: NameStyle,
    /// The client, for progress, log messages and questions during the call.
    pub peer: Arc<dyn Peer>,
    /// The caller's trace context.
    pub trace: Option<Arc<Trace>>,
    /// The time that the caller waits for results that are not ready yet, from `rung/wait_ms` in `_meta`. Set by callers
    /// that cannot call again later, such as a command.
    pub wait: Option<Duration>,
}

/// The W3C trace context in `_meta`: `traceparent`, `tracestate`, `baggage`.
pub type Trace = Vec<(&'static str, String)>;

impl Call {
    /// Creates a call with the default budget, every rendering and no deadline.
    pub fn new(permit: Permit) -> Self {
        Self {
            permit,
            budget: Budget::default(),
            page_bytes: limits::PAGE_BYTES,
            media_bytes: 0,
            max_tokens: usize::MAX,
            envelope_bytes: 0,
            rendering: Rendering::default(),
            deadline: None,
            name_style: NameStyle::default(),
            peer: Arc::new(NullPeer),
            trace: None,
            wait: None,
        }
    }
}

impl Call {
    pub(crate) fn form_limit(&self) -> FormLimit {
        FormLimit {
            max_bytes: self.budget.max_bytes,
            max_tokens: self.max_tokens,
        }
    }
}

/// A source of tools.
///
/// A tool that a permit may not use is absent from all three methods: it is not listed, not described, not called,
/// and is reported as a name that does not exist.
pub trait ToolSource: Send + Sync {
    /// Lists the tools that `permit` may use, always in the same order.
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<Card>, Fault>>;

    /// Describes one tool.
    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Card, Fault>>;

    /// Calls a tool with its unparsed arguments. Errors are in the reply.
    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> BoxFuture<'a, Reply>;
}

/// Bytes of an unknown tool's name that an error repeats.
const SHOWN_NAME_BYTES: usize = 64;

/// Names that an error lists.
const SHOWN_NAMES: usize = 50;

/// Returns the fault for an unknown tool, with the names of the known ones.
pub fn unknown_tool<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Fault {
    let name = head(name, SHOWN_NAME_BYTES);
    let known: Vec<&str> = known.take(SHOWN_NAMES).collect();
    Fault::new(Code::UnknownTool, format!("no tool is named {name:?}"))
        .with_hint("call tools/list and use one of its names")
        .with(Detail::Allowed, known)
}

/// Several sources as one, in this order. Of two tools with the same name the first is used.
pub struct ToolSources(pub Vec<Arc<dyn ToolSource>>);

impl ToolSources {
    /// Returns the source that has the tool.
    async fn find(&self, permit: &Permit, name: &str) -> Result<(&dyn ToolSource, Card), Fault> {
        for source in &self.0 {
            match source.describe(permit, name).await {
                Ok(card) => return Ok((&**source, card)),
                Err(fault) if fault.code() == Code::UnknownTool => {}
                Err(fault) => return Err(fault),
            }
        }
        let cards = self.list(permit).await?;
        Err(unknown_tool(name, cards.iter().map(|card| &*card.name)))
    }
}

impl ToolSource for ToolSources {
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<Card>, Fault>> {
        Box::pin(async move {
            let mut all: Vec<Card> = Vec::new();
            for source in &self.0 {
                for card in source.list(permit).await? {
                    if all.iter().all(|other| other.name != card.name) {
                        all.push(card);
                    }
                }
            }
            Ok(all)
        })
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Card, Fault>> {
        Box::pin(async move { Ok(self.find(permit, name).await?.1) })
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            match self.find(&call.permit, name).await {
                Ok((source, _)) => source.call(call, name, arguments).await,
                Err(fault) => Reply::failed(&fault, rung_fault::Face::Rung, call),
            }
        })
    }
}
