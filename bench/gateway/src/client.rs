//! An MCP client over pipes or one keep-alive HTTP connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::encode_message;

pub enum McpClient {
    Pipe(PipeClient),
    Http(HttpClient),
}

fn initialize_params() -> Value {
    json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}})
}

const READY: &str = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}";

impl McpClient {
    pub fn initialize(&mut self) -> Result<()> {
        let initialize = self.encode_request("initialize", &initialize_params());
        self.round_trip(&initialize)?;
        match self {
            Self::Pipe(pipe) => Ok(writeln!(pipe.stdin, "{READY}")?),
            Self::Http(http) => {
                http.store_session_id();
                let ready = http.encode_post(READY);
                http.stream.get_mut().write_all(&ready)?;
                http.read_response()
            }
        }
    }

    pub fn encode_request(&self, method: &str, params: &Value) -> Vec<u8> {
        let message = encode_message(1, method, params);
        match self {
            Self::Pipe(_) => format!("{message}\n").into_bytes(),
            Self::Http(http) => http.encode_post(&message),
        }
    }

    pub fn round_trip(&mut self, request: &[u8]) -> Result<()> {
        self.send(request)?;
        self.receive()
    }

    pub fn send(&mut self, request: &[u8]) -> Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.stdin.write_all(request)?,
            Self::Http(http) => http.stream.get_mut().write_all(request)?,
        }
        Ok(())
    }

    /// Waits for the next response.
    pub fn receive(&mut self) -> Result<()> {
        match self {
            Self::Pipe(pipe) => loop {
                pipe.line.clear();
                ensure!(pipe.stdout.read_until(b'\n', &mut pipe.line)? > 0, "the pipe ended");
                if contains(&pipe.line, b"\"id\"") {
                    return check_response(&pipe.line);
                }
            },
            Self::Http(http) => {
                http.read_response()?;
                check_response(&http.body)
            }
        }
    }

    pub fn last_response(&self) -> Result<Value> {
        let bytes = match self {
            Self::Pipe(pipe) => &pipe.line,
            Self::Http(http) => &http.body,
        };
        Ok(serde_json::from_slice(bytes)?)
    }
}

fn check_response(answer: &[u8]) -> Result<()> {
    let shown = || String::from_utf8_lossy(&answer[..answer.len().min(400)]).into_owned();
    ensure!(contains(answer, b"\"result\""), "no result: {}", shown());
    ensure!(!contains(answer, b"\"isError\":true"), "it failed: {}", shown());
    Ok(())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

pub struct PipeClient {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl PipeClient {
    pub fn from_child(child: &mut Child) -> Result<Self> {
        Ok(Self {
            stdin: child.stdin.take().context("stdin")?,
            stdout: BufReader::new(child.stdout.take().context("stdout")?),
            line: Vec::new(),
        })
    }
}

pub struct HttpClient {
    stream: BufReader<TcpStream>,
    port: u16,
    path: &'static str,
    session: Option<String>,
    head: String,
    body: Vec<u8>,
}

impl HttpClient {
    pub fn open(port: u16, path: &'static str) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self {
            stream: BufReader::new(stream),
            port,
            path,
            session: None,
            head: String::new(),
            body: Vec::new(),
        })
    }

    fn store_session_id(&mut self) {
        self.session = self.head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
        });
    }

    fn encode_post(&self, body: &str) -> Vec<u8> {
        let session = self.session.as_ref().map_or_else(String::new, |id| format!("Mcp-Session-Id: {id}\r\n"));
        format!(
            "POST {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\nMCP-Protocol-Version: 2025-06-18\r\n\
             Accept: application/json, text/event-stream\r\n{session}Content-Length: {}\r\n\r\n{body}",
            self.path,
            self.port,
            body.len()
        )
        .into_bytes()
    }

    /// Reads one response with Content-Length or chunked encoding.
    fn read_response(&mut self) -> Result<()> {
        self.head.clear();
        self.body.clear();
        while !self.head.ends_with("\r\n\r\n") {
            ensure!(self.stream.read_line(&mut self.head)? > 0, "the connection ended");
        }
        let lower = self.head.to_ascii_lowercase();
        if let Some(length) = lower.lines().find_map(|line| line.strip_prefix("content-length: ")) {
            self.body.resize(length.trim().parse()?, 0);
            self.stream.read_exact(&mut self.body)?;
        } else if lower.contains("transfer-encoding: chunked") {
            loop {
                let mut size = String::new();
                self.stream.read_line(&mut size)?;
                let size = usize::from_str_radix(size.trim(), 16)?;
                let at = self.body.len();
                self.body.resize(at + size + 2, 0);
                self.stream.read_exact(&mut self.body[at..])?;
                self.body.truncate(at + size);
                if size == 0 {
                    break;
                }
            }
        }
        Ok(())
    }
}
