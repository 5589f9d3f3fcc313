//! Lines for people on the standard streams, which their reader may close at any time.
//!
//! `println!` and `eprintln!` panic then; lints forbid them in this crate.

use std::fmt;
use std::io::{self, Write as _};

use crate::exit::{Result, output_error};

/// Writes to standard output. Fails if its reader is gone, which ends the command without an error.
pub(crate) fn to_stdout(text: fmt::Arguments<'_>) -> Result {
    io::stdout().write_fmt(text).map_err(output_error)
}

/// Writes to standard error. A reader that is gone does not change what the command does.
pub(crate) fn to_stderr(text: fmt::Arguments<'_>) {
    let _ignored = io::stderr().write_fmt(text);
}

/// Prints a line on standard output, as `println!` does, and returns a `Result`.
macro_rules! line {
    ($($text:tt)*) => { crate::print::to_stdout(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a line on standard error, as `eprintln!` does.
macro_rules! note {
    ($($text:tt)*) => { crate::print::to_stderr(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints on standard error without a line break: a question, or progress that the next text replaces.
macro_rules! prompt {
    ($($text:tt)*) => { crate::print::to_stderr(format_args!($($text)*)) };
}

pub(crate) use {line, note, prompt};
