//! One established connection to a server, and the handshake before it.

use std::borrow::Cow;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rung_tool::LogLevel;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::child::StdioTransport;
use super::error::{RpcError, TransportError};
use super::http::{LegacySseTransport, StreamableHttp};
use super::incoming::ServerResult;
use super::pending::{Delegate, PendingRequests, RpcOutcome};
use super::transport::{EncodedRequest, Transport};
use super::{Identity, ServerTarget};
use crate::client::Capabilities;
use crate::envelope::{code, to_json, write_notification};
use crate::version::ProtocolVersion;
use rung_tool::splice;

/// Silence on stdio after which `initialize` is sent in addition to `server/discover`.
const DISCOVER_SILENCE: Duration = Duration::from_secs(2);

/// Time limit for the notifications that are still being sent when the connection closes.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// The result of the handshake.
#[derive(Debug, Clone)]
pub struct Handshake {
    pub version: ProtocolVersion,
    /// The server's response to `initialize` or `server/discover`, unchanged.
    pub raw: Arc<RawValue>,
    pub capabilities: Value,
    /// The server's `serverInfo`, or null.
    pub server: Value,
    /// The server's instructions for the model.
    pub instructions: Option<String>,
}

/// An open connection.
pub(super) struct EstablishedConnection {
    transport: Arc<dyn Transport>,
    pending: Arc<PendingRequests>,
    next_id: AtomicU64,
    client_meta: Arc<ClientMeta>,
    pub(super) handshake: Handshake,
    pub(super) established_at: Instant,
    /// Notifications and requests that are being sent without a waiting caller.
    background_sends: Mutex<Vec<JoinHandle<()>>>,
    given_up: AtomicBool,
    /// Notified by `give_up`.
    closed: Notify,
}

/// A request before it has an id and its `_meta`.
pub(super) struct OutgoingRequest<'a> {
    pub(super) method: &'a str,
    pub(super) params: Option<&'a str>,
    pub(super) delegate: Option<Arc<dyn Delegate>>,
    /// Headers that mirror arguments.
    pub(super) headers: Vec<(String, String)>,
}

impl EstablishedConnection {
    /// Opens a connection in the era `era`, or in the newest era that the server speaks.
    pub(super) async fn open(
        target: &ServerTarget,
        identity: &Identity,
        delegate: &Arc<dyn Delegate>,
        era: Option<Era>,
    ) -> Result<Arc<Self>, TransportError> {
        match target {
            ServerTarget::Command(command) => {
                let opening = HandshakeAttempt::new(identity, delegate, |board| {
                    StdioTransport::open(command, board)
                })?;
                match opening.handshake_stdio(era).await {
                    // Some servers exit when they receive an unknown method.
                    Err(TransportError::Lost(_)) if era.is_none() => {
                        let again = HandshakeAttempt::new(identity, delegate, |board| {
                            StdioTransport::open(command, board)
                        })?;
                        again.handshake_stdio(Some(Era::Legacy)).await
                    }
                    agreed => agreed,
                }
            }
            ServerTarget::Address(address) => {
                let opening = HandshakeAttempt::new(identity, delegate, |board| {
                    StreamableHttp::open(address, board)
                })?;
                let failure = match opening.handshake_http(era).await {
                    Err(TransportError::Unavailable(why)) if era != Some(Era::Modern) => why,
                    agreed => return agreed,
                };
                // Servers of 2024-11-05 reject a POST to their stream's URL.
                let board = Arc::new(PendingRequests::new(delegate.clone()));
                let Ok(old) = LegacySseTransport::open(address, board.clone()).await else {
                    return Err(TransportError::Unavailable(failure));
                };
                let opening = HandshakeAttempt {
                    transport: old,
                    pending: board,
                    client_meta: Arc::new(ClientMeta::new(identity)),
                };
                let initialized = opening.initialize().await?;
                opening.complete_legacy(initialized).await
            }
        }
    }

    /// Sends a request and waits for its response. Cancels the request when dropped earlier.
    pub(super) async fn request(
        self: &Arc<Self>,
        ask: OutgoingRequest<'_>,
    ) -> Result<RpcOutcome, TransportError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let delegate = ask.delegate.as_ref().unwrap_or(&self.pending.delegate);
        let speaks = self.handshake.version;
        let token = ask
            .delegate
            .as_ref()
            .is_some_and(|delegate| delegate.wants_progress())
            .then_some(id);
        let said = self.client_meta.encoded(speaks, delegate.capabilities());
        let level = delegate.log_level().filter(|_| speaks.is_modern());
        let params = with_meta(ask.params, &said, token, level);
        let mut guard = CancelOnDrop {
            link: self.clone(),
            id,
            wanted: true,
        };
        let outcome = self
            .transport
            .send_request(EncodedRequest {
                id,
                method: ask.method,
                message: encode_request(id, ask.method, params.as_deref()),
                params: ask.params,
                headers: ask.headers,
                delegate: ask.delegate,
            })
            .await;
        guard.wanted = false;
        outcome
    }

    pub(super) async fn notify(
        &self,
        method: &str,
        params: &impl serde::Serialize,
    ) -> Result<(), TransportError> {
        self.transport
            .send_message(write_notification(method, params))
            .await
    }

    pub(super) fn is_open(&self) -> bool {
        !self.given_up.load(Ordering::Acquire) && self.transport.is_open()
    }

    /// Marks the connection as unusable.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        self.closed.notify_waiters();
    }

    /// Waits until the connection ends.
    pub(super) async fn wait_closed(&self) {
        let gone = self.closed.notified();
        if !self.is_open() {
            return;
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let _forgotten = PendingEntryGuard {
            board: &self.pending,
            id,
        };
        // No response ever has this id: the wait ends with the connection.
        tokio::select! {
            _ = self.pending.register_for_close(id) => {}
            () = gone => {}
        }
    }

    pub(super) fn stderr_tail(&self) -> String {
        self.transport.stderr_tail()
    }

    /// Runs `farewell` in the background; only `close` waits for it.
    pub(super) fn send_in_background(&self, farewell: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let mut farewells = self.background_sends.lock();
            farewells.retain(|said| !said.is_finished());
            farewells.push(runtime.spawn(farewell));
        }
    }

    pub(super) async fn close(&self) {
        let farewells = std::mem::take(&mut *self.background_sends.lock());
        let all = async {
            for farewell in farewells {
                let _said_or_not = farewell.await;
            }
        };
        let _in_time_or_not = tokio::time::timeout(FAREWELL_TIMEOUT, all).await;
        self.transport.close().await;
    }
}

impl Drop for EstablishedConnection {
    fn drop(&mut self) {
        self.transport.release();
    }
}

/// Removes the entry that waits for the end of the connection.
struct PendingEntryGuard<'a> {
    board: &'a PendingRequests,
    id: u64,
}

impl Drop for PendingEntryGuard<'_> {
    fn drop(&mut self) {
        self.board.remove(self.id);
    }
}

/// Cancels an unanswered request when dropped.
struct CancelOnDrop {
    link: Arc<EstablishedConnection>,
    id: u64,
    wanted: bool,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.wanted {
            return;
        }
        self.link.pending.remove(self.id);
        if !self.link.transport.needs_cancel_notification() {
            return;
        }
        let params = json!({"requestId": self.id});
        let message = write_notification("notifications/cancelled", &params);
        let wire = self.link.transport.clone();
        self.link.send_in_background(async move {
            let _best_effort = wire.send_message(message).await;
        });
    }
}

/// The two generations of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// Versions with an `initialize` handshake and a session.
    Legacy,
    /// Versions in which every request is self-contained.
    Modern,
}

/// A handshake in progress.
struct HandshakeAttempt {
    transport: Arc<dyn Transport>,
    pending: Arc<PendingRequests>,
    client_meta: Arc<ClientMeta>,
}

/// Request ids of the handshake; later requests start at `FIRST`.
const DISCOVER: u64 = 1;
const DISCOVER_AGAIN: u64 = 2;
const INITIALIZE: u64 = 3;
const FIRST_REQUEST: u64 = 10;

impl HandshakeAttempt {
    fn new<W: Transport + 'static>(
        identity: &Identity,
        delegate: &Arc<dyn Delegate>,
        open: impl FnOnce(Arc<PendingRequests>) -> Result<Arc<W>, TransportError>,
    ) -> Result<Self, TransportError> {
        let board = Arc::new(PendingRequests::new(delegate.clone()));
        Ok(Self {
            transport: open(board.clone())?,
            pending: board,
            client_meta: Arc::new(ClientMeta::new(identity)),
        })
    }

    async fn handshake_stdio(
        &self,
        era: Option<Era>,
    ) -> Result<Arc<EstablishedConnection>, TransportError> {
        match era {
            Some(Era::Legacy) => {
                let initialized = self.initialize().await?;
                self.complete_legacy(initialized).await
            }
            Some(Era::Modern) => match self.discover().await? {
                Some(said) => Ok(self.complete_modern(said)),
                None => Err(not_modern()),
            },
            None => {
                // A legacy server may ignore `server/discover`. Then `initialize` is sent too, and the first response decides.
                let discover = self.discover();
                tokio::pin!(discover);
                let said = tokio::time::timeout(DISCOVER_SILENCE, &mut discover).await;
                if let Ok(said) = said {
                    if let Some(said) = said? {
                        return Ok(self.complete_modern(said));
                    }
                    let initialized = self.initialize().await?;
                    return self.complete_legacy(initialized).await;
                }
                let initialize = self.initialize();
                tokio::pin!(initialize);
                let initialized = tokio::select! {
                    biased;
                    said = &mut discover => match said? {
                        Some(said) => return Ok(self.complete_modern(said)),
                        None => initialize.await?,
                    },
                    initialized = &mut initialize => initialized?,
                };
                self.complete_legacy(initialized).await
            }
        }
    }

    async fn handshake_http(
        &self,
        era: Option<Era>,
    ) -> Result<Arc<EstablishedConnection>, TransportError> {
        if era != Some(Era::Legacy) {
            self.transport.set_version(ProtocolVersion::V2026_07_28);
            match self.discover().await {
                Ok(Some(said)) => return Ok(self.complete_modern(said)),
                Ok(None) if era.is_some() => return Err(not_modern()),
                // Many legacy servers refuse with a bare status, or close the connection.
                Ok(None)
                | Err(
                    TransportError::Unavailable(_)
                    | TransportError::Unusable(_)
                    | TransportError::Lost(_),
                ) if era.is_none() => {}
                Err(failure) => return Err(failure),
                Ok(None) => return Err(not_modern()),
            }
        }
        let initialized = self.initialize().await?;
        self.complete_legacy(initialized).await
    }

    /// Sends `server/discover`. Returns `None` if the server is not modern.
    async fn discover(&self) -> Result<Option<Box<RawValue>>, TransportError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct DiscoverResult {
            supported_versions: Vec<String>,
        }
        let modern = ProtocolVersion::V2026_07_28;
        for id in [DISCOVER, DISCOVER_AGAIN] {
            let said = self
                .client_meta
                .encoded(modern, self.pending.delegate.capabilities());
            let params = with_meta(None, &said, None, None);
            let sent = EncodedRequest {
                id,
                method: "server/discover",
                message: encode_request(id, "server/discover", params.as_deref()),
                params: None,
                headers: Vec::new(),
                delegate: None,
            };
            let refusal = match self.transport.send_request(sent).await? {
                Ok(ServerResult::InMemory(said)) => {
                    let versions = serde_json::from_str::<DiscoverResult>(said.get());
                    let speaks = versions.is_ok_and(|said| {
                        said.supported_versions
                            .iter()
                            .any(|version| version == modern.name())
                    });
                    return Ok(speaks.then_some(said));
                }
                Ok(ServerResult::InFile(_)) => return Ok(None),
                Err(error) => RpcError::parse(&error),
            };
            // Only modern servers use these error codes.
            let known = [code::HEADER_MISMATCH, code::MISSING_CAPABILITY].map(i64::from);
            if known.contains(&refusal.code) {
                return Ok(RawValue::from_string("{}".to_owned()).ok());
            }
            let modern_code = refusal.code == i64::from(code::UNSUPPORTED_VERSION);
            let supported = refusal.data.as_deref().map_or("", RawValue::get);
            // A server may list this version as supported in its refusal: ask once more.
            if !modern_code || !supported.contains(modern.name()) {
                return Ok(None);
            }
        }
        Ok(None)
    }

    async fn initialize(&self) -> Result<Box<RawValue>, TransportError> {
        let offered = ProtocolVersion::LAST_LEGACY;
        let params = json!({
            "protocolVersion": offered.name(),
            "capabilities": self.pending.delegate.capabilities().to_declaration(offered),
            "clientInfo": self.client_meta.identity,
        });
        let sent = EncodedRequest {
            id: INITIALIZE,
            method: "initialize",
            message: encode_request(INITIALIZE, "initialize", Some(&params.to_string())),
            params: None,
            headers: Vec::new(),
            delegate: None,
        };
        match self.transport.send_request(sent).await? {
            Ok(ServerResult::InMemory(said)) => Ok(said),
            Ok(ServerResult::InFile(_)) => Err(TransportError::Unusable(
                "its response to initialize is too long".to_owned(),
            )),
            Err(error) => {
                let refused = RpcError::parse(&error);
                let why = format!(
                    "it rejected initialize: {} ({})",
                    refused.message, refused.code
                );
                Err(TransportError::Unavailable(why))
            }
        }
    }

    async fn complete_legacy(
        &self,
        said: Box<RawValue>,
    ) -> Result<Arc<EstablishedConnection>, TransportError> {
        let agreement = Handshake::parse(said, None)?;
        self.transport.set_version(agreement.version);
        let link = self.established(agreement);
        link.notify("notifications/initialized", &json!({}))
            .await
            .or_else(|failure| match failure {
                // The notification was sent; a rejected response is no failure.
                TransportError::Unusable(_) => Ok(()),
                other => Err(other),
            })?;
        link.transport.on_handshake_complete().await;
        Ok(link)
    }

    fn complete_modern(&self, said: Box<RawValue>) -> Arc<EstablishedConnection> {
        let version = ProtocolVersion::V2026_07_28;
        self.transport.set_version(version);
        let agreement = Handshake::parse(said, Some(version)).expect("the version is given");
        self.established(agreement)
    }

    fn established(&self, agreement: Handshake) -> Arc<EstablishedConnection> {
        Arc::new(EstablishedConnection {
            transport: self.transport.clone(),
            pending: self.pending.clone(),
            next_id: AtomicU64::new(FIRST_REQUEST),
            client_meta: self.client_meta.clone(),
            handshake: agreement,
            established_at: Instant::now(),
            background_sends: Mutex::default(),
            given_up: AtomicBool::new(false),
            closed: Notify::new(),
        })
    }
}

fn not_modern() -> TransportError {
    TransportError::Unavailable("it does not speak 2026-07-28".to_owned())
}

impl Handshake {
    fn parse(
        said: Box<RawValue>,
        version: Option<ProtocolVersion>,
    ) -> Result<Self, TransportError> {
        let all: Value = serde_json::from_str(said.get()).unwrap_or_default();
        let named = all["protocolVersion"].as_str();
        let Some(version) = version.or_else(|| named.and_then(ProtocolVersion::parse)) else {
            let named = rung_ladder::head(named.unwrap_or("none"), 100);
            let why = format!("it uses an unknown protocol version: {named}");
            return Err(TransportError::Unusable(why));
        };
        let in_meta = &all["_meta"]["io.modelcontextprotocol/serverInfo"];
        let server = if in_meta.is_object() {
            in_meta
        } else {
            &all["serverInfo"]
        };
        Ok(Self {
            version,
            capabilities: all["capabilities"].clone(),
            server: server.clone(),
            instructions: all["instructions"].as_str().map(str::to_owned),
            raw: said.into(),
        })
    }

    /// Returns the era of the negotiated version.
    pub fn era(&self) -> Era {
        if self.version.is_modern() {
            Era::Modern
        } else {
            Era::Legacy
        }
    }
}

fn encode_request(id: u64, method: &str, params: Option<&str>) -> Vec<u8> {
    const REST: usize = 64;
    let mut message = Vec::with_capacity(REST + method.len() + params.map_or(0, str::len));
    let _never_fails = write!(message, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":");
    let _never_fails = serde_json::to_writer(&mut message, method);
    if let Some(params) = params {
        message.extend_from_slice(b",\"params\":");
        message.extend_from_slice(params.as_bytes());
    }
    message.push(b'}');
    message
}

/// The client `_meta` that every modern request carries. It rarely changes, so the last encoding is cached.
struct ClientMeta {
    identity: Identity,
    /// The last encoding, with the version and capabilities it is for.
    last: Mutex<Option<(ProtocolVersion, Capabilities, Arc<EncodedMeta>)>>,
}

/// Encoded client `_meta`: as single members for an existing object, and as a whole object.
struct EncodedMeta {
    members: Vec<(&'static str, String)>,
    whole: String,
}

impl ClientMeta {
    fn new(identity: &Identity) -> Self {
        Self {
            identity: identity.clone(),
            last: Mutex::default(),
        }
    }

    fn encoded(&self, version: ProtocolVersion, can: Capabilities) -> Arc<EncodedMeta> {
        let mut last = self.last.lock();
        match &*last {
            Some((of, same, said)) if *of == version && *same == can => said.clone(),
            _ => {
                let said = Arc::new(EncodedMeta::new(&self.identity, version, can));
                *last = Some((version, can, said.clone()));
                said
            }
        }
    }
}

impl EncodedMeta {
    fn new(identity: &Identity, version: ProtocolVersion, can: Capabilities) -> Self {
        let members = if version.is_modern() {
            vec![
                (
                    "io.modelcontextprotocol/protocolVersion",
                    to_json(&version.name()),
                ),
                ("io.modelcontextprotocol/clientInfo", to_json(identity)),
                (
                    "io.modelcontextprotocol/clientCapabilities",
                    to_json(&can.to_declaration(version)),
                ),
            ]
        } else {
            Vec::new()
        };
        let whole = members.iter().fold("{}".to_owned(), |meta, (name, value)| {
            splice::set_member(&meta, name, value)
        });
        Self { members, whole }
    }

    /// Adds the members to the existing `_meta` object `own`.
    fn merged_into(&self, own: &str) -> String {
        let members = self.members.iter();
        members.fold(own.to_owned(), |meta, (name, value)| {
            splice::set_member(&meta, name, value)
        })
    }
}

/// Returns the parameters with the client `_meta` added. All other bytes stay unchanged.
fn with_meta<'p>(
    params: Option<&'p str>,
    said: &EncodedMeta,
    progress_token: Option<u64>,
    log_level: Option<LogLevel>,
) -> Option<Cow<'p, str>> {
    if said.members.is_empty() && progress_token.is_none() {
        return params.map(Cow::Borrowed);
    }
    let params = params.unwrap_or("{}");
    let own = splice::member(params, "_meta").map(RawValue::get);
    let mut meta = match own.filter(|own| own.starts_with('{')) {
        Some(own) => Cow::Owned(said.merged_into(own)),
        None => Cow::Borrowed(said.whole.as_str()),
    };
    if let Some(token) = progress_token {
        meta = Cow::Owned(splice::set_member(
            &meta,
            "progressToken",
            &token.to_string(),
        ));
    }
    if let Some(level) = log_level {
        let level = to_json(&level);
        meta = Cow::Owned(splice::set_member(
            &meta,
            "io.modelcontextprotocol/logLevel",
            &level,
        ));
    }
    Some(Cow::Owned(splice::set_member(params, "_meta", &meta)))
}
