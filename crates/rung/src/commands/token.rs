//! `rung token`

use std::io::{self, Write as _};

use rung_auth::Access;
use serde_json::json;

use crate::cli::TokenCommand;
use crate::exit::{Result, output};
use crate::offer::now_ms;
use crate::results::Results;
use crate::settings::{Settings, visible};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

pub(super) fn run(command: TokenCommand, settings: &Settings) -> Result {
    let tokens = Results::open(settings)?.tokens();
    let mut out = io::stdout().lock();
    match command {
        TokenCommand::New { name, write, days } => {
            let access = if write { Access::Write } else { Access::Read };
            let expires_ms = days.map(|days| now_ms().saturating_add(u64::from(days) * DAY_MS));
            let token = tokens.new_token(&name, access, expires_ms)?;
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
                let row = |record: &rung_auth::TokenRecord| json!({"name": record.caller, "access": record.access, "expires_ms": record.expires_ms});
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
        TokenCommand::Revoke { name } => tokens.revoke(&name)?,
    }
    Ok(())
}
