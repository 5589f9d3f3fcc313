//! A client at the other end of two pipes. It knows JSON and lines, and nothing of ours.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::sandbox::Sandbox;

/// Nothing that is right takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Stdio {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    next_id: u64,
}

impl Stdio {
    /// `rung mcp` with these flags.
    pub(crate) fn start(sandbox: &Sandbox, flags: &[&str]) -> Self {
        let mut command = sandbox.command();
        command
            .arg("mcp")
            .args(flags)
            .stderr(std::process::Stdio::null());
        Self::of(&mut command)
    }

    pub(crate) fn of(command: &mut Command) -> Self {
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

    /// Opens as a legacy client of that version, with these capabilities.
    pub(crate) fn initialize(&mut self, version: &str, capabilities: &Value) -> Value {
        let params = json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "raw", "version": "0"},
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

    /// Sends a request, and gives its id.
    pub(crate) fn begin(&mut self, method: &str, params: &Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Sends a request and waits for its answer, which must be the next thing said.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.begin(method, params);
        let answer = self.next();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// The next line, which must be a message.
    pub(crate) fn next(&mut self) -> Value {
        let line = self.line().expect("the server says something");
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        message
    }

    /// The next line; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the server says nothing"),
        }
    }

    /// Whether nothing is said for a while.
    pub(crate) fn is_silent_for(&mut self, a_while: Duration) -> bool {
        matches!(
            self.lines.recv_timeout(a_while),
            Err(RecvTimeoutError::Timeout)
        )
    }

    pub(crate) fn close_input(&mut self) {
        self.stdin = None;
    }

    /// Ends the input and waits for the process to end by itself. What was still said comes along.
    pub(crate) fn finish(mut self) -> (i32, Vec<Value>) {
        self.close_input();
        let mut rest = Vec::new();
        while let Some(line) = self.line() {
            rest.push(serde_json::from_str(&line).unwrap());
        }
        let status = wait(&mut self.child);
        (status, rest)
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Waits for a process to end, but not for ever.
pub(crate) fn wait(child: &mut Child) -> i32 {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        assert!(Instant::now() < until, "the process does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a modern request says of its client.
pub(crate) fn meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "0"},
    })
}

/// The parameters of a modern request.
pub(crate) fn modern(mut params: Value) -> Value {
    params["_meta"] = meta(&json!({}));
    params
}
