//! Calls under way: whose they are, how they are, and how one is ended without anything else being touched.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rung_auth::Permit;
use rung_tool::{Call, Conversation, WeakConversation};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Whose a call or a task is. Nobody else sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// Whoever has this token.
    Client(String, String),
    /// Whoever has none of their own is known by the conversation.
    Conversation(WeakConversation),
}

impl Owner {
    pub(crate) fn of(call: &Call) -> Self {
        Self::new(&call.permit, call.peer.conversation())
    }

    fn new(permit: &Permit, conversation: Option<Conversation>) -> Self {
        match conversation {
            Some(conversation) if permit.is_nameless() => {
                Self::Conversation(conversation.downgrade())
            }
            _ => {
                let (caller, grant) = (permit.caller().as_str(), permit.grant().as_str());
                Self::Client(caller.to_owned(), grant.to_owned())
            }
        }
    }
}

/// A call that has heard nothing for so long is stalled.
const STALLED: Duration = Duration::from_mins(2);

/// One call under way.
pub(crate) struct Begun {
    pub(crate) number: u64,
    pub(crate) server: Arc<str>,
    pub(crate) tool_id: String,
    pub(crate) owner: Owner,
    pub(crate) started: Instant,
    pub(crate) started_ms: u64,
    pub(crate) timeout: Duration,
    /// The task whose end it waits for.
    pub(crate) task_id: Option<String>,
    /// When something was last heard of it.
    heard: Mutex<Option<Instant>>,
    ended: Notify,
}

impl Begun {
    pub(crate) fn id(&self) -> String {
        format!("{}::{}", self.server, self.number)
    }

    pub(crate) fn hear(&self) {
        *self.heard.lock() = Some(Instant::now());
    }

    pub(crate) fn quiet_for(&self) -> Duration {
        let heard = *self.heard.lock();
        heard.unwrap_or(self.started).elapsed()
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.quiet_for() >= STALLED
    }

    pub(crate) fn state(&self) -> &'static str {
        if self.is_stalled() {
            "stalled"
        } else if self.heard.lock().is_some() {
            "active"
        } else {
            "pending"
        }
    }

    /// Comes back when it was ended.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }
}

/// All calls under way.
#[derive(Default)]
pub(crate) struct Calls {
    begun: Mutex<HashMap<u64, Arc<Begun>>>,
    next: AtomicU64,
}

/// What is begun.
pub(crate) struct Work<'a> {
    pub(crate) server: &'a Arc<str>,
    pub(crate) tool_id: String,
    pub(crate) timeout: Duration,
    /// The task whose end it waits for.
    pub(crate) task_id: Option<String>,
}

/// A call under way; dropped, it is over.
pub(crate) struct Running<'a> {
    calls: &'a Calls,
    pub(crate) begun: Arc<Begun>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.calls.begun.lock().remove(&self.begun.number);
    }
}

impl Calls {
    pub(crate) fn begin(&self, call: &Call, work: Work<'_>) -> Running<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let begun = Arc::new(Begun {
            number,
            server: work.server.clone(),
            tool_id: work.tool_id,
            owner: Owner::of(call),
            started: Instant::now(),
            started_ms: crate::now_ms(),
            timeout: work.timeout,
            task_id: work.task_id,
            heard: Mutex::default(),
            ended: Notify::new(),
        });
        self.begun.lock().insert(number, begun.clone());
        Running { calls: self, begun }
    }

    /// Ends one. It is under way no longer, whenever its caller notices.
    pub(crate) fn end(&self, call: &Begun) {
        self.begun.lock().remove(&call.number);
        call.ended.notify_one();
    }

    /// Those that `wanted` wants, the oldest first.
    pub(crate) fn list(&self, wanted: impl Fn(&Begun) -> bool) -> Vec<Arc<Begun>> {
        let begun = self.begun.lock();
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
