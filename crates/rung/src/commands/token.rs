//! `rung token`

use std::io::{self, Write as _};

use rung_auth::Access;
use rung_fault::Fault;
use serde_json::json;

use crate::cli::TokenCommand;
use crate::exit::{Result, output};
use crate::grant_file::GrantFile;
use crate::offer::now_ms;
use crate::results::Results;
use crate::settings::{Settings, visible};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

pub(super) fn run(command: TokenCommand, settings: &Settings) -> Result {
    let tokens = Results::open(settings)?.tokens();
    let mut out = io::stdout().lock();
    match command {
        TokenCommand::New {
            name,
            write,
            days,
            grant,
        } => {
            let wanted = grant.map(|file| GrantFile::read(&file, settings));
            let wanted = wanted.transpose()?;
            let writes = write || wanted.as_ref().is_some_and(GrantFile::writes);
            let access = if writes { Access::Write } else { Access::Read };
            let said = days.map(|days| now_ms().saturating_add(u64::from(days) * DAY_MS));
            let own = wanted.as_ref().and_then(GrantFile::expires_ms);
            // Whichever comes first.
            let expires_ms = said.into_iter().chain(own).min();
            let scope = wanted.as_ref().map(GrantFile::scope);
            let give = |package: &str| match &wanted {
                Some(wanted) => give(wanted, &name, package, expires_ms, settings),
                None => Ok(()),
            };
            let token = tokens.new_token(&name, access, expires_ms, scope, give)?;
            // The one time it is shown.
            writeln!(out, "{}", token.expose()).map_err(output)?;
            eprintln!(
                "shown once: give it to {} as Authorization: Bearer …",
                visible(&name)
            );
        }
        TokenCommand::List { json } => {
            let records = tokens.list()?;
            if json {
                let row = |record: &rung_auth::TokenRecord| json!({"name": record.caller, "access": record.access, "expires_ms": record.expires_ms, "grant": record.scope});
                let rows: Vec<_> = records.iter().map(row).collect();
                return writeln!(out, "{:#}", json!(rows)).map_err(output);
            }
            let width = records
                .iter()
                .map(|record| record.caller.as_str().chars().count())
                .max();
            for record in &records {
                let access = match record.access {
                    Access::Read => "read ",
                    Access::Write => "write",
                };
                let until = match record.expires_ms {
                    None => "until revoked".to_owned(),
                    Some(ms) if ms <= now_ms() => format!("ended {}", super::time(ms)),
                    Some(ms) => format!("until {}", super::time(ms)),
                };
                let name = visible(record.caller.as_str());
                writeln!(
                    out,
                    "{name:width$}  {access}  {until}",
                    width = width.unwrap_or(0)
                )
                .map_err(output)?;
            }
        }
        TokenCommand::Revoke { name } => {
            let records = tokens.list()?;
            let known = records.iter().find(|record| record.caller.as_str() == name);
            let package = known.map(|record| record.grant.to_string());
            tokens.revoke(&name)?;
            if let Some(package) = package {
                let records = crate::records::open(settings)?;
                let owner = crate::records::owner(&records)?;
                records.revoke_together(&owner, &package)?;
            }
        }
    }
    Ok(())
}

/// Gives what a file says, to whoever will come with the token.
fn give(
    wanted: &GrantFile,
    name: &str,
    package: &str,
    expires_ms: Option<u64>,
    settings: &Settings,
) -> std::result::Result<(), Fault> {
    for of in &wanted.scope().databases {
        let seen = if of.attributes.is_empty() {
            "everything".to_owned()
        } else {
            let patterns = of.attributes.iter().map(rung_auth::Pattern::as_str);
            patterns.collect::<Vec<_>>().join(", ")
        };
        eprintln!("database {}: {}", visible(&of.name), visible(&seen));
    }
    let expires_ms = expires_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
    let requests = wanted.requests(name, expires_ms);
    if requests.is_empty() {
        return Ok(());
    }
    let records = crate::records::open(settings)?;
    let owner = crate::records::owner(&records)?;
    for grant in records.issue_together(&owner, package, &requests)? {
        for stream in &grant.streams {
            let (source, fields) = (&grant.source.id, stream.fields.join(", "));
            eprintln!(
                "{} of {}: {}",
                visible(&stream.name),
                visible(source),
                visible(&fields)
            );
        }
    }
    Ok(())
}
