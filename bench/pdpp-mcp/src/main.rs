//! Measures the adapter against a provider with constant responses: time to the first response, memory, and the CPU time of a
//! call next to a plain fetch of the same bytes, all on one core.
//!
//! `cargo run --release [-- --calls N --only WORD --rung PATH]` prints a table for the release binary or the one at PATH.
//! Nothing is asserted.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Bars for the start time, the time a call adds to a fetch, and the memory.
const START_BAR_MS: f64 = 20.0;
const CALL_BAR_MS: f64 = 0.1;
const RSS_BAR_MB: f64 = 15.0;

fn main() -> Result<()> {
    let said = |name: &str| std::env::args().skip_while(|arg| arg != name).nth(1);
    let calls: usize = said("--calls").map_or(Ok(3_000), |text| text.parse())?;
    let rung = said("--rung").map_or_else(build_rung, |path| Ok(PathBuf::from(path)))?;
    pin_to_one_core()?;
    let provider = start_provider()?;
    let folder = tempfile::tempdir()?;
    let clients = folder.path().join(".pdpp/clients");
    std::fs::create_dir_all(&clients)?;
    let kept = json!({"credential": {"access_token": "a-token-of-some-length", "grant_id": "grt_bench"}});
    std::fs::write(clients.join(format!("{}.json", provider.replace(':', "_"))), kept.to_string())?;

    let mut starts = Vec::new();
    let mut firsts = Vec::new();
    for _ in 0..30 {
        let began = Instant::now();
        let mut adapter = LineProcess::start_adapter(&rung, folder.path(), &provider)?;
        adapter.initialize()?;
        starts.push(began.elapsed());
        adapter.call("query_records", &json!({"stream": "messages"}))?;
        firsts.push(began.elapsed());
    }
    println!("start to the answer to initialize: {} (bar: {START_BAR_MS} ms)", format_best_and_median(&mut starts));
    println!("start to the answer to a call:     {} (bar: {START_BAR_MS} ms)", format_best_and_median(&mut firsts));

    println!("\n{:<34} {:>7} {:>12} {:>12} {:>12} {:>7}", "a call", "bytes", "adapter us", "fetch us", "added us", "ratio");
    let mut adapter = LineProcess::start_adapter(&rung, folder.path(), &provider)?;
    adapter.initialize()?;
    for (name, tool, arguments, path) in [
        ("schema", "schema", json!({}), "/v1/schema?view=compact"),
        ("5 messages", "query_records", json!({"stream": "messages", "limit": 5}), "/v1/streams/messages/records?limit=5"),
        ("25 messages, brought down", "query_records", json!({"stream": "messages"}), "/v1/streams/messages/records"),
        ("10 hits, brought down", "search", json!({"q": "invoice", "limit": 10}), "/v1/search?q=invoice&limit=10"),
        ("a record", "fetch", json!({"id": "cin_a/messages:m1"}), "/v1/streams/messages/records/m1?connection_id=cin_a"),
        ("a window of 4096", "read_record_field", json!({"id": "cin_a/messages:m1", "field_path": "body"}), "/v1/streams/messages/records/m1/field-window?field=body"),
        ("a count", "aggregate", json!({"stream": "messages", "metric": "count"}), "/v1/streams/messages/aggregate?metric=count"),
    ] {
        if said("--only").is_some_and(|word| !name.contains(&word)) {
            continue;
        }
        let mut fetch = LineProcess::new(Command::new(build_sibling("plain-fetch")?).arg(format!("http://{provider}{path}")))?;
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}).to_string();
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // Alternate, so that other load on the machine affects both.
        for _ in 0..5 {
            ours.push(adapter.cpu_us(&request, calls / 5)?);
            theirs.push(fetch.cpu_us("go", calls / 5)?);
        }
        let low = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
        let (ours, theirs) = (low(&ours), low(&theirs));
        let bytes = adapter.request(&request)?.len();
        println!("{name:<34} {bytes:>7} {ours:>12.1} {theirs:>12.1} {:>12.1} {:>7.2}", ours - theirs, ours / theirs);
    }
    println!("(bar: {:.0} us added)", CALL_BAR_MS * 1_000.0);
    println!("\nmemory after all that: {:.1} MB (bar: {RSS_BAR_MB})", adapter.rss_mb()?);
    Ok(())
}

/// Pins this process and its children to one core. Waking another core costs more than many of the calls, and how much depends
/// on the machine.
fn pin_to_one_core() -> Result<()> {
    let mut cores = rustix::thread::sched_getaffinity(None)?;
    let last = (0..rustix::thread::CpuSet::MAX_CPU).rev().find(|core| cores.is_set(*core));
    cores.clear();
    cores.set(last.context("a core")?);
    Ok(rustix::thread::sched_setaffinity(None, &cores)?)
}

/// Formats the best and the median time.
fn format_best_and_median(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    format!("{:.1} ms by the best, {:.1} by the median", ms(times[0]), ms(times[times.len() / 2]))
}

/// Builds the release binary and returns its path.
fn build_rung() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = Command::new("cargo").args(["build", "--release", "--quiet"]).current_dir(&root).status()?;
    anyhow::ensure!(built.success(), "rung does not build");
    Ok(root.join("target/release/rung"))
}

/// Builds another binary of this package and returns its path; `cargo run` builds only the binary it runs.
fn build_sibling(name: &str) -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = Command::new("cargo").args(["build", "--release", "--quiet", "--bin", name]).current_dir(folder).status()?;
    anyhow::ensure!(built.success(), "{name} does not build");
    let own = std::env::current_exe()?;
    Ok(own.parent().context("a folder of binaries")?.join(name))
}

/// A process that answers each request line with one line.
struct LineProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl LineProcess {
    fn new(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let input = child.stdin.take().context("its input")?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        Ok(Self { child, input, output })
    }

    fn start_adapter(rung: &Path, folder: &Path, provider: &str) -> Result<Self> {
        let url = format!("http://{provider}");
        let mut command = Command::new(rung);
        command.args(["pdpp", "mcp", "--provider-url", &url]).env("RUNG_HOME", folder.join("home")).current_dir(folder);
        Self::new(&mut command)
    }

    fn request(&mut self, line: &str) -> Result<String> {
        self.input.write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        anyhow::ensure!(self.output.read_line(&mut answer)? > 0, "it ended");
        Ok(answer)
    }

    fn initialize(&mut self) -> Result<()> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}});
        self.request(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string())?;
        let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        Ok(self.input.write_all(format!("{told}\n").as_bytes())?)
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Result<()> {
        let params = json!({"name": tool, "arguments": arguments});
        let answer = self.request(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string())?;
        anyhow::ensure!(!answer.contains("\"isError\":true"), "{answer}");
        Ok(())
    }

    /// Mean CPU time of a call over all threads, in microseconds, after 20 warm-up calls.
    fn cpu_us(&mut self, line: &str, calls: usize) -> Result<f64> {
        for _ in 0..20 {
            let answer = self.request(line)?;
            anyhow::ensure!(!answer.contains("\"isError\":true"), "{answer}");
        }
        let before = self.cpu_ns()?;
        for _ in 0..calls {
            self.request(line)?;
        }
        Ok((self.cpu_ns()? - before) as f64 / calls as f64 / 1_000.0)
    }

    fn cpu_ns(&self) -> Result<u64> {
        let mut all = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let told = std::fs::read_to_string(task?.path().join("schedstat"))?;
            all += told.split(' ').next().context("a time")?.parse::<u64>()?;
        }
        Ok(all)
    }

    fn rss_mb(&self) -> Result<f64> {
        let told = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = told.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("a size")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1_024.0)
    }
}

impl Drop for LineProcess {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Starts a provider that serves constant responses from memory and returns its address.
fn start_provider() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve_connection(stream));
        }
    });
    Ok(address)
}

fn serve_connection(stream: TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    let said = [("/v1/schema", schema_body()), ("/v1/search", search_results()), ("/aggregate", json!({"object": "aggregation", "value": 5})), ("/field-window", field_window()),
        ("/records/m1", message_record(1)), ("limit=5", record_page(5)), ("/records", record_page(25))]
        .map(|(path, body)| {
            let body = body.to_string();
            (path, format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nRequest-Id: req_1\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
        });
    loop {
        let mut target = String::new();
        if reader.read_line(&mut target).ok()? == 0 {
            return None;
        }
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).ok()?;
        }
        let (_, answer) = said.iter().find(|(path, _)| target.contains(path))?;
        writer.write_all(answer.as_bytes()).ok()?;
    }
}

fn message_record(n: usize) -> Value {
    let body = format!("Dear Ada,\n\n{} invoice {n}.\n", "the harbour library needs north light. ".repeat(14));
    json!({"object": "record", "id": format!("m{n}"), "stream": "messages", "emitted_at": "2026-03-01T00:00:00Z", "connection_id": "cin_a", "display_name": "ada@example.org",
        "data": {"id": format!("m{n}"), "from": "bob@example.org", "to": "ada@example.org", "subject": format!("Re: Harbour {n}"), "body": body, "sent_at": "2026-03-01T08:15:00Z", "unread": false}})
}

fn record_page(count: usize) -> Value {
    let rows: Vec<Value> = (0..count).map(message_record).collect();
    json!({"object": "list", "data": rows, "has_more": true, "next_cursor": "bmV4dA", "url": "/v1/streams/messages/records", "links": {"self": "/x", "next": "/y"}, "meta": {"warnings": []}})
}

fn search_results() -> Value {
    let text = "… the harbour library needs north light, so the tables move. <mark>invoice</mark> regards, Bob ".repeat(2);
    let rows: Vec<Value> = (0..10).map(|n| json!({"object": "search_result", "stream": "messages", "record_key": format!("m{n}"), "connector_id": "mail", "connection_id": "cin_a",
        "record_url": format!("/v1/streams/messages/records/m{n}?connection_id=cin_a"), "display_name": "ada@example.org", "authored_at": "2026-03-01T08:15:00Z",
        "snippet": {"field": "body", "text": text}, "evidence_excerpts": [{"field_path": "body", "preview_text": text, "truncated": true}]})).collect();
    json!({"object": "list", "data": rows, "has_more": true, "next_cursor": "bmV4dA", "meta": {"recall": {"complete": true}, "warnings": []}})
}

fn schema_body() -> Value {
    let fields: serde_json::Map<String, Value> = (0..12).map(|n| (format!("field_{n}"), json!("t=string,eq,lex,a=group_by"))).collect();
    let streams: Vec<Value> = (0..8).map(|n| json!({"name": format!("stream_{n}"), "granted": true, "primary_key": ["id"], "field_capabilities": fields})).collect();
    json!({"object": "schema", "detail": "compact", "connectors": [{"connector_key": "mail", "granted_connections": [{"connection_id": "cin_a", "display_name": "Ada"}], "streams": streams}]})
}

fn field_window() -> Value {
    let text: String = "the harbour library needs north light. ".chars().cycle().take(4_096).collect();
    json!({"object": "field_window", "connection_id": "cin_a", "field": {"path": "body", "mime_type": "text/plain", "digest": "sha256:00"},
        "window": {"text": text, "start_chars": 0, "end_chars": 4_096, "limit_chars": 4_096, "total_chars": 300_000}})
}
