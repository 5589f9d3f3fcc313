//! A remote provider, read over HTTP with its cached token. The token is sent to the provider alone: redirects are not followed,
//! and the token is redacted from responses.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use data_encoding::HEXLOWER;
use reqwest::{Client, header, redirect};
use rung_auth::Secret;
use rung_fault::{Code, Fault};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use super::json::Json;
use super::provider::{JsonBody, MAX_RESPONSE_BYTES, ProviderResponse, ResponseContent};
use super::provider_error::ProviderError;
use super::provider_request::ProviderRequest;
use crate::connect::{
    CachedGrant, CredentialCache, describe_failure, expires_soon, file_stamp, fresh_grant,
    is_owner_schema, owner_token_fault,
};

/// Bytes of a header that is passed on, at most.
const MAX_HEADER_BYTES: usize = 200;
/// Period of the early timer; shorter than any request timeout.
const TIMER_PERIOD: Duration = Duration::from_millis(900);
/// Tokens shorter than this are not redacted: they would match ordinary text.
const MIN_TOKEN_BYTES: usize = 8;

/// A remote provider and its HTTP client.
pub(super) struct RemoteProvider {
    url: String,
    cache: CredentialCache,
    /// The file of the cached token.
    file: PathBuf,
    client: OnceLock<Client>,
    patience: Duration,
    cached: Mutex<Option<CachedCredential>>,
    timer_armed: Arc<AtomicBool>,
    /// Called after the first response.
    on_first_response: fn(),
    first_response: Once,
}

/// The content of the token file, with the file's modification time and size.
struct CachedCredential {
    written: Option<(SystemTime, u64)>,
    cached: CachedGrant,
    credential: Arc<RemoteCredential>,
}

/// The bearer token, and the authority that cursors are bound to.
pub(super) struct RemoteCredential {
    token: Secret<String>,
    pub(super) authority: String,
    /// Set once the file or the provider has confirmed that this is not an owner token.
    checked: OnceCell<()>,
}

impl RemoteProvider {
    pub(super) fn new(
        url: String,
        cache: CredentialCache,
        patience: Duration,
        on_first_response: fn(),
    ) -> Self {
        Self {
            file: cache.path(&url),
            url,
            cache,
            client: OnceLock::new(),
            patience,
            cached: Mutex::default(),
            timer_armed: Arc::default(),
            on_first_response,
            first_response: Once::new(),
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the cached token, refreshed if it expires soon. The file is read again if it has changed.
    pub(super) async fn credential(&self) -> Result<Arc<RemoteCredential>, Fault> {
        let now = file_stamp(&self.file);
        if let Some(known) = &*self.cached.lock().unwrap_or_else(PoisonError::into_inner)
            && known.written == now
            && !expires_soon(&known.cached)
        {
            return Ok(known.credential.clone());
        }
        let cached = fresh_grant(&self.cache, &self.url).await?;
        let kept = &cached.credential;
        let authority = kept.grant_id.clone().unwrap_or_else(|| {
            let digest = Sha256::digest(kept.access_token.as_bytes());
            format!("token:{}", HEXLOWER.encode(&digest))
        });
        let credential = Arc::new(RemoteCredential {
            token: Secret::new(kept.access_token.clone()),
            authority,
            checked: OnceCell::new_with(kept.pdpp_token_kind.as_ref().map(|_| ())),
        });
        let known = CachedCredential {
            written: file_stamp(&self.file),
            cached,
            credential: credential.clone(),
        };
        *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
        Ok(credential)
    }

    /// Reads the provider's schema and returns an error if the token is an owner token.
    async fn reject_owner_token(&self, credential: &RemoteCredential) -> Result<(), ProviderError> {
        let ask = ProviderRequest::new(&["v1", "schema"]).with_param("view", Some("compact"));
        let said = self.send(credential, &ask).await?;
        let ResponseContent::Json(body) = &said.content else {
            return Ok(());
        };
        // An error or an invalid response is reported by the call itself.
        let owner = said.is_success()
            && body
                .parse()
                .is_ok_and(|body| is_owner_schema(&body.to_value()));
        if owner {
            return Err(owner_token_fault(&self.file.display().to_string()).into());
        }
        Ok(())
    }

    /// True if a connection may use TLS: to the provider or to a proxy.
    fn may_use_tls(&self) -> bool {
        const PROXIES: [&str; 4] = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];
        let set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        !self.url.starts_with("http://") || PROXIES.iter().any(set)
    }

    /// Returns the HTTP client, built on first use: loading root certificates takes time and memory.
    fn client(&self) -> Result<&Client, Fault> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let _first_one_counts = rustls::crypto::ring::default_provider().install_default();
        let mut client = Client::builder()
            .redirect(redirect::Policy::none())
            .timeout(self.patience)
            .tcp_nodelay(true)
            .user_agent(concat!("rung/", env!("CARGO_PKG_VERSION")));
        if !self.may_use_tls() {
            client = client.tls_certs_only([]);
        }
        let client = client
            .build()
            .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
        Ok(self.client.get_or_init(|| client))
    }

    /// Keeps a timer armed that fires before the requests' timeouts: arming the earliest timer of all costs a system call.
    fn keep_timer_armed(&self) {
        if !self.timer_armed.swap(true, Ordering::Relaxed) {
            let pulse = self.timer_armed.clone();
            tokio::spawn(async move {
                tokio::time::sleep(TIMER_PERIOD).await;
                pulse.store(false, Ordering::Relaxed);
            });
        }
    }

    /// Sends a request. An owner token is rejected before it is used.
    pub(super) async fn get(
        &self,
        credential: &RemoteCredential,
        ask: &ProviderRequest,
    ) -> Result<ProviderResponse, ProviderError> {
        let check = || self.reject_owner_token(credential);
        credential.checked.get_or_try_init(check).await?;
        self.send(credential, ask).await
    }

    async fn send(
        &self,
        credential: &RemoteCredential,
        ask: &ProviderRequest,
    ) -> Result<ProviderResponse, ProviderError> {
        self.keep_timer_armed();
        let failed = |error: reqwest::Error| {
            let why = if error.is_timeout() {
                format!("no response within {} seconds", self.patience.as_secs())
            } else {
                describe_failure(&error)
            };
            let why = format!("the request to {} failed: {why}", self.url);
            Fault::new(Code::SourceUnavailable, why)
                .with_hint("check that the provider runs, then repeat the call")
        };
        let url = format!("{}{}", self.url, ask.target());
        let request = self
            .client()?
            .get(url)
            .header(header::ACCEPT, "application/json")
            .bearer_auth(credential.token.expose());
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status().as_u16();
        let finder = memchr::memmem::Finder::new(credential.token.expose());
        // Checked before anything is cut: a part of the token is secret too.
        let text = |name: &str| {
            let value = response.headers().get(name)?.to_str().ok()?;
            let shown = finder.find(value.as_bytes()).is_none();
            (shown && value.len() <= MAX_HEADER_BYTES).then(|| value.to_owned())
        };
        let kind = text("content-type").unwrap_or_default();
        let request_id = text("request-id").or_else(|| text("x-request-id"));
        let bytes = read_body(&mut response)
            .await
            .map_err(|error| match error {
                BodyError::TooLong => {
                    let why = format!(
                        "the provider's response is longer than {MAX_RESPONSE_BYTES} bytes"
                    );
                    Fault::new(Code::SourceFailed, why)
                        .with_hint("request less: a smaller limit or fewer fields")
                }
                BodyError::Broken(error) => failed(error),
            })?;
        self.first_response.call_once(self.on_first_response);
        // A token in plain bytes is found here; with escapes it could only be found in the parsed JSON.
        let plain = finder.find(&bytes).is_none() && memchr::memmem::find(&bytes, b"\\u").is_none();
        let mut said = ProviderResponse::from_http(status, &kind, request_id, bytes)?;
        if !plain {
            redact_token(&mut said, credential.token.expose());
        }
        Ok(said)
    }
}

enum BodyError {
    TooLong,
    Broken(reqwest::Error),
}

async fn read_body(response: &mut reqwest::Response) -> Result<Bytes, BodyError> {
    let announced = response.content_length().unwrap_or(0);
    if announced > MAX_RESPONSE_BYTES as u64 {
        return Err(BodyError::TooLong);
    }
    let mut all = BytesMut::with_capacity(usize::try_from(announced).unwrap_or(0));
    while let Some(piece) = response.chunk().await.map_err(BodyError::Broken)? {
        if all.len() + piece.len() > MAX_RESPONSE_BYTES {
            return Err(BodyError::TooLong);
        }
        all.extend_from_slice(&piece);
    }
    Ok(all.freeze())
}

/// Redacts the token from a response that repeats it.
fn redact_token(said: &mut ProviderResponse, token: &str) {
    if token.len() < MIN_TOKEN_BYTES {
        return;
    }
    let finder = memchr::memmem::Finder::new(token);
    if said
        .request_id
        .as_ref()
        .is_some_and(|id| finder.find(id.as_bytes()).is_some())
    {
        said.request_id = None;
    }
    let success = said.is_success();
    match &mut said.content {
        ResponseContent::Json(body) => {
            // A body that cannot be parsed is not returned.
            let read = if success {
                body.parse().ok()
            } else {
                body.parse_shallow().ok()
            };
            if let Some(read) = read.filter(|read| contains_token(read, &finder)) {
                let mut value = read.to_value();
                redact_token_in(&mut value, &finder, token);
                *body = JsonBody::Parsed(value);
            }
        }
        ResponseContent::Bytes { kind, bytes } => {
            if finder.find(kind.as_bytes()).is_some() {
                kind.clear();
            }
            if finder.find(bytes).is_some() {
                *bytes = Bytes::new();
            }
        }
    }
}

/// True if the value contains the token.
fn contains_token(json: &Json<'_>, finder: &memchr::memmem::Finder<'_>) -> bool {
    let holds = |text: &str| finder.find(text.as_bytes()).is_some();
    match json {
        Json::String(text) => holds(text),
        Json::Array(items) => items.iter().any(|item| contains_token(item, finder)),
        Json::Object(members) => members
            .iter()
            .any(|(name, member)| holds(name) || contains_token(member, finder)),
        Json::Number(number) => holds(&number.to_string()),
        Json::Null | Json::Bool(_) => false,
    }
}

fn redact_token_in(value: &mut Value, finder: &memchr::memmem::Finder<'_>, token: &str) {
    const SHOWN: &str = "[token]";
    match value {
        Value::String(text) if finder.find(text.as_bytes()).is_some() => {
            *text = text.replace(token, SHOWN);
        }
        Value::Number(number) if finder.find(number.to_string().as_bytes()).is_some() => {
            *value = Value::from(SHOWN);
        }
        Value::Array(items) => {
            for item in items {
                redact_token_in(item, finder, token);
            }
        }
        Value::Object(members) => {
            let named = |name: &String| finder.find(name.as_bytes()).is_some();
            if members.keys().any(named) {
                let old = std::mem::take(members);
                members.extend(
                    old.into_iter()
                        .map(|(name, value)| (name.replace(token, SHOWN), value)),
                );
            }
            for (_, member) in members {
                redact_token_in(member, finder, token);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns a response after redaction.
    fn redacted(status: u16, token: &str, body: String) -> ProviderResponse {
        let id = Some(format!("req-{token}"));
        let mut said =
            ProviderResponse::from_http(status, "application/json", id, body.into()).unwrap();
        redact_token(&mut said, token);
        said
    }

    fn json_body(said: &ProviderResponse) -> &JsonBody {
        let ResponseContent::Json(body) = &said.content else {
            panic!("it is JSON");
        };
        body
    }

    #[test]
    fn a_token_that_comes_back_is_not_shown() {
        let said = r#"{"a":"x s3cret-t\u006fken y","s3cret-token":[{"b":"s3cret-token"}]}"#;
        let said = redacted(200, "s3cret-token", said.to_owned());
        assert_eq!(
            json_body(&said).parse().unwrap().to_value(),
            json!({"a": "x [token] y", "[token]": [{"b": "[token]"}]})
        );
        assert_eq!(said.request_id, None);
        let said = redacted(200, "1234567890", r#"{"a":1234567890,"b":-7}"#.to_owned());
        let left = json_body(&said).parse().unwrap().to_value();
        assert_eq!(left, json!({"a": "[token]", "b": -7}));
    }

    #[test]
    fn a_token_in_an_error_that_cannot_be_read_whole_is_not_shown() {
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        let error = format!(r#"{{"error":{{"more":{deep},"message":"s3cret-t\u006fken"}}}}"#);
        let said = redacted(500, "s3cret-token", error);
        let error = json_body(&said).parse_shallow().unwrap();
        assert_eq!(error["error"]["message"], "[token]");
    }
}
