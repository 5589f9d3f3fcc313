//! A provider elsewhere, asked over HTTP with the token that is kept for it. The token goes there and nowhere else: it is
//! not taken along to another address, and not shown in anything that comes back.

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

use super::ask::Ask;
use super::json::Json;
use super::provider::{Body, Content, MAX_BYTES, Said};
use super::refusal::Refusal;
use crate::connect::{Cache, Cached, ends_soon, fresh, is_owner, owner_token, written};

/// Bytes of a header that is passed on.
const MAX_HEADER_BYTES: usize = 200;
/// Sooner than a request may be given up.
const PULSE: Duration = Duration::from_millis(900);
/// Tokens that are shorter than this are not looked for in answers: they would be found in every word.
const MIN_TOKEN_BYTES: usize = 8;

/// A provider elsewhere.
pub(super) struct Remote {
    url: String,
    cache: Cache,
    /// Where the token is kept.
    file: PathBuf,
    client: OnceLock<Client>,
    patience: Duration,
    known: Mutex<Option<Known>>,
    pulse: Arc<AtomicBool>,
    /// What is done once the first answer is there.
    settled: fn(),
    answered: Once,
}

/// What the file held when it was last read, and when that was written.
struct Known {
    written: Option<(SystemTime, u64)>,
    cached: Cached,
    credential: Arc<Credential>,
}

/// What the provider is shown, and what cursors are bound to.
pub(super) struct Credential {
    token: Secret<String>,
    pub(super) authority: String,
    /// Set once it is known that this is no owner's token: from the file, or from the provider.
    checked: OnceCell<()>,
}

impl Remote {
    pub(super) fn new(url: String, cache: Cache, patience: Duration, settled: fn()) -> Self {
        Self {
            file: cache.path(&url),
            url,
            cache,
            client: OnceLock::new(),
            patience,
            known: Mutex::default(),
            pulse: Arc::default(),
            settled,
            answered: Once::new(),
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The token that is kept, or the next one where that ends soon. The file is read when it was written since.
    pub(super) async fn credential(&self) -> Result<Arc<Credential>, Fault> {
        let now = written(&self.file);
        if let Some(known) = &*self.known.lock().unwrap_or_else(PoisonError::into_inner)
            && known.written == now
            && !ends_soon(&known.cached)
        {
            return Ok(known.credential.clone());
        }
        let cached = fresh(&self.cache, &self.url).await?;
        let kept = &cached.credential;
        let authority = kept.grant_id.clone().unwrap_or_else(|| {
            let digest = Sha256::digest(kept.access_token.as_bytes());
            format!("token:{}", HEXLOWER.encode(&digest))
        });
        let credential = Arc::new(Credential {
            token: Secret::new(kept.access_token.clone()),
            authority,
            checked: OnceCell::new_with(kept.pdpp_token_kind.as_ref().map(|_| ())),
        });
        let known = Known {
            written: written(&self.file),
            cached,
            credential: credential.clone(),
        };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
        Ok(credential)
    }

    /// Asks the provider whose token this is.
    async fn refuse_owner(&self, credential: &Credential) -> Result<(), Refusal> {
        let ask = Ask::at(&["v1", "schema"]).with("view", Some("compact"));
        let said = self.send(credential, &ask).await?;
        let Content::Json(body) = &said.content else {
            return Ok(());
        };
        // What the provider refuses, or says in no way that can be read, the call itself will be told.
        let owner = said.is_success() && body.read().is_ok_and(|body| is_owner(&body.to_value()));
        if owner {
            return Err(owner_token(&self.file.display().to_string()).into());
        }
        Ok(())
    }

    /// Whether anybody's certificate will be looked at: the provider's, or that of a proxy on the way there.
    fn is_secured(&self) -> bool {
        const PROXIES: [&str; 4] = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];
        let set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        !self.url.starts_with("http://") || PROXIES.iter().any(set)
    }

    /// Made when it is first needed: what reads certificates takes its time, and memory, where any are needed.
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
        if !self.is_secured() {
            client = client.tls_certs_only([]);
        }
        let client = client
            .build()
            .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
        Ok(self.client.get_or_init(|| client))
    }

    /// A timer that rings before all others costs a call of the system. While requests are made, another one always rings before
    /// theirs.
    fn keep_a_pulse(&self) {
        if !self.pulse.swap(true, Ordering::Relaxed) {
            let pulse = self.pulse.clone();
            tokio::spawn(async move {
                tokio::time::sleep(PULSE).await;
                pulse.store(false, Ordering::Relaxed);
            });
        }
    }

    /// Asks the provider. An owner's token is refused before anything is asked for with it.
    pub(super) async fn get(&self, credential: &Credential, ask: &Ask) -> Result<Said, Refusal> {
        let check = || self.refuse_owner(credential);
        credential.checked.get_or_try_init(check).await?;
        self.send(credential, ask).await
    }

    async fn send(&self, credential: &Credential, ask: &Ask) -> Result<Said, Refusal> {
        self.keep_a_pulse();
        let failed = |error: reqwest::Error| {
            let why = if error.is_timeout() {
                format!("no answer within {} seconds", self.patience.as_secs())
            } else {
                // The address may hold what was asked, and the cause is what tells.
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                cause.unwrap_or_else(|| error.without_url().to_string())
            };
            let why = format!("{} could not be asked: {why}", self.url);
            Fault::new(Code::SourceUnavailable, why)
                .with_hint("see that the provider runs, then make the call again")
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
        // Before anything is cut: a part of the token is as secret as the whole.
        let text = |name: &str| {
            let value = response.headers().get(name)?.to_str().ok()?;
            let shown = finder.find(value.as_bytes()).is_none();
            (shown && value.len() <= MAX_HEADER_BYTES).then(|| value.to_owned())
        };
        let kind = text("content-type").unwrap_or_default();
        let request_id = text("request-id").or_else(|| text("x-request-id"));
        let bytes = body(&mut response).await.map_err(|error| match error {
            Unread::TooLong => {
                let why = format!("the provider's answer is longer than {MAX_BYTES} bytes");
                Fault::new(Code::SourceFailed, why)
                    .with_hint("ask for less: a smaller limit, or fewer fields")
            }
            Unread::Broken(error) => failed(error),
        })?;
        self.answered.call_once(self.settled);
        // Written out it would be seen here; written otherwise it is looked for in what that means.
        let plain = finder.find(&bytes).is_none() && memchr::memmem::find(&bytes, b"\\u").is_none();
        let mut said = Said::of(status, &kind, request_id, bytes)?;
        if !plain {
            conceal(&mut said, credential.token.expose());
        }
        Ok(said)
    }
}

enum Unread {
    TooLong,
    Broken(reqwest::Error),
}

async fn body(response: &mut reqwest::Response) -> Result<Bytes, Unread> {
    let announced = response.content_length().unwrap_or(0);
    if announced > MAX_BYTES as u64 {
        return Err(Unread::TooLong);
    }
    let mut all = BytesMut::with_capacity(usize::try_from(announced).unwrap_or(0));
    while let Some(piece) = response.chunk().await.map_err(Unread::Broken)? {
        if all.len() + piece.len() > MAX_BYTES {
            return Err(Unread::TooLong);
        }
        all.extend_from_slice(&piece);
    }
    Ok(all.freeze())
}

/// Takes the token out of an answer in which a provider repeats it.
fn conceal(said: &mut Said, token: &str) {
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
        Content::Json(body) => {
            // What cannot be read is not shown either.
            let read = if success {
                body.read().ok()
            } else {
                body.read_error().ok()
            };
            if let Some(read) = read.filter(|read| is_in(read, &finder)) {
                let mut value = read.to_value();
                conceal_in(&mut value, &finder, token);
                *body = Body::Made(value);
            }
        }
        Content::Bytes { kind, bytes } => {
            if finder.find(kind.as_bytes()).is_some() {
                kind.clear();
            }
            if finder.find(bytes).is_some() {
                *bytes = Bytes::new();
            }
        }
    }
}

/// Whether the token is somewhere in it.
fn is_in(json: &Json<'_>, finder: &memchr::memmem::Finder<'_>) -> bool {
    let holds = |text: &str| finder.find(text.as_bytes()).is_some();
    match json {
        Json::String(text) => holds(text),
        Json::Array(items) => items.iter().any(|item| is_in(item, finder)),
        Json::Object(members) => members
            .iter()
            .any(|(name, member)| holds(name) || is_in(member, finder)),
        Json::Number(number) => holds(&number.to_string()),
        Json::Null | Json::Bool(_) => false,
    }
}

fn conceal_in(value: &mut Value, finder: &memchr::memmem::Finder<'_>, token: &str) {
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
                conceal_in(item, finder, token);
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
                conceal_in(member, finder, token);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What is left of an answer in which a provider repeats the token.
    fn shown(status: u16, token: &str, body: String) -> Said {
        let id = Some(format!("req-{token}"));
        let mut said = Said::of(status, "application/json", id, body.into()).unwrap();
        conceal(&mut said, token);
        said
    }

    fn body(said: &Said) -> &Body {
        let Content::Json(body) = &said.content else {
            panic!("it is JSON");
        };
        body
    }

    #[test]
    fn a_token_that_comes_back_is_not_shown() {
        let said = r#"{"a":"x s3cret-t\u006fken y","s3cret-token":[{"b":"s3cret-token"}]}"#;
        let said = shown(200, "s3cret-token", said.to_owned());
        assert_eq!(
            body(&said).read().unwrap().to_value(),
            json!({"a": "x [token] y", "[token]": [{"b": "[token]"}]})
        );
        assert_eq!(said.request_id, None);
        let said = shown(200, "1234567890", r#"{"a":1234567890,"b":-7}"#.to_owned());
        let left = body(&said).read().unwrap().to_value();
        assert_eq!(left, json!({"a": "[token]", "b": -7}));
    }

    #[test]
    fn a_token_in_an_error_that_cannot_be_read_whole_is_not_shown() {
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        let error = format!(r#"{{"error":{{"more":{deep},"message":"s3cret-t\u006fken"}}}}"#);
        let said = shown(500, "s3cret-token", error);
        let error = body(&said).read_error().unwrap();
        assert_eq!(error["error"]["message"], "[token]");
    }
}
