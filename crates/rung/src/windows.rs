//! Several windows of one user, each of which starts this program, and one set of servers behind all of them.
//!
//! The first window serves itself, and whoever comes after it through a socket in the data folder. The others pass on what is said to
//! them, line by line. When the first one ends, one of the others takes its place: it is told again what its client had said of
//! itself, and the client's conversation goes on. What had no answer then is answered with that: nobody knows what became of it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rung_auth::{Access, Permit};
use rung_fault::{Code, Face, Fault};
use rung_gateway::Gateway;
use rung_mcp::{Id, Message, Offer, Server, splice, stdio};
use rung_tool::{Call, Reply};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::net::UnixListener;

/// What a window serves, made anew for everybody who is served.
pub(crate) type Serving = Arc<dyn Fn() -> Result<Offer, Fault> + Send + Sync>;

/// Bytes of a socket's path that every system takes.
const MAX_PATH_BYTES: usize = 100;
/// How long the window that serves may take to begin to.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);
/// What a window hears first. A socket outlives its process for a moment; whoever says this is there.
const WELCOME: &[u8] = b"\n";
/// Bytes of a request that is asked again.
const MAX_AGAIN_BYTES: usize = 64 << 10;
/// Where a client of the modern era says which version it speaks.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Lines that are told again at most.
const MAX_TOLD: usize = 1_100;

/// Where windows that serve the same things meet.
pub(crate) struct Meeting {
    lock: PathBuf,
    socket: PathBuf,
}

impl Meeting {
    /// The place for whoever serves what `digest` stands for. `None` where there can be none.
    pub(crate) fn at(home: &Path, digest: &str) -> Option<Self> {
        let place = |end: &str| home.join(format!("gateway-{}.{end}", &digest[..12]));
        let socket = place("sock");
        (socket.as_os_str().len() <= MAX_PATH_BYTES).then(|| Self {
            lock: place("lock"),
            socket,
        })
    }

    /// Takes the place of the window that serves, if nobody has it.
    fn take(&self) -> io::Result<Option<File>> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&self.lock)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn listen(&self) -> io::Result<std::os::unix::net::UnixListener> {
        // Whoever left it there is gone: we hold the lock.
        let _there_or_not = std::fs::remove_file(&self.socket);
        let listener = std::os::unix::net::UnixListener::bind(&self.socket)?;
        std::fs::set_permissions(&self.socket, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }
}

/// Serves the client at our standard input and output, until it ends or we are to stop.
pub(crate) fn serve(
    meeting: Option<&Meeting>,
    gateway: &Gateway,
    serving: &Serving,
) -> Result<(), Fault> {
    let internal = |error: io::Error| Fault::new(Code::Internal, error.to_string());
    let Some(meeting) = meeting else {
        return serve_here(None, gateway, serving);
    };
    match meeting.take().map_err(internal)? {
        Some(held) => {
            let listener = meeting.listen().map_err(internal)?;
            let served = serve_here(Some(listener), gateway, serving);
            drop(held);
            served
        }
        None => follow(meeting, gateway, serving).map_err(internal),
    }
}

/// Serves our own client, and others through the listener.
fn serve_here(
    listener: Option<std::os::unix::net::UnixListener>,
    gateway: &Gateway,
    serving: &Serving,
) -> Result<(), Fault> {
    let runtime = runtime()?;
    let offer = serving()?;
    rung_memory::give_back();
    let (tended, serving) = (gateway.clone(), serving.clone());
    let others = Arc::<AtomicUsize>::default();
    runtime.block_on(async {
        tokio::spawn(async move { tended.tend().await });
        if let Some(listener) = listener {
            let listener = UnixListener::from_std(listener)
                .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
            tokio::spawn(serve_others(listener, serving, others.clone()));
        }
        let permit = Permit::local_user(Access::Write);
        let (stop, stopped) = tokio::sync::watch::channel(false);
        tokio::spawn(async move {
            crate::commands::asked_to_stop().await;
            let _nobody_waits = stop.send(true);
        });
        let until = |mut stopped: tokio::sync::watch::Receiver<bool>| async move {
            let _gone = stopped.wait_for(|stopped| *stopped).await;
        };
        stdio::serve_own(Server::new(offer), permit, until(stopped.clone())).await;
        // Others may still be served; they are not ours to end.
        while others.load(Ordering::Acquire) > 0 && !*stopped.borrow() {
            tokio::time::sleep(LOOK).await;
        }
        gateway.shut_down().await;
        Ok::<(), Fault>(())
    })?;
    runtime.shutdown_background();
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(|error| Fault::new(Code::Internal, error.to_string()))
}

/// Serves whoever comes through the socket.
async fn serve_others(listener: UnixListener, serving: Serving, others: Arc<AtomicUsize>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        let (serving, others) = (serving.clone(), others.clone());
        others.fetch_add(1, Ordering::AcqRel);
        tokio::spawn(async move {
            let stream = stream.into_std().and_then(|stream| {
                stream.set_nonblocking(false)?;
                (&stream).write_all(WELCOME)?;
                Ok((stream.try_clone()?, stream))
            });
            if let (Ok((input, output)), Ok(offer)) = (stream, serving()) {
                let permit = Permit::local_user(Access::Write);
                let input = BufReader::with_capacity(64 << 10, input);
                let never = std::future::pending();
                stdio::serve(Server::new(offer), permit, input, output, never).await;
            }
            others.fetch_sub(1, Ordering::AcqRel);
        });
    }
}

/// What our client has said and been told, as far as another server would have to know.
#[derive(Default)]
struct Said {
    /// Lines to be told again: how the client began, and what it listens to.
    told: Vec<Vec<u8>>,
    /// Requests without an answer.
    open: HashMap<Id, Open>,
    /// Requests that whoever serves next is asked again.
    again: Vec<(Id, Vec<u8>)>,
    /// Answers that our client has had already.
    passed_over: Vec<Id>,
    /// Where what it says goes, while there is somebody.
    to: Option<UnixStream>,
    /// It has nothing more to say.
    over: bool,
}

/// A request without an answer.
struct Open {
    /// How it was asked, where it may be asked again.
    line: Option<Vec<u8>>,
    /// Whether it is a tool that was called, and by a client of the modern era.
    call: Option<Era>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

struct Window {
    said: Mutex<Said>,
    connected: Condvar,
    gateway: Gateway,
}

/// Passes on what is said, to whoever serves; and takes their place when they are gone.
fn follow(meeting: &Meeting, gateway: &Gateway, serving: &Serving) -> io::Result<()> {
    let window = Arc::new(Window {
        said: Mutex::default(),
        connected: Condvar::new(),
        gateway: gateway.clone(),
    });
    {
        let window = window.clone();
        std::thread::spawn(move || window.read(BufReader::new(io::stdin())));
    }
    let mut output = io::stdout();
    loop {
        let stream = joined(meeting, gateway, serving)?;
        window.connect(&stream)?;
        window.listen(BufReader::new(stream), &mut output)?;
        if window.disconnect(&mut output)? {
            return Ok(());
        }
    }
}

/// A way to whoever serves, which is us where nobody else does.
fn joined(meeting: &Meeting, gateway: &Gateway, serving: &Serving) -> io::Result<UnixStream> {
    let until = Instant::now() + PATIENCE;
    loop {
        match UnixStream::connect(&meeting.socket).and_then(welcomed) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => {}
        }
        if let Some(held) = meeting.take()? {
            let listener = meeting.listen()?;
            serve_behind(held, listener, gateway.clone(), serving.clone());
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits until whoever listens says so.
fn welcomed(mut stream: UnixStream) -> io::Result<UnixStream> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.read_exact(&mut [0; WELCOME.len()])?;
    stream.set_read_timeout(None)?;
    Ok(stream)
}

/// Serves all windows from a thread of this one, for as long as it lasts.
fn serve_behind(
    held: File,
    listener: std::os::unix::net::UnixListener,
    gateway: Gateway,
    serving: Serving,
) {
    std::thread::spawn(move || {
        let _held = held;
        let Ok(runtime) = runtime() else { return };
        runtime.block_on(async {
            let Ok(listener) = UnixListener::from_std(listener) else {
                return;
            };
            // It has waited since it was read, and who sees what may have been said anew.
            gateway.take_up_edits().await;
            tokio::spawn(serve_others(listener, serving, Arc::default()));
            gateway.tend().await;
        });
    });
}

impl Window {
    /// Reads what our client says, and passes it on.
    fn read(&self, mut input: impl BufRead) {
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = input.read_until(b'\n', &mut line);
            let mut said = self.said.lock();
            if !matches!(read, Ok(1..)) {
                said.over = true;
                if let Some(to) = &said.to {
                    let _gone = to.shutdown(std::net::Shutdown::Write);
                }
                self.connected.notify_all();
                return;
            }
            loop {
                while said.to.is_none() {
                    self.connected.wait(&mut said);
                }
                said.note(&line);
                let Some(mut to) = said.to.as_ref().and_then(|to| to.try_clone().ok()) else {
                    break;
                };
                // Whoever does not read must not keep our answers from us.
                let sent = MutexGuard::unlocked(&mut said, || to.write_all(&line));
                if sent.is_ok() || !said.take_back(&line) {
                    break;
                }
                // Nobody was there to read it. Whoever comes next is told.
                said.to = None;
            }
        }
    }

    /// Tells whoever serves now what they have to know.
    fn connect(&self, stream: &UnixStream) -> io::Result<()> {
        let mut said = self.said.lock();
        let mut to = stream.try_clone()?;
        for line in said.told.clone() {
            if let Ok(Message::Request { id, .. }) = Message::read(line.trim_ascii())
                && !said.open.contains_key(&id)
            {
                said.passed_over.push(id);
            }
            to.write_all(&line)?;
        }
        // Once more, and not over and over.
        for (id, line) in std::mem::take(&mut said.again) {
            to.write_all(&line)?;
            let call = called(&line);
            said.open.insert(id, Open { line: None, call });
        }
        if said.over {
            to.shutdown(std::net::Shutdown::Write)?;
        }
        said.to = Some(to);
        self.connected.notify_all();
        Ok(())
    }

    /// Passes on what is answered, until nobody answers any more.
    fn listen(&self, mut input: impl BufRead, output: &mut impl Write) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            match input.read_until(b'\n', &mut line) {
                Ok(1..) if line.ends_with(b"\n") => {}
                _ => return Ok(()),
            }
            if let Ok(Message::Response { id, .. }) = Message::read(line.trim_ascii()) {
                let mut said = self.said.lock();
                said.open.remove(&id);
                if let Some(at) = said.passed_over.iter().position(|own| *own == id) {
                    said.passed_over.remove(at);
                    continue;
                }
            }
            output.write_all(&line)?;
            output.flush()?;
        }
    }

    /// Nobody answers any more. Whether our client has nothing more to say either.
    fn disconnect(&self, output: &mut impl Write) -> io::Result<bool> {
        let mut said = self.said.lock();
        said.to = None;
        said.passed_over.clear();
        if said.over {
            return Ok(true);
        }
        let said = &mut *said;
        let begins_with = |line: &[u8]| said.told.iter().any(|told| told == line);
        let mut open = HashMap::new();
        for (id, request) in said.open.drain() {
            match request.line {
                // It is told again anyway.
                Some(line) if begins_with(&line) => {
                    let line = Some(line);
                    open.insert(id, Open { line, ..request });
                }
                Some(line) if self.is_repeatable(&line) => said.again.push((id, line)),
                _ => writeln!(output, "{}", unknown(&id, request.call))?,
            }
        }
        said.open = open;
        output.flush()?;
        Ok(false)
    }
}

impl Window {
    /// Whether asking it twice is asking it once.
    fn is_repeatable(&self, line: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Called<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
            #[serde(borrow)]
            arguments: Option<&'a RawValue>,
        }
        let Ok(Message::Request { method, params, .. }) = Message::read(line.trim_ascii()) else {
            return false;
        };
        if method != "tools/call" {
            let reads = ["list", "read", "get", "complete", "discover", "ping"];
            let last = method.rsplit('/').next().unwrap_or(&method);
            return reads.contains(&last);
        }
        let called = params.and_then(|params| serde_json::from_str(params.get()).ok());
        called.is_some_and(|called: Called<'_>| {
            let arguments = called.arguments.map_or("{}", RawValue::get);
            self.gateway.is_repeatable(&called.name, arguments)
        })
    }
}

/// Whether a line calls a tool, and as a client of which era.
fn called(line: &[u8]) -> Option<Era> {
    let Ok(Message::Request { method, params, .. }) = Message::read(line.trim_ascii()) else {
        return None;
    };
    let meta = params.and_then(|params| splice::member(params.get(), "_meta"));
    let version = meta.and_then(|meta| splice::member(meta.get(), VERSION));
    let era = if version.is_some() {
        Era::Modern
    } else {
        Era::Legacy
    };
    (method == "tools/call").then_some(era)
}

/// The answer to what nobody knows the outcome of.
fn unknown(id: &Id, call: Option<Era>) -> String {
    let why = "the window that served this one has ended: whether it was done is not known";
    let fault = Fault::new(Code::OutcomeUnknown, why)
        .with_hint("look whether it was done before you do it again");
    let id = id.as_json();
    let Some(era) = call else {
        let data = &fault.body(Face::Rung)["error"];
        let error = json!({"code": -32603, "message": why, "data": data});
        return format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}");
    };
    let whose = Call::new(Permit::local_user(Access::Write));
    let mut result = json!(Reply::failed(&fault, Face::Rung, &whose));
    if era == Era::Modern {
        result["resultType"] = "complete".into();
    }
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")
}

impl Said {
    /// Notes what another server would have to know.
    fn note(&mut self, line: &[u8]) {
        match Message::read(line.trim_ascii()) {
            Ok(Message::Request { id, method, .. }) => {
                if begins(&method) && self.told.len() < MAX_TOLD {
                    self.told.push(line.to_vec());
                }
                let line = (line.len() <= MAX_AGAIN_BYTES).then(|| line.to_vec());
                let call = line.as_deref().and_then(called);
                self.open.insert(id, Open { line, call });
            }
            Ok(Message::Notification { method, .. }) if begins(&method) => {
                self.told.push(line.to_vec());
            }
            _ => {}
        }
    }

    /// Takes a request back that nobody has read. Whether that could be done: one that was answered meanwhile is over, and how a
    /// conversation begins is told again anyway.
    fn take_back(&mut self, line: &[u8]) -> bool {
        match Message::read(line.trim_ascii()) {
            Ok(Message::Request { id, method, .. }) => {
                !begins(&method) && self.open.remove(&id).is_some()
            }
            _ => false,
        }
    }
}

/// Whether another server would have to know of it.
fn begins(method: &str) -> bool {
    matches!(
        method,
        "initialize" | "notifications/initialized" | "logging/setLevel" | "resources/subscribe"
    )
}
