//! The chores of this workspace: `cargo xtask test`, and parts of it by themselves.

mod conformance;
mod docs;
mod steps;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

/// The chores of this workspace.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Checks everything: format, lints, licences, docs, unit, property and black-box tests, fuzz targets.
    Test {
        /// Also what is slow: more cases, more crashes, fuzzing, benchmarks.
        #[arg(long)]
        long: bool,
    },
    /// Runs the protocol's own test suite against the binary.
    Conformance,
    /// Writes the generated pages under docs/reference.
    Docs,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    std::env::set_current_dir(root()?)?;
    match cli.chore {
        Chore::Test { long } => Ok(steps::test(long)),
        Chore::Conformance => {
            conformance::check()?;
            Ok(ExitCode::SUCCESS)
        }
        Chore::Docs => {
            docs::write()?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn root() -> Result<PathBuf> {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = own.parent().context("xtask lies in the workspace")?;
    Ok(root.to_owned())
}
