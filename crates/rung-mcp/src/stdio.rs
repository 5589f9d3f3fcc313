//! One client at the other end of two pipes: a message a line, and nothing but messages.
//!
//! A thread reads and begins each request by itself; most are answered there and then, with no other thread woken.
//! What has to wait goes on in the runtime. Writing is one thread's business at a time: the reader writes straight
//! through while nobody else does, everything else queues. A client that stops reading stops being read.

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
use rung_tool::{Changes, Conversation, Listener};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::client::{Client, Meta};
use crate::envelope::{Id, MAX_MESSAGE_BYTES, Message};
use crate::exchange::Outlet;
use crate::oversized::IdScanner;
use crate::refusal::{Refusal, Result};
use crate::server::{Answering, Request, Server};
use crate::session::{Phase, Running, Session, cancelled};

/// Messages waiting to be written beyond which nothing more is read.
const MAX_WAITING: usize = 256;
/// Messages waiting beyond which what may be lost is.
const MAX_WAITING_LOSSY: usize = 1_024;
/// How long calls under way may take when the client has gone.
const GRACE: Duration = Duration::from_secs(30);
/// How often it is looked meanwhile whether anybody still reads.
const LOOK: Duration = Duration::from_millis(100);
/// How long the last answers may take to be read.
const FLUSH: Duration = Duration::from_secs(5);

/// Serves `input` and `output` until the input ends, the output breaks, or `stop` does. Calls under way finish, while anybody
/// reads.
pub async fn serve<R, W>(
    server: Server,
    permit: Permit,
    input: R,
    output: W,
    stop: impl Future<Output = ()>,
) where
    R: BufRead + Send + 'static,
    W: Write + AsFd + Send + 'static,
{
    let connection = Connection::new(server, permit, Output::new(output, None));
    let changes = connection.changes();
    let ended = Arc::new(Notify::new());
    {
        let (connection, ended) = (connection.clone(), Ended(ended.clone()));
        std::thread::spawn(move || {
            // However it ends, it is known to have ended.
            let _ended = ended;
            connection.read(input);
        });
    }
    let reading = async move { ended.notified().await };
    until_over(connection, changes, reading, stop).await;
}

/// Serves on the standard input and output of this process, without a thread in between where both are pipes: whoever mostly
/// waits for others is then woken once for a request and once for what it waited for.
pub async fn serve_own(server: Server, permit: Permit, stop: impl Future<Output = ()>) {
    #[cfg(target_os = "linux")]
    match (own::Input::new(), own::room()) {
        (Ok(input), Some(room)) => {
            let output = Output::new(io::stdout(), Some(room));
            let connection = Connection::new(server, permit, output);
            let changes = connection.changes();
            let reading = input.read(connection.clone());
            return until_over(connection.clone(), changes, reading, stop).await;
        }
        (Err(error), _) => tracing::debug!(%error, "the input cannot be waited for"),
        (Ok(_), None) => {}
    }
    let input = io::BufReader::with_capacity(64 << 10, io::stdin());
    serve(server, permit, input, io::stdout(), stop).await;
}

/// Serves until the input ends, the output breaks, or it is to stop; then lets what is under way finish.
async fn until_over(
    connection: Arc<Connection>,
    changes: Option<Listener>,
    reading: impl Future<Output = ()>,
    stop: impl Future<Output = ()>,
) {
    let server = connection.server.clone();
    let pump = tokio::spawn(tell_changes(connection.clone(), changes));
    let output = connection.output.clone();
    tokio::select! {
        () = reading => {}
        () = output.broken() => connection.running.cancel_all(),
        () = stop => {}
    }
    server.shut_down();
    pump.abort();
    // Nobody answers any more, so nobody need wait for an answer.
    if let Some(session) = connection.session.lock().as_ref() {
        session.hang_up();
    }
    connection.conversation.end();
    // Waiting blocks a thread, and the runtime must go on.
    let waited = tokio::task::spawn_blocking(move || {
        let until = Instant::now() + GRACE;
        while connection.running.is_busy() && Instant::now() < until {
            if connection.output.is_unread() {
                connection.running.cancel_all();
            }
            connection.running.wait_until_idle(LOOK);
        }
        connection.output.flush(FLUSH);
        connection.output.close();
    });
    let _done = waited.await;
}

/// Tells that the reader has ended, when it has.
struct Ended(Arc<Notify>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// The pipes, and what is being said through them.
struct Connection {
    server: Server,
    permit: Permit,
    output: Arc<Output>,
    session: Mutex<Option<Arc<Session>>>,
    /// What requests that open no session belong to.
    conversation: Conversation,
    running: Running,
    runtime: Handle,
}

impl Connection {
    fn new(server: Server, permit: Permit, output: Arc<Output>) -> Arc<Self> {
        Arc::new(Self {
            server,
            permit,
            output,
            session: Mutex::default(),
            conversation: Conversation::begin(),
            running: Running::default(),
            runtime: Handle::current(),
        })
    }

    /// Listens to changes from now on: from before anything is read, so that whoever asks to be told of one misses none.
    fn changes(&self) -> Option<Listener> {
        self.server.0.offer.changes.as_ref().map(Changes::listen)
    }

    fn read(self: &Arc<Self>, mut input: impl BufRead) {
        let _runtime = self.runtime.enter();
        let mut line = Vec::new();
        loop {
            self.output.wait_for_room();
            match next_line(&mut input, &mut line) {
                // What comes when we are to stop comes too late.
                _ if self.server.0.shutdown.is_cancelled() => return,
                Ok(Line::Whole) if line.trim_ascii().is_empty() => {}
                Ok(Line::Whole) => self.take(&line),
                Ok(Line::TooLong(id)) => {
                    self.refuse(id.as_ref(), &Refusal::too_long());
                }
                Ok(Line::End) => return,
                Err(error) => {
                    tracing::warn!(%error, "the input broke");
                    return;
                }
            }
            // One large message is no reason to keep so much for ever.
            line.clear();
            line.shrink_to(64 << 10);
        }
    }

    fn take(self: &Arc<Self>, line: &[u8]) {
        match Message::read(line) {
            Err(malformed) => {
                tracing::debug!(%malformed, "not a message");
                self.refuse(malformed.id(), &Refusal::from(&malformed));
            }
            Ok(Message::Request { id, method, params }) => {
                tracing::debug!(%id, method = ?head(&method, 100), "request");
                let request = Request {
                    id,
                    method: &method,
                    params,
                };
                self.request(&request);
            }
            Ok(Message::Notification { method, .. })
                if self.server.is_strict() && !method.starts_with("notifications/") =>
            {
                let refusal = Refusal::request("a request has an id").with_field("id");
                self.refuse(None, &refusal);
            }
            Ok(Message::Response { id, .. }) if self.server.is_strict() => {
                let why = "nothing was asked: a message has a method";
                self.refuse(Some(&id), &Refusal::request(why));
            }
            Ok(Message::Notification { method, params }) => {
                tracing::debug!(method = ?head(&method, 100), "notification");
                self.notification(&method, params);
            }
            Ok(Message::Response { id, outcome }) => {
                if let Some(session) = self.session.lock().clone() {
                    session.take_answer(&id, outcome);
                }
            }
        }
    }

    fn request(self: &Arc<Self>, request: &Request<'_>) {
        let id = request.id.clone();
        let number = match self.running.begin(&id) {
            Ok(number) => number,
            Err(refusal) => return self.refuse(Some(&id), &refusal),
        };
        let begun = std::panic::catch_unwind(AssertUnwindSafe(|| self.begin(request)));
        let bug = |_| Err(self.server.refused(Some(&id), &Refusal::bug()).message);
        let mut answering = match begun.unwrap_or_else(bug) {
            Ok(answering) => answering,
            Err(message) => return self.answer(&id, number, message),
        };
        // Whoever is woken by this poll does not matter: what is not ready is polled again elsewhere.
        match answering
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(answer) => self.answer(&id, number, answer.message),
            Poll::Pending => {
                let (connection, ended) = (self.clone(), id.clone());
                let task = self.runtime.spawn(async move {
                    let answer = answering.await;
                    let answered = || connection.output.insist(answer.message);
                    connection.running.end(&ended, number, answered);
                });
                self.running.can_stop(&id, number, task.abort_handle());
            }
        }
    }

    /// Refuses, from the thread that reads, what was never under way.
    fn refuse(&self, id: Option<&Id>, refusal: &Refusal) {
        self.output
            .write_through(self.server.refused(id, refusal).message);
    }

    /// Answers from the thread that reads. Nothing is waited for while others wait to note an end: it is settled who
    /// writes, then that the request has ended, and then it is written.
    fn answer(&self, id: &Id, number: u64, message: Vec<u8>) {
        if self.output.room.is_some() {
            return self.running.end(id, number, || self.output.insist(message));
        }
        let ours = self.output.claim(message);
        self.running.end(id, number, || {});
        if let Some(message) = ours {
            self.output.write([message]);
        }
    }

    /// Begins to answer, or answers at once.
    fn begin(&self, request: &Request<'_>) -> Result<Answering, Vec<u8>> {
        let refuse = |refusal: &Refusal| self.server.refused(Some(&request.id), refusal).message;
        let meta = Meta::of(request.params).map_err(|refusal| refuse(&refusal))?;
        let client = if meta.version.is_some() || request.method == "server/discover" {
            let (version, capabilities, log_level) =
                meta.declared().map_err(|refusal| refuse(&refusal))?;
            Client {
                permit: self.permit.clone(),
                version,
                capabilities,
                log_level,
                session: None,
                conversation: Some(self.conversation.clone()),
                headers: None,
            }
        } else if request.method == "initialize" {
            return Err(self.initialize(request));
        } else {
            let session = self.session.lock().clone();
            let session = session.ok_or_else(|| refuse(&Refusal::uninitialized(request.method)))?;
            let early = session.phase() == Phase::Initializing && request.method != "ping";
            if early && self.server.is_strict() {
                return Err(refuse(&Refusal::not_ready(request.method)));
            }
            Client::of_session(self.permit.clone(), &session)
        };
        let outlet = self.output.clone();
        Ok(self.server.begin(client, request, &meta, outlet))
    }

    fn initialize(&self, request: &Request<'_>) -> Vec<u8> {
        let mut slot = self.session.lock();
        if let Some(session) = &*slot {
            let refusal = Refusal::initialized(session.phase());
            return self.server.refused(Some(&request.id), &refusal).message;
        }
        match self
            .server
            .initialize(self.permit.clone(), &request.id, request.params, true)
        {
            Ok((session, answer)) => {
                *slot = Some(session);
                answer.message
            }
            Err(answer) => answer.message,
        }
    }

    fn notification(&self, method: &str, params: Option<&RawValue>) {
        if let Some(id) = cancelled(method, params) {
            self.running.cancel(&id);
        } else if method == "notifications/initialized"
            && let Some(session) = &*self.session.lock()
        {
            session.begin();
        }
    }
}

async fn tell_changes(connection: Arc<Connection>, changes: Option<Listener>) {
    let Some(mut changes) = changes else { return };
    loop {
        let change = changes.next().await;
        let session = connection.session.lock().clone();
        for message in session.iter().flat_map(|session| session.told(&change)) {
            connection.output.say(message);
        }
    }
}

enum Line {
    Whole,
    /// With the id, if it is a request.
    TooLong(Option<Id>),
    End,
}

/// Adds part of a line to what came before, unless the line is too long: then only its id is looked for.
fn add_part(line: &mut Vec<u8>, part: &[u8], too_long: &mut Option<IdScanner>) {
    if too_long.is_none() && line.len() + part.len() > MAX_MESSAGE_BYTES {
        too_long.get_or_insert_default().push(line);
        line.clear();
    }
    match too_long {
        Some(scanner) => scanner.push(part),
        None => line.extend_from_slice(part),
    }
}

/// Reads up to the next line break. What is too long is read past, and not kept.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Line> {
    let mut too_long: Option<IdScanner> = None;
    loop {
        let available = match input.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if available.is_empty() {
            // A last line need not end.
            return Ok(match too_long {
                Some(scanner) => Line::TooLong(scanner.into_id()),
                None if line.is_empty() => Line::End,
                None => Line::Whole,
            });
        }
        let end = memchr::memchr(b'\n', available);
        let part = &available[..end.unwrap_or(available.len())];
        let taken = part.len() + usize::from(end.is_some());
        add_part(line, part, &mut too_long);
        input.consume(taken);
        if end.is_some() {
            return Ok(match too_long {
                Some(scanner) => Line::TooLong(scanner.into_id()),
                None => Line::Whole,
            });
        }
    }
}

/// The way out.
struct Output {
    state: Mutex<Waiting>,
    changed: Condvar,
    writer: Mutex<Box<dyn Write + Send>>,
    broke: Notify,
    /// Where it is written to, where that can be looked at.
    end: Option<OwnedFd>,
    /// Tells whether so many bytes can be written without waiting, where that can be told.
    room: Option<Room>,
}

type Room = Box<dyn Fn(usize) -> bool + Send + Sync>;

/// The pipes of this process.
#[cfg(target_os = "linux")]
mod own {
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::net::unix::pipe;

    use super::{Connection, Room, add_part};
    use crate::oversized::IdScanner;
    use crate::refusal::Refusal;

    /// Read at once.
    const PIECE_BYTES: usize = 64 << 10;
    /// Where somebody does not read what we write, it is looked this often whether they do.
    const CROWDED: Duration = Duration::from_millis(5);
    /// What a pipe may waste of its room at most, which comes in pages.
    const PAGE_BYTES: usize = 4 << 10;
    /// Opened anew, since whether it is waited for is a property of how it was opened, and others may have it too.
    const INPUT: &str = "/proc/self/fd/0";

    /// Standard input, where it is a pipe and can be waited for together with everything else.
    pub(super) struct Input(pipe::Receiver);

    impl Input {
        pub(super) fn new() -> io::Result<Self> {
            pipe::OpenOptions::new().open_receiver(INPUT).map(Self)
        }

        pub(super) async fn read(self, connection: Arc<Connection>) {
            let mut piece = vec![0; PIECE_BYTES];
            let mut line = Vec::new();
            let mut too_long = None;
            loop {
                while connection.output.is_crowded() {
                    tokio::time::sleep(CROWDED).await;
                }
                if self.0.readable().await.is_err() {
                    return;
                }
                let taken = match self.0.try_read(&mut piece) {
                    Ok(0) => break,
                    Ok(taken) => taken,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    Err(error) => {
                        tracing::warn!(%error, "the input broke");
                        return;
                    }
                };
                // What comes when we are to stop comes too late.
                if connection.server.0.shutdown.is_cancelled() {
                    return;
                }
                let mut rest = &piece[..taken];
                while let Some(end) = memchr::memchr(b'\n', rest) {
                    add_part(&mut line, &rest[..end], &mut too_long);
                    ended(&connection, &mut line, &mut too_long);
                    rest = &rest[end + 1..];
                }
                add_part(&mut line, rest, &mut too_long);
            }
            // A last line need not end.
            ended(&connection, &mut line, &mut too_long);
        }
    }

    /// A line has ended.
    fn ended(connection: &Arc<Connection>, line: &mut Vec<u8>, too_long: &mut Option<IdScanner>) {
        if let Some(scanner) = too_long.take() {
            connection.refuse(scanner.into_id().as_ref(), &Refusal::too_long());
        } else if !line.trim_ascii().is_empty() {
            connection.take(line);
        }
        // One large message is no reason to keep so much for ever.
        line.clear();
        line.shrink_to(PIECE_BYTES);
    }

    /// How much can be written to standard output without waiting, where it is a pipe: all that it holds, while nothing is
    /// in it.
    pub(super) fn room() -> Option<Room> {
        let output = rustix::io::dup(rustix::stdio::stdout()).ok()?;
        let size = rustix::pipe::fcntl_getpipe_size(&output).ok()?;
        Some(Box::new(move |bytes| {
            let empty = rustix::io::ioctl_fionread(&output).is_ok_and(|unread| unread == 0);
            empty && bytes + PAGE_BYTES <= size
        }))
    }
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<Vec<u8>>,
    /// Somebody is writing.
    writing: bool,
    broken: bool,
    /// How many wait for less to be waiting.
    watchers: usize,
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Output")
    }
}

impl Output {
    fn new(writer: impl Write + AsFd + Send + 'static, room: Option<Room>) -> Arc<Self> {
        let output = Arc::new(Self {
            end: writer.as_fd().try_clone_to_owned().ok(),
            room,
            state: Mutex::default(),
            changed: Condvar::new(),
            writer: Mutex::new(Box::new(writer)),
            broke: Notify::new(),
        });
        let queue = output.clone();
        std::thread::spawn(move || queue.write_queued());
        output
    }

    /// Writes at once where nobody else does; may block where it cannot be told beforehand.
    fn write_through(&self, message: Vec<u8>) {
        if self.room.is_some() {
            return self.insist(message);
        }
        if let Some(message) = self.claim(message) {
            self.write([message]);
        }
    }

    /// The message, if it is the caller's to write now; otherwise it is queued.
    fn claim(&self, message: Vec<u8>) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        if state.broken {
            return None;
        }
        if state.writing || !state.queue.is_empty() {
            state.queue.push_back(message);
            self.changed.notify_all();
            return None;
        }
        state.writing = true;
        Some(message)
    }

    /// The caller has said that it is writing.
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
        state.writing = false;
        if let Err(error) = written {
            tracing::debug!(%error, "the output broke");
            state.broken = true;
            state.queue.clear();
            self.broke.notify_one();
        }
        // A thread that is woken to find nothing costs more than the writing did.
        if state.broken || !state.queue.is_empty() || state.watchers > 0 {
            self.changed.notify_all();
        }
    }

    fn write_queued(&self) {
        loop {
            let messages = {
                let mut state = self.state.lock();
                while state.writing || state.queue.is_empty() {
                    if state.broken {
                        return;
                    }
                    self.changed.wait(&mut state);
                }
                state.writing = true;
                std::mem::take(&mut state.queue)
            };
            self.write(messages);
        }
    }

    /// Whether too much waits to be written for more to be asked for.
    fn is_crowded(&self) -> bool {
        let state = self.state.lock();
        state.queue.len() > MAX_WAITING && !state.broken
    }

    fn wait_for_room(&self) {
        let mut state = self.state.lock();
        state.watchers += 1;
        while state.queue.len() > MAX_WAITING && !state.broken {
            self.changed.wait(&mut state);
        }
        state.watchers -= 1;
    }

    fn flush(&self, at_most: Duration) {
        let until = Instant::now() + at_most;
        let mut state = self.state.lock();
        state.watchers += 1;
        while (state.writing || !state.queue.is_empty())
            && !self.changed.wait_until(&mut state, until).timed_out()
        {}
        state.watchers -= 1;
    }

    /// Whether nobody is there any more to read what is written.
    fn is_unread(&self) -> bool {
        let Some(end) = &self.end else { return false };
        let mut watched = [PollFd::new(end, PollFlags::empty())];
        let looked = rustix::event::poll(&mut watched, Some(&Timespec::default()));
        let gone = PollFlags::ERR | PollFlags::HUP;
        looked.is_ok() && watched[0].revents().intersects(gone)
    }

    /// Nothing more is written, and nobody waits to write.
    fn close(&self) {
        self.state.lock().broken = true;
        self.changed.notify_all();
    }

    async fn broken(&self) {
        self.broke.notified().await;
    }
}

impl Outlet for Output {
    fn say(&self, message: Vec<u8>) {
        if self.state.lock().queue.len() < MAX_WAITING_LOSSY {
            self.insist(message);
        }
    }

    fn insist(&self, message: Vec<u8>) {
        let mut state = self.state.lock();
        if state.broken {
            return;
        }
        let at_once = !state.writing && state.queue.is_empty();
        let room = |room: &Room| room(message.len() + 1);
        if at_once && self.room.as_ref().is_some_and(room) {
            state.writing = true;
            drop(state);
            return self.write([message]);
        }
        state.queue.push_back(message);
        self.changed.notify_all();
    }
}
