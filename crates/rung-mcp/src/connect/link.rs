//! One conversation with a server, from the moment both sides have agreed how to speak.

use std::borrow::Cow;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rung_tool::Level;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::board::{Board, Delegate, Outcome};
use super::child::Pipe;
use super::error::{Failure, Refused};
use super::http::{OldStream, Posts};
use super::intake::Answer;
use super::wire::{Sent, Wire};
use super::{Identity, Target};
use crate::client::Capabilities;
use crate::envelope::{code, json, write_notification};
use crate::splice;
use crate::version::Version;

/// How long a server on a pipe may say nothing to a question of the modern era before it is asked as a legacy one, too.
const SILENCE: Duration = Duration::from_secs(2);

/// How long last words to a server may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// What both sides agreed on.
#[derive(Debug, Clone)]
pub struct Agreement {
    /// The version that is spoken.
    pub version: Version,
    /// What the server said of itself, as it came.
    pub said: Arc<RawValue>,
    /// What it can do.
    pub capabilities: Value,
    /// Its name and version, as far as it told.
    pub server: Value,
    /// What a model should know before it calls anything.
    pub instructions: Option<String>,
}

/// One conversation.
pub(super) struct Link {
    wire: Arc<dyn Wire>,
    board: Arc<Board>,
    next_id: AtomicU64,
    manners: Arc<Manners>,
    pub(super) agreement: Agreement,
    pub(super) since: Instant,
    /// Last words to the server that are on their way.
    farewells: Mutex<Vec<JoinHandle<()>>>,
    given_up: AtomicBool,
    /// Told when it is given up.
    gone: Notify,
}

/// A request, and how it is to be made.
pub(super) struct Ask<'a> {
    pub(super) method: &'a str,
    pub(super) params: Option<&'a str>,
    pub(super) delegate: Option<Arc<dyn Delegate>>,
    /// Headers that repeat arguments.
    pub(super) headers: Vec<(String, String)>,
}

impl Link {
    /// Opens a conversation, in the era that is remembered or else in the newest one that the server speaks.
    pub(super) async fn open(
        target: &Target,
        identity: &Identity,
        delegate: &Arc<dyn Delegate>,
        era: Option<Era>,
    ) -> Result<Arc<Self>, Failure> {
        match target {
            Target::Command(command) => {
                let opening = Opening::new(identity, delegate, |board| Pipe::open(command, board))?;
                match opening.agree_on_pipe(era).await {
                    // Some servers end when they are asked what they do not know.
                    Err(Failure::Lost(_)) if era.is_none() => {
                        let again =
                            Opening::new(identity, delegate, |board| Pipe::open(command, board))?;
                        again.agree_on_pipe(Some(Era::Legacy)).await
                    }
                    agreed => agreed,
                }
            }
            Target::Address(address) => {
                let opening =
                    Opening::new(identity, delegate, |board| Posts::open(address, board))?;
                let failure = match opening.agree_on_posts(era).await {
                    Err(Failure::Unavailable(why)) if era != Some(Era::Modern) => why,
                    agreed => return agreed,
                };
                // The oldest servers take nothing that is posted to the address of their stream.
                let board = Arc::new(Board::new(delegate.clone()));
                let Ok(old) = OldStream::open(address, board.clone()).await else {
                    return Err(Failure::Unavailable(failure));
                };
                let opening = Opening {
                    wire: old,
                    board,
                    manners: Arc::new(Manners::of(identity)),
                };
                let initialized = opening.initialize().await?;
                opening.legacy(initialized).await
            }
        }
    }

    /// Makes a request. Dropped before the answer came, it takes the request back.
    pub(super) async fn request(self: &Arc<Self>, ask: Ask<'_>) -> Result<Outcome, Failure> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let delegate = ask.delegate.as_ref().unwrap_or(&self.board.delegate);
        let speaks = self.agreement.version;
        let token = ask
            .delegate
            .as_ref()
            .is_some_and(|delegate| delegate.wants_progress())
            .then_some(id);
        let said = self.manners.said(speaks, delegate.can());
        let level = delegate.log_level().filter(|_| speaks.is_modern());
        let params = dressed(ask.params, &said, token, level);
        let mut guard = Unanswered {
            link: self.clone(),
            id,
            wanted: true,
        };
        let outcome = self
            .wire
            .exchange(Sent {
                id,
                method: ask.method,
                message: written(id, ask.method, params.as_deref()),
                params: ask.params,
                headers: ask.headers,
                delegate: ask.delegate,
            })
            .await;
        guard.wanted = false;
        outcome
    }

    pub(super) async fn tell(
        &self,
        method: &str,
        params: &impl serde::Serialize,
    ) -> Result<(), Failure> {
        self.wire.tell(write_notification(method, params)).await
    }

    pub(super) fn is_open(&self) -> bool {
        !self.given_up.load(Ordering::Acquire) && self.wire.is_open()
    }

    /// Nothing more can come of it.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        self.gone.notify_waiters();
    }

    /// Waits until nothing more can come of it.
    pub(super) async fn ended(&self) {
        let gone = self.gone.notified();
        if !self.is_open() {
            return;
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let _forgotten = Forgotten {
            board: &self.board,
            id,
        };
        // An answer that never comes, except that nobody answers any more.
        tokio::select! {
            _ = self.board.wait_for_end(id) => {}
            () = gone => {}
        }
    }

    pub(super) fn last_words(&self) -> String {
        self.wire.last_words()
    }

    /// Says something that nobody waits for, except whoever closes the link.
    pub(super) fn part(&self, farewell: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let mut farewells = self.farewells.lock();
            farewells.retain(|said| !said.is_finished());
            farewells.push(runtime.spawn(farewell));
        }
    }

    pub(super) async fn close(&self) {
        let farewells = std::mem::take(&mut *self.farewells.lock());
        let all = async {
            for farewell in farewells {
                let _said_or_not = farewell.await;
            }
        };
        let _in_time_or_not = tokio::time::timeout(FAREWELL, all).await;
        self.wire.close().await;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.wire.let_go();
    }
}

/// Somebody who waits for no answer in particular.
struct Forgotten<'a> {
    board: &'a Board,
    id: u64,
}

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        self.board.forget(self.id);
    }
}

/// A request without an answer yet.
struct Unanswered {
    link: Arc<Link>,
    id: u64,
    wanted: bool,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if !self.wanted {
            return;
        }
        self.link.board.forget(self.id);
        if !self.link.wire.hears_cancelling() {
            return;
        }
        let params = json!({"requestId": self.id});
        let message = write_notification("notifications/cancelled", &params);
        let wire = self.link.wire.clone();
        self.link.part(async move {
            let _best_effort = wire.tell(message).await;
        });
    }
}

/// The two eras.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// With `initialize`, and what was agreed on by it.
    Legacy,
    /// Every request stands for itself.
    Modern,
}

/// A conversation that is being agreed on.
struct Opening {
    wire: Arc<dyn Wire>,
    board: Arc<Board>,
    manners: Arc<Manners>,
}

/// Ids of what is asked before there is an agreement.
const DISCOVER: u64 = 1;
const DISCOVER_AGAIN: u64 = 2;
const INITIALIZE: u64 = 3;
const FIRST: u64 = 10;

impl Opening {
    fn new<W: Wire + 'static>(
        identity: &Identity,
        delegate: &Arc<dyn Delegate>,
        open: impl FnOnce(Arc<Board>) -> Result<Arc<W>, Failure>,
    ) -> Result<Self, Failure> {
        let board = Arc::new(Board::new(delegate.clone()));
        Ok(Self {
            wire: open(board.clone())?,
            board,
            manners: Arc::new(Manners::of(identity)),
        })
    }

    async fn agree_on_pipe(&self, era: Option<Era>) -> Result<Arc<Link>, Failure> {
        match era {
            Some(Era::Legacy) => {
                let initialized = self.initialize().await?;
                self.legacy(initialized).await
            }
            Some(Era::Modern) => match self.discover().await? {
                Some(said) => Ok(self.modern(said)),
                None => Err(not_modern()),
            },
            None => {
                // Whoever does not know the question may say nothing to it. Then both are asked, and who answers decides.
                let discover = self.discover();
                tokio::pin!(discover);
                let said = tokio::time::timeout(SILENCE, &mut discover).await;
                if let Ok(said) = said {
                    if let Some(said) = said? {
                        return Ok(self.modern(said));
                    }
                    let initialized = self.initialize().await?;
                    return self.legacy(initialized).await;
                }
                let initialize = self.initialize();
                tokio::pin!(initialize);
                let initialized = tokio::select! {
                    biased;
                    said = &mut discover => match said? {
                        Some(said) => return Ok(self.modern(said)),
                        None => initialize.await?,
                    },
                    initialized = &mut initialize => initialized?,
                };
                self.legacy(initialized).await
            }
        }
    }

    async fn agree_on_posts(&self, era: Option<Era>) -> Result<Arc<Link>, Failure> {
        if era != Some(Era::Legacy) {
            self.wire.agreed(Version::V2026_07_28);
            match self.discover().await {
                Ok(Some(said)) => return Ok(self.modern(said)),
                Ok(None) if era.is_some() => return Err(not_modern()),
                // Many a legacy server refuses by a status alone, or breaks.
                Ok(None)
                | Err(Failure::Unavailable(_) | Failure::Unusable(_) | Failure::Lost(_))
                    if era.is_none() => {}
                Err(failure) => return Err(failure),
                Ok(None) => return Err(not_modern()),
            }
        }
        let initialized = self.initialize().await?;
        self.legacy(initialized).await
    }

    /// What a modern server says of itself. `None` if this is not one.
    async fn discover(&self) -> Result<Option<Box<RawValue>>, Failure> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Said {
            supported_versions: Vec<String>,
        }
        let modern = Version::V2026_07_28;
        for id in [DISCOVER, DISCOVER_AGAIN] {
            let said = self.manners.said(modern, self.board.delegate.can());
            let params = dressed(None, &said, None, None);
            let sent = Sent {
                id,
                method: "server/discover",
                message: written(id, "server/discover", params.as_deref()),
                params: None,
                headers: Vec::new(),
                delegate: None,
            };
            let refusal = match self.wire.exchange(sent).await? {
                Ok(Answer::Here(said)) => {
                    let versions = serde_json::from_str::<Said>(said.get());
                    let speaks = versions.is_ok_and(|said| {
                        said.supported_versions
                            .iter()
                            .any(|version| version == modern.name())
                    });
                    return Ok(speaks.then_some(said));
                }
                Ok(Answer::Long(_)) => return Ok(None),
                Err(error) => Refused::read(&error),
            };
            // Whoever knows these numbers is modern, whatever is missing.
            let known = [code::HEADER_MISMATCH, code::MISSING_CAPABILITY].map(i64::from);
            if known.contains(&refusal.code) {
                return Ok(RawValue::from_string("{}".to_owned()).ok());
            }
            let modern_code = refusal.code == i64::from(code::UNSUPPORTED_VERSION);
            let supported = refusal.data.as_deref().map_or("", RawValue::get);
            // It may speak this version and want to be asked again.
            if !modern_code || !supported.contains(modern.name()) {
                return Ok(None);
            }
        }
        Ok(None)
    }

    async fn initialize(&self) -> Result<Box<RawValue>, Failure> {
        let offered = Version::LAST_LEGACY;
        let params = json!({
            "protocolVersion": offered.name(),
            "capabilities": self.board.delegate.can().declared(offered),
            "clientInfo": self.manners.identity,
        });
        let sent = Sent {
            id: INITIALIZE,
            method: "initialize",
            message: written(INITIALIZE, "initialize", Some(&params.to_string())),
            params: None,
            headers: Vec::new(),
            delegate: None,
        };
        match self.wire.exchange(sent).await? {
            Ok(Answer::Here(said)) => Ok(said),
            Ok(Answer::Long(_)) => Err(Failure::Unusable("its greeting has no end".to_owned())),
            Err(error) => {
                let refused = Refused::read(&error);
                let why = format!(
                    "it refuses to begin: {} ({})",
                    refused.message, refused.code
                );
                Err(Failure::Unavailable(why))
            }
        }
    }

    async fn legacy(&self, said: Box<RawValue>) -> Result<Arc<Link>, Failure> {
        let agreement = Agreement::read(said, None)?;
        self.wire.agreed(agreement.version);
        let link = self.linked(agreement);
        link.tell("notifications/initialized", &json!({}))
            .await
            .or_else(|failure| match failure {
                // It is said, and need not be heard.
                Failure::Unusable(_) => Ok(()),
                other => Err(other),
            })?;
        link.wire.ready().await;
        Ok(link)
    }

    fn modern(&self, said: Box<RawValue>) -> Arc<Link> {
        let version = Version::V2026_07_28;
        self.wire.agreed(version);
        let agreement = Agreement::read(said, Some(version)).expect("the version is given");
        self.linked(agreement)
    }

    fn linked(&self, agreement: Agreement) -> Arc<Link> {
        Arc::new(Link {
            wire: self.wire.clone(),
            board: self.board.clone(),
            next_id: AtomicU64::new(FIRST),
            manners: self.manners.clone(),
            agreement,
            since: Instant::now(),
            farewells: Mutex::default(),
            given_up: AtomicBool::new(false),
            gone: Notify::new(),
        })
    }
}

fn not_modern() -> Failure {
    Failure::Unavailable("it does not speak 2026-07-28".to_owned())
}

impl Agreement {
    fn read(said: Box<RawValue>, version: Option<Version>) -> Result<Self, Failure> {
        let all: Value = serde_json::from_str(said.get()).unwrap_or_default();
        let named = all["protocolVersion"].as_str();
        let Some(version) = version.or_else(|| named.and_then(Version::of)) else {
            let named = rung_ladder::head(named.unwrap_or("none"), 100);
            let why = format!("it speaks a version that is not known here: {named}");
            return Err(Failure::Unusable(why));
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
            said: said.into(),
        })
    }

    /// In which era it is spoken.
    pub fn era(&self) -> Era {
        if self.version.is_modern() {
            Era::Modern
        } else {
            Era::Legacy
        }
    }
}

fn written(id: u64, method: &str, params: Option<&str>) -> Vec<u8> {
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

/// What the protocol wants said of us in every request of the modern era. It rarely changes, and is written once.
struct Manners {
    identity: Identity,
    /// What was said last, and for whom.
    last: Mutex<Option<(Version, Capabilities, Arc<Said>)>>,
}

/// What is said of us, to go into somebody's `_meta` member by member, or to be one.
struct Said {
    members: Vec<(&'static str, String)>,
    whole: String,
}

impl Manners {
    fn of(identity: &Identity) -> Self {
        Self {
            identity: identity.clone(),
            last: Mutex::default(),
        }
    }

    fn said(&self, version: Version, can: Capabilities) -> Arc<Said> {
        let mut last = self.last.lock();
        match &*last {
            Some((of, same, said)) if *of == version && *same == can => said.clone(),
            _ => {
                let said = Arc::new(Said::by(&self.identity, version, can));
                *last = Some((version, can, said.clone()));
                said
            }
        }
    }
}

impl Said {
    fn by(identity: &Identity, version: Version, can: Capabilities) -> Self {
        let members = if version.is_modern() {
            vec![
                (
                    "io.modelcontextprotocol/protocolVersion",
                    json(&version.name()),
                ),
                ("io.modelcontextprotocol/clientInfo", json(identity)),
                (
                    "io.modelcontextprotocol/clientCapabilities",
                    json(&can.declared(version)),
                ),
            ]
        } else {
            Vec::new()
        };
        let whole = members.iter().fold("{}".to_owned(), |meta, (name, value)| {
            splice::with(&meta, name, value)
        });
        Self { members, whole }
    }

    /// It, and what a `_meta` holds already.
    fn beside(&self, own: &str) -> String {
        let members = self.members.iter();
        members.fold(own.to_owned(), |meta, (name, value)| {
            splice::with(&meta, name, value)
        })
    }
}

/// The parameters with what is to be said in their `_meta`. Everything else stays the bytes it was.
fn dressed<'p>(
    params: Option<&'p str>,
    said: &Said,
    progress_token: Option<u64>,
    log_level: Option<Level>,
) -> Option<Cow<'p, str>> {
    if said.members.is_empty() && progress_token.is_none() {
        return params.map(Cow::Borrowed);
    }
    let params = params.unwrap_or("{}");
    let own = splice::member(params, "_meta").map(RawValue::get);
    let mut meta = match own.filter(|own| own.starts_with('{')) {
        Some(own) => Cow::Owned(said.beside(own)),
        None => Cow::Borrowed(said.whole.as_str()),
    };
    if let Some(token) = progress_token {
        meta = Cow::Owned(splice::with(&meta, "progressToken", &token.to_string()));
    }
    if let Some(level) = log_level {
        let level = json(&level);
        meta = Cow::Owned(splice::with(
            &meta,
            "io.modelcontextprotocol/logLevel",
            &level,
        ));
    }
    Some(Cow::Owned(splice::with(params, "_meta", &meta)))
}
