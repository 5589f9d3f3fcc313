//! The pages under `docs/reference`, made from what they describe.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use rung_fault::{Code, Face};

use crate::steps::{build, command};

/// A generated page: where it lies, and what it should say.
fn pages() -> Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("docs/reference/codes.md", codes()),
        ("docs/reference/settings.md", settings()?),
    ])
}

/// Writes every page.
pub(crate) fn write() -> Result<()> {
    fs::create_dir_all("docs/reference")?;
    for (path, page) in pages()? {
        fs::write(path, page)?;
    }
    Ok(())
}

/// Refuses pages that do not say what they should.
pub(crate) fn check() -> Result<()> {
    for (path, page) in pages()? {
        let there = fs::read_to_string(path).with_context(|| format!("{path} is missing"))?;
        ensure!(
            there == page,
            "{path} is out of date: run `cargo xtask docs`"
        );
    }
    Ok(())
}

fn codes() -> String {
    let mut page = String::from(
        "# Error codes\n\n\
         Generated from `crates/rung-fault/src/codes.rs` by `cargo xtask docs`.\n\n\
         A code is the contract; the sentence beside it may change. `retry` says whether the same call is worth\n\
         making again: `no`, `corrected` (after mending what the message names) or `later` (unchanged). Where a\n\
         face has its own word for a code, that word stands in its column.\n\n\
         | code | class | HTTP | retry | PDPP | Datalevin | when |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for code in Code::ALL {
        let on = |face| {
            let name = code.name_on(face);
            if name == code.name() {
                String::new()
            } else {
                format!("`{name}`")
            }
        };
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} | {} | {} |",
            code.name(),
            code.class().name(),
            code.http_status(),
            code.retry().name(),
            on(Face::Pdpp),
            on(Face::Datalevin),
            code.meaning()
        );
    }
    page
}

fn settings() -> Result<String> {
    let table = command(build()?).args(["config", "reference"]).output()?;
    ensure!(table.status.success(), "rung config reference failed");
    Ok(format!(
        "# Settings\n\n\
         Generated from `crates/rung/src/settings/table.rs` by `cargo xtask docs`. [Settings](../settings.md) explains\n\
         the layers and what a project file may say.\n\n{}",
        String::from_utf8(table.stdout)?
    ))
}
