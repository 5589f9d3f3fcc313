//! An endpoint that embeds texts, asked as such endpoints are: `POST {url}/embeddings`.
//!
//! Asking twice is asking once, so what failed on the way is asked again. The key goes there and nowhere else.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use reqwest::{Client, Response, StatusCode, Url, header, redirect};
use rung_auth::Secret;
use serde::Deserialize;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use crate::model::unit;
use crate::{Error, Result};

/// Texts, and bytes of them, that are asked for at once.
const TEXTS: usize = 64;
const TEXT_BYTES: usize = 256 << 10;
/// How often one thing is asked for.
const TIMES: u32 = 4;
/// How long is waited before it is asked again, the first time; then twice as long each time.
const PAUSE: Duration = Duration::from_millis(500);
/// Bytes of an answer beside its numbers, of each number, and of all at most.
const FRAME_BYTES: usize = 64 << 10;
const NUMBER_BYTES: usize = 32;
const MAX_BYTES: usize = 64 << 20;
/// Numbers of a vector, at most.
const MAX_DIMENSIONS: usize = 65_536;
/// Characters of what an endpoint says when it refuses.
const WORDS: usize = 200;
/// A part of the key that is so long is as secret as the key.
const SECRET_BYTES: usize = 6;

/// Where the key of an endpoint is. It is read when it is needed, and never kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// It has none.
    None,
    /// In an environment variable.
    Variable(String),
    /// In a file, in its first line.
    File(PathBuf),
}

impl Key {
    fn read(&self) -> Result<Option<Secret<String>>> {
        let key = match self {
            Self::None => return Ok(None),
            Self::Variable(name) => std::env::var(name)
                .map_err(|_| Error::Key(format!("the variable {name} is not set")))?,
            Self::File(path) => std::fs::read_to_string(path)
                .map_err(|error| Error::Key(format!("{}: {error}", path.display())))?,
        };
        let key = Secret::new(key);
        let line = key.expose().lines().next().unwrap_or_default().trim();
        if line.is_empty() || !line.bytes().all(|byte| byte.is_ascii_graphic()) {
            let place = match self {
                Self::Variable(name) => format!("the variable {name}"),
                Self::File(path) => path.display().to_string(),
                Self::None => String::new(),
            };
            return Err(Error::Key(format!("{place} does not hold one")));
        }
        Ok(Some(Secret::new(line.to_owned())))
    }
}

/// What is said of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// The address that `/embeddings` is below.
    pub url: String,
    /// The name of the model that is asked for.
    pub model: String,
    /// Where the key is.
    pub key: Key,
    /// Numbers of a vector, where it is known.
    pub dimensions: Option<usize>,
    /// How long one request may take, with all its repetitions.
    pub patience: Duration,
}

/// An endpoint.
#[derive(Debug)]
pub(crate) struct Endpoint {
    url: Url,
    model: String,
    key: Key,
    patience: Duration,
    client: OnceLock<Client>,
    dimensions: OnceLock<usize>,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    index: usize,
    embedding: Vec<f32>,
}

/// What is made of an answer.
enum Told {
    Vectors(Vec<Vec<f32>>),
    /// It is to be asked again, perhaps not before so many seconds.
    Later(StatusCode, Option<u64>),
    /// It was not reached, or broke off.
    Broken(String),
}

impl Endpoint {
    /// What is said of an endpoint, as something that can be asked. One that is sent a key is not asked in the open, except on this
    /// machine.
    pub(crate) fn new(said: &Said) -> Result<Self> {
        let Said {
            url,
            model,
            key,
            dimensions,
            patience,
        } = said.clone();
        let wrong = |why: String| Error::Setting(why);
        let below = format!("{}/embeddings", url.trim_end_matches('/'));
        let url = Url::parse(&below).map_err(|error| wrong(format!("its address: {error}")))?;
        let here = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
        if key != Key::None && url.scheme() != "https" && !here {
            return Err(wrong("it is sent a key, so it must be https".to_owned()));
        }
        if model.is_empty() {
            return Err(wrong("it must be asked for a model by its name".to_owned()));
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

    /// The model, by its name: where it is asked does not matter.
    pub(crate) fn id(&self) -> String {
        format!("endpoint:{}", self.model)
    }

    /// Numbers of a vector, which is asked for where they are not known.
    pub(crate) fn dimensions(&self) -> Result<usize> {
        if let Some(dimensions) = self.dimensions.get() {
            return Ok(*dimensions);
        }
        let vectors = self.embed(&["dimensions"], None)?;
        Ok(vectors.first().map_or(0, Vec::len))
    }

    /// The vectors of texts, each of length one; a text of nothing but spaces has zeros.
    pub(crate) fn embed<T: AsRef<str> + Sync>(
        &self,
        texts: &[T],
        ends: Option<Instant>,
    ) -> Result<Vec<Vec<f32>>> {
        let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        // What says nothing is refused by many.
        let asked: Vec<usize> = (0..texts.len())
            .filter(|at| !texts[*at].trim().is_empty())
            .collect();
        let mut vectors = vec![Vec::new(); texts.len()];
        let mut rest = &asked[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fit = rest.iter().take(TEXTS).take_while(|at| {
                bytes += texts[**at].len();
                bytes <= TEXT_BYTES
            });
            let (own, others) = rest.split_at(fit.count().max(1));
            let batch: Vec<&str> = own.iter().map(|at| texts[*at]).collect();
            for (at, vector) in own.iter().zip(self.ask(&batch, ends)?) {
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

    /// Asks for some texts at once, from wherever it is called: a thread of its own may wait.
    fn ask(&self, texts: &[&str], ends: Option<Instant>) -> Result<Vec<Vec<f32>>> {
        let own = Instant::now() + self.patience;
        let (end, is_own) = match ends {
            Some(end) if end < own => (end, false),
            _ => (own, true),
        };
        let runtime = runtime()?;
        let asking = async {
            let end = tokio::time::Instant::from_std(end);
            let asked = tokio::time::timeout_at(end, self.again_and_again(texts, end));
            asked.await.unwrap_or_else(|_| {
                if !is_own {
                    return Err(Error::Late);
                }
                let why = format!("no answer within {} seconds", self.patience.as_secs());
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

    async fn again_and_again(
        &self,
        texts: &[&str],
        end: tokio::time::Instant,
    ) -> Result<Vec<Vec<f32>>> {
        let mut pause = PAUSE;
        for time in 1.. {
            let (failed, wanted) = match self.once(texts).await? {
                Told::Vectors(vectors) => return Ok(vectors),
                Told::Later(status, seconds) => (
                    Error::Busy {
                        status: status.as_u16(),
                        seconds,
                    },
                    seconds.map(Duration::from_secs),
                ),
                Told::Broken(why) => (Error::Unreachable(why), None),
            };
            let wait = wanted.unwrap_or(pause).max(pause);
            let is_enough = time >= TIMES || tokio::time::Instant::now() + wait >= end;
            if is_enough {
                return Err(failed);
            }
            tokio::time::sleep(wait).await;
            pause *= 2;
        }
        unreachable!("it ends with the last time")
    }

    /// Asks once.
    async fn once(&self, texts: &[&str]) -> Result<Told> {
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
            Err(error) => return Ok(Told::Broken(told(error))),
        };
        let status = response.status();
        let is_later = status == StatusCode::TOO_MANY_REQUESTS
            || status == StatusCode::REQUEST_TIMEOUT
            || status.is_server_error();
        if is_later {
            return Ok(Told::Later(status, retry_after(&response)));
        }
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            // What is said of a key may hold a part of it.
            return Err(Error::Unauthorized(status.as_u16()));
        }
        let most = match self.dimensions.get() {
            Some(dimensions) => FRAME_BYTES + texts.len() * dimensions * NUMBER_BYTES,
            None => MAX_BYTES,
        };
        let body = match body(&mut response, most.min(MAX_BYTES)).await {
            Ok(Some(body)) => body,
            Ok(None) => return Err(Error::Odd(format!("more than {most} bytes"))),
            Err(why) => return Ok(Told::Broken(why)),
        };
        if !status.is_success() {
            return Err(Error::Refused {
                status: status.as_u16(),
                words: words(&body, key.as_ref()),
            });
        }
        self.vectors(texts.len(), &body).map(Told::Vectors)
    }

    /// The vectors of an answer, in the order of what was asked.
    fn vectors(&self, wanted: usize, body: &[u8]) -> Result<Vec<Vec<f32>>> {
        let answer: Answer = serde_json::from_slice(body)
            // Where it went wrong, and nothing of what stands there.
            .map_err(|error| {
                let (line, column) = (error.line(), error.column());
                Error::Odd(format!("not as expected at line {line}, column {column}"))
            })?;
        let mut vectors = vec![None; wanted];
        for Item { index, embedding } in answer.data {
            match vectors.get_mut(index) {
                Some(place @ None) => *place = Some(embedding),
                _ => return Err(Error::Odd(format!("a vector for text {index} of {wanted}"))),
            }
        }
        let vectors: Option<Vec<Vec<f32>>> = vectors.into_iter().collect();
        let mut vectors =
            vectors.ok_or_else(|| Error::Odd(format!("fewer than {wanted} vectors")))?;
        let first = vectors.first().map_or(0, Vec::len);
        let dimensions = *self.dimensions.get().unwrap_or(&first);
        for vector in &mut vectors {
            if vector.len() != dimensions || !(1..=MAX_DIMENSIONS).contains(&dimensions) {
                let why = format!("a vector of {} numbers, not {dimensions}", vector.len());
                return Err(Error::Odd(why));
            }
            if !vector.iter().all(|number| number.is_finite()) {
                return Err(Error::Odd("a number that is none".to_owned()));
            }
            unit(vector);
            if vector.iter().all(|number| *number == 0.0) {
                return Err(Error::Odd("a vector of zeros".to_owned()));
            }
        }
        let _first_one_counts = self.dimensions.set(dimensions);
        Ok(vectors)
    }

    /// Made when it is first needed: what reads certificates takes its time.
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
            .map_err(|error| Error::Setting(told(error)))?;
        Ok(self.client.get_or_init(|| client))
    }
}

/// What goes wrong on the way, without the address, which may hold something secret. The cause is what tells.
fn told(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// In how many seconds it wants to be asked again: a number of them, or a moment.
fn retry_after(response: &Response) -> Option<u64> {
    let said = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    if let Ok(seconds) = said.trim().parse() {
        return Some(seconds);
    }
    let then = jiff::fmt::rfc2822::parse(said.trim()).ok()?;
    let seconds = then.timestamp().as_second() - jiff::Timestamp::now().as_second();
    Some(u64::try_from(seconds).unwrap_or(0))
}

/// The body of an answer; nothing where it is too long, and what happened where it broke off.
async fn body(
    response: &mut Response,
    most: usize,
) -> std::result::Result<Option<Vec<u8>>, String> {
    let mut all = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(told)? {
        if all.len() + piece.len() > most {
            return Ok(None);
        }
        all.extend_from_slice(&piece);
    }
    Ok(Some(all))
}

/// What an endpoint says of its refusal, where it says so as others do; and nothing where a part of the key is in it.
fn words(body: &[u8], key: Option<&Secret<String>>) -> String {
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
        let parts = key.windows(SECRET_BYTES.min(key.len()).max(1));
        parts
            .into_iter()
            .any(|part| said.as_bytes().windows(part.len()).any(|said| said == part))
    });
    if is_secret {
        return String::new();
    }
    let plain = |char: char| if char.is_control() { ' ' } else { char };
    let shown: String = said.chars().take(WORDS).map(plain).collect();
    format!(", {shown:?}")
}

/// What waits for endpoints: made when the first is asked, and there until the process ends.
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
        .map_err(|error| Error::Setting(error.to_string()))?;
    Ok(RUNTIME.get_or_init(|| made))
}
