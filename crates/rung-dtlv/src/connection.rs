//! One socket, on which one thing at a time is asked.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rung_edn::Value;

use crate::{Error, Result, Target, frame, nippy};

/// How much is read at once: a length alone gets no more room than this.
const STEP_BYTES: usize = 64 * 1024;

/// The longest that anything is waited for, so that there is a time to wait until.
const LONGEST: Duration = Duration::from_hours(24);

/// How often somebody who waits looks whether the answer is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// How long whoever asks will wait, beside what the session allows.
#[derive(Debug, Clone, Default)]
pub struct Patience {
    /// When the answer is no longer wanted.
    pub until: Option<Instant>,
    /// Set by whoever does not wait any longer.
    pub cancelled: Option<Arc<AtomicBool>>,
}

/// Until when something must be done, and what that is.
#[derive(Debug, Clone)]
pub(crate) struct Deadline {
    pub operation: &'static str,
    at: Instant,
    max_ms: u64,
    cancelled: Option<Arc<AtomicBool>>,
}

impl Deadline {
    pub(crate) fn within(operation: &'static str, time: Duration, patience: &Patience) -> Self {
        let now = Instant::now();
        let own = patience.until.map(|end| end.saturating_duration_since(now));
        let time = own.map_or(time, |own| own.min(time)).min(LONGEST);
        Self {
            operation,
            at: now + time,
            max_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            cancelled: patience.cancelled.clone(),
        }
    }

    /// When to look next, should nothing happen before. An error where it is too late, or nobody waits.
    pub(crate) fn next_look(&self) -> Result<Instant> {
        Ok(Instant::now() + self.left()?.min(LOOK))
    }

    pub(crate) fn timeout(&self) -> Error {
        Error::Timeout {
            operation: self.operation,
            max_ms: self.max_ms,
        }
    }

    fn left(&self) -> Result<Duration> {
        let cancelled = self.cancelled.as_ref();
        if cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
            return Err(Error::Cancelled {
                operation: self.operation,
            });
        }
        let left = self.at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.timeout());
        }
        Ok(left)
    }

    fn lost(&self) -> Error {
        Error::Lost {
            operation: self.operation,
        }
    }
}

/// Whether nothing happened yet, which is no failure as long as there is time.
fn nothing_yet(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// A socket to a server.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    max_bytes: usize,
}

impl Connection {
    /// Connects to any of the addresses that the host has.
    pub(crate) fn open(
        target: &Target,
        connect_timeout: Duration,
        max_bytes: usize,
        deadline: &Deadline,
    ) -> Result<Self> {
        let unreachable = |why: String| Error::Unreachable {
            address: target.address(),
            why,
        };
        let until = deadline
            .at
            .min(Instant::now() + connect_timeout.min(LONGEST));
        let (host, port) = (target.host().to_owned(), target.port());
        let (to, from) = sync_channel(1);
        // Looking up a name cannot be given up, so somebody else does it, and is left to it.
        thread::spawn(move || to.send(connected(&host, port, until)));
        loop {
            match from.recv_timeout(deadline.left()?.min(LOOK)) {
                Ok(Ok(stream)) => return Ok(Self { stream, max_bytes }),
                Ok(Err(why)) => return Err(unreachable(why)),
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
                Err(_) => return Err(unreachable("it took too long".to_owned())),
            }
        }
    }

    /// Whether nothing came that nobody asked for, the end included.
    pub(crate) fn is_quiet(&self) -> bool {
        if self.stream.set_nonblocking(true).is_err() {
            return false;
        }
        let peeked = self.stream.peek(&mut [0]);
        let quiet = matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock);
        quiet && self.stream.set_nonblocking(false).is_ok()
    }

    /// Sends what was wrapped.
    pub(crate) fn send(&mut self, mut frame: &[u8], deadline: &Deadline) -> Result<()> {
        while !frame.is_empty() {
            let timed = self
                .stream
                .set_write_timeout(Some(deadline.left()?.min(LOOK)));
            timed.map_err(|_| deadline.lost())?;
            match self.stream.write(frame) {
                Ok(0) => return Err(deadline.lost()),
                Ok(sent) => frame = &frame[sent..],
                Err(error) if nothing_yet(&error) => {}
                Err(_) => return Err(deadline.lost()),
            }
        }
        Ok(())
    }

    /// The next message.
    pub(crate) fn receive(&mut self, deadline: &Deadline) -> Result<Value> {
        let mut header = [0; frame::HEADER_BYTES];
        self.fill(&mut header, deadline)?;
        let length = frame::content_bytes(header, self.max_bytes)?;
        let mut content = Vec::new();
        while content.len() < length {
            let start = content.len();
            content.resize(length.min(start + STEP_BYTES), 0);
            self.fill(&mut content[start..], deadline)?;
        }
        nippy::read(&content).map_err(Error::Bytes)
    }

    fn fill(&mut self, mut bytes: &mut [u8], deadline: &Deadline) -> Result<()> {
        while !bytes.is_empty() {
            // Set each time: one that sends a byte now and then does not get more time for it.
            let timed = self
                .stream
                .set_read_timeout(Some(deadline.left()?.min(LOOK)));
            timed.map_err(|_| deadline.lost())?;
            match self.stream.read(bytes) {
                Ok(0) => return Err(deadline.lost()),
                Ok(came) => bytes = &mut bytes[came..],
                Err(error) if nothing_yet(&error) => {}
                Err(_) => return Err(deadline.lost()),
            }
        }
        Ok(())
    }
}

/// A socket to the first of a host's addresses that answers, or why there is none.
fn connected(host: &str, port: u16, until: Instant) -> Result<TcpStream, String> {
    let addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| error.to_string())?;
    let mut why = "the host has no address".to_owned();
    for address in addresses {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("it took too long".to_owned());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                // Questions are short and waited for.
                let set = stream.set_nodelay(true);
                return set.map(|()| stream).map_err(|error| error.to_string());
            }
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}
