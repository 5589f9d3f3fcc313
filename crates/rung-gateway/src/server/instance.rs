//! An instance of a server, running or about to: its scope, its users and its subscriptions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rung_auth::Permit;
use rung_mcp::connect::{RequestOptions, ServerConnection};
use rung_tool::{Conversation, LogLevel, WeakConversation};
use serde_json::value::RawValue;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::Server;
use crate::config::Sharing;
use crate::gateway::SLOW_START;

/// The callers that an instance serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum InstanceScope {
    Shared,
    Client(String, String),
    Conversation(WeakConversation),
}

impl InstanceScope {
    pub(super) fn new(
        sharing: Sharing,
        permit: &Permit,
        conversation: Option<Conversation>,
    ) -> Self {
        let client = || {
            let (caller, grant) = (permit.caller().as_str(), permit.grant().as_str());
            Self::Client(caller.to_owned(), grant.to_owned())
        };
        match (sharing, conversation) {
            (Sharing::Shared, _) => Self::Shared,
            (Sharing::Session, Some(conversation)) => Self::Conversation(conversation.downgrade()),
            (Sharing::Client, Some(conversation)) if permit.is_shared() => {
                Self::Conversation(conversation.downgrade())
            }
            _ => client(),
        }
    }

    /// Returns false once the conversation is over and no caller can use the instance any more.
    pub(super) fn is_alive(&self) -> bool {
        match self {
            Self::Conversation(conversation) => conversation.is_alive(),
            _ => true,
        }
    }
}

/// An instance of a server, running or about to.
pub(crate) struct ServerInstance {
    pub(crate) connection: ServerConnection,
    /// Number of uses in progress.
    pub(super) use_count: AtomicUsize,
    pub(super) last_used: Mutex<Instant>,
    /// Subscribed resources by URI.
    pub(super) subscriptions: Mutex<HashMap<String, ResourceSubscription>>,
    /// The initialization result of the session whose lists were last read.
    pub(super) listed_session: Mutex<Option<Arc<RawValue>>>,
    pub(super) stale: AtomicBool,
    /// Start of the listing in progress.
    pub(super) listing_since: Mutex<Option<Instant>>,
    /// True once a caller has used it. An instance that was only listed is stopped again.
    pub(super) used_by_caller: AtomicBool,
    /// True if it was started and its exit was not detected yet.
    pub(super) was_running: AtomicBool,
    /// True once the gateway has stopped it.
    pub(super) closed: AtomicBool,
    /// Background listings.
    pub(super) background_listings: Mutex<Vec<AbortHandle>>,
    /// The log level last requested, if lower than the default.
    pub(super) log_level: Mutex<Option<LogLevel>>,
}

impl ServerInstance {
    pub(super) fn is_open(&self) -> bool {
        self.connection.raw_handshake().is_some()
    }

    /// Returns true if the currently open process or session has listed what it offers.
    pub(super) fn has_listed(&self) -> bool {
        let listed = self.listed_session.lock().clone();
        let opened = self.connection.raw_handshake();
        listed
            .zip(opened)
            .is_some_and(|(listed, (_, said))| Arc::ptr_eq(&listed, &said))
    }

    /// Returns true if the listing in progress takes longer than two seconds.
    pub(super) fn is_listing_slow(&self) -> bool {
        let since = *self.listing_since.lock();
        since.is_some_and(|since| since.elapsed() > SLOW_START)
    }

    /// Stops the instance and its background listings, which would start it again.
    pub(super) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for look in self.background_listings.lock().drain(..) {
            look.abort();
        }
        self.connection.close().await;
    }
}

/// A resource subscription, ended on drop.
pub(super) struct ResourceSubscription {
    pub(super) listeners: usize,
    pub(super) task: AbortHandle,
}

impl Drop for ResourceSubscription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A use of an instance. The instance is not stopped while it is held.
pub(crate) struct InstanceLease {
    pub(super) server: Arc<Server>,
    pub(super) instance: Arc<ServerInstance>,
}

impl std::ops::Deref for InstanceLease {
    type Target = ServerInstance;

    fn deref(&self) -> &ServerInstance {
        &self.instance
    }
}

impl Drop for InstanceLease {
    fn drop(&mut self) {
        *self.instance.last_used.lock() = Instant::now();
        let others = self.instance.use_count.fetch_sub(1, Ordering::AcqRel) - 1;
        if others == 0 && self.server.retired.load(Ordering::Acquire) {
            self.server.stop_in_background(&self.instance);
        }
    }
}

impl InstanceLease {
    /// Lowers the server's log level to `level` if the caller wants more than the default. Other callers still receive only
    /// messages of their own level.
    pub(crate) async fn lower_log_level(&self, level: Option<LogLevel>) {
        let Some(level) = level.filter(|level| *level < LogLevel::Info) else {
            return;
        };
        let asked = self.log_level.lock().replace(level);
        let can = self.connection.handshake();
        let can = can.is_some_and(|agreed| agreed.capabilities.get("logging").is_some());
        if can && asked.is_none_or(|asked| level < asked) {
            let _told_as_before = self
                .connection
                .set_log_level(level, RequestOptions::default())
                .await;
        }
    }

    /// Returns true if it may receive the caller's roots: it is not shared, or its protocol version keeps nothing beyond a call.
    pub(crate) fn may_list_roots(&self) -> bool {
        let opened = self.connection.raw_handshake();
        let forgets = opened.is_some_and(|(version, _)| version.is_modern());
        forgets || !self.server.is_shared()
    }

    /// Returns true if both use the same instance.
    pub(crate) fn is_same_instance(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.instance, &other.instance)
    }

    /// Returns another use of the same instance.
    pub(crate) fn share(&self) -> Self {
        self.instance.use_count.fetch_add(1, Ordering::AcqRel);
        Self {
            server: self.server.clone(),
            instance: self.instance.clone(),
        }
    }
}
