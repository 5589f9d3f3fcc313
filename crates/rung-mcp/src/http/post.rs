//! A message that is posted.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use hyper::body::Incoming;
use rung_auth::Permit;
use rung_ladder::head;

use super::door::single;
use super::sessions::{HttpSession, NoSession, SESSION_ID};
use super::stream::{CallBody, First, Guest, Said, Stream, response};
use super::{App, Arrival, json_response};
use crate::client::{Capabilities, Client, Meta};
use crate::envelope::{Id, MAX_MESSAGE_BYTES, Message};
use crate::exchange::Outlet;
use crate::headers::{self, VERSION};
use crate::oversized::IdScanner;
use crate::refusal::Refusal;
use crate::server::{Answer, Answering, Request, refused};
use crate::session::cancelled;
use crate::version::Version;

/// A body that does not come in this time does not come.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a body that are read past for the id of its request, after those that a message may have.
const MAX_READ_PAST: usize = 64 << 20;
/// An answer that takes longer is waited for on a stream, where something can be said meanwhile.
const STREAM_AFTER: Duration = Duration::from_secs(2);

pub(super) async fn post(app: &Arc<App>, permit: Permit, request: Arrival) -> Response {
    let (parts, body) = request.into_parts();
    let headers = parts.headers;
    let Some(accepts) = Accepts::of(&headers) else {
        let why = "accept application/json, text/event-stream or both\n";
        return (StatusCode::NOT_ACCEPTABLE, why).into_response();
    };
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let essence = kind
        .and_then(|kind| kind.split(';').next())
        .unwrap_or_default();
    if !essence.trim().eq_ignore_ascii_case("application/json") {
        return (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send application/json\n",
        )
            .into_response();
    }
    let body = match read_body(body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    match Message::read(&body) {
        Err(malformed) => {
            tracing::debug!(%malformed, "not a message");
            json_response(StatusCode::BAD_REQUEST, malformed.answer())
        }
        Ok(Message::Request { id, method, params }) => {
            tracing::debug!(%id, method = ?head(&method, 100), caller = %permit.caller(), "request");
            let request = Request {
                id,
                method: &method,
                params,
            };
            let posted = Posted {
                app,
                permit,
                headers,
                accepts,
            };
            posted.request(&request).await
        }
        Ok(Message::Notification { method, params }) => {
            let Some(session) = session_of(app, &headers, &permit) else {
                return StatusCode::ACCEPTED.into_response();
            };
            let session = match session {
                Ok(session) => session,
                Err(none) => return none.into_response(),
            };
            if let Some(id) = cancelled(&method, params) {
                session.running.cancel(&id);
            }
            StatusCode::ACCEPTED.into_response()
        }
        Ok(Message::Response { id, outcome }) => {
            match session_of(app, &headers, &permit) {
                Some(Ok(session)) => session.session.take_answer(&id, outcome),
                Some(Err(none)) => return none.into_response(),
                None => return (StatusCode::BAD_REQUEST, "nobody asked\n").into_response(),
            }
            StatusCode::ACCEPTED.into_response()
        }
    }
}

/// The session a message belongs to, where there are sessions and it names one.
fn session_of(
    app: &App,
    headers: &HeaderMap,
    permit: &Permit,
) -> Option<Result<Arc<HttpSession>, NoSession>> {
    let sessions = app.sessions_of(permit)?;
    headers
        .contains_key(&SESSION_ID)
        .then(|| sessions.find(headers, permit))
}

async fn read_body(mut body: Incoming) -> Result<Bytes, Response> {
    let reading = async {
        let mut read = Bytes::new();
        while let Some(piece) = next_piece(&mut body).await? {
            if read.len() + piece.len() > MAX_MESSAGE_BYTES {
                return Err(read_past(&[&read, &piece], &mut body).await);
            }
            // Most bodies come in one piece, and stay in it.
            read = if read.is_empty() {
                piece
            } else {
                let mut longer = BytesMut::from(read);
                longer.extend_from_slice(&piece);
                longer.freeze()
            };
        }
        Ok(read)
    };
    tokio::pin!(reading);
    // Most are there by the second look, and nothing need be set up to wait for them.
    let mut looks = 0;
    let soon = poll_fn(|context| match reading.as_mut().poll(context) {
        Poll::Pending if looks == 0 => {
            looks += 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }
        polled => Poll::Ready(polled),
    });
    let read = match soon.await {
        Poll::Ready(read) => read,
        Poll::Pending => {
            let read = tokio::time::timeout(BODY_TIMEOUT, reading).await;
            read.unwrap_or(Err(Unread::Late))
        }
    };
    read.map_err(Unread::response)
}

/// Reads past what is left of a body that is too long, as far as is reasonable, for the id of its request: many clients write it last.
async fn read_past(read: &[&Bytes], body: &mut Incoming) -> Unread {
    let mut scanner = IdScanner::default();
    for piece in read {
        scanner.push(piece);
    }
    let mut left = MAX_READ_PAST;
    while let Ok(Some(piece)) = next_piece(body).await {
        scanner.push(&piece);
        let Some(less) = left.checked_sub(piece.len()) else {
            break;
        };
        left = less;
    }
    Unread::TooLong(scanner.into_id())
}

async fn next_piece(body: &mut Incoming) -> Result<Option<Bytes>, Unread> {
    let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
    let frame = frame.transpose().map_err(|_| Unread::BrokeOff)?;
    Ok(frame.map(|frame| frame.into_data().unwrap_or_default()))
}

/// Why a body was not read to its end.
enum Unread {
    BrokeOff,
    Late,
    /// With the id, if it is a request.
    TooLong(Option<Id>),
}

impl Unread {
    fn response(self) -> Response {
        let mut response = match self {
            Self::BrokeOff => (StatusCode::BAD_REQUEST, "the body broke off\n").into_response(),
            Self::Late => (
                StatusCode::REQUEST_TIMEOUT,
                "the body did not come in time\n",
            )
                .into_response(),
            Self::TooLong(id) => {
                let refusal = refused(id.as_ref(), &Refusal::too_long());
                json_response(StatusCode::PAYLOAD_TOO_LARGE, refusal.message)
            }
        };
        // What is left of it would be taken for the next request.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
        response
    }
}

/// The forms in which a client takes its answer.
#[derive(Clone, Copy)]
pub(super) struct Accepts {
    json: bool,
    pub(super) stream: bool,
}

/// What nearly every client accepts, in nearly every client's words.
const EVERYTHING: &str = "application/json, text/event-stream";

impl Accepts {
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        if !headers.contains_key(header::ACCEPT) {
            return Some(Self {
                json: true,
                stream: true,
            });
        }
        let mut accepts = Self {
            json: false,
            stream: false,
        };
        for value in headers.get_all(header::ACCEPT) {
            if value == EVERYTHING {
                return Some(Self {
                    json: true,
                    stream: true,
                });
            }
            let value = value.to_str().unwrap_or_default().to_ascii_lowercase();
            let any = value.contains("*/*");
            accepts.json |=
                any || value.contains("application/json") || value.contains("application/*");
            accepts.stream |=
                any || value.contains("text/event-stream") || value.contains("text/*");
        }
        (accepts.json || accepts.stream).then_some(accepts)
    }
}

/// A request, and how it came.
struct Posted<'a> {
    app: &'a Arc<App>,
    permit: Permit,
    headers: HeaderMap,
    accepts: Accepts,
}

impl Posted<'_> {
    async fn request(self, request: &Request<'_>) -> Response {
        let meta = match Meta::of(request.params) {
            Ok(meta) => meta,
            Err(refusal) => return answered(refused(Some(&request.id), &refusal)),
        };
        if self.is_modern(&meta, request.method) {
            return self.modern(request, &meta).await;
        }
        if request.method == "initialize" {
            return self.initialize(request);
        }
        let Some(sessions) = self.app.sessions_of(&self.permit) else {
            return self.stateless(request, &meta).await;
        };
        match sessions.find(&self.headers, &self.permit) {
            Ok(session) => self.legacy(&session, request, &meta).await,
            Err(NoSession::NotNamed) => {
                let answer = refused(Some(&request.id), &Refusal::uninitialized(request.method));
                json_response(StatusCode::BAD_REQUEST, answer.message)
            }
            Err(none) => none.into_response(),
        }
    }

    /// Whether a request says which version it speaks, or speaks one that must.
    fn is_modern(&self, meta: &Meta<'_>, method: &str) -> bool {
        if meta.version.is_some() || method == "server/discover" {
            return true;
        }
        let named = single(&self.headers, &VERSION);
        let sessionless = method != "initialize" && !self.headers.contains_key(&SESSION_ID);
        named.is_some_and(|named| Version::of(named).map_or(sessionless, Version::is_modern))
    }

    async fn modern(self, request: &Request<'_>, meta: &Meta<'_>) -> Response {
        let checked = headers::check(&self.headers, meta, request.method, request.params);
        let (version, capabilities, log_level) = match checked.and_then(|()| meta.declared()) {
            Ok(declared) => declared,
            Err(refusal) => return answered(refused(Some(&request.id), &refusal)),
        };
        if request.method == "subscriptions/listen" && !self.accepts.stream {
            let why = "listening takes a stream: accept text/event-stream\n";
            return (StatusCode::NOT_ACCEPTABLE, why).into_response();
        }
        let guest = self.guest();
        let client = Client {
            permit: self.permit,
            version,
            capabilities,
            log_level,
            session: None,
            conversation: None,
            headers: Some(self.headers),
        };
        let said = Said::new();
        let answering = self.app.server.begin(client, request, meta, said.clone());
        reply(answering, said, guest, self.accepts).await
    }

    /// A legacy request that belongs to no session.
    async fn stateless(self, request: &Request<'_>, meta: &Meta<'_>) -> Response {
        let named = single(&self.headers, &VERSION).and_then(Version::of);
        // What the protocol assumes of a client that does not say; but one that has no session to have said it in is told what
        // it can pass over.
        let unsaid = if self.app.door.is_stateless(&self.permit) {
            Version::V2025_06_18
        } else {
            Version::V2025_03_26
        };
        let guest = self.guest();
        let client = Client {
            permit: self.permit,
            version: named.unwrap_or(unsaid),
            capabilities: Capabilities::default(),
            log_level: None,
            session: None,
            conversation: None,
            headers: None,
        };
        let said = Said::new();
        let answering = self.app.server.begin(client, request, meta, said.clone());
        reply(answering, said, guest, self.accepts).await
    }

    fn initialize(self, request: &Request<'_>) -> Response {
        let guest = self.guest();
        let (server, sessions) = (&self.app.server, self.app.sessions_of(&self.permit));
        let tells = sessions.is_some();
        let opened = server.initialize(self.permit, &request.id, request.params, tells);
        let (session, answer) = match opened {
            Ok(opened) => opened,
            Err(answer) => return json_response(StatusCode::BAD_REQUEST, answer.message),
        };
        let mut response = if self.accepts.json {
            json_response(StatusCode::OK, answer.message)
        } else {
            let answering = Box::pin(std::future::ready(answer));
            response(Body::new(CallBody::new(guest, Said::new(), answering)))
        };
        if let Some(sessions) = sessions {
            let id = sessions.open(session);
            let Some(id) = id.and_then(|id| HeaderValue::from_str(&id).ok()) else {
                return StatusCode::SERVICE_UNAVAILABLE.into_response();
            };
            response.headers_mut().insert(SESSION_ID, id);
        }
        response
    }

    async fn legacy(
        self,
        session: &Arc<HttpSession>,
        request: &Request<'_>,
        meta: &Meta<'_>,
    ) -> Response {
        let id = request.id.clone();
        let number = match session.running.begin(&id) {
            Ok(number) => number,
            Err(refusal) => {
                return json_response(StatusCode::OK, refused(Some(&id), &refusal).message);
            }
        };
        let guest = self.guest();
        let mut client = Client::of_session(self.permit, &session.session);
        if !self.accepts.stream {
            client.capabilities = client.capabilities.without_questions();
        }
        let primed = client.version >= Version::V2025_11_25;
        let stream = session.new_stream();
        let outlet: Arc<dyn Outlet> = stream.clone();
        let answering = self.app.server.begin(client, request, meta, outlet);
        let unfinished = Unfinished {
            session: session.clone(),
            stream: stream.clone(),
            id: id.clone(),
            number,
        };
        // A connection that breaks is no reason to stop.
        let task = tokio::spawn(async move {
            let answer = answering.await;
            unfinished.finish(answer.message);
        });
        session.running.can_stop(&id, number, task.abort_handle());
        // Most are done when they have had their turn, and nothing need be set up to wait for them.
        tokio::task::yield_now().await;
        let first = if self.accepts.stream {
            tokio::time::timeout(STREAM_AFTER, stream.first()).await
        } else {
            Ok(stream.first().await)
        };
        match first {
            Ok(First::Answer(answer)) if self.accepts.json => json_response(StatusCode::OK, answer),
            // It was cancelled: a stream that ends without an answer is what its client expects.
            Ok(First::Nothing) if self.accepts.stream => response(Body::empty()),
            _ if self.accepts.stream => {
                session.keep(stream.clone());
                // Whoever has hung up by now is let go with what it needs to come back.
                stream.read(guest, None, primed)
            }
            // For a client that takes no stream, what comes before the answer is left out.
            _ => match stream.answer().await {
                Some(answer) => json_response(StatusCode::OK, answer),
                None => StatusCode::ACCEPTED.into_response(),
            },
        }
    }

    fn guest(&self) -> Guest {
        Guest {
            app: self.app.clone(),
            permit: self.permit.clone(),
        }
    }
}

/// A request of a session, until it has ended one way or the other.
struct Unfinished {
    session: Arc<HttpSession>,
    stream: Arc<Stream>,
    id: crate::envelope::Id,
    number: u64,
}

impl Unfinished {
    fn finish(self, answer: Vec<u8>) {
        let running = &self.session.running;
        running.end(&self.id, self.number, || self.stream.finish(Some(answer)));
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.session.running.end(&self.id, self.number, || {});
        self.stream.finish(None);
    }
}

/// The answer as JSON if it is all there is, else as a stream.
async fn reply(
    mut answering: Answering,
    said: Arc<Said>,
    guest: Guest,
    accepts: Accepts,
) -> Response {
    if !accepts.stream {
        return answered(answering.await);
    }
    if accepts.json {
        // Most answers are there at once, and nothing need be set up to wait for them.
        let at_once = poll_fn(|context| Poll::Ready(answering.as_mut().poll(context))).await;
        let first = match at_once {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => tokio::select! {
                biased;
                () = said.any() => None,
                answer = &mut answering => Some(answer),
                () = tokio::time::sleep(STREAM_AFTER) => None,
            },
        };
        // What was said is said before the answer, even where both are there at once.
        match first {
            Some(answer) if said.is_empty() => return answered(answer),
            Some(answer) => answering = Box::pin(std::future::ready(answer)),
            None => {}
        }
    }
    response(Body::new(CallBody::new(guest, said, answering)))
}

fn answered(answer: Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    json_response(status, answer.message)
}
