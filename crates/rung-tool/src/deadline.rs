//! The end of a call before its result: its deadline, and its cancellation by the client.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rung_fault::{Code, Fault};
use tokio::time::timeout_at;

use crate::card::Hints;
use crate::source::Call;

/// How often a call whose deadline moved is checked, at the most.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Runs the work of a call, but not beyond its deadline. The time in which the client answers questions of the call does not
/// count. `hints` are those of the tool: what changes something may still take effect after its deadline.
pub async fn within_deadline<T>(
    call: &Call,
    hints: Hints,
    work: impl Future<Output = T>,
) -> Result<T, Fault> {
    let Some(deadline) = call.deadline else {
        return Ok(work.await);
    };
    let mut work = pin!(work);
    let mut next_check = deadline + call.peer.answer_time();
    loop {
        if let Ok(done) = timeout_at(next_check.into(), work.as_mut()).await {
            return Ok(done);
        }
        let end = deadline + call.peer.answer_time();
        if end <= next_check {
            return Err(if hints.read_only || hints.idempotent {
                deadline_fault()
            } else {
                unknown_outcome_fault()
            });
        }
        next_check = end.max(Instant::now() + CHECK_INTERVAL);
    }
}

/// Reports if a call is still wanted: its deadline, and whether its client cancelled it.
#[derive(Debug, Clone)]
pub struct Cancellation {
    deadline: Option<Instant>,
    cancelled: Arc<AtomicBool>,
}

impl Cancellation {
    /// Creates one with a deadline and a flag that is set on cancellation.
    pub fn new(deadline: Option<Instant>, cancelled: Arc<AtomicBool>) -> Self {
        Self {
            deadline,
            cancelled,
        }
    }

    /// Returns an error if the call was cancelled or its deadline has passed.
    pub fn check(&self) -> Result<(), Fault> {
        let late = self.deadline.is_some_and(|end| Instant::now() >= end);
        if late || self.cancelled.load(Ordering::Relaxed) {
            return Err(deadline_fault());
        }
        Ok(())
    }

    /// Returns the deadline.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the flag that is set on cancellation.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.cancelled.clone()
    }

    /// Returns a guard that cancels when dropped, as the future of a call is when its client cancels it.
    pub(crate) fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.cancelled.clone())
    }
}

pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn unknown_outcome_fault() -> Fault {
    let why = "the deadline of the call passed while it ran; it may still take effect";
    Fault::new(Code::OutcomeUnknown, why).with_hint(
        "check whether the call took effect before you repeat it; the setting calls.deadline_s is the time of a call",
    )
}

fn deadline_fault() -> Fault {
    let why = "the call was cancelled or its deadline passed";
    Fault::new(Code::DeadlineExceeded, why).with_hint(
        "request less, for example with more known values or a limit; the setting calls.deadline_s is the time of a call",
    )
}
