//! `rung config`

use std::fmt::Write as _;
use std::io::Write as _;

use rung_fault::{Code, Fault};
use serde_json::json;

use crate::cli::Config;
use crate::exit::{Result, output};
use crate::settings::{Given, Project, SETTINGS, Settings, Trust, visible};

pub(super) fn run(command: &Config, given: &Given) -> Result {
    match command {
        Config::Show { json } => show(&Settings::load(given)?, *json),
        Config::Trust { yes } => trust(given, *yes),
        Config::Untrust => untrust(given),
        Config::Reference => reference(),
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
        return writeln!(out, "{all:#}").map_err(output);
    }
    let rows: Vec<[String; 3]> = settings
        .iter()
        .map(|(key, value, origin)| [key.to_owned(), value.to_string(), origin.to_string()])
        .collect();
    table(&mut out, ["SETTING", "VALUE", "FROM"], &rows).map_err(output)?;
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
        .map_err(output)?;
        table(&mut out, ["SETTING", "VALUE", "FROM"], &rows).map_err(output)?;
    }
    Ok(())
}

/// Columns as wide as what stands in them.
fn table<const N: usize>(
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
    let mut line = |cells: [&str; N]| {
        let padded = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let padded: Vec<String> = padded.collect();
        writeln!(out, "{}", padded.join("  ").trim_end())
    };
    line(head)?;
    for row in rows {
        line(row.each_ref().map(String::as_str))?;
    }
    Ok(())
}

fn trust(given: &Given, yes: bool) -> Result {
    let settings = Settings::load(given)?;
    let project = project(&settings)?;
    let mut approvals = Trust::of(given)?;
    let path = visible(&project.path.to_string_lossy());
    if approvals.approves(project) {
        return say(&format!("{path} is approved already.\n"));
    }
    let mut asked = format!("{path}\n{}\n\nIt asks for:\n", project.digest());
    if settings.withheld().is_empty() {
        asked.push_str("  nothing that needs approval\n");
    }
    for withheld in settings.withheld() {
        let _ = writeln!(asked, "  {} = {}", withheld.key, withheld.value);
    }
    say(&asked)?;
    if !yes && !super::confirmed("rung config trust --yes")? {
        let refused = Fault::new(Code::UntrustedProject, "the file is not approved");
        return Err(refused.into());
    }
    approvals.set(project, true)?;
    say("Approved, as it is now. A change of the file needs a new approval.\n")
}

fn say(text: &str) -> Result {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(output)
}

fn untrust(given: &Given) -> Result {
    let settings = Settings::load(given)?;
    let project = project(&settings)?;
    Trust::of(given)?.set(project, false)?;
    let path = visible(&project.path.to_string_lossy());
    say(&format!("{path} is no longer approved.\n"))
}

fn project(settings: &Settings) -> Result<&Project> {
    settings.project().ok_or_else(|| {
        let fault = Fault::new(Code::NotFound, "there is no rung.toml here or above");
        let fault = match settings.passed_over() {
            [] => fault.with_hint("run this in the project's folder"),
            [path, ..] => fault.with_hint(format!(
                "{} belongs to another user, and only your own file can be approved",
                path.display()
            )),
        };
        fault.into()
    })
}

fn reference() -> Result {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "| setting | variable | takes | default | in an unapproved project file | what it is |\n\
         | --- | --- | --- | --- | --- | --- |"
    )
    .map_err(output)?;
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
            setting.power.rule(),
            setting.help
        )
        .map_err(output)?;
    }
    Ok(())
}
