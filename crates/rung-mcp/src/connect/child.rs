//! The stdio transport: a server that runs as a child process.
//!
//! The child has its own process group and only the environment variables in [`INHERITED`] and its configuration. With a
//! supervisor, which is then the child's parent, the child and its descendants end with this process, however that ends.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use rung_tool::BoxFuture;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::net::unix::pipe;
use tokio::sync::{Notify, watch};

use super::error::TransportError;
use super::incoming::{BufferError, MessageBuffer};
use super::pending::{PendingRequests, RpcOutcome};
use super::transport::{EncodedRequest, Transport};
use crate::version::ProtocolVersion;

/// Environment variables that every child inherits, if set.
const INHERITED: [&str; 11] = [
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ",
    "USER",
];
/// Bytes queued for a child that does not read its stdin.
const MAX_QUEUED_BYTES: usize = 16 << 20;
/// Bytes of stderr that are kept.
const STDERR_TAIL_BYTES: usize = 8 << 10;
/// Time to wait for the exit status and the rest of stderr after the output closed.
const EXIT_REASON_WAIT: Duration = Duration::from_millis(100);
/// Time to exit after stdin closed; after SIGTERM twice this time.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The launch command of a server.
#[derive(Debug, Clone)]
pub struct ServerCommand {
    pub program: OsString,
    pub args: Vec<OsString>,
    /// Environment variables in addition to the inherited ones.
    pub env: Vec<(String, String)>,
    /// The working directory. `None`: that of this process.
    pub dir: Option<PathBuf>,
    /// The supervisor program with its first arguments; this process's id and the command are appended.
    pub supervisor: Option<Vec<OsString>>,
}

impl ServerCommand {
    pub fn new(
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        Self {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            dir: None,
            supervisor: None,
        }
    }

    /// Returns an error message if the program does not exist. A supervisor would start and only then fail.
    fn missing_program_error(&self) -> Option<String> {
        let program = Path::new(&self.program);
        let name = program.display();
        if program.components().count() > 1 {
            let dir = self.dir.as_deref().unwrap_or(Path::new("."));
            let is_there = dir.join(program).is_file();
            return (!is_there).then(|| format!("{name} could not be started: no such file"));
        }
        let own = self.env.iter().rev().find(|(name, _)| name == "PATH");
        let path = own
            .map(|(_, path)| path.into())
            .or_else(|| std::env::var_os("PATH"));
        let path = path.unwrap_or_default();
        let is_there = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
        (!is_there)
            .then(|| format!("`{name}` was not found on PATH; install it or give its full path"))
    }

    fn to_process_command(&self) -> std::process::Command {
        let mut words = Vec::new();
        if let Some(keeper) = &self.supervisor {
            words.extend(keeper.iter().cloned());
            words.push(std::process::id().to_string().into());
        }
        words.push(self.program.clone());
        words.extend(self.args.iter().cloned());
        let mut command = std::process::Command::new(&words[0]);
        command.args(&words[1..]).env_clear();
        for name in INHERITED {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }
}

/// Starts children from one thread that lives as long as the process: the parent-death signal is bound to the thread that
/// started the child. A child inherits no descriptor but its standard streams.
fn spawn(command: std::process::Command) -> io::Result<Child> {
    type SpawnRequest = (std::process::Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<Mutex<mpsc::Sender<SpawnRequest>>> = OnceLock::new();
    let nursery = SPAWNER.get_or_init(|| {
        let (orders, taken) = mpsc::channel::<SpawnRequest>();
        let run = move || {
            for (mut command, answer) in taken {
                let spawned = rung_memory::close_on_exec().and_then(|()| command.spawn());
                let _nobody_waits = answer.send(spawned);
            }
        };
        let _runs = std::thread::Builder::new()
            .name("nursery".to_owned())
            .spawn(run);
        Mutex::new(orders)
    });
    let gone = || io::Error::other("no further process can be started");
    let (answer, answered) = mpsc::channel();
    nursery.lock().send((command, answer)).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}

/// The standard streams of a child process.
pub(super) struct StdioTransport {
    board: Arc<PendingRequests>,
    stdin: Mutex<StdinQueue>,
    /// Notified when a message is queued or stdin is closed.
    more_input: Arc<Notify>,
    process: ChildProcess,
    open: AtomicBool,
    stderr_tail: Mutex<VecDeque<u8>>,
    /// Closed when stderr has ended.
    stderr_closed: watch::Receiver<()>,
}

/// The queue to the child's stdin. Messages are never dropped midway, so cancelling one request never damages the next.
struct StdinQueue {
    pipe: Option<Arc<pipe::Sender>>,
    queued: VecDeque<Vec<u8>>,
    /// Bytes of the first queued message that are written.
    written: usize,
    bytes: usize,
    /// Messages accepted so far, and those written at least in part.
    accepted: u64,
    started: u64,
}

impl StdioTransport {
    pub(super) fn open(
        command: &ServerCommand,
        board: Arc<PendingRequests>,
    ) -> Result<Arc<Self>, TransportError> {
        let unavailable = |error: io::Error| {
            let program = command.program.to_string_lossy();
            TransportError::Unavailable(format!("{program} could not be started: {error}"))
        };
        // Without this check the error would claim that the program is missing.
        if let Some(dir) = command.dir.as_deref().filter(|dir| !dir.is_dir()) {
            let why = format!("its working folder {} does not exist", dir.display());
            return Err(TransportError::Unavailable(why));
        }
        if let Some(why) = command.missing_program_error() {
            return Err(TransportError::Unavailable(why));
        }
        let mut child = spawn(command.to_process_command()).map_err(unavailable)?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = ChildProcess::new(child);
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
            return Err(TransportError::Unavailable(
                "its streams are missing".to_owned(),
            ));
        };
        let stdin = pipe::Sender::from_owned_fd(OwnedFd::from(stdin)).map_err(unavailable)?;
        let stdout = pipe::Receiver::from_owned_fd(OwnedFd::from(stdout)).map_err(unavailable)?;
        let stderr = pipe::Receiver::from_owned_fd(OwnedFd::from(stderr)).map_err(unavailable)?;
        let more_input = Arc::new(Notify::new());
        let (speaks, hushed) = watch::channel(());
        let pipe = Arc::new(Self {
            board,
            stdin: Mutex::new(StdinQueue {
                pipe: Some(Arc::new(stdin)),
                queued: VecDeque::new(),
                written: 0,
                bytes: 0,
                accepted: 0,
                started: 0,
            }),
            more_input: more_input.clone(),
            process,
            open: AtomicBool::new(true),
            stderr_tail: Mutex::default(),
            stderr_closed: hushed,
        });
        // The tasks hold weak references: the transport ends when its last user drops it.
        tokio::spawn(read_stdout(Arc::downgrade(&pipe), stdout));
        tokio::spawn(read_stderr(Arc::downgrade(&pipe), stderr, speaks));
        tokio::spawn(write_stdin(Arc::downgrade(&pipe), more_input));
        Ok(pipe)
    }

    /// Writes a message, or queues it behind unwritten ones. Returns the message's number.
    fn send(&self, mut message: Vec<u8>) -> Result<u64, TransportError> {
        // JSON has line breaks only between tokens, where a space means the same.
        for byte in &mut message {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        message.push(b'\n');
        let mut input = self.stdin.lock();
        let Some(pipe) = input.pipe.clone() else {
            return Err(TransportError::Unavailable(self.exit_reason()));
        };
        let number = input.accepted + 1;
        if input.queued.is_empty() {
            match pipe.try_write(&message) {
                Ok(written) => {
                    (input.accepted, input.started) = (number, number);
                    if written == message.len() {
                        return Ok(number);
                    }
                    input.written = written;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    drop(input);
                    self.disconnect();
                    let why = format!("{error}; {}", self.exit_reason());
                    return Err(TransportError::Unavailable(why));
                }
            }
        } else if input.bytes + message.len() > MAX_QUEUED_BYTES {
            let why = "it does not read its input".to_owned();
            return Err(TransportError::Unavailable(why));
        }
        input.accepted = number;
        input.bytes += message.len();
        input.queued.push_back(message);
        drop(input);
        self.more_input.notify_one();
        Ok(number)
    }

    /// Returns true if no byte of the message was written. A server cannot act on an incomplete message.
    fn is_unsent(&self, number: u64) -> bool {
        number > self.stdin.lock().started
    }

    /// Waits briefly for the exit status and the end of stderr.
    async fn wait_exit_reason(&self) {
        self.process.exits_within(EXIT_REASON_WAIT).await;
        let mut hushed = self.stderr_closed.clone();
        let said = async { while hushed.changed().await.is_ok() {} };
        let _in_time_or_not = tokio::time::timeout(EXIT_REASON_WAIT, said).await;
    }

    /// Closes stdin and fails all pending requests.
    fn disconnect(&self) {
        self.open.store(false, Ordering::Release);
        self.stdin.lock().pipe = None;
        self.more_input.notify_one();
        self.board.close();
    }

    fn exit_reason(&self) -> String {
        let status = self.process.status();
        let how = match status {
            Some(status) => format!("it exited ({status})"),
            None => "it closed its output".to_owned(),
        };
        match self.stderr_tail() {
            words if words.is_empty() => how,
            words => format!("{how}; end of stderr: {words}"),
        }
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        self.disconnect();
        self.process.terminate();
    }
}

/// Reads the child's messages, one per line.
async fn read_stdout(pipe: Weak<StdioTransport>, mut stdout: pipe::Receiver) {
    use tokio::io::AsyncReadExt as _;
    let mut buffer = vec![0; 64 << 10];
    let mut line = MessageBuffer::default();
    let mut overflow = false;
    loop {
        let read = stdout.read(&mut buffer).await.unwrap_or(0);
        let Some(pipe) = pipe.upgrade() else {
            return;
        };
        if read == 0 {
            return pipe.disconnect();
        }
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest);
            let part = &rest[..end.unwrap_or(rest.len())];
            // Most lines are complete in the buffer and need no copy.
            if let Some(end) = end
                && line.is_empty()
                && !overflow
            {
                let wire: Arc<dyn Transport> = pipe.clone();
                pipe.board.receive_short(part, &wire);
                rest = &rest[end + 1..];
                continue;
            }
            if !overflow && let Err(error) = line.push(part) {
                tracing::warn!(%error, "ignored a line from a server");
                overflow = true;
                line = MessageBuffer::default();
                if matches!(error, BufferError::Disk(_)) {
                    return pipe.disconnect();
                }
            }
            let Some(end) = end else {
                break;
            };
            rest = &rest[end + 1..];
            if !std::mem::take(&mut overflow) && !line.is_empty() {
                let wire: Arc<dyn Transport> = pipe.clone();
                pipe.board.receive(line.finish(), &wire).await;
            }
        }
    }
}

/// Keeps the end of the child's stderr.
async fn read_stderr(
    pipe: Weak<StdioTransport>,
    mut stderr: pipe::Receiver,
    _speaks: watch::Sender<()>,
) {
    use tokio::io::AsyncReadExt as _;
    let mut buffer = vec![0; 4 << 10];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        let Some(pipe) = pipe.upgrade() else {
            return;
        };
        let mut words = pipe.stderr_tail.lock();
        words.extend(&buffer[..read]);
        let over = words.len().saturating_sub(STDERR_TAIL_BYTES);
        words.drain(..over);
    }
}

/// Writes the queued messages.
async fn write_stdin(pipe: Weak<StdioTransport>, more_input: Arc<Notify>) {
    loop {
        let waits_for = {
            let Some(pipe) = pipe.upgrade() else {
                return;
            };
            let input = pipe.stdin.lock();
            let Some(sender) = &input.pipe else {
                return;
            };
            Some(sender.clone()).filter(|_| !input.queued.is_empty())
        };
        let Some(sender) = waits_for else {
            more_input.notified().await;
            continue;
        };
        tokio::select! {
            ready = sender.writable() => if ready.is_err() {
                return;
            },
            () = more_input.notified() => continue,
        }
        let Some(pipe) = pipe.upgrade() else {
            return;
        };
        let mut input = pipe.stdin.lock();
        while let Some(first) = input.queued.front() {
            let number = input.accepted - input.queued.len() as u64 + 1;
            let rest = first.len() - input.written;
            match sender.try_write(&first[input.written..]) {
                Ok(written) if written == rest => {
                    input.bytes -= first.len();
                    input.queued.pop_front();
                    input.written = 0;
                    input.started = number;
                }
                Ok(written) => {
                    input.written += written;
                    input.started = number;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    drop(input);
                    return pipe.disconnect();
                }
            }
        }
    }
}

impl Transport for StdioTransport {
    fn send_request<'a>(
        &'a self,
        sent: EncodedRequest<'a>,
    ) -> BoxFuture<'a, Result<RpcOutcome, TransportError>> {
        Box::pin(async move {
            let answered = self.board.register(&sent);
            let number = match self.send(sent.message) {
                Ok(number) => number,
                Err(failure) => {
                    self.board.remove(sent.id);
                    if self.is_open() {
                        return Err(failure);
                    }
                    self.wait_exit_reason().await;
                    return Err(TransportError::Unavailable(self.exit_reason()));
                }
            };
            if let Ok(outcome) = answered.await {
                return Ok(outcome);
            }
            self.wait_exit_reason().await;
            let why = self.exit_reason();
            Err(if self.is_unsent(number) {
                TransportError::Unavailable(why)
            } else {
                TransportError::Lost(why)
            })
        })
    }

    fn send_message(&self, message: Vec<u8>) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(std::future::ready(self.send(message).map(|_| ())))
    }

    fn set_version(&self, _: ProtocolVersion) {
        // Complaints about unknown handshake methods would be misleading later.
        self.stderr_tail.lock().clear();
    }

    fn release(&self) {
        self.disconnect();
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    fn stderr_tail(&self) -> String {
        let words: Vec<u8> = self.stderr_tail.lock().iter().copied().collect();
        let mut words = &*String::from_utf8_lossy(&words);
        // A cut word may be part of a secret, which redaction would not recognise.
        if words.len() >= STDERR_TAIL_BYTES {
            words = words
                .split_once(char::is_whitespace)
                .map_or("", |(_, rest)| rest);
        }
        let lines: Vec<&str> = words
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        let last = lines.len().saturating_sub(8);
        lines[last..].join(" | ")
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.disconnect();
            // A server should exit when its stdin closes.
            if self.process.exits_within(EXIT_TIMEOUT).await {
                return;
            }
            self.process.terminate();
            if !self.process.exits_within(EXIT_TIMEOUT * 2).await {
                self.process.kill();
            }
        })
    }
}

/// A child process, and the thread that waits for its exit.
struct ChildProcess {
    id: Option<Pid>,
    ended: watch::Receiver<Option<ExitStatus>>,
}

impl ChildProcess {
    fn new(mut child: Child) -> Self {
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (tell, ended) = watch::channel(None);
        let wait = move || {
            let status = child.wait().unwrap_or_default();
            let _nobody_cares = tell.send(Some(status));
        };
        let _runs = std::thread::Builder::new()
            .name("child".to_owned())
            .stack_size(64 << 10)
            .spawn(wait);
        Self { id, ended }
    }

    fn status(&self) -> Option<ExitStatus> {
        *self.ended.borrow()
    }

    /// Returns true if the process exits within this time.
    async fn exits_within(&self, within: Duration) -> bool {
        let mut ended = self.ended.clone();
        let ended = ended.wait_for(Option::is_some);
        tokio::time::timeout(within, ended).await.is_ok()
    }

    fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Signals the process group, unless the process has exited: its id may have been reused.
    fn signal(&self, signal: Signal) {
        if let (Some(id), None) = (self.id, self.status()) {
            let _gone = kill_process_group(id, signal);
            let _gone = kill_process(id, signal);
        }
    }
}
