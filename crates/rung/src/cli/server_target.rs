//! Arguments of `rung call` and `rung inspect`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// MCP server, and how to connect to it.
#[derive(Debug, Args)]
pub(crate) struct ServerTargetArgs {
    /// MCP server: a command in quotes, a URL, or the name of a source in the settings.
    #[arg(value_name = "SERVER|COMMAND|URL")]
    pub(crate) server: String,
    /// Environment variable for the command: NAME=VALUE, or NAME to pass its current value; repeatable.
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// HTTP header for the URL, as NAME: VALUE; repeatable.
    #[arg(long, value_name = "HEADER")]
    pub(crate) header: Vec<String>,
    /// Look up the server by name in this MCP client configuration file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Protocol versions to use; by default the newest that the server supports.
    #[arg(long, value_enum, value_name = "ERA")]
    pub(crate) era: Option<EraName>,
    /// Seconds to wait for the server to start, and for each response.
    #[arg(long, default_value_t = 60, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Two incompatible ranges of protocol versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EraName {
    /// Versions up to 2025-11-25.
    Legacy,
    /// Versions since 2026-07-28.
    Modern,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    #[command(flatten)]
    pub(crate) reach: ServerTargetArgs,
    /// Name of the tool.
    pub(crate) tool: String,
    /// Arguments as a JSON object; @FILE reads a file, - reads standard input.
    #[arg(long, value_name = "JSON")]
    pub(crate) args: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) reach: ServerTargetArgs,
}
