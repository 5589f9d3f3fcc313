//! A conversation of the legacy era: what `initialize` agreed on, and what has been said since.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rung_auth::Permit;
use rung_tool::Level;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::client::Capabilities;
use crate::envelope::Id;
use crate::refusal::{Refusal, Result};
use crate::version::Version;

/// Addresses that one session may listen to.
const MAX_SUBSCRIPTIONS: usize = 1_000;

/// What a client answered: its result, or the message of its error.
pub(crate) type Answered = std::result::Result<Value, String>;

/// One conversation.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) permit: Permit,
    pub(crate) version: Version,
    pub(crate) capabilities: Capabilities,
    log_level: Mutex<Level>,
    subscriptions: Mutex<HashSet<String>>,
    /// What we asked and have no answer to.
    asked: Mutex<HashMap<Id, oneshot::Sender<Answered>>>,
    next_ask: AtomicU64,
}

impl Session {
    pub(crate) fn new(permit: Permit, version: Version, capabilities: Capabilities) -> Arc<Self> {
        Arc::new(Self {
            permit,
            version,
            capabilities,
            log_level: Mutex::new(Level::Info),
            subscriptions: Mutex::default(),
            asked: Mutex::default(),
            next_ask: AtomicU64::new(1),
        })
    }

    pub(crate) fn log_level(&self) -> Level {
        *self.log_level.lock()
    }

    pub(crate) fn set_log_level(&self, level: Level) {
        *self.log_level.lock() = level;
    }

    pub(crate) fn subscribe(&self, uri: String) -> Result<()> {
        let mut subscriptions = self.subscriptions.lock();
        if subscriptions.len() >= MAX_SUBSCRIPTIONS && !subscriptions.contains(&uri) {
            let why = format!("a session listens to {MAX_SUBSCRIPTIONS} resources at most");
            return Err(Refusal::params(why));
        }
        subscriptions.insert(uri);
        Ok(())
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        self.subscriptions.lock().remove(uri);
    }

    pub(crate) fn listens_to(&self, uri: &str) -> bool {
        self.subscriptions.lock().contains(uri)
    }

    /// Notes that we ask something, under an id that no other question of this session has.
    pub(crate) fn ask(&self) -> (Id, oneshot::Receiver<Answered>) {
        let id = Id::from(self.next_ask.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        self.asked.lock().insert(id.clone(), sender);
        (id, receiver)
    }

    /// Takes the answer to a question of ours. An answer to nothing is passed over.
    pub(crate) fn take_answer(&self, id: &Id, answer: Answered) {
        if let Some(sender) = self.asked.lock().remove(id) {
            let _nobody_waits = sender.send(answer);
        }
    }

    /// Nobody will answer any more.
    pub(crate) fn forget_all(&self) {
        self.asked.lock().clear();
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn forget(&self, id: &Id) {
        self.asked.lock().remove(id);
    }
}

/// The requests of one connection that have no answer yet.
#[derive(Debug, Default)]
pub(crate) struct Running {
    requests: Mutex<HashMap<Id, Option<AbortHandle>>>,
    ended: Condvar,
}

impl Running {
    /// Notes that a request is under way. Its id must not be taken by another one that is.
    pub(crate) fn begin(&self, id: &Id) -> Result<()> {
        let mut running = self.requests.lock();
        if running.contains_key(id) {
            return Err(Refusal::request(format!(
                "a request with id {id} is still under way"
            )));
        }
        running.insert(id.clone(), None);
        Ok(())
    }

    /// Notes how a request can be stopped, unless it has ended by now.
    pub(crate) fn can_stop(&self, id: &Id, handle: AbortHandle) {
        if let Some(slot) = self.requests.lock().get_mut(id) {
            *slot = Some(handle);
        }
    }

    /// Notes that a request has ended. Whether it was under way until now.
    pub(crate) fn end(&self, id: &Id) -> bool {
        let ended = self.requests.lock().remove(id).is_some();
        self.ended.notify_all();
        ended
    }

    /// Stops a request. It gets no answer.
    pub(crate) fn cancel(&self, id: &Id) {
        if let Some(Some(handle)) = self.requests.lock().remove(id) {
            handle.abort();
        }
        self.ended.notify_all();
    }

    /// Stops everything.
    pub(crate) fn cancel_all(&self) {
        let running = std::mem::take(&mut *self.requests.lock());
        for handle in running.into_values().flatten() {
            handle.abort();
        }
    }

    /// Whether this one is under way.
    pub(crate) fn is_running(&self, id: &Id) -> bool {
        self.requests.lock().contains_key(id)
    }

    /// Whether anything is under way.
    pub(crate) fn is_busy(&self) -> bool {
        !self.requests.lock().is_empty()
    }

    /// Waits until nothing is, for so long at most.
    pub(crate) fn wait_until_idle(&self, at_most: Duration) {
        let until = Instant::now() + at_most;
        let mut running = self.requests.lock();
        while !running.is_empty() && !self.ended.wait_until(&mut running, until).timed_out() {}
    }
}
