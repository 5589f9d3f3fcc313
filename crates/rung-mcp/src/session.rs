//! A conversation of the legacy era: what `initialize` agreed on, and what has been said since. And, of either era,
//! the requests of one connection that have no answer yet.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rung_auth::Permit;
use rung_fault::Fault;
use rung_tool::{Change, Conversation, Level, Pending, ResourceSource, Watcher};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::client::{Capabilities, Client};
use crate::envelope::Id;
use crate::methods::change_message;
use crate::refusal::{Refusal, Result};
use crate::server::Server;
use crate::version::Version;

/// Addresses that one session may listen to.
const MAX_SUBSCRIPTIONS: usize = 1_000;
/// Requests of one connection that may be under way at once.
const MAX_RUNNING: usize = 1_000;

/// What a client answered: its result, or the message of its error.
pub(crate) type Answered = std::result::Result<Value, String>;

/// How far a conversation is, once it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// `initialize` was answered.
    Initializing,
    /// The client said that it is ready.
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

/// One conversation.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) permit: Permit,
    pub(crate) version: Version,
    pub(crate) capabilities: Capabilities,
    pub(crate) conversation: Conversation,
    ready: AtomicBool,
    log_level: Mutex<Level>,
    subscriptions: Mutex<HashMap<String, Watch>>,
    /// What we asked and have no answer to; `None` once nobody will answer any more.
    asked: Mutex<Option<HashMap<Id, oneshot::Sender<Answered>>>>,
    next_ask: AtomicU64,
}

impl Session {
    pub(crate) fn new(permit: Permit, version: Version, capabilities: Capabilities) -> Arc<Self> {
        Arc::new(Self {
            permit,
            version,
            capabilities,
            conversation: Conversation::begin(),
            ready: AtomicBool::new(false),
            log_level: Mutex::new(Level::Info),
            subscriptions: Mutex::default(),
            asked: Mutex::new(Some(HashMap::new())),
            next_ask: AtomicU64::new(1),
        })
    }

    pub(crate) fn phase(&self) -> Phase {
        if self.ready.load(Ordering::Relaxed) {
            Phase::Ready
        } else {
            Phase::Initializing
        }
    }

    /// The client is ready.
    pub(crate) fn begin(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    pub(crate) fn log_level(&self) -> Level {
        *self.log_level.lock()
    }

    pub(crate) fn set_log_level(&self, level: Level) {
        *self.log_level.lock() = level;
    }

    /// Listens to a resource. What is yet to be done for it, if it is not listened to already.
    pub(crate) fn subscribe(&self, mut watch: Watch) -> Result<Option<Watching>> {
        let mut subscriptions = self.subscriptions.lock();
        if subscriptions.contains_key(&watch.uri) {
            return Ok(None);
        }
        if subscriptions.len() >= MAX_SUBSCRIPTIONS {
            let why = format!("a session listens to {MAX_SUBSCRIPTIONS} resources at most");
            return Err(Refusal::params(why));
        }
        let beginning = watch.begin();
        subscriptions.insert(watch.uri.clone(), watch);
        Ok(Some(beginning))
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        // Its end is told without the lock.
        let _ended = self.subscriptions.lock().remove(uri);
    }

    /// What this client is told of a change: of lists always, of a resource where it asked.
    pub(crate) fn told(&self, change: &Change) -> Vec<Vec<u8>> {
        let subscriptions = self.subscriptions.lock();
        let each = change.told_of(subscriptions.keys());
        let wanted = each.into_iter().filter(|change| match change {
            Change::Resource(uri) => subscriptions.contains_key(uri),
            _ => true,
        });
        wanted.map(|change| change_message(&change, None)).collect()
    }

    /// Notes that we ask something, under an id that no other question of this session has.
    pub(crate) fn ask(&self) -> (Id, oneshot::Receiver<Answered>) {
        let id = Id::from(self.next_ask.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        // Where nobody will answer, the sender is dropped here and the question fails at once.
        if let Some(asked) = self.asked.lock().as_mut() {
            asked.insert(id.clone(), sender);
        }
        (id, receiver)
    }

    /// Takes the answer to a question of ours. An answer to nothing is passed over.
    pub(crate) fn take_answer(&self, id: &Id, outcome: Result<&RawValue, &RawValue>) {
        let sender = self
            .asked
            .lock()
            .as_mut()
            .and_then(|asked| asked.remove(id));
        if let Some(sender) = sender {
            let _nobody_waits = sender.send(answer_of(outcome));
        }
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn forget(&self, id: &Id) {
        if let Some(asked) = self.asked.lock().as_mut() {
            asked.remove(id);
        }
    }

    /// Nobody will answer any more: what was asked fails, and so does what will be.
    pub(crate) fn hang_up(&self) {
        *self.asked.lock() = None;
        self.conversation.end();
        let _ended = std::mem::take(&mut *self.subscriptions.lock());
    }
}

/// However it ends, it is over.
impl Drop for Session {
    fn drop(&mut self) {
        self.conversation.end();
    }
}

/// Somebody's interest in a resource, told to where resources come from. Dropped after it was begun, it is told that it
/// has ended.
pub(crate) struct Watch {
    resources: Arc<dyn ResourceSource>,
    watcher: Watcher,
    uri: String,
    begun: bool,
    runtime: Handle,
}

/// What is yet to be done before a resource is listened to.
pub(crate) type Watching = Pending<'static, Result<(), Fault>>;

impl Watch {
    /// The interest of `client`, once it was begun.
    pub(crate) fn new(server: &Server, client: &Client, uri: String) -> Self {
        Self {
            resources: server.0.offer.resources.clone(),
            watcher: Watcher {
                permit: client.permit.clone(),
                conversation: client.conversation.clone(),
            },
            uri,
            begun: false,
            runtime: Handle::current(),
        }
    }

    pub(crate) fn begin(&mut self) -> Watching {
        self.begun = true;
        self.tell(true)
    }

    fn tell(&self, on: bool) -> Watching {
        let (resources, watcher) = (self.resources.clone(), self.watcher.clone());
        let uri = self.uri.clone();
        Box::pin(async move { resources.watch(&watcher, &uri, on).await })
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch({})", self.uri)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.begun {
            return;
        }
        let ending = self.tell(false);
        self.runtime.spawn(async move {
            if let Err(fault) = ending.await {
                tracing::debug!(%fault, "that nobody listens any more could not be told");
            }
        });
    }
}

/// What a client answered to a question of ours.
fn answer_of(outcome: Result<&RawValue, &RawValue>) -> Answered {
    match outcome {
        Ok(result) => serde_json::from_str(result.get()).map_err(|error| error.to_string()),
        Err(error) => {
            let error: Value = serde_json::from_str(error.get()).unwrap_or_default();
            let message = error["message"].as_str();
            Err(message.unwrap_or("no reason given").to_owned())
        }
    }
}

/// The request that a notification says is no longer wanted.
pub(crate) fn cancelled(method: &str, params: Option<&RawValue>) -> Option<Id> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        #[serde(borrow)]
        request_id: &'a RawValue,
    }
    let params = params.filter(|_| method == "notifications/cancelled")?;
    let params: Params<'_> = serde_json::from_str(params.get()).ok()?;
    Id::read(params.request_id)
}

/// The requests of one connection that have no answer yet.
#[derive(Debug, Default)]
pub(crate) struct Running {
    requests: Mutex<HashMap<Id, Request>>,
    begun: AtomicU64,
    ended: Condvar,
}

#[derive(Debug)]
struct Request {
    /// Tells it from an earlier request that had the same id and was cancelled.
    number: u64,
    stop: Option<AbortHandle>,
}

impl Running {
    /// Notes that a request is under way, and gives its number. Its id must not be taken by another one that is.
    pub(crate) fn begin(&self, id: &Id) -> Result<u64> {
        let mut requests = self.requests.lock();
        if requests.contains_key(id) {
            return Err(Refusal::request(format!(
                "a request with id {id} is still under way"
            )));
        }
        if requests.len() >= MAX_RUNNING {
            return Err(Refusal::busy(format!(
                "{MAX_RUNNING} requests are under way: wait for an answer"
            )));
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        requests.insert(id.clone(), Request { number, stop: None });
        Ok(number)
    }

    /// Notes how a request can be stopped. One that is not wanted any more is stopped here.
    pub(crate) fn can_stop(&self, id: &Id, number: u64, stop: AbortHandle) {
        match self.requests.lock().get_mut(id) {
            Some(request) if request.number == number => request.stop = Some(stop),
            _ => stop.abort(),
        }
    }

    /// Ends a request with its last word, unless it is not wanted any more. Whoever has heard the word may use the
    /// id again, so both happen at once; the word must not be waited for.
    pub(crate) fn end(&self, id: &Id, number: u64, last_word: impl FnOnce()) {
        let mut requests = self.requests.lock();
        if requests
            .get(id)
            .is_some_and(|request| request.number == number)
        {
            last_word();
            requests.remove(id);
        }
        drop(requests);
        self.ended.notify_all();
    }

    /// Stops a request. It gets no answer.
    pub(crate) fn cancel(&self, id: &Id) {
        if let Some(Request {
            stop: Some(stop), ..
        }) = self.requests.lock().remove(id)
        {
            stop.abort();
        }
        self.ended.notify_all();
    }

    /// Stops everything.
    pub(crate) fn cancel_all(&self) {
        let requests = std::mem::take(&mut *self.requests.lock());
        for stop in requests.into_values().filter_map(|request| request.stop) {
            stop.abort();
        }
        self.ended.notify_all();
    }

    /// Whether anything is under way.
    pub(crate) fn is_busy(&self) -> bool {
        !self.requests.lock().is_empty()
    }

    /// Waits until nothing is, for so long at most.
    pub(crate) fn wait_until_idle(&self, at_most: Duration) {
        let until = Instant::now() + at_most;
        let mut requests = self.requests.lock();
        while !requests.is_empty() && !self.ended.wait_until(&mut requests, until).timed_out() {}
    }
}
