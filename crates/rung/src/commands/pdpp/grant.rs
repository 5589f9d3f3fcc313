//! `rung pdpp grant`.

use std::io::{self, Write as _};

use rung_fault::Fault;
use rung_records::grant::StreamSelection;
use rung_records::{Bearer, GrantRequest, Records};
use serde_json::{Value, json};

use crate::cli::GrantCommand;
use crate::data_folder::DataFolder;
use crate::exit::{Result, output_error};
use crate::print::note;
use crate::settings::Settings;
use crate::table::format_table;

pub(super) fn run(
    records: &Records,
    owner: &Bearer,
    command: GrantCommand,
    settings: &Settings,
) -> Result {
    match command {
        GrantCommand::Issue {
            client,
            source,
            streams,
            fields,
            connections,
            since,
            until,
            days,
        } => {
            let streams = if streams.is_empty() {
                vec!["*".to_owned()]
            } else {
                streams
            };
            let selections = streams.iter().map(|stream| StreamSelection {
                stream: stream.clone(),
                fields: fields_for_stream(stream, &fields),
                since: since.clone(),
                until: until.clone(),
                ..StreamSelection::default()
            });
            let request = GrantRequest {
                client: client.clone(),
                source,
                connections,
                selections: selections.collect(),
                purpose_code: None,
                expires_ms: super::expires_ms(days),
            };
            let (grant, token) = records.issue_grant(owner, &request).map_err(Fault::from)?;
            for stream in &grant.streams {
                note!("{}: {}", stream.name, stream.fields.join(", "));
            }
            note!("grant {}", grant.grant_id);
            super::print_token_once(token.expose(), &client)
        }
        GrantCommand::List { json } => {
            let all = records.grants(owner).map_err(Fault::from)?;
            let told: std::result::Result<Vec<Value>, _> =
                all.iter().map(rung_records::IssuedGrant::to_json).collect();
            let all = told.map_err(Fault::from)?;
            let mut out = io::stdout().lock();
            if json {
                return writeln!(out, "{:#}", json!(all)).map_err(output_error);
            }
            let heading = ["GRANT", "CLIENT", "SOURCE", "STREAMS", "ISSUED", "UNTIL"];
            let mut rows: Vec<Vec<String>> = Vec::new();
            for one in &all {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let streams = one["streams"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|stream| text(&stream["name"]));
                let until = match (one["revoked_at"].as_str(), one["expires_at"].as_str()) {
                    (Some(at), _) => format!("revoked {at}"),
                    (None, Some(at)) => at.to_owned(),
                    (None, None) => "until revoked".to_owned(),
                };
                rows.push(vec![
                    text(&one["grant_id"]),
                    text(&one["client"]["client_id"]),
                    text(&one["source"]["id"]),
                    streams.collect::<Vec<_>>().join(", "),
                    text(&one["issued_at"]),
                    until,
                ]);
            }
            write!(out, "{}", format_table(&heading, &rows)).map_err(output_error)
        }
        GrantCommand::Revoke { id } => {
            let tokens = DataFolder::open(settings)?.tokens();
            records.revoke_grant(owner, &id, &tokens).map_err(|error| {
                Fault::from(error).with_hint("`rung pdpp grant list` names the grants")
            })?;
            note!("{id} is revoked");
            Ok(())
        }
    }
}

/// Returns the fields for a stream: a field without a stream name applies to all streams.
fn fields_for_stream(stream: &str, fields: &[String]) -> Vec<String> {
    let own = fields
        .iter()
        .filter_map(|field| match field.split_once('.') {
            Some((of, field)) if of == stream => Some(field.to_owned()),
            Some(_) => None,
            None => Some(field.clone()),
        });
    own.collect()
}
