//! Where the misbehaving server is, and how it is started.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rung_mcp::connect::{Address, Command, Connection, Delegate, How, Options, Silent, Target};

pub(crate) fn how() -> How {
    How::default()
}

pub(crate) fn command(mode: &str) -> Command {
    Command::new(env!("CARGO_BIN_EXE_mischief"), [mode])
}

pub(crate) fn connection(target: Target, delegate: Arc<dyn Delegate>) -> Connection {
    let options = Options {
        opening: Duration::from_secs(20),
        answering: Duration::from_mins(1),
        ..Options::new("mischief")
    };
    Connection::new(target, options, delegate)
}

pub(crate) fn stdio(mode: &str) -> Connection {
    connection(Target::Command(command(mode)), Arc::new(Silent))
}

pub(crate) fn address(url: &str) -> Target {
    Target::Address(Address::new(url.parse().unwrap()))
}

/// A server with a port of its own, for as long as this lasts.
pub(crate) struct Http {
    child: Option<Child>,
    pub(crate) url: String,
    pub(crate) connection: Connection,
}

impl Http {
    /// One that was started otherwise.
    pub(crate) fn at(url: String) -> Self {
        let connection = connection(address(&url), Arc::new(Silent));
        Self {
            child: None,
            url,
            connection,
        }
    }
}

pub(crate) fn http(mode: &str) -> Http {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_mischief"))
        .args([mode, "http"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(child.stderr.take().unwrap())
        .read_line(&mut url)
        .unwrap();
    let url = url.trim().to_owned();
    let connection = connection(address(&url), Arc::new(Silent));
    Http {
        child: Some(child),
        url,
        connection,
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}
