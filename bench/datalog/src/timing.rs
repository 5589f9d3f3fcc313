//! Measures how long a query takes.

use std::time::{Duration, Instant};

use anyhow::Result;

pub const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

/// The median time of a query and the number of rows it found.
#[derive(Clone, Copy)]
pub struct Timing {
    pub time: Duration,
    pub rows: usize,
}

/// Returns the median time of several calls, after one warm-up call.
pub fn median_time(mut call: impl FnMut() -> Result<usize>) -> Result<Timing> {
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
    Ok(Timing { time, rows })
}

pub fn format_ms(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1_000.0)
}
