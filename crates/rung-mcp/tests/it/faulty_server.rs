//! Starts the faulty server.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rung_mcp::connect::{
    Delegate, NullDelegate, Options, RequestOptions, ServerAddress, ServerCommand,
    ServerConnection, ServerTarget,
};

pub(crate) fn default_options() -> RequestOptions {
    RequestOptions::default()
}

pub(crate) fn command(mode: &str) -> ServerCommand {
    ServerCommand::new(env!("CARGO_BIN_EXE_faulty_server"), [mode])
}

pub(crate) fn connection(target: ServerTarget, delegate: Arc<dyn Delegate>) -> ServerConnection {
    let options = Options {
        open_timeout: Duration::from_secs(20),
        request_timeout: Duration::from_mins(1),
        ..Options::new("mischief")
    };
    ServerConnection::new(target, options, delegate)
}

pub(crate) fn stdio(mode: &str) -> ServerConnection {
    connection(ServerTarget::Command(command(mode)), Arc::new(NullDelegate))
}

pub(crate) fn address(url: &str) -> ServerTarget {
    ServerTarget::Address(ServerAddress::new(url.parse().unwrap()))
}

/// A server on its own port. Killed on drop.
pub(crate) struct HttpServerFixture {
    child: Option<Child>,
    pub(crate) url: String,
    pub(crate) connection: ServerConnection,
}

impl HttpServerFixture {
    /// Uses a server that was started elsewhere.
    pub(crate) fn from_url(url: String) -> Self {
        let connection = connection(address(&url), Arc::new(NullDelegate));
        Self {
            child: None,
            url,
            connection,
        }
    }
}

pub(crate) fn http(mode: &str) -> HttpServerFixture {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_faulty_server"))
        .args([mode, "http"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(child.stderr.take().unwrap())
        .read_line(&mut url)
        .unwrap();
    let url = url.trim().to_owned();
    let connection = connection(address(&url), Arc::new(NullDelegate));
    HttpServerFixture {
        child: Some(child),
        url,
        connection,
    }
}

impl Drop for HttpServerFixture {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}
