//! Legacy sessions over HTTP. A session id is not a secret: the caller is checked on every use.
//!
//! When a token is revoked, its streams end (`stream.rs`) and its requests are refused; the session itself is dropped when idle.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use data_encoding::BASE32_NOPAD;
use parking_lot::Mutex;
use rung_auth::Permit;
use rung_tool::Change;

use super::guard::single_header;
use super::post::AcceptedTypes;
use super::stream::{SessionStream, StreamAccess};
use super::{HttpApp, method_not_allowed};
use crate::headers::VERSION;
use crate::request_context::ResponseSink as _;
use crate::server::McpServer;
use crate::session::{LegacySession, RunningRequests};
use crate::tasks::now_ms;
use crate::version::ProtocolVersion;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Milliseconds after which an unused session ends.
const IDLE_MS: u64 = 30 * 60 * 1_000;
/// Maximum number of sessions. At the limit, the least recently used one is ended.
const MAX_SESSIONS: usize = 10_000;
/// Finished streams of a session that can still be resumed.
const MAX_STREAMS: usize = 16;
/// Events that are kept until a client opens the standalone stream.
const MAX_STANDALONE_EVENTS: usize = 64;
/// Interval of the check for unused sessions.
const MAINTENANCE_INTERVAL: Duration = Duration::from_mins(1);
/// Number of the standalone stream, which belongs to no request.
const STANDALONE_STREAM: u64 = 0;

pub(crate) struct HttpSession {
    pub(super) session: Arc<LegacySession>,
    pub(super) running: RunningRequests,
    streams: Mutex<HashMap<u64, Arc<SessionStream>>>,
    next_stream: AtomicU64,
    used_ms: AtomicU64,
}

impl HttpSession {
    /// Creates a stream for one request. The session finds it only once it is kept.
    pub(super) fn new_stream(&self) -> Arc<SessionStream> {
        SessionStream::new(self.next_stream.fetch_add(1, Ordering::Relaxed))
    }

    /// Keeps a stream, so that a client can resume it.
    pub(super) fn keep_stream(&self, stream: Arc<SessionStream>) {
        let mut streams = self.streams.lock();
        streams.insert(stream.number, stream);
        let over = streams.values().filter(|stream| stream.is_finished());
        let mut over: Vec<u64> = over.map(|stream| stream.number).collect();
        if over.len() > MAX_STREAMS {
            over.sort_unstable();
            for number in &over[..over.len() - MAX_STREAMS] {
                streams.remove(number);
            }
        }
    }

    fn stream(&self, number: u64) -> Option<Arc<SessionStream>> {
        if number == STANDALONE_STREAM {
            return Some(self.standalone_stream());
        }
        self.streams.lock().get(&number).cloned()
    }

    fn standalone_stream(&self) -> Arc<SessionStream> {
        let mut streams = self.streams.lock();
        streams
            .entry(STANDALONE_STREAM)
            .or_insert_with(|| SessionStream::new(STANDALONE_STREAM))
            .clone()
    }

    fn is_idle(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.used_ms.load(Ordering::Relaxed)) > IDLE_MS && !self.is_in_use()
    }

    fn is_in_use(&self) -> bool {
        self.running.is_busy() || self.streams.lock().values().any(|stream| stream.is_read())
    }

    fn end(&self) {
        self.running.cancel_all();
        self.session.close();
        for stream in self.streams.lock().values() {
            stream.finish(None);
        }
    }
}

/// Why a request has no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionError {
    MissingId,
    Unknown,
    UnsupportedVersion,
}

impl IntoResponse for SessionError {
    fn into_response(self) -> Response {
        let (status, why) = match self {
            Self::MissingId => (
                StatusCode::BAD_REQUEST,
                "Mcp-Session-Id is missing: send initialize first, or name the protocol version in params._meta\n",
            ),
            Self::Unknown => (
                StatusCode::NOT_FOUND,
                "no such session: send initialize again\n",
            ),
            Self::UnsupportedVersion => (
                StatusCode::BAD_REQUEST,
                "MCP-Protocol-Version must name a protocol version that has sessions\n",
            ),
        };
        (status, why).into_response()
    }
}

pub(crate) struct SessionTable {
    all: Mutex<HashMap<String, Arc<HttpSession>>>,
    server: McpServer,
}

impl SessionTable {
    pub(super) fn new(server: McpServer) -> Self {
        Self {
            all: Mutex::default(),
            server,
        }
    }

    /// Adds a session and returns its id. `None` if the system has no randomness.
    pub(super) fn insert(&self, session: Arc<LegacySession>) -> Option<String> {
        let mut bits = [0; 20];
        getrandom::fill(&mut bits).ok()?;
        let id = BASE32_NOPAD.encode(&bits).to_lowercase();
        let session = Arc::new(HttpSession {
            session,
            running: RunningRequests::default(),
            streams: Mutex::default(),
            next_stream: AtomicU64::new(STANDALONE_STREAM + 1),
            used_ms: AtomicU64::new(now_ms()),
        });
        let mut all = self.all.lock();
        if all.len() >= MAX_SESSIONS {
            // A caller's own sessions are ended first, and another caller's only if it has none.
            let used = |session: &HttpSession| session.used_ms.load(Ordering::Relaxed);
            let oldest = all.iter().min_by_key(|(_, other)| {
                let own = other.session.permit == session.session.permit;
                (!own, other.is_in_use(), used(other))
            });
            let oldest = oldest.map(|(id, _)| id.clone());
            if let Some(session) = oldest.and_then(|oldest| all.remove(&oldest)) {
                session.end();
            }
        }
        all.insert(id.clone(), session);
        self.update_gauge(all.len());
        Some(id)
    }

    /// Returns the session that `headers` name, if it belongs to `permit`. Another caller's is reported as unknown.
    pub(super) fn find(
        &self,
        headers: &HeaderMap,
        permit: &Permit,
    ) -> Result<Arc<HttpSession>, SessionError> {
        if !headers.contains_key(&SESSION_ID) {
            return Err(SessionError::MissingId);
        }
        let id = single_header(headers, &SESSION_ID).unwrap_or_default();
        let found = self.all.lock().get(id).cloned();
        let mine = found.filter(|session| session.session.permit == *permit);
        let session = mine.ok_or(SessionError::Unknown)?;
        // A client may omit the version; if it names one, that version must have sessions.
        if headers.contains_key(VERSION) {
            let known = single_header(headers, &VERSION).and_then(ProtocolVersion::parse);
            if known.is_none_or(ProtocolVersion::is_modern) {
                return Err(SessionError::UnsupportedVersion);
            }
        }
        session.used_ms.store(now_ms(), Ordering::Relaxed);
        Ok(session)
    }

    fn close(&self, headers: &HeaderMap) {
        let id = single_header(headers, &SESSION_ID).unwrap_or_default();
        let mut all = self.all.lock();
        let closed = all.remove(id);
        // Releases the memory of a table that was once larger.
        if all.len() < all.capacity() / 4 {
            all.shrink_to_fit();
        }
        self.update_gauge(all.len());
        drop(all);
        if let Some(session) = closed {
            session.end();
        }
    }

    fn update_gauge(&self, sessions: usize) {
        let sessions = i64::try_from(sessions).unwrap_or(i64::MAX);
        self.server.0.metrics.sessions.set(sessions);
    }

    /// Sends changes to the sessions and ends unused ones, until the server shuts down.
    pub(super) async fn maintain(&self) {
        let changes = &self.server.0.config.changes;
        let mut changes = changes.as_ref().map(rung_tool::ChangeSender::subscribe);
        let mut tick = tokio::time::interval(MAINTENANCE_INTERVAL);
        loop {
            let next = async {
                match &mut changes {
                    Some(changes) => changes.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                change = next => self.send_change(&change),
                _ = tick.tick() => self.end_idle(),
                () = self.server.0.shutdown.cancelled() => break,
            }
        }
        // Open streams would keep their connections open forever.
        for session in self.all.lock().values() {
            session.standalone_stream().finish(None);
            session.session.close();
        }
    }

    fn send_change(&self, change: &Change) {
        let all: Vec<_> = self.all.lock().values().cloned().collect();
        for session in all {
            for message in session.session.messages_for(change) {
                let standing = session.standalone_stream();
                standing.send_lossy(message);
                standing.limit(MAX_STANDALONE_EVENTS);
            }
        }
    }

    fn end_idle(&self) {
        let now_ms = now_ms();
        let mut all = self.all.lock();
        all.retain(|_, session| {
            let idle = session.is_idle(now_ms);
            if idle {
                session.end();
            }
            !idle
        });
        if all.len() < all.capacity() / 4 {
            all.shrink_to_fit();
        }
        self.update_gauge(all.len());
    }
}

/// Opens the standalone stream, or resumes the stream of `Last-Event-ID`.
pub(super) fn open_stream(app: &Arc<HttpApp>, permit: Permit, headers: &HeaderMap) -> Response {
    let Some(sessions) = app.sessions_for(&permit) else {
        return method_not_allowed("POST");
    };
    let session = match sessions.find(headers, &permit) {
        Ok(session) => session,
        Err(none) => return none.into_response(),
    };
    if !AcceptedTypes::from_headers(headers).is_some_and(|accepts| accepts.stream) {
        let why = "GET opens a stream: accept text/event-stream\n";
        return (StatusCode::NOT_ACCEPTABLE, why).into_response();
    }
    let guest = StreamAccess {
        app: app.clone(),
        permit,
    };
    let Some(last) = single_header(headers, &LAST_EVENT_ID) else {
        return session.standalone_stream().open_reader(guest, None, false);
    };
    let seen = last
        .split_once('-')
        .and_then(|(stream, number)| Some((stream.parse().ok()?, number.parse().ok()?)));
    let found =
        seen.and_then(|(stream, number): (u64, u64)| Some((session.stream(stream)?, number)));
    // Not 404: to a client that names its session, that would mean that the session is gone.
    match found {
        Some((stream, number)) => stream.open_reader(guest, Some(number), false),
        None => (
            StatusCode::BAD_REQUEST,
            "this stream has ended and cannot be resumed\n",
        )
            .into_response(),
    }
}

/// Ends a session.
pub(super) fn delete_session(app: &HttpApp, permit: &Permit, headers: &HeaderMap) -> Response {
    let Some(sessions) = app.sessions_for(permit) else {
        return method_not_allowed("POST");
    };
    match sessions.find(headers, permit) {
        Ok(_) => {
            sessions.close(headers);
            StatusCode::NO_CONTENT.into_response()
        }
        Err(none) => none.into_response(),
    }
}
