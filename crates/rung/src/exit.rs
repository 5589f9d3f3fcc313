//! The fourth exit of an error: two lines on stderr and a status. The other three are replies.

use std::io;
use std::process::ExitCode;

use rung_fault::{Class, Fault};

use crate::settings::visible;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Something to tell.
    Fault(Fault),
    /// Something that has been told already, as a printed reply.
    Told(Class),
    /// Whoever read our output has gone, and needs no telling.
    Unread,
    /// Output could not be written.
    Output(io::Error),
    /// Something to tell in words that others look for, and the status that they know.
    Known(u8, String),
}

pub(crate) type Result<T = (), E = Stop> = std::result::Result<T, E>;

impl<F: Into<Fault>> From<F> for Stop {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

/// For `?` behind a write to stdout.
pub(crate) fn output(error: io::Error) -> Stop {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Stop::Unread,
        _ => Stop::Output(error),
    }
}

/// Tells what there is to tell, and chooses the status.
pub(crate) fn status(result: Result) -> ExitCode {
    match result {
        Ok(()) | Err(Stop::Unread) => ExitCode::SUCCESS,
        Err(Stop::Told(class)) => ExitCode::from(class_status(class)),
        Err(Stop::Output(error)) => {
            eprintln!("error[output]: {error}");
            ExitCode::from(74)
        }
        Err(Stop::Known(status, message)) => {
            eprintln!("{}", visible(&message));
            ExitCode::from(status)
        }
        Err(Stop::Fault(fault)) => {
            // Both can repeat what came from a file or a caller.
            eprintln!(
                "error[{}]: {}",
                fault.code().name(),
                visible(fault.message())
            );
            if let Some(hint) = fault.hint() {
                eprintln!("  next: {}", visible(hint));
            }
            ExitCode::from(class_status(fault.code().class()))
        }
    }
}

/// The statuses of `sysexits.h`, where one fits. `clap` uses 2 for a command line that does not parse.
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
