//! One server behind the door: what is known of it, and those of it that run.
//!
//! Owns: when one is started, for whom, how long it stays, and what it was seen to offer. Refuses to know: who may see it. Each
//! server has its own locks; one that hangs holds up nobody who asks another.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rung_auth::Permit;
use rung_fault::{Code, Detail, Fault};
use rung_mcp::connect::{Agreement, Connection, Delegate, Error, How, Kind, Options, Target};
use rung_mcp::{Capabilities, Wanted};
use rung_tool::{Ask, Call, Change, Conversation, Level, Watcher, WeakConversation};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::auth::{Auth, SignIn};
use crate::catalogue::Catalogue;
use crate::config::Sharing;
use crate::definition::{Definition, Withheld};
use crate::direct::Surface;
use crate::seen::{About, Known, Seen};

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

/// Whose server it is, where there is more than one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Whose {
    Everybody,
    Client(String, String),
    Conversation(WeakConversation),
}

impl Whose {
    fn of(sharing: Sharing, permit: &Permit, conversation: Option<Conversation>) -> Self {
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
    fn lives(&self) -> bool {
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
    busy: AtomicUsize,
    used: Mutex<Instant>,
    /// Addresses that somebody listens to.
    watched: Mutex<HashMap<String, Listening>>,
    /// What was agreed on when its lists were last read.
    looked: Mutex<Option<Arc<RawValue>>>,
    stale: AtomicBool,
    /// Whether it was started and has not been seen to end since.
    runs: AtomicBool,
    /// We have ended it.
    closed: AtomicBool,
    /// Where its lists are read behind everybody's back.
    looks: Mutex<Vec<AbortHandle>>,
    /// The level from which its log was asked for, where that was below the usual one.
    logs_from: Mutex<Option<Level>>,
}

impl Instance {
    /// Ends it, and whatever would have it started again.
    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for look in self.looks.lock().drain(..) {
            look.abort();
        }
        self.connection.close().await;
    }
}

/// That a resource is listened to, by so many.
struct Listening {
    listeners: usize,
    task: AbortHandle,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
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
    /// Somebody has it looked at for the first time.
    awaited: AtomicBool,
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

/// One that is being used: it is not stopped meanwhile.
pub(crate) struct InUse {
    server: Arc<Server>,
    instance: Arc<Instance>,
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
            awaited: AtomicBool::new(false),
            starting: AtomicUsize::new(0),
        })
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.definition.name
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
        let ended = instances.values().any(|instance| {
            instance.connection.opened_with().is_none()
                && instance.runs.swap(false, Ordering::AcqRel)
        });
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

    pub(crate) fn is_online(&self) -> bool {
        let instances = self.instances.lock();
        instances
            .values()
            .any(|instance| instance.connection.opened_with().is_some())
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
        running
            .filter(|instance| instance.connection.opened_with().is_some())
            .count()
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
        self.open_for(whose, can).await
    }

    /// Starts one for nobody in particular, to see what it offers; unless somebody does already, or did in vain a moment ago.
    /// It stays where it is everybody's; elsewhere it would be nobody's.
    pub(crate) async fn be_seen(self: &Arc<Self>) {
        const AGAIN_MS: u64 = 30_000;
        let failed = self.trouble.lock().as_ref().map(|trouble| trouble.at_ms);
        let lately = failed.is_some_and(|at_ms| at_ms + AGAIN_MS > crate::now_ms());
        if !lately && !self.awaited.swap(true, Ordering::AcqRel) {
            // What goes wrong is noted.
            if let Ok(instance) = self.open_to_look().await
                && !self.is_shared()
            {
                let _as_good_as_it_gets = self.look(&instance).await;
                drop(instance);
                self.close_one(&Whose::Everybody).await;
            }
            self.awaited.store(false, Ordering::Release);
        }
    }

    async fn open_to_look(self: &Arc<Self>) -> Result<InUse, Fault> {
        let can = Capabilities {
            roots: false,
            ..Capabilities::ALL
        };
        self.open_for(Whose::Everybody, can).await
    }

    async fn open_for(self: &Arc<Self>, whose: Whose, can: Capabilities) -> Result<InUse, Fault> {
        if let Some(withheld) = &self.definition.withheld {
            return Err(self.held_back(withheld));
        }
        let instance = self.instance(whose, can);
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
                self.look(&instance).await?;
            }
        }
        Ok(instance)
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

    /// Whether one is being started just now.
    pub(crate) fn is_starting(&self) -> bool {
        self.starting.load(Ordering::Acquire) > 0
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

    /// Reads what one offers. Whoever comes meanwhile waits, and finds it read.
    pub(crate) async fn look(self: &Arc<Self>, instance: &InUse) -> Result<Arc<Seen>, Fault> {
        let _one_at_a_time = self.looking.lock().await;
        let opened = instance.connection.open().await;
        let agreement = opened.map_err(|error| self.failed(&error))?;
        self.look_at(instance, agreement).await
    }

    /// The same behind everybody's back. One that is stopped meanwhile is not started for it.
    fn look_behind(self: &Arc<Self>, used: InUse) {
        let (me, instance) = (self.clone(), used.instance.clone());
        let look = tokio::spawn(async move {
            let _one_at_a_time = me.looking.lock().await;
            if let Some(agreement) = used.connection.agreement() {
                let _tried_again_with_the_next_call = me.look_at(&used, agreement).await;
            }
        });
        let mut looks = instance.looks.lock();
        looks.retain(|look| !look.is_finished());
        looks.push(look.abort_handle());
    }

    async fn look_at(
        self: &Arc<Self>,
        instance: &InUse,
        agreement: Agreement,
    ) -> Result<Arc<Seen>, Fault> {
        let read = instance.looked.lock().clone();
        let same = read.is_some_and(|read| Arc::ptr_eq(&read, &agreement.said));
        if same
            && !instance.stale.swap(false, Ordering::AcqRel)
            && let Some(seen) = self.seen()
        {
            return Ok(seen);
        }
        instance.stale.store(false, Ordering::Release);
        let seen = self.read_lists(&instance.connection, &agreement).await;
        let seen = Arc::new(seen.map_err(|error| self.failed(&error))?);
        if agreement.version.is_modern() && !same {
            hear_of_lists(&instance.connection);
        }
        *instance.looked.lock() = Some(agreement.said);
        let before = self.seen.write().replace(seen.clone());
        let changed = self
            .common
            .catalogue
            .put(&self.definition, &seen, before.as_deref())?;
        if changed || before.is_none() {
            self.common.generation.fetch_add(1, Ordering::Relaxed);
            self.common.tell_all();
        }
        Ok(seen)
    }

    async fn read_lists(
        &self,
        connection: &Connection,
        agreement: &Agreement,
    ) -> Result<Seen, Error> {
        let how = How::default();
        let has = |capability: &str| agreement.capabilities.get(capability).is_some();
        let list = async |kind, capability: &str| {
            if !has(capability) {
                return Ok(Vec::new());
            }
            let listed = connection.list(kind, &how).await?;
            Ok(listed.items.into_iter().map(Arc::from).collect())
        };
        let tools = connection.tools(&how).await?;
        let resources = list(Kind::Resources, "resources").await?;
        let templates = list(Kind::Templates, "resources").await.unwrap_or_default();
        let prompts = list(Kind::Prompts, "prompts").await?;
        let before = self.seen();
        let known = |tool: rung_mcp::connect::Tool| {
            let old = before.as_ref().and_then(|seen| seen.tool(&tool.name));
            let same = old.filter(|old| old.tool.listed.get() == tool.listed.get());
            same.map_or_else(|| Arc::new(Known::new(tool, None)), Arc::clone)
        };
        let dropped = tools.dropped.into_iter();
        Ok(Seen {
            tools: tools.tools.into_iter().map(known).collect(),
            resources,
            templates,
            prompts,
            dropped: dropped.map(|dropped| (dropped.name, dropped.why)).collect(),
            about: About {
                version: agreement.version.name().to_owned(),
                capabilities: agreement.capabilities.clone(),
                server: agreement.server.clone(),
                instructions: agreement.instructions.clone(),
            },
        })
    }

    /// Somebody listens to a resource from now on, or no longer.
    pub(crate) async fn watch(
        self: &Arc<Self>,
        listener: &Watcher,
        uri: &str,
        on: bool,
    ) -> Result<(), Fault> {
        let conversation = listener.conversation.clone();
        let whose = Whose::of(self.definition.sharing, &listener.permit, conversation);
        let can = Capabilities {
            roots: false,
            ..Capabilities::ALL
        };
        let instance = self.open_for(whose, can).await?;
        let mut watched = instance.watched.lock();
        if let Some(listening) = watched.get_mut(uri) {
            let listeners = listening.listeners;
            listening.listeners = if on { listeners + 1 } else { listeners - 1 };
            if listening.listeners == 0 {
                watched.remove(uri);
            }
        } else if on {
            let connection = instance.connection.clone();
            let wanted = Wanted {
                resource_subscriptions: vec![uri.to_owned()],
                ..Wanted::default()
            };
            let task = tokio::spawn(async move {
                let _until_it_cannot_be_heard = connection.listen(&wanted).await;
            });
            let task = task.abort_handle();
            let one = Listening { listeners: 1, task };
            watched.insert(uri.to_owned(), one);
        }
        Ok(())
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

    /// The fault of a server that could not be opened, noted down.
    pub(crate) fn failed(&self, error: &Error) -> Fault {
        self.note(error);
        self.fault(error.clone())
    }

    /// What it wants, where it refused for want of something.
    fn wanted(&self, error: &Error) -> Option<Auth> {
        Auth::wanted(error, &self.written().sign_in, &self.definition.secrets)
    }

    /// Notes how it failed, until it is started again.
    fn note(&self, error: &Error) {
        let why = error.to_string();
        tracing::warn!(server = %self.name(), %why, "failed");
        *self.trouble.lock() = Some(Trouble {
            why,
            at_ms: crate::now_ms(),
            // What is meant for one caller is not for whoever asks how the server is.
            auth: self.wanted(error).filter(|auth| !auth.is_callers()),
        });
    }

    /// The fault of a call, with what to do next.
    pub(crate) fn fault(&self, error: Error) -> Fault {
        let name = self.name();
        if matches!(error, Error::Lost { .. }) {
            self.note(&error);
        }
        let hint = match &error {
            Error::Unavailable { .. } => format!(
                "gateway.health {{\"server\":\"{name}\"}} shows more; when its cause is mended, call again: it is started anew"
            ),
            Error::Unauthorized { .. } => {
                format!("give {name} its credential in the configuration, then call again")
            }
            Error::Lost { .. } => {
                "look whether it was done before you do it again; the server is started anew when it is next called".to_owned()
            }
            Error::Late { .. } => {
                "look whether it was done before you do it again, with a longer options.timeout_ms if need be".to_owned()
            }
            Error::Refused { .. } => format!(
                "gateway.describe says what the tool takes; gateway.catalog_search lists what {name} has"
            ),
            Error::Unanswered { .. } => return error.into(),
            Error::Unusable { .. } => {
                format!("gateway.restart_server {{\"server_name\":\"{name}\"}} starts it anew")
            }
        };
        let auth = self.wanted(&error);
        let hint = match &auth {
            Some(auth) if auth.is_callers() => {
                "ask the user to open the url of url_elicitations, then call again".to_owned()
            }
            _ => hint,
        };
        let fault = error.into_fault();
        if fault.code() == Code::MissingCapability {
            return fault;
        }
        let fault = fault.with_hint(hint);
        match auth {
            Some(auth) => fault.with(Detail::Auth, json!(auth)),
            None => fault,
        }
    }

    /// The fault of a call that was not sent, because the server took too long to get ready for it.
    pub(crate) fn not_ready(&self, within: Duration) -> Fault {
        let name = self.name();
        let why = format!(
            "{name} did not get ready within {} s; nothing was sent to it",
            within.as_secs_f64()
        );
        Fault::new(Code::SourceUnavailable, why).with_hint(format!(
            "its start goes on: call again, with a longer options.timeout_ms if need be; gateway.health {{\"server\":\"{name}\"}} shows how it is"
        ))
    }

    fn held_back(&self, withheld: &Withheld) -> Fault {
        let name = self.name();
        match withheld {
            Withheld::Untrusted => {
                let why = format!("{name} comes from a project's file, and nobody has approved it");
                Fault::new(Code::SourceUnavailable, why)
                    .with_hint(format!("ask the user to run `rung gateway trust {name}`"))
            }
            Withheld::Missing(variables) => {
                let auth = Auth::missing(variables, &self.written().sign_in);
                let variables = variables.join(", ");
                let why = format!("{name} needs variables that have no value: {variables}");
                Fault::new(Code::SourceUnauthorized, why)
                    .with_hint(format!("ask the user to set {variables}, then call again"))
                    .with(Detail::Auth, json!(auth))
            }
            Withheld::Unusable(why) => Fault::new(
                Code::SourceUnavailable,
                format!("{name} cannot be reached: {why}"),
            )
            .with_hint("ask the user to correct its entry in the configuration"),
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

/// Has a server of the modern era tell of its lists, for as long as it can be heard. Others do so unasked.
fn hear_of_lists(connection: &Connection) {
    let connection = connection.clone();
    let wanted = Wanted {
        tools_list_changed: true,
        prompts_list_changed: true,
        resources_list_changed: true,
        ..Wanted::default()
    };
    tokio::spawn(async move {
        let _until_it_cannot_be_heard = connection.listen(&wanted).await;
    });
}

/// Hears what belongs to no call.
struct Ear {
    server: Weak<Server>,
    can: Capabilities,
}

impl Delegate for Ear {
    fn can(&self) -> Capabilities {
        self.can
    }

    fn told(&self, method: &str, params: Option<&RawValue>) {
        let Some(server) = self.server.upgrade() else {
            return;
        };
        match method {
            "notifications/tools/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/prompts/list_changed" => server.heard_of_change(),
            "notifications/resources/updated" => {
                #[derive(serde::Deserialize)]
                struct Updated {
                    uri: String,
                }
                let params = params.map_or("{}", RawValue::get);
                if let Ok(updated) = serde_json::from_str::<Updated>(params) {
                    let with_server = crate::resources::with_server(server.name(), &updated.uri);
                    server.common.changes.tell(Change::Resource(with_server));
                    server.common.changes.tell(Change::Resource(updated.uri));
                }
            }
            _ => {}
        }
    }
}

impl Server {
    /// Its lists are others now: they are read again, once, however often it says so meanwhile.
    fn heard_of_change(self: &Arc<Self>) {
        let instances: Vec<_> = self
            .instances
            .lock()
            .iter()
            .map(|(whose, instance)| (whose.clone(), instance.clone()))
            .collect();
        for (_, instance) in instances {
            if instance.connection.opened_with().is_none()
                || instance.stale.swap(true, Ordering::AcqRel)
            {
                continue;
            }
            instance.busy.fetch_add(1, Ordering::AcqRel);
            let used = InUse {
                server: self.clone(),
                instance,
            };
            self.look_behind(used);
        }
    }
}
