//! What an owner allowed a client: which streams, which fields, which records.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::declaration::{Declaration, Stream};
use crate::{Error, Result};

/// The version of the form of grants.
const VERSION: &str = "0.1.0";

/// A grant as it was issued. It never changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Grant {
    /// Of its form.
    pub version: String,
    /// Its id.
    pub grant_id: String,
    /// When it was issued.
    pub issued_at: String,
    /// Whose data.
    pub subject: Value,
    /// For whom.
    pub client: Client,
    /// Of which source.
    pub source: Source,
    /// As it was declared then.
    pub source_declaration: Value,
    /// For what.
    pub purpose_code: String,
    /// Once or for good.
    pub access_mode: String,
    /// The streams.
    pub streams: Vec<GrantedStream>,
    /// When it ends.
    pub expires_at: Option<String>,
    /// What else was said.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, Value>,
}

/// For whom a grant is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Client {
    /// Its id.
    pub client_id: String,
    /// How it is shown.
    #[serde(default)]
    pub client_display: Value,
}

/// Of what a grant is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Source {
    /// Connector or a server's own.
    pub kind: String,
    /// Its address.
    pub id: String,
}

/// A stream in a grant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GrantedStream {
    /// Its name.
    pub name: String,
    /// Of which connections.
    pub instance_ids: Vec<String>,
    /// The fields.
    pub fields: Vec<String>,
    /// From when until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_constraint: Option<TimeConstraint>,
    /// Records, by their keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<String>>,
}

/// From when until when.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TimeConstraint {
    /// By which field.
    pub field: String,
    /// This moment, and what comes after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// What comes before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// What somebody asks to be granted of a stream.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// The stream, or `*` for all.
    pub stream: String,
    /// Its fields; all of them if none is named.
    pub fields: Vec<String>,
    /// A view in place of fields.
    pub view: Option<String>,
    /// From when.
    pub since: Option<String>,
    /// Until when.
    pub until: Option<String>,
    /// Records, by their keys.
    pub resources: Vec<String>,
    /// Of which connections; of those of the whole grant, if none is named.
    pub connections: Vec<String>,
}

/// A grant to be issued.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// Its id.
    pub grant_id: String,
    /// When.
    pub issued_at: String,
    /// Whose data.
    pub subject: &'a str,
    /// For whom.
    pub client: &'a str,
    /// For what.
    pub purpose_code: String,
    /// Once, or until it is taken back.
    pub single_use: bool,
    /// When it ends.
    pub expires_at: Option<String>,
    /// What is asked for.
    pub selections: &'a [Selection],
    /// Of which connections.
    pub connections: Vec<String>,
}

impl Grant {
    /// Says in full what a request means today, so that a later declaration widens nothing.
    pub fn resolve(declaration: &Declaration, request: Request<'_>) -> Result<Self> {
        let wrong = |why: String| {
            Err(Error::refused(
                rung_fault::Code::InvalidRequest,
                "streams",
                why,
            ))
        };
        let mut streams: Vec<GrantedStream> = Vec::new();
        let all = request
            .selections
            .iter()
            .any(|selection| selection.stream == "*");
        if all && request.selections.len() > 1 {
            return wrong("* stands for all streams and must stand alone".to_owned());
        }
        for selection in request.selections {
            let chosen: Vec<&Stream> = if all {
                declaration.streams.iter().collect()
            } else {
                let found = declaration.stream(&selection.stream);
                let Some(found) = found else {
                    let why = format!(
                        "{} has no stream {}",
                        declaration.connector, selection.stream
                    );
                    return wrong(why);
                };
                vec![found]
            };
            for stream in chosen {
                if streams.iter().any(|other| other.name == stream.name) {
                    return wrong(format!("stream {} is named twice", stream.name));
                }
                streams.push(granted(stream, selection, &request.connections)?);
            }
        }
        if streams.is_empty() {
            return wrong("at least one stream is needed".to_owned());
        }
        Ok(Self {
            version: VERSION.to_owned(),
            grant_id: request.grant_id,
            issued_at: request.issued_at,
            subject: json!({"id": request.subject}),
            client: Client {
                client_id: request.client.to_owned(),
                client_display: json!({"name": request.client}),
            },
            source: Source {
                kind: declaration.kind.clone(),
                id: declaration.source_id.clone(),
            },
            source_declaration: json!({"version": declaration.version}),
            purpose_code: request.purpose_code,
            access_mode: if request.single_use {
                "single_use"
            } else {
                "continuous"
            }
            .to_owned(),
            streams,
            expires_at: request.expires_at,
            rest: serde_json::Map::new(),
        })
    }

    /// What it says of a stream.
    pub fn stream(&self, name: &str) -> Option<&GrantedStream> {
        self.streams.iter().find(|stream| stream.name == name)
    }
}

fn granted(
    stream: &Stream,
    selection: &Selection,
    connections: &[String],
) -> Result<GrantedStream> {
    let wrong = |why: String| Error::refused(rung_fault::Code::InvalidRequest, "streams", why);
    let named: Vec<&str> = match (&selection.view, selection.fields.as_slice()) {
        (Some(_), [_, ..]) => return Err(wrong("a view or fields, not both".to_owned())),
        (Some(view), []) => {
            let found = stream.views.iter().find(|own| own.id == *view);
            let found =
                found.ok_or_else(|| wrong(format!("stream {} has no view {view}", stream.name)))?;
            found.fields.iter().map(String::as_str).collect()
        }
        (None, []) => stream
            .fields
            .iter()
            .map(|field| field.name.as_str())
            .collect(),
        (None, fields) => fields.iter().map(String::as_str).collect(),
    };
    if let Some(unknown) = named.iter().find(|name| stream.field(name).is_none()) {
        return Err(wrong(format!(
            "stream {} has no field {unknown}",
            stream.name
        )));
    }
    let always = stream.fields.iter().filter(|field| field.required);
    let always = always.map(|field| field.name.as_str());
    let keys = stream.primary_key.iter().map(String::as_str);
    let mut fields: Vec<String> = named
        .into_iter()
        .chain(always)
        .chain(keys)
        .map(str::to_owned)
        .collect();
    fields.sort();
    fields.dedup();
    let timed = selection.since.is_some() || selection.until.is_some();
    let time_constraint = match (&stream.consent_time_field, timed) {
        (_, false) => None,
        (None, true) => {
            return Err(wrong(format!(
                "stream {} has no time to be limited by",
                stream.name
            )));
        }
        (Some(field), true) => {
            for moment in [&selection.since, &selection.until].into_iter().flatten() {
                if crate::key::Moment::parse(moment).is_none() {
                    return Err(wrong(format!("{moment} is no date or moment")));
                }
            }
            let moments = (&selection.since, &selection.until);
            if let (Some(since), Some(until)) = moments
                && crate::key::Moment::parse(since) >= crate::key::Moment::parse(until)
            {
                return Err(wrong(format!(
                    "nothing is from {since} on and before {until}"
                )));
            }
            Some(TimeConstraint {
                field: field.clone(),
                since: selection.since.clone(),
                until: selection.until.clone(),
            })
        }
    };
    Ok(GrantedStream {
        name: stream.name.clone(),
        instance_ids: match selection.connections.as_slice() {
            [] => connections.to_vec(),
            own => own.to_vec(),
        },
        fields,
        time_constraint,
        resources: Some(selection.resources.clone()).filter(|keys| !keys.is_empty()),
    })
}
