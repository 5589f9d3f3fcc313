//! A server that misbehaves on purpose, and one that repeats what it is sent byte for byte. For tests alone: it shares
//! none of the code that it tries.
//!
//! `mischief MODE` speaks on its standard streams; `mischief MODE http` listens, and says where on stderr.

mod house;
mod http;
mod leaks;
mod tasks;

use std::io::{self, BufRead as _, Write as _};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

const FOR_EVER: Duration = Duration::from_hours(24);

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_default();
    if std::env::args().nth(2).as_deref() == Some("http") {
        return http::serve(&mode);
    }
    match mode.as_str() {
        "hang" => {
            trace("started");
            sleep(FOR_EVER);
        }
        "house" => house::serve(),
        "leaks" => leaks::serve(),
        "dies" => {
            eprintln!("there is no configuration");
            std::process::exit(78);
        }
        _ => converse(&mode),
    }
}

/// Leaves a trace of what came, where it is told to.
fn trace(method: &str) {
    if let Ok(path) = std::env::var("TRACE") {
        let file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(path);
        let _left = file.and_then(|mut file| writeln!(file, "{method}"));
    }
}

/// How often the trace has this.
fn times(name: &str) -> usize {
    let path = std::env::var("TRACE").unwrap_or_default();
    let trace = std::fs::read_to_string(path).unwrap_or_default();
    trace.lines().filter(|line| *line == name).count()
}

fn say(text: &[u8]) {
    let mut out = io::stdout().lock();
    let _gone = out
        .write_all(text)
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush());
}

fn answer(id: &str, result: &str) {
    say(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}").as_bytes());
}

fn converse(mode: &str) {
    if mode == "junk" {
        say(b"Starting server...");
        say(b"\xff\xfe not even text");
        say(b"{\"half\":");
        say(b"");
        say(b"[1,2,3]");
    }
    if mode == "words" {
        eprintln!("the database is locked");
    }
    let (mut calls, mut task) = (0, tasks::Task::default());
    let mut lines = io::stdin().lock().split(b'\n');
    while let Some(Ok(line)) = lines.next() {
        let Some(request) = Request::read(&line) else {
            continue;
        };
        trace(&request.method);
        let Some(id) = request.id.as_deref() else {
            continue;
        };
        if task.answered(mode, id, &request) {
            continue;
        }
        match request.method.as_str() {
            "server/discover" if mode == "ends" => std::process::exit(3),
            "server/discover" if mode == "silent" => {}
            "server/discover" if mode.starts_with("modern") => {
                answer(id, &discovered().to_string());
            }
            "initialize" => answer(id, &initialized(mode).to_string()),
            "tools/list" if mode == "endless" => answer(
                id,
                &json!({"tools": [tool("a")], "nextCursor": format!("{calls}")}).to_string(),
            ),
            "tools/list" if mode == "circle" => {
                answer(
                    id,
                    &json!({"tools": [tool("a")], "nextCursor": "again"}).to_string(),
                );
            }
            "tools/list" if mode == "never-lists" => {}
            "tools/list" if mode == "lists-once" && times("tools/list") > 1 => {}
            "tools/list" => answer(id, &tools(mode).to_string()),
            "tools/call" if mode != "tasks-ask-aloud" => {
                call(mode, id, calls, &request, &mut lines);
            }
            // A task that asks while its result is waited for, or somebody else's.
            "tools/call" | "tasks/result" => {
                if let Some(said) = asked("q1", tasks::question(mode), &mut lines) {
                    answer(id, &tasks::done(&said.to_string()).to_string());
                }
            }
            // Everything else comes back as it was sent.
            method if method.starts_with("echo") => {
                answer(id, request.params.as_deref().unwrap_or("null"));
            }
            _ => {
                let error = json!({"code": -32601, "message": "no such method"});
                say(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}").as_bytes());
            }
        }
        calls += 1;
        if mode == "deaf" && request.method == "tools/list" {
            sleep(FOR_EVER);
        }
        if mode == "deaf-and-dies" && request.method == "tools/list" {
            sleep(Duration::from_millis(500));
            std::process::exit(1);
        }
    }
}

fn call(
    mode: &str,
    id: &str,
    calls: usize,
    request: &Request,
    lines: &mut dyn Iterator<Item = io::Result<Vec<u8>>>,
) {
    let done = |text: &str| json!({"content": [{"type": "text", "text": text}]}).to_string();
    match mode {
        "crash" => {
            eprintln!("segmentation something");
            std::process::exit(139);
        }
        "twice" => {
            answer(id, &done(&format!("first {calls}")));
            answer(id, &done(&format!("second {calls}")));
        }
        "other" => {
            answer("987654", &done("of another"));
            answer("\"a string\"", &done("of another"));
            answer(id, &done("of this one"));
        }
        // Answers the call before, when the next one comes.
        "late" => {
            sleep(Duration::from_millis(400));
            answer(id, &done("too late"));
        }
        "never" => {}
        // Asks something, and takes it back.
        "takes-back" => {
            say(br#"{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"Well?"}}"#);
            sleep(Duration::from_millis(100));
            say(br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q1"}}"#);
            sleep(Duration::from_millis(100));
            answer(id, &done("never mind"));
        }
        // Says how far it has come, to whoever wants to know.
        "progress" => {
            let params: Value =
                serde_json::from_str(request.params.as_deref().unwrap_or("{}")).unwrap_or_default();
            let token = &params["_meta"]["progressToken"];
            for progress in 1..=3 {
                let said = json!({"progressToken": token, "progress": progress, "total": 3});
                say(
                    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": said})
                        .to_string()
                        .as_bytes(),
                );
            }
            say(br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hello"}}"#);
            answer(id, &done("there"));
        }
        // Asks the same thing over and over.
        "nags" => {
            for _ in 0..5_000 {
                say(br#"{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"Well?"}}"#);
            }
            answer(id, &done("enough"));
        }
        // Uses a word of the modern era for something of its own.
        "input" => answer(
            id,
            &format!("{{\"resultType\":\"input_required\",\"calls\":{calls}}}"),
        ),
        "batch" => say(format!(
            "[{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[]}}}}]"
        )
        .as_bytes()),
        "no-error" => say(format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[]}},\"error\":null}}"
        )
        .as_bytes()),
        "long-goodbye" => {
            long(id, request);
            std::process::exit(0);
        }
        "chatty" => loop {
            let params = format!("{{\"progressToken\":{id},\"progress\":1}}");
            let method = "notifications/progress";
            say(
                format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{params}}}")
                    .as_bytes(),
            );
            sleep(Duration::from_millis(5));
        },
        "flood" => {
            let line = format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/flood\",\"params\":{{\"x\":\"{}\"}}}}",
                "y".repeat(10_000)
            );
            for _ in 0..20_000 {
                say(line.as_bytes());
            }
            answer(id, &done("after the flood"));
        }
        // What is given is given back.
        "mirror" | "modern-mirror" => answer(id, &request.arguments()),
        "long" => long(id, request),
        "asks" | "modern-asks" => {
            say(br#"{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"Well?","requestedSchema":{"type":"object","properties":{}}}}"#);
            let mut texts = lines
                .map_while(Result::ok)
                .map(|line| String::from_utf8(line).unwrap_or_default());
            let answered = texts.find(|line| line.contains("\"q1\""));
            answer(id, &done(&answered.unwrap_or_default()));
        }
        "asks-twice" | "asks-and-hangs" | "asks-and-dies" => {
            if let Some(said) = asked_twice(mode, request, lines) {
                answer(id, &done(&said));
            }
        }
        _ => answer(id, &done("done")),
    }
}

/// Asks twice, and says in between how far it has come. Told to hang or to die, it does so there.
fn asked_twice(
    mode: &str,
    request: &Request,
    lines: &mut dyn Iterator<Item = io::Result<Vec<u8>>>,
) -> Option<String> {
    let first = asked("q1", tasks::form("q1"), lines)?["content"].take();
    say_progress(request);
    match mode {
        "asks-and-hangs" => return None,
        "asks-and-dies" => {
            eprintln!("out of memory");
            std::process::exit(137);
        }
        _ => {}
    }
    let second = asked("q2", tasks::form("q2"), lines)?["content"].take();
    Some(format!("{first} {second}"))
}

/// What is answered to a question; nothing where the call is cancelled meanwhile.
fn asked(
    id: &str,
    mut question: Value,
    lines: &mut dyn Iterator<Item = io::Result<Vec<u8>>>,
) -> Option<Value> {
    question["jsonrpc"] = "2.0".into();
    question["id"] = id.into();
    say(question.to_string().as_bytes());
    for line in lines.map_while(Result::ok) {
        if let Some(request) = Request::read(&line) {
            trace(&request.method);
            return None;
        }
        let message: Value = serde_json::from_slice(&line).unwrap_or_default();
        if message["id"] == id {
            trace("answered");
            return Some(message["result"].clone());
        }
    }
    None
}

fn say_progress(request: &Request) {
    let params: Value =
        serde_json::from_str(request.params.as_deref().unwrap_or("{}")).unwrap_or_default();
    let said = json!({"progressToken": params["_meta"]["progressToken"], "progress": 1});
    let said = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": said});
    say(said.to_string().as_bytes());
}

/// A result of as many bytes as the arguments say, a piece at a time; behind each piece what the variable holds that they name.
fn long(id: &str, request: &Request) {
    let params: Value =
        serde_json::from_str(request.params.as_deref().unwrap_or("{}")).unwrap_or_default();
    let bytes = params["arguments"]["bytes"].as_u64();
    let mut left = bytes
        .and_then(|bytes| usize::try_from(bytes).ok())
        .unwrap_or(0);
    let mut out = io::stdout().lock();
    let mut write = |text: &[u8]| out.write_all(text).is_ok();
    write(b"{\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"");
    let piece = "0123456789abcdef".repeat(4_096);
    let variable = params["arguments"]["leak"].as_str();
    let leak = variable.and_then(|name| std::env::var(name).ok());
    while left > 0 {
        let now = left.min(piece.len());
        if !write(&piece.as_bytes()[..now]) {
            return;
        }
        left -= now;
        if let Some(leak) = &leak {
            write(leak.as_bytes());
        }
    }
    write(format!("\"}}],\"end\":true}},\"id\":{id},\"jsonrpc\":\"2.0\"}}\n").as_bytes());
    let _gone = out.flush();
}

struct Request {
    id: Option<String>,
    method: String,
    params: Option<String>,
}

impl Request {
    fn read(line: &[u8]) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct Wire<'a> {
            #[serde(borrow)]
            id: Option<&'a serde_json::value::RawValue>,
            method: Option<String>,
            #[serde(borrow)]
            params: Option<&'a serde_json::value::RawValue>,
        }
        let wire: Wire<'_> = serde_json::from_slice(line).ok()?;
        Some(Self {
            id: wire.id.map(|id| id.get().to_owned()),
            method: wire.method?,
            params: wire.params.map(|params| params.get().to_owned()),
        })
    }
}

impl Request {
    /// The arguments of a call, as they came.
    fn arguments(&self) -> String {
        #[derive(serde::Deserialize)]
        struct Params<'a> {
            #[serde(borrow)]
            arguments: &'a serde_json::value::RawValue,
        }
        let params = self.params.as_deref().unwrap_or("{}");
        let params: Option<Params<'_>> = serde_json::from_str(params).ok();
        params
            .map_or("null", |params| params.arguments.get())
            .to_owned()
    }
}

fn discovered() -> Value {
    json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "mischief", "version": "0"}}})
}

fn initialized(mode: &str) -> Value {
    let version = if mode == "future" {
        "2031-01-01"
    } else {
        "2025-11-25"
    };
    json!({"protocolVersion": version, "capabilities": {"tools": {}, "vendor/x": {"deep": [1.0]}}, "serverInfo": {"name": "mischief", "version": "0"}})
}

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}})
}

fn tools(mode: &str) -> Value {
    if mode.starts_with("tasks") {
        let mut task = tool("a");
        task["execution"] = json!({"taskSupport": "optional"});
        return json!({"tools": [task]});
    }
    if mode == "oversized" {
        // More than any message that is held in memory, and a title behind it that names something else.
        let mut huge = tool("huge");
        huge["inputSchema"]["description"] = "x".repeat(6 << 20).into();
        huge["title"] = "the longest".into();
        let mut wordy = tool("wordy");
        wordy["description"] = "y".repeat(2 << 20).into();
        return json!({"tools": [tool("a"), huge, wordy, tool("b")], "ttlMs": 1_000});
    }
    if mode != "odd" {
        return json!({"tools": [tool("a"), tool("b")]});
    }
    json!({"tools": [
        tool("good"),
        {"name": "no schema"},
        {"name": "null schema", "inputSchema": null},
        {"name": "odd output", "inputSchema": {}, "outputSchema": true},
        {"inputSchema": {}},
        {"name": 7, "inputSchema": {}},
        "not even an object",
        null,
        {"name": "bad header", "inputSchema": {"type": "object", "properties": {"x": {"type": "string", "x-mcp-header": "a b"}}}},
        tool("good"),
        {"name": "better", "inputSchema": {"type": "object"}, "vendor": {"n": 1.50}, "execution": {"taskSupport": "optional"}},
    ]})
}
