//! `gateway.catalog_search`: searches the tools of all servers, running or not.

use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::Fault;
use rung_tool::{Answer, Body, InputSchema, Tool};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::health::withheld_hint;
use super::{GatewayContext, GatewayTools, READ_HINTS, parameter};
use crate::candidate::{Candidate, ServerIdentity};
use crate::catalog::{CatalogTool, DEFAULT_DIALECT, Risk};
use crate::cli_hints::{CliHint, installed_matches};
use crate::gateway::{Gateway, GatewayState};
use crate::manifest::candidates;
use crate::policy::{PackageVerdict, PolicySubject};
use crate::server::Server;

pub(super) const TOOL: Tool<GatewayTools, Input> = Tool::new(
    "gateway.catalog_search",
    "Searches the tools of all servers, running or not, by what they do; best first. Next: gateway.describe or gateway.invoke.",
    InputSchema::Text {
        properties: r#"{
        "query": {"type": "string", "description": "What the tool does; none: all tools."},
        "filters": {"type": "object", "properties": {
            "server": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "risk_max": {"enum": ["low", "medium", "high"]}}},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
        "include_offline": {"type": "boolean", "default": true}}"#,
        details: "",
        required: &[],
        descriptions: &[
        (
            "query",
            "What the tool does. Without a query, all tools are listed.",
        ),
        ("filters", "Conditions that every result meets."),
        ("filters.server", parameter::SERVER),
        (
            "filters.tags",
            "Words that the tool carries: its server, its tags or words of its name.",
        ),
        (
            "filters.risk_max",
            "Highest risk: low only reads, high may change or destroy something.",
        ),
        ("limit", "Maximum number of results."),
        (
            "include_offline",
            "False leaves out tools of servers that are not running.",
        ),
    ],
    },
    Body::Async(|context, input| Box::pin(run(context, input))),
)
.titled("Search tools")
.with_hints(READ_HINTS)
.as_entry();

#[derive(Deserialize)]
pub(super) struct Input {
    #[serde(default)]
    query: String,
    #[serde(default)]
    filters: Filters,
    limit: Option<usize>,
    #[serde(default = "yes")]
    include_offline: bool,
}

const fn yes() -> bool {
    true
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Filters {
    server: Option<String>,
    tags: Vec<String>,
    risk_max: Option<Risk>,
}

#[derive(Serialize)]
struct Output {
    results: Vec<ToolCard>,
    /// Number of matching tools.
    total: usize,
    /// Number of visible tools.
    total_available: usize,
    truncated: bool,
    /// Command-line programs on the local machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cli_hints: Vec<CliHint>,
    /// Manifest servers that are not configured, if no tool matches well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    manifest_candidates: Vec<Candidate>,
    /// Registry servers that are not configured, if no tool matches well. Their texts are untrusted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    registry_candidates: Vec<Candidate>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_seen_yet: Vec<String>,
    /// Servers without a catalog because they failed to start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Serialize)]
struct ToolCard {
    tool_id: String,
    server: String,
    tool_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    short_description: String,
    /// Its server's name and its topics.
    tags: Vec<String>,
    availability: &'static str,
    risk_hint: Risk,
    #[serde(skip_serializing_if = "Option::is_none")]
    icons: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution: Option<Value>,
    /// Omitted for the default dialect.
    #[serde(skip_serializing_if = "Option::is_none")]
    schema_dialect: Option<String>,
    /// How code should use the tool, in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    code_hint: Option<&'static str>,
}

type IndexedTool = (Arc<Server>, Arc<CatalogTool>);

const MAX_DESCRIPTION_CHARS: usize = 100;
/// Cards in a reply at most.
const MAX_RESULTS: usize = 100;
const DEFAULT_LIMIT: usize = 20;
/// From this score of the best tool on, no candidates are proposed.
const GOOD_SCORE: f32 = 0.75;
/// Longest icons on a card: URLs fit, embedded images do not.
const MAX_ICONS_BYTES: usize = 256;

async fn run(context: &GatewayContext<'_>, input: Input) -> Result<Answer, Fault> {
    let (gateway, permit) = (context.gateway, &context.call.permit);
    if let Some(name) = &input.filters.server {
        gateway.server(permit, name)?;
    }
    let anywhere = input.filters.server.is_none();
    let in_question = |server: &Server| {
        let named = input.filters.server.as_deref();
        named.is_none_or(|name| name == &**server.name())
    };
    gateway
        .list_unlisted_servers(context.call, in_question)
        .await;
    let (state, shelf) = (gateway.state(), gateway.tool_index());
    let seen = |(server, known): &IndexedTool| {
        let (server, tool) = (&**server.name(), &*known.tool.name);
        state.is_visible(permit, PolicySubject::Tool { server, tool })
    };
    let wanted = |at: u32| {
        let tool = shelf.tools.get(at as usize);
        let there = |tool: &IndexedTool| input.include_offline || tool.0.is_online();
        tool.is_some_and(|tool| input.filters.accept(tool) && there(tool) && seen(tool))
    };
    let limit = input.limit.unwrap_or(DEFAULT_LIMIT);
    let found = shelf.index.search(&input.query, wanted, limit);
    let hits = found.hits.iter();
    let hits = hits.filter_map(|hit| shelf.tools.get(hit.document as usize));
    let results: Vec<ToolCard> = hits.map(|tool| tool_card(tool, &state)).collect();
    let (failed, not_seen_yet) = unlisted_names(gateway, permit, in_question);
    let cli_hints = if anywhere {
        installed_matches(permit, &input.query)
    } else {
        Vec::new()
    };
    let best = found.hits.first().map_or(0.0, |hit| hit.score);
    let (mut manifest_candidates, mut registry_candidates) = (Vec::new(), Vec::new());
    let mut said = Vec::new();
    if anywhere && permit.is_local() && best < GOOD_SCORE {
        let out_of_question = |one: ServerIdentity<'_>| state.is_configured_or_denied(one);
        manifest_candidates = candidates(&input.query, out_of_question);
        let registry = gateway.0.registry.as_ref();
        registry_candidates = registry
            .map(|registry| registry.candidates(&input.query, out_of_question))
            .unwrap_or_default();
        let failed = registry.and_then(|registry| registry.problem());
        said.extend(failed.map(|why| format!("the registry cannot be read: {why}")));
        if registry.is_some_and(|registry| registry.is_loading()) {
            let soon = "the registry is loading: search again in a few seconds";
            said.push(soon.to_owned());
        }
    }
    for (name, candidates) in [
        ("manifest_candidates", &manifest_candidates),
        ("registry_candidates", &registry_candidates),
    ] {
        if !candidates.is_empty() {
            let could = "are not configured: ask the user whether to add one, with its entry";
            said.push(format!("{name} {could}"));
        }
    }
    if !not_seen_yet.is_empty() {
        let soon =
            "some servers list their tools for the first time: search again in a few seconds";
        said.push(soon.to_owned());
    }
    if let Some(name) = failed.first() {
        let why = format!("gateway.health {{\"server\":\"{name}\"}} shows why a server failed");
        said.push(why);
    }
    if anywhere {
        said.extend(withheld_hint(&state, permit));
    }
    if anywhere && results.is_empty() && !state.unavailable_servers(permit).is_empty() {
        let unused = "gateway.health {\"status\":\"withheld\"} lists servers that cannot be used";
        said.push(unused.to_owned());
    }
    if said.is_empty() && !input.include_offline {
        let left_out = "tools of servers that are not running are left out; \"include_offline\": true includes them";
        said.push(left_out.to_owned());
    }
    if found.total > results.len() && results.len() < MAX_RESULTS {
        let more = (found.total).min(MAX_RESULTS);
        said.push(format!("\"limit\": {more} shows more of them"));
    }
    let hint = (!said.is_empty()).then(|| said.join("; "));
    context.answer(Output {
        truncated: found.total > results.len(),
        total: found.total,
        total_available: shelf.tools.iter().filter(|tool| seen(tool)).count(),
        results,
        cli_hints,
        manifest_candidates,
        registry_candidates,
        hint,
        not_seen_yet,
        failed,
    })
}

/// Returns the names of servers that were never listed: those that failed, and those that are still being listed.
fn unlisted_names(
    gateway: &Gateway,
    permit: &Permit,
    in_question: impl Fn(&Server) -> bool,
) -> (Vec<String>, Vec<String>) {
    let mut unseen = gateway.unlisted_servers(permit);
    unseen.retain(|server| in_question(server));
    // A failure is kept until the next start succeeds.
    let (failed, fresh): (Vec<_>, Vec<_>) = unseen
        .iter()
        .partition(|server| server.last_error().is_some());
    let names = |servers: Vec<&Arc<Server>>| -> Vec<String> {
        let servers = servers.into_iter();
        servers.map(|server| server.name().to_string()).collect()
    };
    (names(failed), names(fresh))
}

impl GatewayState {
    /// Returns true if the server is configured under any name or denied by the policy, so that adding it is pointless.
    fn is_configured_or_denied(&self, one: ServerIdentity<'_>) -> bool {
        let policy = &self.access.policy;
        let denied =
            |package: &str| matches!(policy.package_verdict(package), PackageVerdict::Denied(_));
        let reaches = [one.package, one.url].into_iter().flatten();
        // A command may name a package with or without its version.
        let names = |word: &str, own: &str| {
            let rest = word.strip_prefix(own);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['@', '=', ':']))
        };
        let runs = |server: &Server| {
            let mut words = server.definition.summary.split_whitespace();
            words.any(|word| reaches.clone().any(|own| names(word, own)))
        };
        let mut servers = self.servers.values();
        self.denying_rule(one.name).is_some()
            || one.package.is_some_and(denied)
            || servers.any(|server| &**server.name() == one.name || runs(server))
    }
}

impl Filters {
    fn accept(&self, (server, known): &IndexedTool) -> bool {
        let tagged =
            |tag: &String| known.tags().contains(&tag.as_str()) || **tag == **server.name();
        let server_fits = self
            .server
            .as_deref()
            .is_none_or(|name| name == &**server.name());
        server_fits
            && self.risk_max.is_none_or(|most| known.risk <= most)
            && self.tags.iter().all(tagged)
    }
}

fn tool_card((server, known): &IndexedTool, state: &GatewayState) -> ToolCard {
    let masks = state.access.caller_redactor();
    let (server_name, tool_name) = (server.name(), &known.tool.name);
    let dialect = known.schema_dialect();
    ToolCard {
        tool_id: format!("{server_name}::{tool_name}"),
        server: server_name.to_string(),
        tool_name: tool_name.to_string(),
        title: known.title.clone().filter(|title| **title != **tool_name),
        short_description: shorten(
            &masks.redact_text(&known.description),
            MAX_DESCRIPTION_CHARS,
        ),
        tags: std::iter::once(&**server_name)
            .chain(known.tags())
            .map(str::to_owned)
            .collect(),
        availability: if server.is_online() {
            "online"
        } else {
            "offline"
        },
        risk_hint: known.risk,
        icons: known
            .definition_member("icons")
            .filter(|icons| icons.to_string().len() <= MAX_ICONS_BYTES),
        execution: known
            .task_support
            .as_ref()
            .map(|support| json!({"taskSupport": support})),
        schema_dialect: (dialect != DEFAULT_DIALECT).then(|| dialect.to_owned()),
        code_hint: state.guidance.hint(known),
    }
}

/// Returns the beginning of a text on one line, cut at a word.
pub(crate) fn shorten(text: &str, chars: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((end, _)) = line.char_indices().nth(chars) else {
        return line;
    };
    let space = line[..end].rfind(' ').filter(|at| *at > end / 2);
    format!("{}…", &line[..space.unwrap_or(end)])
}
