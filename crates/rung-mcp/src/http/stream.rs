//! What goes out as server-sent events.
//!
//! A session's stream is a log that is read from any place: by the reply that opened it, or by a client that lost
//! that reply and comes back for the rest. A modern reply has no past; it ends with its connection.

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

use super::App;
use crate::exchange::Outlet;
use crate::server::Answering;

/// A line that says nothing goes out this often, so that nobody in between takes the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Milliseconds after which a client that lost its stream should come back.
const RETRY_MS: u32 = 1_000;
/// Bytes that a stream remembers; the oldest events make room.
const MAX_LOG_BYTES: usize = 8 << 20;
/// Messages of a modern reply that wait to be sent; what comes beyond is dropped, except the answer.
const MAX_WAITING: usize = 256;

/// The stream of one legacy request, or the one that belongs to none.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(super) number: u64,
    state: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    /// Events, and the number of the first that is remembered. The first of all is number one.
    events: VecDeque<Bytes>,
    first: u64,
    bytes: usize,
    /// The next to be sent to whoever reads without saying from where.
    unread: u64,
    finished: bool,
    /// The last event is the answer.
    answered: bool,
    /// Whoever reads now; one that was here before has gone.
    reader: u64,
    /// Whoever reads next, or now, is to come back later.
    hung_up: bool,
    waker: Option<Waker>,
}

/// What a reply can begin with.
pub(super) enum First {
    /// The answer, and nothing else was said.
    Answer(Bytes),
    /// Something comes first.
    Events,
    /// Nothing will be said: the request was cancelled.
    Nothing,
}

impl Stream {
    pub(super) fn new(number: u64) -> Arc<Self> {
        let log = Log {
            first: 1,
            unread: 1,
            ..Log::default()
        };
        Arc::new(Self {
            number,
            state: Mutex::new(log),
        })
    }

    /// The last word, if there is one. There is only one.
    pub(super) fn finish(&self, answer: Option<Vec<u8>>) {
        let mut log = self.state.lock();
        if let Some(answer) = answer.filter(|_| !log.finished) {
            push(&mut log, answer);
            log.answered = true;
        }
        log.finished = true;
        wake(&mut log);
    }

    /// Forgets what a reader would have to come back for.
    pub(super) fn limit(&self, events: usize) {
        let mut log = self.state.lock();
        while log.events.len() > events {
            forget_first(&mut log);
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.state.lock().finished
    }

    pub(super) fn is_read(&self) -> bool {
        self.state.lock().waker.is_some()
    }

    /// Waits until it is known how the reply begins.
    pub(super) async fn first(&self) -> First {
        std::future::poll_fn(|context| {
            let mut log = self.state.lock();
            Poll::Ready(match (log.finished, log.events.len()) {
                (true, 0) => First::Nothing,
                (true, 1) if log.first == 1 && log.answered && !log.hung_up => {
                    First::Answer(log.events[0].clone())
                }
                // Whoever hangs up wants a stream to hang up on.
                (_, 1..) => First::Events,
                (false, 0) if log.hung_up => First::Events,
                (false, 0) => {
                    log.waker = Some(context.waker().clone());
                    return Poll::Pending;
                }
            })
        })
        .await
    }

    /// Waits for the last word.
    pub(super) async fn answer(&self) -> Option<Bytes> {
        std::future::poll_fn(|context| {
            let mut log = self.state.lock();
            if log.finished {
                return Poll::Ready(log.events.back().filter(|_| log.answered).cloned());
            }
            log.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Reads from behind event `after`, or what nobody has read yet. Whoever read before reads no more.
    pub(super) fn read(
        self: &Arc<Self>,
        guest: Guest,
        after: Option<u64>,
        primed: bool,
    ) -> Response {
        let mut log = self.state.lock();
        log.reader += 1;
        wake(&mut log);
        let next = after.map_or(log.unread, |after| after.saturating_add(1));
        let prime = format!("id: {}-0\nretry: {RETRY_MS}\ndata: \n\n", self.number);
        let body = LogBody {
            guest,
            stream: self.clone(),
            reader: log.reader,
            next,
            prime: primed.then(|| prime.into()),
            quiet: quiet(),
        };
        response(Body::new(body))
    }
}

/// Adds an event; the oldest make room.
fn push(log: &mut Log, message: Vec<u8>) {
    log.bytes += message.len();
    log.events.push_back(message.into());
    while log.bytes > MAX_LOG_BYTES && log.events.len() > 1 {
        forget_first(log);
    }
    wake(log);
}

fn forget_first(log: &mut Log) {
    let gone = log.events.pop_front().map_or(0, |event| event.len());
    log.bytes -= gone;
    log.first += 1;
}

fn wake(log: &mut Log) {
    if let Some(waker) = log.waker.take() {
        waker.wake();
    }
}

impl Outlet for Stream {
    fn say(&self, message: Vec<u8>) {
        push(&mut self.state.lock(), message);
    }

    fn insist(&self, message: Vec<u8>) {
        self.say(message);
    }

    /// Whoever reads is let go; they come back with the last event they have seen.
    fn hang_up(&self) {
        let mut log = self.state.lock();
        log.hung_up = true;
        wake(&mut log);
    }
}

/// Whoever reads a stream, for as long as they are let in.
pub(super) struct Guest {
    pub(super) app: Arc<App>,
    pub(super) permit: Permit,
}

impl Guest {
    fn is_let_in(&self) -> bool {
        self.app.door.still_admits(&self.permit)
    }
}

/// A log, as somebody reads it.
struct LogBody {
    guest: Guest,
    stream: Arc<Stream>,
    reader: u64,
    next: u64,
    prime: Option<Bytes>,
    quiet: Pin<Box<Sleep>>,
}

impl hyper::body::Body for LogBody {
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
        if log.reader != self.reader || std::mem::take(&mut log.hung_up) || !self.guest.is_let_in()
        {
            return Poll::Ready(None);
        }
        // What is no longer remembered is skipped.
        let next = self.next.max(log.first);
        let at = usize::try_from(next - log.first).unwrap_or(usize::MAX);
        if let Some(event) = log.events.get(at) {
            let frame = event_frame(Some((stream.number, next)), event);
            self.next = next + 1;
            log.unread = log.unread.max(next + 1);
            return Poll::Ready(Some(Ok(frame)));
        }
        if log.finished {
            return Poll::Ready(None);
        }
        log.waker = Some(context.waker().clone());
        drop(log);
        poll_quiet(&mut self.quiet, context)
    }
}

/// A reader that is gone waits for nothing.
impl Drop for LogBody {
    fn drop(&mut self) {
        let mut log = self.stream.state.lock();
        if log.reader == self.reader {
            log.waker = None;
        }
    }
}

/// A modern reply: what is said on the way, then the answer. Dropped, it drops the call.
pub(super) struct CallBody {
    guest: Guest,
    said: Arc<Said>,
    answering: Option<Answering>,
    answer: Option<Vec<u8>>,
    quiet: Pin<Box<Sleep>>,
}

impl CallBody {
    pub(super) fn new(guest: Guest, said: Arc<Said>, answering: Answering) -> Self {
        Self {
            guest,
            said,
            answering: Some(answering),
            answer: None,
            quiet: quiet(),
        }
    }
}

impl hyper::body::Body for CallBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !self.guest.is_let_in() {
            return Poll::Ready(None);
        }
        if let Some(answering) = &mut self.answering
            && let Poll::Ready(answer) = answering.as_mut().poll(context)
        {
            self.answer = Some(answer.message);
            self.answering = None;
        }
        // What was said on the way goes before the answer.
        if let Poll::Ready(message) = self.said.poll_next(context) {
            return Poll::Ready(Some(Ok(event_frame(None, &message))));
        }
        if self.answering.is_none() {
            let answer = self.answer.take();
            return Poll::Ready(answer.map(|answer| Ok(event_frame(None, &answer))));
        }
        poll_quiet(&mut self.quiet, context)
    }
}

fn event_frame(id: Option<(u64, u64)>, message: &[u8]) -> Frame<Bytes> {
    let mut event = Vec::with_capacity(message.len() + 64);
    if let Some((stream, number)) = id {
        event.extend_from_slice(format!("id: {stream}-{number}\n").as_bytes());
    }
    event.extend_from_slice(b"event: message\ndata: ");
    // A message is one line: no JSON of ours, and none that came as a line, holds a bare line break.
    event.extend_from_slice(message);
    event.extend_from_slice(b"\n\n");
    Frame::data(event.into())
}

fn quiet() -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep(KEEP_ALIVE))
}

fn poll_quiet(
    quiet: &mut Pin<Box<Sleep>>,
    context: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
    if quiet.as_mut().poll(context).is_pending() {
        return Poll::Pending;
    }
    quiet.as_mut().reset(Instant::now() + KEEP_ALIVE);
    // Registers for the next time.
    let _pending = quiet.as_mut().poll(context);
    Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b": \n\n")))))
}

/// A reply that is a stream.
pub(super) fn response(body: Body) -> Response {
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

/// What is said on the way to a modern answer. Whoever does not keep up misses some of it.
#[derive(Debug, Default)]
pub(super) struct Said(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Vec<u8>>,
    waker: Option<Waker>,
}

impl Said {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().messages.is_empty()
    }

    /// Waits until something was said.
    pub(super) async fn any(&self) {
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

impl Outlet for Said {
    fn say(&self, message: Vec<u8>) {
        let mut queue = self.0.lock();
        if queue.messages.len() < MAX_WAITING {
            queue.messages.push_back(message);
        }
        if let Some(waker) = queue.waker.take() {
            waker.wake();
        }
    }

    /// A modern call asks by ending: nothing on the way is a question.
    fn insist(&self, message: Vec<u8>) {
        self.say(message);
    }
}
