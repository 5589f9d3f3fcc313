//! Draws how the costs grow with the number of records.

pub struct Figure {
    pub name: String,
    /// In hundreds of thousands of records.
    pub scale: u64,
    pub rung_us: f64,
    pub baseline_us: f64,
    pub bar_us: f64,
}

impl Figure {
    pub fn new(name: &str, scale: u64, rung_us: f64, baseline_us: f64, bar_us: f64) -> Self {
        Self {
            name: name.to_owned(),
            scale,
            rung_us,
            baseline_us,
            bar_us,
        }
    }
}

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 190.0;

/// Draws one log-log plot per query: Rung, plain SQL, and the bar.
pub fn draw(figures: &[Figure]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for figure in figures {
        if !names.contains(&figure.name.as_str()) {
            names.push(&figure.name);
        }
    }
    let rows = names.len().div_ceil(3);
    let (width, height) = (3.0 * WIDTH, rows as f64 * HEIGHT + 30.0);
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' font-family='sans-serif' font-size='11'>\n<rect width='100%' height='100%' fill='white'/>\n"
    );
    svg.push_str("<text x='10' y='18'>microseconds each over records: <tspan fill='#0a58ca'>ours (CPU)</tspan>, <tspan fill='#999'>plain SQL</tspan>, <tspan fill='#c00'>bar</tspan></text>\n");
    for (at, name) in names.iter().enumerate() {
        let of: Vec<&Figure> = figures.iter().filter(|figure| figure.name == **name).collect();
        let (left, top) = ((at % 3) as f64 * WIDTH + 45.0, (at / 3) as f64 * HEIGHT + 55.0);
        let (w, h) = (WIDTH - 65.0, HEIGHT - 60.0);
        let x = |scale: u64| left + w * ((scale as f64).log10() / 1.0).clamp(0.0, 1.0);
        // Ten microseconds to a second.
        let y = |us: f64| top + h - h * ((us.max(10.0).log10() - 1.0) / 5.0).clamp(0.0, 1.0);
        svg.push_str(&format!("<text x='{left}' y='{}' font-weight='bold'>{name}</text>\n", top - 8.0));
        for (us, label) in [(10.0, "10 \u{b5}s"), (1e3, "1 ms"), (1e5, "0.1 s")] {
            svg.push_str(&format!("<line x1='{left}' x2='{}' y1='{1}' y2='{1}' stroke='#ddd'/><text x='{2}' y='{3}' text-anchor='end' fill='#666'>{label}</text>\n", left + w, y(us), left - 4.0, y(us) + 4.0));
        }
        let mut line = |value: &dyn Fn(&Figure) -> f64, colour: &str| {
            let points: Vec<String> = of.iter().filter(|figure| value(figure).is_finite()).map(|figure| format!("{:.1},{:.1}", x(figure.scale), y(value(figure)))).collect();
            if !points.is_empty() {
                svg.push_str(&format!("<polyline points='{}' fill='none' stroke='{colour}' stroke-width='2'/>\n", points.join(" ")));
                for point in points {
                    let (px, py) = point.split_once(',').unwrap();
                    svg.push_str(&format!("<circle cx='{px}' cy='{py}' r='3' fill='{colour}'/>\n"));
                }
            }
        };
        line(&|figure| figure.bar_us, "#c00");
        line(&|figure| figure.baseline_us, "#999");
        line(&|figure| figure.rung_us, "#0a58ca");
        for figure in &of {
            svg.push_str(&format!("<text x='{}' y='{}' text-anchor='middle' fill='#666'>{}00k</text>\n", x(figure.scale), top + h + 14.0, figure.scale));
        }
    }
    svg.push_str("</svg>\n");
    svg
}
