//! Arguments of `rung gateway`, and the downstream-server flags that `rung mcp` and `rung serve` share with it.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::ToolNames;

/// Configuration of downstream servers, and the surface that shows them.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct GatewayFiles {
    /// Configuration file that names downstream servers, such as {"mcpServers": {"files": {"command": "npx", "args": ["-y",
    /// "PACKAGE"]}}}; it overrides the project's .mcp.json and the user's.
    #[arg(short, long, value_name = "FILE")]
    #[allow(clippy::doc_link_with_quotes, reason = "it is JSON")]
    pub(crate) config: Option<PathBuf>,
    /// Policy file for downstream servers, applied in addition to the user's and the project's.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Project folder; by default the nearest one at or above the working folder.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// Start servers of the project's .mcp.json without approval.
    #[arg(long)]
    pub(crate) trust_project: bool,
    /// Tools that clients see: a few that search and call downstream tools, or every downstream tool.
    #[arg(long, value_enum, default_value_t = SurfaceName::Meta, value_name = "SURFACE")]
    pub(crate) surface: SurfaceName,
}

/// Tools by which clients see downstream servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum SurfaceName {
    /// gateway.catalog_search, gateway.describe, gateway.invoke and the gateway's other tools.
    #[default]
    Meta,
    /// Every tool of every downstream server.
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
    /// Transport to serve, by default stdio. PMCP_TRANSPORT overrides this flag.
    #[arg(long, value_enum, value_name = "TRANSPORT")]
    pub(crate) transport: Option<GatewayTransport>,
    /// IP address or host name to listen on over HTTP, by default 127.0.0.1. PMCP_HOST overrides this flag.
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Port to listen on over HTTP, by default 3344. PMCP_PORT overrides this flag.
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// File whose first line is the token that HTTP clients must send; it overrides PMCP_AUTH_TOKEN.
    #[arg(long, value_name = "FILE")]
    pub(crate) auth_token_file: Option<PathBuf>,
    /// Token that HTTP clients must send. Other users of this machine can see it: prefer --auth-token-file.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) auth_token: Option<String>,
    /// Maximum requests per minute from one caller; 0 is unlimited. PMCP_RATE_LIMIT overrides this flag.
    #[arg(long, value_name = "N")]
    pub(crate) rate_limit: Option<u32>,
    /// Additional web origin that may call, with its scheme; repeatable. PMCP_ALLOWED_ORIGINS adds a comma-separated list.
    #[arg(long, alias = "allow-origin", value_name = "URL")]
    pub(crate) allowed_origin: Vec<String>,
    /// Additional host name to accept in the Host header, for example behind a proxy that forwards it; repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// Log level on standard error: off, error, warn, info, debug or trace. PMCP_LOG_LEVEL overrides this flag.
    #[arg(short, long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Log at level debug.
    #[arg(long, conflicts_with = "log_level")]
    pub(crate) debug: bool,
    /// Log errors only.
    #[arg(short, long, conflicts_with_all = ["log_level", "debug"])]
    pub(crate) quiet: bool,
    /// Format of log messages.
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    /// Maximum number of servers to start at once, by default 8. PMCP_MAX_SPAWNS overrides this flag.
    #[arg(long, value_name = "N")]
    pub(crate) max_concurrent_spawns: Option<usize>,
    /// Maximum seconds for any call; by default as each call requests. PMCP_REQUEST_TIMEOUT overrides this flag.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) request_timeout: Option<u64>,
    /// Ignored, accepted for compatibility: several gateways need no lock.
    #[arg(long, value_name = "DIR")]
    pub(crate) lock_dir: Option<PathBuf>,
    /// Style of tool names: dotted, or plain for clients that reject dots.
    #[arg(long, value_enum, default_value_t = ToolNames::Dotted, value_name = "NAMES")]
    pub(crate) tool_names: ToolNames,
}

/// Format of log messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines of text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Transport that the gateway serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GatewayTransport {
    /// Standard input and output.
    Stdio,
    /// Streamable HTTP.
    Http,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// List the configured servers with their origin, number of tools and state.
    Status {
        #[command(flatten)]
        files: GatewayFiles,
        /// Show only this server.
        #[arg(short, long, value_name = "NAME")]
        server: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Approve servers of the project's .mcp.json, after showing them with the values of its .env.pmcp and asking.
    Trust {
        #[command(flatten)]
        files: GatewayFiles,
        /// Names of the servers; by default all.
        names: Vec<String>,
        /// List approved servers and those that wait for approval, and approve none.
        #[arg(long)]
        list: bool,
        /// Revoke approvals.
        #[arg(long, conflicts_with = "list")]
        revoke: bool,
        /// Approve without asking.
        #[arg(long, conflicts_with_all = ["list", "revoke"])]
        yes: bool,
    },
    /// Explain whether a tool can be used, and which rule decides.
    Why {
        #[command(flatten)]
        files: GatewayFiles,
        /// Tool, as server::tool; or a server, or a tool of the gateway itself.
        tool: String,
        /// Treat the name as a resource: server::uri.
        #[arg(long)]
        resource: bool,
        /// Treat the name as a prompt: server::name.
        #[arg(long, conflicts_with = "resource")]
        prompt: bool,
        /// Check the access of the token of this name, instead of the local user.
        #[arg(long, value_name = "NAME")]
        token: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}
