//! Draws the speedup over other engines: a bar to the right where Rung is faster, to the left where it is slower.

use std::fmt::Write as _;

use crate::report::QueryTimings;

const LEFT: f64 = 220.0;
const WIDTH: f64 = 900.0;
const PLOT: f64 = WIDTH - LEFT - 60.0;
const TOP: f64 = 60.0;
const ROW_HEIGHT: f64 = 24.0;
const HEADING_HEIGHT: f64 = 26.0;

const STYLE: &str = "<style>
.back{fill:#fff} text{fill:#222} .faint{fill:#666} .grid{stroke:#ddd} .one{stroke:#222} .bar{stroke:#c00;stroke-dasharray:3 3}
.datalevin{fill:#0a58ca} .sqlite{fill:#999}
@media (prefers-color-scheme:dark){.back{fill:#161616} text{fill:#ddd} .faint{fill:#aaa} .grid{stroke:#3a3a3a} .one{stroke:#ddd}
.bar{stroke:#f66} .datalevin{fill:#6ea8fe} .sqlite{fill:#8a8a8a}}
</style>";

/// Lowest and highest power of ten on the axis; a ratio beyond it is only labelled.
const AXIS_DECADES: (i32, i32) = (-2, 3);

/// Returns the axis range in powers of ten, from the smallest ratio to the greatest.
fn decades(lines: &[QueryTimings]) -> (i32, i32) {
    let ratios = lines
        .iter()
        .flat_map(|line| [line.speedup_over_datalevin(), line.speedup_over_sqlite()]);
    let (mut low, mut high) = (-1, 1);
    for ten in ratios.flatten().map(f64::log10) {
        low = low.min(ten.floor() as i32);
        high = high.max(ten.ceil() as i32);
    }
    (low.max(AXIS_DECADES.0), high.min(AXIS_DECADES.1))
}

pub fn draw(lines: &[QueryTimings]) -> String {
    let (low, high) = decades(lines);
    let x = |ratio: f64| {
        let (low, high) = (f64::from(low), f64::from(high));
        LEFT + PLOT * (ratio.log10().clamp(low, high) - low) / (high - low)
    };
    let mut y = TOP + 14.0;
    let mut rows = String::new();
    let mut data = "";
    for line in lines {
        if line.data != data {
            data = line.data;
            push_text(&mut rows, (10.0, y + 14.0), "font-weight='bold'", data);
            y += HEADING_HEIGHT;
        }
        push_text(
            &mut rows,
            (LEFT - 8.0, y + 14.0),
            "text-anchor='end'",
            line.name,
        );
        for (class, ratio, top) in [
            ("datalevin", line.speedup_over_datalevin(), y + 1.0),
            ("sqlite", line.speedup_over_sqlite(), y + 11.0),
        ] {
            let Some(ratio) = ratio else { continue };
            let (from, to) = (x(ratio.min(1.0)), x(ratio.max(1.0)));
            let _ = writeln!(
                rows,
                "<rect class='{class}' x='{from:.1}' y='{top}' width='{:.1}' height='9'/>",
                (to - from).max(0.5)
            );
            let decimals = [(1.0, 2), (10.0, 1)];
            let decimals = decimals.iter().find(|(below, _)| ratio < *below);
            let label = format!("{ratio:.*}", decimals.map_or(0, |(_, places)| *places));
            let at = (x(ratio.max(1.0)) + 4.0, top + 8.0);
            push_text(&mut rows, at, "class='faint' font-size='9'", &label);
        }
        y += ROW_HEIGHT;
    }
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {}' font-family='sans-serif' font-size='11'>\n{STYLE}\n<rect class='back' width='100%' height='100%'/>\n",
        y + 20.0
    );
    push_text(
        &mut svg,
        (10.0, 18.0),
        "font-weight='bold' font-size='13'",
        "Datalog: how many times as fast as other engines",
    );
    svg.push_str("<rect class='datalevin' x='10' y='27' width='10' height='10'/><text x='25' y='36'>Datalevin</text>\n");
    svg.push_str("<rect class='sqlite' x='95' y='27' width='10' height='10'/><text x='110' y='36'>SQLite</text>\n");
    svg.push_str("<line class='bar' x1='165' x2='185' y1='32' y2='32'/><text x='190' y='36'>bars against Datalevin: 0.8 for each, 3 for the median</text>\n");
    for ten in low..=high {
        let at = 10f64.powi(ten);
        push_vertical_line(&mut svg, if ten == 0 { "one" } else { "grid" }, x(at), y);
        push_text(
            &mut svg,
            (x(at), TOP),
            "class='faint' text-anchor='middle'",
            &format!("{at}\u{d7}"),
        );
    }
    push_vertical_line(&mut svg, "bar", x(0.8), y);
    push_vertical_line(&mut svg, "bar", x(3.0), y);
    svg.push_str(&rows);
    svg.push_str("</svg>\n");
    svg
}

fn push_text(svg: &mut String, (x, y): (f64, f64), how: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x='{x:.1}' y='{y:.1}' {how}>{words}</text>");
}

fn push_vertical_line(svg: &mut String, class: &str, x: f64, y: f64) {
    let _ = writeln!(
        svg,
        "<line class='{class}' x1='{x:.1}' x2='{x:.1}' y1='{}' y2='{y:.1}'/>",
        TOP + 6.0
    );
}
