//! `rung pdpp connections`.

use std::io::{self, Write as _};

use rung_fault::Fault;
use rung_records::{Bearer, ConnectionChange, Records, SourceConnection};
use serde_json::json;

use crate::cli::ConnectionsCommand;
use crate::exit::{Result, output_error};
use crate::print::note;
use crate::table::format_table;

pub(super) fn run(records: &Records, owner: &Bearer, command: ConnectionsCommand) -> Result {
    let status = |id: &str, status: &str| -> Result {
        let change = ConnectionChange {
            status: Some(status.to_owned()),
            display_name: None,
        };
        records
            .update_connection(owner, id, &change)
            .map_err(Fault::from)?;
        note!("{id} is {status}");
        Ok(())
    };
    match command {
        ConnectionsCommand::List { json } => {
            let all = records.connections(owner).map_err(Fault::from)?;
            let mut out = io::stdout().lock();
            if json {
                let all: Vec<_> = all.iter().map(SourceConnection::to_json).collect();
                return writeln!(out, "{:#}", json!(all)).map_err(output_error);
            }
            let heading = ["CONNECTION", "CONNECTOR", "NAME", "STATUS", "SINCE"];
            let mut rows: Vec<Vec<String>> = Vec::new();
            for one in &all {
                rows.push(vec![
                    one.id.clone(),
                    one.connector.clone(),
                    one.display_name.clone().unwrap_or_default(),
                    one.status.clone(),
                    super::super::format_time(u64::try_from(one.created_ms).unwrap_or(0)),
                ]);
            }
            write!(out, "{}", format_table(&heading, &rows)).map_err(output_error)
        }
        ConnectionsCommand::Put {
            id,
            connector,
            name,
        } => {
            let (_, is_new) = records
                .put_connection(owner, &id, &connector, name.as_deref())
                .map_err(Fault::from)?;
            note!("{id} is {}", if is_new { "created" } else { "renamed" });
            Ok(())
        }
        ConnectionsCommand::Pause { id } => status(&id, "paused"),
        ConnectionsCommand::Resume { id } => status(&id, "active"),
        ConnectionsCommand::Revoke { id } => {
            records.revoke_connection(owner, &id).map_err(Fault::from)?;
            note!("{id} is revoked; `rung pdpp erase --connection {id}` erases its records");
            Ok(())
        }
    }
}
