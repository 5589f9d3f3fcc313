//! One socket with at most one request at a time.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rung_edn::Value;

use crate::{DtlvUrl, Error, Result, frame, nippy};

/// Bytes per read. An announced length alone allocates no more than this.
const READ_BYTES: usize = 64 * 1024;

/// The upper bound of every timeout, so that adding it to the current time cannot overflow.
const MAX_TIMEOUT: Duration = Duration::from_hours(24);

/// The interval at which a waiting thread checks for cancellation.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A caller's limits on waiting, in addition to the session's timeouts.
#[derive(Debug, Clone, Default)]
pub struct WaitLimit {
    /// The caller's deadline.
    pub deadline: Option<Instant>,
    /// Set by the caller to cancel the request.
    pub cancelled: Option<Arc<AtomicBool>>,
}

/// The deadline of one operation.
#[derive(Debug, Clone)]
pub(crate) struct Deadline {
    pub operation: &'static str,
    at: Instant,
    max_ms: u64,
    cancelled: Option<Arc<AtomicBool>>,
}

impl Deadline {
    pub(crate) fn new(operation: &'static str, time: Duration, patience: &WaitLimit) -> Self {
        let now = Instant::now();
        let own = patience
            .deadline
            .map(|end| end.saturating_duration_since(now));
        let time = own.map_or(time, |own| own.min(time)).min(MAX_TIMEOUT);
        Self {
            operation,
            at: now + time,
            max_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            cancelled: patience.cancelled.clone(),
        }
    }

    /// Returns the time of the next cancellation check, or an error after the deadline or the cancellation.
    pub(crate) fn next_check(&self) -> Result<Instant> {
        Ok(Instant::now() + self.remaining()?.min(CANCEL_CHECK_INTERVAL))
    }

    pub(crate) fn timeout(&self) -> Error {
        Error::Timeout {
            operation: self.operation,
            max_ms: self.max_ms,
        }
    }

    fn remaining(&self) -> Result<Duration> {
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

/// Returns true for errors that only mean that no data has arrived or could be written yet.
fn is_retryable_io(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

#[derive(Debug)]
pub(crate) struct DtlvConnection {
    stream: TcpStream,
    max_bytes: usize,
}

impl DtlvConnection {
    /// Connects to the first of the host's addresses that accepts.
    pub(crate) fn open(
        target: &DtlvUrl,
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
            .min(Instant::now() + connect_timeout.min(MAX_TIMEOUT));
        let (host, port) = (target.host().to_owned(), target.port());
        let (to, from) = sync_channel(1);
        // Name lookup cannot be interrupted, so a thread does it, which is abandoned after the deadline.
        thread::spawn(move || to.send(connect_any(&host, port, until)));
        loop {
            match from.recv_timeout(deadline.remaining()?.min(CANCEL_CHECK_INTERVAL)) {
                Ok(Ok(stream)) => return Ok(Self { stream, max_bytes }),
                Ok(Err(why)) => return Err(unreachable(why)),
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
                Err(_) => return Err(unreachable("no connection in time".to_owned())),
            }
        }
    }

    /// Returns true if no unrequested bytes, and no end of stream, have arrived.
    pub(crate) fn is_idle(&self) -> bool {
        if self.stream.set_nonblocking(true).is_err() {
            return false;
        }
        let peeked = self.stream.peek(&mut [0]);
        let quiet = matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock);
        quiet && self.stream.set_nonblocking(false).is_ok()
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, mut frame: &[u8], deadline: &Deadline) -> Result<()> {
        while !frame.is_empty() {
            let timed = self
                .stream
                .set_write_timeout(Some(deadline.remaining()?.min(CANCEL_CHECK_INTERVAL)));
            timed.map_err(|_| deadline.lost())?;
            match self.stream.write(frame) {
                Ok(0) => return Err(deadline.lost()),
                Ok(sent) => frame = &frame[sent..],
                Err(error) if is_retryable_io(&error) => {}
                Err(_) => return Err(deadline.lost()),
            }
        }
        Ok(())
    }

    /// Receives the next message.
    pub(crate) fn receive(&mut self, deadline: &Deadline) -> Result<Value> {
        let mut header = [0; frame::HEADER_BYTES];
        self.read_exact(&mut header, deadline)?;
        let length = frame::content_bytes(header, self.max_bytes)?;
        let mut content = Vec::new();
        while content.len() < length {
            let start = content.len();
            content.resize(length.min(start + READ_BYTES), 0);
            self.read_exact(&mut content[start..], deadline)?;
        }
        nippy::read(&content).map_err(Error::InvalidEncoding)
    }

    fn read_exact(&mut self, mut bytes: &mut [u8], deadline: &Deadline) -> Result<()> {
        while !bytes.is_empty() {
            // Set for each read: a server that sends single bytes does not extend the deadline.
            let timed = self
                .stream
                .set_read_timeout(Some(deadline.remaining()?.min(CANCEL_CHECK_INTERVAL)));
            timed.map_err(|_| deadline.lost())?;
            match self.stream.read(bytes) {
                Ok(0) => return Err(deadline.lost()),
                Ok(came) => bytes = &mut bytes[came..],
                Err(error) if is_retryable_io(&error) => {}
                Err(_) => return Err(deadline.lost()),
            }
        }
        Ok(())
    }
}

/// Connects to the first of the host's addresses that accepts, or returns the last error.
fn connect_any(host: &str, port: u16, until: Instant) -> Result<TcpStream, String> {
    let addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| error.to_string())?;
    let mut why = "the host name has no address".to_owned();
    for address in addresses {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("no connection in time".to_owned());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                // Requests are short, and each is awaited.
                let set = stream.set_nodelay(true);
                return set.map(|()| stream).map_err(|error| error.to_string());
            }
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}
