//! `rung config`.

use std::fmt::Write as _;
use std::io::Write as _;

use rung_fault::{Code, Fault};
use serde_json::json;

use crate::cli::ConfigCommand;
use crate::exit::{Result, output_error};
use crate::settings::{
    ProjectApprovals, ProjectFile, SETTINGS, Settings, SettingsInput, escape_for_terminal,
};
use crate::style;

pub(super) fn run(command: &ConfigCommand, given: &SettingsInput) -> Result {
    match command {
        ConfigCommand::Show { json } => show(&Settings::load(given)?, *json),
        ConfigCommand::Trust { yes } => trust(given, *yes),
        ConfigCommand::Untrust => untrust(given),
        ConfigCommand::Reference => print_reference(),
    }
}

fn show(settings: &Settings, for_programs: bool) -> Result {
    let mut out = std::io::stdout().lock();
    if for_programs {
        let values: Vec<_> = settings
            .iter()
            .map(|(key, value, origin)| {
                json!({"key": key, "value": value.to_json(), "origin": origin.to_string()})
            })
            .collect();
        let withheld: Vec<_> = settings
            .withheld()
            .iter()
            .map(|w| json!({"key": w.key, "value": w.value.to_json(), "origin": w.origin.to_string()}))
            .collect();
        let all = json!({"settings": values, "withheld": withheld});
        return writeln!(out, "{all:#}").map_err(output_error);
    }
    let rows: Vec<[String; 3]> = settings
        .iter()
        .map(|(key, value, origin)| [key.to_owned(), value.to_string(), origin.to_string()])
        .collect();
    write_table(&mut out, ["SETTING", "VALUE", "FROM"], &rows).map_err(output_error)?;
    if !settings.withheld().is_empty() {
        let rows: Vec<[String; 3]> = settings
            .withheld()
            .iter()
            .map(|w| [w.key.clone(), w.value.to_string(), w.origin.to_string()])
            .collect();
        writeln!(
            out,
            "\nNot applied until `rung config trust` approves the file:"
        )
        .map_err(output_error)?;
        write_table(&mut out, ["SETTING", "VALUE", "FROM"], &rows).map_err(output_error)?;
    }
    Ok(())
}

/// Writes a table whose columns are as wide as their longest cell.
fn write_table<const N: usize>(
    out: &mut impl std::io::Write,
    head: [&str; N],
    rows: &[[String; N]],
) -> std::io::Result<()> {
    let mut widths = head.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let padded = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let padded: Vec<String> = padded.collect();
        padded.join("  ").trim_end().to_owned()
    };
    writeln!(out, "{}", style::heading(&line(head)))?;
    for row in rows {
        writeln!(out, "{}", line(row.each_ref().map(String::as_str)))?;
    }
    Ok(())
}

fn trust(given: &SettingsInput, yes: bool) -> Result {
    let settings = Settings::load(given)?;
    let project = require_project(&settings)?;
    let mut approvals = ProjectApprovals::load(given)?;
    let path = escape_for_terminal(&project.path.to_string_lossy());
    if approvals.is_approved(project) {
        return print_text(&format!("{path} is already approved.\n"));
    }
    let mut asked = format!(
        "{path}\n{}\n\nValues that need approval:\n",
        project.digest()
    );
    if settings.withheld().is_empty() {
        asked.push_str("  no value that needs approval\n");
    }
    for withheld in settings.withheld() {
        let _ = writeln!(asked, "  {} = {}", withheld.key, withheld.value);
    }
    print_text(&asked)?;
    if !yes && !super::confirm("rung config trust --yes")? {
        let refused = Fault::new(Code::UntrustedProject, "the file is not approved");
        return Err(refused.into());
    }
    approvals.set_approved(project, true)?;
    print_text("Approved with its current content. An edited file needs a new approval.\n")
}

fn print_text(text: &str) -> Result {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(output_error)
}

fn untrust(given: &SettingsInput) -> Result {
    let settings = Settings::load(given)?;
    let project = require_project(&settings)?;
    ProjectApprovals::load(given)?.set_approved(project, false)?;
    let path = escape_for_terminal(&project.path.to_string_lossy());
    print_text(&format!("{path} is no longer approved.\n"))
}

fn require_project(settings: &Settings) -> Result<&ProjectFile> {
    settings.project().ok_or_else(|| {
        let fault = Fault::new(
            Code::NotFound,
            "no rung.toml in the working folder or above",
        );
        let fault = match settings.ignored_projects() {
            [] => fault.with_hint("run this in the project's folder"),
            [path, ..] => fault.with_hint(format!(
                "{} belongs to another user; only your own file can be approved",
                path.display()
            )),
        };
        fault.into()
    })
}

fn print_reference() -> Result {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "| setting | variable | value | default | in an unapproved project file | description |\n\
         | --- | --- | --- | --- | --- | --- |"
    )
    .map_err(output_error)?;
    for setting in SETTINGS {
        writeln!(
            out,
            "| `{}` | {} | {} | {} | {} | {} |",
            setting.key,
            setting
                .env
                .map_or_else(String::new, |name| format!("`{name}`")),
            setting.kind.name(),
            setting
                .default
                .map_or_else(String::new, |text| format!("`{text}`")),
            setting.project_permission.rule(),
            setting.help
        )
        .map_err(output_error)?;
    }
    Ok(())
}
