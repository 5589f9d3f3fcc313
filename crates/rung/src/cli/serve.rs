//! How what is here is served, and what of it agents are told.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::GatewayFiles;

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches")]
pub(crate) struct ServeArgs {
    /// Where to listen; port 0 takes any that is free.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<String>,
    /// A further name by which this server may be called.
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// A further place whose pages may call, with its scheme.
    #[arg(long, value_name = "URL")]
    pub(crate) allow_origin: Vec<String>,
    /// Where others reach this server, with its scheme; every address that is told begins with it.
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// A proxy that is believed when it says which host was asked for, and over what.
    #[arg(long, value_name = "IP")]
    pub(crate) trusted_proxy: Vec<std::net::IpAddr>,
    /// Where access is asked for, if not at the same address.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) as_listen: Option<std::net::SocketAddr>,
    /// Where others reach that.
    #[arg(long, value_name = "URL", requires = "as_listen")]
    pub(crate) as_public_url: Option<String>,
    /// An authorization server elsewhere: tokens are asked about there, and none are given here.
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "as_listen",
        requires_all = ["as_credentials_file", "public_url"]
    )]
    pub(crate) as_url: Option<String>,
    /// What proves to it who asks: a file with NAME:SECRET.
    #[arg(long, value_name = "FILE", requires = "as_url")]
    pub(crate) as_credentials_file: Option<PathBuf>,
    /// The owner's password, in a file; without it, one is made and shown at the first start.
    #[arg(long, value_name = "FILE")]
    pub(crate) owner_password_file: Option<PathBuf>,
    /// Gives older clients no sessions: every request stands for itself.
    #[arg(long)]
    pub(crate) stateless: bool,
    /// Lets anybody in without a token; on this machine anybody is the owner, too.
    #[arg(long)]
    pub(crate) dev: bool,
    /// Lets clients ask of personal data only what version 0.1 of its protocol has.
    #[arg(long = "strict-0.1")]
    pub(crate) strict_0_1: bool,
    /// How tools are named: dotted, or plain for clients that refuse dots.
    #[arg(long, value_enum, default_value_t = ToolNames::Dotted, value_name = "NAMES")]
    pub(crate) tool_names: ToolNames,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    #[command(flatten)]
    pub(crate) gateway: GatewayFiles,
    /// Requests that one caller may make in a minute; 0 for any number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) rate_limit: u32,
    /// Lets anybody in, and adds what the protocol's own test suite calls.
    #[arg(long, hide = true)]
    pub(crate) conformance: bool,
}

/// How personal data is told to agents.
#[derive(Debug, Clone, Args)]
pub(crate) struct DataArgs {
    /// Which tools read personal data: the six that agents need, or two more.
    #[arg(long, value_enum, default_value_t = DataTools::Usual, value_name = "SET")]
    pub(crate) tools: DataTools,
    /// Bytes of a reply about personal data; what is asked for by number may take more.
    #[arg(long, default_value_t = rung_pdpp::tools::REPLY_BYTES, value_name = "N", value_parser = reply_bytes)]
    pub(crate) max_reply_bytes: usize,
    /// Sends no links to resources, for hosts that open every one.
    #[arg(long)]
    pub(crate) no_resource_links: bool,
    /// Gives a fetched record as its provider has it, too.
    #[arg(long)]
    pub(crate) fetch_data: bool,
}

/// Less than this would not hold the names of what is read.
const MIN_REPLY_BYTES: usize = 4_000;

fn reply_bytes(text: &str) -> Result<usize, String> {
    let bytes: usize = text.parse().map_err(|error| format!("{error}"))?;
    if (MIN_REPLY_BYTES..=1_000_000).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("from {MIN_REPLY_BYTES} to 1000000"))
}

/// Which tools read personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DataTools {
    /// schema, query_records, aggregate, search, fetch, read_record_field.
    Usual,
    /// These, list_streams and fetch_blob.
    Full,
}

/// How tools are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ToolNames {
    /// As rung.read.
    Dotted,
    /// As rung_read.
    Plain,
}

impl From<ToolNames> for rung_tool::Names {
    fn from(names: ToolNames) -> Self {
        match names {
            ToolNames::Dotted => Self::Dotted,
            ToolNames::Plain => Self::Plain,
        }
    }
}
