//! A deadline that pauses while the delegate answers the server's requests: that time is not the server's.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rung_tool::{BoxFuture, LogLevel};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::pending::{Delegate, DelegateError};
use crate::client::Capabilities;

/// A delegate wrapper that measures its answering time and extends the deadline by it.
pub(super) struct PausableDeadline {
    delegate: Arc<dyn Delegate>,
    state: Mutex<DeadlineState>,
    changed: Notify,
}

struct DeadlineState {
    /// The deadline; extended by each pause when the pause ends.
    deadline: Instant,
    /// Server requests being answered; `since` is the start of the current pause.
    open_requests: usize,
    paused_at: Instant,
}

impl PausableDeadline {
    /// Creates a deadline `given` from now.
    pub(super) fn new(delegate: Arc<dyn Delegate>, given: Duration) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            delegate,
            state: Mutex::new(DeadlineState {
                deadline: now + given,
                open_requests: 0,
                paused_at: now,
            }),
            changed: Notify::new(),
        })
    }

    /// Awaits `future`. Returns `None` if the deadline passes first.
    pub(super) async fn run<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(future);
        loop {
            let moved = self.changed.notified();
            let until = {
                let state = self.state.lock();
                (state.open_requests == 0).then_some(state.deadline)
            };
            let over = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                out = &mut future => return Some(out),
                () = moved => {}
                () = over => return None,
            }
        }
    }
}

/// Pauses the deadline until dropped.
struct PauseGuard<'a>(&'a PausableDeadline);

impl<'a> PauseGuard<'a> {
    fn new(clock: &'a PausableDeadline) -> Self {
        let mut state = clock.state.lock();
        if state.open_requests == 0 {
            state.paused_at = Instant::now();
        }
        state.open_requests += 1;
        drop(state);
        clock.changed.notify_waiters();
        Self(clock)
    }
}

impl Drop for PauseGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.open_requests -= 1;
        if state.open_requests == 0 {
            let thought = state.paused_at.elapsed();
            state.deadline += thought;
        }
        drop(state);
        self.0.changed.notify_waiters();
    }
}

impl Delegate for PausableDeadline {
    fn capabilities(&self) -> Capabilities {
        self.delegate.capabilities()
    }

    fn wants_progress(&self) -> bool {
        self.delegate.wants_progress()
    }

    fn log_level(&self) -> Option<LogLevel> {
        self.delegate.log_level()
    }

    fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        self.delegate.on_notification(method, params);
    }

    fn on_request<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, DelegateError>> {
        Box::pin(async move {
            let _thinking = PauseGuard::new(self);
            self.delegate.on_request(method, params).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct SlowDelegate;

    impl Delegate for SlowDelegate {
        fn on_request<'a>(
            &'a self,
            _: &'a str,
            _: Option<&'a RawValue>,
        ) -> BoxFuture<'a, Result<Box<RawValue>, DelegateError>> {
            Box::pin(async {
                tokio::time::sleep(Duration::from_mins(10)).await;
                Ok(RawValue::from_string("{}".to_owned()).unwrap())
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_thought_about_here_is_not_the_servers_time() {
        let clock = PausableDeadline::new(Arc::new(SlowDelegate), Duration::from_mins(1));
        let asks = async {
            tokio::time::sleep(Duration::from_secs(40)).await;
            clock.on_request("elicitation/create", None).await.unwrap();
            tokio::time::sleep(Duration::from_secs(15)).await;
        };
        assert!(clock.run(asks).await.is_some());
        let goes_on = tokio::time::sleep(Duration::from_secs(10));
        assert!(clock.run(goes_on).await.is_none());
    }
}
