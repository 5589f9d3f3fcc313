//! A server behind an address: Streamable HTTP in both eras.
//!
//! Each request is posted and answered on its own reply, as JSON or as a stream of events. A modern request is
//! cancelled by letting its reply go. A legacy one may be cut off and gone on with, from the last event that was seen;
//! and beside the requests there may be a stream that belongs to none of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{
    ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE,
};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url, redirect};
use rung_ladder::head;
use rung_tool::Pending;
use serde_json::value::RawValue;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::board::{Board, Delegate, Outcome};
use super::error::Failure;
use super::events::Events;
use super::intake::{Arrived, Intake};
use super::wire::{Sent, Wire};
use crate::envelope::Message;
use crate::headers::encoded;
use crate::splice;
use crate::version::Version;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(15);
/// How long the stream that belongs to no request may take to open.
const STANDING: Duration = Duration::from_secs(5);
/// How long to wait before coming back for a stream, where the server does not say.
const RETRY: Duration = Duration::from_secs(1);
/// Nobody comes back sooner, or waits longer, whatever a server says.
const MIN_RETRY: Duration = Duration::from_millis(50);
const MAX_RETRY: Duration = Duration::from_mins(1);
/// Times to come back for one answer without having heard anything new.
const MAX_RETURNS: u32 = 5;
/// Events that may come before the one that says where to post.
const MAX_EARLY: u64 = 64;
/// Bytes of a reply that is an error which are read.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// How long a message without an answer may take to be heard.
const TELLING: Duration = Duration::from_secs(10);
/// How long a session may take to be ended.
const FAREWELL: Duration = Duration::from_secs(2);

/// Where a server is.
#[derive(Debug, Clone)]
pub struct Address {
    /// The address that is posted to.
    pub url: Url,
    /// What goes along with every request, such as a credential. Never shown.
    pub headers: HeaderMap,
}

impl Address {
    /// An address, with nothing that goes along.
    pub fn new(url: Url) -> Self {
        Self {
            url,
            headers: HeaderMap::new(),
        }
    }

    /// Adds what goes along with every request.
    pub fn add_header(&mut self, name: &str, value: &str) -> Result<(), String> {
        let name: HeaderName = name
            .parse()
            .map_err(|_| format!("{name:?} is no header's name"))?;
        let mut value: HeaderValue = value
            .parse()
            .map_err(|_| format!("the value of {name} is none for a header"))?;
        value.set_sensitive(true);
        self.headers.append(name, value);
        Ok(())
    }
}

/// One client for all: connections are shared, and redirects are followed only where they stay on the same server.
pub(super) fn client() -> Result<Client, Failure> {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    if let Some(client) = CLIENT.get() {
        return Ok(client.clone());
    }
    let _first_one_counts = rustls::crypto::ring::default_provider().install_default();
    let stay = redirect::Policy::custom(|attempt| {
        let same = attempt
            .previous()
            .last()
            .is_some_and(|last| last.origin() == attempt.url().origin());
        // Any other redirect would make another request of it.
        let as_it_is = matches!(
            attempt.status(),
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
        );
        if same && as_it_is && attempt.previous().len() <= 3 {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    let built = Client::builder()
        .redirect(stay)
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .user_agent(concat!("rung/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| Failure::Unavailable(error.to_string()))?;
    Ok(CLIENT.get_or_init(|| built).clone())
}

/// Requests that are posted, each with its own reply.
pub(super) struct Posts {
    me: Weak<Self>,
    client: Client,
    address: Address,
    board: Arc<Board>,
    agreed: Mutex<Agreed>,
    open: AtomicBool,
    standing: Mutex<Option<AbortHandle>>,
}

#[derive(Default)]
struct Agreed {
    version: Option<Version>,
    session: Option<HeaderValue>,
}

/// How the reading of a stream ended.
enum Ended {
    Answered(Outcome),
    /// Without an answer.
    CutOff(String),
}

impl Posts {
    pub(super) fn open(address: &Address, board: Arc<Board>) -> Result<Arc<Self>, Failure> {
        let client = client()?;
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            client,
            address: address.clone(),
            board,
            agreed: Mutex::default(),
            open: AtomicBool::new(true),
            standing: Mutex::default(),
        }))
    }

    fn request(&self, method: Method, accept: HeaderValue) -> RequestBuilder {
        let request = self.client.request(method, self.address.url.clone());
        let mut headers = self.address.headers.clone();
        headers.insert(ACCEPT, accept);
        let agreed = self.agreed.lock();
        if let Some(version) = agreed.version {
            headers.insert(VERSION, HeaderValue::from_static(version.name()));
        }
        if let Some(session) = &agreed.session {
            headers.insert(SESSION_ID, session.clone());
        }
        request.headers(headers)
    }

    fn is_modern(&self) -> bool {
        self.agreed.lock().version.is_none_or(Version::is_modern)
    }

    async fn post(&self, sent: &mut Sent<'_>) -> Result<Outcome, Failure> {
        let begins = sent.method == "initialize";
        if begins {
            // Nothing is agreed on yet.
            *self.agreed.lock() = Agreed::default();
        }
        let mut request = self.request(Method::POST, BOTH).header(CONTENT_TYPE, JSON);
        if !begins && self.is_modern() {
            for (name, value) in routing(sent.method, sent.params)
                .iter()
                .chain(&sent.headers)
            {
                request = request.header(name, value);
            }
        }
        let message = std::mem::take(&mut sent.message);
        let response = request
            .body(message)
            .send()
            .await
            .map_err(|error| failed(&error))?;
        let response = match self.welcome(response, sent.id).await? {
            Welcome::Response(response) => response,
            Welcome::Refused(error) => return Ok(Err(error)),
        };
        if begins {
            self.agreed.lock().session = response.headers().get(SESSION_ID).cloned();
        }
        match kind(&response).as_str() {
            "application/json" => {
                let message = body(response).await?;
                let wire = self.wire();
                match self
                    .board
                    .sort(message, sent.delegate.as_ref(), &wire)
                    .await
                {
                    Some((id, outcome)) if id == sent.id => Ok(outcome),
                    Some((id, _)) => {
                        let why = format!("it answered the request {id}, not {}", sent.id);
                        Err(Failure::Unusable(why))
                    }
                    None => Err(Failure::Unusable("its reply is no answer".to_owned())),
                }
            }
            "text/event-stream" => self.follow(response, sent.delegate.as_ref(), sent.id).await,
            other => {
                let status = response.status();
                let why = format!("HTTP {status} with {:?} is no answer", head(other, 100));
                Err(Failure::Unusable(why))
            }
        }
    }

    /// Reads a stream until the answer comes, and comes back for it where that is possible.
    async fn follow(
        &self,
        response: Response,
        delegate: Option<&Arc<dyn Delegate>>,
        id: u64,
    ) -> Result<Outcome, Failure> {
        let mut events = Events::default();
        let mut stream = Some(response);
        let mut returns = 0;
        loop {
            let seen = events.last_id.clone();
            let why = match stream.take() {
                Some(stream) => match self.read(stream, &mut events, delegate, Some(id)).await? {
                    Ended::Answered(outcome) => return Ok(outcome),
                    Ended::CutOff(why) => why,
                },
                None => "it cannot be reached".to_owned(),
            };
            returns = if events.last_id == seen {
                returns + 1
            } else {
                0
            };
            let last = events.last_id.clone().filter(|_| !self.is_modern());
            let Some(last) = last.filter(|_| returns <= MAX_RETURNS) else {
                return Err(Failure::Lost(why));
            };
            events.cut_off();
            let wait_ms = events.retry_ms;
            let wait = wait_ms.map_or(RETRY, Duration::from_millis);
            tokio::time::sleep(wait.clamp(MIN_RETRY, MAX_RETRY)).await;
            let resumed = self
                .request(Method::GET, STREAM)
                .header(LAST_EVENT_ID, last);
            match resumed.send().await {
                Ok(response) if is_stream(&response) => stream = Some(response),
                Ok(response) => {
                    let status = response.status();
                    return Err(Failure::Lost(format!(
                        "{why}; coming back for it: HTTP {status}"
                    )));
                }
                Err(error) => {
                    tracing::debug!(why = told(&error), "a stream could not be gone on with");
                }
            }
        }
    }

    /// Reads a stream to its end, or to the answer that is waited for.
    async fn read(
        &self,
        mut stream: Response,
        events: &mut Events,
        delegate: Option<&Arc<dyn Delegate>>,
        id: Option<u64>,
    ) -> Result<Ended, Failure> {
        let wire = self.wire();
        loop {
            let piece = match stream.chunk().await {
                Ok(Some(piece)) => piece,
                Ok(None) => {
                    return Ok(Ended::CutOff(
                        "its stream ended without an answer".to_owned(),
                    ));
                }
                Err(error) => return Ok(Ended::CutOff(told(&error))),
            };
            let new = events
                .push(&piece)
                .map_err(|error| Failure::Lost(error.to_string()))?;
            for event in new {
                let is_empty = matches!(&event.data, Arrived::Short(data) if data.is_empty());
                if event.kind != "message" || is_empty {
                    continue;
                }
                let Some((answered, outcome)) = self.board.sort(event.data, delegate, &wire).await
                else {
                    continue;
                };
                if Some(answered) == id {
                    return Ok(Ended::Answered(outcome));
                }
                self.board.deliver(answered, outcome);
            }
        }
    }

    /// Opens the stream that belongs to no request, where the server has one. It is there when this returns.
    async fn stand_by(&self) {
        if self.agreed.lock().session.is_none() {
            return;
        }
        let opening = self.request(Method::GET, STREAM).send();
        let Ok(Ok(response)) = tokio::time::timeout(STANDING, opening).await else {
            return;
        };
        if !is_stream(&response) {
            return;
        }
        let standing = tokio::spawn(stand(self.me.clone(), response));
        if let Some(old) = self.standing.lock().replace(standing.abort_handle()) {
            old.abort();
        }
    }

    /// Sorts a reply by its status. Only what certainly was not done is told as such.
    async fn welcome(&self, response: Response, id: u64) -> Result<Welcome, Failure> {
        let status = response.status();
        if status.is_success() {
            return Ok(Welcome::Response(response));
        }
        if status.is_redirection() {
            let why = format!(
                "it redirects to {}, which is not followed: use that address if it is right",
                destination(&response)
            );
            return Err(match status {
                StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
                    Failure::Unavailable(why)
                }
                _ => Failure::Lost(why),
            });
        }
        let in_session = self.agreed.lock().session.is_some();
        if status == StatusCode::NOT_FOUND && in_session {
            return Err(Failure::NoSession);
        }
        let is_page = kind(&response) == "text/html";
        let challenge = challenge(&response);
        let text = beginning(response).await;
        // A page is for browsers.
        let words: String = if is_page { "" } else { &text }
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let why = format!("HTTP {status}: {}", whole_words(words.trim(), 300));
        let why = why.trim_end_matches(": ").to_owned();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(Failure::Unauthorized { why, challenge });
        }
        // The modern era says with a status what the body says as well; so do some legacy servers. Whoever stands in
        // between and has errors of its own does not know the request.
        match refusal(&text) {
            Some((Some(of), error)) if of == id.to_string() => return Ok(Welcome::Refused(error)),
            Some((None, error)) if status.is_client_error() => {
                // Some say so that they have forgotten the session. The next request begins anew.
                if in_session && status == StatusCode::BAD_REQUEST {
                    self.open.store(false, Ordering::Release);
                }
                return Ok(Welcome::Refused(error));
            }
            _ => {}
        }
        Err(if status.is_server_error() {
            Failure::Lost(why)
        } else {
            Failure::Unavailable(why)
        })
    }

    fn wire(&self) -> Arc<dyn Wire> {
        self.me.upgrade().expect("we are here")
    }
}

/// Reads the stream that belongs to no request, and opens it again for as long as anybody wants it.
async fn stand(posts: Weak<Posts>, response: Response) {
    let mut events = Events::default();
    let mut stream = Some(response);
    let mut failures = 0_u32;
    while let Some(posts) = posts.upgrade() {
        if let Some(stream) = stream.take() {
            let (count, since) = (events.count, Instant::now());
            let _cut_off = posts.read(stream, &mut events, None, None).await;
            // One that brought something, or lasted, was a good one.
            let good = events.count > count || since.elapsed() > STANDING;
            failures = if good { 0 } else { failures + 1 };
            events.cut_off();
        }
        let wait = events.retry_ms.map_or(RETRY, Duration::from_millis);
        let wait = wait.clamp(MIN_RETRY * 5, MAX_RETRY);
        let wait = wait.saturating_mul(1 << failures.min(8)).min(MAX_RETRY);
        let mut again = posts.request(Method::GET, STREAM);
        if let Some(last) = &events.last_id {
            again = again.header(LAST_EVENT_ID, last);
        }
        drop(posts);
        tokio::time::sleep(wait).await;
        match again.send().await {
            Ok(response) if is_stream(&response) => stream = Some(response),
            _ => failures += 1,
        }
    }
}

enum Welcome {
    Response(Response),
    Refused(Box<RawValue>),
}

/// The error of a reply, and whose it is: nobody's, where the request could not be read.
fn refusal(text: &str) -> Option<(Option<String>, Box<RawValue>)> {
    let member = |name| splice::member(text, name).map(RawValue::get);
    if member("jsonrpc") != Some("\"2.0\"") {
        return None;
    }
    let error = splice::member(text, "error").filter(|error| error.get().starts_with('{'))?;
    let id = member("id").filter(|id| *id != "null");
    Some((id.map(str::to_owned), error.to_owned()))
}

/// Where a redirect leads, without what may be secret in it.
fn destination(response: &Response) -> String {
    let to = response.headers().get(LOCATION);
    let to = to.and_then(|to| to.to_str().ok()).unwrap_or_default();
    match response.url().join(to) {
        Ok(to) => format!(
            "{}{}",
            to.origin().ascii_serialization(),
            head(to.path(), 200)
        ),
        Err(_) => "nowhere".to_owned(),
    }
}

fn kind(response: &Response) -> String {
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// How a server asks for a credential.
fn challenge(response: &Response) -> Option<String> {
    const MAX_BYTES: usize = 500;
    let asked = response.headers().get_all(WWW_AUTHENTICATE).iter();
    let asked = asked.map(|one| String::from_utf8_lossy(one.as_bytes()).into_owned());
    let asked = asked.collect::<Vec<_>>().join(", ");
    (!asked.is_empty()).then(|| whole_words(&asked, MAX_BYTES).to_owned())
}

/// The beginning of what a server said, to the end of a word. Whoever knows what is secret masks it where it is whole: half of it
/// would be told.
fn whole_words(said: &str, max_bytes: usize) -> &str {
    let shown = head(said, max_bytes);
    if shown.len() == said.len() {
        return said;
    }
    let apart = |c: char| c.is_whitespace() || c == '"';
    &shown[..shown.rfind(apart).unwrap_or(0)]
}

fn is_stream(response: &Response) -> bool {
    response.status().is_success() && kind(response) == "text/event-stream"
}

async fn body(mut response: Response) -> Result<Arrived, Failure> {
    let mut intake = Intake::default();
    loop {
        match response.chunk().await {
            Ok(Some(piece)) => intake
                .push(&piece)
                .map_err(|error| Failure::Lost(error.to_string()))?,
            Ok(None) => return Ok(intake.finish()),
            Err(error) => return Err(Failure::Lost(told(&error))),
        }
    }
}

async fn beginning(mut response: Response) -> String {
    let mut text = Vec::new();
    while text.len() < MAX_ERROR_BYTES {
        match response.chunk().await {
            Ok(Some(piece)) => text.extend_from_slice(&piece),
            _ => break,
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// A request that did not get through. Only what certainly was not sent is called so.
fn failed(error: &reqwest::Error) -> Failure {
    if error.is_connect() || error.is_builder() || error.is_redirect() {
        return Failure::Unavailable(told(error));
    }
    Failure::Lost(told(error))
}

/// What happened, down to the cause. The address may hold a secret and is left out.
fn told(error: &reqwest::Error) -> String {
    let mut words = Vec::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        words.push(error.to_string());
        cause = error.source();
    }
    if words.is_empty() {
        words.push("the connection broke".to_owned());
    }
    words.dedup();
    head(&words.join(": "), 500).to_owned()
}

impl Wire for Posts {
    fn exchange<'a>(&'a self, mut sent: Sent<'a>) -> Pending<'a, Result<Outcome, Failure>> {
        Box::pin(async move {
            // What is said of it, and now and then the answer, may come on the stream that belongs to no request.
            let answered = self.board.wait(&sent);
            let id = sent.id;
            let outcome = tokio::select! {
                posted = self.post(&mut sent) => posted,
                Ok(outcome) = answered => Ok(outcome),
            };
            self.board.forget(id);
            outcome
        })
    }

    fn tell(&self, message: Vec<u8>) -> Pending<'_, Result<(), Failure>> {
        Box::pin(async move {
            let mut request = self.request(Method::POST, BOTH).header(CONTENT_TYPE, JSON);
            if let Ok(Message::Notification { method, .. }) = Message::read(&message)
                && self.is_modern()
            {
                request = request.header(METHOD, &*method);
            }
            let sending = request.timeout(TELLING).body(message).send();
            let response = sending.await.map_err(|error| failed(&error))?;
            let status = response.status();
            if status.is_success() {
                return Ok(());
            }
            Err(Failure::Unusable(format!(
                "HTTP {status} to a message that has no answer"
            )))
        })
    }

    fn agreed(&self, version: Version) {
        self.agreed.lock().version = Some(version);
    }

    fn ready(&self) -> Pending<'_, ()> {
        Box::pin(self.stand_by())
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    fn hears_cancelling(&self) -> bool {
        !self.is_modern()
    }

    fn let_go(&self) {
        if let Some(standing) = self.standing.lock().take() {
            standing.abort();
        }
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.open.store(false, Ordering::Release);
            self.let_go();
            if self.agreed.lock().session.is_some() {
                let farewell = self.request(Method::DELETE, BOTH).send();
                let _as_it_likes = tokio::time::timeout(FAREWELL, farewell).await;
            }
        })
    }
}

/// The two addresses of 2024-11-05: a stream on which everything comes, and another address to post to.
pub(super) struct OldStream {
    client: Client,
    headers: HeaderMap,
    endpoint: Url,
    board: Arc<Board>,
    reading: Mutex<Option<AbortHandle>>,
    open: Arc<AtomicBool>,
}

impl OldStream {
    pub(super) async fn open(address: &Address, board: Arc<Board>) -> Result<Arc<Self>, Failure> {
        let client = client()?;
        let request = client
            .get(address.url.clone())
            .headers(address.headers.clone())
            .header(ACCEPT, STREAM);
        let mut stream = request.send().await.map_err(|error| failed(&error))?;
        if !is_stream(&stream) {
            let status = stream.status();
            return Err(Failure::Unavailable(format!(
                "no MCP server answers here (HTTP {status})"
            )));
        }
        let mut events = Events::default();
        let mut early = Vec::new();
        let endpoint = loop {
            let piece = stream.chunk().await.map_err(|error| failed(&error))?;
            let Some(piece) = piece.filter(|_| events.count < MAX_EARLY) else {
                let why = "its stream did not say where to post".to_owned();
                return Err(Failure::Unavailable(why));
            };
            let new = events.push(&piece);
            let new = new.map_err(|error| Failure::Unavailable(error.to_string()))?;
            let mut endpoint = None;
            for event in new {
                match (event.kind.as_str(), event.data) {
                    ("endpoint", Arrived::Short(data)) => endpoint = endpoint.or(Some(data)),
                    ("message", data @ Arrived::Short(_)) => early.push(data),
                    _ => {}
                }
            }
            if let Some(endpoint) = endpoint {
                break String::from_utf8_lossy(&endpoint).into_owned();
            }
        };
        let endpoint = address.url.join(endpoint.trim()).map_err(|_| {
            Failure::Unavailable("it named an address that is none to post to".to_owned())
        })?;
        // Our headers are for this server, not for one that it names.
        if endpoint.origin() != address.url.origin() {
            return Err(Failure::Unavailable(
                "it named another server to post to".to_owned(),
            ));
        }
        let open = Arc::new(AtomicBool::new(true));
        let wire = Arc::new(Self {
            client,
            headers: address.headers.clone(),
            endpoint,
            board: board.clone(),
            reading: Mutex::default(),
            open: open.clone(),
        });
        let reading = read_old(Arc::downgrade(&wire), stream, events, early, board, open);
        *wire.reading.lock() = Some(tokio::spawn(reading).abort_handle());
        Ok(wire)
    }

    async fn send(&self, message: Vec<u8>) -> Result<(), Failure> {
        let request = self
            .client
            .post(self.endpoint.clone())
            .headers(self.headers.clone());
        let request = request.header(CONTENT_TYPE, JSON).body(message);
        let response = request.send().await.map_err(|error| failed(&error))?;
        let status = response.status();
        match status {
            status if status.is_success() => Ok(()),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Failure::Unauthorized {
                why: format!("HTTP {status}"),
                challenge: challenge(&response),
            }),
            status if status.is_server_error() => Err(Failure::Lost(format!("HTTP {status}"))),
            status => Err(Failure::Unavailable(format!("HTTP {status}"))),
        }
    }
}

async fn read_old(
    wire: Weak<OldStream>,
    mut stream: Response,
    mut events: Events,
    early: Vec<Arrived>,
    board: Arc<Board>,
    open: Arc<AtomicBool>,
) {
    let mut arrived = early;
    loop {
        for data in arrived.drain(..) {
            let Some(wire) = wire.upgrade() else {
                return;
            };
            let wire: Arc<dyn Wire> = wire;
            board.take(data, &wire).await;
        }
        let Ok(Some(piece)) = stream.chunk().await else {
            break;
        };
        let Ok(new) = events.push(&piece) else {
            break;
        };
        arrived.extend(
            new.into_iter()
                .filter(|event| event.kind == "message")
                .map(|event| event.data),
        );
    }
    open.store(false, Ordering::Release);
    board.close();
}

impl Wire for OldStream {
    fn exchange<'a>(&'a self, sent: Sent<'a>) -> Pending<'a, Result<Outcome, Failure>> {
        Box::pin(async move {
            let mut answered = self.board.wait(&sent);
            // The answer may be there before it is said that the message was taken.
            let sending = self.send(sent.message);
            let sent_first = tokio::select! {
                biased;
                outcome = &mut answered => Err(outcome),
                sent = sending => Ok(sent),
            };
            let outcome = match sent_first {
                Err(outcome) => outcome,
                Ok(Ok(())) => answered.await,
                Ok(Err(failure)) => {
                    self.board.forget(sent.id);
                    return Err(failure);
                }
            };
            outcome.map_err(|_| Failure::Lost("its stream ended without an answer".to_owned()))
        })
    }

    fn tell(&self, message: Vec<u8>) -> Pending<'_, Result<(), Failure>> {
        Box::pin(async move {
            let sending = tokio::time::timeout(TELLING, self.send(message));
            let late = |_| Failure::Lost("it does not take messages".to_owned());
            sending.await.map_err(late)?
        })
    }

    fn agreed(&self, _: Version) {}

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    fn let_go(&self) {
        self.open.store(false, Ordering::Release);
        if let Some(reading) = self.reading.lock().take() {
            reading.abort();
        }
        self.board.close();
    }

    fn close(&self) -> Pending<'_, ()> {
        self.let_go();
        Box::pin(std::future::ready(()))
    }
}

/// The headers by which a modern request is routed.
fn routing(method: &str, params: Option<&str>) -> Vec<(String, String)> {
    let mut headers = vec![("mcp-method".to_owned(), method.to_owned())];
    let named = match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    };
    let named = named.zip(params).and_then(|(member, params)| {
        let raw = splice::member(params, member)?;
        serde_json::from_str::<String>(raw.get()).ok()
    });
    headers.extend(named.map(|named| ("mcp-name".to_owned(), encoded(&named).into_owned())));
    headers
}
