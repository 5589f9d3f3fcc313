//! Measures every target in every round. The order is shuffled in each round, so that no target profits from its position.

use std::time::Duration;

use anyhow::Result;

use crate::report::TargetResult;
use crate::load;
use crate::targets::Target;

/// Measures the targets. Reads `--rounds N --seconds S --only WORD` from the command line.
pub fn run_rounds(mut targets: Vec<Target>) -> Result<Vec<TargetResult>> {
    let rounds = flag_value("--rounds").unwrap_or(4);
    let seconds = Duration::from_secs(flag_value("--seconds").unwrap_or(2));
    if let Some(word) = flag_value::<String>("--only") {
        targets.retain(|target| target.name.contains(&word));
    }
    // One data folder for the whole run, as in normal use.
    let home = tempfile::tempdir()?;
    let mut rows: Vec<TargetResult> = targets.iter().map(TargetResult::new).collect();
    let mut order: Vec<usize> = (0..targets.len()).collect();
    let mut seed = u64::from(std::process::id()) | 1;
    for round in 1..=rounds {
        shuffle(&mut order, &mut seed);
        for &at in &order {
            let target = &targets[at];
            eprintln!("round {round} of {rounds}: {}", target.name);
            match load::measure(target, home.path(), seconds) {
                Ok(figures) => rows[at].measurements.push(figures),
                Err(error) => rows[at].error = Some(format!("{error:#}")),
            }
        }
    }
    Ok(rows)
}

fn flag_value<T: std::str::FromStr>(name: &str) -> Option<T> {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name)?;
    arguments.next()?.parse().ok()
}

/// Fisher-Yates shuffle with an xorshift generator.
fn shuffle(order: &mut [usize], seed: &mut u64) {
    for last in (1..order.len()).rev() {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        let other = usize::try_from(*seed % (last as u64 + 1)).unwrap_or(0);
        order.swap(last, other);
    }
}
