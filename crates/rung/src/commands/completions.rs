//! `rung completions`.

use std::io::Write as _;

use clap::CommandFactory as _;

use crate::cli::Cli;
use crate::exit::{Result, output_error};

pub(super) fn run(shell: clap_complete::Shell) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "rung", &mut script);
    std::io::stdout().write_all(&script).map_err(output_error)
}
