//! Legacy sessions: what `initialize` agreed on, subscriptions and open questions. And, for all versions, the requests
//! of one connection that have no answer yet.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rung_auth::Permit;
use rung_fault::Fault;
use rung_tool::{BoxFuture, Change, Conversation, LogLevel, ResourceSource, ResourceSubscriber};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::client::{Capabilities, ClientContext};
use crate::client_profile::ClientProfile;
use crate::envelope::RequestId;
use crate::methods::change_notification;
use crate::protocol_error::{ProtocolError, Result};
use crate::server::McpServer;
use crate::version::ProtocolVersion;

/// Resources that one session may subscribe to.
const MAX_SUBSCRIPTIONS: usize = 1_000;
/// Requests of one connection that may run at once.
const MAX_RUNNING: usize = 1_000;

/// A client's answer: its result, or the message of its error.
pub(crate) type AnswerResult = std::result::Result<Value, String>;

/// Initialization phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// `initialize` was answered.
    Initializing,
    /// `notifications/initialized` was received.
    Ready,
}

impl Phase {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Initializing => "initializing",
            Self::Ready => "ready",
        }
    }
}

#[derive(Debug)]
pub(crate) struct LegacySession {
    pub(crate) permit: Permit,
    pub(crate) version: ProtocolVersion,
    pub(crate) capabilities: Capabilities,
    pub(crate) profile: &'static ClientProfile,
    pub(crate) conversation: Conversation,
    ready: AtomicBool,
    log_level: Mutex<LogLevel>,
    subscriptions: Mutex<HashMap<String, ResourceSubscription>>,
    /// Questions without an answer yet; `None` once the session is closed.
    open_questions: Mutex<Option<HashMap<RequestId, oneshot::Sender<AnswerResult>>>>,
    next_question: AtomicU64,
}

impl LegacySession {
    pub(crate) fn new(
        permit: Permit,
        version: ProtocolVersion,
        capabilities: Capabilities,
        profile: &'static ClientProfile,
    ) -> Arc<Self> {
        Arc::new(Self {
            permit,
            version,
            capabilities,
            profile,
            conversation: Conversation::start(),
            ready: AtomicBool::new(false),
            log_level: Mutex::new(LogLevel::Info),
            subscriptions: Mutex::default(),
            open_questions: Mutex::new(Some(HashMap::new())),
            next_question: AtomicU64::new(1),
        })
    }

    pub(crate) fn phase(&self) -> Phase {
        if self.ready.load(Ordering::Relaxed) {
            Phase::Ready
        } else {
            Phase::Initializing
        }
    }

    /// Marks the client as ready.
    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    pub(crate) fn log_level(&self) -> LogLevel {
        *self.log_level.lock()
    }

    pub(crate) fn set_log_level(&self, level: LogLevel) {
        *self.log_level.lock() = level;
    }

    /// Subscribes to a resource. Returns the future that starts the subscription, or `None` if there is one already.
    pub(crate) fn subscribe(
        &self,
        mut watch: ResourceSubscription,
    ) -> Result<Option<SubscriptionReport>> {
        let mut subscriptions = self.subscriptions.lock();
        if subscriptions.contains_key(&watch.uri) {
            return Ok(None);
        }
        if subscriptions.len() >= MAX_SUBSCRIPTIONS {
            let why = format!("a session subscribes to at most {MAX_SUBSCRIPTIONS} resources");
            return Err(ProtocolError::invalid_params(why));
        }
        let beginning = watch.start();
        subscriptions.insert(watch.uri.clone(), watch);
        Ok(Some(beginning))
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        // Dropped without the lock: the drop reports the end of the subscription.
        let _ended = self.subscriptions.lock().remove(uri);
    }

    /// Returns the notifications of a change for this client: of lists always, of resources if subscribed.
    pub(crate) fn messages_for(&self, change: &Change) -> Vec<Vec<u8>> {
        let subscriptions = self.subscriptions.lock();
        let each = change.for_subscriptions(subscriptions.keys());
        let wanted = each.into_iter().filter(|change| match change {
            Change::Resource(uri) => subscriptions.contains_key(uri),
            _ => true,
        });
        wanted
            .map(|change| change_notification(&change, None))
            .collect()
    }

    /// Registers a question to the client, under an id that is unique in this session.
    pub(crate) fn register_question(&self) -> (RequestId, oneshot::Receiver<AnswerResult>) {
        let id = RequestId::from(self.next_question.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        // In a closed session the sender is dropped here, and the question fails at once.
        if let Some(asked) = self.open_questions.lock().as_mut() {
            asked.insert(id.clone(), sender);
        }
        (id, receiver)
    }

    /// Delivers the client's answer to a question. An answer with an unknown id is ignored.
    pub(crate) fn deliver_answer(&self, id: &RequestId, outcome: Result<&RawValue, &RawValue>) {
        let sender = self
            .open_questions
            .lock()
            .as_mut()
            .and_then(|asked| asked.remove(id));
        if let Some(sender) = sender {
            let _nobody_waits = sender.send(parse_answer(outcome));
        }
    }

    /// Drops a question whose answer is no longer needed.
    pub(crate) fn drop_question(&self, id: &RequestId) {
        if let Some(asked) = self.open_questions.lock().as_mut() {
            asked.remove(id);
        }
    }

    /// Closes the session: open questions fail, and so do later ones.
    pub(crate) fn close(&self) {
        *self.open_questions.lock() = None;
        self.conversation.end();
        let _ended = std::mem::take(&mut *self.subscriptions.lock());
    }
}

impl Drop for LegacySession {
    fn drop(&mut self) {
        self.conversation.end();
    }
}

/// A client's subscription to a resource, which is reported to the resource source. Dropping a started subscription
/// reports its end.
pub(crate) struct ResourceSubscription {
    resources: Arc<dyn ResourceSource>,
    watcher: ResourceSubscriber,
    uri: String,
    is_started: bool,
    runtime: Handle,
}

/// The report of a subscription's start or end to the resource source.
pub(crate) type SubscriptionReport = BoxFuture<'static, Result<(), Fault>>;

impl ResourceSubscription {
    /// Creates a subscription of `client`, which is not reported until it is started.
    pub(crate) fn new(server: &McpServer, client: &ClientContext, uri: String) -> Self {
        Self {
            resources: server.0.config.resources.clone(),
            watcher: ResourceSubscriber {
                permit: client.permit.clone(),
                conversation: client.conversation.clone(),
            },
            uri,
            is_started: false,
            runtime: Handle::current(),
        }
    }

    pub(crate) fn start(&mut self) -> SubscriptionReport {
        self.is_started = true;
        self.report(true)
    }

    fn report(&self, on: bool) -> SubscriptionReport {
        let (resources, watcher) = (self.resources.clone(), self.watcher.clone());
        let uri = self.uri.clone();
        Box::pin(async move { resources.watch(&watcher, &uri, on).await })
    }
}

impl std::fmt::Debug for ResourceSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch({})", self.uri)
    }
}

impl Drop for ResourceSubscription {
    fn drop(&mut self) {
        if !self.is_started {
            return;
        }
        let ending = self.report(false);
        self.runtime.spawn(async move {
            if let Err(fault) = ending.await {
                tracing::debug!(%fault, "cannot report the end of a subscription");
            }
        });
    }
}

/// Parses a client's answer to a question.
fn parse_answer(outcome: Result<&RawValue, &RawValue>) -> AnswerResult {
    match outcome {
        Ok(result) => serde_json::from_str(result.get()).map_err(|error| error.to_string()),
        Err(error) => {
            let error: Value = serde_json::from_str(error.get()).unwrap_or_default();
            let message = error["message"].as_str();
            Err(message.unwrap_or("no reason given").to_owned())
        }
    }
}

/// Returns the request id of a `notifications/cancelled`.
pub(crate) fn parse_cancelled(method: &str, params: Option<&RawValue>) -> Option<RequestId> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        #[serde(borrow)]
        request_id: &'a RawValue,
    }
    let params = params.filter(|_| method == "notifications/cancelled")?;
    let params: Params<'_> = serde_json::from_str(params.get()).ok()?;
    RequestId::parse(params.request_id)
}

/// The requests of one connection that have no answer yet.
#[derive(Debug, Default)]
pub(crate) struct RunningRequests {
    requests: Mutex<HashMap<RequestId, RunningRequest>>,
    next_number: AtomicU64,
    change: Condvar,
}

#[derive(Debug)]
struct RunningRequest {
    /// Distinguishes the request from an earlier one that had the same id and was cancelled.
    number: u64,
    stop: Option<AbortHandle>,
}

impl RunningRequests {
    /// Registers a running request and returns its number. No other running request may have the same id.
    pub(crate) fn register(&self, id: &RequestId) -> Result<u64> {
        let mut requests = self.requests.lock();
        if requests.contains_key(id) {
            return Err(ProtocolError::invalid_request(format!(
                "a request with id {id} is still active"
            )));
        }
        if requests.len() >= MAX_RUNNING {
            return Err(ProtocolError::busy(format!(
                "{MAX_RUNNING} requests are active: wait for a response"
            )));
        }
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        requests.insert(id.clone(), RunningRequest { number, stop: None });
        Ok(number)
    }

    /// Stores the abort handle of a request. A request that was cancelled meanwhile is aborted here.
    pub(crate) fn set_abort_handle(&self, id: &RequestId, number: u64, stop: AbortHandle) {
        match self.requests.lock().get_mut(id) {
            Some(request) if request.number == number => request.stop = Some(stop),
            _ => stop.abort(),
        }
    }

    /// Ends a request with `last_word`, unless it was cancelled. A client that has the response may reuse the id, so both
    /// happen under one lock, and `last_word` must not block.
    pub(crate) fn finish(&self, id: &RequestId, number: u64, last_word: impl FnOnce()) {
        let mut requests = self.requests.lock();
        if requests
            .get(id)
            .is_some_and(|request| request.number == number)
        {
            last_word();
            requests.remove(id);
        }
        drop(requests);
        self.change.notify_all();
    }

    /// Aborts a request. It gets no answer.
    pub(crate) fn cancel(&self, id: &RequestId) {
        if let Some(RunningRequest {
            stop: Some(stop), ..
        }) = self.requests.lock().remove(id)
        {
            stop.abort();
        }
        self.change.notify_all();
    }

    /// Aborts all requests.
    pub(crate) fn cancel_all(&self) {
        let requests = std::mem::take(&mut *self.requests.lock());
        for stop in requests.into_values().filter_map(|request| request.stop) {
            stop.abort();
        }
        self.change.notify_all();
    }

    /// Returns true if a request is running.
    pub(crate) fn is_busy(&self) -> bool {
        !self.requests.lock().is_empty()
    }

    /// Blocks until no request is running, for `at_most`.
    pub(crate) fn wait_until_idle(&self, at_most: Duration) {
        let until = Instant::now() + at_most;
        let mut requests = self.requests.lock();
        while !requests.is_empty() && !self.change.wait_until(&mut requests, until).timed_out() {}
    }
}
