//! A process that answers a line with a line: ours, and the one beside it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

pub struct Lines {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Lines {
    fn new(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn()?;
        let input = child.stdin.take().context("its input")?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        Ok(Self { child, input, output })
    }

    fn ask(&mut self, line: &str) -> Result<String> {
        self.input.write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        ensure!(self.output.read_line(&mut answer)? > 0, "it ended");
        Ok(answer)
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Our server.
pub struct Rung(Lines);

impl Rung {
    pub fn start(rung: &Path, folder: &Path) -> Result<Self> {
        let mut command = Command::new(rung);
        command.args(["db", "mcp", "--allow-writes"]).env("RUNG_HOME", folder.join("home")).current_dir(folder);
        let mut own = Self(Lines::new(&mut command)?);
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}});
        own.ask("initialize", &params)?;
        let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        own.0.input.write_all(format!("{told}\n").as_bytes())?;
        Ok(own)
    }

    pub fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let answer: Value = serde_json::from_str(&self.0.ask(&request.to_string())?)?;
        Ok(answer["result"].clone())
    }

    pub fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        let told = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))?;
        ensure!(told["isError"] != true, "{tool}: {told}");
        Ok(told["structuredContent"].clone())
    }

    /// The id that a tool gives.
    pub fn open(&mut self, tool: &str, arguments: &Value, name: &str) -> Result<String> {
        let told = self.call(tool, arguments)?;
        Ok(told[name].as_str().with_context(|| told.to_string())?.to_owned())
    }

    /// The median time of a call, and its processor time, over so many of them.
    pub fn time(&mut self, tool: &str, arguments: &Value, calls: usize) -> Result<(Duration, Duration)> {
        let params = json!({"name": tool, "arguments": arguments});
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
        for _ in 0..20 {
            let answer = self.0.ask(&request)?;
            ensure!(!answer.contains("\"isError\":true"), "{answer}");
        }
        let before = self.cpu()?;
        let mut times = Vec::new();
        for _ in 0..calls {
            let began = Instant::now();
            self.0.ask(&request)?;
            times.push(began.elapsed());
        }
        let cpu = (self.cpu()? - before) / u32::try_from(calls)?;
        times.sort_unstable();
        Ok((times[calls / 2], cpu))
    }

    /// The processor time that it has taken, of all its threads.
    pub fn cpu(&self) -> Result<Duration> {
        let mut all = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.0.child.id()))? {
            let told = std::fs::read_to_string(task?.path().join("schedstat"))?;
            all += told.split(' ').next().context("a time")?.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(all))
    }

    pub fn memory_mb(&self) -> Result<f64> {
        let told = std::fs::read_to_string(format!("/proc/{}/status", self.0.child.id()))?;
        let line = told.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("a size")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1_024.0)
    }
}

/// The published engine, in a process of its own.
pub struct Peer(Lines);

impl Peer {
    pub fn start() -> Result<Self> {
        let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peer.py");
        let mut own = Self(Lines::new(Command::new(python).arg(script))?);
        own.ask(&json!({"do": "hello"})).context("Python has no datalevin")?;
        Ok(own)
    }

    pub fn ask(&mut self, what: &Value) -> Result<Value> {
        let answer: Value = serde_json::from_str(&self.0.ask(&what.to_string())?)?;
        if let Some(error) = answer["error"].as_str() {
            bail!("{error}");
        }
        Ok(answer)
    }

    pub fn time(&mut self, what: &Value) -> Result<Duration> {
        let answer = self.ask(what)?;
        let ms = answer["ms"].as_f64().context("no time")?;
        Ok(Duration::from_secs_f64(ms / 1_000.0))
    }
}
