//! `rung man`.

use std::io::Write as _;
use std::path::Path;

use rung_fault::{Code, Fault};

use crate::cli;
use crate::exit::{Result, output_error};

pub(super) fn run(dir: Option<&Path>) -> Result {
    let command = cli::command();
    if let Some(dir) = dir {
        let unwritable =
            |error| Fault::new(Code::StoreBroken, format!("{}: {error}", dir.display()));
        std::fs::create_dir_all(dir).map_err(unwritable)?;
        return Ok(clap_mangen::generate_to(command, dir).map_err(unwritable)?);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut page)
        .map_err(output_error)?;
    std::io::stdout().write_all(&page).map_err(output_error)
}
