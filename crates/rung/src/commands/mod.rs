//! The commands, one file each. A command takes the settings and prints its result.

mod backup;
mod call;
mod completions;
mod config;
mod db;
mod demo;
mod gateway;
mod inspect;
mod man;
mod mcp;
mod pdpp;
mod result;
mod serve;
mod token;

use std::path::{Path, PathBuf};

use rung_fault::{Code, Fault};

use crate::cli::{Cli, Command, DbCommand, LogFormat};
use crate::exit::{CommandError, Result};
use crate::log;
use crate::print::{line, note};
use crate::settings::{Settings, SettingsInput, escape_for_terminal};

/// Runs the command of the command line.
pub(crate) fn run(cli: Cli) -> Result {
    if let Some(home) = &cli.home
        && cli.command.needs_data()
    {
        check_home(home)?;
    }
    match cli.command {
        Command::Completions { shell } => completions::run(shell),
        Command::Man { dir } => man::run(dir.as_deref()),
        Command::Config(command) => {
            let given = SettingsInput::from_process(cli.home, cli.set)?;
            config::run(&command, &given)
        }
        Command::Result(command) => result::run(command, &load_settings(cli.home, cli.set)?),
        Command::Token(command) => token::run(command, &load_settings(cli.home, cli.set)?),
        Command::Call(args) => call::run(&args, &load_settings(cli.home, cli.set)?),
        Command::Inspect(args) => inspect::run(&args, &load_settings(cli.home, cli.set)?),
        Command::KeepChild { parent, command } => keep_child(parent, &command),
        Command::ConformanceClient { url } => {
            let done = build_runtime()?.block_on(crate::conformance::client::run(&url));
            Ok(done?)
        }
        Command::Pdpp(command) => pdpp::run(command, move || load_settings(cli.home, cli.set)),
        Command::Db(command) => {
            // `rung db schema --set` shares its id with the global `--set`: its value is a schema, not a setting.
            let is_own = matches!(&command.command, DbCommand::Schema(args) if args.set.is_some());
            let set = if is_own { Vec::new() } else { cli.set };
            db::run(command, move || {
                load_settings(cli.home.clone(), set.clone())
            })
        }
        Command::Gateway(args) => gateway::run(args, load_settings(cli.home, cli.set)?),
        Command::Demo(args) => demo::run(&args, cli.home, cli.set),
        Command::Backup { to } => backup::run(&to, &load_settings(cli.home, cli.set)?),
        Command::Restore { from } => backup::restore(&from, &load_settings(cli.home, cli.set)?),
        Command::Mcp(args) => mcp::run(&args, load_settings(cli.home, cli.set)?),
        Command::Serve(args) => {
            let mut set = cli.set;
            set.extend(
                args.listen
                    .as_ref()
                    .map(|address| format!("listen={address}")),
            );
            serve::run(&args, &load_settings(cli.home, set)?)
        }
    }
}

/// Rejects a `--home` that does not exist, or that holds files but none of a data folder.
fn check_home(home: &Path) -> Result<(), Fault> {
    let is_ours = |name: &std::ffi::OsString| {
        let key = Path::new(name).extension() == Some("key".as_ref());
        key || name == "store" || name == crate::records::FILE
    };
    let what = match std::fs::read_dir(home) {
        Ok(entries) => {
            let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
            if names.is_empty() || names.iter().any(is_ours) {
                return Ok(());
            }
            "holds no data of Rung"
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "does not exist",
        // Opening the folder reports the error.
        Err(_) => return Ok(()),
    };
    let why = format!("the data folder {} {what}", home.display());
    Err(Fault::new(Code::NotFound, why)
        .with_hint("correct --home; `rung config show` prints the data folder in use without it"))
}

fn load_settings(home: Option<PathBuf>, set: Vec<String>) -> Result<Settings> {
    let settings = Settings::load(&SettingsInput::from_process(home, set)?)?;
    warn_withheld(&settings);
    Ok(settings)
}

/// Asks at the terminal for approval of what was printed. Without a terminal this fails and suggests `again`, the command
/// that approves without asking.
fn confirm(again: &str) -> Result<bool> {
    use std::io::{IsTerminal as _, Write as _};
    let (input, mut out) = (std::io::stdin(), std::io::stdout());
    // Output must be a terminal, too: a user cannot approve what was not displayed.
    if !(input.is_terminal() && out.is_terminal()) {
        let why = "approval needs a terminal";
        return Err(Fault::new(Code::UntrustedProject, why)
            .with_hint(format!("review the output, then run `{again}`"))
            .into());
    }
    let asked = out.write_all(b"\nApprove? [y/N] ");
    asked
        .and_then(|()| out.flush())
        .map_err(crate::exit::output_error)?;
    let mut answer = String::new();
    input
        .read_line(&mut answer)
        .map_err(crate::exit::output_error)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// Reports a fault on standard error, or as JSON on standard output if `json` is set.
fn report_fault(fault: Fault, json: bool) -> Result {
    if !json {
        return Err(fault.into());
    }
    line!("{:#}", fault.body(rung_fault::Face::Rung))?;
    Err(CommandError::AlreadyReported(fault.code().class()))
}

/// Builds the single-threaded runtime on which a command reaches servers.
fn build_runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(|error| Fault::new(Code::Internal, error.to_string()).into())
}

#[cfg(target_os = "linux")]
fn keep_child(parent: u32, command: &[std::ffi::OsString]) -> Result {
    match rung_mcp::connect::supervise(parent, command) {
        Ok(code) => std::process::exit(code),
        Err(error) => {
            let program = command.first().map(|program| program.to_string_lossy());
            let why = format!(
                "{} could not be started: {error}",
                program.unwrap_or_default()
            );
            Err(Fault::new(Code::SourceUnavailable, why).into())
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn keep_child(_: u32, _: &[std::ffi::OsString]) -> Result {
    Err(Fault::new(Code::Internal, "keep-child works on Linux only").into())
}

/// Sends log messages to standard error, at the level of the settings.
fn log_to_stderr(settings: &Settings) {
    log_at(settings.log());
}

fn log_at(level: &str) {
    log::start(level, LogFormat::Text);
}

/// Waits for SIGINT or SIGTERM.
pub(crate) async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupted), Ok(mut terminated)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
}

/// Formats a time, in milliseconds since 1970, as UTC.
fn format_time(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    rung_records::key::CalendarTime::from_millisecond(ms).to_utc_string()
}

/// Warns of project files that were ignored and of values withheld from an unapproved one.
fn warn_withheld(settings: &Settings) {
    for path in settings.ignored_projects() {
        note!(
            "warning[untrusted_project]: {} belongs to another user and is ignored",
            escape_for_terminal(&path.to_string_lossy())
        );
    }
    for withheld in settings.withheld() {
        note!(
            "warning[untrusted_project]: {} is not applied ({})\n  {} review the file, then run `rung config trust`",
            withheld.key,
            withheld.origin,
            crate::style::next_label()
        );
    }
}
