//! `rung.about`: what is behind the door for whoever asks.
#![allow(
    clippy::doc_markdown,
    rustdoc::broken_intra_doc_links,
    reason = "these comments are the schema that agents read"
)]

use rung_auth::Access;
use rung_fault::Fault;
use rung_mcp::Version;
use rung_tool::{Answer, Call, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shelf::Shelf;

/// A small i.
const ICON: &str = "data:image/svg+xml;base64,PHN2ZyB4bWxucz0naHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmcnIHZpZXdCb3g9JzAgMCAxNiAxNic+PHBhdGggZD0nTTggN3Y2TTggM3YyJyBzdHJva2U9JyMzNjUnIHN0cm9rZS13aWR0aD0nMicvPjwvc3ZnPg==";

/// Says what is here.
pub(crate) struct About {
    shelf: Shelf,
    reply_bytes: usize,
    ttl_s: u64,
    max_bytes: u64,
}

impl About {
    pub(crate) fn new(shelf: Shelf, reply_bytes: usize, ttl_s: u64, max_bytes: u64) -> Self {
        Self {
            shelf,
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
    sources: Vec<Source>,
    limits: Limits,
    /// Results kept for you; resources/list names them.
    kept: Kept,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Source {
    name: &'static str,
    what: &'static str,
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
            sources: vec![Source {
                name: "rung",
                what: "results that were too long to be sent whole",
            }],
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
