//! A client that writes HTTP by hand, so that it can send invalid requests too.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::stdio::{TIMEOUT, wait_for_exit};

/// A server process that listens on a port of its own.
pub(crate) struct ServerProcess {
    pub(crate) child: Child,
    pub(crate) address: String,
    /// The lines on stderr before the address.
    pub(crate) startup_lines: Vec<String>,
}

impl ServerProcess {
    /// Starts `rung serve` with these flags.
    pub(crate) fn start(sandbox: &Sandbox, flags: &[&str]) -> Self {
        Self::start_at(sandbox, "127.0.0.1:0", flags)
    }

    pub(crate) fn start_at(sandbox: &Sandbox, listen: &str, flags: &[&str]) -> Self {
        let mut command = sandbox.command();
        command.args(["serve", "--listen", listen]).args(flags);
        Self::spawn(&mut command)
    }

    /// Starts a command and waits until it prints its address.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut startup_lines = Vec::new();
        let address = loop {
            let mut line = String::new();
            assert_ne!(
                stderr.read_line(&mut line).unwrap(),
                0,
                "the server ended: {startup_lines:?}"
            );
            match line.trim().strip_prefix("listening at http://") {
                Some(url) => break url.trim_end_matches("/mcp").to_owned(),
                None => startup_lines.push(line.trim().to_owned()),
            }
        };
        // Drains stderr, so that the pipe does not fill up.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        Self {
            child,
            address,
            startup_lines,
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let port = self.address.rsplit_once(':').unwrap().1;
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    /// Sends a request and reads the head of the response.
    pub(crate) fn send(&self, request: &HttpRequest) -> HttpReply {
        let mut stream = self.connect();
        stream
            .write_all(request.head(&self.address).as_bytes())
            .unwrap();
        // A server that refuses a body early closes the pipe; its response is still read.
        let _closed_early = stream.write_all(&request.body);
        HttpReply::read_head(stream)
    }

    /// Sends a request and disconnects at once.
    pub(crate) fn send_and_disconnect(&self, request: &HttpRequest) {
        let mut stream = self.connect();
        stream
            .write_all(request.head(&self.address).as_bytes())
            .unwrap();
        stream.write_all(&request.body).unwrap();
        let _gone = stream.shutdown(Shutdown::Both);
    }

    /// Sends a request and disconnects after a while without reading the response.
    pub(crate) fn send_without_reading(&self, request: &HttpRequest, a_while: Duration) {
        let mut stream = self.connect();
        stream
            .write_all(request.head(&self.address).as_bytes())
            .unwrap();
        stream.write_all(&request.body).unwrap();
        std::thread::sleep(a_while);
    }

    /// Sends a request and reads the whole response.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "most are built where they are posted"
    )]
    pub(crate) fn fetch(&self, request: HttpRequest) -> HttpReply {
        let mut reply = self.send(&request);
        reply.read_all();
        reply
    }

    pub(crate) fn get(&self, path: &str) -> HttpReply {
        let mut reply = self.send(&HttpRequest::new("GET", path));
        reply.read_all();
        reply
    }

    /// Sends a request to any address and reads the whole response.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "most are built where they are asked"
    )]
    pub(crate) fn fetch_from(address: &str, request: HttpRequest) -> HttpReply {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(request.head(address).as_bytes()).unwrap();
        stream.write_all(&request.body).unwrap();
        let mut reply = HttpReply::read_head(stream);
        reply.read_all();
        reply
    }

    /// Opens a legacy session and returns its id.
    pub(crate) fn session(
        &self,
        version: &str,
        capabilities: &Value,
        token: Option<&str>,
    ) -> String {
        let params = json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "raw", "version": "0"},
        });
        let mut request = legacy_request(1, "initialize", params);
        if let Some(token) = token {
            request = request.bearer(token);
        }
        let reply = self.fetch(request);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply
            .header("mcp-session-id")
            .expect("a session")
            .to_owned()
    }

    pub(crate) fn terminate(&mut self) -> i32 {
        send_signal(&self.child, "TERM");
        wait_for_exit(&mut self.child)
    }

    /// Kills the process without a shutdown.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn memory_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("RssAnon:"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

pub(crate) fn send_signal(child: &Child, name: &str) {
    let status = std::process::Command::new("kill")
        .args([format!("-{name}"), child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[derive(Clone)]
pub(crate) struct HttpRequest {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl HttpRequest {
    pub(crate) fn new(method: &'static str, path: &str) -> Self {
        Self {
            method,
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// A POST to `/mcp` as a client sends it.
    pub(crate) fn from_message(message: &Value) -> Self {
        Self::from_body(message.to_string())
    }

    pub(crate) fn from_body(body: impl Into<Vec<u8>>) -> Self {
        let mut request = Self::new("POST", "/mcp")
            .with_header("Content-Type", "application/json")
            .with_header("Accept", "application/json, text/event-stream");
        request.body = body.into();
        request
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets a header, replacing any of the same name.
    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        self = self.without_header(name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a header, keeping any of the same name.
    pub(crate) fn add_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn without_header(mut self, name: &str) -> Self {
        self.headers
            .retain(|(own, _)| !own.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn session(self, id: &str) -> Self {
        self.with_header("Mcp-Session-Id", id)
    }

    pub(crate) fn bearer(self, token: &str) -> Self {
        self.with_header("Authorization", &format!("Bearer {token}"))
    }

    fn head(&self, address: &str) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !self
            .headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("host"))
        {
            let _ = write!(head, "Host: {address}\r\n");
        }
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head + &format!(
            "Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.body.len()
        )
    }
}

/// A modern request with the headers that repeat its body.
pub(crate) fn modern_request(id: u64, method: &str, params: Value) -> HttpRequest {
    modern_request_with(id, method, params, &json!({}))
}

/// A modern request of a client with these capabilities.
pub(crate) fn modern_request_with(
    id: u64,
    method: &str,
    mut params: Value,
    capabilities: &Value,
) -> HttpRequest {
    params["_meta"] = crate::stdio::modern_meta(capabilities);
    let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let mut request = HttpRequest::from_message(&message)
        .with_header("MCP-Protocol-Version", "2026-07-28")
        .with_header("Mcp-Method", method);
    for member in ["name", "uri", "taskId"] {
        if let Some(name) = params[member].as_str() {
            request = request.with_header("Mcp-Name", name);
        }
    }
    request
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "it is built where it is called"
)]
pub(crate) fn legacy_request(id: u64, method: &str, params: Value) -> HttpRequest {
    HttpRequest::from_message(
        &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}),
    )
}

/// An HTTP response; the body is read on demand.
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    stream: BufReader<TcpStream>,
    chunked: bool,
    pending: String,
}

impl HttpReply {
    fn read_head(stream: TcpStream) -> Self {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let status = line
            .split(' ')
            .nth(1)
            .unwrap_or_else(|| panic!("no status: {line:?}"));
        let status = status.parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let chunked = headers
            .iter()
            .any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        Self {
            status,
            headers,
            body: Vec::new(),
            stream,
            chunked,
            pending: String::new(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }

    /// All values of a header.
    pub(crate) fn header_values(&self, name: &str) -> Vec<&str> {
        let found = self.headers.iter().filter(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    pub(crate) fn read_all(&mut self) {
        if self.chunked {
            while let Some(chunk) = self.read_chunk() {
                self.body.extend(chunk);
            }
        } else {
            self.stream.read_to_end(&mut self.body).unwrap();
        }
    }

    /// Reads one chunk; `None` at the end.
    fn read_chunk(&mut self) -> Option<Vec<u8>> {
        let mut size = String::new();
        if self.stream.read_line(&mut size).ok()? == 0 {
            return None;
        }
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        self.stream.read_exact(&mut chunk).ok()?;
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("not JSON: {} {}", self.status, self.text()))
    }

    /// The events of a body that was read whole.
    pub(crate) fn events(&self) -> Vec<SseEvent> {
        let text = self.text();
        let blocks = text.split("\n\n").filter(|block| !block.trim().is_empty());
        blocks.filter_map(SseEvent::parse).collect()
    }

    /// Waits for the next event of a stream; `None` at the end.
    pub(crate) fn next_event(&mut self) -> Option<SseEvent> {
        loop {
            if let Some((block, rest)) = self.pending.split_once("\n\n") {
                let (event, rest) = (SseEvent::parse(block), rest.to_owned());
                self.pending = rest;
                match event {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            let chunk = self.read_chunk()?;
            self.pending.push_str(&String::from_utf8(chunk).unwrap());
        }
    }

    /// Returns true if nothing arrives within this time.
    pub(crate) fn is_silent_for(&mut self, a_while: Duration) -> bool {
        self.stream
            .get_ref()
            .set_read_timeout(Some(a_while))
            .unwrap();
        let silent = self.stream.fill_buf().is_err();
        self.stream
            .get_ref()
            .set_read_timeout(Some(TIMEOUT))
            .unwrap();
        silent
    }

    /// Closes the connection.
    pub(crate) fn disconnect(self) {
        let _gone = self.stream.get_ref().shutdown(Shutdown::Both);
    }
}

/// A server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SseEvent {
    pub(crate) id: Option<String>,
    pub(crate) retry: Option<String>,
    pub(crate) data: String,
}

impl SseEvent {
    /// Returns `None` for a block with only a comment.
    fn parse(block: &str) -> Option<Self> {
        let mut event = Self {
            id: None,
            retry: None,
            data: String::new(),
        };
        let mut is_event = false;
        for line in block.lines() {
            match line.split_once(": ").unwrap_or((line, "")) {
                ("id", id) => event.id = Some(id.to_owned()),
                ("retry", retry) => event.retry = Some(retry.to_owned()),
                ("data" | "data:", data) => {
                    is_event = true;
                    event.data.push_str(data);
                }
                _ => {}
            }
        }
        is_event.then_some(event)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }
}
