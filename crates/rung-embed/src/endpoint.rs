//! An embedding endpoint: `POST {url}/embeddings`.
//!
//! Requests are idempotent, so transient failures are retried. The key is sent to the endpoint and nowhere else.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use reqwest::{Client, Response, StatusCode, Url, header, redirect};
use rung_auth::Secret;
use serde::Deserialize;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use crate::model::normalize;
use crate::{Error, Result};

/// Texts, and bytes of texts, per request.
const MAX_BATCH_TEXTS: usize = 64;
const MAX_BATCH_BYTES: usize = 256 << 10;
/// Attempts per request.
const MAX_ATTEMPTS: u32 = 4;
/// The delay before the first retry; it doubles with each retry.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);
/// The size limit of a response: bytes apart from the numbers, per number, and in total.
const FRAME_BYTES: usize = 64 << 10;
const NUMBER_BYTES: usize = 32;
const MAX_BYTES: usize = 64 << 20;
/// The maximum length of a vector.
const MAX_DIMENSIONS: usize = 65_536;
/// Characters of an endpoint's error message that are kept.
const MAX_MESSAGE_CHARS: usize = 200;
/// A substring of the key with this length is treated as secret.
const MIN_SECRET_BYTES: usize = 6;

/// The location of an endpoint's key. The key is read for each request and not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointKey {
    /// The endpoint needs no key.
    None,
    /// The name of an environment variable.
    Variable(String),
    /// A file whose first line is the key.
    File(PathBuf),
}

impl EndpointKey {
    fn read(&self) -> Result<Option<Secret<String>>> {
        let key = match self {
            Self::None => return Ok(None),
            Self::Variable(name) => std::env::var(name)
                .map_err(|_| Error::Key(format!("the environment variable {name} is not set")))?,
            Self::File(path) => std::fs::read_to_string(path)
                .map_err(|error| Error::Key(format!("{}: {error}", path.display())))?,
        };
        let key = Secret::new(key);
        let line = key.expose().lines().next().unwrap_or_default().trim();
        if line.is_empty() || !line.bytes().all(|byte| byte.is_ascii_graphic()) {
            let place = match self {
                Self::Variable(name) => format!("the environment variable {name}"),
                Self::File(path) => path.display().to_string(),
                Self::None => String::new(),
            };
            return Err(Error::Key(format!("{place} does not contain a key")));
        }
        Ok(Some(Secret::new(line.to_owned())))
    }
}

/// The configuration of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointConfig {
    /// The base URL, without `/embeddings`.
    pub url: String,
    /// The name of the model.
    pub model: String,
    pub key: EndpointKey,
    /// The length of the vectors, if known.
    pub dimensions: Option<usize>,
    /// Time limit of a request, including retries.
    pub timeout: Duration,
}

#[derive(Debug)]
pub(crate) struct Endpoint {
    url: Url,
    model: String,
    key: EndpointKey,
    patience: Duration,
    client: OnceLock<Client>,
    dimensions: OnceLock<usize>,
}

#[derive(Deserialize)]
struct EmbeddingsResponse {
    data: Vec<EmbeddingItem>,
}

#[derive(Deserialize)]
struct EmbeddingItem {
    index: usize,
    embedding: Vec<f32>,
}

/// The outcome of one attempt.
enum Attempt {
    Vectors(Vec<Vec<f32>>),
    /// The request may be retried, after this many seconds if given.
    Later(StatusCode, Option<u64>),
    /// The endpoint was not reached, or the response broke off.
    Broken(String),
}

impl Endpoint {
    /// Creates an endpoint. With a key the URL must be https, except on this machine.
    pub(crate) fn new(said: &EndpointConfig) -> Result<Self> {
        let EndpointConfig {
            url,
            model,
            key,
            dimensions,
            timeout: patience,
        } = said.clone();
        let wrong = |why: String| Error::InvalidConfig(why);
        let below = format!("{}/embeddings", url.trim_end_matches('/'));
        let url =
            Url::parse(&below).map_err(|error| wrong(format!("url is not valid: {error}")))?;
        let here = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
        if key != EndpointKey::None && url.scheme() != "https" && !here {
            return Err(wrong(
                "url must use https, because a key is sent".to_owned(),
            ));
        }
        if model.is_empty() {
            return Err(wrong("model is empty".to_owned()));
        }
        let known = OnceLock::new();
        if let Some(dimensions) = dimensions {
            let _new = known.set(dimensions);
        }
        Ok(Self {
            url,
            model,
            key,
            patience,
            client: OnceLock::new(),
            dimensions: known,
        })
    }

    /// Returns the id, which depends on the model's name but not on the URL.
    pub(crate) fn id(&self) -> String {
        format!("endpoint:{}", self.model)
    }

    /// Returns the length of the vectors; sends a request if it is unknown.
    pub(crate) fn dimensions(&self) -> Result<usize> {
        if let Some(dimensions) = self.dimensions.get() {
            return Ok(*dimensions);
        }
        let vectors = self.embed(&["dimensions"], None)?;
        Ok(vectors.first().map_or(0, Vec::len))
    }

    /// Embeds texts as vectors of length one; a blank text gets zeros.
    pub(crate) fn embed<T: AsRef<str> + Sync>(
        &self,
        texts: &[T],
        ends: Option<Instant>,
    ) -> Result<Vec<Vec<f32>>> {
        let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        // Many endpoints reject blank texts.
        let asked: Vec<usize> = (0..texts.len())
            .filter(|at| !texts[*at].trim().is_empty())
            .collect();
        let mut vectors = vec![Vec::new(); texts.len()];
        let mut rest = &asked[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fit = rest.iter().take(MAX_BATCH_TEXTS).take_while(|at| {
                bytes += texts[**at].len();
                bytes <= MAX_BATCH_BYTES
            });
            let (own, others) = rest.split_at(fit.count().max(1));
            let batch: Vec<&str> = own.iter().map(|at| texts[*at]).collect();
            for (at, vector) in own.iter().zip(self.request_batch(&batch, ends)?) {
                vectors[*at] = vector;
            }
            rest = others;
        }
        if asked.len() < texts.len() {
            let width = self.dimensions()?;
            for vector in vectors.iter_mut().filter(|vector| vector.is_empty()) {
                *vector = vec![0.0; width];
            }
        }
        Ok(vectors)
    }

    /// Sends one batch. May be called from an async context: a separate thread waits for the response.
    fn request_batch(&self, texts: &[&str], ends: Option<Instant>) -> Result<Vec<Vec<f32>>> {
        let own = Instant::now() + self.patience;
        let (end, is_own) = match ends {
            Some(end) if end < own => (end, false),
            _ => (own, true),
        };
        let runtime = runtime()?;
        let asking = async {
            let end = tokio::time::Instant::from_std(end);
            let asked = tokio::time::timeout_at(end, self.request_with_retries(texts, end));
            asked.await.unwrap_or_else(|_| {
                if !is_own {
                    return Err(Error::TimedOut);
                }
                let why = format!("no response within {} seconds", self.patience.as_secs());
                Err(Error::Unreachable(why))
            })
        };
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| runtime.block_on(asking));
            match waiting.join() {
                Ok(vectors) => vectors,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    async fn request_with_retries(
        &self,
        texts: &[&str],
        end: tokio::time::Instant,
    ) -> Result<Vec<Vec<f32>>> {
        let mut pause = FIRST_RETRY_DELAY;
        for time in 1.. {
            let (failed, wanted) = match self.request_once(texts).await? {
                Attempt::Vectors(vectors) => return Ok(vectors),
                Attempt::Later(status, seconds) => (
                    Error::Busy {
                        status: status.as_u16(),
                        seconds,
                    },
                    seconds.map(Duration::from_secs),
                ),
                Attempt::Broken(why) => (Error::Unreachable(why), None),
            };
            let wait = wanted.unwrap_or(pause).max(pause);
            let is_enough = time >= MAX_ATTEMPTS || tokio::time::Instant::now() + wait >= end;
            if is_enough {
                return Err(failed);
            }
            tokio::time::sleep(wait).await;
            pause *= 2;
        }
        unreachable!("it ends with the last time")
    }

    /// Makes one attempt.
    async fn request_once(&self, texts: &[&str]) -> Result<Attempt> {
        let key = self.key.read()?;
        let mut request = self
            .client()?
            .post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(json!({"model": self.model, "input": texts}).to_string());
        if let Some(key) = &key {
            request = request.bearer_auth(key.expose());
        }
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Ok(Attempt::Broken(describe_error(error))),
        };
        let status = response.status();
        let is_later = status == StatusCode::TOO_MANY_REQUESTS
            || status == StatusCode::REQUEST_TIMEOUT
            || status.is_server_error();
        if is_later {
            return Ok(Attempt::Later(status, retry_after(&response)));
        }
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            // The endpoint's message may contain a part of the key.
            return Err(Error::Unauthorized(status.as_u16()));
        }
        let most = match self.dimensions.get() {
            Some(dimensions) => FRAME_BYTES + texts.len() * dimensions * NUMBER_BYTES,
            None => MAX_BYTES,
        };
        let body = match read_body(&mut response, most.min(MAX_BYTES)).await {
            Ok(Some(body)) => body,
            Ok(None) => {
                return Err(Error::InvalidResponse(format!(
                    "the response is longer than {most} bytes"
                )));
            }
            Err(why) => return Ok(Attempt::Broken(why)),
        };
        if !status.is_success() {
            return Err(Error::Refused {
                status: status.as_u16(),
                words: error_message(&body, key.as_ref()),
            });
        }
        self.parse_vectors(texts.len(), &body).map(Attempt::Vectors)
    }

    /// Parses a response. Returns the vectors in the order of the texts.
    fn parse_vectors(&self, wanted: usize, body: &[u8]) -> Result<Vec<Vec<f32>>> {
        let answer: EmbeddingsResponse = serde_json::from_slice(body)
            // Only the position of the error, never the content.
            .map_err(|error| {
                let (line, column) = (error.line(), error.column());
                Error::InvalidResponse(format!("unexpected JSON at line {line}, column {column}"))
            })?;
        let mut vectors = vec![None; wanted];
        for EmbeddingItem { index, embedding } in answer.data {
            match vectors.get_mut(index) {
                Some(place @ None) => *place = Some(embedding),
                _ => {
                    return Err(Error::InvalidResponse(format!(
                        "a second vector, or one out of range, for text {index} of {wanted}"
                    )));
                }
            }
        }
        let vectors: Option<Vec<Vec<f32>>> = vectors.into_iter().collect();
        let mut vectors = vectors
            .ok_or_else(|| Error::InvalidResponse(format!("fewer than {wanted} vectors")))?;
        let first = vectors.first().map_or(0, Vec::len);
        let dimensions = *self.dimensions.get().unwrap_or(&first);
        for vector in &mut vectors {
            if vector.len() != dimensions || !(1..=MAX_DIMENSIONS).contains(&dimensions) {
                let why = format!("a vector of {} numbers, not {dimensions}", vector.len());
                return Err(Error::InvalidResponse(why));
            }
            if !vector.iter().all(|number| number.is_finite()) {
                return Err(Error::InvalidResponse("a number is not finite".to_owned()));
            }
            normalize(vector);
            if vector.iter().all(|number| *number == 0.0) {
                return Err(Error::InvalidResponse("a vector has only zeros".to_owned()));
            }
        }
        let _first_one_counts = self.dimensions.set(dimensions);
        Ok(vectors)
    }

    /// Returns the HTTP client, which is created on first use: loading certificates is slow.
    fn client(&self) -> Result<&Client> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let _first_one_counts = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .tcp_nodelay(true)
            .user_agent(concat!("rung/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Error::InvalidConfig(describe_error(error)))?;
        Ok(self.client.get_or_init(|| client))
    }
}

/// Describes a transport error by its root cause, without the URL, which may contain a secret.
fn describe_error(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Parses `Retry-After`, which is a number of seconds or a date.
fn retry_after(response: &Response) -> Option<u64> {
    let said = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    if let Ok(seconds) = said.trim().parse() {
        return Some(seconds);
    }
    let then = jiff::fmt::rfc2822::parse(said.trim()).ok()?;
    let seconds = then.timestamp().as_second() - jiff::Timestamp::now().as_second();
    Some(u64::try_from(seconds).unwrap_or(0))
}

/// Reads a response body. Returns `None` if it is too long, and an error if it breaks off.
async fn read_body(
    response: &mut Response,
    most: usize,
) -> std::result::Result<Option<Vec<u8>>, String> {
    let mut all = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(describe_error)? {
        if all.len() + piece.len() > most {
            return Ok(None);
        }
        all.extend_from_slice(&piece);
    }
    Ok(Some(all))
}

/// Returns the message of a JSON error body, or an empty string if there is none or it contains a part of the key.
fn error_message(body: &[u8], key: Option<&Secret<String>>) -> String {
    let said: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let said = match &said["error"] {
        serde_json::Value::String(said) => Some(said.as_str()),
        error => error["message"].as_str(),
    };
    let Some(said) = said else {
        return String::new();
    };
    let is_secret = key.is_some_and(|key| {
        let key = key.expose().as_bytes();
        let parts = key.windows(MIN_SECRET_BYTES.min(key.len()).max(1));
        parts
            .into_iter()
            .any(|part| said.as_bytes().windows(part.len()).any(|said| said == part))
    });
    if is_secret {
        return String::new();
    }
    let plain = |char: char| if char.is_control() { ' ' } else { char };
    let shown: String = said.chars().take(MAX_MESSAGE_CHARS).map(plain).collect();
    format!(", {shown:?}")
}

/// Returns the shared runtime, which is created on first use and lives until the process ends.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let made = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("embeddings")
        .enable_all()
        .build()
        .map_err(|error| Error::InvalidConfig(error.to_string()))?;
    Ok(RUNTIME.get_or_init(|| made))
}
