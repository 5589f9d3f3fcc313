//! Arguments of `rung serve`, and the personal-data flags that `rung pdpp mcp` shares with it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::GatewayFiles;
use crate::listen_address::ListenAddress;

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches")]
pub(crate) struct ServeArgs {
    /// Host and port to listen on; port 0 selects a free one.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// Additional host name to accept in the Host header; repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// Additional web origin that may call, with its scheme; repeatable.
    #[arg(long, value_name = "URL")]
    pub(crate) allow_origin: Vec<String>,
    /// URL at which clients reach this server; every published URL begins with it.
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// IP address of a proxy whose Forwarded and X-Forwarded headers are trusted; repeatable.
    #[arg(long, value_name = "IP")]
    pub(crate) trusted_proxy: Vec<std::net::IpAddr>,
    /// Host and port of a separate listener for the authorization server; by default it shares the main one.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) as_listen: Option<ListenAddress>,
    /// URL at which clients reach the listener of --as-listen.
    #[arg(long, value_name = "URL", requires = "as_listen")]
    pub(crate) as_public_url: Option<String>,
    /// URL of a remote authorization server that introspects tokens; this server then issues none.
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "as_listen",
        requires_all = ["as_credentials_file", "public_url"]
    )]
    pub(crate) as_url: Option<String>,
    /// File with NAME:SECRET, the credentials of this server at --as-url.
    #[arg(long, value_name = "FILE", requires = "as_url")]
    pub(crate) as_credentials_file: Option<PathBuf>,
    /// File with the owner's password; by default one is generated and printed at the first start.
    #[arg(long, value_name = "FILE")]
    pub(crate) owner_password_file: Option<PathBuf>,
    /// Keep no sessions for legacy clients: every request is independent.
    #[arg(long)]
    pub(crate) stateless: bool,
    /// Accept clients without a token. If only this machine can connect, they also act as the owner.
    #[arg(long)]
    pub(crate) dev: bool,
    /// Reject personal-data requests of clients that use more than version 0.1 of PDPP.
    #[arg(long = "strict-0.1")]
    pub(crate) strict_0_1: bool,
    /// Style of tool names: dotted, or plain for clients that reject dots.
    #[arg(long, value_enum, default_value_t = ToolNames::Dotted, value_name = "NAMES")]
    pub(crate) tool_names: ToolNames,
    #[command(flatten)]
    pub(crate) data: PersonalDataArgs,
    #[command(flatten)]
    pub(crate) gateway: GatewayFiles,
    /// Maximum requests per minute from one caller; 0 is unlimited.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) rate_limit: u32,
    /// Accept clients without a token, and add what the MCP conformance suite calls.
    #[arg(long, hide = true)]
    pub(crate) conformance: bool,
}

/// Presentation of personal data to agents.
#[derive(Debug, Clone, Args)]
pub(crate) struct PersonalDataArgs {
    /// Tools that read personal data: the usual six, or two more.
    #[arg(long, value_enum, default_value_t = PersonalDataTools::Usual, value_name = "SET")]
    pub(crate) tools: PersonalDataTools,
    /// Maximum bytes of each form of a personal-data reply, unless the call itself requests a size. Without it, a reply has
    /// 12000 bytes, 480 more for each row beyond 25, and more where rows would be left out.
    #[arg(long, value_name = "N", value_parser = reply_bytes)]
    pub(crate) max_reply_bytes: Option<usize>,
    /// Send no resource links, for hosts that open every link.
    #[arg(long)]
    pub(crate) no_resource_links: bool,
    /// Add the provider's original record to the reply of fetch.
    #[arg(long)]
    pub(crate) fetch_data: bool,
}

/// Lower limit of `--max-reply-bytes`: a smaller reply cannot hold the names of what it reads.
const MIN_REPLY_BYTES: usize = 4_000;

fn reply_bytes(text: &str) -> Result<usize, String> {
    let bytes: usize = text.parse().map_err(|error| format!("{error}"))?;
    if (MIN_REPLY_BYTES..=1_000_000).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("from {MIN_REPLY_BYTES} to 1000000"))
}

/// Tools that read personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PersonalDataTools {
    /// schema, query_records, aggregate, search, fetch, read_record_field.
    Usual,
    /// The usual tools, list_streams and fetch_blob.
    Full,
}

/// Style of tool names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ToolNames {
    /// Dots, as in rung.read.
    Dotted,
    /// Underscores, as in rung_read.
    Plain,
}

impl From<ToolNames> for rung_tool::NameStyle {
    fn from(names: ToolNames) -> Self {
        match names {
            ToolNames::Dotted => Self::Dotted,
            ToolNames::Plain => Self::Plain,
        }
    }
}
