//! Grants: which streams, fields and records a client may read.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::declaration::{Declaration, StreamDeclaration};
use crate::{Error, Result};

/// The version of the grant format.
const GRANT_VERSION: &str = "0.1.0";

/// An issued grant. Immutable.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Grant {
    pub version: String,
    pub grant_id: String,
    pub issued_at: String,
    /// The subject whose data is granted.
    pub subject: Value,
    pub client: GrantClient,
    pub source: GrantSource,
    /// The version of the source declaration when the grant was issued.
    pub source_declaration: Value,
    pub purpose_code: String,
    /// `single_use` or `continuous`.
    pub access_mode: String,
    pub streams: Vec<GrantedStream>,
    pub expires_at: Option<String>,
    /// Other members.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, Value>,
}

/// The client of a grant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GrantClient {
    pub client_id: String,
    #[serde(default)]
    pub client_display: Value,
}

/// The source of a grant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GrantSource {
    /// `connector` or `provider_native`.
    pub kind: String,
    /// The address (URI) of the source.
    pub id: String,
}

/// A stream of a grant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GrantedStream {
    pub name: String,
    /// The granted connections.
    pub instance_ids: Vec<String>,
    /// The granted fields.
    pub fields: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_constraint: Option<TimeConstraint>,
    /// Keys of the granted records. `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<String>>,
}

/// A time range on one field.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TimeConstraint {
    pub field: String,
    /// Inclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Exclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// What to grant of one stream.
#[derive(Debug, Clone, Default)]
pub struct StreamSelection {
    /// The stream, or `*` for all.
    pub stream: String,
    /// The fields. Empty: all.
    pub fields: Vec<String>,
    /// A named view, instead of fields.
    pub view: Option<String>,
    pub since: Option<String>,
    pub until: Option<String>,
    /// Keys of the granted records. Empty: all.
    pub resources: Vec<String>,
    /// The connections. Empty: those of the whole grant.
    pub connections: Vec<String>,
}

/// A grant to be built.
#[derive(Debug, Clone)]
pub struct NewGrant<'a> {
    pub grant_id: String,
    pub issued_at: String,
    pub subject: &'a str,
    pub client: &'a str,
    pub purpose_code: String,
    /// True if the grant is for one use; otherwise it is valid until revoked.
    pub single_use: bool,
    pub expires_at: Option<String>,
    pub selections: &'a [StreamSelection],
    /// The connections of streams that select none.
    pub connections: Vec<String>,
}

impl Grant {
    /// Resolves selections into explicit streams and fields, so that a later declaration does not widen the grant.
    pub fn resolve(declaration: &Declaration, request: NewGrant<'_>) -> Result<Self> {
        let wrong = |why: String| {
            Err(Error::invalid_with_code(
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
            return wrong("* means all streams and must be the only stream".to_owned());
        }
        for selection in request.selections {
            let chosen: Vec<&StreamDeclaration> = if all {
                declaration.streams.iter().collect()
            } else {
                let found = declaration.stream(&selection.stream);
                let Some(found) = found else {
                    let why = format!(
                        "{} has no stream {}",
                        declaration.connector, selection.stream
                    );
                    let error =
                        Error::invalid_with_code(rung_fault::Code::InvalidRequest, "streams", why);
                    let known = declaration.stream_names();
                    return Err(error.with_similar_names(&selection.stream, known));
                };
                vec![found]
            };
            for stream in chosen {
                if streams.iter().any(|other| other.name == stream.name) {
                    return wrong(format!("stream {} is named twice", stream.name));
                }
                streams.push(resolve_stream(stream, selection, &request.connections)?);
            }
        }
        if streams.is_empty() {
            return wrong("at least one stream is required".to_owned());
        }
        Ok(Self {
            version: GRANT_VERSION.to_owned(),
            grant_id: request.grant_id,
            issued_at: request.issued_at,
            subject: json!({"id": request.subject}),
            client: GrantClient {
                client_id: request.client.to_owned(),
                client_display: json!({"name": request.client}),
            },
            source: GrantSource {
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

    pub fn stream(&self, name: &str) -> Option<&GrantedStream> {
        self.streams.iter().find(|stream| stream.name == name)
    }
}

fn resolve_stream(
    stream: &StreamDeclaration,
    selection: &StreamSelection,
    connections: &[String],
) -> Result<GrantedStream> {
    let wrong =
        |why: String| Error::invalid_with_code(rung_fault::Code::InvalidRequest, "streams", why);
    let named: Vec<&str> = match (&selection.view, selection.fields.as_slice()) {
        (Some(_), [_, ..]) => return Err(wrong("send a view or fields, not both".to_owned())),
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
        let error = wrong(format!("stream {} has no field {unknown}", stream.name));
        let known = stream.fields.iter().map(|field| field.name.as_str());
        return Err(error.with_similar_names(unknown, known));
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
                "stream {} has no time field, so it cannot be limited by time",
                stream.name
            )));
        }
        (Some(field), true) => {
            for moment in [&selection.since, &selection.until].into_iter().flatten() {
                if crate::key::CalendarTime::parse(moment).is_none() {
                    return Err(wrong(format!("{moment} is not a date or timestamp")));
                }
            }
            let moments = (&selection.since, &selection.until);
            if let (Some(since), Some(until)) = moments
                && crate::key::CalendarTime::parse(since) >= crate::key::CalendarTime::parse(until)
            {
                return Err(wrong(format!(
                    "the time range is empty: {since} is not before {until}"
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
