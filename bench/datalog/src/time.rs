//! How long something takes.

use std::time::{Duration, Instant};

use anyhow::Result;

/// How long one question may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long a question took, and the number of rows that it found.
#[derive(Clone, Copy)]
pub struct Took {
    pub time: Duration,
    pub rows: usize,
}

/// The median of some calls, after a first one that is not counted.
pub fn median(mut call: impl FnMut() -> Result<usize>) -> Result<Took> {
    let rows = call()?;
    let began = Instant::now();
    let mut times = Vec::new();
    loop {
        let (passed, done) = (began.elapsed(), times.len());
        let enough = passed > Duration::from_millis(600) || done >= 2_000;
        if (done >= 5 && enough) || (done >= 1 && passed > Duration::from_secs(15)) {
            break;
        }
        let one = Instant::now();
        call()?;
        times.push(one.elapsed());
    }
    times.sort_unstable();
    let time = times[times.len() / 2];
    Ok(Took { time, rows })
}

pub fn ms(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1_000.0)
}
