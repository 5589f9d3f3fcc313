//! Compares the measurements with the required thresholds (bars).

use std::time::Duration;

use crate::graph::REACHABILITY_PREFIX;
use crate::people::POINT_QUERY;
use crate::rung::Rung;
use crate::report::QueryTimings;
use crate::timing::format_ms;

fn report(holds: bool, what: &str) {
    println!("{} {what}", if holds { "holds: " } else { "MISSED:" });
}

fn report_time(what: &str, time: Duration, bar: Duration) {
    report(
        time < bar,
        &format!("{what}: {} ms (bar: {})", format_ms(time), format_ms(bar)),
    );
}

/// Checks the longest transaction and the time to open the largest store.
pub fn check_loads(stores: &[Rung]) {
    if let Some(store) = stores.iter().max_by_key(|store| store.slowest_transaction) {
        let (time, datoms) = store.slowest_transaction;
        let what = format!("{datoms} datoms in one transaction");
        report_time(&what, time, Duration::from_secs(1));
    }
    if let Some(store) = stores.iter().max_by_key(|store| store.datoms) {
        let what = format!("opening {} datoms", store.datoms);
        report_time(&what, store.open_time, Duration::from_millis(20));
    }
}

pub fn check_queries(lines: &[QueryTimings]) {
    for line in lines {
        let Ok(took) = &line.rung else {
            report(false, &format!("{}: no answer", line.name));
            continue;
        };
        if line.name == POINT_QUERY {
            report_time(POINT_QUERY, took.time, Duration::from_micros(50));
        } else if line.name.starts_with(REACHABILITY_PREFIX) {
            report_time(line.name, took.time, Duration::from_millis(100));
        }
    }
    let unanswered = lines
        .iter()
        .filter(|line| matches!(line.datalevin, Some(Err(_))));
    let unanswered: Vec<&str> = unanswered.map(|line| line.name).collect();
    if !unanswered.is_empty() {
        println!("        no answer by Datalevin: {}", unanswered.join("; "));
    }
    compare_with("Datalevin", lines, QueryTimings::speedup_over_datalevin, Some((3.0, 0.8)));
    compare_with("SQLite", lines, QueryTimings::speedup_over_sqlite, None);
}

/// Prints the median and the lowest speedup over an engine, each with its bar.
fn compare_with(
    engine: &str,
    lines: &[QueryTimings],
    ratio: impl Fn(&QueryTimings) -> Option<f64>,
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
            report(
                median >= median_bar,
                &format!("{median_text} (bar: {median_bar})"),
            );
            report(
                least >= least_bar,
                &format!("{least_text} (bar: {least_bar})"),
            );
        }
        None => println!("        {median_text}\n        {least_text}"),
    }
}
