//! Processes that answer each request line with one line: the Rung server and the Datalevin peer.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

pub struct LineProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl LineProcess {
    fn new(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn()?;
        let input = child.stdin.take().context("its input")?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        Ok(Self { child, input, output })
    }

    fn request(&mut self, line: &str) -> Result<String> {
        self.input.write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        ensure!(self.output.read_line(&mut answer)? > 0, "it ended");
        Ok(answer)
    }
}

impl Drop for LineProcess {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A running `rung db mcp`.
pub struct RungServer(LineProcess);

impl RungServer {
    pub fn start(rung: &Path, folder: &Path) -> Result<Self> {
        let mut command = Command::new(rung);
        command.args(["db", "mcp", "--allow-writes"]).env("RUNG_HOME", folder.join("home")).current_dir(folder);
        let mut own = Self(LineProcess::new(&mut command)?);
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}});
        own.request("initialize", &params)?;
        let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        own.0.input.write_all(format!("{told}\n").as_bytes())?;
        Ok(own)
    }

    pub fn request(&mut self, method: &str, params: &Value) -> Result<Value> {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let answer: Value = serde_json::from_str(&self.0.request(&request.to_string())?)?;
        Ok(answer["result"].clone())
    }

    pub fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        let told = self.request("tools/call", &json!({"name": tool, "arguments": arguments}))?;
        ensure!(told["isError"] != true, "{tool}: {told}");
        Ok(told["structuredContent"].clone())
    }

    /// Calls a tool and returns the string field `name` of its result.
    pub fn call_for_id(&mut self, tool: &str, arguments: &Value, name: &str) -> Result<String> {
        let told = self.call(tool, arguments)?;
        Ok(told[name].as_str().with_context(|| told.to_string())?.to_owned())
    }

    /// Returns the median wall time and the mean CPU time of a call, after 20 warm-up calls.
    pub fn time_calls(&mut self, tool: &str, arguments: &Value, calls: usize) -> Result<(Duration, Duration)> {
        let params = json!({"name": tool, "arguments": arguments});
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
        for _ in 0..20 {
            let answer = self.0.request(&request)?;
            ensure!(!answer.contains("\"isError\":true"), "{answer}");
        }
        let before = self.cpu_time()?;
        let mut times = Vec::new();
        for _ in 0..calls {
            let began = Instant::now();
            self.0.request(&request)?;
            times.push(began.elapsed());
        }
        let cpu = (self.cpu_time()? - before) / u32::try_from(calls)?;
        times.sort_unstable();
        Ok((times[calls / 2], cpu))
    }

    /// CPU time of all live threads of the process so far.
    pub fn cpu_time(&self) -> Result<Duration> {
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

/// The published Datalevin engine, in a separate process.
pub struct DatalevinProcess(LineProcess);

impl DatalevinProcess {
    pub fn start() -> Result<Self> {
        let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peer.py");
        let mut own = Self(LineProcess::new(Command::new(python).arg(script))?);
        own.request(&json!({"do": "hello"})).context("Python has no datalevin")?;
        Ok(own)
    }

    pub fn request(&mut self, what: &Value) -> Result<Value> {
        let answer: Value = serde_json::from_str(&self.0.request(&what.to_string())?)?;
        if let Some(error) = answer["error"].as_str() {
            bail!("{error}");
        }
        Ok(answer)
    }

    pub fn time(&mut self, what: &Value) -> Result<Duration> {
        let answer = self.request(what)?;
        let ms = answer["ms"].as_f64().context("no time")?;
        Ok(Duration::from_secs_f64(ms / 1_000.0))
    }
}
