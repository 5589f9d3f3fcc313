//! One of a server that runs, or will: for whom, and who uses it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rung_auth::Permit;
use rung_mcp::connect::{Connection, How};
use rung_tool::{Conversation, Level, WeakConversation};
use serde_json::value::RawValue;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::Server;
use crate::config::Sharing;
use crate::gateway::LONG;

/// Whose server it is, where there is more than one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Whose {
    Everybody,
    Client(String, String),
    Conversation(WeakConversation),
}

impl Whose {
    pub(super) fn of(
        sharing: Sharing,
        permit: &Permit,
        conversation: Option<Conversation>,
    ) -> Self {
        let client = || {
            let (caller, grant) = (permit.caller().as_str(), permit.grant().as_str());
            Self::Client(caller.to_owned(), grant.to_owned())
        };
        match (sharing, conversation) {
            (Sharing::Shared, _) => Self::Everybody,
            (Sharing::Session, Some(conversation)) => Self::Conversation(conversation.downgrade()),
            (Sharing::Client, Some(conversation)) if permit.is_nameless() => {
                Self::Conversation(conversation.downgrade())
            }
            _ => client(),
        }
    }

    /// Whether anybody can still come back for it.
    pub(super) fn lives(&self) -> bool {
        match self {
            Self::Conversation(conversation) => conversation.is_alive(),
            _ => true,
        }
    }
}

/// One that runs, or will.
pub(crate) struct Instance {
    pub(crate) connection: Connection,
    /// Calls under way.
    pub(super) busy: AtomicUsize,
    pub(super) used: Mutex<Instant>,
    /// Addresses that somebody listens to.
    pub(super) watched: Mutex<HashMap<String, Listening>>,
    /// What was agreed on when its lists were last read.
    pub(super) looked: Mutex<Option<Arc<RawValue>>>,
    pub(super) stale: AtomicBool,
    /// Since when an answer to its lists is outstanding.
    pub(super) lists_since: Mutex<Option<Instant>>,
    /// Whether a caller uses it: one that was only listed is stopped again.
    pub(super) is_called: AtomicBool,
    /// Whether it was started and has not been seen to end since.
    pub(super) runs: AtomicBool,
    /// We have ended it.
    pub(super) closed: AtomicBool,
    /// Where its lists are read behind everybody's back.
    pub(super) looks: Mutex<Vec<AbortHandle>>,
    /// The level from which its log was asked for, where that was below the usual one.
    pub(super) logs_from: Mutex<Option<Level>>,
}

impl Instance {
    pub(super) fn is_open(&self) -> bool {
        self.connection.opened_with().is_some()
    }

    /// Whether the process or session that is open now has listed what it offers.
    pub(super) fn has_listed(&self) -> bool {
        let listed = self.looked.lock().clone();
        let opened = self.connection.opened_with();
        listed
            .zip(opened)
            .is_some_and(|(listed, (_, said))| Arc::ptr_eq(&listed, &said))
    }

    /// Whether its lists take longer than a caller waits for a server that it can do without.
    pub(super) fn hangs(&self) -> bool {
        let since = *self.lists_since.lock();
        since.is_some_and(|since| since.elapsed() > LONG)
    }

    /// Ends it, and whatever would have it started again.
    pub(super) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for look in self.looks.lock().drain(..) {
            look.abort();
        }
        self.connection.close().await;
    }
}

/// That a resource is listened to, by so many.
pub(super) struct Listening {
    pub(super) listeners: usize,
    pub(super) task: AbortHandle,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One that is being used: it is not stopped meanwhile.
pub(crate) struct InUse {
    pub(super) server: Arc<Server>,
    pub(super) instance: Arc<Instance>,
}

impl std::ops::Deref for InUse {
    type Target = Instance;

    fn deref(&self) -> &Instance {
        &self.instance
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        *self.instance.used.lock() = Instant::now();
        let others = self.instance.busy.fetch_sub(1, Ordering::AcqRel) - 1;
        if others == 0 && self.server.retired.load(Ordering::Acquire) {
            self.server.end(&self.instance);
        }
    }
}

impl InUse {
    /// Has its log told from this level on, where somebody wants to hear more than is usual. Whoever wants less is told less of it.
    pub(crate) async fn log_from(&self, level: Option<Level>) {
        let Some(level) = level.filter(|level| *level < Level::Info) else {
            return;
        };
        let asked = self.logs_from.lock().replace(level);
        let can = self.connection.agreement();
        let can = can.is_some_and(|agreed| agreed.capabilities.get("logging").is_some());
        if can && asked.is_none_or(|asked| level < asked) {
            let _told_as_before = self.connection.set_log_level(level, How::default()).await;
        }
    }

    /// Whether it may be told the folders of whoever calls: it is theirs alone, or forgets them with the call.
    pub(crate) fn names_folders(&self) -> bool {
        let opened = self.connection.opened_with();
        let forgets = opened.is_some_and(|(version, _)| version.is_modern());
        forgets || !self.server.is_shared()
    }

    /// Whether both use the same one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.instance, &other.instance)
    }

    /// Another use of the same one.
    pub(crate) fn share(&self) -> Self {
        self.instance.busy.fetch_add(1, Ordering::AcqRel);
        Self {
            server: self.server.clone(),
            instance: self.instance.clone(),
        }
    }
}
