//! `gateway.health`: state and diagnostics of the servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rung_auth::Permit;
use rung_fault::Fault;
use rung_tool::{Answer, Body, InputSchema, Tool};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{GatewayContext, GatewayTools, READ_HINTS, iso_timestamp, parameter};
use crate::auth::AuthRequirement;
use crate::call_history::CompletedCall;
use crate::calls::{ActiveCall, CallOwner};
use crate::definition::WithheldReason;
use crate::gateway::{Gateway, GatewayState, UnavailableServer};
use crate::policy::PolicySubject;
use crate::server::{Server, ServerStatus};

pub(super) const TOOL: Tool<GatewayTools, Input> = Tool::new(
    "gateway.health",
    "Your servers and their state. all: also diagnostics and recent calls; server: one in detail.",
    InputSchema::Text {
        properties: r#"{"server": {"type": "string"}, "all": {"type": "boolean"}, "status": {"enum": ["online", "lazy", "error", "withheld"]}}"#,
        details: "",
        required: &[],
        descriptions: &[
        ("server", parameter::SERVER),
        (
            "all",
            "True adds the settings of the gateway and your recent calls.",
        ),
        ("status", "Only servers in this state."),
    ],
    },
    Body::Immediate(|context, input| run(context, &input)),
)
.titled("State of the servers")
.with_hints(READ_HINTS);

#[derive(Deserialize)]
pub(super) struct Input {
    server: Option<String>,
    #[serde(default)]
    all: bool,
    status: Option<String>,
}

#[derive(Serialize)]
struct Output {
    revision_id: String,
    servers: Vec<ServerRow>,
    counts: BTreeMap<&'static str, usize>,
    last_refresh_ts: String,
    /// Settings of the gateway, with `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway_diagnostics: Option<Diagnostics>,
    /// The caller's last calls, with `all` or `server`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    audit_events: Vec<CallEvent>,
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
    /// Number of servers in the registry's copy, if a registry is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    registry_servers: Option<usize>,
    trace_supported: bool,
}

/// A completed call.
#[derive(Serialize)]
struct CallEvent {
    timestamp: String,
    action: &'static str,
    tool_id: String,
    outcome: &'static str,
    latency_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct ServerRow {
    name: String,
    status: &'static str,
    /// True while an instance is starting.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    starting: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    auth: AuthRequirement,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    startup_skip_reason: Option<&'static str>,
    /// The file of its entry, or the rule that denies it.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_path: Option<String>,
    #[serde(flatten)]
    detail: Option<ServerDetail>,
}

/// Details of a server that was named in `server`.
#[derive(Serialize)]
struct ServerDetail {
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

const MAX_EVENTS: usize = 16;
const MAX_STDERR_BYTES: usize = 2_000;

fn run(context: &GatewayContext<'_>, input: &Input) -> Result<Answer, Fault> {
    let (gateway, permit) = (context.gateway, &context.call.permit);
    let state = gateway.state();
    if let Some(name) = &input.server
        && state.unavailable(permit, name).is_none()
    {
        gateway.server(permit, name)?;
    }
    let seen: Vec<_> = state
        .servers
        .values()
        .filter(|server| state.is_visible(permit, PolicySubject::Server(server.name())))
        .collect();
    let mut counts = BTreeMap::new();
    let mut servers = Vec::new();
    let wanted = |name: &str, status: ServerStatus| match (&input.server, &input.status) {
        (Some(wanted), _) => wanted == name,
        (None, Some(wanted)) => wanted == status.name(),
        (None, None) => true,
    };
    for server in seen {
        let status = server.status();
        *counts.entry(status.name()).or_insert(0) += 1;
        if wanted(server.name(), status) {
            servers.push(server_row(context, server, status, input.server.is_some()));
        }
    }
    for one in state.unavailable_servers(permit) {
        let status = ServerStatus::Withheld;
        *counts.entry(status.name()).or_insert(0) += 1;
        if wanted(&one.name, status) {
            servers.push(unavailable_row(one));
        }
    }
    servers.sort_by(|one, other| one.name.cmp(&other.name));
    let hint = match (&input.server, &input.status) {
        (None, None) => withheld_hint(&state, permit),
        _ => None,
    };
    let operator = state.access.may_operate(permit);
    let problems = gateway.problems(&state, permit).into_iter();
    context.answer(Output {
        revision_id: gateway.revision(),
        servers,
        counts,
        last_refresh_ts: iso_timestamp(gateway.0.refreshed_ms.load(Ordering::Relaxed)),
        gateway_diagnostics: input.all.then(|| diagnostics(gateway)),
        audit_events: if input.all || input.server.is_some() {
            recent_events(context, input.server.as_deref())
        } else {
            Vec::new()
        },
        problems: problems
            .filter(|_| operator && input.server.is_none())
            .collect(),
        hint,
    })
}

fn diagnostics(gateway: &Gateway) -> Diagnostics {
    let options = &gateway.0.options;
    Diagnostics {
        version: env!("CARGO_PKG_VERSION"),
        idle_seconds: options.idle_timeout.as_secs(),
        start_seconds: options.start_timeout.as_secs(),
        registry_servers: gateway.0.registry.as_ref().map(|registry| registry.len()),
        trace_supported: true,
    }
}

/// Returns the caller's last calls, at one server or at all.
fn recent_events(context: &GatewayContext<'_>, server: Option<&str>) -> Vec<CallEvent> {
    let owner = CallOwner::from_call(context.call);
    let here = |call: &ActiveCall| server.is_none_or(|server| *call.server == *server);
    let over = context
        .gateway
        .0
        .call_history
        .list(&owner, here)
        .into_iter();
    let event = |over: CompletedCall| {
        let (outcome, error) = over.error.unzip();
        CallEvent {
            timestamp: iso_timestamp(over.call.started_ms),
            action: "invoke",
            tool_id: over.call.tool_id.clone(),
            outcome: outcome.unwrap_or("answered"),
            latency_ms: u64::try_from(over.duration.as_millis()).unwrap_or(u64::MAX),
            error,
        }
    };
    over.take(MAX_EVENTS).map(event).collect()
}

/// Returns a hint what to do about withheld servers.
pub(super) fn withheld_hint(state: &GatewayState, permit: &Permit) -> Option<String> {
    const NAMED: usize = 3;
    let seen =
        |server: &&Arc<Server>| state.is_visible(permit, PolicySubject::Server(server.name()));
    let servers = || state.servers.values().filter(seen);
    let held = |server: &&Arc<Server>| server.status() == ServerStatus::Withheld;
    let untrusted =
        |server: &&Arc<Server>| server.definition.withheld == Some(WithheldReason::Untrusted);
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
    let of_settings = |server: &Arc<Server>| {
        server.definition.withheld == Some(WithheldReason::UntrustedSettings)
    };
    if servers().any(of_settings) {
        return Some(
            "the project's rung.toml waits for approval: ask the user to run `rung config trust`"
                .to_owned(),
        );
    }
    let hint = "gateway.health {\"status\":\"withheld\"} shows why servers are withheld";
    servers()
        .any(|server| held(&server))
        .then(|| hint.to_owned())
}

/// Returns the row of a configured server that cannot be used.
fn unavailable_row(one: UnavailableServer) -> ServerRow {
    ServerRow {
        name: one.name,
        status: ServerStatus::Withheld.name(),
        starting: false,
        tool_count: None,
        protocol_version: None,
        error: Some(one.reason),
        auth: if one.is_denied {
            AuthRequirement::policy_denied()
        } else {
            AuthRequirement::default()
        },
        next_step: None,
        startup_skip_reason: one.is_denied.then_some("policy_denied"),
        source_path: one.file,
        detail: None,
    }
}

fn server_row(
    context: &GatewayContext<'_>,
    server: &Server,
    status: ServerStatus,
    whole: bool,
) -> ServerRow {
    let state = context.gateway.state();
    let seen = server.catalog();
    let permit = &context.call.permit;
    let visible = seen
        .as_ref()
        .map(|seen| state.visible_tools(permit, server, seen).count());
    let trouble = server
        .last_error()
        .filter(|_| status == ServerStatus::Failed);
    let withheld = server.definition.withheld.as_ref();
    let missing = match withheld {
        Some(WithheldReason::MissingVariables(variables)) => Some(
            AuthRequirement::missing_variables(variables, &server.config_source().sign_in),
        ),
        _ => None,
    };
    let skipped = missing.is_some().then_some("missing_auth");
    let wants_first = match withheld {
        Some(WithheldReason::MissingVariables(variables)) => variables.first().cloned(),
        _ => None,
    };
    let refused = trouble.as_ref().and_then(|trouble| trouble.auth.clone());
    let agreement = server.agreement();
    let name = server.name();
    let written = server.config_source();
    let startup_policy = written.startup_policy();
    ServerRow {
        name: name.to_string(),
        status: status.name(),
        starting: server.is_starting(),
        tool_count: visible,
        protocol_version: agreement.map(|agreed| agreed.version.name().to_owned()),
        error: trouble.as_ref().map(|trouble| trouble.message.clone()),
        auth: missing.or(refused.clone()).unwrap_or_default(),
        next_step: match withheld {
            Some(WithheldReason::Untrusted) => Some(format!("rung gateway trust {name}")),
            Some(WithheldReason::UntrustedSettings) => Some("rung config trust".to_owned()),
            Some(WithheldReason::MissingVariables(variables)) => Some(format!(
                "set {} in {}",
                variables.join(", "),
                server.value_files()
            )),
            Some(WithheldReason::Unusable(why)) => Some(format!("correct its entry: {why}")),
            None if server.config_source().has_pending_edit => Some(format!(
                "an edit waits for approval: rung gateway trust {name}"
            )),
            None => refused.is_some().then(|| server.credential_hint()),
        },
        startup_skip_reason: skipped.filter(|_| whole),
        source_path: server.config_file_for(permit).filter(|_| whole),
        detail: whole.then(|| {
            let all = seen.as_ref().map_or(0, |seen| seen.tools.len());
            let dropped = seen.iter().flat_map(|seen| seen.dropped.iter());
            let about = seen.as_ref().map(|seen| &seen.description);
            ServerDetail {
                startup_policy,
                startup_source: written.origin,
                startup_env_var: wants_first,
                sharing: server.definition.sharing.name(),
                running: server.running_count(),
                server_info: about.map(|about| about.server.clone()),
                server_capabilities: about.map(|about| about.capabilities.clone()),
                instructions: about.and_then(|about| about.instructions.clone()),
                definition_tokens: server.definition_tokens(),
                hidden_tools: visible
                    .map(|visible| all - visible)
                    .filter(|hidden| *hidden > 0),
                unusable_tools: dropped
                    .map(|(tool, why)| format!("{tool}: {why}"))
                    .collect(),
                failed_at: trouble.map(|trouble| iso_timestamp(trouble.at_ms)),
                last_stderr: rung_ladder::head(
                    &state
                        .access
                        .caller_redactor()
                        .redact_text(&server.stderr_tail()),
                    MAX_STDERR_BYTES,
                )
                .to_owned(),
            }
        }),
    }
}
