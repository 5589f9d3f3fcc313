//! One file a command. Each is given the settings and prints its answer.

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
use crate::exit::{Result, Stop};
use crate::log;
use crate::settings::{Given, Settings, visible};

/// Does what the command line says.
pub(crate) fn run(cli: Cli) -> Result {
    if let Some(home) = &cli.home
        && cli.command.needs_data()
    {
        refuse_mistyped(home)?;
    }
    match cli.command {
        Command::Completions { shell } => completions::run(shell),
        Command::Man { dir } => man::run(dir.as_deref()),
        Command::Config(command) => {
            let given = Given::here(cli.home, cli.set)?;
            config::run(&command, &given)
        }
        Command::Result(command) => result::run(command, &loaded(cli.home, cli.set)?),
        Command::Token(command) => token::run(command, &loaded(cli.home, cli.set)?),
        Command::Call(args) => call::run(&args, &loaded(cli.home, cli.set)?),
        Command::Inspect(args) => inspect::run(&args, &loaded(cli.home, cli.set)?),
        Command::KeepChild { parent, command } => keep_child(parent, &command),
        Command::ConformanceClient { url } => {
            let done = runtime()?.block_on(crate::conformance::client::run(&url));
            Ok(done?)
        }
        Command::Pdpp(command) => pdpp::run(command, move || loaded(cli.home, cli.set)),
        Command::Db(command) => {
            // What `rung db schema --set` says is no setting, and stands here as one.
            let is_own = matches!(&command.command, DbCommand::Schema(args) if args.set.is_some());
            let set = if is_own { Vec::new() } else { cli.set };
            db::run(command, move || loaded(cli.home.clone(), set.clone()))
        }
        Command::Gateway(args) => gateway::run(args, loaded(cli.home, cli.set)?),
        Command::Demo(args) => demo::run(&args, cli.home, cli.set),
        Command::Backup { to } => backup::run(&to, &loaded(cli.home, cli.set)?),
        Command::Restore { from } => backup::restore(&from, &loaded(cli.home, cli.set)?),
        Command::Mcp(args) => mcp::run(&args, loaded(cli.home, cli.set)?),
        Command::Serve(args) => {
            let mut set = cli.set;
            set.extend(
                args.listen
                    .as_ref()
                    .map(|address| format!("listen={address}")),
            );
            serve::run(&args, &loaded(cli.home, set)?)
        }
    }
}

/// Refuses a `--home` that is not there, or that holds other files and none of ours.
fn refuse_mistyped(home: &Path) -> Result<(), Fault> {
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
            "holds no data of rung"
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "does not exist",
        // What opens it says what is wrong with it.
        Err(_) => return Ok(()),
    };
    let why = format!("the data folder {} {what}", home.display());
    Err(Fault::new(Code::NotFound, why)
        .with_hint("correct --home; `rung config show` prints the data folder in use without it"))
}

fn loaded(home: Option<PathBuf>, set: Vec<String>) -> Result<Settings> {
    let settings = Settings::load(&Given::here(home, set)?)?;
    warn(&settings);
    Ok(settings)
}

/// Asks at the terminal whether what was shown is approved. Without a terminal the answer must come with the command:
/// `again` is the command that has it.
fn confirmed(again: &str) -> Result<bool> {
    use std::io::{IsTerminal as _, Write as _};
    let (input, mut out) = (std::io::stdin(), std::io::stdout());
    // Both: what was not displayed to a person cannot be approved by one.
    if !(input.is_terminal() && out.is_terminal()) {
        let why = "there is no terminal to ask for approval at";
        return Err(Fault::new(Code::UntrustedProject, why)
            .with_hint(format!("review what is shown, then run `{again}`"))
            .into());
    }
    let asked = out.write_all(b"\nApprove? [y/N] ");
    asked
        .and_then(|()| out.flush())
        .map_err(crate::exit::output)?;
    let mut answer = String::new();
    input.read_line(&mut answer).map_err(crate::exit::output)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// An error for people on stderr, and for programs where they look for the answer.
fn told(fault: Fault, json: bool) -> Result {
    if !json {
        return Err(fault.into());
    }
    println!("{:#}", fault.body(rung_fault::Face::Rung));
    Err(Stop::Told(fault.code().class()))
}

/// What reaches other servers runs here.
fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(|error| Fault::new(Code::Internal, error.to_string()).into())
}

#[cfg(target_os = "linux")]
fn keep_child(parent: u32, command: &[std::ffi::OsString]) -> Result {
    match rung_mcp::connect::keep(parent, command) {
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
    Err(Fault::new(Code::Internal, "children are kept on Linux alone").into())
}

/// Everything that is no answer goes to stderr, as much of it as the settings want.
fn log_to_stderr(settings: &Settings) {
    log_at(settings.log());
}

fn log_at(level: &str) {
    log::start(level, LogFormat::Text);
}

/// Waits until the process is asked to stop.
pub(crate) async fn asked_to_stop() {
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

/// A moment for people.
fn time(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    rung_records::key::Moment::from_millisecond(ms).to_utc_string()
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
