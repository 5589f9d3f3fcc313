//! Active calls: the owner and state of each, and how one is cancelled without affecting any other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rung_auth::Permit;
use rung_tool::{Call, Conversation, WeakConversation};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Owner of a call or a task. Only the owner sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum CallOwner {
    /// Caller and grant of a permit.
    Client(String, String),
    /// A caller without a name of its own is identified by its conversation.
    Conversation(WeakConversation),
}

impl CallOwner {
    pub(crate) fn from_call(call: &Call) -> Self {
        Self::new(&call.permit, call.peer.conversation())
    }

    fn new(permit: &Permit, conversation: Option<Conversation>) -> Self {
        match conversation {
            Some(conversation) if permit.is_shared() => {
                Self::Conversation(conversation.downgrade())
            }
            _ => {
                let (caller, grant) = (permit.caller().as_str(), permit.grant().as_str());
                Self::Client(caller.to_owned(), grant.to_owned())
            }
        }
    }
}

/// A call without activity for this long is stalled.
const STALLED_AFTER: Duration = Duration::from_mins(2);

pub(crate) struct ActiveCall {
    pub(crate) number: u64,
    pub(crate) server: Arc<str>,
    pub(crate) tool_id: String,
    pub(crate) owner: CallOwner,
    pub(crate) started: Instant,
    pub(crate) started_ms: u64,
    pub(crate) timeout: Duration,
    /// The task whose end the call waits for.
    pub(crate) task_id: Option<String>,
    /// Time of the last message from the server about this call.
    last_activity: Mutex<Option<Instant>>,
    cancelled: Notify,
}

impl ActiveCall {
    pub(crate) fn id(&self) -> String {
        format!("{}::{}", self.server, self.number)
    }

    pub(crate) fn record_activity(&self) {
        *self.last_activity.lock() = Some(Instant::now());
    }

    pub(crate) fn quiet_for(&self) -> Duration {
        let heard = *self.last_activity.lock();
        heard.unwrap_or(self.started).elapsed()
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.quiet_for() >= STALLED_AFTER
    }

    pub(crate) fn state(&self) -> &'static str {
        if self.is_stalled() {
            "stalled"
        } else if self.last_activity.lock().is_some() {
            "active"
        } else {
            "pending"
        }
    }

    /// Completes when the call is cancelled.
    pub(crate) async fn cancelled(&self) {
        self.cancelled.notified().await;
    }
}

#[derive(Default)]
pub(crate) struct CallRegistry {
    active: Mutex<HashMap<u64, Arc<ActiveCall>>>,
    last_number: AtomicU64,
}

/// The call to begin.
pub(crate) struct CallSpec<'a> {
    pub(crate) server: &'a Arc<str>,
    pub(crate) tool_id: String,
    pub(crate) timeout: Duration,
    /// The task whose end the call waits for.
    pub(crate) task_id: Option<String>,
}

/// Keeps a call registered as active until dropped.
pub(crate) struct ActiveCallGuard<'a> {
    registry: &'a CallRegistry,
    pub(crate) call: Arc<ActiveCall>,
}

impl Drop for ActiveCallGuard<'_> {
    fn drop(&mut self) {
        self.registry.active.lock().remove(&self.call.number);
    }
}

impl CallRegistry {
    pub(crate) fn begin(&self, call: &Call, work: CallSpec<'_>) -> ActiveCallGuard<'_> {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let begun = Arc::new(ActiveCall {
            number,
            server: work.server.clone(),
            tool_id: work.tool_id,
            owner: CallOwner::from_call(call),
            started: Instant::now(),
            started_ms: crate::now_ms(),
            timeout: work.timeout,
            task_id: work.task_id,
            last_activity: Mutex::default(),
            cancelled: Notify::new(),
        });
        self.active.lock().insert(number, begun.clone());
        ActiveCallGuard {
            registry: self,
            call: begun,
        }
    }

    /// Cancels a call. It is no longer active from here on, even before its caller is notified.
    pub(crate) fn cancel(&self, call: &ActiveCall) {
        self.active.lock().remove(&call.number);
        call.cancelled.notify_one();
    }

    /// Returns the calls that `wanted` accepts, oldest first.
    pub(crate) fn list(&self, wanted: impl Fn(&ActiveCall) -> bool) -> Vec<Arc<ActiveCall>> {
        let begun = self.active.lock();
        let mut all: Vec<_> = begun
            .values()
            .filter(|call| wanted(call))
            .cloned()
            .collect();
        drop(begun);
        all.sort_by_key(|call| call.number);
        all
    }
}
