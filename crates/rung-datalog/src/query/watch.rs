//! Enforcement of the limits of a running query: time, memory and cancellation.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Steps between two checks of the clock.
const STEPS: u32 = 256;

/// Enforces the time limit and the memory limit of a running query in one thread.
#[derive(Debug)]
pub(crate) struct QueryWatch {
    limits: Arc<SharedLimits>,
    steps: Cell<u32>,
}

/// The limits and the memory count that all threads of a query share.
#[derive(Debug)]
pub(crate) struct SharedLimits {
    deadline: Option<(Instant, u64)>,
    cancelled: Option<Arc<AtomicBool>>,
    max_bytes: usize,
    /// Bytes in use.
    bytes: AtomicUsize,
}

impl SharedLimits {
    /// Creates a watch for another thread.
    pub(crate) fn new_watch(self: &Arc<Self>) -> QueryWatch {
        QueryWatch {
            limits: self.clone(),
            steps: Cell::new(0),
        }
    }
}

impl QueryWatch {
    pub(crate) fn new(
        max_ms: Option<u64>,
        max_bytes: usize,
        cancelled: Option<Arc<AtomicBool>>,
    ) -> Self {
        let ends = |ms: u64| Some((Instant::now().checked_add(Duration::from_millis(ms))?, ms));
        let limits = SharedLimits {
            deadline: max_ms.and_then(ends),
            cancelled,
            max_bytes,
            bytes: AtomicUsize::new(0),
        };
        Arc::new(limits).new_watch()
    }

    pub(crate) fn limits(&self) -> &Arc<SharedLimits> {
        &self.limits
    }

    /// Returns the deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.limits.deadline.map(|(end, _)| end)
    }

    /// Counts one step of work.
    pub(crate) fn step(&self) -> Result<()> {
        let steps = self.steps.get() + 1;
        if steps < STEPS {
            self.steps.set(steps);
            return Ok(());
        }
        self.steps.set(0);
        self.check()
    }

    /// Checks the deadline and the cancellation flag.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some((end, max_ms)) = self.limits.deadline
            && Instant::now() >= end
        {
            return Err(Error::Timeout { max_ms });
        }
        if self
            .limits
            .cancelled
            .as_ref()
            .is_some_and(|flag| flag.load(Ordering::Relaxed))
        {
            return Err(Error::Cancelled);
        }
        Ok(())
    }
}

/// Bytes that are counted locally before they are added to the shared count.
const COUNTED_BYTES: usize = 16 << 10;

/// Memory of a query that is counted until this value is dropped.
#[derive(Debug, Default)]
pub(crate) struct MemoryReservation {
    /// `counted`: bytes in the shared count. `bytes`: bytes that are not in it yet.
    counted: usize,
    bytes: usize,
    all: Option<Arc<SharedLimits>>,
}

impl MemoryReservation {
    /// Adds bytes. Fails if the query exceeds its memory limit.
    pub(crate) fn reserve(&mut self, bytes: usize, watch: &QueryWatch) -> Result<()> {
        self.bytes += bytes;
        if self.bytes >= COUNTED_BYTES {
            let taken = std::mem::take(&mut self.bytes);
            let all = self.all.get_or_insert_with(|| watch.limits.clone());
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

    /// Moves the bytes of another reservation to this one.
    pub(crate) fn merge(&mut self, mut other: Self) {
        self.counted += std::mem::take(&mut other.counted);
        self.bytes += other.bytes;
        if self.all.is_none() {
            self.all = other.all.take();
        }
    }
}

impl Clone for MemoryReservation {
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

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        if let Some(all) = &self.all {
            all.bytes.fetch_sub(self.counted, Ordering::Relaxed);
        }
    }
}
