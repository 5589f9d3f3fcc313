//! `gateway.catalog_search`: tools by what they do, whether their server runs or not.

use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::Fault;
use rung_tool::Reply;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::health::waiting;
use super::{Asking, Definition, READS};
use crate::candidate::{Candidate, Identity};
use crate::commands::{Hint, hints};
use crate::gateway::{Gateway, State};
use crate::manifest::candidates;
use crate::policy::{Package, Thing};
use crate::seen::{DIALECT, Known, Risk};
use crate::server::Server;

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.catalog_search",
    title: "Search tools",
    description: "Finds tools of all servers, running or not, by what they do; best first. Go on with gateway.describe or gateway.invoke.",
    hints: READS,
    operates: false,
    properties: r#"{
        "query": {"type": "string", "description": "What it should do. All tools without."},
        "filters": {"type": "object", "properties": {
            "server": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "risk_max": {"enum": ["low", "medium", "high"]}}},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
        "include_offline": {"type": "boolean", "default": true}}"#,
    required: &[],
    run: |asking| Box::pin(run(asking)),
};

#[derive(Deserialize)]
struct Input {
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
    results: Vec<Card>,
    /// How many match.
    total: usize,
    /// How many there are.
    total_available: usize,
    truncated: bool,
    /// Commands of the caller's machine, which are no tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cli_hints: Vec<Hint>,
    /// Servers that are not here, where what is here does not do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    manifest_candidates: Vec<Candidate>,
    /// Servers that strangers publish, where what is here does not do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    registry_candidates: Vec<Candidate>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_seen_yet: Vec<String>,
    /// Those that nobody has seen because they do not start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Serialize)]
struct Card {
    tool_id: String,
    server: String,
    tool_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    short_description: String,
    /// Its server, and what it is about.
    tags: Vec<String>,
    availability: &'static str,
    risk_hint: Risk,
    #[serde(skip_serializing_if = "Option::is_none")]
    icons: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution: Option<Value>,
    /// Where it is not the usual one.
    #[serde(skip_serializing_if = "Option::is_none")]
    schema_dialect: Option<String>,
    /// How code uses it well, in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    code_hint: Option<&'static str>,
}

type Tool = (Arc<Server>, Arc<Known>);

/// Characters of a description on a card.
const SHORT_CHARS: usize = 100;
const LIMIT: usize = 20;
/// A tool that answers so much of a question will do.
const ENOUGH: f32 = 0.75;
/// Bytes of the icons on a card: an address is told, a picture is not.
const ICONS_BYTES: usize = 256;

async fn run(asking: Asking<'_>) -> Result<Reply, Fault> {
    let input: Input = asking.read()?;
    let (gateway, permit) = (asking.gateway, &asking.call.permit);
    if let Some(name) = &input.filters.server {
        gateway.server(permit, name)?;
    }
    let anywhere = input.filters.server.is_none();
    let in_question = |server: &Server| {
        let named = input.filters.server.as_deref();
        named.is_none_or(|name| name == &**server.name())
    };
    gateway.list_unseen(asking.call, in_question).await;
    let (state, shelf) = (gateway.state(), gateway.shelf());
    let seen = |(server, known): &Tool| {
        let (server, tool) = (&**server.name(), &*known.tool.name);
        state.sees(permit, Thing::Tool { server, tool })
    };
    let wanted = |at: u32| {
        let tool = shelf.tools.get(at as usize);
        let there = |tool: &Tool| input.include_offline || tool.0.is_online();
        tool.is_some_and(|tool| input.filters.fit(tool) && there(tool) && seen(tool))
    };
    let limit = input.limit.unwrap_or(LIMIT);
    let found = shelf.index.search(&input.query, wanted, limit);
    let hits = found.hits.iter();
    let hits = hits.filter_map(|hit| shelf.tools.get(hit.document as usize));
    let results: Vec<Card> = hits.map(|tool| card(tool, &state)).collect();
    let (failed, not_seen_yet) = unlisted(gateway, permit, in_question);
    let cli_hints = if anywhere {
        hints(permit, &input.query)
    } else {
        Vec::new()
    };
    let best = found.hits.first().map_or(0.0, |hit| hit.score);
    let (mut manifest_candidates, mut registry_candidates) = (Vec::new(), Vec::new());
    let mut said = Vec::new();
    if anywhere && permit.is_local() && best < ENOUGH {
        let out_of_question = |one: Identity<'_>| state.is_here_or_kept_out(one);
        manifest_candidates = candidates(&input.query, out_of_question);
        let registry = gateway.0.registry.as_ref();
        registry_candidates = registry
            .map(|registry| registry.candidates(&input.query, out_of_question))
            .unwrap_or_default();
        let failed = registry.and_then(|registry| registry.problem());
        said.extend(failed.map(|why| format!("the registry could not be read: {why}")));
        if registry.is_some_and(|registry| registry.is_awaited()) {
            let soon = "the registry is being read: search again in a few seconds";
            said.push(soon.to_owned());
        }
    }
    for (name, candidates) in [
        ("manifest_candidates", &manifest_candidates),
        ("registry_candidates", &registry_candidates),
    ] {
        if !candidates.is_empty() {
            let could = "are not set up here: ask the user whether to add one, by its entry";
            said.push(format!("{name} {could}"));
        }
    }
    if !not_seen_yet.is_empty() {
        let soon =
            "these servers are being looked at for the first time: search again in a few seconds";
        said.push(soon.to_owned());
    }
    if let Some(name) = failed.first() {
        let why = format!("gateway.health {{\"server\":\"{name}\"}} says why a server failed");
        said.push(why);
    }
    if anywhere {
        said.extend(waiting(&state, permit));
    }
    if anywhere && results.is_empty() && !state.unavailable_to(permit).is_empty() {
        let unused = "gateway.health {\"status\":\"withheld\"} names servers that cannot be used";
        said.push(unused.to_owned());
    }
    if said.is_empty() && !input.include_offline {
        let left_out =
            "tools of servers that do not run are left out; include_offline has them, too";
        said.push(left_out.to_owned());
    }
    let hint = (!said.is_empty()).then(|| said.join("; "));
    asking
        .reply(Output {
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
        .await
}

/// The names of servers that were never listed: those that failed, and those that may come yet.
fn unlisted(
    gateway: &Gateway,
    permit: &Permit,
    in_question: impl Fn(&Server) -> bool,
) -> (Vec<String>, Vec<String>) {
    let mut unseen = gateway.unseen(permit);
    unseen.retain(|server| in_question(server));
    // A failure stands until the next start succeeds.
    let (failed, fresh): (Vec<_>, Vec<_>) =
        unseen.iter().partition(|server| server.trouble().is_some());
    let names = |servers: Vec<&Arc<Server>>| -> Vec<String> {
        let servers = servers.into_iter();
        servers.map(|server| server.name().to_string()).collect()
    };
    (names(failed), names(fresh))
}

impl State {
    /// Whether a server is set up here under any name, or would be kept out by a policy: then it is not worth adding.
    fn is_here_or_kept_out(&self, one: Identity<'_>) -> bool {
        let policy = &self.rules.policy;
        let denied = |package: &str| matches!(policy.package(package), Package::Denied(_));
        let reaches = [one.package, one.url].into_iter().flatten();
        // A package is named with its version, or without.
        let names = |word: &str, own: &str| {
            let rest = word.strip_prefix(own);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['@', '=', ':']))
        };
        let runs = |server: &Server| {
            let mut words = server.definition.shown.split_whitespace();
            words.any(|word| reaches.clone().any(|own| names(word, own)))
        };
        let mut servers = self.servers.values();
        self.denial(one.name).is_some()
            || one.package.is_some_and(denied)
            || servers.any(|server| &**server.name() == one.name || runs(server))
    }
}

impl Filters {
    fn fit(&self, (server, known): &Tool) -> bool {
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

fn card((server, known): &Tool, state: &State) -> Card {
    let masks = state.rules.masks();
    let (server_name, tool_name) = (server.name(), &known.tool.name);
    let dialect = known.dialect();
    Card {
        tool_id: format!("{server_name}::{tool_name}"),
        server: server_name.to_string(),
        tool_name: tool_name.to_string(),
        title: known.title.clone().filter(|title| **title != **tool_name),
        short_description: short(&masks.text(&known.description), SHORT_CHARS),
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
            .listed("icons")
            .filter(|icons| icons.to_string().len() <= ICONS_BYTES),
        execution: known
            .tasks
            .as_ref()
            .map(|support| json!({"taskSupport": support})),
        schema_dialect: (dialect != DIALECT).then(|| dialect.to_owned()),
        code_hint: state.guidance.hint(known),
    }
}

/// The beginning of a text, in one line, cut at a word.
pub(crate) fn short(text: &str, chars: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((end, _)) = line.char_indices().nth(chars) else {
        return line;
    };
    let space = line[..end].rfind(' ').filter(|at| *at > end / 2);
    format!("{}…", &line[..space.unwrap_or(end)])
}
