//! One client over two pipes: one message per line, and nothing but messages.
//!
//! A thread reads requests and starts them itself; most are answered on that thread, with no other thread woken.
//! Requests that have to wait continue in the runtime. One thread writes at a time: the reader writes directly while
//! no other thread does, all other messages queue. While a client does not read, its requests are not read either.

use std::collections::VecDeque;
use std::io::{self, BufRead, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rung_auth::Permit;
use rung_ladder::head;
use rung_tool::{ChangeReceiver, ChangeSender, Conversation};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::client::{ClientContext, RequestMeta};
use crate::client_profile::ClientProfile;
use crate::envelope::{MAX_MESSAGE_BYTES, Message, RequestId};
use crate::id_scanner::IdScanner;
use crate::protocol_error::{ProtocolError, Result};
use crate::request_context::ResponseSink;
use crate::server::{EncodedResponse, McpServer, ResponseFuture, RpcRequest};
use crate::session::{LegacySession, Phase, RunningRequests, parse_cancelled};

/// Queued messages above which nothing more is read.
const MAX_WAITING: usize = 256;
/// Queued messages above which messages that may be dropped are dropped.
const MAX_WAITING_LOSSY: usize = 1_024;
/// Time for running calls to finish after the client is gone.
const GRACE: Duration = Duration::from_secs(30);
/// Interval at which the output is checked for a reader during that time.
const READER_CHECK: Duration = Duration::from_millis(100);
/// Time limit for writing the last answers.
const FLUSH: Duration = Duration::from_secs(5);

/// Serves until `input` ends, `output` breaks or `stop` completes. Running calls then finish, as long as the output is
/// read.
pub async fn serve<R, W>(
    server: McpServer,
    permit: Permit,
    input: R,
    output: W,
    stop: impl Future<Output = ()>,
) where
    R: BufRead + Send + 'static,
    W: Write + AsFd + Send + 'static,
{
    let connection = StdioConnection::new(server, permit, StdioOutput::new(output, None));
    let changes = connection.subscribe_changes();
    let ended = Arc::new(Notify::new());
    {
        let (connection, ended) = (connection.clone(), NotifyOnDrop(ended.clone()));
        std::thread::spawn(move || {
            // Notifies even if reading panics.
            let _ended = ended;
            connection.read_lines(input);
        });
    }
    let reading = async move { ended.notified().await };
    run_until_closed(connection, changes, reading, stop).await;
}

/// Serves on the standard input and output of this process. If both are pipes, no thread reads in between: a server
/// that mostly waits for others then wakes once for a request and once for what it waits for.
pub async fn serve_process_stdio(
    server: McpServer,
    permit: Permit,
    stop: impl Future<Output = ()>,
) {
    #[cfg(target_os = "linux")]
    match (
        process_pipes::PipeInput::new(),
        process_pipes::stdout_backpressure(),
    ) {
        (Ok(input), Some(room)) => {
            let output = StdioOutput::new(io::stdout(), Some(room));
            let connection = StdioConnection::new(server, permit, output);
            let changes = connection.subscribe_changes();
            let reading = input.read_lines(connection.clone());
            return run_until_closed(connection.clone(), changes, reading, stop).await;
        }
        (Err(error), _) => tracing::debug!(%error, "cannot wait for input"),
        (Ok(_), None) => {}
    }
    let input = io::BufReader::with_capacity(64 << 10, io::stdin());
    serve(server, permit, input, io::stdout(), stop).await;
}

/// Serves until the input ends, the output breaks or `stop` completes; then lets running calls finish.
async fn run_until_closed(
    connection: Arc<StdioConnection>,
    changes: Option<ChangeReceiver>,
    reading: impl Future<Output = ()>,
    stop: impl Future<Output = ()>,
) {
    let server = connection.server.clone();
    let pump = tokio::spawn(forward_changes(connection.clone(), changes));
    let output = connection.output.clone();
    tokio::select! {
        () = reading => {}
        () = output.wait_until_broken() => connection.running.cancel_all(),
        () = stop => {}
    }
    server.shut_down();
    pump.abort();
    // No more answers are read, so open questions fail.
    if let Some(session) = connection.session.lock().as_ref() {
        session.close();
    }
    connection.conversation.end();
    // Waiting blocks a thread, and the runtime must keep running.
    let waited = tokio::task::spawn_blocking(move || {
        let until = Instant::now() + GRACE;
        while connection.running.is_busy() && Instant::now() < until {
            if connection.output.is_reader_gone() {
                connection.running.cancel_all();
            }
            connection.running.wait_until_idle(READER_CHECK);
        }
        connection.output.flush(FLUSH);
        connection.output.close();
    });
    let _done = waited.await;
}

/// Notifies on drop that the reader has ended.
struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// State of the connection: its session and its running requests.
struct StdioConnection {
    server: McpServer,
    permit: Permit,
    output: Arc<StdioOutput>,
    session: Mutex<Option<Arc<LegacySession>>>,
    /// Conversation of the requests that belong to no session.
    conversation: Conversation,
    running: RunningRequests,
    runtime: Handle,
}

impl StdioConnection {
    fn new(server: McpServer, permit: Permit, output: Arc<StdioOutput>) -> Arc<Self> {
        Arc::new(Self {
            server,
            permit,
            output,
            session: Mutex::default(),
            conversation: Conversation::start(),
            running: RunningRequests::default(),
            runtime: Handle::current(),
        })
    }

    /// Subscribes to changes. Called before anything is read, so that a subscribing client misses none.
    fn subscribe_changes(&self) -> Option<ChangeReceiver> {
        self.server
            .0
            .config
            .changes
            .as_ref()
            .map(ChangeSender::subscribe)
    }

    fn read_lines(self: &Arc<Self>, mut input: impl BufRead) {
        let _runtime = self.runtime.enter();
        let mut line = Vec::new();
        loop {
            self.output.wait_for_space();
            match next_line(&mut input, &mut line) {
                // Input that arrives after the shutdown began is ignored.
                _ if self.server.0.shutdown.is_cancelled() => return,
                Ok(ReadLine::Whole) if line.trim_ascii().is_empty() => {}
                Ok(ReadLine::Whole) => self.handle_message(&line),
                Ok(ReadLine::TooLong(id)) => {
                    self.write_error(id.as_ref(), &ProtocolError::message_too_long());
                }
                Ok(ReadLine::End) => return,
                Err(error) => {
                    tracing::warn!(%error, "reading the input failed");
                    return;
                }
            }
            // Releases the memory of a large message.
            line.clear();
            line.shrink_to(64 << 10);
        }
    }

    fn handle_message(self: &Arc<Self>, line: &[u8]) {
        match Message::parse(line) {
            Err(malformed) => {
                tracing::debug!(%malformed, "not a message");
                self.write_error(malformed.id(), &ProtocolError::from(&malformed));
            }
            Ok(Message::Request { id, method, params }) => {
                tracing::debug!(%id, method = ?head(&method, 100), "request");
                let request = RpcRequest {
                    id,
                    method: &method,
                    params,
                };
                self.handle_request(&request);
            }
            Ok(Message::Notification { method, .. })
                if self.server.is_strict() && !method.starts_with("notifications/") =>
            {
                let refusal =
                    ProtocolError::invalid_request("a request must have an id").with_field("id");
                self.write_error(None, &refusal);
            }
            Ok(Message::Response { id, .. }) if self.server.is_strict() => {
                let why = "no request waits for this response";
                self.write_error(Some(&id), &ProtocolError::invalid_request(why));
            }
            Ok(Message::Notification { method, params }) => {
                tracing::debug!(method = ?head(&method, 100), "notification");
                self.handle_notification(&method, params);
            }
            Ok(Message::Response { id, outcome }) => {
                if let Some(session) = self.session.lock().clone() {
                    session.deliver_answer(&id, outcome);
                }
            }
        }
    }

    fn handle_request(self: &Arc<Self>, request: &RpcRequest<'_>) {
        let id = request.id.clone();
        let number = match self.running.register(&id) {
            Ok(number) => number,
            Err(refusal) => return self.write_error(Some(&id), &refusal),
        };
        let begun = std::panic::catch_unwind(AssertUnwindSafe(|| self.start_request(request)));
        let bug = |_| {
            Err(self
                .server
                .error_response(Some(&id), &ProtocolError::bug())
                .message)
        };
        let mut answering = match begun.unwrap_or_else(bug) {
            Ok(answering) => answering,
            Err(message) => return self.write_response(&id, number, message),
        };
        // This poll needs no waker: a future that is not ready is polled again in the runtime.
        match answering
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(answer) => self.write_response(&id, number, answer.message),
            Poll::Pending => {
                let (connection, ended) = (self.clone(), id.clone());
                let task = self.runtime.spawn(async move {
                    let answer = answering.await;
                    let answered = || connection.output.send(answer.message);
                    connection.running.finish(&ended, number, answered);
                });
                self.running
                    .set_abort_handle(&id, number, task.abort_handle());
            }
        }
    }

    /// Writes an error, from the reading thread, for a message that is not registered as a running request.
    fn write_error(&self, id: Option<&RequestId>, refusal: &ProtocolError) {
        self.output
            .write_through(self.server.error_response(id, refusal).message);
    }

    /// Writes a response from the reading thread. To block no other request's end while writing, it claims the output,
    /// then ends the request, then writes.
    fn write_response(&self, id: &RequestId, number: u64, message: Vec<u8>) {
        if self.output.has_space.is_some() {
            return self
                .running
                .finish(id, number, || self.output.send(message));
        }
        let ours = self.output.claim(message);
        self.running.finish(id, number, || {});
        if let Some(message) = ours {
            self.output.write([message]);
        }
    }

    /// Starts a request, or returns its encoded response as the error.
    fn start_request(&self, request: &RpcRequest<'_>) -> Result<ResponseFuture, Vec<u8>> {
        let refuse = |refusal: &ProtocolError| {
            self.server
                .error_response(Some(&request.id), refusal)
                .message
        };
        let meta = RequestMeta::parse(request.params).map_err(|refusal| refuse(&refusal))?;
        let client = if meta.version.is_some() || request.method == "server/discover" {
            let (version, capabilities, log_level) = meta
                .modern_declaration()
                .map_err(|refusal| refuse(&refusal))?;
            ClientContext {
                permit: self.permit.clone(),
                version,
                capabilities,
                profile: ClientProfile::of_client_info(meta.client_info),
                log_level,
                session: None,
                conversation: Some(self.conversation.clone()),
                headers: None,
            }
        } else if request.method == "initialize" {
            return self.initialize(request);
        } else {
            let session = self.session.lock().clone();
            let session =
                session.ok_or_else(|| refuse(&ProtocolError::uninitialized(request.method)))?;
            let early = session.phase() == Phase::Initializing && request.method != "ping";
            if early && self.server.is_strict() {
                return Err(refuse(&ProtocolError::not_ready(request.method)));
            }
            ClientContext::from_session(self.permit.clone(), &session)
        };
        let outlet = self.output.clone();
        Ok(self.server.start_request(client, request, &meta, outlet))
    }

    fn initialize(&self, request: &RpcRequest<'_>) -> Result<ResponseFuture, Vec<u8>> {
        let refuse = |refused: EncodedResponse| refused.message;
        let mut slot = self.session.lock();
        if let Some(session) = &*slot {
            let refusal = ProtocolError::already_initialized(session.phase());
            return Err(refuse(
                self.server.error_response(Some(&request.id), &refusal),
            ));
        }
        let permit = self.permit.clone();
        let opened = self
            .server
            .open_session(permit, &request.id, request.params);
        let session = opened.map_err(refuse)?;
        *slot = Some(session.clone());
        let (server, id) = (self.server.clone(), request.id.clone());
        Ok(Box::pin(async move {
            server.initialize_response(&session, &id, true).await
        }))
    }

    fn handle_notification(&self, method: &str, params: Option<&RawValue>) {
        if let Some(id) = parse_cancelled(method, params) {
            self.running.cancel(&id);
        } else if method == "notifications/initialized"
            && let Some(session) = &*self.session.lock()
        {
            session.set_ready();
        }
    }
}

async fn forward_changes(connection: Arc<StdioConnection>, changes: Option<ChangeReceiver>) {
    let Some(mut changes) = changes else { return };
    loop {
        let change = changes.next().await;
        let session = connection.session.lock().clone();
        for message in session
            .iter()
            .flat_map(|session| session.messages_for(&change))
        {
            connection.output.send_lossy(message);
        }
    }
}

enum ReadLine {
    Whole,
    /// With the id, if it is a request.
    TooLong(Option<RequestId>),
    End,
}

/// Appends part of a line. A line that becomes too long is dropped and only scanned for its id.
fn append_part(line: &mut Vec<u8>, part: &[u8], too_long: &mut Option<IdScanner>) {
    if too_long.is_none() && line.len() + part.len() > MAX_MESSAGE_BYTES {
        too_long.get_or_insert_default().push(line);
        line.clear();
    }
    match too_long {
        Some(scanner) => scanner.push(part),
        None => line.extend_from_slice(part),
    }
}

/// Reads up to the next line break. A line that is too long is skipped.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<ReadLine> {
    let mut too_long: Option<IdScanner> = None;
    loop {
        let available = match input.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if available.is_empty() {
            // The last line need not end with a line break.
            return Ok(match too_long {
                Some(scanner) => ReadLine::TooLong(scanner.into_id()),
                None if line.is_empty() => ReadLine::End,
                None => ReadLine::Whole,
            });
        }
        let end = memchr::memchr(b'\n', available);
        let part = &available[..end.unwrap_or(available.len())];
        let taken = part.len() + usize::from(end.is_some());
        append_part(line, part, &mut too_long);
        input.consume(taken);
        if end.is_some() {
            return Ok(match too_long {
                Some(scanner) => ReadLine::TooLong(scanner.into_id()),
                None => ReadLine::Whole,
            });
        }
    }
}

struct StdioOutput {
    state: Mutex<OutputQueue>,
    changed: Condvar,
    writer: Mutex<Box<dyn Write + Send>>,
    break_notify: Notify,
    /// Descriptor of the output, to detect that its reader is gone.
    output_fd: Option<OwnedFd>,
    /// Returns true if so many bytes can be written without blocking. `None` if that cannot be determined.
    has_space: Option<Backpressure>,
}

type Backpressure = Box<dyn Fn(usize) -> bool + Send + Sync>;

/// Standard input and output of this process, as pipes.
#[cfg(target_os = "linux")]
mod process_pipes {
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::net::unix::pipe;

    use super::{Backpressure, StdioConnection, append_part};
    use crate::id_scanner::IdScanner;
    use crate::protocol_error::ProtocolError;

    /// Bytes that are read at once.
    const READ_BYTES: usize = 64 << 10;
    /// Interval at which a congested output is checked.
    const CONGESTION_CHECK: Duration = Duration::from_millis(5);
    /// Space that a pipe may waste at most: it allocates whole pages.
    const PAGE_BYTES: usize = 4 << 10;
    /// Reopened, since non-blocking mode belongs to the open file description, which other processes may share.
    const INPUT_PATH: &str = "/proc/self/fd/0";

    /// Standard input as a pipe that the runtime can poll.
    pub(super) struct PipeInput(pipe::Receiver);

    impl PipeInput {
        pub(super) fn new() -> io::Result<Self> {
            pipe::OpenOptions::new().open_receiver(INPUT_PATH).map(Self)
        }

        pub(super) async fn read_lines(self, connection: Arc<StdioConnection>) {
            let mut piece = vec![0; READ_BYTES];
            let mut line = Vec::new();
            let mut too_long = None;
            loop {
                while connection.output.is_congested() {
                    tokio::time::sleep(CONGESTION_CHECK).await;
                }
                if self.0.readable().await.is_err() {
                    return;
                }
                let taken = match self.0.try_read(&mut piece) {
                    Ok(0) => break,
                    Ok(taken) => taken,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    Err(error) => {
                        tracing::warn!(%error, "reading the input failed");
                        return;
                    }
                };
                // Input that arrives after the shutdown began is ignored.
                if connection.server.0.shutdown.is_cancelled() {
                    return;
                }
                let mut rest = &piece[..taken];
                while let Some(end) = memchr::memchr(b'\n', rest) {
                    append_part(&mut line, &rest[..end], &mut too_long);
                    finish_line(&connection, &mut line, &mut too_long);
                    rest = &rest[end + 1..];
                }
                append_part(&mut line, rest, &mut too_long);
            }
            // The last line need not end with a line break.
            finish_line(&connection, &mut line, &mut too_long);
        }
    }

    /// Handles a complete line.
    fn finish_line(
        connection: &Arc<StdioConnection>,
        line: &mut Vec<u8>,
        too_long: &mut Option<IdScanner>,
    ) {
        if let Some(scanner) = too_long.take() {
            connection.write_error(
                scanner.into_id().as_ref(),
                &ProtocolError::message_too_long(),
            );
        } else if !line.trim_ascii().is_empty() {
            connection.handle_message(line);
        }
        // Releases the memory of a large message.
        line.clear();
        line.shrink_to(READ_BYTES);
    }

    /// Returns a check of whether so many bytes can be written to standard output without blocking, if that is a pipe: an
    /// empty pipe takes its whole size.
    pub(super) fn stdout_backpressure() -> Option<Backpressure> {
        let output = rustix::io::dup(rustix::stdio::stdout()).ok()?;
        let size = rustix::pipe::fcntl_getpipe_size(&output).ok()?;
        Some(Box::new(move |bytes| {
            let empty = rustix::io::ioctl_fionread(&output).is_ok_and(|unread| unread == 0);
            empty && bytes + PAGE_BYTES <= size
        }))
    }
}

#[derive(Default)]
struct OutputQueue {
    queue: VecDeque<Vec<u8>>,
    /// True while a thread writes.
    is_writing: bool,
    is_broken: bool,
    /// Number of threads that wait for the queue to shrink.
    waiting_threads: usize,
}

impl std::fmt::Debug for StdioOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Output")
    }
}

impl StdioOutput {
    fn new(writer: impl Write + AsFd + Send + 'static, room: Option<Backpressure>) -> Arc<Self> {
        let output = Arc::new(Self {
            output_fd: writer.as_fd().try_clone_to_owned().ok(),
            has_space: room,
            state: Mutex::default(),
            changed: Condvar::new(),
            writer: Mutex::new(Box::new(writer)),
            break_notify: Notify::new(),
        });
        let queue = output.clone();
        std::thread::spawn(move || queue.write_queued());
        output
    }

    /// Writes at once if no other thread does. May block if [`StdioOutput::has_space`] is `None`.
    fn write_through(&self, message: Vec<u8>) {
        if self.has_space.is_some() {
            return self.send(message);
        }
        if let Some(message) = self.claim(message) {
            self.write([message]);
        }
    }

    /// Returns the message if the caller has to write it now; otherwise queues it.
    fn claim(&self, message: Vec<u8>) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        if state.is_broken {
            return None;
        }
        if state.is_writing || !state.queue.is_empty() {
            state.queue.push_back(message);
            self.changed.notify_all();
            return None;
        }
        state.is_writing = true;
        Some(message)
    }

    /// Writes messages. The caller must have set `writing`.
    fn write(&self, messages: impl IntoIterator<Item = Vec<u8>>) {
        let mut writer = self.writer.lock();
        let mut written = Ok(());
        for mut message in messages {
            message.push(b'\n');
            written = writer.write_all(&message);
            if written.is_err() {
                break;
            }
        }
        let written = written.and_then(|()| writer.flush());
        drop(writer);
        let mut state = self.state.lock();
        state.is_writing = false;
        if let Err(error) = written {
            tracing::debug!(%error, "writing the output failed");
            state.is_broken = true;
            state.queue.clear();
            self.break_notify.notify_one();
        }
        // Waking a thread without need costs more than the write.
        if state.is_broken || !state.queue.is_empty() || state.waiting_threads > 0 {
            self.changed.notify_all();
        }
    }

    fn write_queued(&self) {
        loop {
            let messages = {
                let mut state = self.state.lock();
                while state.is_writing || state.queue.is_empty() {
                    if state.is_broken {
                        return;
                    }
                    self.changed.wait(&mut state);
                }
                state.is_writing = true;
                std::mem::take(&mut state.queue)
            };
            self.write(messages);
        }
    }

    /// Returns true if too many messages are queued for more input to be read.
    fn is_congested(&self) -> bool {
        let state = self.state.lock();
        state.queue.len() > MAX_WAITING && !state.is_broken
    }

    fn wait_for_space(&self) {
        let mut state = self.state.lock();
        state.waiting_threads += 1;
        while state.queue.len() > MAX_WAITING && !state.is_broken {
            self.changed.wait(&mut state);
        }
        state.waiting_threads -= 1;
    }

    fn flush(&self, at_most: Duration) {
        let until = Instant::now() + at_most;
        let mut state = self.state.lock();
        state.waiting_threads += 1;
        while (state.is_writing || !state.queue.is_empty())
            && !self.changed.wait_until(&mut state, until).timed_out()
        {}
        state.waiting_threads -= 1;
    }

    /// Returns true if the reader of the output is gone.
    fn is_reader_gone(&self) -> bool {
        let Some(end) = &self.output_fd else {
            return false;
        };
        let mut watched = [PollFd::new(end, PollFlags::empty())];
        let looked = rustix::event::poll(&mut watched, Some(&Timespec::default()));
        let gone = PollFlags::ERR | PollFlags::HUP;
        looked.is_ok() && watched[0].revents().intersects(gone)
    }

    /// Ends the output: nothing more is written, and waiting threads wake.
    fn close(&self) {
        self.state.lock().is_broken = true;
        self.changed.notify_all();
    }

    async fn wait_until_broken(&self) {
        self.break_notify.notified().await;
    }
}

impl ResponseSink for StdioOutput {
    fn send_lossy(&self, message: Vec<u8>) {
        if self.state.lock().queue.len() < MAX_WAITING_LOSSY {
            self.send(message);
        }
    }

    fn send(&self, message: Vec<u8>) {
        let mut state = self.state.lock();
        if state.is_broken {
            return;
        }
        let at_once = !state.is_writing && state.queue.is_empty();
        let room = |room: &Backpressure| room(message.len() + 1);
        if at_once && self.has_space.as_ref().is_some_and(room) {
            state.is_writing = true;
            drop(state);
            return self.write([message]);
        }
        state.queue.push_back(message);
        self.changed.notify_all();
    }
}
