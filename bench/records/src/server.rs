//! Runs the `rung` binary and sends requests over one keep-alive connection.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

pub struct RungServer {
    child: Child,
    port: u16,
    token: String,
    connection: BufReader<TcpStream>,
    pub start_ms: f64,
}

impl RungServer {
    pub fn start(binary: &Path, home: &Path, postgres: Option<&str>) -> Result<Self> {
        let command = || {
            let mut command = Command::new(binary);
            command.env("RUNG_HOME", home).stderr(Stdio::null());
            if let Some(address) = postgres {
                command.env("RUNG_RECORDS_POSTGRES", address);
            }
            command
        };
        let made = command().args(["pdpp", "owner-token"]).output()?;
        let token = String::from_utf8(made.stdout)?.trim().to_owned();
        ensure!(!token.is_empty(), "no token was made");
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let began = Instant::now();
        let child = command().args(["serve", "--listen", &format!("127.0.0.1:{port}")]).stdout(Stdio::null()).spawn()?;
        let stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(_) if began.elapsed() < Duration::from_secs(20) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(error.into()),
            }
        };
        stream.set_nodelay(true)?;
        let mut server = Self {
            child,
            port,
            token,
            connection: BufReader::new(stream),
            start_ms: 0.0,
        };
        server.get("/v1/schema?view=compact")?;
        server.start_ms = began.elapsed().as_secs_f64() * 1e3;
        Ok(server)
    }

    /// CPU time of all live server threads so far, in microseconds.
    pub fn cpu_us(&self) -> f64 {
        let mut all = 0;
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten().flatten();
        for task in tasks {
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            all += text.split(' ').next().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        }
        all as f64 / 1e3
    }

    pub fn rss_mb(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or("0");
        let kb: String = line.chars().filter(char::is_ascii_digit).collect();
        kb.parse::<f64>().unwrap_or(0.0) / 1024.0
    }

    pub fn get(&mut self, path: &str) -> Result<Value> {
        self.request("GET", path, &[])
    }

    pub fn request(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Value> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
            self.port,
            self.token,
            body.len()
        );
        let stream = self.connection.get_mut();
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut length = 0;
        let mut status = String::new();
        loop {
            let mut line = String::new();
            ensure!(self.connection.read_line(&mut line)? > 0, "the server hung up");
            if status.is_empty() {
                status = line.clone();
            }
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().context("length")?;
            }
        }
        let mut answer = vec![0; length];
        self.connection.read_exact(&mut answer)?;
        if !status.contains(" 20") {
            bail!("{path}: {status}{}", String::from_utf8_lossy(&answer));
        }
        Ok(serde_json::from_slice(&answer).unwrap_or_default())
    }
}

impl Drop for RungServer {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}
