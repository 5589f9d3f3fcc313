//! A provider of records: remote over HTTP, or within this process. Tools read records through it alone.

use std::sync::Arc;

use bytes::Bytes;
use rung_auth::Permit;
use rung_fault::{Code, Fault};
use serde_json::Value;

use super::json::{Json, JsonError};
use super::local::{GrantReader, LocalProvider};
use super::package::GrantPackage;
use super::provider_error::ProviderError;
use super::provider_request::ProviderRequest;
use super::remote::{RemoteCredential, RemoteProvider};

/// Bytes of a response, at most.
pub(super) const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Values of a response, at most: in memory, a value takes many times its bytes.
const MAX_VALUES: usize = 400_000;
/// Bytes of a request target, at most.
const MAX_REQUEST_BYTES: usize = 16 << 10;

/// A response, by its media type.
#[derive(Debug)]
pub(super) struct ProviderResponse {
    pub(super) status: u16,
    pub(super) request_id: Option<String>,
    pub(super) content: ResponseContent,
}

/// The body of a response, by its declared media type.
#[derive(Debug)]
pub(super) enum ResponseContent {
    Json(JsonBody),
    Bytes { kind: String, bytes: Bytes },
}

/// A JSON body, as received or as built here.
#[derive(Debug)]
pub(super) enum JsonBody {
    /// As received; parsed on demand, borrowing from the bytes.
    Raw(Bytes),
    Parsed(Value),
}

impl JsonBody {
    pub(super) fn parse(&self) -> Result<Json<'_>, ProviderError> {
        match self {
            Self::Raw(bytes) => super::json::parse(bytes).map_err(|error| match error {
                JsonError::TooDeep => {
                    let fault = Fault::new(
                        Code::SourceFailed,
                        format!("the provider's response cannot be passed on: {error}"),
                    );
                    fault
                        .with_hint("request less: name the needed fields in fields")
                        .into()
                }
                JsonError::NotUtf8(_) | JsonError::NotJson(_) => ProviderError::new(
                    Code::SourceFailed,
                    format!(
                        "the provider's response is declared as JSON but is not valid JSON: {error}"
                    ),
                ),
            }),
            Self::Parsed(value) => Ok(value.into()),
        }
    }

    /// Parses an error body. Values that are nested too deep are replaced, so that the error code is always available.
    pub(super) fn parse_shallow(&self) -> Result<Json<'_>, JsonError> {
        match self {
            Self::Raw(bytes) => super::json::parse_shallow(bytes),
            Self::Parsed(value) => Ok(value.into()),
        }
    }
}

impl ProviderResponse {
    /// Builds a JSON response.
    pub(super) fn json(status: u16, body: Value) -> Self {
        Self {
            status,
            request_id: None,
            content: ResponseContent::Json(JsonBody::Parsed(body)),
        }
    }

    /// Builds a response from its status, media type and body.
    pub(super) fn from_http(
        status: u16,
        kind: &str,
        request_id: Option<String>,
        bytes: Bytes,
    ) -> Result<Self, ProviderError> {
        let essence = kind.split(';').next().unwrap_or_default();
        let essence = essence.trim().to_ascii_lowercase();
        let json = matches!(essence.as_str(), "application/json" | "text/json");
        let json = json || essence.ends_with("+json");
        // Commas within strings are only excluded where there are that many commas.
        if json && count_commas(&bytes) > MAX_VALUES && count_separators(&bytes) > MAX_VALUES {
            let why = format!("the provider's response has more than {MAX_VALUES} values");
            let fault = Fault::new(Code::SourceFailed, why);
            return Err(fault
                .with_hint("request less: a smaller limit or fewer fields")
                .into());
        }
        let content = if json {
            ResponseContent::Json(JsonBody::Raw(bytes))
        } else {
            ResponseContent::Bytes {
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

fn count_commas(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b',', bytes).count()
}

/// Counts the commas of a JSON text that separate values, not those within strings.
fn count_separators(json: &[u8]) -> usize {
    let (mut count, mut rest) = (0, json);
    while let Some(quote) = memchr::memchr(b'"', rest) {
        count += count_commas(&rest[..quote]);
        rest = &rest[quote + 1..];
        while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
            let escape = rest[at] == b'\\';
            rest = rest.get(at + 1 + usize::from(escape)..).unwrap_or_default();
            if !escape {
                break;
            }
        }
    }
    count + count_commas(rest)
}

/// A successful JSON response.
#[derive(Debug)]
pub(super) struct JsonResponse {
    status: u16,
    body: JsonBody,
    pub(super) request_id: Option<String>,
}

impl JsonResponse {
    /// Parses the body, which must be an object or an array.
    pub(super) fn body(&self) -> Result<Json<'_>, ProviderError> {
        let body = self.body.parse()?;
        if body.is_object() || body.is_array() {
            return Ok(body);
        }
        Err(ProviderError::new(
            Code::SourceFailed,
            format!("the provider returned {} with an empty body", self.status),
        ))
    }
}

/// The provider of one call.
pub(super) enum Provider {
    Remote(Arc<RemoteProvider>, Arc<RemoteCredential>),
    Local(GrantReader),
    Package(GrantPackage),
    /// Returns the same body to every request.
    #[cfg(fuzzing)]
    Canned(bytes::Bytes),
}

impl Provider {
    /// Returns the public URL.
    pub(super) fn url(&self) -> &str {
        match self {
            Self::Remote(remote, _) => remote.url(),
            Self::Local(reader) => reader.url(),
            Self::Package(package) => package.url(),
            #[cfg(fuzzing)]
            Self::Canned(_) => "http://canned.example",
        }
    }

    /// Returns the grant or package id that cursors are bound to; for a token without a known grant, its digest.
    pub(super) fn authority(&self) -> &str {
        match self {
            Self::Remote(_, credential) => &credential.authority,
            Self::Local(reader) => reader.grant_id(),
            Self::Package(package) => package.id(),
            #[cfg(fuzzing)]
            Self::Canned(_) => "canned",
        }
    }

    /// Sends a request and returns the response, whatever its status.
    pub(super) async fn get(
        &self,
        ask: &ProviderRequest,
    ) -> Result<ProviderResponse, ProviderError> {
        if ask.target().len() > MAX_REQUEST_BYTES {
            let why = "the arguments are too long for a request";
            return Err(ProviderError::new(Code::InvalidArguments, why));
        }
        match self {
            Self::Remote(remote, credential) => remote.get(credential, ask).await,
            Self::Local(reader) => reader.get(ask).await,
            Self::Package(package) => package.get(ask).await,
            #[cfg(fuzzing)]
            Self::Canned(bytes) => {
                ProviderResponse::from_http(200, "application/json", None, bytes.clone())
            }
        }
    }

    /// Sends a request that must succeed with JSON.
    pub(super) async fn get_json(
        &self,
        ask: &ProviderRequest,
    ) -> Result<JsonResponse, ProviderError> {
        require_json(self.get(ask).await?)
    }
}

/// Returns the JSON of a successful response.
pub(super) fn require_json(said: ProviderResponse) -> Result<JsonResponse, ProviderError> {
    if !said.is_success() {
        return Err(ProviderError::from_response(said));
    }
    match said.content {
        ResponseContent::Json(body) => Ok(JsonResponse {
            status: said.status,
            body,
            request_id: said.request_id,
        }),
        ResponseContent::Bytes { kind, .. } => Err(ProviderError::new(
            Code::SourceFailed,
            format!(
                "the provider returned {} with {kind:?}, not JSON",
                said.status
            ),
        )),
    }
}

/// The backend of the tools, from which each call gets its provider.
pub(super) enum ProviderBackend {
    Remote(Arc<RemoteProvider>),
    Local(Arc<LocalProvider>),
    #[cfg(fuzzing)]
    Canned(bytes::Bytes),
}

impl ProviderBackend {
    /// Returns the public URL of the records.
    pub(super) fn url(&self) -> &str {
        match self {
            Self::Remote(remote) => remote.url(),
            Self::Local(own) => own.url(),
            #[cfg(fuzzing)]
            Self::Canned(_) => "http://canned.example",
        }
    }

    /// True if the permit has any grant of personal data. Always true for a remote provider.
    pub(super) async fn has_any(&self, permit: &Permit) -> Result<bool, Fault> {
        match self {
            Self::Remote(_) => Ok(true),
            Self::Local(own) => Ok(!own.members(permit).await?.is_empty()),
            #[cfg(fuzzing)]
            Self::Canned(_) => Ok(true),
        }
    }

    /// Returns the owner's names of the sources that a permit may read, where they are known without a request.
    pub(super) async fn source_names(&self, permit: &Permit) -> Result<Vec<String>, Fault> {
        let Self::Local(own) = self else {
            return Ok(Vec::new());
        };
        let members = own.members(permit).await?;
        let connections = members.into_iter().flat_map(|member| member.connections);
        let mut names: Vec<String> = connections
            .map(|one| one.display_name.unwrap_or(one.connector))
            .collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Returns the provider for a permit, or `None` if the permit has no grant of personal data.
    pub(super) async fn provider_for(
        &self,
        permit: &Permit,
    ) -> Result<Option<Provider>, ProviderError> {
        match self {
            Self::Remote(remote) => {
                let credential = remote.credential().await?;
                Ok(Some(Provider::Remote(remote.clone(), credential)))
            }
            Self::Local(own) => own.provider(permit).await,
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
            assert_eq!(count_separators(json.as_bytes()), count, "{json}");
        }
    }
}
