//! `rung pdpp`, one file per command.

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

use crate::cli::{OwnerCommand, PdppCommand};
use crate::exit::{Result, output_error};
use crate::print::note;
use crate::server_config::now_ms;
use crate::settings::{Settings, escape_for_terminal};
use crate::table::format_table;

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

pub(super) fn run(command: PdppCommand, settings: impl FnOnce() -> Result<Settings>) -> Result {
    match command {
        PdppCommand::Mcp(args) => mcp::run(&args, settings),
        // Reading from a provider needs no settings.
        PdppCommand::Provider(command) => connect::run(command),
        PdppCommand::Owner(command) => run_owner_command(command, &settings()?),
    }
}

fn run_owner_command(command: OwnerCommand, settings: &Settings) -> Result {
    let records = crate::records::open(settings)?;
    let owner = crate::records::local_owner(&records)?;
    match command {
        OwnerCommand::Register { files } => register::run(&records, &files),
        OwnerCommand::Connections(command) => connections::run(&records, &owner, command),
        OwnerCommand::Ingest(args) => ingest::run(&records, &owner, &args, settings),
        OwnerCommand::Grant(command) => grant::run(&records, &owner, command, settings),
        OwnerCommand::OwnerToken {
            name,
            days,
            subject,
        } => {
            let token = records
                .issue_owner_token(&subject, &name, expires_ms(days))
                .map_err(Fault::from)?;
            print_token_once(token.expose(), "the owner")
        }
        OwnerCommand::Password { stdin } => {
            let password = if stdin {
                crate::password::from_stdin()?
            } else {
                crate::password::generate()?
            };
            records
                .set_password(&owner, &password)
                .map_err(Fault::from)?;
            if !stdin {
                writeln!(io::stdout().lock(), "{password}").map_err(output_error)?;
                note!("shown once: the owner signs in with this password");
            }
            note!(
                "the password is set for the data in {}",
                settings.home()?.display()
            );
            Ok(())
        }
        OwnerCommand::ResourceServer { name } => {
            let token = records
                .issue_resource_server_secret(&owner, &name)
                .map_err(Fault::from)?;
            writeln!(io::stdout().lock(), "{name}:{}", token.expose()).map_err(output_error)?;
            note!("shown once: the resource server reads it with --as-credentials-file");
            Ok(())
        }
        OwnerCommand::Keep {
            connection,
            stream,
            days,
        } => {
            let keep_s = days.map(|days| i64::from(days) * DAY_MS / 1_000);
            Ok(records
                .set_retention(&owner, &connection, &stream, keep_s)
                .map_err(Fault::from)?)
        }
        OwnerCommand::Erase {
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
        OwnerCommand::Disclosures { limit, json } => {
            disclosures(&records, &owner, limit, json, settings)
        }
    }
}

/// Returns the expiry, in milliseconds since 1970, of something that lasts `days`.
fn expires_ms(days: Option<u32>) -> Option<i64> {
    let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
    days.map(|days| now.saturating_add(i64::from(days) * DAY_MS))
}

/// Prints a new token, which cannot be printed again.
fn print_token_once(token: &str, whose: &str) -> Result {
    writeln!(io::stdout().lock(), "{token}").map_err(output_error)?;
    note!(
        "shown once: give it to {} as Authorization: Bearer …",
        escape_for_terminal(whose)
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
        let why = format!("this erases all data of {what} permanently");
        return Err(Fault::new(Code::InvalidArguments, why)
            .with_hint("add --yes to confirm")
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
    note!(
        "erased {} records of {} connections",
        erased.records,
        erased.connections
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
    // Include entries that a running server has not flushed yet.
    crate::records::journal(settings)?
        .flush(records)
        .map_err(Fault::from)?;
    let all = records
        .disclosures(owner, i64::from(limit))
        .map_err(Fault::from)?;
    let mut out = io::stdout().lock();
    if json {
        return writeln!(out, "{:#}", json!(all)).map_err(output_error);
    }
    let heading = ["WHEN", "CLIENT", "GRANT", "REQUEST", "STREAM", "RECORDS"];
    let mut rows: Vec<Vec<String>> = Vec::new();
    for one in &all {
        rows.push(vec![
            super::format_time(u64::try_from(one.at_ms).unwrap_or(0)),
            one.client.clone(),
            one.grant_id.clone().unwrap_or_else(|| "owner".to_owned()),
            one.request.clone(),
            one.stream.clone().unwrap_or_default(),
            one.records.to_string(),
        ]);
    }
    write!(out, "{}", format_table(&heading, &rows)).map_err(output_error)
}
