//! The HTTP transports: Streamable HTTP in both eras, and HTTP with SSE of 2024-11-05.
//!
//! Each request is a POST, answered with JSON or an SSE stream. Closing the response cancels a modern request. A legacy
//! stream that broke is resumed after its last event; a legacy session may also have a GET stream for messages that
//! belong to no request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{
    ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE,
};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url, redirect};
use rung_ladder::head;
use rung_tool::BoxFuture;
use serde_json::value::RawValue;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::error::TransportError;
use super::incoming::{MessageBuffer, ReceivedMessage};
use super::pending::{Delegate, PendingRequests, RpcOutcome};
use super::sse::SseParser;
use super::transport::{EncodedRequest, Transport};
use crate::envelope::Message;
use crate::headers::encode_value;
use crate::version::ProtocolVersion;
use rung_tool::splice;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const ACCEPT_JSON_AND_SSE: HeaderValue =
    HeaderValue::from_static("application/json, text/event-stream");
const ACCEPT_SSE: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Time limit of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit of opening the GET stream. A stream that lasted longer counts as good.
const GET_STREAM_TIMEOUT: Duration = Duration::from_secs(5);
/// The default delay before resuming a stream.
const DEFAULT_RETRY: Duration = Duration::from_secs(1);
/// Bounds of the delay that a server may ask for.
const MIN_RETRY: Duration = Duration::from_millis(50);
const MAX_RETRY: Duration = Duration::from_mins(1);
/// Attempts to resume a stream without a new event.
const MAX_RESUMES: u32 = 5;
/// Events before the `endpoint` event.
const MAX_EARLY_EVENTS: u64 = 64;
/// Bytes of an error response that are read.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Time limit of sending a notification or response.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of the DELETE that ends a session.
const DELETE_TIMEOUT: Duration = Duration::from_secs(2);

/// The address of a server.
#[derive(Debug, Clone)]
pub struct ServerAddress {
    /// The URL of the MCP endpoint.
    pub url: Url,
    /// Headers of every request, such as a credential. Never shown.
    pub headers: HeaderMap,
}

impl ServerAddress {
    /// Creates an address without headers.
    pub fn new(url: Url) -> Self {
        Self {
            url,
            headers: HeaderMap::new(),
        }
    }

    /// Adds a header to every request.
    pub fn add_header(&mut self, name: &str, value: &str) -> Result<(), String> {
        let name: HeaderName = name
            .parse()
            .map_err(|_| format!("{name:?} is not a header name"))?;
        let mut value: HeaderValue = value.parse().map_err(|_| {
            format!("the value of the header {name} has characters that a header cannot have")
        })?;
        value.set_sensitive(true);
        self.headers.append(name, value);
        Ok(())
    }
}

/// Returns the shared HTTP client. It follows redirects 307 and 308 within the same origin only.
pub(super) fn client() -> Result<Client, TransportError> {
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
        // Other redirects would change the request's method.
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
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .user_agent(concat!("rung/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| TransportError::Unavailable(error.to_string()))?;
    Ok(CLIENT.get_or_init(|| built).clone())
}

/// The Streamable HTTP transport.
pub(super) struct StreamableHttp {
    me: Weak<Self>,
    client: Client,
    address: ServerAddress,
    board: Arc<PendingRequests>,
    state: Mutex<SessionState>,
    open: AtomicBool,
    get_stream: Mutex<Option<AbortHandle>>,
}

#[derive(Default)]
struct SessionState {
    version: Option<ProtocolVersion>,
    session: Option<HeaderValue>,
}

/// The end of a stream.
enum StreamEnd {
    Answered(RpcOutcome),
    /// The stream ended without the response.
    CutOff(String),
}

impl StreamableHttp {
    pub(super) fn open(
        address: &ServerAddress,
        board: Arc<PendingRequests>,
    ) -> Result<Arc<Self>, TransportError> {
        let client = client()?;
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            client,
            address: address.clone(),
            board,
            state: Mutex::default(),
            open: AtomicBool::new(true),
            get_stream: Mutex::default(),
        }))
    }

    fn request(&self, method: Method, accept: HeaderValue) -> RequestBuilder {
        let request = self.client.request(method, self.address.url.clone());
        let mut headers = self.address.headers.clone();
        headers.insert(ACCEPT, accept);
        let agreed = self.state.lock();
        if let Some(version) = agreed.version {
            headers.insert(VERSION, HeaderValue::from_static(version.name()));
        }
        if let Some(session) = &agreed.session {
            headers.insert(SESSION_ID, session.clone());
        }
        request.headers(headers)
    }

    fn is_modern(&self) -> bool {
        self.state
            .lock()
            .version
            .is_none_or(ProtocolVersion::is_modern)
    }

    async fn post(&self, sent: &mut EncodedRequest<'_>) -> Result<RpcOutcome, TransportError> {
        let begins = sent.method == "initialize";
        if begins {
            // A new handshake: forget the version and session of the last one.
            *self.state.lock() = SessionState::default();
        }
        let mut request = self
            .request(Method::POST, ACCEPT_JSON_AND_SSE)
            .header(CONTENT_TYPE, JSON);
        if !begins && self.is_modern() {
            for (name, value) in routing_headers(sent.method, sent.params)
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
            .map_err(|error| into_transport_error(&error))?;
        let response = match self.classify_response(response, sent.id).await? {
            PostOutcome::Response(response) => response,
            PostOutcome::Refused(error) => return Ok(Err(error)),
        };
        if begins {
            self.state.lock().session = response.headers().get(SESSION_ID).cloned();
        }
        match content_type(&response).as_str() {
            "application/json" => {
                let message = read_body(response).await?;
                let wire = self.as_transport();
                match self
                    .board
                    .dispatch(message, sent.delegate.as_ref(), &wire)
                    .await
                {
                    Some((id, outcome)) if id == sent.id => Ok(outcome),
                    Some((id, _)) => {
                        let why = format!("it answered request {id} instead of {}", sent.id);
                        Err(TransportError::Unusable(why))
                    }
                    None => Err(TransportError::Unusable(
                        "the body is not a JSON-RPC response".to_owned(),
                    )),
                }
            }
            "text/event-stream" => {
                self.read_to_response(response, sent.delegate.as_ref(), sent.id)
                    .await
            }
            other => {
                let status = response.status();
                let why = format!(
                    "HTTP {status} with content type {:?} instead of JSON or an event stream",
                    head(other, 100)
                );
                Err(TransportError::Unusable(why))
            }
        }
    }

    /// Reads a stream until the response arrives, and resumes a legacy stream that broke.
    async fn read_to_response(
        &self,
        response: Response,
        delegate: Option<&Arc<dyn Delegate>>,
        id: u64,
    ) -> Result<RpcOutcome, TransportError> {
        let mut events = SseParser::default();
        let mut stream = Some(response);
        let mut returns = 0;
        loop {
            let seen = events.last_id.clone();
            let why = match stream.take() {
                Some(stream) => match self
                    .read_stream(stream, &mut events, delegate, Some(id))
                    .await?
                {
                    StreamEnd::Answered(outcome) => return Ok(outcome),
                    StreamEnd::CutOff(why) => why,
                },
                None => "it cannot be reached".to_owned(),
            };
            returns = if events.last_id == seen {
                returns + 1
            } else {
                0
            };
            let last = events.last_id.clone().filter(|_| !self.is_modern());
            let Some(last) = last.filter(|_| returns <= MAX_RESUMES) else {
                return Err(TransportError::Lost(why));
            };
            events.reset_incomplete();
            let wait_ms = events.retry_ms;
            let wait = wait_ms.map_or(DEFAULT_RETRY, Duration::from_millis);
            tokio::time::sleep(wait.clamp(MIN_RETRY, MAX_RETRY)).await;
            let resumed = self
                .request(Method::GET, ACCEPT_SSE)
                .header(LAST_EVENT_ID, last);
            match resumed.send().await {
                Ok(response) if is_stream(&response) => stream = Some(response),
                Ok(response) => {
                    let status = response.status();
                    return Err(TransportError::Lost(format!(
                        "{why}; resuming the stream: HTTP {status}"
                    )));
                }
                Err(error) => {
                    tracing::debug!(why = describe_error(&error), "cannot resume a stream");
                }
            }
        }
    }

    /// Reads a stream to its end, or to the response with this id.
    async fn read_stream(
        &self,
        mut stream: Response,
        events: &mut SseParser,
        delegate: Option<&Arc<dyn Delegate>>,
        id: Option<u64>,
    ) -> Result<StreamEnd, TransportError> {
        let wire = self.as_transport();
        loop {
            let piece = match stream.chunk().await {
                Ok(Some(piece)) => piece,
                Ok(None) => {
                    return Ok(StreamEnd::CutOff(
                        "its stream ended without a response".to_owned(),
                    ));
                }
                Err(error) => return Ok(StreamEnd::CutOff(describe_error(&error))),
            };
            let new = events
                .push(&piece)
                .map_err(|error| TransportError::Lost(error.to_string()))?;
            for event in new {
                let is_empty =
                    matches!(&event.data, ReceivedMessage::Short(data) if data.is_empty());
                if event.kind != "message" || is_empty {
                    continue;
                }
                let Some((answered, outcome)) =
                    self.board.dispatch(event.data, delegate, &wire).await
                else {
                    continue;
                };
                if Some(answered) == id {
                    return Ok(StreamEnd::Answered(outcome));
                }
                self.board.deliver(answered, outcome);
            }
        }
    }

    /// Opens the session's GET stream, if the server has one. The stream is open when this returns.
    async fn open_get_stream(&self) {
        if self.state.lock().session.is_none() {
            return;
        }
        let opening = self.request(Method::GET, ACCEPT_SSE).send();
        let Ok(Ok(response)) = tokio::time::timeout(GET_STREAM_TIMEOUT, opening).await else {
            return;
        };
        if !is_stream(&response) {
            return;
        }
        let standing = tokio::spawn(run_get_stream(self.me.clone(), response));
        if let Some(old) = self.get_stream.lock().replace(standing.abort_handle()) {
            old.abort();
        }
    }

    /// Classifies a response by its status. Reports `Unavailable` only if the request certainly had no effect.
    async fn classify_response(
        &self,
        response: Response,
        id: u64,
    ) -> Result<PostOutcome, TransportError> {
        let status = response.status();
        if status.is_success() {
            return Ok(PostOutcome::Response(response));
        }
        if status.is_redirection() {
            let why = format!(
                "it redirects to {}; redirects are not followed, so configure that address if it is correct",
                redirect_target(&response)
            );
            return Err(match status {
                StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
                    TransportError::Unavailable(why)
                }
                _ => TransportError::Lost(why),
            });
        }
        let in_session = self.state.lock().session.is_some();
        if status == StatusCode::NOT_FOUND && in_session {
            return Err(TransportError::NoSession);
        }
        let is_page = content_type(&response) == "text/html";
        let challenge = auth_challenge(&response);
        let text = read_error_body(response).await;
        // An HTML page is not shown.
        let words: String = if is_page { "" } else { &text }
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let why = format!("HTTP {status}: {}", truncate_at_word(words.trim(), 300));
        let why = why.trim_end_matches(": ").to_owned();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(TransportError::Unauthorized { why, challenge });
        }
        // Modern servers, and some legacy ones, send a JSON-RPC error with an error status. A proxy's own error lacks the
        // request's id.
        match parse_rpc_error(&text) {
            Some((Some(of), error)) if of == id.to_string() => {
                return Ok(PostOutcome::Refused(error));
            }
            Some((None, error)) if status.is_client_error() => {
                // Some servers report an unknown session this way: the next request opens a new one.
                if in_session && status == StatusCode::BAD_REQUEST {
                    self.open.store(false, Ordering::Release);
                }
                return Ok(PostOutcome::Refused(error));
            }
            _ => {}
        }
        Err(if status.is_server_error() {
            TransportError::Lost(why)
        } else {
            TransportError::Unavailable(why)
        })
    }

    fn as_transport(&self) -> Arc<dyn Transport> {
        self.me.upgrade().expect("we are here")
    }
}

/// Reads the GET stream, and reopens it while the transport exists.
async fn run_get_stream(posts: Weak<StreamableHttp>, response: Response) {
    let mut events = SseParser::default();
    let mut stream = Some(response);
    let mut failures = 0_u32;
    while let Some(posts) = posts.upgrade() {
        if let Some(stream) = stream.take() {
            let (count, since) = (events.count, Instant::now());
            let _cut_off = posts.read_stream(stream, &mut events, None, None).await;
            // A stream that delivered an event, or lasted, resets the failure count.
            let good = events.count > count || since.elapsed() > GET_STREAM_TIMEOUT;
            failures = if good { 0 } else { failures + 1 };
            events.reset_incomplete();
        }
        let wait = events.retry_ms.map_or(DEFAULT_RETRY, Duration::from_millis);
        let wait = wait.clamp(MIN_RETRY * 5, MAX_RETRY);
        let wait = wait.saturating_mul(1 << failures.min(8)).min(MAX_RETRY);
        let mut again = posts.request(Method::GET, ACCEPT_SSE);
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

enum PostOutcome {
    Response(Response),
    Refused(Box<RawValue>),
}

/// Parses a JSON-RPC error body. Returns its id (`None` if absent or null) and the error.
fn parse_rpc_error(text: &str) -> Option<(Option<String>, Box<RawValue>)> {
    let member = |name| splice::member(text, name).map(RawValue::get);
    if member("jsonrpc") != Some("\"2.0\"") {
        return None;
    }
    let error = splice::member(text, "error").filter(|error| error.get().starts_with('{'))?;
    let id = member("id").filter(|id| *id != "null");
    Some((id.map(str::to_owned), error.to_owned()))
}

/// Returns a redirect's target without its query, which may hold secrets.
fn redirect_target(response: &Response) -> String {
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

fn content_type(response: &Response) -> String {
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// Returns the `WWW-Authenticate` headers.
fn auth_challenge(response: &Response) -> Option<String> {
    const MAX_BYTES: usize = 500;
    let asked = response.headers().get_all(WWW_AUTHENTICATE).iter();
    let asked = asked.map(|one| String::from_utf8_lossy(one.as_bytes()).into_owned());
    let asked = asked.collect::<Vec<_>>().join(", ");
    (!asked.is_empty()).then(|| truncate_at_word(&asked, MAX_BYTES).to_owned())
}

/// Truncates a server's text at a word boundary: redaction recognises only whole secrets.
fn truncate_at_word(said: &str, max_bytes: usize) -> &str {
    let shown = head(said, max_bytes);
    if shown.len() == said.len() {
        return said;
    }
    let apart = |c: char| c.is_whitespace() || c == '"';
    &shown[..shown.rfind(apart).unwrap_or(0)]
}

fn is_stream(response: &Response) -> bool {
    response.status().is_success() && content_type(response) == "text/event-stream"
}

async fn read_body(mut response: Response) -> Result<ReceivedMessage, TransportError> {
    let mut intake = MessageBuffer::default();
    loop {
        match response.chunk().await {
            Ok(Some(piece)) => intake
                .push(&piece)
                .map_err(|error| TransportError::Lost(error.to_string()))?,
            Ok(None) => return Ok(intake.finish()),
            Err(error) => return Err(TransportError::Lost(describe_error(&error))),
        }
    }
}

async fn read_error_body(mut response: Response) -> String {
    let mut text = Vec::new();
    while text.len() < MAX_ERROR_BYTES {
        match response.chunk().await {
            Ok(Some(piece)) => text.extend_from_slice(&piece),
            _ => break,
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Converts a failed request. Reports `Unavailable` only if the request certainly was not sent.
fn into_transport_error(error: &reqwest::Error) -> TransportError {
    if error.is_connect() || error.is_builder() || error.is_redirect() {
        return TransportError::Unavailable(describe_error(error));
    }
    TransportError::Lost(describe_error(error))
}

/// Describes an error by its causes. Leaves out the URL, which may hold a secret.
fn describe_error(error: &reqwest::Error) -> String {
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

impl Transport for StreamableHttp {
    fn send_request<'a>(
        &'a self,
        mut sent: EncodedRequest<'a>,
    ) -> BoxFuture<'a, Result<RpcOutcome, TransportError>> {
        Box::pin(async move {
            // Related messages, and sometimes the response, may arrive on the GET stream.
            let answered = self.board.register(&sent);
            let id = sent.id;
            let outcome = tokio::select! {
                posted = self.post(&mut sent) => posted,
                Ok(outcome) = answered => Ok(outcome),
            };
            self.board.remove(id);
            outcome
        })
    }

    fn send_message(&self, message: Vec<u8>) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            let mut request = self
                .request(Method::POST, ACCEPT_JSON_AND_SSE)
                .header(CONTENT_TYPE, JSON);
            if let Ok(Message::Notification { method, .. }) = Message::parse(&message)
                && self.is_modern()
            {
                request = request.header(METHOD, &*method);
            }
            let sending = request.timeout(SEND_TIMEOUT).body(message).send();
            let response = sending
                .await
                .map_err(|error| into_transport_error(&error))?;
            let status = response.status();
            if status.is_success() {
                return Ok(());
            }
            Err(TransportError::Unusable(format!(
                "HTTP {status} to a notification or response"
            )))
        })
    }

    fn set_version(&self, version: ProtocolVersion) {
        self.state.lock().version = Some(version);
    }

    fn on_handshake_complete(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.open_get_stream())
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    fn needs_cancel_notification(&self) -> bool {
        !self.is_modern()
    }

    fn release(&self) {
        if let Some(standing) = self.get_stream.lock().take() {
            standing.abort();
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.open.store(false, Ordering::Release);
            self.release();
            if self.state.lock().session.is_some() {
                let farewell = self.request(Method::DELETE, ACCEPT_JSON_AND_SSE).send();
                let _as_it_likes = tokio::time::timeout(DELETE_TIMEOUT, farewell).await;
            }
        })
    }
}

/// The HTTP+SSE transport of 2024-11-05: one stream for all incoming messages, and a second URL for POST.
pub(super) struct LegacySseTransport {
    client: Client,
    headers: HeaderMap,
    endpoint: Url,
    board: Arc<PendingRequests>,
    reader: Mutex<Option<AbortHandle>>,
    open: Arc<AtomicBool>,
}

impl LegacySseTransport {
    pub(super) async fn open(
        address: &ServerAddress,
        board: Arc<PendingRequests>,
    ) -> Result<Arc<Self>, TransportError> {
        let client = client()?;
        let request = client
            .get(address.url.clone())
            .headers(address.headers.clone())
            .header(ACCEPT, ACCEPT_SSE);
        let mut stream = request
            .send()
            .await
            .map_err(|error| into_transport_error(&error))?;
        if !is_stream(&stream) {
            let status = stream.status();
            return Err(TransportError::Unavailable(format!(
                "no MCP server answers here (HTTP {status})"
            )));
        }
        let mut events = SseParser::default();
        let mut early = Vec::new();
        let endpoint = loop {
            let piece = stream
                .chunk()
                .await
                .map_err(|error| into_transport_error(&error))?;
            let Some(piece) = piece.filter(|_| events.count < MAX_EARLY_EVENTS) else {
                let why = "its stream did not name an endpoint for POST".to_owned();
                return Err(TransportError::Unavailable(why));
            };
            let new = events.push(&piece);
            let new = new.map_err(|error| TransportError::Unavailable(error.to_string()))?;
            let mut endpoint = None;
            for event in new {
                match (event.kind.as_str(), event.data) {
                    ("endpoint", ReceivedMessage::Short(data)) => {
                        endpoint = endpoint.or(Some(data));
                    }
                    ("message", data @ ReceivedMessage::Short(_)) => early.push(data),
                    _ => {}
                }
            }
            if let Some(endpoint) = endpoint {
                break String::from_utf8_lossy(&endpoint).into_owned();
            }
        };
        let endpoint = address.url.join(endpoint.trim()).map_err(|_| {
            TransportError::Unavailable("it named an invalid endpoint for POST".to_owned())
        })?;
        // The headers may hold a credential: send them to this origin only.
        if endpoint.origin() != address.url.origin() {
            return Err(TransportError::Unavailable(
                "it named an endpoint for POST on another origin".to_owned(),
            ));
        }
        let open = Arc::new(AtomicBool::new(true));
        let wire = Arc::new(Self {
            client,
            headers: address.headers.clone(),
            endpoint,
            board: board.clone(),
            reader: Mutex::default(),
            open: open.clone(),
        });
        let reading = run_reader(Arc::downgrade(&wire), stream, events, early, board, open);
        *wire.reader.lock() = Some(tokio::spawn(reading).abort_handle());
        Ok(wire)
    }

    async fn send(&self, message: Vec<u8>) -> Result<(), TransportError> {
        let request = self
            .client
            .post(self.endpoint.clone())
            .headers(self.headers.clone());
        let request = request.header(CONTENT_TYPE, JSON).body(message);
        let response = request
            .send()
            .await
            .map_err(|error| into_transport_error(&error))?;
        let status = response.status();
        match status {
            status if status.is_success() => Ok(()),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(TransportError::Unauthorized {
                why: format!("HTTP {status}"),
                challenge: auth_challenge(&response),
            }),
            status if status.is_server_error() => {
                Err(TransportError::Lost(format!("HTTP {status}")))
            }
            status => Err(TransportError::Unavailable(format!("HTTP {status}"))),
        }
    }
}

async fn run_reader(
    wire: Weak<LegacySseTransport>,
    mut stream: Response,
    mut events: SseParser,
    early: Vec<ReceivedMessage>,
    board: Arc<PendingRequests>,
    open: Arc<AtomicBool>,
) {
    let mut arrived = early;
    loop {
        for data in arrived.drain(..) {
            let Some(wire) = wire.upgrade() else {
                return;
            };
            let wire: Arc<dyn Transport> = wire;
            board.receive(data, &wire).await;
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

impl Transport for LegacySseTransport {
    fn send_request<'a>(
        &'a self,
        sent: EncodedRequest<'a>,
    ) -> BoxFuture<'a, Result<RpcOutcome, TransportError>> {
        Box::pin(async move {
            let mut answered = self.board.register(&sent);
            // The response may arrive on the stream before the POST completes.
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
                    self.board.remove(sent.id);
                    return Err(failure);
                }
            };
            outcome
                .map_err(|_| TransportError::Lost("its stream ended without a response".to_owned()))
        })
    }

    fn send_message(&self, message: Vec<u8>) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            let sending = tokio::time::timeout(SEND_TIMEOUT, self.send(message));
            let late = |_| TransportError::Lost("it did not accept the message in time".to_owned());
            sending.await.map_err(late)?
        })
    }

    fn set_version(&self, _: ProtocolVersion) {}

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    fn release(&self) {
        self.open.store(false, Ordering::Release);
        if let Some(reading) = self.reader.lock().take() {
            reading.abort();
        }
        self.board.close();
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.release();
        Box::pin(std::future::ready(()))
    }
}

/// Returns the routing headers of a modern request.
fn routing_headers(method: &str, params: Option<&str>) -> Vec<(String, String)> {
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
    headers.extend(named.map(|named| ("mcp-name".to_owned(), encode_value(&named).into_owned())));
    headers
}
