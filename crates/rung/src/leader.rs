//! Shares one set of downstream servers between several processes of one user, each started by its own MCP client over stdio.
//!
//! The first process is the leader: it serves its own client, and later processes through a socket in the data folder. The
//! others are proxies that forward messages line by line. When the leader ends, one of the proxies takes over: each proxy
//! replays the messages that set up its client's session, and the client notices nothing. Repeatable requests without a
//! response are sent again; others are answered with `outcome_unknown`.

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
use rung_mcp::{McpServer, Message, RequestId, ServerConfig, stdio};
use rung_tool::{Call, Reply, splice};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::net::UnixListener;

/// Builds the server configuration, once for each client.
pub(crate) type ServerConfigFactory = Arc<dyn Fn() -> Result<ServerConfig, Fault> + Send + Sync>;

/// Maximum bytes of a socket path that all systems accept.
const MAX_PATH_BYTES: usize = 100;
/// Maximum time to wait until a leader accepts a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// First bytes that the leader sends. A socket outlives its process for a moment; these bytes prove that the leader is alive.
const WELCOME: &[u8] = b"\n";
/// Maximum bytes of a request that can be sent again.
const MAX_RESEND_BYTES: usize = 64 << 10;
/// `_meta` key in which a modern client names its protocol version.
const VERSION_META_KEY: &str = "io.modelcontextprotocol/protocolVersion";
/// Maximum number of lines to replay.
const MAX_REPLAY_LINES: usize = 1_100;

/// Lock and socket shared by the processes that serve the same configuration.
pub(crate) struct Rendezvous {
    lock: PathBuf,
    socket: PathBuf,
}

impl Rendezvous {
    /// Returns the rendezvous for the configuration of `digest`, or `None` if its socket path is too long.
    pub(crate) fn for_digest(home: &Path, digest: &str) -> Option<Self> {
        let place = |end: &str| home.join(format!("gateway-{}.{end}", &digest[..12]));
        let socket = place("sock");
        (socket.as_os_str().len() <= MAX_PATH_BYTES).then(|| Self {
            lock: place("lock"),
            socket,
        })
    }

    /// Acquires the lock of the leader. Returns `None` if another process holds it.
    fn try_lock(&self) -> io::Result<Option<File>> {
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
        // A socket that is there is stale, because this process holds the lock.
        let _there_or_not = std::fs::remove_file(&self.socket);
        let listener = std::os::unix::net::UnixListener::bind(&self.socket)?;
        std::fs::set_permissions(&self.socket, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }
}

/// Serves the client on standard input and output, until it closes the input or the process is asked to stop.
pub(crate) fn serve(
    meeting: Option<&Rendezvous>,
    gateway: &Gateway,
    serving: &ServerConfigFactory,
) -> Result<(), Fault> {
    let internal = |error: io::Error| Fault::new(Code::Internal, error.to_string());
    let Some(meeting) = meeting else {
        return serve_as_leader(None, gateway, serving);
    };
    match meeting.try_lock().map_err(internal)? {
        Some(held) => {
            let listener = meeting.listen().map_err(internal)?;
            let served = serve_as_leader(Some(listener), gateway, serving);
            drop(held);
            served
        }
        None => run_proxy(meeting, gateway, serving).map_err(internal),
    }
}

/// Serves as leader: the own client, and proxies through the listener.
fn serve_as_leader(
    listener: Option<std::os::unix::net::UnixListener>,
    gateway: &Gateway,
    serving: &ServerConfigFactory,
) -> Result<(), Fault> {
    let runtime = build_runtime()?;
    let offer = serving()?;
    rung_memory::release_text_pages();
    let (tended, serving) = (gateway.clone(), serving.clone());
    let others = Arc::<AtomicUsize>::default();
    runtime.block_on(async {
        tokio::spawn(async move { tended.run_maintenance().await });
        if let Some(listener) = listener {
            let listener = UnixListener::from_std(listener)
                .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
            tokio::spawn(serve_proxies(listener, serving, others.clone()));
        }
        let permit = Permit::local_user(Access::Write);
        let (stop, stopped) = tokio::sync::watch::channel(false);
        tokio::spawn(async move {
            crate::commands::stop_signal().await;
            let _nobody_waits = stop.send(true);
        });
        let until = |mut stopped: tokio::sync::watch::Receiver<bool>| async move {
            let _gone = stopped.wait_for(|stopped| *stopped).await;
        };
        stdio::serve_process_stdio(McpServer::new(offer), permit, until(stopped.clone())).await;
        // Keep serving the proxies after the own client has ended.
        while others.load(Ordering::Acquire) > 0 && !*stopped.borrow() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        gateway.shut_down().await;
        Ok::<(), Fault>(())
    })?;
    runtime.shutdown_background();
    Ok(())
}

fn build_runtime() -> Result<tokio::runtime::Runtime, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(|error| Fault::new(Code::Internal, error.to_string()))
}

/// Serves the proxies that connect to the socket.
async fn serve_proxies(
    listener: UnixListener,
    serving: ServerConfigFactory,
    others: Arc<AtomicUsize>,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(POLL_INTERVAL).await;
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
                stdio::serve(McpServer::new(offer), permit, input, output, never).await;
            }
            others.fetch_sub(1, Ordering::AcqRel);
        });
    }
}

/// State of the client that a proxy must replay to the next leader.
#[derive(Default)]
struct ReplayLog {
    /// Lines to replay: initialization, log level and subscriptions.
    setup_lines: Vec<Vec<u8>>,
    /// Requests without a response.
    in_flight: HashMap<RequestId, InFlight>,
    /// Requests to send again to the next leader.
    to_resend: Vec<(RequestId, Vec<u8>)>,
    /// Requests whose response the client already has: drop the second one.
    duplicate_responses: Vec<RequestId>,
    /// Connection to the leader, while there is one.
    leader: Option<UnixStream>,
    /// True once the client has closed its input.
    is_input_closed: bool,
}

/// A request without a response.
struct InFlight {
    /// The request itself, if it is small enough to send again.
    line: Option<Vec<u8>>,
    /// The era of the client, if the request calls a tool.
    tool_call_era: Option<ClientEra>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientEra {
    Legacy,
    Modern,
}

struct StdioProxy {
    replay_log: Mutex<ReplayLog>,
    connected: Condvar,
    gateway: Gateway,
}

/// Forwards messages between the client and the leader, and takes over when the leader has ended.
fn run_proxy(
    meeting: &Rendezvous,
    gateway: &Gateway,
    serving: &ServerConfigFactory,
) -> io::Result<()> {
    let window = Arc::new(StdioProxy {
        replay_log: Mutex::default(),
        connected: Condvar::new(),
        gateway: gateway.clone(),
    });
    {
        let window = window.clone();
        std::thread::spawn(move || window.forward_requests(BufReader::new(io::stdin())));
    }
    let mut output = io::stdout();
    loop {
        let stream = connect_to_leader(meeting, gateway, serving)?;
        window.replay_to(&stream)?;
        window.forward_responses(BufReader::new(stream), &mut output)?;
        if window.handle_disconnect(&mut output)? {
            return Ok(());
        }
    }
}

/// Connects to the leader. If there is none, this process becomes the leader first.
fn connect_to_leader(
    meeting: &Rendezvous,
    gateway: &Gateway,
    serving: &ServerConfigFactory,
) -> io::Result<UnixStream> {
    let until = Instant::now() + CONNECT_TIMEOUT;
    loop {
        match UnixStream::connect(&meeting.socket).and_then(await_welcome) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => {}
        }
        if let Some(held) = meeting.try_lock()? {
            let listener = meeting.listen()?;
            lead_in_background(held, listener, gateway.clone(), serving.clone());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Waits for the welcome of the leader.
fn await_welcome(mut stream: UnixStream) -> io::Result<UnixStream> {
    stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
    stream.read_exact(&mut [0; WELCOME.len()])?;
    stream.set_read_timeout(None)?;
    Ok(stream)
}

/// Serves all processes from a thread of this one, as leader, until this process ends.
fn lead_in_background(
    held: File,
    listener: std::os::unix::net::UnixListener,
    gateway: Gateway,
    serving: ServerConfigFactory,
) {
    std::thread::spawn(move || {
        let _held = held;
        let Ok(runtime) = build_runtime() else { return };
        runtime.block_on(async {
            let Ok(listener) = UnixListener::from_std(listener) else {
                return;
            };
            // The configuration may have been edited since it was read: reload it before serving.
            gateway.reload_if_edited().await;
            tokio::spawn(serve_proxies(listener, serving, Arc::default()));
            gateway.run_maintenance().await;
        });
    });
}

impl StdioProxy {
    /// Reads messages of the client and forwards them to the leader.
    fn forward_requests(&self, mut input: impl BufRead) {
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = input.read_until(b'\n', &mut line);
            let mut said = self.replay_log.lock();
            if !matches!(read, Ok(1..)) {
                said.is_input_closed = true;
                if let Some(to) = &said.leader {
                    let _gone = to.shutdown(std::net::Shutdown::Write);
                }
                self.connected.notify_all();
                return;
            }
            loop {
                while said.leader.is_none() {
                    self.connected.wait(&mut said);
                }
                said.record(&line);
                let Some(mut to) = said.leader.as_ref().and_then(|to| to.try_clone().ok()) else {
                    break;
                };
                // Release the lock while writing: a leader that does not read must not block its responses.
                let sent = MutexGuard::unlocked(&mut said, || to.write_all(&line));
                if sent.is_ok() || !said.withdraw(&line) {
                    break;
                }
                // The leader did not read the message: forward it to the next one.
                said.leader = None;
            }
        }
    }

    /// Replays the state of the client to a new leader.
    fn replay_to(&self, stream: &UnixStream) -> io::Result<()> {
        let mut said = self.replay_log.lock();
        let mut to = stream.try_clone()?;
        for line in said.setup_lines.clone() {
            if let Ok(Message::Request { id, .. }) = Message::parse(line.trim_ascii())
                && !said.in_flight.contains_key(&id)
            {
                said.duplicate_responses.push(id);
            }
            to.write_all(&line)?;
        }
        // Send each request again only once.
        for (id, line) in std::mem::take(&mut said.to_resend) {
            to.write_all(&line)?;
            let call = tool_call_era(&line);
            said.in_flight.insert(
                id,
                InFlight {
                    line: None,
                    tool_call_era: call,
                },
            );
        }
        if said.is_input_closed {
            to.shutdown(std::net::Shutdown::Write)?;
        }
        said.leader = Some(to);
        self.connected.notify_all();
        Ok(())
    }

    /// Forwards messages of the leader to the client until the connection ends.
    fn forward_responses(
        &self,
        mut input: impl BufRead,
        output: &mut impl Write,
    ) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            match input.read_until(b'\n', &mut line) {
                Ok(1..) if line.ends_with(b"\n") => {}
                _ => return Ok(()),
            }
            if let Ok(Message::Response { id, .. }) = Message::parse(line.trim_ascii()) {
                let mut said = self.replay_log.lock();
                said.in_flight.remove(&id);
                if let Some(at) = said.duplicate_responses.iter().position(|own| *own == id) {
                    said.duplicate_responses.remove(at);
                    continue;
                }
            }
            output.write_all(&line)?;
            output.flush()?;
        }
    }

    /// Handles the loss of the leader. Returns true if the client has closed its input, too.
    fn handle_disconnect(&self, output: &mut impl Write) -> io::Result<bool> {
        let mut said = self.replay_log.lock();
        said.leader = None;
        said.duplicate_responses.clear();
        if said.is_input_closed {
            return Ok(true);
        }
        let said = &mut *said;
        let begins_with = |line: &[u8]| said.setup_lines.iter().any(|told| told == line);
        let mut open = HashMap::new();
        for (id, request) in said.in_flight.drain() {
            match request.line {
                // This request is replayed anyway.
                Some(line) if begins_with(&line) => {
                    let line = Some(line);
                    open.insert(id, InFlight { line, ..request });
                }
                Some(line) if self.is_idempotent(&line) => said.to_resend.push((id, line)),
                _ => writeln!(
                    output,
                    "{}",
                    outcome_unknown_response(&id, request.tool_call_era)
                )?,
            }
        }
        said.in_flight = open;
        output.flush()?;
        Ok(false)
    }
}

impl StdioProxy {
    /// Returns true if sending the request twice has the effect of sending it once.
    fn is_idempotent(&self, line: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct CalledTool<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
            #[serde(borrow)]
            arguments: Option<&'a RawValue>,
        }
        let Ok(Message::Request { method, params, .. }) = Message::parse(line.trim_ascii()) else {
            return false;
        };
        if method != "tools/call" {
            let reads = ["list", "read", "get", "complete", "discover", "ping"];
            let last = method.rsplit('/').next().unwrap_or(&method);
            return reads.contains(&last);
        }
        let called = params.and_then(|params| serde_json::from_str(params.get()).ok());
        called.is_some_and(|called: CalledTool<'_>| {
            let arguments = called.arguments.map_or("{}", RawValue::get);
            self.gateway.is_idempotent(&called.name, arguments)
        })
    }
}

/// Returns the era of the client if the line calls a tool.
fn tool_call_era(line: &[u8]) -> Option<ClientEra> {
    let Ok(Message::Request { method, params, .. }) = Message::parse(line.trim_ascii()) else {
        return None;
    };
    let meta = params.and_then(|params| splice::member(params.get(), "_meta"));
    let version = meta.and_then(|meta| splice::member(meta.get(), VERSION_META_KEY));
    let era = if version.is_some() {
        ClientEra::Modern
    } else {
        ClientEra::Legacy
    };
    (method == "tools/call").then_some(era)
}

/// Returns the response to a request whose outcome is unknown.
fn outcome_unknown_response(id: &RequestId, call: Option<ClientEra>) -> String {
    let why = "the process that handled the request has ended; the outcome is unknown";
    let fault = Fault::new(Code::OutcomeUnknown, why)
        .with_hint("check whether the call had its effect before you repeat it");
    let id = id.as_json();
    let Some(era) = call else {
        let data = &fault.body(Face::Rung)["error"];
        let error = json!({"code": -32603, "message": why, "data": data});
        return format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}");
    };
    let whose = Call::new(Permit::local_user(Access::Write));
    let mut result = json!(Reply::failed(&fault, Face::Rung, &whose));
    if era == ClientEra::Modern {
        result["resultType"] = "complete".into();
    }
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")
}

impl ReplayLog {
    /// Records what a new leader must know of a message.
    fn record(&mut self, line: &[u8]) {
        match Message::parse(line.trim_ascii()) {
            Ok(Message::Request { id, method, .. }) => {
                if is_setup_method(&method) && self.setup_lines.len() < MAX_REPLAY_LINES {
                    self.setup_lines.push(line.to_vec());
                }
                let line = (line.len() <= MAX_RESEND_BYTES).then(|| line.to_vec());
                let call = line.as_deref().and_then(tool_call_era);
                self.in_flight.insert(
                    id,
                    InFlight {
                        line,
                        tool_call_era: call,
                    },
                );
            }
            Ok(Message::Notification { method, .. }) if is_setup_method(&method) => {
                self.setup_lines.push(line.to_vec());
            }
            _ => {}
        }
    }

    /// Withdraws a request that the leader has not read, so that it can be forwarded again. Returns false if it was answered
    /// meanwhile, or is replayed anyway.
    fn withdraw(&mut self, line: &[u8]) -> bool {
        match Message::parse(line.trim_ascii()) {
            Ok(Message::Request { id, method, .. }) => {
                !is_setup_method(&method) && self.in_flight.remove(&id).is_some()
            }
            _ => false,
        }
    }
}

/// Returns true if a new leader must be told of messages with this method.
fn is_setup_method(method: &str) -> bool {
    matches!(
        method,
        "initialize" | "notifications/initialized" | "logging/setLevel" | "resources/subscribe"
    )
}
