//! A message that is posted.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request as HttpRequest;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use rung_auth::Permit;
use tokio::sync::mpsc;

use super::sessions::{HttpSession, NoSession, SESSION_ID};
use super::stream::{CallBody, Channel, First, MAX_WAITING, Stream, response};
use super::{App, json_response};
use crate::client::{Capabilities, Client, Meta};
use crate::envelope::{ErrorBody, Message, code, write_error};
use crate::exchange::Outlet;
use crate::headers;
use crate::server::{Answer, Answering, Request, refused};
use crate::stdio::{MAX_MESSAGE_BYTES, answer_of, cancelled, uninitialized};
use crate::version::Version;

/// A body that does not come in this time does not come.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// An answer that takes longer is waited for on a stream, where something can be said meanwhile.
const STREAM_AFTER: Duration = Duration::from_secs(2);

pub(super) async fn post(app: &Arc<App>, permit: Permit, request: HttpRequest) -> Response {
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
            tracing::debug!(%id, %method, caller = %permit.caller(), "request");
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
                Some(Ok(session)) => session.session.take_answer(&id, answer_of(outcome)),
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
    let sessions = app.sessions.as_ref()?;
    headers
        .contains_key(&SESSION_ID)
        .then(|| sessions.find(headers, permit))
}

async fn read_body(body: Body) -> Result<Bytes, Response> {
    let read = tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_MESSAGE_BYTES)).await;
    match read {
        Ok(Ok(body)) => Ok(body),
        // What breaks off is not read either; what is too long is the one thing a client can be told.
        Ok(Err(_)) => {
            let why = format!("a message has {MAX_MESSAGE_BYTES} bytes at most");
            let error = write_error(None, &ErrorBody::new(code::INVALID_REQUEST, why));
            let mut response = json_response(StatusCode::PAYLOAD_TOO_LARGE, error);
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
            Err(response)
        }
        Err(_) => Err((
            StatusCode::REQUEST_TIMEOUT,
            "the body did not come in time\n",
        )
            .into_response()),
    }
}

/// The forms in which a client takes its answer.
#[derive(Clone, Copy)]
struct Accepts {
    json: bool,
    stream: bool,
}

impl Accepts {
    fn of(headers: &HeaderMap) -> Option<Self> {
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
        let Some(sessions) = &self.app.sessions else {
            return self.stateless(request, &meta).await;
        };
        match sessions.find(&self.headers, &self.permit) {
            Ok(session) => self.legacy(&session, request, &meta).await,
            Err(NoSession::NotNamed) => {
                let answer = refused(Some(&request.id), &uninitialized());
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
        let named = self
            .headers
            .get(headers::VERSION)
            .and_then(|version| version.to_str().ok());
        let sessionless = method != "initialize" && !self.headers.contains_key(&SESSION_ID);
        named.is_some_and(|named| Version::of(named).map_or(sessionless, Version::is_modern))
    }

    async fn modern(self, request: &Request<'_>, meta: &Meta<'_>) -> Response {
        let checked = headers::check(&self.headers, meta, request.method, request.params);
        let (version, capabilities, log_level) = match checked.and_then(|()| meta.declared()) {
            Ok(declared) => declared,
            Err(refusal) => return answered(refused(Some(&request.id), &refusal)),
        };
        let client = Client {
            permit: self.permit,
            version,
            capabilities,
            log_level,
            session: None,
            headers: Some(self.headers),
        };
        let (sender, said) = mpsc::channel(MAX_WAITING);
        let outlet = Arc::new(Channel(sender));
        let answering = self.app.server.begin(client, request, meta, outlet);
        reply(answering, said, self.accepts).await
    }

    /// A legacy request that belongs to no session.
    async fn stateless(self, request: &Request<'_>, meta: &Meta<'_>) -> Response {
        let named = self
            .headers
            .get(headers::VERSION)
            .and_then(|version| version.to_str().ok());
        let client = Client {
            permit: self.permit,
            // What the protocol assumes of a client that does not say.
            version: named.and_then(Version::of).unwrap_or(Version::V2025_03_26),
            capabilities: Capabilities::default(),
            log_level: None,
            session: None,
            headers: None,
        };
        let (sender, said) = mpsc::channel(MAX_WAITING);
        let outlet = Arc::new(Channel(sender));
        let answering = self.app.server.begin(client, request, meta, outlet);
        reply(answering, said, self.accepts).await
    }

    fn initialize(self, request: &Request<'_>) -> Response {
        let server = &self.app.server;
        let (session, answer) = match server.initialize(self.permit, &request.id, request.params) {
            Ok(opened) => opened,
            Err(answer) => return json_response(StatusCode::BAD_REQUEST, answer.message),
        };
        let mut response = if self.accepts.json {
            json_response(StatusCode::OK, answer.message)
        } else {
            let stream = Stream::new(0);
            stream.finish(Some(answer.message));
            stream.read(None, false)
        };
        if let Some(sessions) = &self.app.sessions {
            let id = sessions
                .open(session)
                .and_then(|id| HeaderValue::from_str(&id).ok());
            let Some(id) = id else {
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
        if let Err(refusal) = session.running.begin(&id) {
            return answered(refused(Some(&id), &refusal));
        }
        let client = Client::of_session(self.permit, &session.session);
        let primed = client.version >= Version::V2025_11_25;
        let stream = session.new_stream();
        let outlet: Arc<dyn Outlet> = stream.clone();
        let answering = self.app.server.begin(client, request, meta, outlet);
        let unfinished = Unfinished {
            session: session.clone(),
            stream: stream.clone(),
            id: id.clone(),
        };
        // A connection that breaks is no reason to stop.
        let task = tokio::spawn(async move {
            let unfinished = unfinished;
            let answer = answering.await;
            unfinished.stream.finish(Some(answer.message));
        });
        session.running.can_stop(&id, task.abort_handle());
        let first = if self.accepts.stream {
            tokio::time::timeout(STREAM_AFTER, stream.first()).await
        } else {
            Ok(stream.first().await)
        };
        match first {
            Ok(First::Answer(answer)) if self.accepts.json => json_response(StatusCode::OK, answer),
            Ok(First::Nothing) => StatusCode::ACCEPTED.into_response(),
            _ if self.accepts.stream => {
                session.keep(stream.clone());
                // Whoever has hung up by now is let go with what it needs to come back.
                stream.read(None, primed)
            }
            _ => not_streamed(stream).await,
        }
    }
}

/// For a client that takes no stream, what comes before the answer is left out.
async fn not_streamed(stream: Arc<Stream>) -> Response {
    match stream.answer().await {
        Some(answer) => json_response(StatusCode::OK, answer),
        None => StatusCode::ACCEPTED.into_response(),
    }
}

/// A request of a session, until it has ended one way or the other.
struct Unfinished {
    session: Arc<HttpSession>,
    stream: Arc<Stream>,
    id: crate::envelope::Id,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.session.running.end(&self.id);
        self.stream.finish(None);
    }
}

/// The answer as JSON if it is all there is, else as a stream.
async fn reply(
    mut answering: Answering,
    mut said: mpsc::Receiver<Vec<u8>>,
    accepts: Accepts,
) -> Response {
    if !accepts.stream {
        return answered(answering.await);
    }
    let late = tokio::time::sleep(STREAM_AFTER);
    let first = tokio::select! {
        biased;
        // What was said is said before the answer, even where both are there at once.
        Some(first) = said.recv() => Some(first),
        answer = &mut answering, if accepts.json => match said.try_recv() {
            Err(_) => return answered(answer),
            Ok(first) => {
                let answering = Box::pin(std::future::ready(answer));
                return response(Body::new(CallBody::new(said, Some(first), answering)));
            }
        },
        () = late, if accepts.json => None,
        () = std::future::ready(()), if !accepts.json => None,
    };
    response(Body::new(CallBody::new(said, first, answering)))
}

fn answered(answer: Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    json_response(status, answer.message)
}
