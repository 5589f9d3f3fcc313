//! The authorization details of a client's request (RFC 9396).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use rung_fault::Code;

use crate::declaration::{Declaration, connector_slug};
use crate::{Error, Records, Result};

/// The only accepted `type` of an authorization detail.
pub const DETAILS_TYPE: &str = "https://pdpp.dev/data-access";

/// Maximum number of sources in one request.
const MAX_ASKS: usize = 16;
/// Maximum number of streams per source, and of fields or records per stream.
const MAX_NAMES: usize = 1_000;
/// Maximum number of characters in any text of a detail.
const MAX_TEXT_CHARS: usize = 2_000;

/// One authorization detail: what a client requests of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationDetail {
    pub connector: String,
    /// Absolute https URI of the purpose.
    pub purpose_code: String,
    /// The purpose in the client's words.
    pub purpose_description: Option<String>,
    /// True if the grant is for one use; otherwise it is valid until revoked.
    pub single_use: bool,
    /// How long the client stores what it has read.
    pub retention: Option<Value>,
    pub streams: Vec<RequestedStream>,
    /// Other claims of the client, unchecked.
    pub client_claims: Option<Value>,
}

/// What a client requests of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RequestedStream {
    /// The stream, or `*` for all.
    pub name: String,
    /// True if the client works without this stream.
    pub optional: bool,
    /// Ids of the requested connections. Empty: the owner chooses.
    pub instance_ids: Vec<String>,
    pub since: Option<String>,
    pub until: Option<String>,
    /// The requested fields. Empty: all.
    pub fields: Vec<String>,
    /// A named view, instead of fields.
    pub view: Option<String>,
    /// Keys of the requested records. Empty: all.
    pub resources: Vec<String>,
}

impl AuthorizationDetail {
    /// Parses the `authorization_details` of a request.
    pub fn parse_all(details: &Value) -> Result<Vec<Self>> {
        let details = details.as_array().filter(|all| !all.is_empty());
        let details = details.ok_or_else(|| {
            invalid_details("authorization_details must be a list with at least one item")
        })?;
        if details.len() > MAX_ASKS {
            return Err(invalid_details(format!(
                "too many sources: at most {MAX_ASKS} in one request"
            )));
        }
        details.iter().map(Self::parse).collect()
    }

    fn parse(detail: &Value) -> Result<Self> {
        let object = StrictObject::parse(
            detail,
            "authorization_details",
            &[
                "type",
                "source",
                "purpose_code",
                "purpose_description",
                "access_mode",
                "retention",
                "streams",
                "client_claims",
            ],
        )?;
        if object.text("type")? != Some(DETAILS_TYPE) {
            return Err(invalid_details(format!("type must be {DETAILS_TYPE}")));
        }
        let source = object.get("source").unwrap_or(&Value::Null);
        let id = match source {
            Value::String(id) => id.as_str(),
            other => StrictObject::parse(other, "source", &["kind", "id"])?
                .text("id")?
                .ok_or_else(|| invalid_details("source.id is required"))?,
        };
        let purpose_code = object
            .text("purpose_code")?
            .ok_or_else(|| invalid_details("purpose_code is required: an absolute URI"))?;
        let plain = |c: char| c.is_ascii_graphic() && !"?#%\\\"<>".contains(c);
        if !purpose_code.starts_with("https://") || !purpose_code.chars().all(plain) {
            return Err(invalid_details(
                "purpose_code must be an absolute https URI without special characters",
            ));
        }
        let streams = object.list("streams")?;
        if streams.is_empty() {
            return Err(invalid_details("streams must name at least one stream"));
        }
        let streams: Vec<RequestedStream> = streams
            .iter()
            .map(RequestedStream::parse)
            .collect::<Result<_>>()?;
        if streams.len() > 1 && streams.iter().any(|stream| stream.name == "*") {
            return Err(invalid_details(
                "* means all streams and must be the only stream",
            ));
        }
        let retention = object.get("retention").cloned();
        if let Some(retention) = &retention {
            let told = StrictObject::parse(retention, "retention", &["max_duration", "on_expiry"])?;
            if !matches!(told.text("on_expiry")?, None | Some("delete" | "anonymize")) {
                return Err(invalid_details("on_expiry must be delete or anonymize"));
            }
            told.text("max_duration")?;
        }
        Ok(Self {
            connector: connector_slug(id),
            purpose_code: purpose_code.to_owned(),
            purpose_description: object.text("purpose_description")?.map(str::to_owned),
            single_use: match object.text("access_mode")? {
                None | Some("single_use") => true,
                Some("continuous") => false,
                Some(_) => {
                    return Err(invalid_details(
                        "access_mode must be single_use or continuous",
                    ));
                }
            },
            retention,
            streams,
            client_claims: object.get("client_claims").cloned(),
        })
    }

    /// Rejects streams, fields, views and time ranges that the declaration does not support.
    pub(crate) fn check(&self, declaration: &Declaration) -> Result<()> {
        for (at, asked) in self.streams.iter().enumerate() {
            if self.streams[..at]
                .iter()
                .any(|other| other.name == asked.name)
            {
                return Err(invalid_details(format!(
                    "stream {} is named twice",
                    asked.name
                )));
            }
            if asked.name == "*" {
                if !asked.fields.is_empty() || asked.view.is_some() || !asked.resources.is_empty() {
                    return Err(invalid_details(
                        "* means all streams with all their fields and records: it takes no further limits",
                    ));
                }
                continue;
            }
            let stream = declaration.stream(&asked.name);
            let stream = stream.ok_or_else(|| {
                invalid_details(format!(
                    "{} has no stream {}",
                    declaration.connector, asked.name
                ))
            })?;
            if let Some(unknown) = asked
                .fields
                .iter()
                .find(|name| stream.field(name).is_none())
            {
                return Err(invalid_details(format!(
                    "stream {} has no field {unknown}",
                    stream.name
                )));
            }
            if let Some(view) = &asked.view
                && !stream.views.iter().any(|own| own.id == *view)
            {
                return Err(invalid_details(format!(
                    "stream {} has no view {view}",
                    stream.name
                )));
            }
            let timed = asked.since.is_some() || asked.until.is_some();
            if timed && stream.consent_time_field.is_none() {
                return Err(invalid_details(format!(
                    "stream {} has no time field, so it cannot be limited by time",
                    stream.name
                )));
            }
        }
        Ok(())
    }

    /// Returns true if the purpose is training models, to which the owner must agree separately.
    pub fn is_training(&self) -> bool {
        let code = self.purpose_code.trim_end_matches('/').to_ascii_lowercase();
        code.ends_with("/ai_training")
    }
}

impl Records {
    /// Parses `authorization_details` and checks them against the declared sources.
    pub fn parse_authorization_details(&self, details: &Value) -> Result<Vec<AuthorizationDetail>> {
        let asks = AuthorizationDetail::parse_all(details)?;
        self.store.read_tx(|tx| {
            for ask in &asks {
                let declaration = self.declaration(tx, &ask.connector)?;
                let declaration = declaration.ok_or_else(|| {
                    invalid_details(format!("no source is named {}", ask.connector))
                })?;
                ask.check(&declaration)?;
            }
            Ok(())
        })?;
        Ok(asks)
    }
}

impl RequestedStream {
    fn parse(stream: &Value) -> Result<Self> {
        let object = StrictObject::parse(
            stream,
            "streams",
            &[
                "name",
                "necessity",
                "instance_ids",
                "connection_ids",
                "time_range",
                "fields",
                "view",
                "resources",
            ],
        )?;
        let time = object.get("time_range").cloned().unwrap_or(Value::Null);
        let (since, until) = if time.is_null() {
            (None, None)
        } else {
            let time = StrictObject::parse(&time, "time_range", &["since", "until"])?;
            let moment = |name: &str| -> Result<Option<String>> {
                let text = time.text(name)?;
                if let Some(text) = text
                    && crate::key::CalendarTime::parse(text).is_none()
                {
                    return Err(invalid_details(format!(
                        "{name}: {text} is not a date or timestamp"
                    )));
                }
                Ok(text.map(str::to_owned))
            };
            (moment("since")?, moment("until")?)
        };
        let mut instance_ids = object.texts("instance_ids")?;
        instance_ids.extend(object.texts("connection_ids")?);
        let stream = Self {
            name: object
                .text("name")?
                .ok_or_else(|| invalid_details("each stream must have a name"))?
                .to_owned(),
            optional: match object.text("necessity")? {
                None | Some("required") => false,
                Some("optional") => true,
                Some(_) => return Err(invalid_details("necessity must be required or optional")),
            },
            instance_ids,
            since,
            until,
            fields: object.texts("fields")?,
            view: object.text("view")?.map(str::to_owned),
            resources: object.texts("resources")?,
        };
        if stream.view.is_some() && !stream.fields.is_empty() {
            return Err(invalid_details("send a view or fields, not both"));
        }
        Ok(stream)
    }
}

fn invalid_details(why: impl Into<String>) -> Error {
    Error::invalid_with_code(
        Code::InvalidAuthorizationDetails,
        "authorization_details",
        why,
    )
}

/// A JSON object that has no unknown members.
struct StrictObject<'a> {
    members: &'a Map<String, Value>,
}

impl<'a> StrictObject<'a> {
    fn parse(value: &'a Value, what: &str, known: &[&str]) -> Result<Self> {
        let members = value
            .as_object()
            .ok_or_else(|| invalid_details(format!("{what} must be an object")))?;
        match members.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => {
                let name = rung_ladder::head(name, 60);
                Err(invalid_details(format!("{what} has no member {name:?}")))
            }
            None => Ok(Self { members }),
        }
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.members.get(name).filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.chars().count() <= MAX_TEXT_CHARS => Ok(Some(text)),
            Some(_) => Err(invalid_details(format!(
                "{name} must be a string of at most {MAX_TEXT_CHARS} characters"
            ))),
        }
    }

    fn list(&self, name: &str) -> Result<&'a [Value]> {
        match self.get(name) {
            None => Ok(&[]),
            Some(Value::Array(list)) if list.len() <= MAX_NAMES => Ok(list),
            Some(_) => Err(invalid_details(format!(
                "{name} must be a list of at most {MAX_NAMES} items"
            ))),
        }
    }

    fn texts(&self, name: &str) -> Result<Vec<String>> {
        let list = self.list(name)?.iter();
        let list = list.map(|value| value.as_str().map(str::to_owned));
        list.map(|text| {
            text.ok_or_else(|| invalid_details(format!("{name} must be a list of strings")))
        })
        .collect()
    }
}
