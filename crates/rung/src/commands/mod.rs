//! One file a command. Each is given the settings and prints its answer.

mod completions;
mod config;
mod man;
mod result;

use crate::cli::{Cli, Command};
use crate::exit::Result;
use crate::settings::{Given, Settings, visible};

/// Does what the command line says.
pub(crate) fn run(cli: Cli) -> Result {
    match cli.command {
        Command::Completions { shell } => completions::run(shell),
        Command::Man { dir } => man::run(dir.as_deref()),
        Command::Config(command) => {
            let given = Given::here(cli.home, cli.set)?;
            config::run(&command, &given)
        }
        Command::Result(command) => {
            let settings = Settings::load(&Given::here(cli.home, cli.set)?)?;
            warn(&settings);
            result::run(command, &settings)
        }
    }
}

/// Says what an unapproved project file asked for in vain.
fn warn(settings: &Settings) {
    for path in settings.passed_over() {
        eprintln!(
            "warning[untrusted_project]: {} belongs to another user and is passed over",
            visible(&path.to_string_lossy())
        );
    }
    for withheld in settings.withheld() {
        eprintln!(
            "warning[untrusted_project]: {} is not applied ({})\n  next: look at the file, then `rung config trust`",
            withheld.key, withheld.origin
        );
    }
}
