//! Somebody else's server: which, and what is asked of it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Which server, and how to reach it.
#[derive(Debug, Args)]
pub(crate) struct ReachArgs {
    /// A command in quotes, an address, or the name of a source.
    #[arg(value_name = "SERVER|COMMAND|URL")]
    pub(crate) server: String,
    /// A variable for the command, as NAME=VALUE, or NAME for its value here.
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// A header for the address, as NAME: VALUE.
    #[arg(long, value_name = "HEADER")]
    pub(crate) header: Vec<String>,
    /// Takes the server from a client's configuration file, by its name there.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The era to speak; without it, the newest that the server knows.
    #[arg(long, value_enum, value_name = "ERA")]
    pub(crate) era: Option<EraName>,
    /// Seconds to wait for the server to start, and for an answer.
    #[arg(long, default_value_t = 60, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
    /// For programs.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The two eras of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EraName {
    /// Up to 2025-11-25.
    Legacy,
    /// Since 2026-07-28.
    Modern,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
    /// The tool.
    pub(crate) tool: String,
    /// Its arguments as a JSON object, as @FILE, or as - for standard input.
    #[arg(long, value_name = "JSON")]
    pub(crate) args: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}
