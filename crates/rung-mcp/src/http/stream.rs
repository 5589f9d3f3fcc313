//! Server-sent event streams.
//!
//! A session's stream is a log that can be read from any event: by the response that opened it, or by a client that
//! lost that response and resumes it. A modern response cannot be resumed; it ends with its connection.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use parking_lot::Mutex;
use rung_auth::Permit;
use tokio::time::{Instant, Sleep};

use super::HttpApp;
use crate::request_context::ResponseSink;
use crate::server::ResponseFuture;

/// Interval of empty comments, which keep intermediaries from closing the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Milliseconds after which a client that lost its stream should reconnect.
const RETRY_MS: u32 = 1_000;
/// Bytes of events that a stream keeps. Beyond that, the oldest events are dropped.
const MAX_LOG_BYTES: usize = 8 << 20;
/// Messages that a modern response buffers. Further messages are dropped, except the answer.
const MAX_WAITING: usize = 256;

/// The stream of one legacy request, or the standalone stream of a session.
#[derive(Debug)]
pub(crate) struct SessionStream {
    pub(super) number: u64,
    state: Mutex<EventLog>,
}

#[derive(Debug, Default)]
struct EventLog {
    /// Events, and the number of the oldest one that is kept. Numbers start at 1.
    events: VecDeque<Bytes>,
    first_number: u64,
    bytes: usize,
    /// Number of the next event for a reader that names no event.
    next_unread: u64,
    is_finished: bool,
    /// True if the last event is the answer.
    has_answer: bool,
    /// Number of the current reader. Earlier readers are ended.
    current_reader: u64,
    /// True if the current or next reader is to be ended and has to reconnect.
    is_hung_up: bool,
    waker: Option<Waker>,
}

/// What a response begins with.
pub(super) enum ResponseStart {
    /// The answer, with no other message.
    Answer(Bytes),
    /// Other events, or a hang-up: an event stream is needed.
    Events,
    /// Nothing: the request was cancelled.
    Cancelled,
}

impl SessionStream {
    pub(super) fn new(number: u64) -> Arc<Self> {
        let log = EventLog {
            first_number: 1,
            next_unread: 1,
            ..EventLog::default()
        };
        Arc::new(Self {
            number,
            state: Mutex::new(log),
        })
    }

    /// Ends the stream, with the answer if there is one. Only the first answer counts.
    pub(super) fn finish(&self, answer: Option<Vec<u8>>) {
        let mut log = self.state.lock();
        if let Some(answer) = answer.filter(|_| !log.is_finished) {
            push_event(&mut log, answer);
            log.has_answer = true;
        }
        log.is_finished = true;
        wake(&mut log);
    }

    /// Drops all but the latest `events`.
    pub(super) fn limit(&self, events: usize) {
        let mut log = self.state.lock();
        while log.events.len() > events {
            drop_oldest(&mut log);
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.state.lock().is_finished
    }

    pub(super) fn is_read(&self) -> bool {
        self.state.lock().waker.is_some()
    }

    /// Waits until it is known what the response begins with.
    pub(super) async fn wait_for_start(&self) -> ResponseStart {
        std::future::poll_fn(|context| {
            let mut log = self.state.lock();
            Poll::Ready(match (log.is_finished, log.events.len()) {
                (true, 0) => ResponseStart::Cancelled,
                (true, 1) if log.first_number == 1 && log.has_answer && !log.is_hung_up => {
                    ResponseStart::Answer(log.events[0].clone())
                }
                // A call that hangs up needs a stream to end.
                (_, 1..) => ResponseStart::Events,
                (false, 0) if log.is_hung_up => ResponseStart::Events,
                (false, 0) => {
                    log.waker = Some(context.waker().clone());
                    return Poll::Pending;
                }
            })
        })
        .await
    }

    /// Waits for the answer. `None` if the stream ends without one.
    pub(super) async fn wait_for_answer(&self) -> Option<Bytes> {
        std::future::poll_fn(|context| {
            let mut log = self.state.lock();
            if log.is_finished {
                return Poll::Ready(log.events.back().filter(|_| log.has_answer).cloned());
            }
            log.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Reads the events after number `after`, or those not read yet. Ends the previous reader.
    pub(super) fn open_reader(
        self: &Arc<Self>,
        guest: StreamAccess,
        after: Option<u64>,
        primed: bool,
    ) -> Response {
        let mut log = self.state.lock();
        log.current_reader += 1;
        wake(&mut log);
        let next = after.map_or(log.next_unread, |after| after.saturating_add(1));
        let prime = format!("id: {}-0\nretry: {RETRY_MS}\ndata: \n\n", self.number);
        let body = EventLogBody {
            access: guest,
            stream: self.clone(),
            reader: log.current_reader,
            next,
            prime: primed.then(|| prime.into()),
            quiet: keep_alive_timer(),
        };
        event_stream_response(Body::new(body))
    }
}

/// Adds an event, and drops the oldest beyond [`MAX_LOG_BYTES`].
fn push_event(log: &mut EventLog, message: Vec<u8>) {
    log.bytes += message.len();
    log.events.push_back(message.into());
    while log.bytes > MAX_LOG_BYTES && log.events.len() > 1 {
        drop_oldest(log);
    }
    wake(log);
}

fn drop_oldest(log: &mut EventLog) {
    let gone = log.events.pop_front().map_or(0, |event| event.len());
    log.bytes -= gone;
    log.first_number += 1;
}

fn wake(log: &mut EventLog) {
    if let Some(waker) = log.waker.take() {
        waker.wake();
    }
}

impl ResponseSink for SessionStream {
    fn send_lossy(&self, message: Vec<u8>) {
        push_event(&mut self.state.lock(), message);
    }

    fn send(&self, message: Vec<u8>) {
        self.send_lossy(message);
    }

    /// Ends the current reader, whose client reconnects with the last event that it has seen.
    fn disconnect(&self) {
        let mut log = self.state.lock();
        log.is_hung_up = true;
        wake(&mut log);
    }
}

/// The permit of a stream's reader. The stream ends when the permit does.
pub(super) struct StreamAccess {
    pub(super) app: Arc<HttpApp>,
    pub(super) permit: Permit,
}

impl StreamAccess {
    fn is_still_valid(&self) -> bool {
        self.app.guard.is_still_valid(&self.permit)
    }
}

/// Response body of one reader of a log.
struct EventLogBody {
    access: StreamAccess,
    stream: Arc<SessionStream>,
    reader: u64,
    next: u64,
    prime: Option<Bytes>,
    quiet: Pin<Box<Sleep>>,
}

impl hyper::body::Body for EventLogBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(prime) = self.prime.take() {
            return Poll::Ready(Some(Ok(Frame::data(prime))));
        }
        let stream = self.stream.clone();
        let mut log = stream.state.lock();
        if log.current_reader != self.reader
            || std::mem::take(&mut log.is_hung_up)
            // A revoked token ends its streams.
            || !self.access.is_still_valid()
        {
            return Poll::Ready(None);
        }
        // Dropped events are skipped.
        let next = self.next.max(log.first_number);
        let at = usize::try_from(next - log.first_number).unwrap_or(usize::MAX);
        if let Some(event) = log.events.get(at) {
            let frame = event_frame(Some((stream.number, next)), event);
            self.next = next + 1;
            log.next_unread = log.next_unread.max(next + 1);
            return Poll::Ready(Some(Ok(frame)));
        }
        if log.is_finished {
            return Poll::Ready(None);
        }
        log.waker = Some(context.waker().clone());
        drop(log);
        poll_keep_alive(&mut self.quiet, context)
    }
}

/// Clears the waker of the reader that is gone.
impl Drop for EventLogBody {
    fn drop(&mut self) {
        let mut log = self.stream.state.lock();
        if log.current_reader == self.reader {
            log.waker = None;
        }
    }
}

/// Body of a modern response: messages, then the answer. Dropping it drops the call.
pub(super) struct CallStreamBody {
    access: StreamAccess,
    buffer: Arc<EventBuffer>,
    response: Option<ResponseFuture>,
    answer: Option<Vec<u8>>,
    quiet: Pin<Box<Sleep>>,
}

impl CallStreamBody {
    pub(super) fn new(
        access: StreamAccess,
        buffer: Arc<EventBuffer>,
        answering: ResponseFuture,
    ) -> Self {
        Self {
            access,
            buffer,
            response: Some(answering),
            answer: None,
            quiet: keep_alive_timer(),
        }
    }
}

impl hyper::body::Body for CallStreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // A revoked token ends its streams.
        if !self.access.is_still_valid() {
            return Poll::Ready(None);
        }
        if let Some(answering) = &mut self.response
            && let Poll::Ready(answer) = answering.as_mut().poll(context)
        {
            self.answer = Some(answer.message);
            self.response = None;
        }
        // Buffered messages precede the answer.
        if let Poll::Ready(message) = self.buffer.poll_next(context) {
            return Poll::Ready(Some(Ok(event_frame(None, &message))));
        }
        if self.response.is_none() {
            let answer = self.answer.take();
            return Poll::Ready(answer.map(|answer| Ok(event_frame(None, &answer))));
        }
        poll_keep_alive(&mut self.quiet, context)
    }
}

fn event_frame(id: Option<(u64, u64)>, message: &[u8]) -> Frame<Bytes> {
    let mut event = Vec::with_capacity(message.len() + 64);
    if let Some((stream, number)) = id {
        event.extend_from_slice(format!("id: {stream}-{number}\n").as_bytes());
    }
    event.extend_from_slice(b"event: message\ndata: ");
    // A message is one line: neither Rung's own JSON nor JSON received as a line contains a bare line break.
    event.extend_from_slice(message);
    event.extend_from_slice(b"\n\n");
    Frame::data(event.into())
}

fn keep_alive_timer() -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep(KEEP_ALIVE))
}

fn poll_keep_alive(
    quiet: &mut Pin<Box<Sleep>>,
    context: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
    if quiet.as_mut().poll(context).is_pending() {
        return Poll::Pending;
    }
    quiet.as_mut().reset(Instant::now() + KEEP_ALIVE);
    // Registers the waker for the next comment.
    let _pending = quiet.as_mut().poll(context);
    Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b": \n\n")))))
}

/// Returns a response with an event stream as its body.
pub(super) fn event_stream_response(body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-transform"),
    );
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Messages before the answer of a modern request. A client that does not keep up misses some.
#[derive(Debug, Default)]
pub(super) struct EventBuffer(Mutex<BufferedEvents>);

#[derive(Debug, Default)]
struct BufferedEvents {
    messages: VecDeque<Vec<u8>>,
    waker: Option<Waker>,
}

impl EventBuffer {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().messages.is_empty()
    }

    /// Waits until a message is buffered.
    pub(super) async fn wait_until_filled(&self) {
        std::future::poll_fn(|context| {
            let mut queue = self.0.lock();
            if queue.messages.is_empty() {
                queue.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    fn poll_next(&self, context: &Context<'_>) -> Poll<Vec<u8>> {
        let mut queue = self.0.lock();
        if let Some(message) = queue.messages.pop_front() {
            return Poll::Ready(message);
        }
        queue.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl ResponseSink for EventBuffer {
    fn send_lossy(&self, message: Vec<u8>) {
        let mut queue = self.0.lock();
        if queue.messages.len() < MAX_WAITING {
            queue.messages.push_back(message);
        }
        if let Some(waker) = queue.waker.take() {
            waker.wake();
        }
    }

    /// A modern question ends its request, so no buffered message is one, and all may be dropped.
    fn send(&self, message: Vec<u8>) {
        self.send_lossy(message);
    }
}
