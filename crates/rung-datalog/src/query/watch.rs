//! The bounds of a query: how long it may take, how much memory it may have, and whether anybody still waits.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// How often the clock is looked at.
const STEPS: u32 = 256;

/// The bounds of a query under way.
#[derive(Debug)]
pub(crate) struct Watch {
    ends: Option<(Instant, u64)>,
    cancelled: Option<Arc<AtomicBool>>,
    max_bytes: usize,
    bytes: Cell<usize>,
    steps: Cell<u32>,
}

impl Watch {
    pub(crate) fn new(
        max_ms: Option<u64>,
        max_bytes: usize,
        cancelled: Option<Arc<AtomicBool>>,
    ) -> Self {
        let ends = |ms: u64| Some((Instant::now().checked_add(Duration::from_millis(ms))?, ms));
        Self {
            ends: max_ms.and_then(ends),
            cancelled,
            max_bytes,
            bytes: Cell::new(0),
            steps: Cell::new(0),
        }
    }

    /// Counts one step of work.
    pub(crate) fn step(&self) -> Result<()> {
        let steps = self.steps.get() + 1;
        if steps < STEPS {
            self.steps.set(steps);
            return Ok(());
        }
        self.steps.set(0);
        self.look()
    }

    /// Looks at the clock.
    pub(crate) fn look(&self) -> Result<()> {
        if let Some((end, max_ms)) = self.ends
            && Instant::now() >= end
        {
            return Err(Error::Timeout { max_ms });
        }
        if self
            .cancelled
            .as_ref()
            .is_some_and(|flag| flag.load(Ordering::Relaxed))
        {
            return Err(Error::Cancelled);
        }
        Ok(())
    }

    /// Takes memory. What is let go of is not given back: a query that makes so much works too long anyway.
    pub(crate) fn take(&self, bytes: usize) -> Result<()> {
        let all = self.bytes.get() + bytes;
        self.bytes.set(all);
        if all > self.max_bytes {
            return Err(Error::TooLarge {
                max_bytes: self.max_bytes,
            });
        }
        self.step()
    }
}
