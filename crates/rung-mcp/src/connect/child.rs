//! A server that is a child of ours, spoken to through its standard streams.
//!
//! It gets a process group and no more of our environment than it is given. It does not outlive us, however we end:
//! where a keeper is named, that is the child's parent, and ends everything the child has started when we are gone.

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
use rung_tool::Pending;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::net::unix::pipe;
use tokio::sync::{Notify, watch};

use super::board::{Board, Outcome};
use super::error::Failure;
use super::intake::{Intake, Overflow};
use super::wire::{Sent, Wire};
use crate::version::Version;

/// What of our environment every child gets, where it is set.
const INHERITED: [&str; 11] = [
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ",
    "USER",
];
/// Bytes that wait for a child to read them.
const MAX_UNREAD_BYTES: usize = 16 << 20;
/// Bytes of its stderr that are remembered.
const LAST_WORDS_BYTES: usize = 8 << 10;
/// How long it may take to say why it ends.
const LAST_MOMENT: Duration = Duration::from_millis(100);
/// How long it may take to end by itself, and then when it is told to.
const GRACE: Duration = Duration::from_secs(2);

/// How a server is started.
#[derive(Debug, Clone)]
pub struct Command {
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// What it gets beside the usual few variables.
    pub env: Vec<(String, String)>,
    /// Where it runs; here, if nowhere else.
    pub dir: Option<PathBuf>,
    /// The program, with its first arguments, that stays with the child: it is given our process id, then the command.
    pub keeper: Option<Vec<OsString>>,
}

impl Command {
    /// A program with these arguments.
    pub fn new(
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        Self {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            dir: None,
            keeper: None,
        }
    }

    /// Why there is no such program, where there is none. A keeper would start, and find out too late.
    fn missing(&self) -> Option<String> {
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
        (!is_there).then(|| {
            format!("`{name}` was not found on PATH; install it, or name it by its full path")
        })
    }

    fn prepared(&self) -> std::process::Command {
        let mut words = Vec::new();
        if let Some(keeper) = &self.keeper {
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

/// Starts children from one thread that lasts as long as we do: a child that is to end with its parent ends with the
/// thread that started it. A child inherits no descriptor but its standard streams.
fn spawn(command: std::process::Command) -> io::Result<Child> {
    type Order = (std::process::Command, mpsc::Sender<io::Result<Child>>);
    static NURSERY: OnceLock<Mutex<mpsc::Sender<Order>>> = OnceLock::new();
    let nursery = NURSERY.get_or_init(|| {
        let (orders, taken) = mpsc::channel::<Order>();
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
    let gone = || io::Error::other("nothing can be started any more");
    let (answer, answered) = mpsc::channel();
    nursery.lock().send((command, answer)).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}

/// The pipes of a child.
pub(super) struct Pipe {
    board: Arc<Board>,
    input: Mutex<Input>,
    /// There is more to write, or there will never be.
    more_input: Arc<Notify>,
    process: Process,
    open: AtomicBool,
    last_words: Mutex<VecDeque<u8>>,
    /// Closed once it can say nothing more beside the protocol.
    hushed: watch::Receiver<()>,
}

/// What goes to the child. A message is written whole or waits whole, so that giving up on one never harms the next.
struct Input {
    pipe: Option<Arc<pipe::Sender>>,
    waiting: VecDeque<Vec<u8>>,
    /// Bytes of the first that are written.
    written: usize,
    bytes: usize,
    /// Messages that were taken, and those of which anything was written.
    taken: u64,
    begun: u64,
}

impl Pipe {
    pub(super) fn open(command: &Command, board: Arc<Board>) -> Result<Arc<Self>, Failure> {
        let unavailable = |error: io::Error| {
            let program = command.program.to_string_lossy();
            Failure::Unavailable(format!("{program} could not be started: {error}"))
        };
        // Otherwise it would look as if there were no such program.
        if let Some(dir) = command.dir.as_deref().filter(|dir| !dir.is_dir()) {
            let why = format!("it is to run in {}, which is no folder", dir.display());
            return Err(Failure::Unavailable(why));
        }
        if let Some(why) = command.missing() {
            return Err(Failure::Unavailable(why));
        }
        let mut child = spawn(command.prepared()).map_err(unavailable)?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = Process::watch(child);
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
            return Err(Failure::Unavailable("its streams are missing".to_owned()));
        };
        let stdin = pipe::Sender::from_owned_fd(OwnedFd::from(stdin)).map_err(unavailable)?;
        let stdout = pipe::Receiver::from_owned_fd(OwnedFd::from(stdout)).map_err(unavailable)?;
        let stderr = pipe::Receiver::from_owned_fd(OwnedFd::from(stderr)).map_err(unavailable)?;
        let more_input = Arc::new(Notify::new());
        let (speaks, hushed) = watch::channel(());
        let pipe = Arc::new(Self {
            board,
            input: Mutex::new(Input {
                pipe: Some(Arc::new(stdin)),
                waiting: VecDeque::new(),
                written: 0,
                bytes: 0,
                taken: 0,
                begun: 0,
            }),
            more_input: more_input.clone(),
            process,
            open: AtomicBool::new(true),
            last_words: Mutex::default(),
            hushed,
        });
        // None of them keeps it alive: when nobody else wants it, it is over.
        tokio::spawn(read(Arc::downgrade(&pipe), stdout));
        tokio::spawn(listen(Arc::downgrade(&pipe), stderr, speaks));
        tokio::spawn(write(Arc::downgrade(&pipe), more_input));
        Ok(pipe)
    }

    /// Sends a message: at once where the child keeps up, else when it has read what is before it. Its number among all.
    fn send(&self, mut message: Vec<u8>) -> Result<u64, Failure> {
        // Between the parts of a message a line break means as much as a space, and within them there is none.
        for byte in &mut message {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        message.push(b'\n');
        let mut input = self.input.lock();
        let Some(pipe) = input.pipe.clone() else {
            return Err(Failure::Unavailable(self.why_gone()));
        };
        let number = input.taken + 1;
        if input.waiting.is_empty() {
            match pipe.try_write(&message) {
                Ok(written) => {
                    (input.taken, input.begun) = (number, number);
                    if written == message.len() {
                        return Ok(number);
                    }
                    input.written = written;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    drop(input);
                    self.hang_up();
                    let why = format!("{error}; {}", self.why_gone());
                    return Err(Failure::Unavailable(why));
                }
            }
        } else if input.bytes + message.len() > MAX_UNREAD_BYTES {
            let why = "it does not read what it is sent".to_owned();
            return Err(Failure::Unavailable(why));
        }
        input.taken = number;
        input.bytes += message.len();
        input.waiting.push_back(message);
        drop(input);
        self.more_input.notify_one();
        Ok(number)
    }

    /// Whether nothing of a message was ever written. Whoever reads it in part cannot do what it says.
    fn is_unsent(&self, number: u64) -> bool {
        number > self.input.lock().begun
    }

    /// Waits until it has ended and said why, if it is about to.
    async fn last_said(&self) {
        self.process.ended(LAST_MOMENT).await;
        let mut hushed = self.hushed.clone();
        let said = async { while hushed.changed().await.is_ok() {} };
        let _in_time_or_not = tokio::time::timeout(LAST_MOMENT, said).await;
    }

    /// Nothing comes any more.
    fn hang_up(&self) {
        self.open.store(false, Ordering::Release);
        self.input.lock().pipe = None;
        self.more_input.notify_one();
        self.board.close();
    }

    fn why_gone(&self) -> String {
        let status = self.process.status();
        let how = match status {
            Some(status) => format!("it has ended ({status})"),
            None => "it has closed its output".to_owned(),
        };
        match self.last_words() {
            words if words.is_empty() => how,
            words => format!("{how}; its last words: {words}"),
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.hang_up();
        self.process.terminate();
    }
}

/// Reads the child's messages, a line each.
async fn read(pipe: Weak<Pipe>, mut stdout: pipe::Receiver) {
    use tokio::io::AsyncReadExt as _;
    let mut buffer = vec![0; 64 << 10];
    let mut line = Intake::default();
    let mut overflow = false;
    loop {
        let read = stdout.read(&mut buffer).await.unwrap_or(0);
        let Some(pipe) = pipe.upgrade() else {
            return;
        };
        if read == 0 {
            return pipe.hang_up();
        }
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest);
            let part = &rest[..end.unwrap_or(rest.len())];
            // Most lines are there from beginning to end, and are looked at where they are.
            if let Some(end) = end
                && line.is_empty()
                && !overflow
            {
                let wire: Arc<dyn Wire> = pipe.clone();
                pipe.board.take_short(part, &wire);
                rest = &rest[end + 1..];
                continue;
            }
            if !overflow && let Err(error) = line.push(part) {
                tracing::warn!(%error, "a line of a server's was passed over");
                overflow = true;
                line = Intake::default();
                if matches!(error, Overflow::Disk(_)) {
                    return pipe.hang_up();
                }
            }
            let Some(end) = end else {
                break;
            };
            rest = &rest[end + 1..];
            if !std::mem::take(&mut overflow) && !line.is_empty() {
                let wire: Arc<dyn Wire> = pipe.clone();
                pipe.board.take(line.finish(), &wire).await;
            }
        }
    }
}

/// Remembers the last of what the child says beside the protocol.
async fn listen(pipe: Weak<Pipe>, mut stderr: pipe::Receiver, _speaks: watch::Sender<()>) {
    use tokio::io::AsyncReadExt as _;
    let mut buffer = vec![0; 4 << 10];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        let Some(pipe) = pipe.upgrade() else {
            return;
        };
        let mut words = pipe.last_words.lock();
        words.extend(&buffer[..read]);
        let over = words.len().saturating_sub(LAST_WORDS_BYTES);
        words.drain(..over);
    }
}

/// Writes what could not be written at once.
async fn write(pipe: Weak<Pipe>, more_input: Arc<Notify>) {
    loop {
        let waits_for = {
            let Some(pipe) = pipe.upgrade() else {
                return;
            };
            let input = pipe.input.lock();
            let Some(sender) = &input.pipe else {
                return;
            };
            Some(sender.clone()).filter(|_| !input.waiting.is_empty())
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
        let mut input = pipe.input.lock();
        while let Some(first) = input.waiting.front() {
            let number = input.taken - input.waiting.len() as u64 + 1;
            let rest = first.len() - input.written;
            match sender.try_write(&first[input.written..]) {
                Ok(written) if written == rest => {
                    input.bytes -= first.len();
                    input.waiting.pop_front();
                    input.written = 0;
                    input.begun = number;
                }
                Ok(written) => {
                    input.written += written;
                    input.begun = number;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    drop(input);
                    return pipe.hang_up();
                }
            }
        }
    }
}

impl Wire for Pipe {
    fn exchange<'a>(&'a self, sent: Sent<'a>) -> Pending<'a, Result<Outcome, Failure>> {
        Box::pin(async move {
            let answered = self.board.wait(&sent);
            let number = match self.send(sent.message) {
                Ok(number) => number,
                Err(failure) => {
                    self.board.forget(sent.id);
                    if self.is_open() {
                        return Err(failure);
                    }
                    self.last_said().await;
                    return Err(Failure::Unavailable(self.why_gone()));
                }
            };
            if let Ok(outcome) = answered.await {
                return Ok(outcome);
            }
            self.last_said().await;
            let why = self.why_gone();
            Err(if self.is_unsent(number) {
                Failure::Unavailable(why)
            } else {
                Failure::Lost(why)
            })
        })
    }

    fn tell(&self, message: Vec<u8>) -> Pending<'_, Result<(), Failure>> {
        Box::pin(std::future::ready(self.send(message).map(|_| ())))
    }

    fn agreed(&self, _: Version) {
        // What it said of questions it does not know explains nothing any more.
        self.last_words.lock().clear();
    }

    fn let_go(&self) {
        self.hang_up();
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    fn last_words(&self) -> String {
        let words: Vec<u8> = self.last_words.lock().iter().copied().collect();
        let mut words = &*String::from_utf8_lossy(&words);
        // What is left of a word that was cut may be half a secret, which nobody would know.
        if words.len() >= LAST_WORDS_BYTES {
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

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.hang_up();
            // A server that is told nothing more has nothing more to do.
            if self.process.ended(GRACE).await {
                return;
            }
            self.process.terminate();
            if !self.process.ended(GRACE * 2).await {
                self.process.kill();
            }
        })
    }
}

/// A process that is waited for, by a thread of its own.
struct Process {
    id: Option<Pid>,
    ended: watch::Receiver<Option<ExitStatus>>,
}

impl Process {
    fn watch(mut child: Child) -> Self {
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

    /// Whether it ends within this time.
    async fn ended(&self, within: Duration) -> bool {
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

    /// Tells the whole group. An id that is free again is nobody's we know.
    fn signal(&self, signal: Signal) {
        if let (Some(id), None) = (self.id, self.status()) {
            let _gone = kill_process_group(id, signal);
            let _gone = kill_process(id, signal);
        }
    }
}
