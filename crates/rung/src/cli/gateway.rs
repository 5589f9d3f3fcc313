//! Other servers: which there are, how they are shown, and what is asked of the gateway.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::ToolNames;

/// Which other servers there are, and how they are shown.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct GatewayFiles {
    /// A file that names other servers; it counts before the project's .mcp.json and the user's.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A policy for other servers, beside the user's and the project's.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// The project's folder; without it, the nearest above that looks like one.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// Starts servers of the project's .mcp.json without approval.
    #[arg(long)]
    pub(crate) trust_project: bool,
    /// How other servers are shown: by tools that find and call theirs, or by their own tools.
    #[arg(long, value_enum, default_value_t = SurfaceName::Meta, value_name = "SURFACE")]
    pub(crate) surface: SurfaceName,
}

/// How other servers are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum SurfaceName {
    /// gateway.catalog_search, gateway.describe, gateway.invoke and the rest.
    #[default]
    Meta,
    /// Every tool of every server.
    Direct,
}

impl From<SurfaceName> for rung_gateway::Surface {
    fn from(name: SurfaceName) -> Self {
        match name {
            SurfaceName::Meta => Self::Meta,
            SurfaceName::Direct => Self::Direct,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    pub(crate) serve: GatewayServeArgs,
    #[command(subcommand)]
    pub(crate) command: Option<GatewayCommand>,
}

#[derive(Debug, Args)]
pub(crate) struct GatewayServeArgs {
    #[command(flatten)]
    pub(crate) files: GatewayFiles,
    /// How it is spoken to. PMCP_TRANSPORT says so, too.
    #[arg(long, value_enum, value_name = "TRANSPORT")]
    pub(crate) transport: Option<Transport>,
    /// Where it listens, over HTTP: 127.0.0.1 without this or PMCP_HOST.
    #[arg(long, value_name = "IP")]
    pub(crate) host: Option<String>,
    /// At which port: 3344 without this or PMCP_PORT.
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// A file with the token that callers must show over HTTP; PMCP_AUTH_TOKEN holds one, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) auth_token_file: Option<PathBuf>,
    /// The token itself, which others on this machine can see.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) auth_token: Option<String>,
    /// Requests that one caller may make in a minute; 0 for any number. PMCP_RATE_LIMIT says so, too.
    #[arg(long, value_name = "N")]
    pub(crate) rate_limit: Option<u32>,
    /// A further place whose pages may call, with its scheme. PMCP_ALLOWED_ORIGINS has some, too, with commas between.
    #[arg(long, alias = "allow-origin", value_name = "URL")]
    pub(crate) allowed_origin: Vec<String>,
    /// A further name by which it may be called, as behind a proxy that keeps it.
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// How much it tells on stderr. PMCP_LOG_LEVEL says so, too.
    #[arg(short, long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Tells everything on stderr.
    #[arg(long, conflicts_with = "log_level")]
    pub(crate) debug: bool,
    /// Tells errors alone.
    #[arg(short, long, conflicts_with_all = ["log_level", "debug"])]
    pub(crate) quiet: bool,
    /// How it is told.
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    /// Servers that are started at once, where several are: 8. PMCP_MAX_SPAWNS says so, too.
    #[arg(long, value_name = "N")]
    pub(crate) max_concurrent_spawns: Option<usize>,
    /// Seconds that any call may take; without it, as the call says. PMCP_REQUEST_TIMEOUT says so, too.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) request_timeout: Option<u64>,
    /// Taken and not used: several of these need no lock.
    #[arg(long, value_name = "DIR")]
    pub(crate) lock_dir: Option<PathBuf>,
    /// How tools are named: dotted, or plain for clients that refuse dots.
    #[arg(long, value_enum, default_value_t = ToolNames::Dotted, value_name = "NAMES")]
    pub(crate) tool_names: ToolNames,
}

/// How it is told what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// An object a line.
    Json,
}

/// How the gateway is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Standard input and output.
    Stdio,
    /// Streamable HTTP.
    Http,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Which servers there are, where they come from, and what is known of them.
    Status {
        #[command(flatten)]
        files: GatewayFiles,
        /// One server alone.
        #[arg(short, long, value_name = "NAME")]
        server: Option<String>,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
    /// Shows servers of the project's .mcp.json with the values of its .env.pmcp, asks, and approves them.
    Trust {
        #[command(flatten)]
        files: GatewayFiles,
        /// Their names; all without any.
        names: Vec<String>,
        /// Says what is approved and what waits, and approves nothing.
        #[arg(long)]
        list: bool,
        /// Takes approvals back.
        #[arg(long, conflicts_with = "list")]
        revoke: bool,
        /// Approves without asking.
        #[arg(long, conflicts_with_all = ["list", "revoke"])]
        yes: bool,
    },
    /// Whether a tool can be used, and by which rule.
    Why {
        #[command(flatten)]
        files: GatewayFiles,
        /// The tool, as server::tool; or a server, or a tool of the gateway itself.
        tool: String,
        /// It is a resource, as server::uri.
        #[arg(long)]
        resource: bool,
        /// It is a prompt, as server::name.
        #[arg(long, conflicts_with = "resource")]
        prompt: bool,
        /// As the bearer of this token would see it.
        #[arg(long, value_name = "NAME")]
        token: Option<String>,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
}
