//! The tasks of this workspace: `cargo xtask test`, and parts of it alone.

mod conformance;
mod docs;
mod fuzz;
mod names;
mod steps;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

/// Tasks of this workspace.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check everything: format, lints, licences, docs, unit, property and black-box tests, changed fuzz targets.
    Test {
        /// Also run the slow steps: more cases, crashes, fuzzing, real clients, benchmarks.
        #[arg(long)]
        long: bool,
    },
    /// Check one crate in seconds: format, lints and its tests.
    Check {
        /// Crate to check, such as `rung-ladder`.
        #[arg(value_name = "CRATE")]
        package: String,
        /// Run only the tests whose names contain one of these words.
        filters: Vec<String>,
    },
    /// Build and run the fuzz targets that changed, and record that they passed.
    Fuzz {
        /// Run every target, changed or not.
        #[arg(long)]
        all: bool,
        /// Seconds for which each target runs.
        #[arg(long, default_value_t = 10)]
        seconds: u32,
    },
    /// Run the protocol's own test suite against the binary.
    Conformance,
    /// Write the generated pages under docs/reference.
    Docs,
    /// List type names with more than two definitions, and banned names.
    Names,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    std::env::set_current_dir(root()?)?;
    match cli.task {
        Task::Test { long } => Ok(steps::test(long)),
        Task::Check { package, filters } => {
            steps::check(&package, &filters)?;
            Ok(ExitCode::SUCCESS)
        }
        Task::Fuzz { all, seconds } => {
            let targets = if all { fuzz::all()? } else { fuzz::changed()? };
            anyhow::ensure!(
                targets.is_empty() || steps::install("fuzz"),
                "cargo-fuzz could not be installed"
            );
            fuzz::verify(&targets, seconds)?;
            println!("{} built and run: {}", targets.len(), targets.join(" "));
            Ok(ExitCode::SUCCESS)
        }
        Task::Conformance => {
            conformance::check()?;
            Ok(ExitCode::SUCCESS)
        }
        Task::Docs => {
            docs::write()?;
            Ok(ExitCode::SUCCESS)
        }
        Task::Names => {
            names::check()?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn root() -> Result<PathBuf> {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = own.parent().context("xtask lies in the workspace")?;
    Ok(root.to_owned())
}
