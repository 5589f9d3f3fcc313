//! The log: lines on stderr, without secrets of the servers that are reached from here.

use std::io::{self, Write};

use parking_lot::RwLock;
use rung_gateway::redact::Redactor;
use tracing_subscriber::filter::LevelFilter;

use crate::cli::LogFormat;

/// What is masked in every line. It is one for the process, as the log is.
static MASKED: RwLock<Option<Redactor>> = RwLock::new(None);

/// Has this masked in every line from now on.
pub(crate) fn mask(redactor: &Redactor) {
    *MASKED.write() = Some(redactor.clone()).filter(|redactor| !redactor.is_empty());
}

/// Has everything that is no answer go to stderr, from this level on.
pub(crate) fn start(level: &str, format: LogFormat) {
    let level = level.parse().unwrap_or(LevelFilter::WARN);
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| MaskedStderr)
        .with_ansi(false)
        // A closed stderr is no error of ours, and there is nowhere to report it.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}

/// Stderr for whole lines: a secret that were written in two parts would not be found.
struct MaskedStderr;

impl Write for MaskedStderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let masked = MASKED.read();
        match &*masked {
            None => io::stderr().write_all(line)?,
            Some(redactor) => {
                let text = String::from_utf8_lossy(line);
                io::stderr().write_all(redactor.text(&text).as_bytes())?;
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
