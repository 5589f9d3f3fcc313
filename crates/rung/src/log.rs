//! The log: lines on standard error, with the secrets of downstream servers masked.

use std::io::{self, Write};

use parking_lot::RwLock;
use rung_gateway::redact::Redactor;
use tracing_subscriber::filter::LevelFilter;

use crate::cli::LogFormat;

/// Redactor that masks every line. Global to the process, like the log.
static REDACTOR: RwLock<Option<Redactor>> = RwLock::new(None);

/// Sets the redactor for all following lines.
pub(crate) fn set_redactor(redactor: &Redactor) {
    *REDACTOR.write() = Some(redactor.clone()).filter(|redactor| !redactor.is_empty());
}

/// Starts logging to standard error at a level; an invalid level means `warn`.
pub(crate) fn start(level: &str, format: LogFormat) {
    let level = level.parse().unwrap_or(LevelFilter::WARN);
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| MaskedStderr)
        .with_ansi(false)
        // A closed standard error cannot be reported anywhere.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}

/// Standard error for whole lines: a secret split over two writes would not be found.
struct MaskedStderr;

impl Write for MaskedStderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let masked = REDACTOR.read();
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
