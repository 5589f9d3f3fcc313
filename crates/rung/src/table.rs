//! Tables for people.

use std::fmt::Write as _;

use crate::settings::visible;

/// Characters of one cell; what is longer is shortened.
const MAX_CELL_CHARS: usize = 60;

/// Whether a text is shown whole.
pub(crate) fn fits(text: &str) -> bool {
    !text.contains(['\n', '\r']) && text.chars().count() <= MAX_CELL_CHARS
}

/// A table: a heading, and rows of as many cells. Columns of numbers stand to the right.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |text: &str| {
        // What a server says is shown, never obeyed.
        let line = visible(text.lines().next().unwrap_or_default()).clone();
        if line.chars().count() <= MAX_CELL_CHARS {
            return line;
        }
        let short: String = line.chars().take(MAX_CELL_CHARS - 1).collect();
        short + "…"
    };
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|text| cell(text)).collect())
        .collect();
    let column = |at: usize| rows.iter().filter_map(move |row| row.get(at));
    let width = |at: usize| {
        let cells = column(at).map(|cell| cell.chars().count());
        cells
            .chain([heading[at].chars().count()])
            .max()
            .unwrap_or(0)
    };
    let is_number = |at: usize| {
        let mut cells = column(at).filter(|cell| !cell.is_empty()).peekable();
        cells.peek().is_some() && cells.all(|cell| cell.bytes().all(|b| b.is_ascii_digit()))
    };
    let widths: Vec<(usize, bool)> = (0..heading.len())
        .map(|at| (width(at), is_number(at)))
        .collect();
    let mut out = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (cell, (width, right)) in cells.zip(&widths) {
            let _always = if *right {
                write!(text, "{cell:>width$}  ")
            } else {
                write!(text, "{cell:width$}  ")
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(&mut heading.iter().copied());
    for row in &rows {
        line(&mut row.iter().map(String::as_str));
    }
    out
}
