//! The `rung` binary: the command line, the settings, and the wiring. Logic lives in the crates below.

mod cli;
mod commands;
mod conformance;
mod demo;
mod exit;
mod offer;
mod password;
mod reach;
mod records;
mod resources;
mod results;
mod settings;
mod shelf;
mod table;
mod tokens;
mod tools;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let cli = cli::Cli::parse_from(cli::under_another_name(std::env::args_os()));
    exit::status(commands::run(cli))
}
