//! A client that waits for each response, over a pipe or one keep-alive connection.

use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use crate::targets::{Target, TargetProtocol};

const WARM_UP: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub struct Measurement {
    /// From the start of the process to its first response.
    pub start_ms: f64,
    pub idle_rss_mb: f64,
    pub p50_us: f64,
    pub per_second: f64,
    pub cpu_us: f64,
    pub rss_mb: f64,
}

/// Starts a target, sends requests for the given time, and kills it.
pub fn measure(target: &Target, home: &Path, seconds: Duration) -> Result<Measurement> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let started = Instant::now();
    let child = target
        .command(port)
        .env("RUNG_HOME", home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| target.name.clone())?;
    let mut ended = KillOnDrop(child);
    let mut line = match target.protocol {
        TargetProtocol::Stdio => McpClient::Pipe(PipeClient::open(&mut ended.0)?),
        way => McpClient::Http(HttpClient::open(port, way, target.is_full_binary, started)?),
    };
    line.initialize()?;
    let start_ms = started.elapsed().as_secs_f64() * 1e3;
    let pid = ended.0.id();
    let idle_rss_mb = rss_mb(pid)?;
    let asks = line.measured_request(target.is_full_binary);
    let warm = Instant::now();
    while warm.elapsed() < WARM_UP {
        line.ask(&asks)?;
    }
    let mut taken = Vec::with_capacity(1 << 20);
    let (cpu, began) = (cpu_ns(pid)?, Instant::now());
    while began.elapsed() < seconds {
        let asked = Instant::now();
        line.ask(&asks)?;
        taken.push(asked.elapsed());
    }
    let (elapsed, cpu) = (began.elapsed(), cpu_ns(pid)? - cpu);
    taken.sort_unstable();
    Ok(Measurement {
        start_ms,
        idle_rss_mb,
        p50_us: taken[taken.len() / 2].as_secs_f64() * 1e6,
        per_second: taken.len() as f64 / elapsed.as_secs_f64(),
        cpu_us: cpu as f64 / taken.len() as f64 / 1e3,
        rss_mb: rss_mb(pid)?,
    })
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

enum McpClient {
    Pipe(PipeClient),
    Http(HttpClient),
}

impl McpClient {
    fn initialize(&mut self) -> Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.initialize(),
            Self::Http(http) => http.initialize(),
        }
    }

    /// Encodes the measured request: `tools/list` for the full `rung` binary, which has no `echo`, else a call of `echo`.
    fn measured_request(&self, whole: bool) -> Vec<u8> {
        let (method, params) = if whole {
            ("tools/list", json!({}))
        } else {
            (
                "tools/call",
                json!({"name": "echo", "arguments": {"text": "hello"}}),
            )
        };
        match self {
            Self::Pipe(_) => {
                let message =
                    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
                format!("{message}\n").into_bytes()
            }
            Self::Http(http) => http.encode_request(method, params),
        }
    }

    fn ask(&mut self, request: &[u8]) -> Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.ask(request),
            Self::Http(http) => http.ask(request),
        }
    }
}

fn initialize_request(version: &str) -> serde_json::Value {
    let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
}

struct PipeClient {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl PipeClient {
    fn open(child: &mut Child) -> Result<Self> {
        Ok(Self {
            stdin: child.stdin.take().context("stdin")?,
            stdout: BufReader::new(child.stdout.take().context("stdout")?),
            line: Vec::new(),
        })
    }

    fn initialize(&mut self) -> Result<()> {
        self.ask(format!("{}\n", initialize_request("2025-06-18")).as_bytes())?;
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        Ok(writeln!(self.stdin, "{initialized}")?)
    }

    fn ask(&mut self, request: &[u8]) -> Result<()> {
        self.stdin.write_all(request)?;
        self.stdin.flush()?;
        self.line.clear();
        self.stdout.read_until(b'\n', &mut self.line)?;
        ensure!(
            contains(&self.line, b"\"result\""),
            "no result: {}",
            String::from_utf8_lossy(&self.line)
        );
        Ok(())
    }
}

struct HttpClient {
    stream: BufReader<TcpStream>,
    port: u16,
    protocol: TargetProtocol,
    is_full_binary: bool,
    session: Option<String>,
    head: String,
    body: Vec<u8>,
}

impl HttpClient {
    fn open(port: u16, way: TargetProtocol, whole: bool, started: Instant) -> Result<Self> {
        loop {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                return Ok(Self {
                    stream: BufReader::new(stream),
                    port,
                    protocol: way,
                    is_full_binary: whole,
                    session: None,
                    head: String::new(),
                    body: Vec::new(),
                });
            }
            if started.elapsed() > TIMEOUT {
                bail!("it does not listen");
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn initialize(&mut self) -> Result<()> {
        if self.protocol == TargetProtocol::Session {
            let request = self.encode_post(&initialize_request("2025-11-25").to_string(), "");
            self.ask(&request)?;
            let id = self.head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("mcp-session-id")
                    .then(|| value.trim().to_owned())
            });
            self.session = Some(id.context("no session")?);
            let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            let request = self.encode_post(&initialized.to_string(), "");
            self.stream.get_mut().write_all(&request)?;
            return self.read_response();
        }
        let request = if self.is_full_binary {
            self.encode_request("tools/list", json!({}))
        } else {
            self.encode_request(
                "tools/call",
                json!({"name": "echo", "arguments": {"text": "hello"}}),
            )
        };
        self.ask(&request)
    }

    fn encode_request(&self, method: &str, mut params: serde_json::Value) -> Vec<u8> {
        let headers = match self.protocol {
            TargetProtocol::Modern => {
                params["_meta"] = json!({
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "0"},
                });
                let name = params["name"]
                    .as_str()
                    .map_or_else(String::new, |name| format!("Mcp-Name: {name}\r\n"));
                format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{name}")
            }
            TargetProtocol::Stateless => "MCP-Protocol-Version: 2025-06-18\r\n".to_owned(),
            TargetProtocol::Session | TargetProtocol::Stdio => String::new(),
        };
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.encode_post(&message.to_string(), &headers)
    }

    fn encode_post(&self, body: &str, headers: &str) -> Vec<u8> {
        let session = self.session.as_ref().map_or_else(String::new, |id| {
            format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: 2025-11-25\r\n")
        });
        format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{session}{headers}Content-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        )
        .into_bytes()
    }

    fn ask(&mut self, request: &[u8]) -> Result<()> {
        self.stream.get_mut().write_all(request)?;
        self.read_response()?;
        ensure!(
            contains(&self.body, b"\"result\""),
            "no result: {}{}",
            self.head,
            String::from_utf8_lossy(&self.body)
        );
        Ok(())
    }

    /// Reads one response with Content-Length or chunked encoding.
    fn read_response(&mut self) -> Result<()> {
        self.head.clear();
        self.body.clear();
        while !self.head.ends_with("\r\n\r\n") {
            ensure!(
                self.stream.read_line(&mut self.head)? > 0,
                "the connection ended"
            );
        }
        let lower = self.head.to_ascii_lowercase();
        if let Some(length) = lower
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
        {
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

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// CPU time of all threads of a process, in nanoseconds.
fn cpu_ns(pid: u32) -> Result<u64> {
    let mut total = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(thread?.path().join("schedstat"))?;
        total += stat
            .split_whitespace()
            .next()
            .context("schedstat")?
            .parse::<u64>()?;
    }
    Ok(total)
}

fn rss_mb(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .context("VmRSS")?;
    let kb: f64 = line.split_whitespace().nth(1).context("VmRSS")?.parse()?;
    Ok(kb / 1024.0)
}
