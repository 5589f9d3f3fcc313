//! Styles of text for people. Text stays plain where the output is not a terminal, or where `NO_COLOR` is set.

use std::io;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

const BOLD: Style = Style::new().bold();
const ERROR: Style = AnsiColor::Red.on_default().bold();

/// Returns the label `error[CODE]` for standard error.
pub(crate) fn error_label(code: &str) -> String {
    let label = format!("error[{code}]");
    apply(ERROR, &label, AutoStream::choice(&io::stderr()))
}

/// Returns the label `next:` for standard error.
pub(crate) fn next_label() -> String {
    apply(BOLD, "next:", AutoStream::choice(&io::stderr()))
}

/// Returns the heading of a table for standard output.
pub(crate) fn heading(text: &str) -> String {
    apply(BOLD, text, AutoStream::choice(&io::stdout()))
}

fn apply(style: Style, text: &str, choice: ColorChoice) -> String {
    match choice {
        ColorChoice::Never => text.to_owned(),
        _ => format!("{style}{text}{style:#}"),
    }
}
