//! A client over stdio. It handles JSON lines, and uses no code of Rung.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::sandbox::Sandbox;

/// Upper limit for anything that must happen.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct StdioClient {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    next_id: u64,
}

impl StdioClient {
    /// Starts `rung mcp` with these flags.
    pub(crate) fn start(sandbox: &Sandbox, flags: &[&str]) -> Self {
        let mut command = sandbox.command();
        command
            .arg("mcp")
            .args(flags)
            .stderr(std::process::Stdio::null());
        Self::spawn(&mut command)
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            stdin,
            lines,
            next_id: 100,
        }
    }

    /// Initializes the session as a legacy client of this version, with these capabilities.
    pub(crate) fn initialize(&mut self, version: &str, capabilities: &Value) -> Value {
        self.initialize_as("raw", version, capabilities)
    }

    /// Initializes the session as the client of this name.
    pub(crate) fn initialize_as(
        &mut self,
        name: &str,
        version: &str,
        capabilities: &Value,
    ) -> Value {
        let params = json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": name, "version": "0"},
        });
        let answer = self.request("initialize", &params);
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        answer
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("the input is open");
        stdin.write_all(bytes).unwrap();
        stdin.flush().unwrap();
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.send_bytes(format!("{message}\n").as_bytes());
    }

    /// Sends a request and returns its id.
    pub(crate) fn send_request(&mut self, method: &str, params: &Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Sends a request and waits for its reply, which must be the next message.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send_request(method, params);
        let answer = self.next_message();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Waits for the next line, which must be a message.
    pub(crate) fn next_message(&mut self) -> Value {
        let line = self.next_line().expect("the server says something");
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        message
    }

    /// Waits for the next line; `None` at the end.
    pub(crate) fn next_line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(TIMEOUT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the server says nothing"),
        }
    }

    /// Returns true if the server sends nothing within this time.
    pub(crate) fn is_silent_for(&mut self, a_while: Duration) -> bool {
        matches!(
            self.lines.recv_timeout(a_while),
            Err(RecvTimeoutError::Timeout)
        )
    }

    pub(crate) fn close_input(&mut self) {
        self.stdin = None;
    }

    /// Closes the input and waits for the process to exit. Returns the status and the remaining messages.
    pub(crate) fn finish(mut self) -> (i32, Vec<Value>) {
        self.close_input();
        let mut rest = Vec::new();
        while let Some(line) = self.next_line() {
            rest.push(serde_json::from_str(&line).unwrap());
        }
        let status = wait_for_exit(&mut self.child);
        (status, rest)
    }
}

impl Drop for StdioClient {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Waits for a process to exit, with a time limit.
pub(crate) fn wait_for_exit(child: &mut Child) -> i32 {
    let until = Instant::now() + TIMEOUT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        assert!(Instant::now() < until, "the process does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The `_meta` of a modern request.
pub(crate) fn modern_meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "0"},
    })
}

pub(crate) fn with_modern_meta(mut params: Value) -> Value {
    params["_meta"] = modern_meta(&json!({}));
    params
}
