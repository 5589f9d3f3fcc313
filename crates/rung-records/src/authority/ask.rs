//! What an application asks for, as RFC 9396 has it written.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use rung_fault::Code;

use crate::declaration::{Declaration, slug};
use crate::{Error, Records, Result};

/// The type of what is asked for here.
pub const DETAILS_TYPE: &str = "https://pdpp.dev/data-access";

/// Sources in one request.
const MAX_ASKS: usize = 16;
/// Streams of a source, fields of a stream, records of a stream.
const MAX_NAMES: usize = 1_000;
/// Characters of a text that people read.
const MAX_TEXT_CHARS: usize = 2_000;

/// What is asked of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The connector.
    pub connector: String,
    /// For what.
    pub purpose_code: String,
    /// The same in the application's words.
    pub purpose_description: Option<String>,
    /// For one use, or until it is taken back.
    pub single_use: bool,
    /// How long what was read will be kept.
    pub retention: Option<Value>,
    /// Of which streams.
    pub streams: Vec<AskedStream>,
    /// What else the application claims.
    pub client_claims: Option<Value>,
}

/// What is asked of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AskedStream {
    /// The stream, or `*` for all.
    pub name: String,
    /// Whether the application says that it can do without.
    pub optional: bool,
    /// Of which connections.
    pub instance_ids: Vec<String>,
    /// From when.
    pub since: Option<String>,
    /// Until when.
    pub until: Option<String>,
    /// Its fields; all of them if none is named.
    pub fields: Vec<String>,
    /// A view in place of fields.
    pub view: Option<String>,
    /// Records, by their keys.
    pub resources: Vec<String>,
}

impl Ask {
    /// Reads what was asked for.
    pub fn read_all(details: &Value) -> Result<Vec<Self>> {
        let details = details.as_array().filter(|all| !all.is_empty());
        let details =
            details.ok_or_else(|| wrong("authorization_details is a list of at least one"))?;
        if details.len() > MAX_ASKS {
            return Err(wrong(format!("{MAX_ASKS} sources at most at once")));
        }
        details.iter().map(Self::read).collect()
    }

    fn read(detail: &Value) -> Result<Self> {
        let object = Object::of(
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
            return Err(wrong(format!("type is {DETAILS_TYPE}")));
        }
        let source = object.get("source").unwrap_or(&Value::Null);
        let id = match source {
            Value::String(id) => id.as_str(),
            other => Object::of(other, "source", &["kind", "id"])?
                .text("id")?
                .ok_or_else(|| wrong("source.id is needed"))?,
        };
        let purpose_code = object
            .text("purpose_code")?
            .ok_or_else(|| wrong("purpose_code is needed: an absolute URI"))?;
        let plain = |c: char| c.is_ascii_graphic() && !"?#%\\\"<>".contains(c);
        if !purpose_code.starts_with("https://") || !purpose_code.chars().all(plain) {
            return Err(wrong("purpose_code is an absolute https URI, and plain"));
        }
        let streams = object.list("streams")?;
        if streams.is_empty() {
            return Err(wrong("streams names at least one stream"));
        }
        let streams: Vec<AskedStream> = streams
            .iter()
            .map(AskedStream::read)
            .collect::<Result<_>>()?;
        if streams.len() > 1 && streams.iter().any(|stream| stream.name == "*") {
            return Err(wrong("* stands for all streams and must stand alone"));
        }
        let retention = object.get("retention").cloned();
        if let Some(retention) = &retention {
            let told = Object::of(retention, "retention", &["max_duration", "on_expiry"])?;
            if !matches!(told.text("on_expiry")?, None | Some("delete" | "anonymize")) {
                return Err(wrong("on_expiry is delete or anonymize"));
            }
            told.text("max_duration")?;
        }
        Ok(Self {
            connector: slug(id),
            purpose_code: purpose_code.to_owned(),
            purpose_description: object.text("purpose_description")?.map(str::to_owned),
            single_use: match object.text("access_mode")? {
                None | Some("single_use") => true,
                Some("continuous") => false,
                Some(_) => return Err(wrong("access_mode is single_use or continuous")),
            },
            retention,
            streams,
            client_claims: object.get("client_claims").cloned(),
        })
    }

    /// Refuses what could never be given, as the source declares itself now.
    pub(crate) fn check(&self, declaration: &Declaration) -> Result<()> {
        for (at, asked) in self.streams.iter().enumerate() {
            if self.streams[..at]
                .iter()
                .any(|other| other.name == asked.name)
            {
                return Err(wrong(format!("stream {} is named twice", asked.name)));
            }
            if asked.name == "*" {
                if !asked.fields.is_empty() || asked.view.is_some() || !asked.resources.is_empty() {
                    return Err(wrong("* stands for all streams, whole"));
                }
                continue;
            }
            let stream = declaration.stream(&asked.name);
            let stream = stream.ok_or_else(|| {
                wrong(format!(
                    "{} has no stream {}",
                    declaration.connector, asked.name
                ))
            })?;
            if let Some(unknown) = asked
                .fields
                .iter()
                .find(|name| stream.field(name).is_none())
            {
                return Err(wrong(format!(
                    "stream {} has no field {unknown}",
                    stream.name
                )));
            }
            if let Some(view) = &asked.view
                && !stream.views.iter().any(|own| own.id == *view)
            {
                return Err(wrong(format!("stream {} has no view {view}", stream.name)));
            }
            let timed = asked.since.is_some() || asked.until.is_some();
            if timed && stream.consent_time_field.is_none() {
                return Err(wrong(format!(
                    "stream {} has no time to be limited by",
                    stream.name
                )));
            }
        }
        Ok(())
    }

    /// Whether it is for training models, to which the owner has to agree by an act of its own.
    pub fn is_training(&self) -> bool {
        let code = self.purpose_code.trim_end_matches('/').to_ascii_lowercase();
        code.ends_with("/ai_training")
    }
}

impl Records {
    /// Reads what was asked for, and refuses what could never be given.
    pub fn asks(&self, details: &Value) -> Result<Vec<Ask>> {
        let asks = Ask::read_all(details)?;
        self.store.reading(|tx| {
            for ask in &asks {
                let declaration = self.declaration(tx, &ask.connector)?;
                let declaration = declaration
                    .ok_or_else(|| wrong(format!("no source is known as {}", ask.connector)))?;
                ask.check(&declaration)?;
            }
            Ok(())
        })?;
        Ok(asks)
    }
}

impl AskedStream {
    fn read(stream: &Value) -> Result<Self> {
        let object = Object::of(
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
            let time = Object::of(&time, "time_range", &["since", "until"])?;
            let moment = |name: &str| -> Result<Option<String>> {
                let text = time.text(name)?;
                if let Some(text) = text
                    && crate::key::Moment::parse(text).is_none()
                {
                    return Err(wrong(format!("{name}: {text} is no date or moment")));
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
                .ok_or_else(|| wrong("a stream has a name"))?
                .to_owned(),
            optional: match object.text("necessity")? {
                None | Some("required") => false,
                Some("optional") => true,
                Some(_) => return Err(wrong("necessity is required or optional")),
            },
            instance_ids,
            since,
            until,
            fields: object.texts("fields")?,
            view: object.text("view")?.map(str::to_owned),
            resources: object.texts("resources")?,
        };
        if stream.view.is_some() && !stream.fields.is_empty() {
            return Err(wrong("a view or fields, not both"));
        }
        Ok(stream)
    }
}

fn wrong(why: impl Into<String>) -> Error {
    Error::refused(
        Code::InvalidAuthorizationDetails,
        "authorization_details",
        why,
    )
}

/// An object that has no other members than these.
struct Object<'a> {
    members: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    fn of(value: &'a Value, what: &str, known: &[&str]) -> Result<Self> {
        let members = value
            .as_object()
            .ok_or_else(|| wrong(format!("{what} is an object")))?;
        match members.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => {
                let name = rung_ladder::head(name, 60);
                Err(wrong(format!("{what} has no member {name:?}")))
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
            Some(_) => Err(wrong(format!(
                "{name} is a text of {MAX_TEXT_CHARS} characters at most"
            ))),
        }
    }

    fn list(&self, name: &str) -> Result<&'a [Value]> {
        match self.get(name) {
            None => Ok(&[]),
            Some(Value::Array(list)) if list.len() <= MAX_NAMES => Ok(list),
            Some(_) => Err(wrong(format!("{name} is a list of {MAX_NAMES} at most"))),
        }
    }

    fn texts(&self, name: &str) -> Result<Vec<String>> {
        let list = self.list(name)?.iter();
        let list = list.map(|value| value.as_str().map(str::to_owned));
        list.map(|text| text.ok_or_else(|| wrong(format!("{name} is a list of texts"))))
            .collect()
    }
}
