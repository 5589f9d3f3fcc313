//! A downstream server's tools as a [`ToolSource`].
//!
//! Its listings and results are relayed unchanged. A result that does not fit a reply is stored, and the ladder leads to it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rung_auth::{Access, Permit};
use rung_fault::{Face, Fault};
use rung_tool::{
    BoxFuture, Call, Card, Conversation, Hints, LogLevel, Peer, Progress, Question, QuestionKind,
    Reply, ResultSink, TaskUse, ToolSource, unknown_tool,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::Capabilities;
use crate::connect::{
    Delegate, DelegateError, DownstreamTool, Error, Options, RejectedItem, RequestOptions,
    ServerConnection, ServerTarget,
};
use crate::envelope::{RELATED_TASK, code};

/// Minimum and maximum time for which a tool list is cached. A server that reports changes gets the maximum.
const MIN_LIST_TTL: Duration = Duration::from_secs(5);
const MAX_LIST_TTL: Duration = Duration::from_mins(5);

/// The tools of a downstream server.
pub struct DownstreamToolSource {
    connection: ServerConnection,
    keep: Arc<dyn ResultSink>,
    cache: Arc<ToolListCache>,
}

#[derive(Default)]
struct ToolListCache {
    list: Mutex<Option<CachedToolList>>,
    /// Number of change notifications received.
    change_count: AtomicU64,
}

#[derive(Clone)]
struct CachedToolList {
    tools: Arc<Vec<Arc<CachedTool>>>,
    dropped: Arc<Vec<RejectedItem>>,
    until: Instant,
}

struct CachedTool {
    card: Card,
    tool: DownstreamTool,
}

impl CachedTool {
    /// Returns true if the permit includes the tool. No other code decides this.
    fn is_granted(&self, permit: &Permit) -> bool {
        self.card.access <= permit.access()
    }
}

/// Drops the cached list when the server reports a change.
struct ListChangeListener {
    cache: Weak<ToolListCache>,
    can: Capabilities,
}

impl Delegate for ListChangeListener {
    fn capabilities(&self) -> Capabilities {
        self.can
    }

    fn on_notification(&self, method: &str, _: Option<&RawValue>) {
        if method == "notifications/tools/list_changed"
            && let Some(known) = self.cache.upgrade()
        {
            let mut list = known.list.lock();
            known.change_count.fetch_add(1, Ordering::Relaxed);
            *list = None;
        }
    }
}

impl DownstreamToolSource {
    /// Creates a source for the server at `target`. Results that do not fit a reply go to `keep`. A legacy server learns
    /// the client's capabilities only once: `can` names those that callers usually have.
    pub fn new(
        target: ServerTarget,
        options: Options,
        can: Capabilities,
        keep: Arc<dyn ResultSink>,
    ) -> Self {
        let cache = Arc::<ToolListCache>::default();
        let ear = Arc::new(ListChangeListener {
            cache: Arc::downgrade(&cache),
            can,
        });
        Self {
            connection: ServerConnection::new(target, options, ear),
            keep,
            cache,
        }
    }

    pub fn connection(&self) -> &ServerConnection {
        &self.connection
    }

    /// Returns the tools that were left out of the list, with the reasons.
    pub async fn dropped_tools(&self) -> Result<Arc<Vec<RejectedItem>>, Fault> {
        Ok(self.current_list(None).await?.dropped)
    }

    async fn current_list(&self, deadline: Option<Instant>) -> Result<CachedToolList, Fault> {
        let known = self.cache.list.lock().clone();
        if let Some(known) = known.filter(|known| known.until > Instant::now()) {
            return Ok(known);
        }
        Box::pin(self.fetch_list(deadline)).await
    }

    async fn fetch_list(&self, deadline: Option<Instant>) -> Result<CachedToolList, Fault> {
        let changes = self.cache.change_count.load(Ordering::Relaxed);
        let how = RequestOptions {
            deadline,
            ..RequestOptions::default()
        };
        let tools = self.connection.tools(&how).await;
        let tools = tools.map_err(|error| error.retryable_fault())?;
        let told = self.connection.handshake().is_some_and(|agreed| {
            !agreed.version.is_modern() && agreed.capabilities["tools"]["listChanged"] == true
        });
        let own = tools.ttl_ms.map(Duration::from_millis).unwrap_or_default();
        let fresh = if told {
            MAX_LIST_TTL
        } else {
            own.clamp(MIN_LIST_TTL, MAX_LIST_TTL)
        };
        let entry = |tool: DownstreamTool| {
            Arc::new(CachedTool {
                card: tool.card(),
                tool,
            })
        };
        let entries = tools.tools.into_iter().map(entry);
        let snapshot = CachedToolList {
            tools: Arc::new(entries.collect()),
            dropped: Arc::new(tools.rejected),
            until: Instant::now() + fresh,
        };
        let mut list = self.cache.list.lock();
        // The list may lack a change that came while it was fetched.
        if self.cache.change_count.load(Ordering::Relaxed) == changes {
            *list = Some(snapshot.clone());
        }
        drop(list);
        Ok(snapshot)
    }

    /// Returns a tool that the permit includes. An unknown name may be new, so the list is fetched again for it.
    async fn find_tool(
        &self,
        permit: &Permit,
        name: &str,
        deadline: Option<Instant>,
    ) -> Result<Arc<CachedTool>, Fault> {
        let named = |snapshot: &CachedToolList| {
            let mut tools = snapshot.tools.iter();
            tools.find(|entry| &*entry.card.name == name).cloned()
        };
        let mut snapshot = self.current_list(deadline).await?;
        let mut found = named(&snapshot);
        if found.is_none() {
            snapshot = Box::pin(self.fetch_list(deadline)).await?;
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

    async fn relay_call(
        &self,
        call: &Call,
        name: &str,
        arguments: &RawValue,
    ) -> Result<Reply, Fault> {
        let deadline = call.deadline.map(Instant::from_std);
        let entry = self.find_tool(&call.permit, name, deadline).await?;
        let how = RequestOptions {
            deadline,
            delegate: Some(Arc::new(PeerDelegate::new(call.peer.clone()))),
            ..RequestOptions::default()
        };
        let answer = self
            .connection
            .call(&entry.tool, arguments, how)
            .await
            .map_err(Error::into_fault)?;
        Reply::relay(answer.into_relayed()?.into(), call, self.keep.clone()).await
    }
}

impl DownstreamTool {
    /// Returns the card of the untrusted tool. The server's own listing is included unchanged.
    pub fn card(&self) -> Card {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct ToolListing {
            title: Option<String>,
            description: Option<String>,
            output_schema: Option<Value>,
            annotations: Value,
            execution: Value,
        }
        let says: ToolListing = serde_json::from_str(self.definition.get()).unwrap_or_default();
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
            // The server's own hints are no reason to grant access.
            access: Access::Write,
            tasks: match says.execution["taskSupport"].as_str() {
                // The downstream task is followed here; a caller may make an ordinary call.
                Some("required" | "optional") => TaskUse::Optional,
                _ => TaskUse::Never,
            },
            is_entry: false,
            search_hint: "",
            listed: Some(self.definition.clone()),
        }
    }
}

impl ToolSource for DownstreamToolSource {
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<Card>, Fault>> {
        Box::pin(async move {
            let snapshot = self.current_list(None).await?;
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
    ) -> BoxFuture<'a, Result<Card, Fault>> {
        Box::pin(async move { Ok(self.find_tool(permit, name, None).await?.card.clone()) })
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            match self.relay_call(call, name, arguments).await {
                Ok(reply) => reply,
                Err(fault) => Reply::failed(&fault, Face::Rung, call),
            }
        })
    }
}

/// Relays a downstream server's notifications and questions to the caller of one request, with the caller's
/// capabilities.
pub struct PeerDelegate {
    peer: Arc<dyn Peer>,
    may_ask: bool,
    question_count: AtomicU64,
}

impl PeerDelegate {
    /// Creates the delegate of a request on behalf of `peer`. From now on the peer's call is suspended when it asks.
    pub fn new(peer: Arc<dyn Peer>) -> Self {
        // If a question made the call run again, the request would be sent twice.
        peer.prevent_restart();
        Self {
            may_ask: peer.can_suspend(),
            peer,
            question_count: AtomicU64::new(0),
        }
    }
}

impl Delegate for PeerDelegate {
    fn capabilities(&self) -> Capabilities {
        let can = |ask| self.may_ask && self.peer.can_answer(ask);
        Capabilities {
            form_elicitation: can(QuestionKind::Form),
            url_elicitation: can(QuestionKind::Visit),
            sampling: can(QuestionKind::Sample),
            roots: can(QuestionKind::Roots),
            tasks: true,
        }
    }

    fn wants_progress(&self) -> bool {
        self.peer.wants_progress()
    }

    fn log_level(&self) -> Option<LogLevel> {
        self.peer.log_level()
    }

    fn conversation(&self) -> Option<Conversation> {
        self.peer.conversation()
    }

    fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct ProgressParams {
            progress: serde_json::Number,
            total: Option<serde_json::Number>,
            message: Option<String>,
        }
        #[derive(Deserialize)]
        struct LogParams {
            level: LogLevel,
            #[serde(default)]
            logger: String,
            #[serde(default)]
            data: Value,
        }
        let params = params.map_or("{}", RawValue::get);
        match method {
            "notifications/progress" => {
                if let Ok(of) = serde_json::from_str::<ProgressParams>(params) {
                    let (done, total, message) = (of.progress, of.total, of.message);
                    self.peer.progress(Progress {
                        done,
                        total,
                        message,
                    });
                }
            }
            "notifications/message" => {
                if let Ok(of) = serde_json::from_str::<LogParams>(params) {
                    self.peer.log(of.level, &of.logger, &of.data);
                }
            }
            _ => {}
        }
    }

    fn on_request<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, DelegateError>> {
        Box::pin(async move {
            let mut params: Value = params
                .and_then(|params| serde_json::from_str(params.get()).ok())
                .unwrap_or_else(|| json!({}));
            // The caller does not know the downstream server's tasks.
            if let Some(meta) = params.get_mut("_meta").and_then(Value::as_object_mut) {
                meta.shift_remove(RELATED_TASK);
            }
            let ask = match method {
                "elicitation/create" if params["mode"] == "url" => QuestionKind::Visit,
                "elicitation/create" => QuestionKind::Form,
                "sampling/createMessage" => QuestionKind::Sample,
                "roots/list" => QuestionKind::Roots,
                _ => return Err(unsupported_question(method)),
            };
            if !self.may_ask || !self.peer.can_answer(ask) {
                return Err(unsupported_question(method));
            }
            // Each question of a request has a key of its own.
            let key = format!(
                "asked_{}",
                self.question_count.fetch_add(1, Ordering::Relaxed) + 1
            );
            let question = vec![(key.clone(), Question { ask, params })];
            let answers = self
                .peer
                .ask(question)
                .await
                .map_err(|fault| DelegateError {
                    code: code::INTERNAL,
                    message: fault.to_string(),
                })?;
            let answer = answers.get(&key).cloned().unwrap_or_default();
            serde_json::value::to_raw_value(&answer).map_err(|_| unsupported_question(method))
        })
    }
}

fn unsupported_question(method: &str) -> DelegateError {
    DelegateError {
        code: code::METHOD_NOT_FOUND,
        message: format!("this client does not support {method}"),
    }
}
