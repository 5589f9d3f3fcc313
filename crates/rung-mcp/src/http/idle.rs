//! Idle connections, which are closed after a while.
//!
//! A connection that sends no request, or sends one a byte at a time, is closed. Requests set no timer for that: a
//! request only marks its start and end, and one task checks all connections every second. A timer per request
//! would cost a tenth of what a small call costs.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::Frame;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Seconds for which a connection may be idle. A request's head has to arrive in this time.
const IDLE_S: u64 = 15;

/// Monitors the connections of a listener.
#[derive(Debug, Default)]
pub(super) struct IdleMonitor {
    /// Seconds since monitoring began.
    now_s: AtomicU64,
    connections: Mutex<Vec<Weak<MonitoredConnection>>>,
}

#[derive(Debug)]
pub(super) struct MonitoredConnection {
    monitor: Arc<IdleMonitor>,
    running_requests: AtomicUsize,
    idle_since_s: AtomicU64,
    /// Closes the connection.
    pub(super) close: CancellationToken,
}

impl IdleMonitor {
    pub(super) fn add_connection(self: &Arc<Self>) -> Arc<MonitoredConnection> {
        let connection = Arc::new(MonitoredConnection {
            monitor: self.clone(),
            running_requests: AtomicUsize::new(0),
            idle_since_s: AtomicU64::new(self.now_s.load(Ordering::Relaxed)),
            close: CancellationToken::new(),
        });
        self.connections.lock().push(Arc::downgrade(&connection));
        connection
    }

    /// Closes idle connections. Never returns.
    pub(super) async fn run(&self) {
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        loop {
            tick.tick().await;
            let now_s = self.now_s.fetch_add(1, Ordering::Relaxed) + 1;
            self.connections.lock().retain(|connection| {
                let Some(connection) = connection.upgrade() else {
                    return false;
                };
                let since_s = connection.idle_since_s.load(Ordering::Relaxed);
                if connection.running_requests.load(Ordering::Relaxed) == 0
                    && now_s > since_s + IDLE_S
                {
                    connection.close.cancel();
                }
                true
            });
        }
    }
}

/// Marks a connection as busy, from a request's head to the last byte of its response.
pub(super) struct BusyGuard(Arc<MonitoredConnection>);

impl BusyGuard {
    pub(super) fn new(connection: &Arc<MonitoredConnection>) -> Self {
        connection.running_requests.fetch_add(1, Ordering::Relaxed);
        Self(connection.clone())
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        let MonitoredConnection {
            monitor: watch,
            idle_since_s: since_s,
            running_requests: busy,
            ..
        } = &*self.0;
        since_s.store(watch.now_s.load(Ordering::Relaxed), Ordering::Relaxed);
        busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response body, which keeps its connection busy until it is sent or dropped.
pub(super) struct GuardedBody {
    pub(super) body: Body,
    pub(super) _busy: BusyGuard,
}

impl hyper::body::Body for GuardedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
