//! Another server's tools, as a source like our own.
//!
//! What it lists and what it answers goes on as it came; what does not fit a reply is kept, and the ladder leads to it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rung_auth::{Access, Permit};
use rung_fault::{Face, Fault};
use rung_tool::{
    Ask, Call, Card, Conversation, Hints, Keep, Level, Peer, Pending, Progress, Question, Reply,
    TaskUse, ToolSource, unknown_tool,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::Capabilities;
use crate::connect::{
    Connection, Delegate, Dropped, Error, How, Options, Target, Tool, Unanswered,
};
use crate::envelope::{RELATED, code};

/// How long a list is kept, where the server does not tell of changes; and where it does.
const FRESH: Duration = Duration::from_secs(5);
const FRESH_WHERE_TOLD: Duration = Duration::from_mins(5);

/// Another server's tools.
pub struct Remote {
    connection: Connection,
    keep: Arc<dyn Keep>,
    known: Arc<Known>,
}

/// What is known of its tools.
#[derive(Default)]
struct Known {
    list: Mutex<Option<Snapshot>>,
    /// How often it was heard that something changed.
    changes: AtomicU64,
}

#[derive(Clone)]
struct Snapshot {
    tools: Arc<Vec<Arc<Entry>>>,
    dropped: Arc<Vec<Dropped>>,
    until: Instant,
}

/// A tool, and what is known of it.
struct Entry {
    card: Card,
    tool: Tool,
}

impl Entry {
    /// The one place where it is decided whether a tool is there for a permit.
    fn is_granted(&self, permit: &Permit) -> bool {
        self.card.access <= permit.access()
    }
}

/// Hears of changes.
struct Ear {
    known: Weak<Known>,
    can: Capabilities,
}

impl Delegate for Ear {
    fn can(&self) -> Capabilities {
        self.can
    }

    fn told(&self, method: &str, _: Option<&RawValue>) {
        if method == "notifications/tools/list_changed"
            && let Some(known) = self.known.upgrade()
        {
            let mut list = known.list.lock();
            known.changes.fetch_add(1, Ordering::Relaxed);
            *list = None;
        }
    }
}

impl Remote {
    /// The tools of the server at `target`. What does not fit a reply goes to `keep`. A legacy server is told once
    /// what can be asked: `can` says what callers usually can.
    pub fn new(target: Target, options: Options, can: Capabilities, keep: Arc<dyn Keep>) -> Self {
        let known = Arc::<Known>::default();
        let ear = Arc::new(Ear {
            known: Arc::downgrade(&known),
            can,
        });
        Self {
            connection: Connection::new(target, options, ear),
            keep,
            known,
        }
    }

    /// The way to it.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The tools that were left out of the list, and why.
    pub async fn dropped(&self) -> Result<Arc<Vec<Dropped>>, Fault> {
        Ok(self.snapshot(None).await?.dropped)
    }

    async fn snapshot(&self, deadline: Option<Instant>) -> Result<Snapshot, Fault> {
        let known = self.known.list.lock().clone();
        if let Some(known) = known.filter(|known| known.until > Instant::now()) {
            return Ok(known);
        }
        Box::pin(self.refreshed(deadline)).await
    }

    async fn refreshed(&self, deadline: Option<Instant>) -> Result<Snapshot, Fault> {
        let changes = self.known.changes.load(Ordering::Relaxed);
        let how = How {
            deadline,
            ..How::default()
        };
        let tools = self.connection.tools(&how).await;
        let tools = tools.map_err(|error| error.harmless())?;
        let told = self.connection.agreement().is_some_and(|agreed| {
            !agreed.version.is_modern() && agreed.capabilities["tools"]["listChanged"] == true
        });
        let own = tools.ttl_ms.map(Duration::from_millis).unwrap_or_default();
        let fresh = if told {
            FRESH_WHERE_TOLD
        } else {
            own.clamp(FRESH, FRESH_WHERE_TOLD)
        };
        let entry = |tool: Tool| {
            Arc::new(Entry {
                card: tool.card(),
                tool,
            })
        };
        let entries = tools.tools.into_iter().map(entry);
        let snapshot = Snapshot {
            tools: Arc::new(entries.collect()),
            dropped: Arc::new(tools.dropped),
            until: Instant::now() + fresh,
        };
        let mut list = self.known.list.lock();
        // What changed while it was asked for may not be in it.
        if self.known.changes.load(Ordering::Relaxed) == changes {
            *list = Some(snapshot.clone());
        }
        drop(list);
        Ok(snapshot)
    }

    /// A tool that the permit may use. A name that is not known may have come since we looked.
    async fn find(
        &self,
        permit: &Permit,
        name: &str,
        deadline: Option<Instant>,
    ) -> Result<Arc<Entry>, Fault> {
        let named = |snapshot: &Snapshot| {
            let mut tools = snapshot.tools.iter();
            tools.find(|entry| &*entry.card.name == name).cloned()
        };
        let mut snapshot = self.snapshot(deadline).await?;
        let mut found = named(&snapshot);
        if found.is_none() {
            snapshot = Box::pin(self.refreshed(deadline)).await?;
            found = named(&snapshot);
        }
        found
            .filter(|entry| entry.is_granted(permit))
            .ok_or_else(|| {
                let granted = snapshot
                    .tools
                    .iter()
                    .filter(|entry| entry.is_granted(permit));
                unknown_tool(name, granted.map(|entry| &*entry.card.name))
            })
    }

    async fn answer(&self, call: &Call, name: &str, arguments: &RawValue) -> Result<Reply, Fault> {
        let deadline = call.deadline.map(Instant::from_std);
        let entry = self.find(&call.permit, name, deadline).await?;
        let how = How {
            deadline,
            delegate: Some(Arc::new(ForPeer::new(call.peer.clone()))),
            ..How::default()
        };
        let answer = self
            .connection
            .call(&entry.tool, arguments, how)
            .await
            .map_err(Error::into_fault)?;
        Reply::relay(answer.given()?, call, self.keep.clone()).await
    }
}

impl Tool {
    /// What is known of it without trusting it: what it says of itself goes along as it came.
    pub fn card(&self) -> Card {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Says {
            title: Option<String>,
            description: Option<String>,
            output_schema: Option<Value>,
            annotations: Value,
            execution: Value,
        }
        let says: Says = serde_json::from_str(self.listed.get()).unwrap_or_default();
        let hint = |name: &str, otherwise| says.annotations[name].as_bool().unwrap_or(otherwise);
        let hints = Hints {
            read_only: hint("readOnlyHint", false),
            destructive: hint("destructiveHint", true),
            idempotent: hint("idempotentHint", false),
            open_world: hint("openWorldHint", true),
        };
        Card {
            name: self.name.clone(),
            title: says.title.unwrap_or_else(|| self.name.to_string()).into(),
            description: says.description.unwrap_or_default().into(),
            icon: None,
            input_schema: self.input_schema.clone(),
            output_schema: says.output_schema.map(Arc::new),
            hints,
            // What a tool says of itself is no reason to trust it.
            access: Access::Write,
            tasks: match says.execution["taskSupport"].as_str() {
                // Followed here; to our own callers it is a call like any other.
                Some("required" | "optional") => TaskUse::Optional,
                _ => TaskUse::Never,
            },
            listed: Some(self.listed.clone()),
        }
    }
}

impl ToolSource for Remote {
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<Card>, Fault>> {
        Box::pin(async move {
            let snapshot = self.snapshot(None).await?;
            let granted = snapshot
                .tools
                .iter()
                .filter(|entry| entry.is_granted(permit));
            Ok(granted.map(|entry| entry.card.clone()).collect())
        })
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> Pending<'a, Result<Card, Fault>> {
        Box::pin(async move { Ok(self.find(permit, name, None).await?.card.clone()) })
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
                Err(fault) => Reply::failed(&fault, Face::Rung, call),
            }
        })
    }
}

/// Whoever called, as the server's counterpart: what the server tells and asks goes to them, and they can what they can.
/// One for each request.
pub struct ForPeer {
    peer: Arc<dyn Peer>,
    may_ask: bool,
    asked: AtomicU64,
}

impl ForPeer {
    /// The counterpart for a request on behalf of `peer`, whose run is held from now on while they are asked.
    pub fn new(peer: Arc<dyn Peer>) -> Self {
        // Where a question would begin the run anew, asking would make the request twice.
        peer.hold();
        Self {
            may_ask: peer.holds(),
            peer,
            asked: AtomicU64::new(0),
        }
    }
}

impl Delegate for ForPeer {
    fn can(&self) -> Capabilities {
        let can = |ask| self.may_ask && self.peer.can(ask);
        Capabilities {
            form: can(Ask::Form),
            visit: can(Ask::Visit),
            sample: can(Ask::Sample),
            roots: can(Ask::Roots),
            tasks: true,
        }
    }

    fn wants_progress(&self) -> bool {
        self.peer.wants_progress()
    }

    fn log_level(&self) -> Option<Level> {
        self.peer.log_level()
    }

    fn conversation(&self) -> Option<Conversation> {
        self.peer.conversation()
    }

    fn told(&self, method: &str, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct OfProgress {
            progress: serde_json::Number,
            total: Option<serde_json::Number>,
            message: Option<String>,
        }
        #[derive(Deserialize)]
        struct OfLog {
            level: Level,
            #[serde(default)]
            logger: String,
            #[serde(default)]
            data: Value,
        }
        let params = params.map_or("{}", RawValue::get);
        match method {
            "notifications/progress" => {
                if let Ok(of) = serde_json::from_str::<OfProgress>(params) {
                    let (done, total, message) = (of.progress, of.total, of.message);
                    self.peer.progress(Progress {
                        done,
                        total,
                        message,
                    });
                }
            }
            "notifications/message" => {
                if let Ok(of) = serde_json::from_str::<OfLog>(params) {
                    self.peer.log(of.level, &of.logger, &of.data);
                }
            }
            _ => {}
        }
    }

    fn ask<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> Pending<'a, Result<Box<RawValue>, Unanswered>> {
        Box::pin(async move {
            let mut params: Value = params
                .and_then(|params| serde_json::from_str(params.get()).ok())
                .unwrap_or_else(|| json!({}));
            // A task of the server's is none that the caller knows.
            if let Some(meta) = params.get_mut("_meta").and_then(Value::as_object_mut) {
                meta.shift_remove(RELATED);
            }
            let ask = match method {
                "elicitation/create" if params["mode"] == "url" => Ask::Visit,
                "elicitation/create" => Ask::Form,
                "sampling/createMessage" => Ask::Sample,
                "roots/list" => Ask::Roots,
                _ => return Err(unanswered(method)),
            };
            if !self.may_ask || !self.peer.can(ask) {
                return Err(unanswered(method));
            }
            // No two questions of a request have one name.
            let key = format!("asked_{}", self.asked.fetch_add(1, Ordering::Relaxed) + 1);
            let question = vec![(key.clone(), Question { ask, params })];
            let answers = self.peer.ask(question).await.map_err(|fault| Unanswered {
                code: code::INTERNAL,
                message: fault.to_string(),
            })?;
            let answer = answers.get(&key).cloned().unwrap_or_default();
            serde_json::value::to_raw_value(&answer).map_err(|_| unanswered(method))
        })
    }
}

fn unanswered(method: &str) -> Unanswered {
    Unanswered {
        code: code::METHOD_NOT_FOUND,
        message: format!("{method} is not answered here"),
    }
}
