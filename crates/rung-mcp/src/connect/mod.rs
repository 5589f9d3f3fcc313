//! The client side of MCP: requests to a downstream server of either era, with every message passed on unchanged.
//!
//! A [`ServerConnection`] opens on first use and reopens after it broke. Nothing the server sends extends a request's
//! deadline; without an explicit deadline, time spent answering the server's own requests is not counted. A request that
//! was sent but not answered fails as lost and is never repeated automatically, unless the request is idempotent.

mod calls;
mod child;
mod deadline;
mod error;
mod established;
#[cfg(fuzzing)]
pub mod fuzzing;
mod http;
mod incoming;
mod lists;
mod pending;
mod sse;
mod subscriptions;
#[cfg(target_os = "linux")]
mod supervisor;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use crate::version::ProtocolVersion;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::task::AbortHandle;
use tokio::time::Instant;

pub use calls::{StartedCall, StartedTask};
pub use child::ServerCommand;
use deadline::PausableDeadline;
use error::TransportError;
pub use error::{Error, RpcError};
pub use established::{Era, Handshake};
use established::{EstablishedConnection, OutgoingRequest};
pub use http::ServerAddress;
pub use incoming::{LongServerResult, ServerResult};
pub use lists::{DownstreamTool, DownstreamTools, ListKind, RejectedItem, ServerList};
pub use pending::{Delegate, DelegateError, NullDelegate};
#[cfg(target_os = "linux")]
pub use supervisor::supervise;

/// A server's launch command or address.
#[derive(Debug, Clone)]
pub enum ServerTarget {
    /// A child process that is reached through its standard streams.
    Command(ServerCommand),
    /// A server that is reached over HTTP.
    Address(ServerAddress),
}

/// The `clientInfo` that is sent to a server.
#[derive(Debug, Clone, Serialize)]
pub struct Identity {
    pub name: &'static str,
    pub version: &'static str,
}

/// Settings of one connection.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server's name in error messages and logs.
    pub name: Arc<str>,
    pub identity: Identity,
    /// The era to use. `None`: negotiated with the server.
    pub era: Option<Era>,
    /// Time limit for the start and the handshake.
    pub open_timeout: Duration,
    /// Time limit of a request without a deadline of its own.
    pub request_timeout: Duration,
}

impl Options {
    /// Returns the default options for the server `name`.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            identity: Identity {
                name: "rung",
                version: env!("CARGO_PKG_VERSION"),
            },
            era: None,
            open_timeout: Duration::from_mins(1),
            request_timeout: Duration::from_mins(1),
        }
    }
}

/// Settings of one request.
#[derive(Clone, Default)]
pub struct RequestOptions {
    /// The deadline. `None`: the server's `request_timeout`, not counting the time its own requests take to answer.
    pub deadline: Option<Instant>,
    /// Receives the server's notifications and requests during this request.
    pub delegate: Option<Arc<dyn Delegate>>,
    /// Headers that mirror arguments, as the tool's schema demands.
    pub headers: Vec<(String, String)>,
    /// Members for the `_meta` of a call, as a JSON object.
    pub meta: Option<String>,
}

/// A handle to one server. Cheap to clone; the connection opens on first use and reopens after a break.
#[derive(Clone)]
pub struct ServerConnection(Arc<Inner>);

struct Inner {
    target: ServerTarget,
    options: Options,
    delegate: Arc<dyn Delegate>,
    established: tokio::sync::Mutex<Option<Arc<EstablishedConnection>>>,
    /// The same connection, readable without waiting for one that is being opened.
    current: Mutex<Option<Arc<EstablishedConnection>>>,
    /// The era that the last handshake established.
    era: Mutex<Option<Era>>,
    backoff: Mutex<Backoff>,
    /// Tasks that open the connection or wait to open it.
    open_tasks: Mutex<Vec<AbortHandle>>,
}

/// Counts failures in a row and delays the next attempt.
#[derive(Default)]
struct Backoff {
    failures: u32,
    retry_at: Option<Instant>,
    /// All attempts so far; `last_error` is set if the last one failed.
    attempts: u64,
    last_error: Option<Error>,
}

/// The delay after the second failure in a row; it doubles with each further failure. There is no delay after the first:
/// most servers that end once are available again immediately.
const FIRST_DELAY: Duration = Duration::from_millis(250);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// A connection that broke sooner counts as a failed attempt.
const STABLE_AFTER: Duration = Duration::from_secs(5);

impl Backoff {
    fn record_failure(&mut self) {
        self.failures += 1;
        let Some(doublings) = self.failures.checked_sub(2) else {
            return;
        };
        let wait = FIRST_DELAY
            .saturating_mul(1 << doublings.min(10))
            .min(MAX_DELAY);
        // Jitter: callers that wait for one server must not retry simultaneously.
        let mut bits = [0; 1];
        let _without_it_all_come_at_once = getrandom::fill(&mut bits);
        self.retry_at = Some(Instant::now() + wait + wait.mul_f64(f64::from(bits[0]) / 1_024.0));
    }
}

impl ServerConnection {
    /// Creates a handle to the server at `target`. Messages that belong to no request go to `delegate`.
    pub fn new(target: ServerTarget, options: Options, delegate: Arc<dyn Delegate>) -> Self {
        Self(Arc::new(Inner {
            era: Mutex::new(options.era),
            target,
            options,
            delegate,
            established: tokio::sync::Mutex::default(),
            current: Mutex::default(),
            backoff: Mutex::default(),
            open_tasks: Mutex::default(),
        }))
    }

    pub fn name(&self) -> &Arc<str> {
        &self.0.options.name
    }

    /// Opens the connection unless it is open, and returns the handshake.
    pub async fn open(&self) -> Result<Handshake, Error> {
        let deadline = Instant::now() + self.0.options.open_timeout;
        Ok(self.get_or_connect(deadline).await?.handshake.clone())
    }

    /// Returns the negotiated version; opens the connection if necessary.
    async fn version(&self, deadline: Option<Instant>) -> Result<ProtocolVersion, Error> {
        let deadline = deadline.unwrap_or_else(|| Instant::now() + self.0.options.open_timeout);
        Ok(self.get_or_connect(deadline).await?.handshake.version)
    }

    /// Returns the handshake of the open connection, if any.
    pub fn handshake(&self) -> Option<Handshake> {
        let current = self.0.current.lock();
        current
            .as_ref()
            .filter(|link| link.is_open())
            .map(|link| link.handshake.clone())
    }

    /// Returns the version of the open connection and the server's raw handshake response. Every reopening replaces it.
    pub fn raw_handshake(&self) -> Option<(ProtocolVersion, Arc<RawValue>)> {
        let current = self.0.current.lock();
        let link = current.as_ref().filter(|link| link.is_open())?;
        Some((link.handshake.version, link.handshake.raw.clone()))
    }

    /// Returns the end of the server's stderr; empty for HTTP.
    pub fn stderr_tail(&self) -> String {
        let current = self.0.current.lock().clone();
        current.map(|link| link.stderr_tail()).unwrap_or_default()
    }

    /// Closes the connection. The next request reopens it.
    pub async fn close(&self) {
        for opening in self.0.open_tasks.lock().drain(..) {
            opening.abort();
        }
        self.0.current.lock().take();
        if let Some(link) = self.0.established.lock().await.take() {
            link.close().await;
        }
    }

    /// Sends a request once, with parameters and result unchanged. A call whose response is lost may have taken effect.
    pub async fn request(
        &self,
        method: &str,
        params: Option<&RawValue>,
        how: RequestOptions,
    ) -> Result<ServerResult, Error> {
        self.send_request(method, params.map(RawValue::get), &how)
            .await
    }

    async fn send_request(
        &self,
        method: &str,
        params: Option<&str>,
        how: &RequestOptions,
    ) -> Result<ServerResult, Error> {
        let deadline = how
            .deadline
            .unwrap_or_else(|| Instant::now() + self.0.options.request_timeout);
        let clock = how.delegate.as_ref().filter(|_| how.deadline.is_none());
        let clock =
            clock.map(|asked| PausableDeadline::new(asked.clone(), self.0.options.request_timeout));
        let (mut forgotten, mut broke) = (false, false);
        loop {
            let link = self.get_or_connect(deadline).await?;
            let delegate = match &clock {
                Some(clock) => Some(clock.clone() as Arc<dyn Delegate>),
                None => how.delegate.clone(),
            };
            let ask = OutgoingRequest {
                method,
                params,
                delegate,
                headers: how.headers.clone(),
            };
            let server = &self.0.options.name;
            let late = || Error::TimedOut {
                server: server.clone(),
            };
            let asking = link.request(ask);
            let asked = match &clock {
                Some(clock) => clock.run(asking).await,
                None => tokio::time::timeout_at(deadline, asking).await.ok(),
            };
            match asked.ok_or_else(late)? {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => {
                    let refusal = RpcError::parse(&error);
                    return Err(Error::Refused {
                        server: server.clone(),
                        refusal,
                    });
                }
                // A server that does not know the session has done nothing.
                Err(TransportError::NoSession) if !forgotten => {
                    forgotten = true;
                    self.discard(&link);
                }
                // Nothing was sent, so nothing was done: retry once on a new connection.
                Err(TransportError::Unavailable(_)) if !link.is_open() && !broke => {
                    broke = true;
                    self.discard(&link);
                }
                // The request was sent, and the response does not tell its outcome.
                Err(TransportError::Unusable(why)) => {
                    return Err(TransportError::Lost(why).into_error(server));
                }
                Err(failure) => return Err(failure.into_error(server)),
            }
        }
    }

    /// Sends a request without side effects, and repeats it once if the response was lost.
    async fn request_idempotent(
        &self,
        method: &str,
        params: Option<&RawValue>,
        how: &RequestOptions,
    ) -> Result<ServerResult, Error> {
        match self.request(method, params, how.clone()).await {
            Err(Error::Lost { .. }) => self.request(method, params, how.clone()).await,
            answered => answered,
        }
    }

    /// Sends a notification.
    pub async fn notify(&self, method: &str, params: &impl Serialize) -> Result<(), Error> {
        let deadline = Instant::now() + self.0.options.request_timeout;
        let link = self.get_or_connect(deadline).await?;
        let server = &self.0.options.name;
        let late = |_| Error::TimedOut {
            server: server.clone(),
        };
        let told = tokio::time::timeout_at(deadline, link.notify(method, params)).await;
        told.map_err(late)?
            .map_err(|failure| failure.into_error(server))
    }

    /// Returns the open connection, without opening one.
    fn established(&self) -> Option<Arc<EstablishedConnection>> {
        let current = self.0.current.lock();
        current.as_ref().filter(|link| link.is_open()).cloned()
    }

    /// Returns the open connection, or opens one. Concurrent callers wait for the same attempt until their own deadline; the
    /// attempt continues for later callers.
    async fn get_or_connect(&self, deadline: Instant) -> Result<Arc<EstablishedConnection>, Error> {
        if let Some(link) = self.established() {
            return Ok(link);
        }
        // Boxed: rarely taken, and large compared with the rest of the future.
        Box::pin(self.connect_before(deadline)).await
    }

    async fn connect_before(&self, deadline: Instant) -> Result<Arc<EstablishedConnection>, Error> {
        let me = self.clone();
        let tried = self.0.backoff.lock().attempts;
        let opening = tokio::spawn(async move { me.connect_unless_tried(tried).await });
        {
            let mut openings = self.0.open_tasks.lock();
            openings.retain(|opening| !opening.is_finished());
            openings.push(opening.abort_handle());
        }
        let unavailable = |why: &str| Error::Unavailable {
            server: self.0.options.name.clone(),
            why: why.to_owned(),
        };
        match tokio::time::timeout_at(deadline, opening).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(ended)) if ended.is_cancelled() => {
                Err(unavailable("it was stopped during its start"))
            }
            Ok(Err(_)) => Err(unavailable(
                "it could not be opened because of an internal error",
            )),
            Err(_) => Err(unavailable("it was not ready in time")),
        }
    }

    /// Opens the connection, unless another caller opened it, or failed to, since attempt number `tried`.
    async fn connect_unless_tried(&self, tried: u64) -> Result<Arc<EstablishedConnection>, Error> {
        let mut slot = self.0.established.lock().await;
        if let Some(link) = slot.as_ref().filter(|link| link.is_open()) {
            return Ok(link.clone());
        }
        if let Some(broken) = slot.take() {
            let mut trouble = self.0.backoff.lock();
            if broken.established_at.elapsed() < STABLE_AFTER {
                trouble.record_failure();
            } else {
                *trouble = Backoff::default();
            }
        }
        let until = {
            let trouble = self.0.backoff.lock();
            match &trouble.last_error {
                // Another caller's attempt has just failed: share its error.
                Some(error) if trouble.attempts > tried => return Err(error.clone()),
                _ => trouble.retry_at,
            }
        };
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
        let remembered = *self.0.era.lock();
        let mut opened = self.connect_once(remembered).await;
        // A server that was replaced may speak the other era.
        if opened.is_err() && remembered != self.0.options.era {
            opened = self.connect_once(self.0.options.era).await;
        }
        let mut trouble = self.0.backoff.lock();
        trouble.attempts += 1;
        trouble.last_error = opened.as_ref().err().cloned();
        match opened {
            Ok(link) => {
                trouble.retry_at = None;
                *self.0.era.lock() = Some(link.handshake.era());
                *slot = Some(link.clone());
                *self.0.current.lock() = Some(link.clone());
                Ok(link)
            }
            Err(error) => {
                trouble.record_failure();
                Err(error)
            }
        }
    }

    async fn connect_once(&self, era: Option<Era>) -> Result<Arc<EstablishedConnection>, Error> {
        let Inner {
            target,
            options,
            delegate,
            ..
        } = &*self.0;
        let opening = EstablishedConnection::open(target, &options.identity, delegate, era);
        if let Ok(opened) = tokio::time::timeout(options.open_timeout, opening).await {
            opened.map_err(|failure| match failure {
                // Before the handshake ends no request can have taken effect.
                TransportError::Lost(why) | TransportError::Unusable(why) => {
                    TransportError::Unavailable(why).into_error(&options.name)
                }
                failure => failure.into_error(&options.name),
            })
        } else {
            let why = format!(
                "it was not ready in time: no response within {} s of its start",
                options.open_timeout.as_secs()
            );
            Err(TransportError::Unavailable(why).into_error(&options.name))
        }
    }

    /// Drops a connection that the server no longer knows.
    fn discard(&self, gone: &Arc<EstablishedConnection>) {
        gone.give_up();
        let mut current = self.0.current.lock();
        if current.as_ref().is_some_and(|link| Arc::ptr_eq(link, gone)) {
            current.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_retry_is_immediate_and_later_delays_grow() {
        let mut trouble = Backoff::default();
        trouble.record_failure();
        assert!(trouble.retry_at.is_none());
        let mut last = Duration::ZERO;
        for _ in 0..4 {
            let begun = Instant::now();
            trouble.record_failure();
            let wait = trouble.retry_at.unwrap() - begun;
            assert!(wait > last + last / 2, "{wait:?} after {last:?}");
            last = wait;
        }
    }
}
