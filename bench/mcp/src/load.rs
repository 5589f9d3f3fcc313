//! One client that waits for each answer, over a pipe or a connection that stays open.

use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use crate::targets::{Target, Way};

const WARM_UP: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(30);

/// What one measurement gave.
#[derive(Debug, Clone)]
pub struct Figures {
    /// From the start of the process to its first answer.
    pub start_ms: f64,
    pub idle_rss_mb: f64,
    pub p50_us: f64,
    pub per_second: f64,
    pub cpu_us: f64,
    pub rss_mb: f64,
}

/// Starts a target, asks it for as long as wanted, and ends it.
pub fn measure(target: &Target, home: &Path, seconds: Duration) -> Result<Figures> {
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
    let mut ended = Ended(child);
    let mut line = match target.way {
        Way::Stdio => Line::Pipe(Pipe::open(&mut ended.0)?),
        way => Line::Http(Http::open(port, way, target.whole, started)?),
    };
    line.greet()?;
    let start_ms = started.elapsed().as_secs_f64() * 1e3;
    let pid = ended.0.id();
    let idle_rss_mb = rss_mb(pid)?;
    let asks = line.asks(target.whole);
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
    Ok(Figures {
        start_ms,
        idle_rss_mb,
        p50_us: taken[taken.len() / 2].as_secs_f64() * 1e6,
        per_second: taken.len() as f64 / elapsed.as_secs_f64(),
        cpu_us: cpu as f64 / taken.len() as f64 / 1e3,
        rss_mb: rss_mb(pid)?,
    })
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

enum Line {
    Pipe(Pipe),
    Http(Http),
}

impl Line {
    fn greet(&mut self) -> Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.greet(),
            Self::Http(http) => http.greet(),
        }
    }

    /// The bytes of one request. Ours as people run it has no `echo`, and is asked for its list.
    fn asks(&self, whole: bool) -> Vec<u8> {
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
            Self::Http(http) => http.request(method, params),
        }
    }

    fn ask(&mut self, request: &[u8]) -> Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.ask(request),
            Self::Http(http) => http.ask(request),
        }
    }
}

fn initialize(version: &str) -> serde_json::Value {
    let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
}

struct Pipe {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl Pipe {
    fn open(child: &mut Child) -> Result<Self> {
        Ok(Self {
            stdin: child.stdin.take().context("stdin")?,
            stdout: BufReader::new(child.stdout.take().context("stdout")?),
            line: Vec::new(),
        })
    }

    fn greet(&mut self) -> Result<()> {
        self.ask(format!("{}\n", initialize("2025-06-18")).as_bytes())?;
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

struct Http {
    stream: BufReader<TcpStream>,
    port: u16,
    way: Way,
    whole: bool,
    session: Option<String>,
    head: String,
    body: Vec<u8>,
}

impl Http {
    fn open(port: u16, way: Way, whole: bool, started: Instant) -> Result<Self> {
        loop {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(Self {
                    stream: BufReader::new(stream),
                    port,
                    way,
                    whole,
                    session: None,
                    head: String::new(),
                    body: Vec::new(),
                });
            }
            if started.elapsed() > PATIENCE {
                bail!("it does not listen");
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn greet(&mut self) -> Result<()> {
        if self.way == Way::Session {
            let request = self.post(&initialize("2025-11-25").to_string(), "");
            self.ask(&request)?;
            let id = self.head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("mcp-session-id")
                    .then(|| value.trim().to_owned())
            });
            self.session = Some(id.context("no session")?);
            let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            let request = self.post(&initialized.to_string(), "");
            self.stream.get_mut().write_all(&request)?;
            return self.read();
        }
        let request = if self.whole {
            self.request("tools/list", json!({}))
        } else {
            self.request(
                "tools/call",
                json!({"name": "echo", "arguments": {"text": "hello"}}),
            )
        };
        self.ask(&request)
    }

    fn request(&self, method: &str, mut params: serde_json::Value) -> Vec<u8> {
        let headers = match self.way {
            Way::Modern => {
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
            Way::Stateless => "MCP-Protocol-Version: 2025-06-18\r\n".to_owned(),
            Way::Session | Way::Stdio => String::new(),
        };
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.post(&message.to_string(), &headers)
    }

    fn post(&self, body: &str, headers: &str) -> Vec<u8> {
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
        self.read()?;
        ensure!(
            contains(&self.body, b"\"result\""),
            "no result: {}{}",
            self.head,
            String::from_utf8_lossy(&self.body)
        );
        Ok(())
    }

    /// Reads one reply, whole or in chunks.
    fn read(&mut self) -> Result<()> {
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

/// Nanoseconds that every thread of a process has run.
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
