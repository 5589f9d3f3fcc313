//! `rung man`

use std::io::Write as _;
use std::path::Path;

use clap::CommandFactory as _;
use rung_fault::{Code, Fault};

use crate::cli::Cli;
use crate::exit::{Result, output};

pub(super) fn run(dir: Option<&Path>) -> Result {
    let command = Cli::command();
    if let Some(dir) = dir {
        let unwritable =
            |error| Fault::new(Code::StoreBroken, format!("{}: {error}", dir.display()));
        std::fs::create_dir_all(dir).map_err(unwritable)?;
        return Ok(clap_mangen::generate_to(command, dir).map_err(unwritable)?);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut page)
        .map_err(output)?;
    std::io::stdout().write_all(&page).map_err(output)
}
