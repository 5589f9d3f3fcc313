//! One server behind the door: what is known of it, and those of it that run.
//!
//! Owns: when one is started, for whom, how long it stays, and what it was seen to offer. Refuses to know: who may see it. Each
//! server has its own locks; one that hangs holds up nobody who asks another.

mod fault;
mod instance;
mod look;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rung_auth::Permit;
use rung_fault::{Code, Fault};
use rung_mcp::Capabilities;
use rung_mcp::connect::{Agreement, Connection, Options, Target};
use rung_tool::{Ask, Call, Change};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::auth::{Auth, SignIn};
use crate::catalogue::Catalogue;
use crate::config::Sharing;
use crate::definition::{Definition, Withheld};
use crate::direct::Surface;
use crate::seen::Seen;
pub(crate) use instance::InUse;
use instance::{Instance, Whose};
use look::Ear;

/// What all servers have in common.
pub(crate) struct Common {
    pub(crate) catalogue: Catalogue,
    /// Where it is told that something else is offered now.
    pub(crate) changes: rung_tool::Changes,
    /// How long a server may take to start.
    pub(crate) opening: Duration,
    /// How servers are shown.
    pub(crate) surface: Surface,
    /// Grows whenever something else is known of any server.
    pub(crate) generation: AtomicU64,
}

impl Common {
    /// Tells that all lists may be others. Ours are never: how theirs are called is not in them.
    pub(crate) fn tell_all(&self) {
        if self.surface == Surface::Direct {
            self.changes.tell(Change::Tools);
        }
        self.changes.tell(Change::Resources);
        self.changes.tell(Change::Prompts);
    }
}

/// Where a server is written, which may change while it runs.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    /// Whether it is started with the gateway.
    pub(crate) eager: bool,
    /// Who says so.
    pub(crate) origin: &'static str,
    pub(crate) file: Option<PathBuf>,
    pub(crate) sign_in: SignIn,
    /// Whether an edit of it waits for approval.
    pub(crate) edit_waits: bool,
}

impl Written {
    fn of(definition: &Definition) -> Self {
        Self {
            eager: definition.eager,
            origin: definition.origin,
            file: definition.file.clone(),
            sign_in: definition.sign_in.clone(),
            edit_waits: definition.edit_waits,
        }
    }

    /// When it is started.
    pub(crate) fn start(&self) -> &'static str {
        if self.eager { "eager" } else { "lazy" }
    }
}

/// One server behind the door.
pub(crate) struct Server {
    pub(crate) definition: Definition,
    written: RwLock<Written>,
    common: Arc<Common>,
    seen: RwLock<Option<Arc<Seen>>>,
    instances: Mutex<HashMap<Whose, Arc<Instance>>>,
    /// Held while its lists are read.
    looking: tokio::sync::Mutex<()>,
    trouble: Mutex<Option<Trouble>>,
    /// Another server has its name now.
    retired: AtomicBool,
    /// Since when it is queued or started to be listed in the background, while it is.
    listing: watch::Sender<Option<Instant>>,
    /// Starts of it that are under way.
    starting: AtomicUsize,
}

/// How it last failed.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    pub(crate) why: String,
    pub(crate) at_ms: u64,
    /// What it wants, where that is a credential.
    pub(crate) auth: Option<Auth>,
}

/// How a server is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Online,
    /// It is started when it is first needed.
    Lazy,
    /// It could not be started, or broke.
    Failed,
    /// It is listed and not started.
    Withheld,
}

impl Status {
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
    pub(crate) fn new(definition: Definition, common: Arc<Common>) -> Arc<Self> {
        Arc::new(Self {
            written: RwLock::new(Written::of(&definition)),
            definition,
            common,
            seen: RwLock::default(),
            instances: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
            trouble: Mutex::default(),
            retired: AtomicBool::new(false),
            listing: watch::Sender::new(None),
            starting: AtomicUsize::new(0),
        })
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.definition.name
    }

    /// The file that its entry is in. Paths of this machine are for the local process alone.
    pub(crate) fn file_for(&self, permit: &Permit) -> Option<String> {
        let file = self.written().file.filter(|_| permit.is_local());
        file.map(|file| file.display().to_string())
    }

    /// Where it is written now.
    pub(crate) fn written(&self) -> Written {
        self.written.read().clone()
    }

    /// It is written elsewhere, or to be started otherwise; what it is has not changed.
    pub(crate) fn rewrite(&self, definition: &Definition) {
        *self.written.write() = Written::of(definition);
    }

    /// What it was last seen to offer.
    pub(crate) fn seen(&self) -> Option<Arc<Seen>> {
        if let Some(seen) = &*self.seen.read() {
            return Some(seen.clone());
        }
        let kept = self.common.catalogue.read(&self.definition)?;
        let mut slot = self.seen.write();
        Some(slot.get_or_insert_with(|| Arc::new(kept)).clone())
    }

    /// Tokens of all its definitions, counted where they were not, and kept.
    pub(crate) fn definition_tokens(&self, count: fn(&str) -> usize) -> Option<u64> {
        let seen = self.seen()?;
        let counted = seen.tools.iter().all(|known| known.is_counted());
        let tokens = seen.tools.iter().map(|known| known.tokens(count));
        let tokens = tokens.map(u64::from).sum();
        if !counted {
            let _counted_again_where_it_cannot_be_kept =
                self.common.catalogue.put(&self.definition, &seen, None);
        }
        Some(tokens)
    }

    pub(crate) fn status(&self) -> Status {
        self.notice_end();
        if self.definition.withheld.is_some() {
            Status::Withheld
        } else if self.is_online() {
            Status::Online
        } else if self.trouble.lock().is_some() {
            Status::Failed
        } else {
            Status::Lazy
        }
    }

    /// Notes that one has ended by itself while nobody called it. At an address nobody ends.
    fn notice_end(&self) {
        if !matches!(self.definition.target, Target::Command(_)) {
            return;
        }
        let instances = self.instances.lock();
        let ended = instances
            .values()
            .any(|instance| !instance.is_open() && instance.runs.swap(false, Ordering::AcqRel));
        drop(instances);
        if ended {
            let mut trouble = self.trouble.lock();
            // Whoever called it then knows more.
            trouble.get_or_insert_with(|| Trouble {
                why: format!("{} ended by itself; the next call starts it", self.name()),
                at_ms: crate::now_ms(),
                auth: None,
            });
        }
    }

    /// How it is, for whoever runs it.
    pub(crate) fn how(&self) -> String {
        match &self.definition.withheld {
            Some(Withheld::Untrusted) => {
                format!("not approved: rung gateway trust {}", self.name())
            }
            Some(Withheld::Missing(variables)) => format!("not set: {}", variables.join(", ")),
            Some(Withheld::Unusable(why)) => why.clone(),
            None if self.written().edit_waits => {
                format!("an edit waits: rung gateway trust {}", self.name())
            }
            None => self.status().name().to_owned(),
        }
    }

    /// Whether one is connected and lists what it has. What an earlier process listed stands in for a list that is under way, but
    /// not for one that failed or that does not come.
    pub(crate) fn is_online(&self) -> bool {
        let known = self.seen().is_some() && self.trouble.lock().is_none();
        let instances = self.instances.lock();
        let mut instances = instances.values();
        instances.any(|instance| {
            !instance.hangs() && (instance.has_listed() || known && instance.is_open())
        })
    }

    pub(crate) fn agreement(&self) -> Option<Agreement> {
        let instances = self.instances.lock();
        instances
            .values()
            .find_map(|instance| instance.connection.agreement())
    }

    pub(crate) fn running(&self) -> usize {
        let instances = self.instances.lock();
        let running = instances.values();
        running.filter(|instance| instance.is_open()).count()
    }

    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.trouble.lock().clone()
    }

    /// The last it said beside the protocol.
    pub(crate) fn last_words(&self) -> String {
        let instances = self.instances.lock();
        let mut words = instances
            .values()
            .map(|instance| instance.connection.last_words());
        words.find(|words| !words.is_empty()).unwrap_or_default()
    }

    /// One for this caller, started if need be, whose lists have been read at least once in its life.
    pub(crate) async fn open(self: &Arc<Self>, call: &Call) -> Result<InUse, Fault> {
        let whose = Whose::of(
            self.definition.sharing,
            &call.permit,
            call.peer.conversation(),
        );
        let can = if whose == Whose::Everybody {
            // Whose folders they are would depend on who came first.
            Capabilities {
                roots: false,
                ..Capabilities::ALL
            }
        } else {
            let can = |ask| call.peer.can(ask);
            Capabilities {
                form: can(Ask::Form),
                visit: can(Ask::Visit),
                sample: can(Ask::Sample),
                roots: can(Ask::Roots),
                tasks: true,
            }
        };
        self.open_for(whose, can, &call.permit).await
    }

    /// Reserves the background listing of this server: `false` where one is queued or under way, or failed a moment ago.
    pub(crate) fn reserve_listing(&self) -> bool {
        const AGAIN_MS: u64 = 30_000;
        let failed = self.trouble.lock().as_ref().map(|trouble| trouble.at_ms);
        let lately = failed.is_some_and(|at_ms| at_ms + AGAIN_MS > crate::now_ms());
        !lately
            && self.listing.send_if_modified(|since| {
                let free = since.is_none();
                since.get_or_insert_with(Instant::now);
                free
            })
    }

    /// Starts one to list what it offers, for a caller who has reserved that. It is stopped again unless it is to run with the gateway
    /// or is called meanwhile.
    pub(crate) async fn list_reserved(self: &Arc<Self>) {
        let can = Capabilities {
            roots: false,
            ..Capabilities::ALL
        };
        if self.definition.withheld.is_none() {
            let instance = self.instance(Whose::Everybody, can);
            // What goes wrong is noted.
            if self.make_ready(&instance).await.is_ok() && !self.is_shared() {
                let _as_good_as_it_gets = self.look(&instance).await;
            }
            self.stop_unless_used(instance).await;
        }
        self.listing.send_replace(None);
    }

    /// Since when a background listing is queued or under way.
    pub(crate) fn listing_since(&self) -> Option<Instant> {
        *self.listing.borrow()
    }

    /// Waits until no background listing is queued or under way.
    pub(crate) async fn listed(&self) {
        let mut listing = self.listing.subscribe();
        // The sender lives as long as this server.
        let _gone = listing.wait_for(Option::is_none).await;
    }

    async fn stop_unless_used(&self, used: InUse) {
        let stays = self.written().eager;
        let instance = used.instance.clone();
        let unused = {
            let mut instances = self.instances.lock();
            // Each use is counted under this lock: the only one left is our own.
            let only_ours = instance.busy.load(Ordering::Acquire) == 1
                && instance.watched.lock().is_empty()
                && !instance.is_called.load(Ordering::Acquire);
            // No caller is served by this instance of a server that is not shared.
            let unused = instance.is_open() && (!self.is_shared() || !stays && only_ours);
            if unused {
                instances.remove(&Whose::Everybody);
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
        whose: Whose,
        can: Capabilities,
        permit: &Permit,
    ) -> Result<InUse, Fault> {
        if let Some(withheld) = &self.definition.withheld {
            return Err(self.held_back(withheld, permit));
        }
        let instance = self.instance(whose, can);
        instance.is_called.store(true, Ordering::Release);
        self.make_ready(&instance).await?;
        Ok(instance)
    }

    /// Starts one if need be, and has it list what it offers where that is not known.
    async fn make_ready(self: &Arc<Self>, instance: &InUse) -> Result<(), Fault> {
        let said = if let Some((_, said)) = instance.connection.opened_with() {
            said
        } else {
            self.start(instance.share()).await?.said
        };
        instance.runs.store(true, Ordering::Release);
        self.trouble.lock().take();
        let looked = instance.looked.lock().clone();
        let fresh = !instance.stale.load(Ordering::Acquire)
            && looked.is_some_and(|looked| Arc::ptr_eq(&looked, &said));
        if !fresh {
            if self.seen().is_some() {
                // What it offered before is good enough to begin with.
                self.look_behind(instance.share());
            } else {
                self.look(instance).await?;
            }
        }
        Ok(())
    }

    /// Starts one. Whoever stops waiting for that leaves it to others, and how it ends is noted.
    async fn start(self: &Arc<Self>, instance: InUse) -> Result<Agreement, Fault> {
        let me = self.clone();
        let starting = tokio::spawn(async move {
            me.starting.fetch_add(1, Ordering::AcqRel);
            let opened = instance.connection.open().await;
            me.starting.fetch_sub(1, Ordering::AcqRel);
            // That it did not start because we ended it is no failure of its own.
            let ended = instance.closed.load(Ordering::Acquire);
            opened.map_err(|error| {
                if ended {
                    me.fault(error)
                } else {
                    me.failed(&error)
                }
            })
        });
        let ended = |error: tokio::task::JoinError| Fault::new(Code::Internal, error.to_string());
        starting.await.map_err(ended)?
    }

    /// Whether one is being started just now, or does not list yet what it has.
    pub(crate) fn is_starting(&self) -> bool {
        let instances = self.instances.lock();
        let mut instances = instances.values();
        self.starting.load(Ordering::Acquire) > 0
            || instances
                .any(|instance| instance.lists_since.lock().is_some() && !instance.has_listed())
    }

    fn instance(self: &Arc<Self>, whose: Whose, can: Capabilities) -> InUse {
        let mut instances = self.instances.lock();
        let instance = instances.entry(whose).or_insert_with(|| {
            let ear = Ear {
                server: Arc::downgrade(self),
                can,
            };
            let options = Options {
                opening: self.common.opening,
                era: self.definition.era,
                ..Options::new(self.name().clone())
            };
            Arc::new(Instance {
                connection: Connection::new(self.definition.target.clone(), options, Arc::new(ear)),
                busy: AtomicUsize::new(0),
                used: Mutex::new(Instant::now()),
                watched: Mutex::default(),
                looked: Mutex::default(),
                stale: AtomicBool::new(false),
                lists_since: Mutex::default(),
                is_called: AtomicBool::new(false),
                runs: AtomicBool::new(false),
                closed: AtomicBool::new(false),
                looks: Mutex::default(),
                logs_from: Mutex::default(),
            })
        });
        // Counted before anybody else can look whether it is used.
        instance.busy.fetch_add(1, Ordering::AcqRel);
        InUse {
            server: self.clone(),
            instance: instance.clone(),
        }
    }

    /// Whether one of it is everybody's.
    pub(crate) fn is_shared(&self) -> bool {
        self.definition.sharing == Sharing::Shared
    }

    /// Ends the one that a caller would be served by.
    pub(crate) async fn close_for(&self, call: &Call) {
        let whose = Whose::of(
            self.definition.sharing,
            &call.permit,
            call.peer.conversation(),
        );
        self.trouble.lock().take();
        self.close_one(&whose).await;
    }

    async fn close_one(&self, whose: &Whose) {
        let instance = self.instances.lock().remove(whose);
        if let Some(instance) = instance {
            instance.close().await;
        }
    }

    /// Ends those that run, of everybody. They are started again when they are needed.
    pub(crate) async fn close(&self) {
        let instances: Vec<_> = self.instances.lock().drain().collect();
        self.trouble.lock().take();
        for (_, instance) in instances {
            instance.close().await;
        }
    }

    /// Another server has its name: what is under way here is finished, and what is idle ends now.
    pub(crate) fn retire(self: &Arc<Self>) {
        self.retired.store(true, Ordering::Release);
        let instances: Vec<_> = self.instances.lock().values().cloned().collect();
        for instance in instances {
            if instance.busy.load(Ordering::Acquire) == 0 {
                self.end(&instance);
            }
        }
    }

    /// Stops those that nobody has used for so long, and those whose conversation is over.
    pub(crate) fn sweep(&self, idle: Duration) {
        let idle_since = Instant::now().checked_sub(idle);
        let unused = |whose: &Whose, instance: &Instance| {
            let busy = instance.busy.load(Ordering::Acquire) > 0;
            let watched = !instance.watched.lock().is_empty();
            let idle = idle_since.is_some_and(|since| *instance.used.lock() < since);
            !busy && (!whose.lives() || idle && !watched)
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
            self.end(&instance);
        }
    }

    fn end(&self, instance: &Arc<Instance>) {
        tracing::info!(server = %self.name(), "stopped");
        let instance = instance.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { instance.close().await });
        }
    }
}
