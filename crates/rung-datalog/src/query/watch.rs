//! The bounds of a query: how long it may take, how much memory it may have, and whether anybody still waits.

use std::cell::Cell;
use std::rc::Rc;
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
    /// Bytes that are held.
    bytes: Rc<Cell<usize>>,
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
            bytes: Rc::default(),
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
}

/// Memory that a query holds, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Held {
    bytes: usize,
    /// Where it is counted.
    all: Option<Rc<Cell<usize>>>,
}

impl Held {
    /// Takes more of it.
    pub(crate) fn take(&mut self, bytes: usize, watch: &Watch) -> Result<()> {
        let all = self.all.get_or_insert_with(|| watch.bytes.clone());
        all.set(all.get() + bytes);
        self.bytes += bytes;
        if all.get() > watch.max_bytes {
            return Err(Error::TooLarge {
                max_bytes: watch.max_bytes,
            });
        }
        watch.step()
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        if let Some(all) = &self.all {
            all.set(all.get() + self.bytes);
        }
        Self {
            bytes: self.bytes,
            all: self.all.clone(),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(all) = &self.all {
            all.set(all.get() - self.bytes);
        }
    }
}
