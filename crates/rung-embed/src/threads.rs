//! Parallel work on at most one thread per processor.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::{Error, Result};

/// The maximum number of threads: each needs memory.
const MAX_THREADS: usize = 8;

/// Maps each item with `each`, in parallel, and returns the results in order. After `ends`, or a failure, no further item is
/// started.
pub(crate) fn map_parallel<W: Sync, R: Send>(
    work: &[W],
    ends: Option<Instant>,
    each: impl Fn(&W) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<R>>> = Mutex::new(work.iter().map(|_| None).collect());
    let run = || {
        while let Some(at) =
            Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < work.len())
        {
            let made = if ends.is_some_and(|end| Instant::now() >= end) {
                Err(Error::TimedOut)
            } else {
                each(&work[at])
            };
            match made {
                Ok(made) => {
                    done.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(made);
                }
                Err(error) => {
                    next.store(work.len(), Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(())
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(MAX_THREADS).min(work.len());
    if threads <= 1 {
        run()?;
    } else {
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
            let own = run();
            let others = others.into_iter().map(|other| match other.join() {
                Ok(ended) => ended,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            // All threads are joined before the first error is returned.
            others
                .collect::<Vec<_>>()
                .into_iter()
                .chain([own])
                .collect::<Result<()>>()
        })?;
    }
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(done.into_iter().flatten().collect())
}
