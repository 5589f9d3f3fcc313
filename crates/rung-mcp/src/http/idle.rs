//! Connections on which nothing is under way, and how long that has been so.
//!
//! A connection that sends no request, or sends one a byte at a time, is let go after a while. Nobody sets a timer for
//! that: a request only marks that it began and ended, and one watcher looks at all connections every second. A timer a
//! request would cost a tenth of what a small call costs.

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

/// Seconds for which nothing may be under way. A request's head has to come in this time.
const IDLE_S: u64 = 15;

/// Watches connections.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Seconds since the watching began.
    now_s: AtomicU64,
    connections: Mutex<Vec<Weak<Connection>>>,
}

/// A connection that is watched.
#[derive(Debug)]
pub(super) struct Connection {
    watch: Arc<Watch>,
    busy: AtomicUsize,
    since_s: AtomicU64,
    /// Ends it.
    pub(super) let_go: CancellationToken,
}

impl Watch {
    /// Watches one more.
    pub(super) fn connection(self: &Arc<Self>) -> Arc<Connection> {
        let connection = Arc::new(Connection {
            watch: self.clone(),
            busy: AtomicUsize::new(0),
            since_s: AtomicU64::new(self.now_s.load(Ordering::Relaxed)),
            let_go: CancellationToken::new(),
        });
        self.connections.lock().push(Arc::downgrade(&connection));
        connection
    }

    /// Lets idle ones go, for ever.
    pub(super) async fn tend(&self) {
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        loop {
            tick.tick().await;
            let now_s = self.now_s.fetch_add(1, Ordering::Relaxed) + 1;
            self.connections.lock().retain(|connection| {
                let Some(connection) = connection.upgrade() else {
                    return false;
                };
                let since_s = connection.since_s.load(Ordering::Relaxed);
                if connection.busy.load(Ordering::Relaxed) == 0 && now_s > since_s + IDLE_S {
                    connection.let_go.cancel();
                }
                true
            });
        }
    }
}

/// A request that is under way, from its head to the last byte of its answer.
pub(super) struct Busy(Arc<Connection>);

impl Busy {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        connection.busy.fetch_add(1, Ordering::Relaxed);
        Self(connection.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Connection {
            watch,
            since_s,
            busy,
            ..
        } = &*self.0;
        since_s.store(watch.now_s.load(Ordering::Relaxed), Ordering::Relaxed);
        busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer's body, under way until it is sent or dropped.
pub(super) struct Answer {
    pub(super) body: Body,
    pub(super) _busy: Busy,
}

impl hyper::body::Body for Answer {
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
