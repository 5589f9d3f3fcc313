//! One downstream server: its catalog and its running instances.
//!
//! Owns: when an instance is started, for which callers, when it is stopped, and the server's catalog. Refuses to know: which
//! callers may see it. Each server has its own locks, so one that hangs does not delay calls of another.

mod fault;
mod instance;
mod listing;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rung_auth::Permit;
use rung_fault::{Code, Fault};
use rung_mcp::Capabilities;
use rung_mcp::connect::{Handshake, Options, ServerConnection, ServerTarget};
use rung_tool::{Call, Change, QuestionKind};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::auth::{AuthRequirement, SignIn};
use crate::catalog::Catalog;
use crate::catalog_store::CatalogStore;
use crate::config::Sharing;
use crate::definition::{ServerDefinition, WithheldReason};
use crate::direct::Surface;
pub(crate) use instance::InstanceLease;
use instance::{InstanceScope, ServerInstance};
use listing::ListChangeListener;

/// State and settings shared by all servers.
pub(crate) struct ServerContext {
    pub(crate) catalogs: CatalogStore,
    /// Channel on which list changes are announced.
    pub(crate) changes: rung_tool::ChangeSender,
    /// Start timeout of a server.
    pub(crate) start_timeout: Duration,
    pub(crate) surface: Surface,
    /// Incremented whenever a catalog or the configuration changes.
    pub(crate) generation: AtomicU64,
}

impl ServerContext {
    /// Announces that lists may have changed. On the meta surface the tool list contains no downstream tools and stays the same.
    pub(crate) fn announce_list_changes(&self) {
        if self.surface == Surface::Direct {
            self.changes.send(Change::Tools);
        }
        self.changes.send(Change::Resources);
        self.changes.send(Change::Prompts);
    }
}

/// Settings of a server's entry that can be edited while the server runs.
#[derive(Debug, Clone)]
pub(crate) struct ConfigSource {
    /// True if the server starts with the gateway.
    pub(crate) eager: bool,
    /// `project`, `user`, `custom` or `settings`.
    pub(crate) origin: &'static str,
    pub(crate) file: Option<PathBuf>,
    pub(crate) sign_in: SignIn,
    /// True if an edit of the entry waits for approval.
    pub(crate) has_pending_edit: bool,
}

impl ConfigSource {
    fn from_definition(definition: &ServerDefinition) -> Self {
        Self {
            eager: definition.eager,
            origin: definition.origin,
            file: definition.file.clone(),
            sign_in: definition.sign_in.clone(),
            has_pending_edit: definition.has_pending_edit,
        }
    }

    /// Returns `eager` or `lazy`.
    pub(crate) fn startup_policy(&self) -> &'static str {
        if self.eager { "eager" } else { "lazy" }
    }
}

/// One downstream server.
pub(crate) struct Server {
    pub(crate) definition: ServerDefinition,
    config_source: RwLock<ConfigSource>,
    context: Arc<ServerContext>,
    catalog: RwLock<Option<Arc<Catalog>>>,
    instances: Mutex<HashMap<InstanceScope, Arc<ServerInstance>>>,
    /// Held while the lists are read.
    listing_lock: tokio::sync::Mutex<()>,
    last_error: Mutex<Option<LastError>>,
    /// True once another server has its name.
    retired: AtomicBool,
    /// Start of the background listing that is queued or running.
    listing: watch::Sender<Option<Instant>>,
    /// Number of starts in progress.
    starting: AtomicUsize,
}

/// The last failure of a server.
#[derive(Debug, Clone)]
pub(crate) struct LastError {
    pub(crate) message: String,
    pub(crate) at_ms: u64,
    /// The credentials that the server asked for.
    pub(crate) auth: Option<AuthRequirement>,
}

/// State of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerStatus {
    Online,
    /// Starts when it is first needed.
    Lazy,
    /// Did not start, or failed later.
    Failed,
    /// Listed, but never started.
    Withheld,
}

impl ServerStatus {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Lazy => "lazy",
            Self::Failed => "error",
            Self::Withheld => "withheld",
        }
    }
}

impl Server {
    pub(crate) fn new(definition: ServerDefinition, common: Arc<ServerContext>) -> Arc<Self> {
        Arc::new(Self {
            config_source: RwLock::new(ConfigSource::from_definition(&definition)),
            definition,
            context: common,
            catalog: RwLock::default(),
            instances: Mutex::default(),
            listing_lock: tokio::sync::Mutex::default(),
            last_error: Mutex::default(),
            retired: AtomicBool::new(false),
            listing: watch::Sender::new(None),
            starting: AtomicUsize::new(0),
        })
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.definition.name
    }

    /// Returns the file of its entry. Only the local process learns file paths.
    pub(crate) fn config_file_for(&self, permit: &Permit) -> Option<String> {
        let file = self.config_source().file.filter(|_| permit.is_local());
        file.map(|file| file.display().to_string())
    }

    /// Returns the current settings of its entry.
    pub(crate) fn config_source(&self) -> ConfigSource {
        self.config_source.read().clone()
    }

    /// Replaces the settings of its entry. Must not be used where the server itself changed.
    pub(crate) fn set_config_source(&self, definition: &ServerDefinition) {
        *self.config_source.write() = ConfigSource::from_definition(definition);
    }

    /// Returns the catalog, read from disk if it is not in memory.
    pub(crate) fn catalog(&self) -> Option<Arc<Catalog>> {
        if let Some(seen) = &*self.catalog.read() {
            return Some(seen.clone());
        }
        let kept = self.context.catalogs.read(&self.definition)?;
        let mut slot = self.catalog.write();
        Some(slot.get_or_insert_with(|| Arc::new(kept)).clone())
    }

    /// Returns the tokens of all tool definitions. Missing counts are made and stored.
    pub(crate) fn definition_tokens(&self) -> Option<u64> {
        let seen = self.catalog()?;
        let counted = seen.tools.iter().all(|known| known.has_token_count());
        let tokens = seen.tools.iter().map(|known| known.tokens());
        let tokens = tokens.map(u64::from).sum();
        if !counted {
            let _counted_again_where_it_cannot_be_kept =
                self.context.catalogs.put(&self.definition, &seen, None);
        }
        Some(tokens)
    }

    pub(crate) fn status(&self) -> ServerStatus {
        self.detect_exit();
        if self.definition.withheld.is_some() {
            ServerStatus::Withheld
        } else if self.is_online() {
            ServerStatus::Online
        } else if self.last_error.lock().is_some() {
            ServerStatus::Failed
        } else {
            ServerStatus::Lazy
        }
    }

    /// Records the exit of a process that was not stopped by the gateway. Servers over HTTP have no process.
    fn detect_exit(&self) {
        if !matches!(self.definition.target, ServerTarget::Command(_)) {
            return;
        }
        let instances = self.instances.lock();
        let ended = instances.values().any(|instance| {
            !instance.is_open() && instance.was_running.swap(false, Ordering::AcqRel)
        });
        drop(instances);
        if ended {
            let mut trouble = self.last_error.lock();
            // An error recorded by a call is more specific.
            trouble.get_or_insert_with(|| LastError {
                message: format!("{} exited; the next call starts it again", self.name()),
                at_ms: crate::now_ms(),
                auth: None,
            });
        }
    }

    /// Returns the state as text for the operator.
    pub(crate) fn status_text(&self) -> String {
        match &self.definition.withheld {
            Some(WithheldReason::Untrusted) => {
                format!("not approved: rung gateway trust {}", self.name())
            }
            Some(WithheldReason::UntrustedSettings) => "not approved: rung config trust".to_owned(),
            Some(WithheldReason::MissingVariables(variables)) => {
                format!("not set: {}", variables.join(", "))
            }
            Some(WithheldReason::Unusable(why)) => why.clone(),
            None if self.config_source().has_pending_edit => {
                format!(
                    "an edit waits for approval: rung gateway trust {}",
                    self.name()
                )
            }
            None => self.status().name().to_owned(),
        }
    }

    /// Returns true if an instance is connected and has listed. A stored catalog stands in for a listing in progress, but not for
    /// one that failed or takes too long.
    pub(crate) fn is_online(&self) -> bool {
        let known = self.catalog().is_some() && self.last_error.lock().is_none();
        let instances = self.instances.lock();
        let mut instances = instances.values();
        instances.any(|instance| {
            !instance.is_listing_slow() && (instance.has_listed() || known && instance.is_open())
        })
    }

    pub(crate) fn agreement(&self) -> Option<Handshake> {
        let instances = self.instances.lock();
        instances
            .values()
            .find_map(|instance| instance.connection.handshake())
    }

    pub(crate) fn running_count(&self) -> usize {
        let instances = self.instances.lock();
        let running = instances.values();
        running.filter(|instance| instance.is_open()).count()
    }

    pub(crate) fn last_error(&self) -> Option<LastError> {
        self.last_error.lock().clone()
    }

    /// Returns the last lines of stderr.
    pub(crate) fn stderr_tail(&self) -> String {
        let instances = self.instances.lock();
        let mut words = instances
            .values()
            .map(|instance| instance.connection.stderr_tail());
        words.find(|words| !words.is_empty()).unwrap_or_default()
    }

    /// Returns the caller's instance, started if necessary. The server's lists have been read at least once.
    pub(crate) async fn open(self: &Arc<Self>, call: &Call) -> Result<InstanceLease, Fault> {
        let whose = InstanceScope::new(
            self.definition.sharing,
            &call.permit,
            call.peer.conversation(),
        );
        let can = if whose == InstanceScope::Shared {
            // A shared server never receives a client's roots: they would be those of the first caller.
            Capabilities {
                roots: false,
                ..Capabilities::ALL
            }
        } else {
            let can = |ask| call.peer.can_answer(ask);
            Capabilities {
                form_elicitation: can(QuestionKind::Form),
                url_elicitation: can(QuestionKind::Visit),
                sampling: can(QuestionKind::Sample),
                roots: can(QuestionKind::Roots),
                tasks: true,
            }
        };
        self.open_for(whose, can, &call.permit).await
    }

    /// Reserves the background listing of this server. Returns false if one is queued or running, or failed less than 30 s ago.
    pub(crate) fn reserve_listing(&self) -> bool {
        const AGAIN_MS: u64 = 30_000;
        let failed = self.last_error.lock().as_ref().map(|trouble| trouble.at_ms);
        let lately = failed.is_some_and(|at_ms| at_ms + AGAIN_MS > crate::now_ms());
        !lately
            && self.listing.send_if_modified(|since| {
                let free = since.is_none();
                since.get_or_insert_with(Instant::now);
                free
            })
    }

    /// Starts an instance and lists what it offers; `reserve_listing` must have returned true. The instance is stopped again
    /// unless the server is eager or was called meanwhile.
    pub(crate) async fn list_reserved(self: &Arc<Self>) {
        let can = Capabilities {
            roots: false,
            ..Capabilities::ALL
        };
        if self.definition.withheld.is_none() {
            let instance = self.acquire_instance(InstanceScope::Shared, can);
            // Failures are recorded in `last_error`.
            if self.make_ready(&instance).await.is_ok() && !self.is_shared() {
                let _as_good_as_it_gets = self.refresh_catalog(&instance).await;
            }
            self.stop_unless_used(instance).await;
        }
        self.listing.send_replace(None);
    }

    /// Returns the start of the background listing that is queued or running.
    pub(crate) fn listing_since(&self) -> Option<Instant> {
        *self.listing.borrow()
    }

    /// Waits until no background listing is queued or running.
    pub(crate) async fn wait_for_listing(&self) {
        let mut listing = self.listing.subscribe();
        // The sender lives as long as this server.
        let _gone = listing.wait_for(Option::is_none).await;
    }

    async fn stop_unless_used(&self, used: InstanceLease) {
        let stays = self.config_source().eager;
        let instance = used.instance.clone();
        let unused = {
            let mut instances = self.instances.lock();
            // Uses are counted under this lock: a count of one is this use.
            let only_ours = instance.use_count.load(Ordering::Acquire) == 1
                && instance.subscriptions.lock().is_empty()
                && !instance.used_by_caller.load(Ordering::Acquire);
            // If the server is not shared, no caller is ever served by this instance.
            let unused = instance.is_open() && (!self.is_shared() || !stays && only_ours);
            if unused {
                instances.remove(&InstanceScope::Shared);
            }
            unused
        };
        drop(used);
        if unused {
            instance.close().await;
        }
    }

    async fn open_for(
        self: &Arc<Self>,
        whose: InstanceScope,
        can: Capabilities,
        permit: &Permit,
    ) -> Result<InstanceLease, Fault> {
        if let Some(withheld) = &self.definition.withheld {
            return Err(self.withheld_fault(withheld, permit));
        }
        let instance = self.acquire_instance(whose, can);
        instance.used_by_caller.store(true, Ordering::Release);
        self.make_ready(&instance).await?;
        Ok(instance)
    }

    /// Starts the instance if necessary, and lists what it offers if there is no catalog.
    async fn make_ready(self: &Arc<Self>, instance: &InstanceLease) -> Result<(), Fault> {
        let said = if let Some((_, said)) = instance.connection.raw_handshake() {
            said
        } else {
            self.start(instance.share()).await?.raw
        };
        instance.was_running.store(true, Ordering::Release);
        self.last_error.lock().take();
        let looked = instance.listed_session.lock().clone();
        let fresh = !instance.stale.load(Ordering::Acquire)
            && looked.is_some_and(|looked| Arc::ptr_eq(&looked, &said));
        if !fresh {
            if self.catalog().is_some() {
                // The stored catalog serves until the background listing is done.
                self.refresh_catalog_in_background(instance.share());
            } else {
                self.refresh_catalog(instance).await?;
            }
        }
        Ok(())
    }

    /// Starts the instance in its own task: it goes on when the caller stops waiting, and its failure is recorded.
    async fn start(self: &Arc<Self>, instance: InstanceLease) -> Result<Handshake, Fault> {
        let me = self.clone();
        let starting = tokio::spawn(async move {
            me.starting.fetch_add(1, Ordering::AcqRel);
            let opened = instance.connection.open().await;
            me.starting.fetch_sub(1, Ordering::AcqRel);
            // A start that the gateway itself cut short is not recorded as a failure.
            let ended = instance.closed.load(Ordering::Acquire);
            opened.map_err(|error| {
                if ended {
                    me.fault(error)
                } else {
                    me.record_failure(&error)
                }
            })
        });
        let ended = |error: tokio::task::JoinError| Fault::new(Code::Internal, error.to_string());
        starting.await.map_err(ended)?
    }

    /// Returns true if an instance is starting or has not listed yet.
    pub(crate) fn is_starting(&self) -> bool {
        let instances = self.instances.lock();
        let mut instances = instances.values();
        self.starting.load(Ordering::Acquire) > 0
            || instances
                .any(|instance| instance.listing_since.lock().is_some() && !instance.has_listed())
    }

    fn acquire_instance(
        self: &Arc<Self>,
        whose: InstanceScope,
        can: Capabilities,
    ) -> InstanceLease {
        let mut instances = self.instances.lock();
        let instance = instances.entry(whose).or_insert_with(|| {
            let ear = ListChangeListener {
                server: Arc::downgrade(self),
                can,
            };
            let options = Options {
                open_timeout: self.context.start_timeout,
                era: self.definition.era,
                ..Options::new(self.name().clone())
            };
            Arc::new(ServerInstance {
                connection: ServerConnection::new(
                    self.definition.target.clone(),
                    options,
                    Arc::new(ear),
                ),
                use_count: AtomicUsize::new(0),
                last_used: Mutex::new(Instant::now()),
                subscriptions: Mutex::default(),
                listed_session: Mutex::default(),
                stale: AtomicBool::new(false),
                listing_since: Mutex::default(),
                used_by_caller: AtomicBool::new(false),
                was_running: AtomicBool::new(false),
                closed: AtomicBool::new(false),
                background_listings: Mutex::default(),
                log_level: Mutex::default(),
            })
        });
        // Counted under the lock, before other code can see the instance as unused.
        instance.use_count.fetch_add(1, Ordering::AcqRel);
        InstanceLease {
            server: self.clone(),
            instance: instance.clone(),
        }
    }

    /// Returns true if one instance serves all callers.
    pub(crate) fn is_shared(&self) -> bool {
        self.definition.sharing == Sharing::Shared
    }

    /// Stops the instance that serves the caller.
    pub(crate) async fn close_for(&self, call: &Call) {
        let whose = InstanceScope::new(
            self.definition.sharing,
            &call.permit,
            call.peer.conversation(),
        );
        self.last_error.lock().take();
        self.close_instance(&whose).await;
    }

    async fn close_instance(&self, whose: &InstanceScope) {
        let instance = self.instances.lock().remove(whose);
        if let Some(instance) = instance {
            instance.close().await;
        }
    }

    /// Stops the instances of all callers. They start again when needed.
    pub(crate) async fn close(&self) {
        let instances: Vec<_> = self.instances.lock().drain().collect();
        self.last_error.lock().take();
        for (_, instance) in instances {
            instance.close().await;
        }
    }

    /// Marks the server as replaced. Active calls are finished; idle instances stop now.
    pub(crate) fn retire(self: &Arc<Self>) {
        self.retired.store(true, Ordering::Release);
        let instances: Vec<_> = self.instances.lock().values().cloned().collect();
        for instance in instances {
            if instance.use_count.load(Ordering::Acquire) == 0 {
                self.stop_in_background(&instance);
            }
        }
    }

    /// Stops idle instances: those that were unused for `idle`, and those whose conversation is over.
    pub(crate) fn stop_idle_instances(&self, idle: Duration) {
        let idle_since = Instant::now().checked_sub(idle);
        let unused = |whose: &InstanceScope, instance: &ServerInstance| {
            let busy = instance.use_count.load(Ordering::Acquire) > 0;
            let watched = !instance.subscriptions.lock().is_empty();
            let idle = idle_since.is_some_and(|since| *instance.last_used.lock() < since);
            !busy && (!whose.is_alive() || idle && !watched)
        };
        let mut ended = Vec::new();
        self.instances.lock().retain(|whose, instance| {
            let unused = unused(whose, instance);
            if unused {
                ended.push(instance.clone());
            }
            !unused
        });
        for instance in ended {
            self.stop_in_background(&instance);
        }
    }

    fn stop_in_background(&self, instance: &Arc<ServerInstance>) {
        tracing::info!(server = %self.name(), "stopped");
        let instance = instance.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { instance.close().await });
        }
    }
}
