//! One thread a lane, each with a reactor of its own.
//!
//! A connection stays in its lane: what it brings is read, served and answered by one thread, with nobody to be
//! woken in between. That is most of the cost of a small call. What takes long belongs on the blocking threads, as
//! anywhere; here it would hold up its lane alone.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Shorter than any timer that a request sets.
const TICK: Duration = Duration::from_secs(1);

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The lanes.
pub(super) struct Lanes {
    lanes: Vec<UnboundedSender<Job>>,
    next: AtomicUsize,
}

impl Lanes {
    /// As many as there are processors.
    pub(super) fn open() -> io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, usize::from);
        let lanes = (0..count).map(|_| lane()).collect::<io::Result<_>>()?;
        Ok(Self {
            lanes,
            next: AtomicUsize::new(0),
        })
    }

    /// Runs a job in the lane whose turn it is.
    pub(super) fn run(&self, job: impl Future<Output = ()> + Send + 'static) {
        let lane = self.next.fetch_add(1, Ordering::Relaxed) % self.lanes.len();
        // A lane ends when we do, not before.
        let _taken = self.lanes[lane].send(Box::pin(job));
    }
}

fn lane() -> io::Result<UnboundedSender<Job>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (sender, mut jobs) = unbounded_channel::<Job>();
    thread::Builder::new()
        .name("lane".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::spawn(keep_time());
                while let Some(job) = jobs.recv().await {
                    tokio::spawn(job);
                }
            });
            // What is still being read for nobody must not keep us.
            runtime.shutdown_background();
        })?;
    Ok(sender)
}

/// A reactor that waits longer than the next timer is woken to be told of it, which costs as much as a small call. One
/// that never waits long need not be: most timers are gone before they are due.
async fn keep_time() {
    let mut tick = tokio::time::interval(TICK);
    loop {
        tick.tick().await;
    }
}
