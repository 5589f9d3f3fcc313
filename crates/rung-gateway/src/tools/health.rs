//! `gateway.health`: what matters about the servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rung_auth::Permit;
use rung_fault::Fault;
use rung_tool::Reply;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Asking, Definition, READS, iso};
use crate::auth::Auth;
use crate::calls::{Begun, Owner};
use crate::definition::Withheld;
use crate::gateway::{Gateway, State, Unavailable};
use crate::lately::Over;
use crate::policy::Thing;
use crate::server::{Server, Status};

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.health",
    title: "Health of the servers",
    description: "Your servers and their state. all: also diagnostics and your last calls; server: one in detail.",
    hints: READS,
    operates: false,
    properties: r#"{"server": {"type": "string"}, "all": {"type": "boolean"}, "status": {"enum": ["online", "lazy", "error", "withheld"]}}"#,
    required: &[],
    run: |asking| Box::pin(run(asking)),
};

#[derive(Deserialize)]
struct Input {
    server: Option<String>,
    #[serde(default)]
    all: bool,
    status: Option<String>,
}

#[derive(Serialize)]
struct Output {
    revision_id: String,
    servers: Vec<Row>,
    counts: BTreeMap<&'static str, usize>,
    last_refresh_ts: String,
    /// How the gateway itself is set up, for whoever wants to know everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway_diagnostics: Option<Diagnostics>,
    /// The caller's last calls, for whoever wants to know everything of all servers or of one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    audit_events: Vec<Event>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Serialize)]
struct Diagnostics {
    version: &'static str,
    idle_seconds: u64,
    start_seconds: u64,
    /// Servers of the registry that are known, where one is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    registry_servers: Option<usize>,
    trace_supported: bool,
}

/// A call that ended.
#[derive(Serialize)]
struct Event {
    timestamp: String,
    action: &'static str,
    tool_id: String,
    outcome: &'static str,
    latency_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    status: &'static str,
    /// It is being started just now.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    starting: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    auth: Auth,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    startup_skip_reason: Option<&'static str>,
    /// The file that its entry is in, or the rule that denies it.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_path: Option<String>,
    #[serde(flatten)]
    detail: Option<Detail>,
}

/// What is told of a server that was asked for by name.
#[derive(Serialize)]
struct Detail {
    startup_policy: &'static str,
    startup_source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    startup_env_var: Option<String>,
    sharing: &'static str,
    running: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_info: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_capabilities: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    definition_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hidden_tools: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unusable_tools: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_at: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    last_stderr: String,
}

/// Calls that are told of at most.
const EVENTS: usize = 16;
/// Bytes of a server's last words that are told.
const WORDS_BYTES: usize = 2_000;

async fn run(asking: Asking<'_>) -> Result<Reply, Fault> {
    let input: Input = asking.read()?;
    let (gateway, permit) = (asking.gateway, &asking.call.permit);
    let state = gateway.state();
    if let Some(name) = &input.server
        && state.unavailable(permit, name).is_none()
    {
        gateway.server(permit, name)?;
    }
    let seen: Vec<_> = state
        .servers
        .values()
        .filter(|server| state.sees(permit, Thing::Server(server.name())))
        .collect();
    let mut counts = BTreeMap::new();
    let mut servers = Vec::new();
    let wanted = |name: &str, status: Status| match (&input.server, &input.status) {
        (Some(wanted), _) => wanted == name,
        (None, Some(wanted)) => wanted == status.name(),
        (None, None) => true,
    };
    for server in seen {
        let status = server.status();
        *counts.entry(status.name()).or_insert(0) += 1;
        if wanted(server.name(), status) {
            servers.push(row(&asking, server, status, input.server.is_some()));
        }
    }
    for one in state.unavailable_to(permit) {
        let status = Status::Withheld;
        *counts.entry(status.name()).or_insert(0) += 1;
        if wanted(&one.name, status) {
            servers.push(unavailable(one));
        }
    }
    servers.sort_by(|one, other| one.name.cmp(&other.name));
    let hint = match (&input.server, &input.status) {
        (None, None) => waiting(&state, permit),
        _ => None,
    };
    let operator = state.rules.may_operate(permit);
    let problems = gateway.problems(&state, permit).into_iter();
    asking
        .reply(Output {
            revision_id: gateway.revision(),
            servers,
            counts,
            last_refresh_ts: iso(gateway.0.refreshed_ms.load(Ordering::Relaxed)),
            gateway_diagnostics: input.all.then(|| diagnostics(gateway)),
            audit_events: if input.all || input.server.is_some() {
                events(&asking, input.server.as_deref())
            } else {
                Vec::new()
            },
            problems: problems
                .filter(|_| operator && input.server.is_none())
                .collect(),
            hint,
        })
        .await
}

fn diagnostics(gateway: &Gateway) -> Diagnostics {
    let options = &gateway.0.options;
    Diagnostics {
        version: env!("CARGO_PKG_VERSION"),
        idle_seconds: options.idle.as_secs(),
        start_seconds: options.opening.as_secs(),
        registry_servers: gateway.0.registry.as_ref().map(|registry| registry.len()),
        trace_supported: true,
    }
}

/// The caller's last calls, at one server or at all.
fn events(asking: &Asking<'_>, server: Option<&str>) -> Vec<Event> {
    let owner = Owner::of(asking.call);
    let here = |call: &Begun| server.is_none_or(|server| *call.server == *server);
    let over = asking.gateway.0.lately.of(&owner, here).into_iter();
    let event = |over: Over| {
        let (outcome, error) = over.failed.unzip();
        Event {
            timestamp: iso(over.call.started_ms),
            action: "invoke",
            tool_id: over.call.tool_id.clone(),
            outcome: outcome.unwrap_or("answered"),
            latency_ms: u64::try_from(over.lasted.as_millis()).unwrap_or(u64::MAX),
            error,
        }
    };
    over.take(EVENTS).map(event).collect()
}

/// What has to be done for servers that are listed and not started.
pub(super) fn waiting(state: &State, permit: &Permit) -> Option<String> {
    const NAMED: usize = 3;
    let seen = |server: &&Arc<Server>| state.sees(permit, Thing::Server(server.name()));
    let servers = || state.servers.values().filter(seen);
    let held = |server: &&Arc<Server>| server.status() == Status::Withheld;
    let untrusted = |server: &&Arc<Server>| server.definition.withheld == Some(Withheld::Untrusted);
    let named: Vec<&str> = servers()
        .filter(untrusted)
        .map(|server| &**server.name())
        .collect();
    if let Some(shown) = named
        .get(..named.len().min(NAMED))
        .filter(|shown| !shown.is_empty())
    {
        let more = if named.len() > NAMED { ", …" } else { "" };
        let shown = shown.join(", ");
        return Some(format!(
            "{} server(s) wait for approval ({shown}{more}): ask the user to run `rung gateway trust NAME`",
            named.len()
        ));
    }
    let hint = "gateway.health {\"status\":\"withheld\"} says what servers wait for";
    servers()
        .any(|server| held(&server))
        .then(|| hint.to_owned())
}

/// The row of a server that is configured and cannot be used.
fn unavailable(one: Unavailable) -> Row {
    Row {
        name: one.name,
        status: Status::Withheld.name(),
        starting: false,
        tool_count: None,
        protocol_version: None,
        error: Some(one.reason),
        auth: if one.is_denied {
            Auth::denied()
        } else {
            Auth::default()
        },
        next_step: None,
        startup_skip_reason: one.is_denied.then_some("policy_denied"),
        source_path: one.file,
        detail: None,
    }
}

fn row(asking: &Asking<'_>, server: &Server, status: Status, whole: bool) -> Row {
    let state = asking.gateway.state();
    let seen = server.seen();
    let permit = &asking.call.permit;
    let visible = seen
        .as_ref()
        .map(|seen| state.tools_of(permit, server, seen).count());
    let trouble = server.trouble().filter(|_| status == Status::Failed);
    let withheld = server.definition.withheld.as_ref();
    let missing = match withheld {
        Some(Withheld::Missing(variables)) => {
            Some(Auth::missing(variables, &server.written().sign_in))
        }
        _ => None,
    };
    let skipped = missing.is_some().then_some("missing_auth");
    let wants_first = match withheld {
        Some(Withheld::Missing(variables)) => variables.first().cloned(),
        _ => None,
    };
    let refused = trouble.as_ref().and_then(|trouble| trouble.auth.clone());
    let agreement = server.agreement();
    let name = server.name();
    let written = server.written();
    let startup_policy = written.start();
    Row {
        name: name.to_string(),
        status: status.name(),
        starting: server.is_starting(),
        tool_count: visible,
        protocol_version: agreement.map(|agreed| agreed.version.name().to_owned()),
        error: trouble.as_ref().map(|trouble| trouble.why.clone()),
        auth: missing.or(refused.clone()).unwrap_or_default(),
        next_step: match withheld {
            Some(Withheld::Untrusted) => Some(format!("rung gateway trust {name}")),
            Some(Withheld::Missing(variables)) => Some(format!("set {}", variables.join(", "))),
            Some(Withheld::Unusable(why)) => Some(format!("correct its entry: {why}")),
            None if server.written().edit_waits => Some(format!(
                "an edit waits for approval: rung gateway trust {name}"
            )),
            None => refused.is_some().then(|| {
                format!("give {name} its credential in the configuration, then call again")
            }),
        },
        startup_skip_reason: skipped.filter(|_| whole),
        source_path: server.file_for(permit).filter(|_| whole),
        detail: whole.then(|| {
            let all = seen.as_ref().map_or(0, |seen| seen.tools.len());
            let dropped = seen.iter().flat_map(|seen| seen.dropped.iter());
            let about = seen.as_ref().map(|seen| &seen.about);
            Detail {
                startup_policy,
                startup_source: written.origin,
                startup_env_var: wants_first,
                sharing: server.definition.sharing.name(),
                running: server.running(),
                server_info: about.map(|about| about.server.clone()),
                server_capabilities: about.map(|about| about.capabilities.clone()),
                instructions: about.and_then(|about| about.instructions.clone()),
                definition_tokens: server.definition_tokens(asking.gateway.0.options.count_tokens),
                hidden_tools: visible
                    .map(|visible| all - visible)
                    .filter(|hidden| *hidden > 0),
                unusable_tools: dropped
                    .map(|(tool, why)| format!("{tool}: {why}"))
                    .collect(),
                failed_at: trouble.map(|trouble| iso(trouble.at_ms)),
                last_stderr: rung_ladder::head(
                    &state.rules.masks().text(&server.last_words()),
                    WORDS_BYTES,
                )
                .to_owned(),
            }
        }),
    }
}
