//! How long a server takes, without the time in which its questions are thought about here: that is not the server's.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rung_tool::{Level, Pending};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::board::{Delegate, Unanswered};
use crate::client::Capabilities;

/// A delegate, and the time that it takes.
pub(super) struct Clock {
    delegate: Arc<dyn Delegate>,
    state: Mutex<State>,
    moved: Notify,
}

struct State {
    /// When the server's time is over, counted from when nobody thinks.
    until: Instant,
    /// Questions that are being thought about, and since when there are any.
    open: usize,
    since: Instant,
}

impl Clock {
    /// For a server that is given so long.
    pub(super) fn new(delegate: Arc<dyn Delegate>, given: Duration) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            delegate,
            state: Mutex::new(State {
                until: now + given,
                open: 0,
                since: now,
            }),
            moved: Notify::new(),
        })
    }

    /// What comes of it, unless the server's time is over before.
    pub(super) async fn within<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(future);
        loop {
            let moved = self.moved.notified();
            let until = {
                let state = self.state.lock();
                (state.open == 0).then_some(state.until)
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

/// Somebody thinks, until this is dropped.
struct Thinking<'a>(&'a Clock);

impl<'a> Thinking<'a> {
    fn begin(clock: &'a Clock) -> Self {
        let mut state = clock.state.lock();
        if state.open == 0 {
            state.since = Instant::now();
        }
        state.open += 1;
        drop(state);
        clock.moved.notify_waiters();
        Self(clock)
    }
}

impl Drop for Thinking<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.open -= 1;
        if state.open == 0 {
            let thought = state.since.elapsed();
            state.until += thought;
        }
        drop(state);
        self.0.moved.notify_waiters();
    }
}

impl Delegate for Clock {
    fn can(&self) -> Capabilities {
        self.delegate.can()
    }

    fn wants_progress(&self) -> bool {
        self.delegate.wants_progress()
    }

    fn log_level(&self) -> Option<Level> {
        self.delegate.log_level()
    }

    fn told(&self, method: &str, params: Option<&RawValue>) {
        self.delegate.told(method, params);
    }

    fn ask<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> Pending<'a, Result<Box<RawValue>, Unanswered>> {
        Box::pin(async move {
            let _thinking = Thinking::begin(self);
            self.delegate.ask(method, params).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes its time.
    struct Slow;

    impl Delegate for Slow {
        fn ask<'a>(
            &'a self,
            _: &'a str,
            _: Option<&'a RawValue>,
        ) -> Pending<'a, Result<Box<RawValue>, Unanswered>> {
            Box::pin(async {
                tokio::time::sleep(Duration::from_mins(10)).await;
                Ok(RawValue::from_string("{}".to_owned()).unwrap())
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_thought_about_here_is_not_the_servers_time() {
        let clock = Clock::new(Arc::new(Slow), Duration::from_mins(1));
        let asks = async {
            tokio::time::sleep(Duration::from_secs(40)).await;
            clock.ask("elicitation/create", None).await.unwrap();
            tokio::time::sleep(Duration::from_secs(15)).await;
        };
        assert!(clock.within(asks).await.is_some());
        let goes_on = tokio::time::sleep(Duration::from_secs(10));
        assert!(clock.within(goes_on).await.is_none());
    }
}
