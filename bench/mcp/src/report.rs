//! Formats the measurements: a table, the ratios, and an SVG drawing.

use std::fmt::Write as _;

use crate::load::Measurement;
use crate::targets::{Implementation, Target, TargetProtocol};

/// The measurements of one target.
pub struct TargetResult {
    name: String,
    implementation: Implementation,
    protocol: TargetProtocol,
    is_full_binary: bool,
    pub measurements: Vec<Measurement>,
    pub error: Option<String>,
}

impl TargetResult {
    pub fn new(target: &Target) -> Self {
        Self {
            name: target.name.clone(),
            implementation: target.implementation,
            protocol: target.protocol,
            is_full_binary: target.is_full_binary,
            measurements: Vec::new(),
            error: None,
        }
    }

    /// Returns the lowest and the median value.
    pub fn lowest_and_median(&self, of: impl Fn(&Measurement) -> f64) -> (f64, f64) {
        let mut values: Vec<f64> = self.measurements.iter().map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        (values[0], values[values.len() / 2])
    }
}

/// Formats all rows, followed by the summary lines.
pub fn table(rows: &[TargetResult], lines: &[String]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<46} {:>17} {:>17} {:>15} {:>15} {:>13}",
        "best (median)", "p50 us", "requests/s", "CPU us/request", "start ms", "RSS idle, end"
    );
    for row in rows {
        if let Some(error) = &row.error {
            let _ = writeln!(out, "{:<46} NOT MEASURED: {error}", row.name);
            continue;
        }
        let pair = |(best, median): (f64, f64), digits: usize| {
            format!("{best:.digits$} ({median:.digits$})")
        };
        let p50 = pair(row.lowest_and_median(|f| f.p50_us), 1);
        let (slow, middle) = row.lowest_and_median(|f| -f.per_second);
        let per_second = pair((-slow, -middle), 0);
        let cpu = pair(row.lowest_and_median(|f| f.cpu_us), 1);
        let start = pair(row.lowest_and_median(|f| f.start_ms), 1);
        let rss = format!(
            "{:.1}, {:.1}",
            row.lowest_and_median(|f| f.idle_rss_mb).0,
            row.lowest_and_median(|f| f.rss_mb).0
        );
        let _ = writeln!(
            out,
            "{:<46} {p50:>17} {per_second:>17} {cpu:>15} {start:>15} {rss:>13}",
            row.name
        );
    }
    out.push('\n');
    for line in lines {
        let _ = writeln!(out, "{line}");
    }
    out
}

pub fn find_result(rows: &[TargetResult], maker: Implementation, way: TargetProtocol) -> Option<&TargetResult> {
    rows.iter().find(|row| {
        row.implementation == maker
            && row.protocol == way
            && !row.is_full_binary
            && row.error.is_none()
            && !row.measurements.is_empty()
    })
}

/// Returns the summary lines with the ratios and their bars.
pub fn ratios(rows: &[TargetResult]) -> Vec<String> {
    let mut lines = Vec::new();
    for way in [TargetProtocol::Modern, TargetProtocol::Stateless, TargetProtocol::Session] {
        if let (Some(ours), Some(theirs)) =
            (find_result(rows, Implementation::Rung, way), find_result(rows, Implementation::Rmcp, way))
        {
            let (ours, theirs) = (ours.lowest_and_median(|f| f.cpu_us), theirs.lowest_and_median(|f| f.cpu_us));
            lines.push(format!(
                "CPU per request, {}: {:.2} of rmcp's by the best, {:.2} by the median (bar: 0.50)",
                way.name(),
                ours.0 / theirs.0,
                ours.1 / theirs.1
            ));
        }
    }
    let scripts = rows.iter().filter(|row| {
        row.implementation == Implementation::TypeScript && row.protocol == TargetProtocol::Stdio && row.error.is_none()
    });
    let fastest = scripts
        .map(|row| row.lowest_and_median(|f| f.p50_us).0)
        .min_by(f64::total_cmp);
    if let (Some(ours), Some(theirs)) = (find_result(rows, Implementation::Rung, TargetProtocol::Stdio), fastest) {
        let ours = ours.lowest_and_median(|f| f.p50_us).0;
        lines.push(format!(
            "p50 over stdio: {:.2} of the TypeScript SDK's (bar: below 1)",
            ours / theirs
        ));
    }
    for row in rows.iter().filter(|row| row.is_full_binary && row.error.is_none()) {
        let (rss, start) = (row.lowest_and_median(|f| f.idle_rss_mb).1, row.lowest_and_median(|f| f.start_ms).1);
        lines.push(format!("{}: {rss:.1} MB idle (bar: 12), {start:.1} ms to the first answer (bar: 20), by the median", row.name));
    }
    lines
}

const BAR_WIDTH: f64 = 520.0;
const LABEL_WIDTH: f64 = 300.0;
const LINE_HEIGHT: f64 = 22.0;

/// Draws two bar charts: CPU time over HTTP and latency over stdio. Shorter is better.
pub fn svg(rows: &[TargetResult]) -> String {
    let http = panel(
        rows,
        "CPU per HTTP request, us (best of the rounds)",
        |row| (row.protocol != TargetProtocol::Stdio).then(|| row.lowest_and_median(|f| f.cpu_us).0),
    );
    let stdio = panel(rows, "p50 over stdio, us (best of the rounds)", |row| {
        (row.protocol == TargetProtocol::Stdio).then(|| row.lowest_and_median(|f| f.p50_us).0)
    });
    let height = LINE_HEIGHT * (http.len() + stdio.len() + 2) as f64;
    let width = LABEL_WIDTH + BAR_WIDTH + 80.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut y = LINE_HEIGHT;
    for line in http.iter().chain([&String::new()]).chain(&stdio) {
        out.push_str(
            &line
                .replace("YY", &format!("{y:.0}"))
                .replace("BB", &format!("{:.0}", y - 12.0)),
        );
        y += LINE_HEIGHT;
    }
    out + "</svg>\n"
}

fn panel(rows: &[TargetResult], title: &str, of: impl Fn(&TargetResult) -> Option<f64>) -> Vec<String> {
    let measured = rows
        .iter()
        .filter(|row| !row.is_full_binary && row.error.is_none() && !row.measurements.is_empty());
    let bars: Vec<(&TargetResult, f64)> = measured.filter_map(|row| Some((row, of(row)?))).collect();
    let most = bars.iter().map(|(_, value)| *value).fold(1.0, f64::max);
    let mut lines = vec![format!(
        "<text x=\"8\" y=\"YY\" font-weight=\"bold\">{title}</text>\n"
    )];
    for (row, value) in bars {
        let length = (value / most * BAR_WIDTH).max(1.0);
        let colour = match row.implementation {
            Implementation::Rung => "#336655",
            Implementation::Rmcp => "#b7723c",
            Implementation::TypeScript => "#3c6fb7",
            Implementation::Python => "#8a8a3a",
        };
        lines.push(format!(
            "<text x=\"8\" y=\"YY\">{}</text><rect x=\"{LABEL_WIDTH}\" y=\"BB\" width=\"{length:.1}\" height=\"14\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"YY\">{value:.1}</text>\n",
            row.name,
            LABEL_WIDTH + length + 6.0
        ));
    }
    lines
}
