//! Anything that offers tools: our own boxes, and other servers.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rung_auth::Permit;
use rung_fault::{Code, Detail, Fault};
use rung_ladder::{Budget, head};
use serde_json::value::RawValue;

use crate::card::Card;
use crate::names::Names;
use crate::peer::{Nobody, Peer};
use crate::reply::{Rendering, Reply};

/// An answer that is not there yet.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Who calls, and what the answer may cost.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who, and what they may do.
    pub permit: Permit,
    /// The bound of the reply.
    pub budget: Budget,
    /// Bytes of the message around the reply, which the budget does not have.
    pub around_bytes: usize,
    /// The forms the caller can read.
    pub rendering: Rendering,
    /// When the answer is no longer wanted.
    pub deadline: Option<Instant>,
    /// By which names the caller knows tools.
    pub names: Names,
    /// Whom to tell, and to ask, on the way.
    pub peer: Arc<dyn Peer>,
    /// How the caller traces it across processes.
    pub trace: Option<Arc<Trace>>,
    /// How long the caller waits for what is not ready yet, where it says so: `rung/wait_ms` in `_meta`. A caller that asks once, as
    /// a command does, cannot come back later.
    pub wait: Option<Duration>,
}

/// What is said in `_meta` to trace a call across processes, as W3C has it: `traceparent`, `tracestate`, `baggage`.
pub type Trace = Vec<(&'static str, String)>;

impl Call {
    /// A call with the usual budget, every rendering and no deadline.
    pub fn new(permit: Permit) -> Self {
        Self {
            permit,
            budget: Budget::default(),
            around_bytes: 0,
            rendering: Rendering::default(),
            deadline: None,
            names: Names::default(),
            peer: Arc::new(Nobody),
            trace: None,
            wait: None,
        }
    }
}

/// A place where tools come from.
///
/// What a permit may not use is absent from all three: not listed, not described, not called, and
/// reported as a name that does not exist.
pub trait ToolSource: Send + Sync {
    /// The tools that `permit` may use, always in the same order.
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<Card>, Fault>>;

    /// One of them.
    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> Pending<'a, Result<Card, Fault>>;

    /// Calls one, with its arguments as they came. What goes wrong is in the reply.
    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> Pending<'a, Reply>;
}

/// Bytes of a tool's name that an error repeats.
const SHOWN_NAME_BYTES: usize = 64;

/// Names that an error lists.
const SHOWN_NAMES: usize = 50;

/// The fault of calling a tool that is not there, with the names of those that are.
pub fn unknown_tool<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Fault {
    let name = head(name, SHOWN_NAME_BYTES);
    let known: Vec<&str> = known.take(SHOWN_NAMES).collect();
    Fault::new(Code::UnknownTool, format!("no tool is named {name:?}"))
        .with_hint("list the tools and use one of their names")
        .with(Detail::Allowed, known)
}

/// Several sources as one, in this order. Of two tools with one name the first is there.
pub struct Sources(pub Vec<Arc<dyn ToolSource>>);

impl Sources {
    /// The source that has the tool.
    async fn of(&self, permit: &Permit, name: &str) -> Result<(&dyn ToolSource, Card), Fault> {
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

impl ToolSource for Sources {
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<Card>, Fault>> {
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
    ) -> Pending<'a, Result<Card, Fault>> {
        Box::pin(async move { Ok(self.of(permit, name).await?.1) })
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> Pending<'a, Reply> {
        Box::pin(async move {
            match self.of(&call.permit, name).await {
                Ok((source, _)) => source.call(call, name, arguments).await,
                Err(fault) => Reply::failed(&fault, rung_fault::Face::Rung, call),
            }
        })
    }
}
