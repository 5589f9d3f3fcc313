//! `rung.about`: what the caller can reach, and the limits.
#![allow(
    clippy::doc_markdown,
    rustdoc::broken_intra_doc_links,
    reason = "these comments are the schema that agents read"
)]

use std::sync::Arc;

use rung_auth::{Access, Permit};
use rung_db::StoreKind;
use rung_fault::Fault;
use rung_gateway::Gateway;
use rung_mcp::ProtocolVersion;
use rung_tool::{
    Answer, Body, Call, InputSchema, Tool, ToolSource, input_schema_of, output_schema_of,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{RungContext, RungTools};
use crate::result_store::AnyResultStore;
use crate::tokens::is_grant_client;

/// Icon: a small i.
const ICON: &str = "data:image/svg+xml;base64,PHN2ZyB4bWxucz0naHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmcnIHZpZXdCb3g9JzAgMCAxNiAxNic+PHBhdGggZD0nTTggN3Y2TTggM3YyJyBzdHJva2U9JyMzNjUnIHN0cm9rZS13aWR0aD0nMicvPjwvc3ZnPg==";

/// Sources that a caller can reach, besides stored results.
#[derive(Clone, Default)]
pub(crate) struct ReachableSources {
    pub(crate) data: Option<Arc<rung_pdpp::tools::Tools>>,
    pub(crate) databases: Option<Arc<rung_db::Tools>>,
    pub(crate) servers: Option<Gateway>,
}

/// The owner's names of what a caller reaches.
#[derive(Debug, Default)]
pub(crate) struct ReachableNames {
    pub(crate) personal_data: Vec<String>,
    pub(crate) databases: Vec<String>,
    pub(crate) servers: Vec<String>,
}

impl ReachableSources {
    /// Returns the names of what a caller reaches. What cannot be read now is left out.
    pub(crate) async fn names(&self, permit: &Permit) -> ReachableNames {
        let personal_data = match &self.data {
            Some(data) => data.source_names(permit).await.unwrap_or_default(),
            None => Vec::new(),
        };
        if is_grant_client(permit) {
            return ReachableNames {
                personal_data,
                ..ReachableNames::default()
            };
        }
        let databases = self.databases.as_ref();
        let databases = databases.map(|databases| databases.databases(permit));
        let servers = self.servers.as_ref();
        let servers = servers.map(|gateway| gateway.server_names(permit));
        ReachableNames {
            personal_data,
            databases: databases
                .into_iter()
                .flatten()
                .map(|(name, ..)| name)
                .collect(),
            servers: servers.unwrap_or_default(),
        }
    }

    /// Returns the sources that this caller may see.
    async fn sources(&self, permit: &Permit) -> Result<Vec<Source>, Fault> {
        let source = |kind, name: String, what: String| Source { name, kind, what };
        let mut all = vec![source(
            "results",
            "rung".to_owned(),
            "stored results that were too long for one reply".to_owned(),
        )];
        if let Some(data) = &self.data
            && !data.list(permit).await?.is_empty()
        {
            let what = "personal data that the owner granted".to_owned();
            all.push(source("personal_data", "personal data".to_owned(), what));
        }
        // A client that reads personal data under a grant is offered nothing else.
        if is_grant_client(permit) {
            return Ok(all);
        }
        let mut databases = self
            .databases
            .as_ref()
            .map(|databases| databases.databases(permit))
            .unwrap_or_default();
        databases.sort_by(|one, other| one.0.cmp(&other.0));
        all.extend(databases.into_iter().map(|(name, holds, access)| {
            let holds = match holds {
                StoreKind::Facts => "facts, queried with Datalog",
                StoreKind::Tables => "tables of keys and values",
            };
            let what = match access {
                Access::Read => format!("{holds}; read-only"),
                Access::Write => format!("{holds}; read and write"),
            };
            source("database", name, what)
        }));
        let servers = self.servers.as_ref();
        let servers = servers.map(|gateway| gateway.servers(permit));
        let servers = servers.into_iter().flatten();
        all.extend(servers.map(|(name, what)| source("server", name, what)));
        Ok(all)
    }
}

/// What `rung.about` reports besides the caller.
pub(crate) struct About {
    pub(crate) store: AnyResultStore,
    pub(crate) reachable: ReachableSources,
    pub(crate) reply_bytes: usize,
    pub(crate) ttl_s: u64,
    pub(crate) max_bytes: u64,
}

pub(crate) const TOOL: Tool<RungTools, AboutInput> = Tool::new(
    "rung.about",
    "Lists what you can reach: sources, versions, limits, and the number of your stored results.",
    InputSchema::Built(input_schema_of::<AboutInput>),
    Body::Async(|context: &RungContext<'_>, _| Box::pin(context.set.about.run(context.call))),
)
.titled("About this server")
.with_icon(ICON)
.with_output(output_schema_of::<AboutOutput>);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AboutInput {}

/// What you can reach here.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AboutOutput {
    version: &'static str,
    protocol_versions: Vec<&'static str>,
    /// Your name here.
    caller: String,
    /// read or write.
    access: &'static str,
    /// All you can reach: stored results, personal data, databases, MCP servers.
    sources: Vec<Source>,
    limits: Limits,
    /// Your stored results; resources/list names them.
    kept: Kept,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Source {
    name: String,
    /// results, personal_data, database or server.
    kind: &'static str,
    what: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Limits {
    /// A longer reply is cut and stored whole.
    reply_bytes: usize,
    kept_bytes: u64,
    kept_seconds: u64,
    message_bytes: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Kept {
    results: usize,
    bytes: u64,
}

impl About {
    async fn run(&self, call: &Call) -> Result<Answer, Fault> {
        let kept = self.store.list_async(&call.permit).await?;
        let about = AboutOutput {
            version: env!("CARGO_PKG_VERSION"),
            protocol_versions: ProtocolVersion::ALL
                .iter()
                .rev()
                .map(|version| version.name())
                .collect(),
            caller: call.permit.caller().to_string(),
            access: match call.permit.access() {
                Access::Read => "read",
                Access::Write => "write",
            },
            sources: self.reachable.sources(&call.permit).await?,
            limits: Limits {
                reply_bytes: self.reply_bytes,
                kept_bytes: self.max_bytes,
                kept_seconds: self.ttl_s,
                message_bytes: rung_mcp::MAX_MESSAGE_BYTES,
            },
            kept: Kept {
                results: kept.len(),
                bytes: kept.iter().map(|kept| kept.summary.bytes).sum(),
            },
        };
        Answer::output(about.into())
    }
}
