//! `rung.about`: what is behind the door for whoever asks.
#![allow(
    clippy::doc_markdown,
    rustdoc::broken_intra_doc_links,
    reason = "these comments are the schema that agents read"
)]

use std::sync::Arc;

use rung_auth::{Access, Permit};
use rung_db::Holds;
use rung_fault::Fault;
use rung_gateway::Gateway;
use rung_mcp::Version;
use rung_tool::{Answer, Call, Tool, ToolSource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shelf::Shelf;
use crate::tokens::is_agent;

/// A small i.
const ICON: &str = "data:image/svg+xml;base64,PHN2ZyB4bWxucz0naHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmcnIHZpZXdCb3g9JzAgMCAxNiAxNic+PHBhdGggZD0nTTggN3Y2TTggM3YyJyBzdHJva2U9JyMzNjUnIHN0cm9rZS13aWR0aD0nMicvPjwvc3ZnPg==";

/// What a caller reaches beside stored results.
#[derive(Clone, Default)]
pub(crate) struct Reachable {
    pub(crate) data: Option<Arc<dyn ToolSource>>,
    pub(crate) databases: Option<Arc<rung_db::Tools>>,
    pub(crate) servers: Option<Gateway>,
}

impl Reachable {
    /// Every source that this caller may see, and no other.
    async fn sources(&self, permit: &Permit) -> Result<Vec<Source>, Fault> {
        let source = |kind, name: String, what: String| Source { name, kind, what };
        let mut all = vec![source(
            "results",
            "rung".to_owned(),
            "results that were too long to be sent whole".to_owned(),
        )];
        if let Some(data) = &self.data
            && !data.list(permit).await?.is_empty()
        {
            let what = "personal data that the owner granted".to_owned();
            all.push(source("personal_data", "personal data".to_owned(), what));
        }
        // A client that reads personal data under a grant is offered nothing else.
        if is_agent(permit) {
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
                Holds::Facts => "facts, asked by Datalog",
                Holds::Tables => "tables of keys and values",
            };
            let what = match access {
                Access::Read => format!("{holds}; you may read it"),
                Access::Write => format!("{holds}; you may change it"),
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

/// Says what is here.
pub(crate) struct About {
    shelf: Shelf,
    reachable: Reachable,
    reply_bytes: usize,
    ttl_s: u64,
    max_bytes: u64,
}

impl About {
    pub(crate) fn new(
        shelf: Shelf,
        reachable: Reachable,
        reply_bytes: usize,
        ttl_s: u64,
        max_bytes: u64,
    ) -> Self {
        Self {
            shelf,
            reachable,
            reply_bytes,
            ttl_s,
            max_bytes,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AboutInput {}

/// What is behind the door for you.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AboutOutput {
    version: &'static str,
    protocol_versions: Vec<&'static str>,
    /// Who you are here.
    caller: String,
    /// read or write.
    access: &'static str,
    /// Everything that you reach: stored results, personal data, databases, MCP servers.
    sources: Vec<Source>,
    limits: Limits,
    /// Results kept for you; resources/list names them.
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
    /// A longer reply is cut, and all of it is kept.
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

impl Tool for About {
    const NAME: &'static str = "rung.about";
    const ICON: Option<&'static str> = Some(ICON);
    const TITLE: &'static str = "About this door";
    const DESCRIPTION: &'static str = "Says what is behind this door for you: sources, versions, limits, and how many results are \
         kept for you.";
    type Input = AboutInput;
    type Output = AboutOutput;
    type Error = Fault;

    async fn run(&self, call: &Call, _: AboutInput) -> Result<Answer<AboutOutput>, Fault> {
        let kept = self.shelf.listed(&call.permit).await?;
        let about = AboutOutput {
            version: env!("CARGO_PKG_VERSION"),
            protocol_versions: Version::ALL
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
        Ok(about.into())
    }
}
