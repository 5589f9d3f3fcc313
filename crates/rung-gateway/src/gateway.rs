//! The gateway: all downstream servers, their configuration and the index of their tools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use data_encoding::HEXLOWER;
use parking_lot::{Mutex, RwLock};
use rung_auth::{Access, Permit};
use rung_fault::{Code, Detail, Fault};
use rung_kv::RecordTable;
use rung_mcp::connect::ServerTarget;
use rung_tool::{Call, Change, ChangeSender, NameStyle, ResultSink};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::access::{AccessPolicy, Disclosure};
use crate::call_history::CallHistory;
use crate::calls::CallRegistry;
use crate::catalog::CatalogTool;
use crate::catalog_store::CatalogStore;
use crate::definition::{ServerDefinition, WithheldReason};
use crate::direct::Surface;
use crate::guidance::Guidance;
use crate::metrics::CallMetrics;
use crate::policy::{MatchedRule, PolicySubject, Verdict};
use crate::ranking::{DocumentIndex, IndexedDocument};
use crate::redact::CallerRedactor;
use crate::registry::Registry;
use crate::server::{Server, ServerContext};
use crate::tasks::TaskRegistry;
use crate::tools::{self, is_for_operators};

/// The instructions that a client gets about downstream servers.
const INSTRUCTIONS: &str = "\
To use tools of other servers, call gateway.catalog_search (find them by what they do), gateway.describe (show their arguments) and \
gateway.invoke (call one by its tool_id, server::tool). Servers start automatically.\n";

#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Start timeout of a server.
    pub start_timeout: Duration,
    /// Time after which an unused server is stopped.
    pub idle_timeout: Duration,
    /// Number of servers that are started concurrently.
    pub max_starts: usize,
    /// Upper bound for the timeout that a caller asks for.
    pub max_call_duration: Option<Duration>,
    pub surface: Surface,
    /// True if the `gateway.*` tools are listed while no server is configured.
    pub shown_empty: bool,
    /// URL of a registry of published servers; `None` turns the registry off.
    pub registry_url: Option<String>,
}

/// The configuration as read at one time.
pub struct Configuration {
    pub definitions: Vec<ServerDefinition>,
    /// Configuration entries that define no usable server.
    pub skipped: Vec<SkippedServer>,
    /// Problems found in the configuration files.
    pub problems: Vec<String>,
    pub access: AccessPolicy,
    pub guidance: Guidance,
}

/// A configuration entry that defines no usable server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedServer {
    pub name: String,
    /// The file that contains the entry.
    pub file: String,
    pub reason: String,
}

/// Source of the configuration.
pub trait LoadConfiguration: Send + Sync {
    /// Reads the configuration. An error in a policy file is a fault; the caller then keeps the previous configuration.
    fn load(&self) -> Result<Configuration, Fault>;

    /// Returns true if a file was edited since the last load. Must be cheap: it is called every second.
    fn is_edited(&self) -> bool;

    /// Identifies the files that are read and the access rules in them. Differs as soon as either differs, also after an edit.
    fn fingerprint(&self) -> String;
}

/// The state of all servers, for `rung gateway status`.
#[derive(Debug, Serialize)]
pub struct StatusReport {
    pub servers: Vec<ServerReport>,
    /// Problems found in the configuration files.
    pub problems: Vec<String>,
}

/// The state of one server, for `rung gateway status`.
#[derive(Debug, Serialize)]
pub struct ServerReport {
    pub name: String,
    /// The configuration file, or the origin if there is none.
    pub from: String,
    /// `eager` or `lazy`.
    pub start: &'static str,
    /// Number of tools in its catalog; `None` if it was never listed.
    pub tools: Option<usize>,
    pub state: String,
    /// `policy_denied` or `missing_auth` if that is why the server is not started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_skip_reason: Option<&'static str>,
    /// The command or URL as configured, with secrets masked.
    pub runs: String,
}

/// The gateway to all configured servers. Cheap to clone.
#[derive(Clone)]
pub struct Gateway(pub(crate) Arc<GatewayInner>);

pub(crate) struct GatewayInner {
    pub(crate) options: GatewayOptions,
    pub(crate) result_sink: Arc<dyn ResultSink>,
    pub(crate) calls: CallRegistry,
    pub(crate) tasks: TaskRegistry,
    pub(crate) context: Arc<ServerContext>,
    pub(crate) registry: Option<Arc<Registry>>,
    pub(crate) metrics: CallMetrics,
    pub(crate) call_history: CallHistory,
    configure: Box<dyn LoadConfiguration>,
    state: RwLock<Arc<GatewayState>>,
    tool_index: Mutex<Option<Arc<ToolIndex>>>,
    /// Held during a reload.
    reload_lock: tokio::sync::Mutex<()>,
    revision: AtomicU64,
    pub(crate) refreshed_ms: AtomicU64,
}

/// The configuration that is in effect; a reload replaces it whole.
pub(crate) struct GatewayState {
    pub(crate) servers: BTreeMap<Arc<str>, Arc<Server>>,
    pub(crate) access: AccessPolicy,
    pub(crate) skipped: Vec<SkippedServer>,
    pub(crate) problems: Vec<String>,
    pub(crate) guidance: Guidance,
}

/// Longest wait for servers that were never listed.
const LISTING_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval of the maintenance loop.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);

/// A start or listing that takes longer than this no longer holds up work that can go on without it.
pub(crate) const SLOW_START: Duration = Duration::from_secs(2);

/// Hint for a caller that names an unknown server.
pub(crate) const LIST_SERVERS_HINT: &str = "gateway.health lists your servers";

/// A configured server that cannot be used, reduced to what the caller may learn.
pub(crate) struct UnavailableServer {
    pub(crate) name: String,
    pub(crate) reason: String,
    /// The file or rule that is the reason; only for the local process.
    pub(crate) file: Option<String>,
    /// True if the operator's policy is the reason.
    pub(crate) is_denied: bool,
}

impl UnavailableServer {
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

/// All catalog tools, with their search index.
pub(crate) struct ToolIndex {
    pub(crate) tools: Vec<(Arc<Server>, Arc<CatalogTool>)>,
    pub(crate) index: DocumentIndex,
    generation: u64,
}

impl Gateway {
    /// Creates a gateway to the servers that `configure` loads. Catalogs are stored in `records`; results that do not fit a reply
    /// go to `keep`.
    pub fn new(
        options: GatewayOptions,
        configure: Box<dyn LoadConfiguration>,
        records: RecordTable,
        keep: Arc<dyn ResultSink>,
    ) -> Result<Self, Fault> {
        // Only `gateway.catalog_search` reports registry candidates, and only the meta surface has it.
        let registry = options.registry_url.as_deref();
        let registry = registry.filter(|_| options.surface == Surface::Meta);
        let registry = registry.map(|address| Registry::new(address, records.clone()));
        let common = Arc::new(ServerContext {
            catalogs: CatalogStore::new(records),
            changes: ChangeSender::default(),
            start_timeout: options.start_timeout,
            surface: options.surface,
            generation: AtomicU64::new(0),
        });
        let configuration = configure.load()?;
        let state = GatewayState::from_configuration(configuration, &common, None);
        Ok(Self(Arc::new(GatewayInner {
            options,
            result_sink: keep,
            calls: CallRegistry::default(),
            tasks: TaskRegistry::default(),
            registry: registry.transpose()?,
            metrics: CallMetrics::default(),
            call_history: CallHistory::default(),
            context: common,
            configure,
            state: RwLock::new(Arc::new(state)),
            tool_index: Mutex::default(),
            reload_lock: tokio::sync::Mutex::default(),
            revision: AtomicU64::new(1),
            refreshed_ms: AtomicU64::new(crate::now_ms()),
        })))
    }

    /// Registers the call metrics.
    pub fn register_metrics(&self, registry: &mut prometheus_client::registry::Registry) {
        self.0.metrics.register(registry);
    }

    /// Returns the channel on which list changes are announced.
    pub fn changes(&self) -> ChangeSender {
        self.0.context.changes.clone()
    }

    /// Returns true if no server is configured.
    pub fn is_empty(&self) -> bool {
        self.state().servers.is_empty()
    }

    /// Returns true if clients are shown the gateway: a server is configured, or its tools are listed without one.
    pub fn is_shown(&self) -> bool {
        self.0.options.shown_empty || !self.is_empty()
    }

    /// Returns the instructions for a client, with tool names in its style. Empty if the permit cannot call `gateway.invoke`.
    pub fn instructions(&self, permit: &Permit, names: NameStyle) -> String {
        if !self.can_invoke(permit) {
            return String::new();
        }
        let told = match names {
            NameStyle::Dotted => INSTRUCTIONS.to_owned(),
            NameStyle::Plain => INSTRUCTIONS.replace("gateway.", "gateway_"),
        };
        told + &self.state().guidance.instructions()
    }

    /// Returns true if the permit calls downstream tools through `gateway.invoke`.
    pub(crate) fn can_invoke(&self, permit: &Permit) -> bool {
        let invoke = PolicySubject::GatewayTool(tools::INVOKE_TOOL);
        self.0.options.surface == Surface::Meta
            && self.is_shown()
            && self.state().is_visible(permit, invoke)
    }

    pub fn names(&self) -> Vec<String> {
        let state = self.state();
        state.servers.keys().map(ToString::to_string).collect()
    }

    pub(crate) fn state(&self) -> Arc<GatewayState> {
        self.0.state.read().clone()
    }

    /// Lists problems of the configuration files and the registry, and skipped entries with their reason. Only the local process
    /// learns file names; other callers learn how many problems the files have.
    pub(crate) fn problems(&self, state: &GatewayState, permit: &Permit) -> Vec<String> {
        let skipped = state.skipped.iter().filter(|entry| {
            AccessPolicy::disclosure(permit, &entry.name) == Some(Disclosure::ReasonAndFile)
        });
        let skipped =
            skipped.map(|entry| format!("{} in {}: {}", entry.name, entry.file, entry.reason));
        let registry = self
            .0
            .registry
            .as_ref()
            .and_then(|registry| registry.problem());
        let registry = registry.map(|why| format!("the registry cannot be read: {why}"));
        let files = if permit.is_local() || state.problems.is_empty() {
            state.problems.clone()
        } else {
            let many = state.problems.len();
            vec![format!(
                "configuration files have problems ({many}): ask the operator to run `rung gateway status`, which lists them"
            )]
        };
        files.into_iter().chain(skipped).chain(registry).collect()
    }

    pub(crate) fn revision(&self) -> String {
        format!("{:x}", self.0.revision.load(Ordering::Relaxed))
    }

    /// Maintains the gateway for as long as it is polled: starts eager servers, stops unused ones, reloads an edited
    /// configuration and refreshes the registry.
    pub async fn run_maintenance(&self) {
        tokio::join!(self.maintain_registry(), self.maintain_servers());
    }

    /// Keeps the registry's copy fresh, from the time at which clients are shown the gateway.
    async fn maintain_registry(&self) {
        let Some(registry) = self.0.registry.clone() else {
            return;
        };
        while !self.is_shown() {
            tokio::time::sleep(MAINTENANCE_INTERVAL).await;
        }
        registry.keep_fresh().await;
    }

    async fn maintain_servers(&self) {
        self.list_in_background(self.state().eager_servers().cloned());
        loop {
            tokio::time::sleep(MAINTENANCE_INTERVAL).await;
            for server in self.state().servers.values() {
                server.stop_idle_instances(self.0.options.idle_timeout);
            }
            self.0.tasks.sweep();
            self.reload_if_edited().await;
        }
    }

    /// Reloads the configuration if a file was edited. A failed reload is logged and keeps the previous configuration.
    pub async fn reload_if_edited(&self) {
        if self.0.configure.is_edited()
            && let Err(fault) = self.reload().await
        {
            tracing::warn!(%fault, "an edit of the configuration is rejected; the previous configuration stays in effect");
        }
    }

    /// Stops every server.
    pub async fn shut_down(&self) {
        for server in self.state().servers.values() {
            server.close().await;
        }
    }

    /// Reloads the configuration. Unchanged servers keep running; a changed one is a new server from the next call on.
    pub(crate) async fn reload(&self) -> Result<(), Fault> {
        let _one_at_a_time = self.0.reload_lock.lock().await;
        let configuration = self.0.configure.load()?;
        let before = self.state();
        let eager_before: Vec<_> = before.eager_servers().cloned().collect();
        let after = GatewayState::from_configuration(configuration, &self.0.context, Some(&before));
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
            .eager_servers()
            .filter(|new| eager_before.iter().all(|old| !Arc::ptr_eq(old, new)))
            .cloned()
            .collect();
        let options = &self.0.options;
        // On the direct surface, `announce_list_changes` announces tool changes anyway.
        let tools_change = options.surface == Surface::Meta
            && !options.shown_empty
            && before.servers.is_empty() != after.servers.is_empty();
        *self.0.state.write() = Arc::new(after);
        self.0.context.generation.fetch_add(1, Ordering::Relaxed);
        self.0.revision.fetch_add(1, Ordering::Relaxed);
        self.0
            .refreshed_ms
            .store(crate::now_ms(), Ordering::Relaxed);
        for server in gone {
            server.retire();
        }
        self.list_in_background(eager);
        self.0.context.announce_list_changes();
        if tools_change {
            self.0.context.changes.send(Change::Tools);
        }
        Ok(())
    }

    /// Starts servers and lists what they offer in the background, at most `max_starts` at a time. A slow server gives its slot
    /// back after two seconds.
    pub(crate) fn list_in_background(&self, servers: impl IntoIterator<Item = Arc<Server>>) {
        let places = Arc::new(tokio::sync::Semaphore::new(
            self.0.options.max_starts.max(1),
        ));
        for server in servers {
            if !server.reserve_listing() {
                continue;
            }
            let places = places.clone();
            tokio::spawn(async move {
                // The semaphore is never closed.
                let place = places.acquire().await;
                let mut listing = std::pin::pin!(server.list_reserved());
                if tokio::time::timeout(SLOW_START, &mut listing)
                    .await
                    .is_err()
                {
                    drop(place);
                    listing.await;
                }
            });
        }
    }

    /// Returns the visible servers that were never listed and may be started.
    pub(crate) fn unlisted_servers(&self, permit: &Permit) -> Vec<Arc<Server>> {
        let state = self.state();
        let servers = state.servers.values();
        let unseen = servers.filter(|server| {
            server.definition.withheld.is_none()
                && server.catalog().is_none()
                && state.is_visible(permit, PolicySubject::Server(server.name()))
        });
        unseen.cloned().collect()
    }

    /// Waits until every visible server was listed once or failed, at most 10 s.
    pub(crate) async fn wait_until_listed(&self, permit: &Permit) {
        let _nothing_in_particular = self.find_or_wait(permit, |_| None::<()>).await;
    }

    /// Returns what `find` finds in the catalogs. If it finds nothing, unlisted servers are listed, and `find` is tried again
    /// after each of them, for at most 10 s.
    pub(crate) async fn find_or_wait<T>(
        &self,
        permit: &Permit,
        find: impl Fn(&GatewayState) -> Option<T>,
    ) -> Option<T> {
        if let Some(found) = find(&self.state()) {
            return Some(found);
        }
        let unseen = self.unlisted_servers(permit).into_iter();
        let (failed, fresh): (Vec<_>, Vec<_>) =
            unseen.partition(|server| server.last_error().is_some());
        self.list_in_background(failed);
        self.list_in_background(fresh.iter().cloned());
        // Dropping this set ends the waiting; the listings themselves continue.
        let mut looks = JoinSet::new();
        for server in fresh {
            looks.spawn(async move { server.wait_for_listing().await });
        }
        let looked = async {
            while looks.join_next().await.is_some() {
                if let Some(found) = find(&self.state()) {
                    return Some(found);
                }
            }
            None
        };
        tokio::time::timeout(LISTING_TIMEOUT, looked)
            .await
            .ok()
            .flatten()
    }

    /// Lists servers that were never listed and waits for each: for the caller's own wait time, or else for two seconds from when
    /// its listing began. The first search thus finds tools, and a server that hangs does not delay the next one again.
    pub(crate) async fn list_unlisted_servers(
        &self,
        call: &Call,
        wanted: impl Fn(&Server) -> bool,
    ) {
        let mut unseen = self.unlisted_servers(&call.permit);
        unseen.retain(|server| wanted(server));
        self.list_in_background(unseen.iter().cloned());
        let asked_for = call.wait.map(|wait| Instant::now() + wait);
        let mut waits = JoinSet::new();
        for server in unseen {
            if let Some(since) = server.listing_since() {
                let until = asked_for.unwrap_or(since + SLOW_START);
                waits.spawn(async move { timeout_at(until, server.wait_for_listing()).await });
            }
        }
        while waits.join_next().await.is_some() {}
    }

    /// On the direct surface, waits until every visible server was listed, because a client's list must be complete there. On the
    /// meta surface lists come from the catalogs at once.
    pub(crate) async fn wait_for_complete_list(&self, permit: &Permit) {
        if self.0.options.surface == Surface::Direct {
            self.wait_until_listed(permit).await;
        }
    }

    /// Returns the tool index, rebuilt if a catalog has changed.
    pub(crate) fn tool_index(&self) -> Arc<ToolIndex> {
        let generation = self.0.context.generation.load(Ordering::Relaxed);
        let mut last = self.0.tool_index.lock();
        match &*last {
            Some(last) if last.generation == generation => last.clone(),
            _ => {
                let made = Arc::new(ToolIndex::build(&self.state(), generation));
                *last = Some(made.clone());
                made
            }
        }
    }

    /// Returns the server of that name if it is visible to the caller.
    pub(crate) fn server(&self, permit: &Permit, name: &str) -> Result<Arc<Server>, Fault> {
        let state = self.state();
        let seen = |name: &str| state.is_visible(permit, PolicySubject::Server(name));
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
        // No similar name is proposed: a call meant for one server must not be sent to another.
        Err(
            Fault::new(Code::UnknownServer, format!("no server is named {shown:?}"))
                .with_hint(LIST_SERVERS_HINT)
                .with(Detail::Allowed, known),
        )
    }

    /// Returns the names of the visible servers that can be used: none that waits for an approval, whose name the owner may not have
    /// chosen.
    pub fn server_names(&self, permit: &Permit) -> Vec<String> {
        let state = self.state();
        let usable = state.servers.values().filter(|server| {
            server.definition.withheld.is_none()
                && state.is_visible(permit, PolicySubject::Server(server.name()))
        });
        usable.map(|server| server.name().to_string()).collect()
    }

    /// Returns the name of every visible or unavailable server, each with a short description of its state.
    pub fn servers(&self, permit: &Permit) -> Vec<(String, String)> {
        let state = self.state();
        let seen = state.servers.values();
        let seen =
            seen.filter(|server| state.is_visible(permit, PolicySubject::Server(server.name())));
        let mut all: Vec<(String, String)> = seen
            .map(|server| {
                let tools = server.catalog();
                let tools = tools.map(|seen| state.visible_tools(permit, server, &seen).count());
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
        let unavailable = state.unavailable_servers(permit).into_iter();
        all.extend(unavailable.map(|one| {
            let what = format!("MCP server, not available: {}", one.reason);
            (one.name, what)
        }));
        all.sort_unstable();
        all
    }

    /// Returns a digest of all server definitions, the configuration's fingerprint and `beside`. Two processes with the same
    /// digest serve the same.
    pub fn digest(&self, beside: &str) -> String {
        let state = self.state();
        let all = state.servers.values().map(|server| &server.definition);
        let homeless = |definition: &ServerDefinition| matches!(&definition.target, ServerTarget::Command(command) if command.dir.is_none());
        // A command without a directory runs in the current directory of this process.
        let here = all.clone().any(homeless).then(std::env::current_dir);
        let here = here.and_then(Result::ok);
        let servers = all.map(|definition| {
            (
                &definition.name,
                &definition.digest,
                &definition.withheld,
                definition.has_pending_edit,
                definition.eager,
            )
        });
        let servers: Vec<_> = servers.collect();
        let all = (beside, self.0.configure.fingerprint(), here, servers);
        HEXLOWER.encode(&Sha256::digest(format!("{all:?}")))
    }

    /// Returns true if a call of a `gateway.*` tool can be repeated safely: the tool only reads, or it invokes a downstream tool
    /// that is known to be idempotent, not as a task.
    pub fn is_idempotent(&self, name: &str, arguments: &str) -> bool {
        let name = name.replacen('_', ".", usize::from(name.starts_with("gateway_")));
        if name != tools::INVOKE_TOOL {
            return tools::is_read_only(&name);
        }
        let member = |name: &str| rung_tool::splice::member(arguments, name);
        let id = member("tool_id").and_then(|id| serde_json::from_str::<String>(id.get()).ok());
        let state = self.state();
        let known = id.as_deref().and_then(|id| id.split_once("::"));
        let known = known.and_then(|(server, tool)| {
            let server = state.servers.get(server)?;
            state.find_tool(server, tool)
        });
        member("task").is_none() && known.is_some_and(|known| known.idempotent)
    }

    /// Reports the state of all servers, with secrets masked.
    pub fn report(&self) -> StatusReport {
        let state = self.state();
        // Configuration texts may contain credentials that no redaction rule knows.
        let masks = CallerRedactor {
            usual: true,
            ..state.access.caller_redactor()
        };
        let masked = |text: String| masks.redact_text(&text).into_owned();
        let row = |server: &Arc<Server>| {
            let definition = &server.definition;
            let written = server.config_source();
            let denied = state.denying_rule(server.name());
            ServerReport {
                name: server.name().to_string(),
                start: written.startup_policy(),
                from: written.file.map_or_else(
                    || written.origin.to_owned(),
                    |file| file.display().to_string(),
                ),
                tools: server.catalog().map(|seen| seen.tools.len()),
                startup_skip_reason: match &definition.withheld {
                    _ if denied.is_some() => Some("policy_denied"),
                    Some(WithheldReason::MissingVariables(_)) => Some("missing_auth"),
                    _ => None,
                },
                state: masked(
                    denied.map_or_else(|| server.status_text(), |rule| format!("denied by {rule}")),
                ),
                runs: masked(definition.summary.clone()),
            }
        };
        StatusReport {
            servers: state.servers.values().map(row).collect(),
            problems: self
                .problems(&state, &Permit::local_user(Access::Read))
                .into_iter()
                .map(masked)
                .collect(),
        }
    }

    /// Explains why something does not exist or is not known to exist; `None` if it does.
    pub fn explain_absence(&self, thing: PolicySubject<'_>) -> Option<String> {
        let server = match thing {
            PolicySubject::GatewayTool(_) => return None,
            PolicySubject::Server(server)
            | PolicySubject::Tool { server, .. }
            | PolicySubject::Resource { server, .. }
            | PolicySubject::Prompt { server, .. } => server,
        };
        let state = self.state();
        let Some(server) = state.servers.get(server) else {
            return Some("no server has that name".to_owned());
        };
        if server.definition.withheld.is_some() {
            return Some(server.status_text());
        }
        match (thing, server.catalog()) {
            (PolicySubject::Server(_), _) => None,
            (_, None) => Some("its server has not listed its tools yet".to_owned()),
            (PolicySubject::Tool { tool, .. }, Some(seen)) if seen.tool(tool).is_none() => {
                Some("its server does not list it".to_owned())
            }
            _ => None,
        }
    }

    /// Returns whether something is visible to the permit, and the reason in words.
    pub fn explain_access(&self, permit: &Permit, thing: PolicySubject<'_>) -> (bool, String) {
        let state = self.state();
        let decision = state.access.decide(permit, thing);
        let unusable = |server: &str| match state.servers.get(server) {
            None => Some("unknown: no server has that name".to_owned()),
            Some(server) if server.definition.withheld.is_some() => {
                Some(format!("unusable: {}", server.status_text()))
            }
            Some(_) => None,
        };
        let absent = match thing {
            PolicySubject::GatewayTool(_) => None,
            PolicySubject::Server(server)
            | PolicySubject::Tool { server, .. }
            | PolicySubject::Resource { server, .. }
            | PolicySubject::Prompt { server, .. } => unusable(server),
        };
        let hidden = match thing {
            _ if !decision.is_allowed() => None,
            _ if absent.is_some() => absent,
            PolicySubject::GatewayTool(name) => {
                let kept_from = is_for_operators(name) && !state.access.may_operate(permit);
                kept_from.then(|| {
                    "denied: callers of this kind may not start and stop shared servers".to_owned()
                })
            }
            PolicySubject::Tool { server, tool } => state.exceeded_tool_limit(server, tool).map(|most| {
                format!(
                    "denied: limits.max_tools_per_server allows {most} tools of its server, and this tool is not among them"
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

impl GatewayState {
    /// Builds the state of a configuration. Unchanged servers are taken over from `before`, with their connections.
    fn from_configuration(
        configuration: Configuration,
        common: &Arc<ServerContext>,
        before: Option<&Self>,
    ) -> Self {
        let server = |definition: ServerDefinition| {
            let old = before.and_then(|before| before.servers.get(&definition.name));
            let denied = configuration
                .access
                .policy
                .verdict(PolicySubject::Server(&definition.name));
            // A server that is denied now is stopped like a removed one.
            let old = old.filter(|_| denied.is_allowed());
            let same = old.filter(|old| {
                let old = &old.definition;
                old.digest == definition.digest
                    && old.withheld == definition.withheld
                    && old.sharing == definition.sharing
            });
            let server = match same {
                Some(old) => {
                    old.set_config_source(&definition);
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
            access: configuration.access,
            skipped: configuration.skipped,
            problems: configuration.problems,
            guidance: configuration.guidance,
        }
    }

    pub(crate) fn is_visible(&self, permit: &Permit, thing: PolicySubject<'_>) -> bool {
        self.access.decide(permit, thing).is_allowed()
    }

    /// Returns why no caller can use a configured server. `None` if it can be used, does not exist, or may not be disclosed to
    /// the caller.
    pub(crate) fn unavailable(&self, permit: &Permit, name: &str) -> Option<UnavailableServer> {
        let disclosure = AccessPolicy::disclosure(permit, name)?;
        let usable = self.servers.contains_key(name);
        // Entries of the file with the highest precedence come first.
        let skipped = self.skipped.iter().find(|entry| entry.name == name);
        let (reason, file, is_denied) = match (self.denying_rule(name), skipped) {
            (Some(rule), _) if usable || skipped.is_some() => {
                let reason = "the operator's policy denies it".to_owned();
                (reason, rule.to_string(), true)
            }
            (None, Some(entry)) if !usable => (entry.reason.clone(), entry.file.clone(), false),
            _ => return None,
        };
        Some(UnavailableServer {
            name: name.to_owned(),
            reason,
            file: (disclosure == Disclosure::ReasonAndFile).then_some(file),
            is_denied,
        })
    }

    /// Returns all unavailable servers that may be disclosed to the caller, sorted by name.
    pub(crate) fn unavailable_servers(&self, permit: &Permit) -> Vec<UnavailableServer> {
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

    /// Returns the policy rule that denies a server to every caller.
    pub(crate) fn denying_rule(&self, server: &str) -> Option<MatchedRule<'_>> {
        match self.access.policy.verdict(PolicySubject::Server(server)) {
            Verdict::Denied(rule) => Some(rule),
            Verdict::Allowed(_) => None,
        }
    }

    /// Returns the servers that start with the gateway.
    fn eager_servers(&self) -> impl Iterator<Item = &Arc<Server>> {
        let servers = self.servers.values();
        servers.filter(|server| {
            server.config_source().eager && self.denying_rule(server.name()).is_none()
        })
    }

    fn max_tools(&self) -> usize {
        let most = self.access.policy.limits().max_tools_per_server;
        most.map_or(usize::MAX, |most| {
            usize::try_from(most).unwrap_or(usize::MAX)
        })
    }

    /// Returns the policy's tool limit if the server lists this tool beyond that limit.
    fn exceeded_tool_limit(&self, server: &str, tool: &str) -> Option<usize> {
        let server = self.servers.get(server)?;
        server.catalog()?.tool(tool)?;
        let hidden = self.find_tool(server, tool).is_none();
        hidden.then(|| self.max_tools())
    }

    /// Returns the tool of that name if the server's catalog has it within the policy's tool limit.
    pub(crate) fn find_tool(&self, server: &Server, name: &str) -> Option<Arc<CatalogTool>> {
        let seen = server.catalog()?;
        let mut tools = seen.tools.iter().take(self.max_tools());
        tools.find(|known| *known.tool.name == *name).cloned()
    }

    /// Returns the tools of a server that are within the policy's tool limit and visible to the permit.
    pub(crate) fn visible_tools<'a>(
        &'a self,
        permit: &'a Permit,
        server: &'a Server,
        seen: &'a crate::catalog::Catalog,
    ) -> impl Iterator<Item = &'a Arc<CatalogTool>> {
        let tools = seen.tools.iter().take(self.max_tools());
        tools.filter(|known| {
            let (server, tool) = (&**server.name(), &*known.tool.name);
            self.is_visible(permit, PolicySubject::Tool { server, tool })
        })
    }
}

impl ToolIndex {
    fn build(state: &GatewayState, generation: u64) -> Self {
        let mut tools = Vec::new();
        for server in state.servers.values() {
            let Some(seen) = server.catalog() else {
                continue;
            };
            let each = seen.tools.iter().take(state.max_tools());
            tools.extend(each.map(|known| (server.clone(), known.clone())));
        }
        let arguments: Vec<Vec<(&str, &str)>> = tools
            .iter()
            .map(|(_, known)| argument_descriptions(&known.tool.input_schema))
            .collect();
        let documents = tools.iter().zip(&arguments);
        let index =
            DocumentIndex::build(
                documents.map(|((server, known), arguments)| IndexedDocument {
                    server: server.name(),
                    name: &known.tool.name,
                    title: known.title.as_deref().unwrap_or_default(),
                    description: &known.description,
                    arguments,
                }),
            );
        Self {
            tools,
            index,
            generation,
        }
    }
}

/// Returns the arguments of an input schema with their descriptions.
fn argument_descriptions(schema: &serde_json::Value) -> Vec<(&str, &str)> {
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
