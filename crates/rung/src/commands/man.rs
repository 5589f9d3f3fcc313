//! `rung man`

use std::io::Write as _;

use clap::CommandFactory as _;

use crate::cli::Cli;
use crate::exit::{Result, output};

/// One page: the program first, then every command under it.
pub(super) fn run() -> Result {
    let mut command = Cli::command();
    command.build();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .render(&mut page)
        .map_err(output)?;
    sections(&command, "rung", &mut page).map_err(output)?;
    std::io::stdout().write_all(&page).map_err(output)
}

fn sections(command: &clap::Command, name: &str, page: &mut Vec<u8>) -> std::io::Result<()> {
    for inner in command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
    {
        let name = format!("{name} {}", inner.get_name());
        if inner.has_subcommands() {
            sections(inner, &name, page)?;
        } else if inner.get_name() != "help" {
            writeln!(page, ".SH \"{}\"", name.to_uppercase())?;
            let man = clap_mangen::Man::new(inner.clone());
            man.render_description_section(page)?;
            man.render_options_section(page)?;
        }
    }
    Ok(())
}
