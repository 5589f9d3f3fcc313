//! The `rung` binary: the command line, the settings, and the wiring. Logic lives in the crates below.

mod cli;
mod commands;
mod conformance;
mod data_folder;
mod databases;
mod demo;
mod embeddings;
mod exit;
mod gateway;
mod grant_file;
mod leader;
mod listen_address;
mod log;
mod password;
mod records;
mod resources;
mod result_store;
mod server_config;
mod server_target;
mod settings;
mod style;
mod table;
mod tokens;
mod tools;

fn main() -> std::process::ExitCode {
    exit::exit_code(commands::run(cli::parse()))
}
