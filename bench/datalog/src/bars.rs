//! What was measured beside what is asked of us.

use std::time::Duration;

use crate::graph::REACH;
use crate::people::POINT;
use crate::rung::Rung;
use crate::table::Line;
use crate::time::ms;

fn tell(holds: bool, what: &str) {
    println!("{} {what}", if holds { "holds: " } else { "MISSED:" });
}

fn tell_time(what: &str, time: Duration, bar: Duration) {
    tell(
        time < bar,
        &format!("{what}: {} ms (bar: {})", ms(time), ms(bar)),
    );
}

/// The longest transaction, and the opening of the largest store.
pub fn loads(stores: &[Rung]) {
    if let Some(store) = stores.iter().max_by_key(|store| store.slowest) {
        let (time, datoms) = store.slowest;
        let what = format!("{datoms} datoms in one transaction");
        tell_time(&what, time, Duration::from_secs(1));
    }
    if let Some(store) = stores.iter().max_by_key(|store| store.datoms) {
        let what = format!("opening {} datoms", store.datoms);
        tell_time(&what, store.open, Duration::from_millis(20));
    }
}

pub fn questions(lines: &[Line]) {
    for line in lines {
        let Ok(took) = &line.rung else {
            tell(false, &format!("{}: no answer", line.name));
            continue;
        };
        if line.name == POINT {
            tell_time(POINT, took.time, Duration::from_micros(50));
        } else if line.name.starts_with(REACH) {
            tell_time(line.name, took.time, Duration::from_millis(100));
        }
    }
    let unanswered = lines
        .iter()
        .filter(|line| matches!(line.datalevin, Some(Err(_))));
    let unanswered: Vec<&str> = unanswered.map(|line| line.name).collect();
    if !unanswered.is_empty() {
        println!("        no answer by Datalevin: {}", unanswered.join("; "));
    }
    against("Datalevin", lines, Line::to_datalevin, Some((3.0, 0.8)));
    against("SQLite", lines, Line::to_sqlite, None);
}

/// The median and the least of what we are faster by, with the bars of both.
fn against(
    engine: &str,
    lines: &[Line],
    ratio: impl Fn(&Line) -> Option<f64>,
    bars: Option<(f64, f64)>,
) {
    let mut ratios: Vec<_> = lines
        .iter()
        .filter_map(|line| Some((ratio(line)?, line.name)))
        .collect();
    if ratios.is_empty() {
        return;
    }
    ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (median, (least, name)) = (ratios[ratios.len() / 2].0, ratios[0]);
    let (median_text, least_text) = (
        format!(
            "against {engine}: {median:.2} times as fast in the median of {}",
            ratios.len()
        ),
        format!("against {engine}: {least:.2} times as fast at the least ({name})"),
    );
    match bars {
        Some((median_bar, least_bar)) => {
            tell(
                median >= median_bar,
                &format!("{median_text} (bar: {median_bar})"),
            );
            tell(
                least >= least_bar,
                &format!("{least_text} (bar: {least_bar})"),
            );
        }
        None => println!("        {median_text}\n        {least_text}"),
    }
}
