//! Errors of commands: two lines on standard error and an exit status. Servers report errors as replies instead.

use std::io;
use std::process::ExitCode;

use rung_fault::{Class, Fault};

use crate::print::note;
use crate::settings::escape_for_terminal;
use crate::style;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// Reported on standard error.
    Fault(Fault),
    /// Reported already, as a printed reply.
    AlreadyReported(Class),
    /// The reader of standard output closed it, which is no error.
    OutputClosed,
    /// Output could not be written.
    Output(io::Error),
    /// An exit status and a message that other programs rely on.
    CustomStatus(u8, String),
}

pub(crate) type Result<T = (), E = CommandError> = std::result::Result<T, E>;

impl<F: Into<Fault>> From<F> for CommandError {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

/// Converts an error of writing to standard output, for `?`.
pub(crate) fn output_error(error: io::Error) -> CommandError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => CommandError::OutputClosed,
        _ => CommandError::Output(error),
    }
}

/// Reports an error and returns the exit status.
pub(crate) fn exit_code(result: Result) -> ExitCode {
    match result {
        Ok(()) | Err(CommandError::OutputClosed) => ExitCode::SUCCESS,
        Err(CommandError::AlreadyReported(class)) => ExitCode::from(class_status(class)),
        Err(CommandError::Output(error)) => {
            note!("{}: {error}", style::error_label("output"));
            ExitCode::from(74)
        }
        Err(CommandError::CustomStatus(status, message)) => {
            note!("{}", escape_for_terminal(&message));
            ExitCode::from(status)
        }
        Err(CommandError::Fault(fault)) => {
            print_fault(&fault);
            ExitCode::from(class_status(fault.code().class()))
        }
    }
}

/// Prints a fault and its hint on standard error.
pub(crate) fn print_fault(fault: &Fault) {
    // Message and hint can repeat text from a file or a caller.
    note!(
        "{}: {}",
        style::error_label(fault.code().name()),
        escape_for_terminal(fault.message())
    );
    if let Some(hint) = fault.hint() {
        note!("  {} {}", style::next_label(), escape_for_terminal(hint));
    }
}

/// Maps a class to the closest status of `sysexits.h`. `clap` exits with 2 if the command line does not parse.
fn class_status(class: Class) -> u8 {
    match class {
        Class::Caller => 64,
        Class::Absent => 66,
        Class::Upstream => 69,
        Class::Broken => 70,
        Class::Limit => 73,
        Class::Busy => 75,
        Class::Auth => 77,
    }
}
