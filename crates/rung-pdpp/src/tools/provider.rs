//! Whoever has the records: asked over HTTP, or within this process. Everything is read through it and nothing around it.

use std::sync::Arc;

use bytes::Bytes;
use rung_auth::Permit;
use rung_fault::{Code, Fault};
use serde_json::Value;

use super::ask::Ask;
use super::json::{Json, Unread};
use super::own::{Own, Reader};
use super::package::Package;
use super::refusal::Refusal;
use super::remote::{Credential, Remote};

/// Bytes of an answer that are taken in.
pub(super) const MAX_BYTES: usize = 16 << 20;

/// Values of an answer: each takes many times as much memory as it has bytes.
const MAX_VALUES: usize = 400_000;
/// Bytes of a request.
const MAX_ASKED_BYTES: usize = 16 << 10;

/// An answer.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) status: u16,
    pub(super) request_id: Option<String>,
    pub(super) content: Content,
}

/// What it holds, by what it says that it holds.
#[derive(Debug)]
pub(super) enum Content {
    Json(Body),
    Bytes { kind: String, bytes: Bytes },
}

/// JSON, as it came or as it was made here.
#[derive(Debug)]
pub(super) enum Body {
    /// As it came: whoever wants to know what it says reads it where it lies.
    Unread(Bytes),
    Made(Value),
}

impl Body {
    pub(super) fn read(&self) -> Result<Json<'_>, Refusal> {
        match self {
            Self::Unread(bytes) => super::json::read(bytes).map_err(|error| match error {
                Unread::TooDeep => {
                    let fault = Fault::new(
                        Code::SourceFailed,
                        format!("the provider's answer cannot be passed on: {error}"),
                    );
                    fault
                        .with_hint("ask for less: name the fields that are wanted, with fields")
                        .into()
                }
                Unread::NotText(_) | Unread::NotJson(_) => Refusal::new(
                    Code::SourceFailed,
                    format!("the provider's answer says that it is JSON, and is not: {error}"),
                ),
            }),
            Self::Made(value) => Ok(value.into()),
        }
    }

    /// What an error says: also of one that cannot be read whole, nobody is left without its code.
    pub(super) fn read_error(&self) -> Result<Json<'_>, Unread> {
        match self {
            Self::Unread(bytes) => super::json::read_shallow(bytes),
            Self::Made(value) => Ok(value.into()),
        }
    }
}

impl Said {
    /// An answer in JSON, made here.
    pub(super) fn json(status: u16, body: Value) -> Self {
        Self {
            status,
            request_id: None,
            content: Content::Json(Body::Made(body)),
        }
    }

    /// Takes in an answer's body.
    pub(super) fn of(
        status: u16,
        kind: &str,
        request_id: Option<String>,
        bytes: Bytes,
    ) -> Result<Self, Refusal> {
        let essence = kind.split(';').next().unwrap_or_default();
        let essence = essence.trim().to_ascii_lowercase();
        let json = matches!(essence.as_str(), "application/json" | "text/json");
        let json = json || essence.ends_with("+json");
        // Commas in texts are told from others only where there are so many.
        if json && commas(&bytes) > MAX_VALUES && commas_between(&bytes) > MAX_VALUES {
            let why = format!("the provider's answer has more than {MAX_VALUES} values");
            let fault = Fault::new(Code::SourceFailed, why);
            return Err(fault
                .with_hint("ask for less: a smaller limit, or fewer fields")
                .into());
        }
        let content = if json {
            Content::Json(Body::Unread(bytes))
        } else {
            Content::Bytes {
                kind: rung_ladder::head(&essence, 100).to_owned(),
                bytes,
            }
        };
        Ok(Self {
            status,
            request_id,
            content,
        })
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

fn commas(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b',', bytes).count()
}

/// The commas of some JSON that part values, not those in its texts.
fn commas_between(json: &[u8]) -> usize {
    let (mut count, mut rest) = (0, json);
    while let Some(quote) = memchr::memchr(b'"', rest) {
        count += commas(&rest[..quote]);
        rest = &rest[quote + 1..];
        while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
            let escape = rest[at] == b'\\';
            rest = rest.get(at + 1 + usize::from(escape)..).unwrap_or_default();
            if !escape {
                break;
            }
        }
    }
    count + commas(rest)
}

/// What was asked for.
#[derive(Debug)]
pub(super) struct Answer {
    status: u16,
    body: Body,
    pub(super) request_id: Option<String>,
}

impl Answer {
    /// What it says.
    pub(super) fn body(&self) -> Result<Json<'_>, Refusal> {
        let body = self.body.read()?;
        if body.is_object() || body.is_array() {
            return Ok(body);
        }
        Err(Refusal::new(
            Code::SourceFailed,
            format!("the provider answered {} with nothing in it", self.status),
        ))
    }
}

/// Whoever has the records, for one call.
pub(super) enum Provider {
    Remote(Arc<Remote>, Arc<Credential>),
    Own(Reader),
    Package(Package),
    /// One that says the same to everybody.
    #[cfg(fuzzing)]
    Canned(bytes::Bytes),
}

impl Provider {
    /// Where it is, as it is told to others.
    pub(super) fn url(&self) -> &str {
        match self {
            Self::Remote(remote, _) => remote.url(),
            Self::Own(reader) => reader.url(),
            Self::Package(package) => package.url(),
            #[cfg(fuzzing)]
            Self::Canned(_) => "http://canned.example",
        }
    }

    /// What cursors are bound to.
    pub(super) fn authority(&self) -> &str {
        match self {
            Self::Remote(_, credential) => &credential.authority,
            Self::Own(reader) => reader.grant_id(),
            Self::Package(package) => package.id(),
            #[cfg(fuzzing)]
            Self::Canned(_) => "canned",
        }
    }

    /// Asks, and takes whatever comes.
    pub(super) async fn get(&self, ask: &Ask) -> Result<Said, Refusal> {
        if ask.target().len() > MAX_ASKED_BYTES {
            let why = "the arguments are longer than a request may be";
            return Err(Refusal::new(Code::InvalidArguments, why));
        }
        match self {
            Self::Remote(remote, credential) => remote.get(credential, ask).await,
            Self::Own(reader) => reader.get(ask).await,
            Self::Package(package) => package.get(ask).await,
            #[cfg(fuzzing)]
            Self::Canned(bytes) => Said::of(200, "application/json", None, bytes.clone()),
        }
    }

    /// Asks for something that is JSON.
    pub(super) async fn read(&self, ask: &Ask) -> Result<Answer, Refusal> {
        read(self.get(ask).await?)
    }
}

/// An answer that is what was asked for.
pub(super) fn read(said: Said) -> Result<Answer, Refusal> {
    if !said.is_success() {
        return Err(Refusal::of(said));
    }
    match said.content {
        Content::Json(body) => Ok(Answer {
            status: said.status,
            body,
            request_id: said.request_id,
        }),
        Content::Bytes { kind, .. } => Err(Refusal::new(
            Code::SourceFailed,
            format!(
                "the provider answered {} with {kind:?}, not with JSON",
                said.status
            ),
        )),
    }
}

/// The ways to the records.
pub(super) enum Providers {
    Remote(Arc<Remote>),
    Own(Arc<Own>),
    #[cfg(fuzzing)]
    Canned(bytes::Bytes),
}

impl Providers {
    /// Where the records are, as is told to others.
    pub(super) fn url(&self) -> &str {
        match self {
            Self::Remote(remote) => remote.url(),
            Self::Own(own) => own.url(),
            #[cfg(fuzzing)]
            Self::Canned(_) => "http://canned.example",
        }
    }

    /// Whether there is anything for whoever has this permit.
    pub(super) async fn has_any(&self, permit: &Permit) -> Result<bool, Fault> {
        match self {
            Self::Remote(_) => Ok(true),
            Self::Own(own) => Ok(!own.members(permit).await?.is_empty()),
            #[cfg(fuzzing)]
            Self::Canned(_) => Ok(true),
        }
    }

    /// Whoever has the records that this permit is for.
    pub(super) async fn of(&self, permit: &Permit) -> Result<Option<Provider>, Refusal> {
        match self {
            Self::Remote(remote) => {
                let credential = remote.credential().await?;
                Ok(Some(Provider::Remote(remote.clone(), credential)))
            }
            Self::Own(own) => own.provider(permit).await,
            #[cfg(fuzzing)]
            Self::Canned(bytes) => Ok(Some(Provider::Canned(bytes.clone()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_texts_part_nothing() {
        for (json, count) in [
            ("", 0),
            ("[1,2,3]", 2),
            (r#"{"a,b":"c,d","e":",,,"}"#, 1),
            (r#"["\"",",\\",",\\\",",1]"#, 3),
            (r#"["never over, \"#, 0),
        ] {
            assert_eq!(commas_between(json.as_bytes()), count, "{json}");
        }
    }
}
