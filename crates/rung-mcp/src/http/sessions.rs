//! Sessions of the legacy era: found by an id that is not a secret, checked against the caller on every use.

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

use super::door::single;
use super::post::Accepts;
use super::stream::{Guest, Stream};
use super::{App, not_allowed};
use crate::exchange::Outlet as _;
use crate::headers::VERSION;
use crate::server::Server;
use crate::session::{Running, Session};
use crate::tasks::now_ms;
use crate::version::Version;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A session nobody used for this long ends.
const IDLE_MS: u64 = 30 * 60 * 1_000;
/// Sessions at once; the one that was used least recently makes room.
const MAX_SESSIONS: usize = 10_000;
/// Streams of a session that can still be fetched again when they are over.
const MAX_STREAMS: usize = 16;
/// Events that wait for a client to open the stream that belongs to no request.
const MAX_STANDING: usize = 64;
/// How often is looked for sessions that have ended.
const TEND: Duration = Duration::from_mins(1);
/// The stream that belongs to no request.
const STANDING: u64 = 0;

/// A session over HTTP.
pub(crate) struct HttpSession {
    pub(super) session: Arc<Session>,
    pub(super) running: Running,
    streams: Mutex<HashMap<u64, Arc<Stream>>>,
    next_stream: AtomicU64,
    used_ms: AtomicU64,
}

impl HttpSession {
    /// A stream for one request. It is known to the session once it is kept.
    pub(super) fn new_stream(&self) -> Arc<Stream> {
        Stream::new(self.next_stream.fetch_add(1, Ordering::Relaxed))
    }

    /// Keeps a stream, so that a client can come back to it.
    pub(super) fn keep(&self, stream: Arc<Stream>) {
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

    fn stream(&self, number: u64) -> Option<Arc<Stream>> {
        if number == STANDING {
            return Some(self.standing());
        }
        self.streams.lock().get(&number).cloned()
    }

    fn standing(&self) -> Arc<Stream> {
        let mut streams = self.streams.lock();
        streams
            .entry(STANDING)
            .or_insert_with(|| Stream::new(STANDING))
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
        self.session.hang_up();
        for stream in self.streams.lock().values() {
            stream.finish(None);
        }
    }
}

/// Why a request has no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoSession {
    NotNamed,
    Unknown,
    OtherVersion,
}

impl IntoResponse for NoSession {
    fn into_response(self) -> Response {
        let (status, why) = match self {
            Self::NotNamed => (
                StatusCode::BAD_REQUEST,
                "Mcp-Session-Id is missing: send initialize first, or name the protocol version in params._meta\n",
            ),
            Self::Unknown => (
                StatusCode::NOT_FOUND,
                "no such session: send initialize again\n",
            ),
            Self::OtherVersion => (
                StatusCode::BAD_REQUEST,
                "MCP-Protocol-Version names no version with sessions\n",
            ),
        };
        (status, why).into_response()
    }
}

/// The sessions there are.
pub(crate) struct Sessions {
    all: Mutex<HashMap<String, Arc<HttpSession>>>,
    server: Server,
}

impl Sessions {
    pub(super) fn new(server: Server) -> Self {
        Self {
            all: Mutex::default(),
            server,
        }
    }

    /// Opens one, and gives its id.
    pub(super) fn open(&self, session: Arc<Session>) -> Option<String> {
        let mut bits = [0; 20];
        getrandom::fill(&mut bits).ok()?;
        let id = BASE32_NOPAD.encode(&bits).to_lowercase();
        let session = Arc::new(HttpSession {
            session,
            running: Running::default(),
            streams: Mutex::default(),
            next_stream: AtomicU64::new(STANDING + 1),
            used_ms: AtomicU64::new(now_ms()),
        });
        let mut all = self.all.lock();
        if all.len() >= MAX_SESSIONS {
            // Whoever opens many makes room among their own; only who has none takes another's.
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
        self.count(all.len());
        Some(id)
    }

    /// The session that `headers` name, if it is `permit`'s. Another's is told as one that never was.
    pub(super) fn find(
        &self,
        headers: &HeaderMap,
        permit: &Permit,
    ) -> Result<Arc<HttpSession>, NoSession> {
        if !headers.contains_key(&SESSION_ID) {
            return Err(NoSession::NotNamed);
        }
        let id = single(headers, &SESSION_ID).unwrap_or_default();
        let found = self.all.lock().get(id).cloned();
        let mine = found.filter(|session| session.session.permit == *permit);
        let session = mine.ok_or(NoSession::Unknown)?;
        // A client may leave the version out; one that names it names one that has sessions.
        if headers.contains_key(VERSION) {
            let known = single(headers, &VERSION).and_then(Version::of);
            if known.is_none_or(Version::is_modern) {
                return Err(NoSession::OtherVersion);
            }
        }
        session.used_ms.store(now_ms(), Ordering::Relaxed);
        Ok(session)
    }

    fn close(&self, headers: &HeaderMap) {
        let id = single(headers, &SESSION_ID).unwrap_or_default();
        let mut all = self.all.lock();
        let closed = all.remove(id);
        // The table gives back what many sessions made it take.
        if all.len() < all.capacity() / 4 {
            all.shrink_to_fit();
        }
        self.count(all.len());
        drop(all);
        if let Some(session) = closed {
            session.end();
        }
    }

    fn count(&self, sessions: usize) {
        let sessions = i64::try_from(sessions).unwrap_or(i64::MAX);
        self.server.0.metrics.sessions.set(sessions);
    }

    /// Tells sessions of changes, and ends those that nobody uses, until the server stops.
    pub(super) async fn tend(&self) {
        let changes = &self.server.0.offer.changes;
        let mut changes = changes.as_ref().map(rung_tool::Changes::listen);
        let mut tick = tokio::time::interval(TEND);
        loop {
            let next = async {
                match &mut changes {
                    Some(changes) => changes.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                change = next => self.tell(&change),
                _ = tick.tick() => self.end_idle(),
                () = self.server.0.shutdown.cancelled() => break,
            }
        }
        // Streams that wait for nothing would keep their connections open for ever.
        for session in self.all.lock().values() {
            session.standing().finish(None);
            session.session.hang_up();
        }
    }

    fn tell(&self, change: &Change) {
        let all: Vec<_> = self.all.lock().values().cloned().collect();
        for session in all {
            for message in session.session.told(change) {
                let standing = session.standing();
                standing.say(message);
                standing.limit(MAX_STANDING);
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
        self.count(all.len());
    }
}

/// Opens the stream that belongs to no request, or goes on with one that was lost.
pub(super) fn get(app: &Arc<App>, permit: Permit, headers: &HeaderMap) -> Response {
    let Some(sessions) = app.sessions_of(&permit) else {
        return not_allowed("POST");
    };
    let session = match sessions.find(headers, &permit) {
        Ok(session) => session,
        Err(none) => return none.into_response(),
    };
    if !Accepts::of(headers).is_some_and(|accepts| accepts.stream) {
        let why = "GET opens a stream: accept text/event-stream\n";
        return (StatusCode::NOT_ACCEPTABLE, why).into_response();
    }
    let guest = Guest {
        app: app.clone(),
        permit,
    };
    let Some(last) = single(headers, &LAST_EVENT_ID) else {
        return session.standing().read(guest, None, false);
    };
    let seen = last
        .split_once('-')
        .and_then(|(stream, number)| Some((stream.parse().ok()?, number.parse().ok()?)));
    let found =
        seen.and_then(|(stream, number): (u64, u64)| Some((session.stream(stream)?, number)));
    // Not as absent: to a client that names its session, that would mean that the session is gone.
    match found {
        Some((stream, number)) => stream.read(guest, Some(number), false),
        None => (
            StatusCode::BAD_REQUEST,
            "this stream is over and forgotten\n",
        )
            .into_response(),
    }
}

/// Ends a session.
pub(super) fn delete(app: &App, permit: &Permit, headers: &HeaderMap) -> Response {
    let Some(sessions) = app.sessions_of(permit) else {
        return not_allowed("POST");
    };
    match sessions.find(headers, permit) {
        Ok(_) => {
            sessions.close(headers);
            StatusCode::NO_CONTENT.into_response()
        }
        Err(none) => none.into_response(),
    }
}
