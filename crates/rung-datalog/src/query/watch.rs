//! The bounds of a query: how long it may take, how much memory it may have, and whether anybody still waits.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// How often the clock is looked at.
const STEPS: u32 = 256;

/// The bounds of a query under way, as one thread keeps to them.
#[derive(Debug)]
pub(crate) struct Watch {
    all: Arc<Limits>,
    steps: Cell<u32>,
}

/// What all threads of a query keep to together.
#[derive(Debug)]
pub(crate) struct Limits {
    ends: Option<(Instant, u64)>,
    cancelled: Option<Arc<AtomicBool>>,
    max_bytes: usize,
    /// Bytes that are held.
    bytes: AtomicUsize,
}

impl Limits {
    /// For another thread.
    pub(crate) fn watch(self: &Arc<Self>) -> Watch {
        Watch {
            all: self.clone(),
            steps: Cell::new(0),
        }
    }
}

impl Watch {
    pub(crate) fn new(
        max_ms: Option<u64>,
        max_bytes: usize,
        cancelled: Option<Arc<AtomicBool>>,
    ) -> Self {
        let ends = |ms: u64| Some((Instant::now().checked_add(Duration::from_millis(ms))?, ms));
        let limits = Limits {
            ends: max_ms.and_then(ends),
            cancelled,
            max_bytes,
            bytes: AtomicUsize::new(0),
        };
        Arc::new(limits).watch()
    }

    pub(crate) fn limits(&self) -> &Arc<Limits> {
        &self.all
    }

    /// When it must be done.
    pub(crate) fn ends(&self) -> Option<Instant> {
        self.all.ends.map(|(end, _)| end)
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
        if let Some((end, max_ms)) = self.all.ends
            && Instant::now() >= end
        {
            return Err(Error::Timeout { max_ms });
        }
        if self
            .all
            .cancelled
            .as_ref()
            .is_some_and(|flag| flag.load(Ordering::Relaxed))
        {
            return Err(Error::Cancelled);
        }
        Ok(())
    }
}

/// Bytes that are taken before they are counted with those of others.
const COUNTED_BYTES: usize = 16 << 10;

/// Memory that a query holds, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// What is counted with that of others, and what is not yet.
    counted: usize,
    bytes: usize,
    all: Option<Arc<Limits>>,
}

impl Held {
    /// Takes more of it.
    pub(crate) fn take(&mut self, bytes: usize, watch: &Watch) -> Result<()> {
        self.bytes += bytes;
        if self.bytes >= COUNTED_BYTES {
            let taken = std::mem::take(&mut self.bytes);
            let all = self.all.get_or_insert_with(|| watch.all.clone());
            self.counted += taken;
            let held = all.bytes.fetch_add(taken, Ordering::Relaxed) + taken;
            if held > all.max_bytes {
                return Err(Error::TooLarge {
                    max_bytes: all.max_bytes,
                });
            }
        }
        watch.step()
    }

    /// Takes over what another holds.
    pub(crate) fn take_over(&mut self, mut other: Self) {
        self.counted += std::mem::take(&mut other.counted);
        self.bytes += other.bytes;
        if self.all.is_none() {
            self.all = other.all.take();
        }
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        if let Some(all) = &self.all {
            all.bytes.fetch_add(self.counted, Ordering::Relaxed);
        }
        Self {
            counted: self.counted,
            bytes: self.bytes,
            all: self.all.clone(),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(all) = &self.all {
            all.bytes.fetch_sub(self.counted, Ordering::Relaxed);
        }
    }
}
