//! All servers behind the door, as one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use data_encoding::HEXLOWER;
use parking_lot::{Mutex, RwLock};
use rung_auth::{Access, Permit};
use rung_fault::{Code, Detail, Fault};
use rung_kv::Records;
use rung_mcp::connect::Target;
use rung_tool::{Call, Change, Changes, Keep, Names};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::calls::Calls;
use crate::catalogue::Catalogue;
use crate::definition::{Definition, Withheld};
use crate::direct::Surface;
use crate::guidance::Guidance;
use crate::lately::Lately;
use crate::metrics::Metrics;
use crate::policy::{Rule, Thing, Verdict};
use crate::ranking::{Document, Index};
use crate::redact::Masks;
use crate::registry::Registry;
use crate::seen::Known;
use crate::server::{Common, Server};
use crate::sight::{Disclosure, Rules};
use crate::tasks::Tasks;
use crate::tools::{self, is_for_operators};

/// What an agent is told of other servers.
const INSTRUCTIONS: &str = "\
Tools of other servers are behind gateway.catalog_search (find by what they do), gateway.describe (what one takes) and gateway.invoke (call it by \
its tool_id, server::tool). Servers start by themselves.\n";

/// How the gateway behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a server may take to start.
    pub opening: Duration,
    /// How long a server that nobody uses stays.
    pub idle: Duration,
    /// Servers that are started at once, where several are.
    pub starts: usize,
    /// How long a call may take, whatever its caller says.
    pub longest: Option<Duration>,
    /// How many tokens a text has.
    pub count_tokens: fn(&str) -> usize,
    /// How servers are shown.
    pub surface: Surface,
    /// Whether the tools that find servers' tools are there while there is no server.
    pub shown_empty: bool,
    /// The address of a registry in which servers are published, where one may be asked.
    pub registry: Option<String>,
}

/// What is configured, at one moment.
pub struct Configuration {
    /// The servers.
    pub definitions: Vec<Definition>,
    /// Entries that are no servers, and why.
    pub skipped: Vec<Skipped>,
    /// What is wrong with the files.
    pub problems: Vec<String>,
    /// Who sees what.
    pub rules: Rules,
    /// How much advice is given.
    pub guidance: Guidance,
}

/// An entry of a file that is no server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub file: String,
    /// Why it is none.
    pub why: String,
}

/// Where the configuration comes from.
pub trait Configure: Send + Sync {
    /// Reads it. What is wrong in a file that says who sees what is a fault: then what held before goes on to hold.
    fn load(&self) -> Result<Configuration, Fault>;

    /// Whether anything was edited since it was last read, found out cheaply.
    fn is_edited(&self) -> bool;

    /// Where it is read, and who sees what by it: whoever reads elsewhere, or other rules, has another one, now or after an edit.
    fn read_from(&self) -> String;
}

/// The servers, for whoever runs them.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The servers.
    pub servers: Vec<Row>,
    /// What is wrong with the files.
    pub problems: Vec<String>,
}

/// One server, for whoever runs it.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Where it is written.
    pub from: String,
    /// When it is started.
    pub start: &'static str,
    /// How many tools it was seen to have.
    pub tools: Option<usize>,
    /// How it is.
    pub state: String,
    /// Why it is not started, in one word, where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_skip_reason: Option<&'static str>,
    /// What is run or asked, as it is written.
    pub runs: String,
}

/// All servers. Cheap to clone.
#[derive(Clone)]
pub struct Gateway(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) keep: Arc<dyn Keep>,
    pub(crate) calls: Calls,
    pub(crate) tasks: Tasks,
    pub(crate) common: Arc<Common>,
    pub(crate) registry: Option<Arc<Registry>>,
    pub(crate) metrics: Metrics,
    pub(crate) lately: Lately,
    configure: Box<dyn Configure>,
    state: RwLock<Arc<State>>,
    shelf: Mutex<Option<Arc<Shelf>>>,
    /// Held while the configuration is read.
    reloading: tokio::sync::Mutex<()>,
    revision: AtomicU64,
    pub(crate) refreshed_ms: AtomicU64,
}

/// What holds at one moment.
pub(crate) struct State {
    pub(crate) servers: BTreeMap<Arc<str>, Arc<Server>>,
    pub(crate) rules: Rules,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) problems: Vec<String>,
    pub(crate) guidance: Guidance,
}

/// How long somebody waits for servers that nobody has looked at.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked after what is to be done.
const EVERY: Duration = Duration::from_secs(1);

/// A start that takes longer than this is waited for by nobody who has something else to do.
pub(crate) const LONG: Duration = Duration::from_secs(2);

/// What a caller who names a server that is not there can do.
pub(crate) const LIST_SERVERS: &str = "gateway.health lists your servers";

/// A server that is configured and cannot be used, as far as a caller may know it.
pub(crate) struct Unavailable {
    pub(crate) name: String,
    pub(crate) reason: String,
    /// Where that is said, for the local process.
    pub(crate) file: Option<String>,
    /// Whether the operator's policy is the reason.
    pub(crate) is_denied: bool,
}

impl Unavailable {
    pub(crate) fn into_fault(self) -> Fault {
        let file = self.file.map(|file| format!(" ({file})"));
        let why = format!(
            "{} is configured and cannot be used: {}{}",
            self.name,
            self.reason,
            file.unwrap_or_default()
        );
        let hint = if self.is_denied {
            "ask the operator to allow it, or do without it"
        } else {
            "ask the user to correct its entry in the configuration, then call again"
        };
        Fault::new(Code::SourceUnavailable, why).with_hint(hint)
    }
}

/// All tools that are known, as they can be searched.
pub(crate) struct Shelf {
    pub(crate) tools: Vec<(Arc<Server>, Arc<Known>)>,
    pub(crate) index: Index,
    generation: u64,
}

impl Gateway {
    /// The gateway to what `configure` names. What servers offer is noted in `records`, and what does not fit a reply goes to
    /// `keep`.
    pub fn new(
        options: Options,
        configure: Box<dyn Configure>,
        records: Records,
        keep: Arc<dyn Keep>,
    ) -> Result<Self, Fault> {
        // Where tools are not found by ours, there is nobody to tell of it.
        let registry = options.registry.as_deref();
        let registry = registry.filter(|_| options.surface == Surface::Meta);
        let registry = registry.map(|address| Registry::new(address, records.clone()));
        let common = Arc::new(Common {
            catalogue: Catalogue::new(records),
            changes: Changes::default(),
            opening: options.opening,
            surface: options.surface,
            generation: AtomicU64::new(0),
        });
        let configuration = configure.load()?;
        let state = State::of(configuration, &common, None);
        Ok(Self(Arc::new(Inner {
            options,
            keep,
            calls: Calls::default(),
            tasks: Tasks::default(),
            registry: registry.transpose()?,
            metrics: Metrics::default(),
            lately: Lately::default(),
            common,
            configure,
            state: RwLock::new(Arc::new(state)),
            shelf: Mutex::default(),
            reloading: tokio::sync::Mutex::default(),
            revision: AtomicU64::new(1),
            refreshed_ms: AtomicU64::new(crate::now_ms()),
        })))
    }

    /// Has its calls counted, for whoever watches.
    pub fn count_in(&self, registry: &mut prometheus_client::registry::Registry) {
        self.0.metrics.register(registry);
    }

    /// Where it is told that something else is offered now.
    pub fn changes(&self) -> Changes {
        self.0.common.changes.clone()
    }

    /// Whether there is any server at all.
    pub fn is_empty(&self) -> bool {
        self.state().servers.is_empty()
    }

    /// Whether there is anything to be told of it: a server, or tools that are there without any.
    pub fn is_shown(&self) -> bool {
        self.0.options.shown_empty || !self.is_empty()
    }

    /// What somebody is told before they call anything, by the names that they know tools by: nothing, where they call none.
    pub fn instructions(&self, permit: &Permit, names: Names) -> String {
        if !self.is_called_by(permit) {
            return String::new();
        }
        let told = match names {
            Names::Dotted => INSTRUCTIONS.to_owned(),
            Names::Plain => INSTRUCTIONS.replace("gateway.", "gateway_"),
        };
        told + &self.state().guidance.instructions()
    }

    /// Whether somebody calls servers' tools by ours.
    pub(crate) fn is_called_by(&self, permit: &Permit) -> bool {
        let invoke = Thing::GatewayTool(tools::INVOKE);
        self.0.options.surface == Surface::Meta
            && self.is_shown()
            && self.state().sees(permit, invoke)
    }

    /// The names of all servers.
    pub fn names(&self) -> Vec<String> {
        let state = self.state();
        state.servers.keys().map(ToString::to_string).collect()
    }

    pub(crate) fn state(&self) -> Arc<State> {
        self.0.state.read().clone()
    }

    /// What is wrong with the files and the registry, and what of the files was left out, with its reason.
    /// Entries are named only to a caller who learns of them with their file.
    pub(crate) fn problems(&self, state: &State, permit: &Permit) -> Vec<String> {
        let skipped = state.skipped.iter().filter(|entry| {
            Rules::disclosure(permit, &entry.name) == Some(Disclosure::ReasonAndFile)
        });
        let skipped =
            skipped.map(|entry| format!("{} in {}: {}", entry.name, entry.file, entry.why));
        let registry = self
            .0
            .registry
            .as_ref()
            .and_then(|registry| registry.problem());
        let registry = registry.map(|why| format!("the registry could not be read: {why}"));
        let files = state.problems.iter().cloned();
        files.chain(skipped).chain(registry).collect()
    }

    pub(crate) fn revision(&self) -> String {
        format!("{:x}", self.0.revision.load(Ordering::Relaxed))
    }

    /// Looks after the servers for as long as it is polled: starts those that are to be started, stops those that nobody uses,
    /// and takes up edits.
    pub async fn tend(&self) {
        tokio::join!(self.tend_registry(), self.tend_servers());
    }

    /// Keeps the copy of the registry fresh, from when somebody can search it on.
    async fn tend_registry(&self) {
        let Some(registry) = self.0.registry.clone() else {
            return;
        };
        while !self.is_shown() {
            tokio::time::sleep(EVERY).await;
        }
        registry.keep_fresh().await;
    }

    async fn tend_servers(&self) {
        self.look_at(self.state().eager().cloned());
        loop {
            tokio::time::sleep(EVERY).await;
            for server in self.state().servers.values() {
                server.sweep(self.0.options.idle);
            }
            self.0.tasks.sweep();
            self.take_up_edits().await;
        }
    }

    /// Reads the configuration again where it was edited since.
    pub async fn take_up_edits(&self) {
        if self.0.configure.is_edited()
            && let Err(fault) = self.reload().await
        {
            tracing::warn!(%fault, "an edit of the configuration is refused; what held before holds");
        }
    }

    /// Ends every server.
    pub async fn shut_down(&self) {
        for server in self.state().servers.values() {
            server.close().await;
        }
    }

    /// Reads the configuration again. What did not change goes on; what did is another server from the next call on.
    pub(crate) async fn reload(&self) -> Result<(), Fault> {
        let _one_at_a_time = self.0.reloading.lock().await;
        let configuration = self.0.configure.load()?;
        let before = self.state();
        let eager_before: Vec<_> = before.eager().cloned().collect();
        let after = State::of(configuration, &self.0.common, Some(&before));
        let gone: Vec<_> = before
            .servers
            .values()
            .filter(|old| {
                let new = after.servers.get(old.name());
                new.is_none_or(|new| !Arc::ptr_eq(old, new))
            })
            .cloned()
            .collect();
        let eager: Vec<_> = after
            .eager()
            .filter(|new| eager_before.iter().all(|old| !Arc::ptr_eq(old, new)))
            .cloned()
            .collect();
        let options = &self.0.options;
        // Where they are the servers' own, all of them are told of anyway.
        let tools_change = options.surface == Surface::Meta
            && !options.shown_empty
            && before.servers.is_empty() != after.servers.is_empty();
        *self.0.state.write() = Arc::new(after);
        self.0.common.generation.fetch_add(1, Ordering::Relaxed);
        self.0.revision.fetch_add(1, Ordering::Relaxed);
        self.0
            .refreshed_ms
            .store(crate::now_ms(), Ordering::Relaxed);
        for server in gone {
            server.retire();
        }
        self.look_at(eager);
        self.0.common.tell_all();
        if tools_change {
            self.0.common.changes.tell(Change::Tools);
        }
        Ok(())
    }

    /// Has servers start and say what they offer, a few at a time and behind everybody's back. One that takes long holds up nobody.
    pub(crate) fn look_at(&self, servers: impl IntoIterator<Item = Arc<Server>>) {
        let places = Arc::new(tokio::sync::Semaphore::new(self.0.options.starts.max(1)));
        for server in servers {
            if !server.reserve_listing() {
                continue;
            }
            let places = places.clone();
            tokio::spawn(async move {
                // The semaphore is never closed.
                let place = places.acquire().await;
                let mut listing = std::pin::pin!(server.list_reserved());
                if tokio::time::timeout(LONG, &mut listing).await.is_err() {
                    drop(place);
                    listing.await;
                }
            });
        }
    }

    /// Servers that nobody has seen yet and that may be started.
    pub(crate) fn unseen(&self, permit: &Permit) -> Vec<Arc<Server>> {
        let state = self.state();
        let servers = state.servers.values();
        let unseen = servers.filter(|server| {
            server.definition.withheld.is_none()
                && server.seen().is_none()
                && state.sees(permit, Thing::Server(server.name()))
        });
        unseen.cloned().collect()
    }

    /// Waits until everything that somebody may see was looked at once, or could not be; but not for ever on one that hangs.
    pub(crate) async fn see_all(&self, permit: &Permit) {
        let _nothing_in_particular = self.find(permit, |_| None::<()>).await;
    }

    /// What `find` finds: in what is known, or else in what nobody has looked at, as soon as it is seen there.
    pub(crate) async fn find<T>(
        &self,
        permit: &Permit,
        find: impl Fn(&State) -> Option<T>,
    ) -> Option<T> {
        if let Some(found) = find(&self.state()) {
            return Some(found);
        }
        let unseen = self.unseen(permit).into_iter();
        let (failed, fresh): (Vec<_>, Vec<_>) =
            unseen.partition(|server| server.trouble().is_some());
        self.look_at(failed);
        self.look_at(fresh.iter().cloned());
        // Only the waiting ends with this, never a look.
        let mut looks = JoinSet::new();
        for server in fresh {
            looks.spawn(async move { server.listed().await });
        }
        let looked = async {
            while looks.join_next().await.is_some() {
                if let Some(found) = find(&self.state()) {
                    return Some(found);
                }
            }
            None
        };
        tokio::time::timeout(PATIENCE, looked).await.ok().flatten()
    }

    /// Has servers that were never listed list what they have, and waits for each of them: as long as the caller says that it
    /// waits, else for two seconds from when its listing began. So the first search finds tools, and the next one is not held up again
    /// by a server that hangs.
    pub(crate) async fn list_unseen(&self, call: &Call, wanted: impl Fn(&Server) -> bool) {
        let mut unseen = self.unseen(&call.permit);
        unseen.retain(|server| wanted(server));
        self.look_at(unseen.iter().cloned());
        let asked_for = call.wait.map(|wait| Instant::now() + wait);
        let mut waits = JoinSet::new();
        for server in unseen {
            if let Some(since) = server.listing_since() {
                let until = asked_for.unwrap_or(since + LONG);
                waits.spawn(async move { timeout_at(until, server.listed()).await });
            }
        }
        while waits.join_next().await.is_some() {}
    }

    /// Waits for a list that is meant to be whole. Where tools find what servers have, lists tell what is known, at once.
    pub(crate) async fn see_to_list(&self, permit: &Permit) {
        if self.0.options.surface == Surface::Direct {
            self.see_all(permit).await;
        }
    }

    /// All tools that are known, as they can be searched.
    pub(crate) fn shelf(&self) -> Arc<Shelf> {
        let generation = self.0.common.generation.load(Ordering::Relaxed);
        let mut last = self.0.shelf.lock();
        match &*last {
            Some(last) if last.generation == generation => last.clone(),
            _ => {
                let made = Arc::new(Shelf::of(&self.state(), generation));
                *last = Some(made.clone());
                made
            }
        }
    }

    /// The server of that name, where the caller may see it.
    pub(crate) fn server(&self, permit: &Permit, name: &str) -> Result<Arc<Server>, Fault> {
        let state = self.state();
        let seen = |name: &str| state.sees(permit, Thing::Server(name));
        if let Some(server) = state.servers.get(name).filter(|_| seen(name)) {
            return Ok(server.clone());
        }
        if let Some(unavailable) = state.unavailable(permit, name) {
            return Err(unavailable.into_fault());
        }
        let known: Vec<&str> = state
            .servers
            .keys()
            .map(|name| &**name)
            .filter(|name| seen(name))
            .collect();
        let shown = rung_ladder::head(name, 64);
        // None is proposed: what is meant for one server must not be done at another.
        Err(
            Fault::new(Code::UnknownServer, format!("no server is named {shown:?}"))
                .with_hint(LIST_SERVERS)
                .with(Detail::Allowed, known),
        )
    }

    /// Every server that a caller may see, each with its state in a few words.
    pub fn servers(&self, permit: &Permit) -> Vec<(String, String)> {
        let state = self.state();
        let seen = state.servers.values();
        let seen = seen.filter(|server| state.sees(permit, Thing::Server(server.name())));
        let mut all: Vec<(String, String)> = seen
            .map(|server| {
                let tools = server.seen();
                let tools = tools.map(|seen| state.tools_of(permit, server, &seen).count());
                let tools = tools.map_or_else(
                    || "tools not listed yet".to_owned(),
                    |tools| format!("{tools} tools"),
                );
                let status = server.status().name();
                (
                    server.name().to_string(),
                    format!("MCP server, {status}, {tools}"),
                )
            })
            .collect();
        let unavailable = state.unavailable_to(permit).into_iter();
        all.extend(unavailable.map(|one| {
            let what = format!("MCP server, not available: {}", one.reason);
            (one.name, what)
        }));
        all.sort_unstable();
        all
    }

    /// Stands for all servers as they are reached, for who sees what of them, and for what else is said: whoever has the same
    /// serves the same.
    pub fn digest(&self, beside: &str) -> String {
        let state = self.state();
        let all = state.servers.values().map(|server| &server.definition);
        let homeless = |definition: &Definition| matches!(&definition.target, Target::Command(command) if command.dir.is_none());
        // Such servers run where we do.
        let here = all.clone().any(homeless).then(std::env::current_dir);
        let here = here.and_then(Result::ok);
        let servers = all.map(|definition| {
            (
                &definition.name,
                &definition.digest,
                &definition.withheld,
                definition.edit_waits,
                definition.eager,
            )
        });
        let servers: Vec<_> = servers.collect();
        let all = (beside, self.0.configure.read_from(), here, servers);
        HEXLOWER.encode(&Sha256::digest(format!("{all:?}")))
    }

    /// Whether calling one of our tools twice is calling it once, as far as we know: it only reads, or it calls what does.
    pub fn is_repeatable(&self, name: &str, arguments: &str) -> bool {
        let name = name.replacen('_', ".", usize::from(name.starts_with("gateway_")));
        if name != tools::INVOKE {
            return tools::only_reads(&name);
        }
        let member = |name: &str| rung_mcp::splice::member(arguments, name);
        let id = member("tool_id").and_then(|id| serde_json::from_str::<String>(id.get()).ok());
        let state = self.state();
        let known = id.as_deref().and_then(|id| id.split_once("::"));
        let known = known.and_then(|(server, tool)| {
            let server = state.servers.get(server)?;
            state.tool_of(server, tool)
        });
        member("task").is_none() && known.is_some_and(|known| known.repeatable)
    }

    /// The servers, for whoever runs them.
    pub fn report(&self) -> Report {
        let state = self.state();
        // What is written may have a credential in it that no rule knows.
        let masks = Masks {
            usual: true,
            ..state.rules.masks()
        };
        let masked = |text: String| masks.text(&text).into_owned();
        let row = |server: &Arc<Server>| {
            let definition = &server.definition;
            let written = server.written();
            let denied = state.denial(server.name());
            Row {
                name: server.name().to_string(),
                start: written.start(),
                from: written.file.map_or_else(
                    || written.origin.to_owned(),
                    |file| file.display().to_string(),
                ),
                tools: server.seen().map(|seen| seen.tools.len()),
                startup_skip_reason: match &definition.withheld {
                    _ if denied.is_some() => Some("policy_denied"),
                    Some(Withheld::Missing(_)) => Some("missing_auth"),
                    _ => None,
                },
                state: masked(
                    denied.map_or_else(|| server.how(), |rule| format!("denied by {rule}")),
                ),
                runs: masked(definition.shown.clone()),
            }
        };
        Report {
            servers: state.servers.values().map(row).collect(),
            problems: self
                .problems(&state, &Permit::local_user(Access::Read))
                .into_iter()
                .map(masked)
                .collect(),
        }
    }

    /// Whether something is there at all, where it is not.
    pub fn how(&self, thing: Thing<'_>) -> Option<String> {
        let server = match thing {
            Thing::GatewayTool(_) => return None,
            Thing::Server(server)
            | Thing::Tool { server, .. }
            | Thing::Resource { server, .. }
            | Thing::Prompt { server, .. } => server,
        };
        let state = self.state();
        let Some(server) = state.servers.get(server) else {
            return Some("no server has that name".to_owned());
        };
        if server.definition.withheld.is_some() {
            return Some(server.how());
        }
        match (thing, server.seen()) {
            (Thing::Server(_), _) => None,
            (_, None) => Some("its server has not been seen yet".to_owned()),
            (Thing::Tool { tool, .. }, Some(seen)) if seen.tool(tool).is_none() => {
                Some("its server was not seen to have it".to_owned())
            }
            _ => None,
        }
    }

    /// Whether something is there for somebody, and why or why not, in words.
    pub fn why(&self, permit: &Permit, thing: Thing<'_>) -> (bool, String) {
        let state = self.state();
        let decision = state.rules.decide(permit, thing);
        let hidden = match thing {
            _ if !decision.is_allowed() => None,
            Thing::GatewayTool(name) => {
                let kept_from = is_for_operators(name) && !state.rules.may_operate(permit);
                kept_from.then(|| {
                    "denied: such callers do not start and stop what others use".to_owned()
                })
            }
            Thing::Tool { server, tool } => state.crowded_out(server, tool).map(|most| {
                format!(
                    "denied: limits.max_tools_per_server lets {most} of its server's tools through, and it is not among them"
                )
            }),
            _ => None,
        };
        match hidden {
            Some(why) => (false, why),
            None => (decision.is_allowed(), decision.to_string()),
        }
    }
}

impl State {
    /// The state of a configuration. Servers that are as they were are those that were.
    fn of(configuration: Configuration, common: &Arc<Common>, before: Option<&Self>) -> Self {
        let server = |definition: Definition| {
            let old = before.and_then(|before| before.servers.get(&definition.name));
            let denied = configuration
                .rules
                .policy
                .verdict(Thing::Server(&definition.name));
            // What is denied now ends, as what is gone does.
            let old = old.filter(|_| denied.is_allowed());
            let same = old.filter(|old| {
                let old = &old.definition;
                old.digest == definition.digest
                    && old.withheld == definition.withheld
                    && old.sharing == definition.sharing
            });
            let server = match same {
                Some(old) => {
                    old.rewrite(&definition);
                    old.clone()
                }
                None => Server::new(definition, common.clone()),
            };
            (server.name().clone(), server)
        };
        let servers = configuration.definitions.into_iter().map(server).collect();
        for problem in &configuration.problems {
            tracing::warn!("{problem}");
        }
        Self {
            servers,
            rules: configuration.rules,
            skipped: configuration.skipped,
            problems: configuration.problems,
            guidance: configuration.guidance,
        }
    }

    pub(crate) fn sees(&self, permit: &Permit, thing: Thing<'_>) -> bool {
        self.rules.decide(permit, thing).is_allowed()
    }

    /// Why a server that is configured cannot be used by anyone; `None` where it can, where there is none, and where the caller is not
    /// to know of it.
    pub(crate) fn unavailable(&self, permit: &Permit, name: &str) -> Option<Unavailable> {
        let disclosure = Rules::disclosure(permit, name)?;
        let usable = self.servers.contains_key(name);
        // The strongest file comes first.
        let skipped = self.skipped.iter().find(|entry| entry.name == name);
        let (reason, file, is_denied) = match (self.denial(name), skipped) {
            (Some(rule), _) if usable || skipped.is_some() => {
                let reason = "the operator's policy denies it".to_owned();
                (reason, rule.to_string(), true)
            }
            (None, Some(entry)) if !usable => (entry.why.clone(), entry.file.clone(), false),
            _ => return None,
        };
        Some(Unavailable {
            name: name.to_owned(),
            reason,
            file: (disclosure == Disclosure::ReasonAndFile).then_some(file),
            is_denied,
        })
    }

    /// All such servers that a caller learns of, by name.
    pub(crate) fn unavailable_to(&self, permit: &Permit) -> Vec<Unavailable> {
        let skipped = self.skipped.iter().map(|entry| entry.name.as_str());
        let names: BTreeSet<&str> = self
            .servers
            .keys()
            .map(|name| &**name)
            .chain(skipped)
            .collect();
        let all = names.into_iter();
        all.filter_map(|name| self.unavailable(permit, name))
            .collect()
    }

    /// The rule by which a server is nobody's, where there is one.
    pub(crate) fn denial(&self, server: &str) -> Option<Rule<'_>> {
        match self.rules.policy.verdict(Thing::Server(server)) {
            Verdict::Denied(rule) => Some(rule),
            Verdict::Allowed(_) => None,
        }
    }

    /// Servers that are started before anybody needs them.
    fn eager(&self) -> impl Iterator<Item = &Arc<Server>> {
        let servers = self.servers.values();
        servers.filter(|server| server.written().eager && self.denial(server.name()).is_none())
    }

    fn most_tools(&self) -> usize {
        let most = self.rules.policy.limits().max_tools_per_server;
        most.map_or(usize::MAX, |most| {
            usize::try_from(most).unwrap_or(usize::MAX)
        })
    }

    /// How many tools its server may have, where it has this one and more than that before it.
    fn crowded_out(&self, server: &str, tool: &str) -> Option<usize> {
        let server = self.servers.get(server)?;
        server.seen()?.tool(tool)?;
        let hidden = self.tool_of(server, tool).is_none();
        hidden.then(|| self.most_tools())
    }

    /// The tool of that name, where its server was seen to have it and may have as many.
    pub(crate) fn tool_of(&self, server: &Server, name: &str) -> Option<Arc<Known>> {
        let seen = server.seen()?;
        let mut tools = seen.tools.iter().take(self.most_tools());
        tools.find(|known| *known.tool.name == *name).cloned()
    }

    /// The tools of a server that somebody sees: those that are allowed, as many as a server may have.
    pub(crate) fn tools_of<'a>(
        &'a self,
        permit: &'a Permit,
        server: &'a Server,
        seen: &'a crate::seen::Seen,
    ) -> impl Iterator<Item = &'a Arc<Known>> {
        let tools = seen.tools.iter().take(self.most_tools());
        tools.filter(|known| {
            let (server, tool) = (&**server.name(), &*known.tool.name);
            self.sees(permit, Thing::Tool { server, tool })
        })
    }
}

impl Shelf {
    fn of(state: &State, generation: u64) -> Self {
        let mut tools = Vec::new();
        for server in state.servers.values() {
            let Some(seen) = server.seen() else { continue };
            let each = seen.tools.iter().take(state.most_tools());
            tools.extend(each.map(|known| (server.clone(), known.clone())));
        }
        let arguments: Vec<Vec<(&str, &str)>> = tools
            .iter()
            .map(|(_, known)| arguments(&known.tool.input_schema))
            .collect();
        let documents = tools.iter().zip(&arguments);
        let index = Index::of(documents.map(|((server, known), arguments)| Document {
            server: server.name(),
            name: &known.tool.name,
            title: known.title.as_deref().unwrap_or_default(),
            description: &known.description,
            arguments,
        }));
        Self {
            tools,
            index,
            generation,
        }
    }
}

/// The arguments of a tool, with what is said of them.
fn arguments(schema: &serde_json::Value) -> Vec<(&str, &str)> {
    let properties = schema["properties"].as_object();
    let each = properties.into_iter().flatten();
    each.map(|(name, argument)| {
        (
            name.as_str(),
            argument["description"].as_str().unwrap_or(""),
        )
    })
    .collect()
}
