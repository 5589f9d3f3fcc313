//! The `rung` binary: the command line, the settings, and the wiring. Logic lives in the crates below.

mod cli;
mod commands;
mod conformance;
mod databases;
mod demo;
mod embeddings;
mod exit;
mod gateway;
mod grant_file;
mod log;
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
mod windows;

fn main() -> std::process::ExitCode {
    exit::status(commands::run(cli::parsed()))
}
