//! `rung pdpp`: one file a command.

mod connect;
mod connections;
mod grant;
mod ingest;
mod mcp;
mod register;

pub(super) use mcp::tool_options;

use std::io::{self, Write as _};

use rung_fault::{Code, Fault};
use rung_records::{Bearer, Records};
use serde_json::json;

use crate::cli::{OwnCommand, PdppCommand};
use crate::exit::{Result, output};
use crate::offer::now_ms;
use crate::settings::{Settings, visible};
use crate::table::table;

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

pub(super) fn run(command: PdppCommand, settings: impl FnOnce() -> Result<Settings>) -> Result {
    match command {
        PdppCommand::Mcp(args) => mcp::run(&args, settings),
        // What is somebody else's needs nothing of ours.
        PdppCommand::Theirs(command) => connect::run(command),
        PdppCommand::Own(command) => own(command, &settings()?),
    }
}

fn own(command: OwnCommand, settings: &Settings) -> Result {
    let records = crate::records::open(settings)?;
    let owner = crate::records::owner(&records)?;
    match command {
        OwnCommand::Register { files } => register::run(&records, &files),
        OwnCommand::Connections(command) => connections::run(&records, &owner, command),
        OwnCommand::Ingest(args) => ingest::run(&records, &owner, &args, settings),
        OwnCommand::Grant(command) => grant::run(&records, &owner, command, settings),
        OwnCommand::OwnerToken {
            name,
            days,
            subject,
        } => {
            let token = records
                .owner_token(&subject, &name, ends(days))
                .map_err(Fault::from)?;
            shown_once(token.expose(), "the owner")
        }
        OwnCommand::Password { stdin } => {
            let password = if stdin {
                crate::password::from_stdin()?
            } else {
                crate::password::generate()?
            };
            records
                .set_password(&owner, &password)
                .map_err(Fault::from)?;
            if !stdin {
                writeln!(io::stdout().lock(), "{password}").map_err(output)?;
                eprintln!("shown once: the owner signs in with it");
            }
            eprintln!("set for the data in {}", settings.home()?.display());
            Ok(())
        }
        OwnCommand::ResourceServer { name } => {
            let token = records
                .resource_server(&owner, &name)
                .map_err(Fault::from)?;
            writeln!(io::stdout().lock(), "{name}:{}", token.expose()).map_err(output)?;
            eprintln!("shown once: the resource server reads it with --as-credentials-file");
            Ok(())
        }
        OwnCommand::Keep {
            connection,
            stream,
            days,
        } => {
            let keep_s = days.map(|days| i64::from(days) * DAY_MS / 1_000);
            Ok(records
                .keep_for(&owner, &connection, &stream, keep_s)
                .map_err(Fault::from)?)
        }
        OwnCommand::Erase {
            connection,
            subject,
            yes,
        } => erase(
            &records,
            &owner,
            connection.as_deref(),
            subject.as_deref(),
            yes,
        ),
        OwnCommand::Disclosures { limit, json } => {
            disclosures(&records, &owner, limit, json, settings)
        }
    }
}

/// When something ends that lasts some days.
fn ends(days: Option<u32>) -> Option<i64> {
    let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
    days.map(|days| now.saturating_add(i64::from(days) * DAY_MS))
}

/// The one time that a token is shown.
fn shown_once(token: &str, whose: &str) -> Result {
    writeln!(io::stdout().lock(), "{token}").map_err(output)?;
    eprintln!(
        "shown once: give it to {} as Authorization: Bearer …",
        visible(whose)
    );
    Ok(())
}

fn erase(
    records: &Records,
    owner: &Bearer,
    connection: Option<&str>,
    subject: Option<&str>,
    yes: bool,
) -> Result {
    if !yes {
        let what = connection.or(subject).unwrap_or_default();
        let why = format!("everything of {what} would be erased, and cannot be had back");
        return Err(Fault::new(Code::InvalidArguments, why)
            .with_hint("say --yes if that is meant")
            .into());
    }
    let erased = match (connection, subject) {
        (Some(id), _) => records.erase_connection(owner, id),
        (None, Some(id)) if id == owner.subject_id() => records.erase_subject(owner),
        (None, _) => {
            let why = format!("no owner is named {}", subject.unwrap_or_default());
            return Err(Fault::new(Code::NotFound, why).into());
        }
    };
    let erased = erased.map_err(Fault::from)?;
    eprintln!(
        "erased {} records of {} connections",
        erased.records, erased.connections
    );
    Ok(())
}

fn disclosures(
    records: &Records,
    owner: &Bearer,
    limit: u32,
    json: bool,
    settings: &Settings,
) -> Result {
    // What a server has not brought over yet counts as well.
    crate::records::journal(settings)?
        .settle(records)
        .map_err(Fault::from)?;
    let all = records
        .disclosures(owner, i64::from(limit))
        .map_err(Fault::from)?;
    let mut out = io::stdout().lock();
    if json {
        return writeln!(out, "{:#}", json!(all)).map_err(output);
    }
    let heading = ["when", "client", "grant", "request", "stream", "records"];
    let mut rows: Vec<Vec<String>> = Vec::new();
    for one in &all {
        rows.push(vec![
            super::time(u64::try_from(one.at_ms).unwrap_or(0)),
            one.client.clone(),
            one.grant_id.clone().unwrap_or_else(|| "owner".to_owned()),
            one.request.clone(),
            one.stream.clone().unwrap_or_default(),
            one.records.to_string(),
        ]);
    }
    write!(out, "{}", table(&heading, &rows)).map_err(output)
}
