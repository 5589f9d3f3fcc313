//! A server behind an address: Streamable HTTP in both eras.
//!
//! Each request is posted and answered on its own reply, as JSON or as a stream of events. A modern request is
//! cancelled by letting its reply go. A legacy one may be cut off and gone on with, from the last event that was seen;
//! and beside the requests there may be a stream that belongs to none of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url, redirect};
use rung_ladder::head;
use rung_tool::Pending;
use serde_json::value::RawValue;
use tokio::task::AbortHandle;

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
/// Nobody waits longer, whatever a server says.
const MAX_RETRY: Duration = Duration::from_mins(1);
/// Times to come back for one answer without having heard anything new.
const MAX_RETURNS: u32 = 5;
/// Bytes of a reply that is an error which are read.
const MAX_ERROR_BYTES: usize = 64 << 10;
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
        if same && attempt.previous().len() <= 3 {
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

    async fn post(&self, sent: Sent<'_>) -> Result<Outcome, Failure> {
        let mut request = self.request(Method::POST, BOTH).header(CONTENT_TYPE, JSON);
        if self.is_modern() {
            for (name, value) in routing(sent.method, sent.params)
                .iter()
                .chain(&sent.headers)
            {
                request = request.header(name, value);
            }
        }
        if sent.method == "initialize" {
            // Nothing is agreed on yet.
            *self.agreed.lock() = Agreed::default();
        }
        let response = request
            .body(sent.message)
            .send()
            .await
            .map_err(|error| failed(&error))?;
        let response = self.welcome(response).await?;
        let response = match response {
            Welcome::Response(response) => response,
            Welcome::Refused(error) => return Ok(Err(error)),
        };
        if sent.method == "initialize" {
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
            tokio::time::sleep(wait_ms.map_or(RETRY, Duration::from_millis).min(MAX_RETRY)).await;
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
                Err(error) => tracing::debug!(%error, "a stream could not be gone on with"),
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
                tracing::debug!(answered, "an answer that nobody waits for here");
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
        let me = self.me.clone();
        let standing = tokio::spawn(async move {
            let mut events = Events::default();
            let mut stream = Some(response);
            let mut returns = 0;
            loop {
                let Some(posts) = me.upgrade() else {
                    return;
                };
                if let Some(stream) = stream.take() {
                    let seen = events.last_id.clone();
                    let _cut_off = posts.read(stream, &mut events, None, None).await;
                    returns = if events.last_id == seen {
                        returns + 1
                    } else {
                        0
                    };
                    events.cut_off();
                }
                if returns > MAX_RETURNS {
                    return;
                }
                let wait = events.retry_ms.map_or(RETRY, Duration::from_millis);
                drop(posts);
                tokio::time::sleep(wait.min(MAX_RETRY)).await;
                let Some(posts) = me.upgrade() else {
                    return;
                };
                let mut again = posts.request(Method::GET, STREAM);
                if let Some(last) = &events.last_id {
                    again = again.header(LAST_EVENT_ID, last);
                }
                match again.send().await {
                    Ok(response) if is_stream(&response) => stream = Some(response),
                    _ => returns += 1,
                }
            }
        });
        if let Some(old) = self.standing.lock().replace(standing.abort_handle()) {
            old.abort();
        }
    }

    /// Sorts a reply by its status.
    async fn welcome(&self, response: Response) -> Result<Welcome, Failure> {
        let status = response.status();
        if status.is_success() {
            return Ok(Welcome::Response(response));
        }
        if status.is_redirection() {
            let to = response
                .headers()
                .get(LOCATION)
                .and_then(|to| to.to_str().ok());
            let to = head(to.unwrap_or("nowhere"), 200);
            let why = format!(
                "it redirects to {to:?}, which is not followed: use that address if it is right"
            );
            return Err(Failure::Unavailable(why));
        }
        if status == StatusCode::NOT_FOUND && self.agreed.lock().session.is_some() {
            return Err(Failure::NoSession);
        }
        let text = beginning(response).await;
        // The modern era says with a status what the body says as well; so do some legacy servers.
        if let Ok(Message::Response {
            outcome: Err(error),
            ..
        }) = Message::read(text.as_bytes())
        {
            return Ok(Welcome::Refused(error.to_owned()));
        }
        if let Some(error) = error_without_id(&text) {
            return Ok(Welcome::Refused(error));
        }
        let words: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let why = format!("HTTP {status}: {}", head(words.trim(), 300));
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Failure::Unauthorized(why),
            // Whether something was done before it broke, nobody knows.
            status if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE => {
                Failure::Lost(why)
            }
            _ => Failure::Unavailable(why),
        })
    }

    fn wire(&self) -> Arc<dyn Wire> {
        self.me.upgrade().expect("we are here")
    }
}

enum Welcome {
    Response(Response),
    Refused(Box<RawValue>),
}

/// The error of a reply whose request could not be read, so that its id is `null`.
fn error_without_id(text: &str) -> Option<Box<RawValue>> {
    let error = splice::member(text, "error")?;
    error.get().starts_with('{').then(|| error.to_owned())
}

fn kind(response: &Response) -> String {
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
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
    fn exchange<'a>(&'a self, sent: Sent<'a>) -> Pending<'a, Result<Outcome, Failure>> {
        Box::pin(self.post(sent))
    }

    fn tell(&self, message: Vec<u8>) -> Pending<'_, Result<(), Failure>> {
        Box::pin(async move {
            let mut request = self.request(Method::POST, BOTH).header(CONTENT_TYPE, JSON);
            if let Ok(Message::Notification { method, .. }) = Message::read(&message)
                && self.is_modern()
            {
                request = request.header(METHOD, &*method);
            }
            let response = request
                .body(message)
                .send()
                .await
                .map_err(|error| failed(&error))?;
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
    reading: AbortHandle,
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
            let Some(piece) = piece else {
                return Err(Failure::Unavailable(
                    "its stream ended before it said where to post".to_owned(),
                ));
            };
            let new = events
                .push(&piece)
                .map_err(|error| Failure::Unavailable(error.to_string()))?;
            let mut endpoint = None;
            for event in new {
                match (event.kind.as_str(), event.data) {
                    ("endpoint", Arrived::Short(data)) if endpoint.is_none() => {
                        endpoint = Some(data);
                    }
                    (_, data) => early.push(data),
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
        let wire = Arc::new_cyclic(|me: &Weak<Self>| {
            let reading = tokio::spawn(read_old(
                me.clone(),
                stream,
                events,
                early,
                board.clone(),
                open.clone(),
            ));
            Self {
                client,
                headers: address.headers.clone(),
                endpoint,
                board,
                reading: reading.abort_handle(),
                open,
            }
        });
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
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(Failure::Unauthorized(format!("HTTP {status}")))
            }
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
            board.take(data, &wire);
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
            let answered = self.board.wait(sent.id, sent.delegate);
            self.send(sent.message).await?;
            let lost = |_| Failure::Lost("its stream ended without an answer".to_owned());
            answered.await.map_err(lost)
        })
    }

    fn tell(&self, message: Vec<u8>) -> Pending<'_, Result<(), Failure>> {
        Box::pin(self.send(message))
    }

    fn agreed(&self, _: Version) {}

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    fn close(&self) -> Pending<'_, ()> {
        self.open.store(false, Ordering::Release);
        self.reading.abort();
        self.board.close();
        Box::pin(std::future::ready(()))
    }
}

impl Drop for OldStream {
    fn drop(&mut self) {
        self.reading.abort();
        self.board.close();
    }
}

/// The headers by which a modern request is routed.
fn routing(method: &str, params: Option<&RawValue>) -> Vec<(String, String)> {
    let mut headers = vec![("mcp-method".to_owned(), method.to_owned())];
    let named = match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    };
    let named = named.zip(params).and_then(|(member, params)| {
        let raw = splice::member(params.get(), member)?;
        serde_json::from_str::<String>(raw.get()).ok()
    });
    headers.extend(named.map(|named| ("mcp-name".to_owned(), encoded(&named).into_owned())));
    headers
}
