//! `rung token`.

use std::io::{self, Write as _};

use rung_auth::Access;
use rung_fault::Fault;
use serde_json::json;

use crate::cli::TokenCommand;
use crate::data_folder::DataFolder;
use crate::exit::{Result, output_error};
use crate::grant_file::GrantFile;
use crate::print::note;
use crate::server_config::now_ms;
use crate::settings::{Settings, escape_for_terminal};
use crate::table::format_table;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

pub(super) fn run(command: TokenCommand, settings: &Settings) -> Result {
    let tokens = DataFolder::open(settings)?.tokens();
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
            let writes = write || wanted.as_ref().is_some_and(GrantFile::allows_writes);
            let access = if writes { Access::Write } else { Access::Read };
            let said = days.map(|days| now_ms().saturating_add(u64::from(days) * DAY_MS));
            let own = wanted.as_ref().and_then(GrantFile::expires_ms);
            // The earlier expiry counts.
            let expires_ms = said.into_iter().chain(own).min();
            let scope = wanted.as_ref().map(GrantFile::scope);
            let give = |package: &str| match &wanted {
                Some(wanted) => issue_grants(wanted, &name, package, expires_ms, settings),
                None => Ok(()),
            };
            let token = tokens.new_token(&name, access, expires_ms, scope, give)?;
            // The token is printed here only.
            writeln!(out, "{}", token.expose()).map_err(output_error)?;
            note!(
                "shown once: give it to {} as Authorization: Bearer …",
                escape_for_terminal(&name)
            );
        }
        TokenCommand::List { json } => {
            let records = tokens.list()?;
            if json {
                let row = |record: &rung_auth::TokenRecord| json!({"name": record.caller, "access": record.access, "expires_ms": record.expires_ms, "grant": record.scope});
                let rows: Vec<_> = records.iter().map(row).collect();
                return writeln!(out, "{:#}", json!(rows)).map_err(output_error);
            }
            let row = |record: &rung_auth::TokenRecord| {
                let access = match record.access {
                    Access::Read => "read",
                    Access::Write => "write",
                };
                let until = match record.expires_ms {
                    None => "until revoked".to_owned(),
                    Some(ms) if ms <= now_ms() => format!("expired {}", super::format_time(ms)),
                    Some(ms) => super::format_time(ms),
                };
                vec![record.caller.to_string(), access.to_owned(), until]
            };
            let rows: Vec<_> = records.iter().map(row).collect();
            let table = format_table(&["NAME", "ACCESS", "UNTIL"], &rows);
            write!(out, "{table}").map_err(output_error)?;
        }
        TokenCommand::Revoke { name } => {
            let records = tokens.list()?;
            let known = records.iter().find(|record| record.caller.as_str() == name);
            let package = known.map(|record| record.grant.to_string());
            tokens.revoke(&name)?;
            if let Some(package) = package {
                let records = crate::records::open(settings)?;
                let owner = crate::records::local_owner(&records)?;
                records.revoke_package(&owner, &package)?;
            }
            note!("{} is revoked", escape_for_terminal(&name));
        }
    }
    Ok(())
}

/// Issues the grants of a grant file to the bearer of the new token.
fn issue_grants(
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
        note!(
            "database {}: {}",
            escape_for_terminal(&of.name),
            escape_for_terminal(&seen)
        );
    }
    let expires_ms = expires_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
    let requests = wanted.grant_requests(name, expires_ms);
    if requests.is_empty() {
        return Ok(());
    }
    let records = crate::records::open(settings)?;
    let owner = crate::records::local_owner(&records)?;
    for grant in records.issue_package(&owner, package, &requests)? {
        for stream in &grant.streams {
            let (source, fields) = (&grant.source.id, stream.fields.join(", "));
            note!(
                "{} of {}: {}",
                escape_for_terminal(&stream.name),
                escape_for_terminal(source),
                escape_for_terminal(&fields)
            );
        }
    }
    Ok(())
}
