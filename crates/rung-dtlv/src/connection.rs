//! One socket, on which one thing at a time is asked.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use rung_edn::Value;

use crate::{Error, Result, Target, frame, nippy};

/// How much is read at once: a length alone gets no more room than this.
const STEP_BYTES: usize = 64 * 1024;

/// The longest that anything is waited for, so that there is a time to wait until.
const LONGEST: Duration = Duration::from_hours(24);

/// Until when something must be done, and what that is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub operation: &'static str,
    pub at: Instant,
    pub max_ms: u64,
}

impl Deadline {
    pub(crate) fn within(operation: &'static str, time: Duration) -> Self {
        Self {
            operation,
            at: from_now(time),
            max_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The earlier of this and of so much from now.
    fn or_within(self, time: Duration) -> Instant {
        self.at.min(from_now(time))
    }

    pub(crate) fn timeout(&self) -> Error {
        Error::Timeout {
            operation: self.operation,
            max_ms: self.max_ms,
        }
    }

    fn left(&self) -> Result<Duration> {
        let left = self.at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.timeout());
        }
        Ok(left)
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => self.timeout(),
            _ => Error::Lost {
                operation: self.operation,
            },
        }
    }
}

/// So much from now, or as late as can be waited for.
fn from_now(time: Duration) -> Instant {
    Instant::now() + time.min(LONGEST)
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
        deadline: Deadline,
    ) -> Result<Self> {
        let unreachable = |why: String| Error::Unreachable {
            address: target.address(),
            why,
        };
        let until = deadline.or_within(connect_timeout);
        let addresses = (target.host(), target.port())
            .to_socket_addrs()
            .map_err(|error| unreachable(error.to_string()))?;
        let mut why = "the host has no address".to_owned();
        for address in addresses {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                "it took too long".clone_into(&mut why);
                break;
            }
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => {
                    // Questions are short and waited for.
                    let set = stream.set_nodelay(true);
                    set.map_err(|error| unreachable(error.to_string()))?;
                    return Ok(Self { stream, max_bytes });
                }
                Err(error) => why = error.to_string(),
            }
        }
        Err(unreachable(why))
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
    pub(crate) fn send(&mut self, mut frame: &[u8], deadline: Deadline) -> Result<()> {
        while !frame.is_empty() {
            let timed = self.stream.set_write_timeout(Some(deadline.left()?));
            timed.map_err(|error| deadline.failed(&error))?;
            match self.stream.write(frame) {
                Ok(0) => return Err(deadline.failed(&ErrorKind::WriteZero.into())),
                Ok(sent) => frame = &frame[sent..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(deadline.failed(&error)),
            }
        }
        Ok(())
    }

    /// The next message.
    pub(crate) fn receive(&mut self, deadline: Deadline) -> Result<Value> {
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

    fn fill(&mut self, mut bytes: &mut [u8], deadline: Deadline) -> Result<()> {
        while !bytes.is_empty() {
            // Set each time: one that sends a byte now and then does not get more time for it.
            let timed = self.stream.set_read_timeout(Some(deadline.left()?));
            timed.map_err(|error| deadline.failed(&error))?;
            match self.stream.read(bytes) {
                Ok(0) => return Err(deadline.failed(&ErrorKind::UnexpectedEof.into())),
                Ok(came) => bytes = &mut bytes[came..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(deadline.failed(&error)),
            }
        }
        Ok(())
    }
}
