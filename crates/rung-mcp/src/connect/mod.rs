//! The other side of the door: asking another server, of either era, and losing nothing of what it says.
//!
//! A [`Connection`] is opened when it is first needed and again when it broke. Requests carry deadlines that nothing
//! the server says can extend; where none was given, the time in which its questions are answered here is not counted as
//! the server's. What was sent and not answered is told as lost, and never sent again by itself, unless
//! asking twice is asking once.

mod board;
mod child;
mod clock;
mod error;
mod events;
#[cfg(fuzzing)]
pub mod fuzzing;
mod http;
mod intake;
#[cfg(target_os = "linux")]
mod keeper;
mod link;
mod listen;
mod lists;
mod rounds;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use crate::version::Version;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::task::AbortHandle;
use tokio::time::Instant;

pub use board::{Delegate, Silent, Unanswered};
pub use child::Command;
use clock::Clock;
use error::Failure;
pub use error::{Error, Refused};
pub use http::Address;
pub use intake::{Answer, LongAnswer};
#[cfg(target_os = "linux")]
pub use keeper::keep;
pub use link::{Agreement, Era};
use link::{Ask, Link};
pub use lists::{Dropped, Kind, Listed, Tool, Tools};
pub use rounds::{Begun, Task};

/// A server, and how to get to it.
#[derive(Debug, Clone)]
pub enum Target {
    /// Started by us, and spoken to through its standard streams.
    Command(Command),
    /// Behind an address.
    Address(Address),
}

/// Who we are, to a server.
#[derive(Debug, Clone, Serialize)]
pub struct Identity {
    /// By name.
    pub name: &'static str,
    /// And version.
    pub version: &'static str,
}

/// How a server is dealt with.
#[derive(Debug, Clone)]
pub struct Options {
    /// What it is called in messages.
    pub name: Arc<str>,
    /// Who we are.
    pub identity: Identity,
    /// In which era to speak; by asking, where nothing is said.
    pub era: Option<Era>,
    /// How long it may take to start and to agree.
    pub opening: Duration,
    /// How long it may take to answer, where the request does not say.
    pub answering: Duration,
}

impl Options {
    /// For a server of that name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            identity: Identity {
                name: "rung",
                version: env!("CARGO_PKG_VERSION"),
            },
            era: None,
            opening: Duration::from_mins(1),
            answering: Duration::from_mins(1),
        }
    }
}

/// How one request is made.
#[derive(Clone, Default)]
pub struct How {
    /// When the answer is no longer wanted. Where nothing is said, each request is given as long as the server's options
    /// say, beside what its questions take here.
    pub deadline: Option<Instant>,
    /// Who hears and answers what the server says and asks on the way.
    pub delegate: Option<Arc<dyn Delegate>>,
    /// Headers that repeat arguments, as the tool's schema wants them.
    pub headers: Vec<(String, String)>,
    /// What goes along in `_meta` of a call, as a JSON object.
    pub meta: Option<String>,
}

/// A server that can be asked. Cheap to clone; nothing is opened before it is needed.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

struct Inner {
    target: Target,
    options: Options,
    delegate: Arc<dyn Delegate>,
    link: tokio::sync::Mutex<Option<Arc<Link>>>,
    /// The link, for whoever need not wait to look.
    current: Mutex<Option<Arc<Link>>>,
    /// The era the server was found to speak.
    era: Mutex<Option<Era>>,
    trouble: Mutex<Trouble>,
    /// Whoever is opening it, or waits to.
    openings: Mutex<Vec<AbortHandle>>,
}

/// How often opening has failed in a row, and when to try again.
#[derive(Default)]
struct Trouble {
    failures: u32,
    until: Option<Instant>,
    /// How often it was tried at all, and how that last ended in vain.
    tried: u64,
    last: Option<Error>,
}

/// The wait after the second failure in a row; it doubles with each. After the first there is none: most servers that end
/// once are there again at once.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A link that broke sooner counts as one that could not be opened.
const STEADY: Duration = Duration::from_secs(5);

impl Trouble {
    fn add(&mut self) {
        self.failures += 1;
        let Some(doublings) = self.failures.checked_sub(2) else {
            return;
        };
        let wait = FIRST_WAIT
            .saturating_mul(1 << doublings.min(10))
            .min(LONGEST_WAIT);
        // Many who wait for one server should not all come back at once.
        let mut bits = [0; 1];
        let _without_it_all_come_at_once = getrandom::fill(&mut bits);
        self.until = Some(Instant::now() + wait + wait.mul_f64(f64::from(bits[0]) / 1_024.0));
    }
}

impl Connection {
    /// A server at `target`. What belongs to no request is handed to `delegate`.
    pub fn new(target: Target, options: Options, delegate: Arc<dyn Delegate>) -> Self {
        Self(Arc::new(Inner {
            era: Mutex::new(options.era),
            target,
            options,
            delegate,
            link: tokio::sync::Mutex::default(),
            current: Mutex::default(),
            trouble: Mutex::default(),
            openings: Mutex::default(),
        }))
    }

    /// What it is called.
    pub fn name(&self) -> &Arc<str> {
        &self.0.options.name
    }

    /// Opens it, if it is not open, and says what was agreed on.
    pub async fn open(&self) -> Result<Agreement, Error> {
        let deadline = Instant::now() + self.0.options.opening;
        Ok(self.link(deadline).await?.agreement.clone())
    }

    /// The version that is spoken, once something was agreed on.
    async fn version(&self, deadline: Option<Instant>) -> Result<Version, Error> {
        let deadline = deadline.unwrap_or_else(|| Instant::now() + self.0.options.opening);
        Ok(self.link(deadline).await?.agreement.version)
    }

    /// What was agreed on, where it is open.
    pub fn agreement(&self) -> Option<Agreement> {
        let current = self.0.current.lock();
        current
            .as_ref()
            .filter(|link| link.is_open())
            .map(|link| link.agreement.clone())
    }

    /// The version that is spoken where it is open, and what the server said of itself when that began: what is opened again has
    /// said it again.
    pub fn opened_with(&self) -> Option<(Version, Arc<RawValue>)> {
        let current = self.0.current.lock();
        let link = current.as_ref().filter(|link| link.is_open())?;
        Some((link.agreement.version, link.agreement.said.clone()))
    }

    /// The last the server said beside the protocol.
    pub fn last_words(&self) -> String {
        let current = self.0.current.lock().clone();
        current.map(|link| link.last_words()).unwrap_or_default()
    }

    /// Ends it. The next request opens it again.
    pub async fn close(&self) {
        for opening in self.0.openings.lock().drain(..) {
            opening.abort();
        }
        self.0.current.lock().take();
        if let Some(link) = self.0.link.lock().await.take() {
            link.close().await;
        }
    }

    /// Makes a request whose parameters and result pass as they are. It is sent once: a call whose answer is lost may
    /// have been done.
    pub async fn request(
        &self,
        method: &str,
        params: Option<&RawValue>,
        how: How,
    ) -> Result<Answer, Error> {
        self.ask(method, params.map(RawValue::get), &how).await
    }

    async fn ask(&self, method: &str, params: Option<&str>, how: &How) -> Result<Answer, Error> {
        let deadline = how
            .deadline
            .unwrap_or_else(|| Instant::now() + self.0.options.answering);
        let clock = how.delegate.as_ref().filter(|_| how.deadline.is_none());
        let clock = clock.map(|asked| Clock::new(asked.clone(), self.0.options.answering));
        let (mut forgotten, mut broke) = (false, false);
        loop {
            let link = self.link(deadline).await?;
            let delegate = match &clock {
                Some(clock) => Some(clock.clone() as Arc<dyn Delegate>),
                None => how.delegate.clone(),
            };
            let ask = Ask {
                method,
                params,
                delegate,
                headers: how.headers.clone(),
            };
            let server = &self.0.options.name;
            let late = || Error::Late {
                server: server.clone(),
            };
            let asking = link.request(ask);
            let asked = match &clock {
                Some(clock) => clock.within(asking).await,
                None => tokio::time::timeout_at(deadline, asking).await.ok(),
            };
            match asked.ok_or_else(late)? {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => {
                    let refusal = Refused::read(&error);
                    return Err(Error::Refused {
                        server: server.clone(),
                        refusal,
                    });
                }
                // Whoever does not know the session has done nothing.
                Err(Failure::NoSession) if !forgotten => {
                    forgotten = true;
                    self.drop_link(&link);
                }
                // Nothing of it was sent, so that nothing was done: whoever comes after it broke is served by the next one.
                Err(Failure::Unavailable(_)) if !link.is_open() && !broke => {
                    broke = true;
                    self.drop_link(&link);
                }
                // It was sent, and whatever came back says nothing of what became of it.
                Err(Failure::Unusable(why)) => return Err(Failure::Lost(why).of(server)),
                Err(failure) => return Err(failure.of(server)),
            }
        }
    }

    /// Makes a request that changes nothing, and makes it once more if its answer was lost.
    async fn look(
        &self,
        method: &str,
        params: Option<&RawValue>,
        how: &How,
    ) -> Result<Answer, Error> {
        match self.request(method, params, how.clone()).await {
            Err(Error::Lost { .. }) => self.request(method, params, how.clone()).await,
            answered => answered,
        }
    }

    /// Tells the server something.
    pub async fn notify(&self, method: &str, params: &impl Serialize) -> Result<(), Error> {
        let deadline = Instant::now() + self.0.options.answering;
        let link = self.link(deadline).await?;
        let server = &self.0.options.name;
        let late = |_| Error::Late {
            server: server.clone(),
        };
        let told = tokio::time::timeout_at(deadline, link.tell(method, params)).await;
        told.map_err(late)?.map_err(|failure| failure.of(server))
    }

    /// The link, where there is one, without opening it.
    fn open_already(&self) -> Option<Arc<Link>> {
        let current = self.0.current.lock();
        current.as_ref().filter(|link| link.is_open()).cloned()
    }

    /// The link, opened if need be. Whoever comes while it is being opened waits for it, but not beyond their deadline;
    /// the opening goes on for those who come after.
    async fn link(&self, deadline: Instant) -> Result<Arc<Link>, Error> {
        if let Some(link) = self.open_already() {
            return Ok(link);
        }
        // Rare, and large beside the rest of a request.
        Box::pin(self.wait_for_link(deadline)).await
    }

    async fn wait_for_link(&self, deadline: Instant) -> Result<Arc<Link>, Error> {
        let me = self.clone();
        let tried = self.0.trouble.lock().tried;
        let opening = tokio::spawn(async move { me.opened(tried).await });
        {
            let mut openings = self.0.openings.lock();
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
                Err(unavailable("it was stopped while it started"))
            }
            Ok(Err(_)) => Err(unavailable("it could not be opened: a bug of ours")),
            Err(_) => Err(unavailable("it did not get ready in time")),
        }
    }

    /// Opens the link, unless it was opened, or was tried in vain, since `tried`.
    async fn opened(&self, tried: u64) -> Result<Arc<Link>, Error> {
        let mut slot = self.0.link.lock().await;
        if let Some(link) = slot.as_ref().filter(|link| link.is_open()) {
            return Ok(link.clone());
        }
        if let Some(broken) = slot.take() {
            let mut trouble = self.0.trouble.lock();
            if broken.since.elapsed() < STEADY {
                trouble.add();
            } else {
                *trouble = Trouble::default();
            }
        }
        let until = {
            let trouble = self.0.trouble.lock();
            match &trouble.last {
                // Others have just found out what we would.
                Some(error) if trouble.tried > tried => return Err(error.clone()),
                _ => trouble.until,
            }
        };
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
        let remembered = *self.0.era.lock();
        let mut opened = self.open_link(remembered).await;
        // A server that was replaced may speak otherwise than before.
        if opened.is_err() && remembered != self.0.options.era {
            opened = self.open_link(self.0.options.era).await;
        }
        let mut trouble = self.0.trouble.lock();
        trouble.tried += 1;
        trouble.last = opened.as_ref().err().cloned();
        match opened {
            Ok(link) => {
                trouble.until = None;
                *self.0.era.lock() = Some(link.agreement.era());
                *slot = Some(link.clone());
                *self.0.current.lock() = Some(link.clone());
                Ok(link)
            }
            Err(error) => {
                trouble.add();
                Err(error)
            }
        }
    }

    async fn open_link(&self, era: Option<Era>) -> Result<Arc<Link>, Error> {
        let Inner {
            target,
            options,
            delegate,
            ..
        } = &*self.0;
        let opening = Link::open(target, &options.identity, delegate, era);
        if let Ok(opened) = tokio::time::timeout(options.opening, opening).await {
            opened.map_err(|failure| match failure {
                // Nothing was asked of it yet that could have been done.
                Failure::Lost(why) | Failure::Unusable(why) => {
                    Failure::Unavailable(why).of(&options.name)
                }
                failure => failure.of(&options.name),
            })
        } else {
            let why = format!(
                "it did not get ready in time: no answer within {} s of its start",
                options.opening.as_secs()
            );
            Err(Failure::Unavailable(why).of(&options.name))
        }
    }

    /// The server does not know this link any more.
    fn drop_link(&self, gone: &Arc<Link>) {
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
    fn after_one_failure_nobody_waits_and_then_ever_longer() {
        let mut trouble = Trouble::default();
        trouble.add();
        assert!(trouble.until.is_none());
        let mut last = Duration::ZERO;
        for _ in 0..4 {
            let begun = Instant::now();
            trouble.add();
            let wait = trouble.until.unwrap() - begun;
            assert!(wait > last + last / 2, "{wait:?} after {last:?}");
            last = wait;
        }
    }
}
