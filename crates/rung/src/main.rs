//! The `rung` binary: the command line, the settings, and the wiring. Logic lives in the crates below.

// They panic when the reader of the stream is gone: `print` does not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

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
mod instructions;
mod leader;
mod listen_address;
mod log;
mod password;
mod print;
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
