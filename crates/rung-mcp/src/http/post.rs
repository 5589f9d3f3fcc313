//! POST: receives one message, and answers it with JSON or an event stream.

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

use super::guard::single_header;
use super::sessions::{HttpSession, SESSION_ID, SessionError};
use super::stream::{
    CallStreamBody, EventBuffer, ResponseStart, SessionStream, StreamAccess, event_stream_response,
};
use super::{HttpApp, IncomingRequest, json_response};
use crate::client::{Capabilities, ClientContext, RequestMeta};
use crate::client_profile::ClientProfile;
use crate::envelope::{MAX_MESSAGE_BYTES, Message, RequestId};
use crate::headers::{self, VERSION};
use crate::id_scanner::IdScanner;
use crate::protocol_error::ProtocolError;
use crate::request_context::ResponseSink;
use crate::server::{EncodedResponse, ResponseFuture, RpcRequest, error_response};
use crate::session::parse_cancelled;
use crate::version::ProtocolVersion;

/// Time limit for receiving a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of an oversized body that are scanned for the request id, after those that a message may have.
const MAX_SCANNED_BYTES: usize = 64 << 20;
/// Time after which the response becomes an event stream, which can carry other messages before the answer.
const STREAM_AFTER: Duration = Duration::from_secs(2);

pub(super) async fn post(app: &Arc<HttpApp>, permit: Permit, request: IncomingRequest) -> Response {
    let (parts, body) = request.into_parts();
    let headers = parts.headers;
    let Some(accepts) = AcceptedTypes::from_headers(&headers) else {
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
    match Message::parse(&body) {
        Err(malformed) => {
            tracing::debug!(%malformed, "not a message");
            json_response(StatusCode::BAD_REQUEST, malformed.to_response())
        }
        Ok(Message::Request { id, method, params }) => {
            tracing::debug!(%id, method = ?head(&method, 100), caller = %permit.caller(), "request");
            let request = RpcRequest {
                id,
                method: &method,
                params,
            };
            let posted = PostedRequest {
                app,
                permit,
                headers,
                accepts,
            };
            posted.handle(&request).await
        }
        Ok(Message::Notification { method, params }) => {
            let Some(session) = find_session(app, &headers, &permit) else {
                return StatusCode::ACCEPTED.into_response();
            };
            let session = match session {
                Ok(session) => session,
                Err(none) => return none.into_response(),
            };
            if let Some(id) = parse_cancelled(&method, params) {
                session.running.cancel(&id);
            }
            StatusCode::ACCEPTED.into_response()
        }
        Ok(Message::Response { id, outcome }) => {
            match find_session(app, &headers, &permit) {
                Some(Ok(session)) => session.session.deliver_answer(&id, outcome),
                Some(Err(none)) => return none.into_response(),
                None => {
                    return (
                        StatusCode::BAD_REQUEST,
                        "no request waits for this response\n",
                    )
                        .into_response();
                }
            }
            StatusCode::ACCEPTED.into_response()
        }
    }
}

/// Returns the session that a message names, if it names one and the caller may have sessions.
fn find_session(
    app: &HttpApp,
    headers: &HeaderMap,
    permit: &Permit,
) -> Option<Result<Arc<HttpSession>, SessionError>> {
    let sessions = app.sessions_for(permit)?;
    headers
        .contains_key(&SESSION_ID)
        .then(|| sessions.find(headers, permit))
}

async fn read_body(mut body: Incoming) -> Result<Bytes, Response> {
    let reading = async {
        let mut read = Bytes::new();
        while let Some(piece) = next_chunk(&mut body).await? {
            if read.len() + piece.len() > MAX_MESSAGE_BYTES {
                return Err(scan_oversized(&[&read, &piece], &mut body).await);
            }
            // Most bodies arrive in one piece, which is not copied.
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
    // Most bodies are complete at the second poll, and need no timer.
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
            read.unwrap_or(Err(BodyError::TimedOut))
        }
    };
    read.map_err(BodyError::into_response)
}

/// Scans the rest of an oversized body for the request id, which many clients write last. Stops after
/// [`MAX_SCANNED_BYTES`].
async fn scan_oversized(read: &[&Bytes], body: &mut Incoming) -> BodyError {
    let mut scanner = IdScanner::default();
    for piece in read {
        scanner.push(piece);
    }
    let mut left = MAX_SCANNED_BYTES;
    while let Ok(Some(piece)) = next_chunk(body).await {
        scanner.push(&piece);
        let Some(less) = left.checked_sub(piece.len()) else {
            break;
        };
        left = less;
    }
    BodyError::TooLong(scanner.into_id())
}

async fn next_chunk(body: &mut Incoming) -> Result<Option<Bytes>, BodyError> {
    let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
    let frame = frame.transpose().map_err(|_| BodyError::Interrupted)?;
    Ok(frame.map(|frame| frame.into_data().unwrap_or_default()))
}

/// Why a body could not be read to its end.
enum BodyError {
    Interrupted,
    TimedOut,
    /// With the id, if it is a request.
    TooLong(Option<RequestId>),
}

impl BodyError {
    fn into_response(self) -> Response {
        let mut response = match self {
            Self::Interrupted => {
                (StatusCode::BAD_REQUEST, "the body ended early\n").into_response()
            }
            Self::TimedOut => (
                StatusCode::REQUEST_TIMEOUT,
                "the body did not arrive in time\n",
            )
                .into_response(),
            Self::TooLong(id) => {
                let refusal = error_response(id.as_ref(), &ProtocolError::message_too_long());
                json_response(StatusCode::PAYLOAD_TOO_LARGE, refusal.message)
            }
        };
        // The rest of the body would be read as the next request.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
        response
    }
}

/// The response types that a client accepts.
#[derive(Clone, Copy)]
pub(super) struct AcceptedTypes {
    json: bool,
    pub(super) stream: bool,
}

/// The Accept header of nearly every client.
const COMMON_ACCEPT: &str = "application/json, text/event-stream";

impl AcceptedTypes {
    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
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
            if value == COMMON_ACCEPT {
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

/// A request, with the permit and headers that it came with.
struct PostedRequest<'a> {
    app: &'a Arc<HttpApp>,
    permit: Permit,
    headers: HeaderMap,
    accepts: AcceptedTypes,
}

impl PostedRequest<'_> {
    async fn handle(self, request: &RpcRequest<'_>) -> Response {
        let meta = match RequestMeta::parse(request.params) {
            Ok(meta) => meta,
            Err(refusal) => return json_answer(error_response(Some(&request.id), &refusal)),
        };
        if self.is_modern(&meta, request.method) {
            return self.handle_modern(request, &meta).await;
        }
        if request.method == "initialize" {
            return self.initialize(request).await;
        }
        let Some(sessions) = self.app.sessions_for(&self.permit) else {
            return self.handle_stateless(request, &meta).await;
        };
        match sessions.find(&self.headers, &self.permit) {
            Ok(session) => self.handle_legacy(&session, request, &meta).await,
            Err(SessionError::MissingId) => {
                let answer = error_response(
                    Some(&request.id),
                    &ProtocolError::uninitialized(request.method),
                );
                json_response(StatusCode::BAD_REQUEST, answer.message)
            }
            Err(none) => none.into_response(),
        }
    }

    /// Returns true if the request names its version in `_meta`, or its method or header calls for a modern version.
    fn is_modern(&self, meta: &RequestMeta<'_>, method: &str) -> bool {
        if meta.version.is_some() || method == "server/discover" {
            return true;
        }
        let named = single_header(&self.headers, &VERSION);
        let sessionless = method != "initialize" && !self.headers.contains_key(&SESSION_ID);
        named.is_some_and(|named| {
            ProtocolVersion::parse(named).map_or(sessionless, ProtocolVersion::is_modern)
        })
    }

    async fn handle_modern(self, request: &RpcRequest<'_>, meta: &RequestMeta<'_>) -> Response {
        let checked = headers::check_request(&self.headers, meta, request.method, request.params);
        let (version, capabilities, log_level) =
            match checked.and_then(|()| meta.modern_declaration()) {
                Ok(declared) => declared,
                Err(refusal) => return json_answer(error_response(Some(&request.id), &refusal)),
            };
        if request.method == "subscriptions/listen" && !self.accepts.stream {
            let why = "subscriptions/listen returns a stream: accept text/event-stream\n";
            return (StatusCode::NOT_ACCEPTABLE, why).into_response();
        }
        let guest = self.stream_access();
        let client = ClientContext {
            permit: self.permit,
            version,
            capabilities,
            profile: ClientProfile::of_client_info(meta.client_info),
            log_level,
            session: None,
            conversation: None,
            headers: Some(self.headers),
        };
        let said = EventBuffer::new();
        let answering = self
            .app
            .server
            .start_request(client, request, meta, said.clone());
        json_or_stream(answering, said, guest, self.accepts).await
    }

    /// Serves a legacy request that belongs to no session.
    async fn handle_stateless(self, request: &RpcRequest<'_>, meta: &RequestMeta<'_>) -> Response {
        let named = single_header(&self.headers, &VERSION).and_then(ProtocolVersion::parse);
        // The protocol assumes 2025-03-26 of a client that names no version. A caller that gets no session had no chance to
        // name one in `initialize`, and can ignore what 2025-06-18 adds.
        let unsaid = if self.app.guard.is_stateless(&self.permit) {
            ProtocolVersion::V2025_06_18
        } else {
            ProtocolVersion::V2025_03_26
        };
        let guest = self.stream_access();
        let client = ClientContext {
            permit: self.permit,
            version: named.unwrap_or(unsaid),
            capabilities: Capabilities::default(),
            profile: ClientProfile::of_user_agent(&self.headers),
            log_level: None,
            session: None,
            conversation: None,
            headers: None,
        };
        let said = EventBuffer::new();
        let answering = self
            .app
            .server
            .start_request(client, request, meta, said.clone());
        json_or_stream(answering, said, guest, self.accepts).await
    }

    async fn initialize(self, request: &RpcRequest<'_>) -> Response {
        let guest = self.stream_access();
        let (server, sessions) = (&self.app.server, self.app.sessions_for(&self.permit));
        let tells = sessions.is_some();
        let session = match server.open_session(self.permit, &request.id, request.params) {
            Ok(session) => session,
            Err(answer) => return json_response(StatusCode::BAD_REQUEST, answer.message),
        };
        let answer = server
            .initialize_response(&session, &request.id, tells)
            .await;
        let mut response = if self.accepts.json {
            json_response(StatusCode::OK, answer.message)
        } else {
            let answering = Box::pin(std::future::ready(answer));
            event_stream_response(Body::new(CallStreamBody::new(
                guest,
                EventBuffer::new(),
                answering,
            )))
        };
        if let Some(sessions) = sessions {
            let id = sessions.insert(session);
            let Some(id) = id.and_then(|id| HeaderValue::from_str(&id).ok()) else {
                return StatusCode::SERVICE_UNAVAILABLE.into_response();
            };
            response.headers_mut().insert(SESSION_ID, id);
        }
        response
    }

    async fn handle_legacy(
        self,
        session: &Arc<HttpSession>,
        request: &RpcRequest<'_>,
        meta: &RequestMeta<'_>,
    ) -> Response {
        let id = request.id.clone();
        let number = match session.running.register(&id) {
            Ok(number) => number,
            Err(refusal) => {
                return json_response(StatusCode::OK, error_response(Some(&id), &refusal).message);
            }
        };
        let guest = self.stream_access();
        let mut client = ClientContext::from_session(self.permit, &session.session);
        if !self.accepts.stream {
            client.capabilities = client.capabilities.without_questions();
        }
        let primed = client.version >= ProtocolVersion::V2025_11_25;
        let stream = session.new_stream();
        let outlet: Arc<dyn ResponseSink> = stream.clone();
        let answering = self.app.server.start_request(client, request, meta, outlet);
        let unfinished = UnfinishedRequest {
            session: session.clone(),
            stream: stream.clone(),
            id: id.clone(),
            number,
        };
        // Spawned so that the request survives a broken connection.
        let task = tokio::spawn(async move {
            let answer = answering.await;
            unfinished.finish(answer.message);
        });
        session
            .running
            .set_abort_handle(&id, number, task.abort_handle());
        // Most requests are done after one turn, and need no timer.
        tokio::task::yield_now().await;
        let first = if self.accepts.stream {
            tokio::time::timeout(STREAM_AFTER, stream.wait_for_start()).await
        } else {
            Ok(stream.wait_for_start().await)
        };
        match first {
            Ok(ResponseStart::Answer(answer)) if self.accepts.json => {
                json_response(StatusCode::OK, answer)
            }
            // The request was cancelled: its client expects a stream that ends without an answer.
            Ok(ResponseStart::Cancelled) if self.accepts.stream => {
                event_stream_response(Body::empty())
            }
            _ if self.accepts.stream => {
                session.keep_stream(stream.clone());
                // If the call has hung up by now, the stream ends after the event that lets the client reconnect.
                stream.open_reader(guest, None, primed)
            }
            // A client that accepts no stream gets the answer without the messages before it.
            _ => match stream.wait_for_answer().await {
                Some(answer) => json_response(StatusCode::OK, answer),
                None => StatusCode::ACCEPTED.into_response(),
            },
        }
    }

    fn stream_access(&self) -> StreamAccess {
        StreamAccess {
            app: self.app.clone(),
            permit: self.permit.clone(),
        }
    }
}

/// A running request of a session. Dropping it ends the request without an answer.
struct UnfinishedRequest {
    session: Arc<HttpSession>,
    stream: Arc<SessionStream>,
    id: crate::envelope::RequestId,
    number: u64,
}

impl UnfinishedRequest {
    fn finish(self, answer: Vec<u8>) {
        let running = &self.session.running;
        running.finish(&self.id, self.number, || self.stream.finish(Some(answer)));
    }
}

impl Drop for UnfinishedRequest {
    fn drop(&mut self) {
        self.session.running.finish(&self.id, self.number, || {});
        self.stream.finish(None);
    }
}

/// Responds with JSON if the answer is the only message, else with an event stream.
async fn json_or_stream(
    mut answering: ResponseFuture,
    said: Arc<EventBuffer>,
    guest: StreamAccess,
    accepts: AcceptedTypes,
) -> Response {
    if !accepts.stream {
        return json_answer(answering.await);
    }
    if accepts.json {
        // Most answers are ready at once, and need no timer.
        let at_once = poll_fn(|context| Poll::Ready(answering.as_mut().poll(context))).await;
        let first = match at_once {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => tokio::select! {
                biased;
                () = said.wait_until_filled() => None,
                answer = &mut answering => Some(answer),
                () = tokio::time::sleep(STREAM_AFTER) => None,
            },
        };
        // Buffered messages precede the answer, even if both are ready.
        match first {
            Some(answer) if said.is_empty() => return json_answer(answer),
            Some(answer) => answering = Box::pin(std::future::ready(answer)),
            None => {}
        }
    }
    event_stream_response(Body::new(CallStreamBody::new(guest, said, answering)))
}

fn json_answer(answer: EncodedResponse) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    json_response(status, answer.message)
}
