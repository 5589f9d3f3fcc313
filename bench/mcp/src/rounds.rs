//! Every target in every round, in an order that is another one each time: who comes when is nobody's advantage.

use std::time::Duration;

use anyhow::Result;

use crate::figures::Row;
use crate::load;
use crate::targets::Target;

/// Measures as the command line says: `--rounds N --seconds S --only WORD`.
pub fn run(mut targets: Vec<Target>) -> Result<Vec<Row>> {
    let rounds = argument("--rounds").unwrap_or(4);
    let seconds = Duration::from_secs(argument("--seconds").unwrap_or(2));
    if let Some(word) = argument::<String>("--only") {
        targets.retain(|target| target.name.contains(&word));
    }
    // One data folder for the whole run, as people have one.
    let home = tempfile::tempdir()?;
    let mut rows: Vec<Row> = targets.iter().map(Row::new).collect();
    let mut order: Vec<usize> = (0..targets.len()).collect();
    let mut seed = u64::from(std::process::id()) | 1;
    for round in 1..=rounds {
        shuffle(&mut order, &mut seed);
        for &at in &order {
            let target = &targets[at];
            eprintln!("round {round} of {rounds}: {}", target.name);
            match load::measure(target, home.path(), seconds) {
                Ok(figures) => rows[at].taken.push(figures),
                Err(error) => rows[at].failed = Some(format!("{error:#}")),
            }
        }
    }
    Ok(rows)
}

fn argument<T: std::str::FromStr>(name: &str) -> Option<T> {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name)?;
    arguments.next()?.parse().ok()
}

/// Fisher and Yates, with a generator that is good enough to be unfair to nobody.
fn shuffle(order: &mut [usize], seed: &mut u64) {
    for last in (1..order.len()).rev() {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        let other = usize::try_from(*seed % (last as u64 + 1)).unwrap_or(0);
        order.swap(last, other);
    }
}
