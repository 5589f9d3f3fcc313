//! What was measured, for people: a table, the ratios that matter, and a drawing.

use std::fmt::Write as _;

use crate::load::Figures;
use crate::targets::{Maker, Target, Way};

/// What was taken of one target.
pub struct Row {
    name: String,
    maker: Maker,
    way: Way,
    whole: bool,
    pub taken: Vec<Figures>,
    pub failed: Option<String>,
}

impl Row {
    pub fn new(target: &Target) -> Self {
        Self {
            name: target.name.clone(),
            maker: target.maker,
            way: target.way,
            whole: target.whole,
            taken: Vec::new(),
            failed: None,
        }
    }

    /// The lowest and the middle value.
    pub fn low(&self, of: impl Fn(&Figures) -> f64) -> (f64, f64) {
        let mut values: Vec<f64> = self.taken.iter().map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        (values[0], values[values.len() / 2])
    }
}

/// Every row, and what the figures are taken for.
pub fn table(rows: &[Row], lines: &[String]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<46} {:>17} {:>17} {:>15} {:>15} {:>13}",
        "best (median)", "p50 us", "requests/s", "CPU us/request", "start ms", "RSS idle, end"
    );
    for row in rows {
        if let Some(error) = &row.failed {
            let _ = writeln!(out, "{:<46} NOT MEASURED: {error}", row.name);
            continue;
        }
        let pair = |(best, median): (f64, f64), digits: usize| {
            format!("{best:.digits$} ({median:.digits$})")
        };
        let p50 = pair(row.low(|f| f.p50_us), 1);
        let (slow, middle) = row.low(|f| -f.per_second);
        let per_second = pair((-slow, -middle), 0);
        let cpu = pair(row.low(|f| f.cpu_us), 1);
        let start = pair(row.low(|f| f.start_ms), 1);
        let rss = format!(
            "{:.1}, {:.1}",
            row.low(|f| f.idle_rss_mb).0,
            row.low(|f| f.rss_mb).0
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

pub fn find(rows: &[Row], maker: Maker, way: Way) -> Option<&Row> {
    rows.iter().find(|row| {
        row.maker == maker
            && row.way == way
            && !row.whole
            && row.failed.is_none()
            && !row.taken.is_empty()
    })
}

/// What the figures of the servers are taken for.
pub fn ratios(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for way in [Way::Modern, Way::Stateless, Way::Session] {
        if let (Some(ours), Some(theirs)) =
            (find(rows, Maker::Rung, way), find(rows, Maker::Rmcp, way))
        {
            let (ours, theirs) = (ours.low(|f| f.cpu_us), theirs.low(|f| f.cpu_us));
            lines.push(format!(
                "CPU per request, {}: {:.2} of rmcp's by the best, {:.2} by the median (bar: 0.50)",
                way.name(),
                ours.0 / theirs.0,
                ours.1 / theirs.1
            ));
        }
    }
    let scripts = rows.iter().filter(|row| {
        row.maker == Maker::TypeScript && row.way == Way::Stdio && row.failed.is_none()
    });
    let fastest = scripts
        .map(|row| row.low(|f| f.p50_us).0)
        .min_by(f64::total_cmp);
    if let (Some(ours), Some(theirs)) = (find(rows, Maker::Rung, Way::Stdio), fastest) {
        let ours = ours.low(|f| f.p50_us).0;
        lines.push(format!(
            "p50 over stdio: {:.2} of the TypeScript SDK's (bar: below 1)",
            ours / theirs
        ));
    }
    for row in rows.iter().filter(|row| row.whole && row.failed.is_none()) {
        let (rss, start) = (row.low(|f| f.idle_rss_mb).1, row.low(|f| f.start_ms).1);
        lines.push(format!("{}: {rss:.1} MB idle (bar: 12), {start:.1} ms to the first answer (bar: 20), by the median", row.name));
    }
    lines
}

const BAR_WIDTH: f64 = 520.0;
const LABEL_WIDTH: f64 = 300.0;
const LINE: f64 = 22.0;

/// Two drawings under each other: processor time over HTTP, latency over stdio. Shorter is better.
pub fn svg(rows: &[Row]) -> String {
    let http = panel(
        rows,
        "CPU per HTTP request, us (best of the rounds)",
        |row| (row.way != Way::Stdio).then(|| row.low(|f| f.cpu_us).0),
    );
    let stdio = panel(rows, "p50 over stdio, us (best of the rounds)", |row| {
        (row.way == Way::Stdio).then(|| row.low(|f| f.p50_us).0)
    });
    let height = LINE * (http.len() + stdio.len() + 2) as f64;
    let width = LABEL_WIDTH + BAR_WIDTH + 80.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut y = LINE;
    for line in http.iter().chain([&String::new()]).chain(&stdio) {
        out.push_str(
            &line
                .replace("YY", &format!("{y:.0}"))
                .replace("BB", &format!("{:.0}", y - 12.0)),
        );
        y += LINE;
    }
    out + "</svg>\n"
}

fn panel(rows: &[Row], title: &str, of: impl Fn(&Row) -> Option<f64>) -> Vec<String> {
    let measured = rows
        .iter()
        .filter(|row| !row.whole && row.failed.is_none() && !row.taken.is_empty());
    let bars: Vec<(&Row, f64)> = measured.filter_map(|row| Some((row, of(row)?))).collect();
    let most = bars.iter().map(|(_, value)| *value).fold(1.0, f64::max);
    let mut lines = vec![format!(
        "<text x=\"8\" y=\"YY\" font-weight=\"bold\">{title}</text>\n"
    )];
    for (row, value) in bars {
        let length = (value / most * BAR_WIDTH).max(1.0);
        let colour = match row.maker {
            Maker::Rung => "#336655",
            Maker::Rmcp => "#b7723c",
            Maker::TypeScript => "#3c6fb7",
            Maker::Python => "#8a8a3a",
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
