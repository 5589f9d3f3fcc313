//! The chores of this workspace: `cargo xtask test`, and parts of it by themselves.

mod conformance;
mod docs;
mod fuzz;
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
    /// Checks everything: format, lints, licences, docs, unit, property and black-box tests, fuzz targets that changed.
    Test {
        /// Also what is slow: more cases, more crashes, fuzzing, benchmarks.
        #[arg(long)]
        long: bool,
    },
    /// Checks one crate in seconds: format, lints and its tests.
    Check {
        /// The crate, as `rung-ladder`.
        #[arg(value_name = "CRATE")]
        package: String,
        /// Run only the tests whose names contain one of these.
        filters: Vec<String>,
    },
    /// Builds and runs the fuzz targets that changed, and records that they were.
    Fuzz {
        /// Every target, changed or not.
        #[arg(long)]
        all: bool,
        /// How long each one runs.
        #[arg(long, default_value_t = 10)]
        seconds: u32,
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
        Chore::Check { package, filters } => {
            steps::check(&package, &filters)?;
            Ok(ExitCode::SUCCESS)
        }
        Chore::Fuzz { all, seconds } => {
            let targets = if all { fuzz::all()? } else { fuzz::changed()? };
            anyhow::ensure!(
                targets.is_empty() || steps::install("fuzz"),
                "cargo-fuzz could not be installed"
            );
            fuzz::verify(&targets, seconds)?;
            println!("{} built and run: {}", targets.len(), targets.join(" "));
            Ok(ExitCode::SUCCESS)
        }
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
