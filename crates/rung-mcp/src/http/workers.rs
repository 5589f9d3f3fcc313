//! Worker threads, each with a single-threaded runtime of its own.
//!
//! A connection stays on its worker: its requests are read, served and answered by one thread, with no other thread
//! woken in between, which is most of the cost of a small call. Slow work belongs on the blocking threads, as
//! anywhere; here it would delay one worker only.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Shorter than any timer that a request sets.
const REACTOR_TICK: Duration = Duration::from_secs(1);

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(super) struct Workers {
    workers: Vec<UnboundedSender<Job>>,
    next: AtomicUsize,
}

impl Workers {
    /// Starts one worker per processor.
    pub(super) fn start() -> io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, usize::from);
        let lanes = (0..count)
            .map(|_| start_worker())
            .collect::<io::Result<_>>()?;
        Ok(Self {
            workers: lanes,
            next: AtomicUsize::new(0),
        })
    }

    /// Runs a job on the next worker, in turn.
    pub(super) fn run(&self, job: impl Future<Output = ()> + Send + 'static) {
        let lane = self.next.fetch_add(1, Ordering::Relaxed) % self.workers.len();
        // A worker does not end before `self` is dropped.
        let _taken = self.workers[lane].send(Box::pin(job));
    }
}

fn start_worker() -> io::Result<UnboundedSender<Job>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (sender, mut jobs) = unbounded_channel::<Job>();
    thread::Builder::new()
        .name("lane".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::spawn(tick_reactor());
                while let Some(job) = jobs.recv().await {
                    tokio::spawn(job);
                }
            });
            // Blocking work whose result is no longer needed must not delay the end.
            runtime.shutdown_background();
        })?;
    Ok(sender)
}

/// Ticks, so that the reactor never waits long. A new timer that is due before the reactor's wait ends wakes the
/// reactor, which costs as much as a small call; and most timers are dropped before they are due.
async fn tick_reactor() {
    let mut tick = tokio::time::interval(REACTOR_TICK);
    loop {
        tick.tick().await;
    }
}
