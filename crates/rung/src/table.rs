//! Text tables for people.

use std::fmt::Write as _;

use crate::settings::escape_for_terminal;
use crate::style;

/// Maximum characters of a cell; longer text is shortened.
const MAX_CELL_CHARS: usize = 60;

/// Returns true if a cell can show the text whole.
pub(crate) fn fits_cell(text: &str) -> bool {
    !text.contains(['\n', '\r']) && text.chars().count() <= MAX_CELL_CHARS
}

/// Formats a table for standard output: a heading of labels in upper case, and rows of as many cells. Columns of numbers are
/// right-aligned.
pub(crate) fn format_table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let text = format_data_table(heading, rows);
    match text.split_once('\n') {
        Some((heading, rows)) => format!("{}\n{rows}", style::heading(heading)),
        None => text,
    }
}

/// Formats a table whose heading is data, such as the variables of a query.
pub(crate) fn format_data_table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |text: &str| {
        // Escape control characters in untrusted text.
        let line = escape_for_terminal(text.lines().next().unwrap_or_default()).clone();
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
