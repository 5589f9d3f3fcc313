//! A test server that misbehaves, or echoes parameters byte for byte. It shares no code with the crate under test.
//!
//! `faulty_server MODE` uses its standard streams; `faulty_server MODE http` listens, and prints its URL to stderr.

mod echo_server;
mod http;
mod leaks;
mod tasks;

use std::io::{self, BufRead as _, Write as _};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

const FOREVER: Duration = Duration::from_hours(24);

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_default();
    if std::env::args().nth(2).as_deref() == Some("http") {
        return http::serve(&mode);
    }
    match mode.as_str() {
        "hang" => {
            trace("started");
            sleep(FOREVER);
        }
        "house" => echo_server::serve(),
        "leaks" => leaks::serve(),
        "dies" => {
            eprintln!("there is no configuration");
            std::process::exit(78);
        }
        _ => converse(&mode),
    }
}

/// Appends a line to the file that the variable `TRACE` names, if set.
fn trace(method: &str) {
    if let Ok(path) = std::env::var("TRACE") {
        let file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(path);
        let _left = file.and_then(|mut file| writeln!(file, "{method}"));
    }
}

/// Counts the trace lines that equal `name`.
fn count_trace(name: &str) -> usize {
    let path = std::env::var("TRACE").unwrap_or_default();
    let trace = std::fs::read_to_string(path).unwrap_or_default();
    trace.lines().filter(|line| *line == name).count()
}

fn write_line(text: &[u8]) {
    let mut out = io::stdout().lock();
    let _gone = out
        .write_all(text)
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush());
}

fn respond(id: &str, result: &str) {
    write_line(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}").as_bytes());
}

fn converse(mode: &str) {
    if mode == "junk" {
        write_line(b"Starting server...");
        write_line(b"\xff\xfe not even text");
        write_line(b"{\"half\":");
        write_line(b"");
        write_line(b"[1,2,3]");
    }
    if mode == "words" {
        eprintln!("the database is locked");
    }
    let (mut calls, mut task) = (0, tasks::TaskScript::default());
    let mut lines = io::stdin().lock().split(b'\n');
    while let Some(Ok(line)) = lines.next() {
        let Some(request) = RpcRequest::parse(&line) else {
            continue;
        };
        trace(&request.method);
        let Some(id) = request.id.as_deref() else {
            continue;
        };
        if task.handle(mode, id, &request) {
            continue;
        }
        match request.method.as_str() {
            "server/discover" if mode == "ends" => std::process::exit(3),
            "server/discover" if mode == "silent" => {}
            "server/discover" if mode.starts_with("modern") => {
                respond(id, &discover_result().to_string());
            }
            "initialize" => respond(id, &initialize_result(mode).to_string()),
            "tools/list" if mode == "endless" => respond(
                id,
                &json!({"tools": [tool("a")], "nextCursor": format!("{calls}")}).to_string(),
            ),
            "tools/list" if mode == "circle" => {
                respond(
                    id,
                    &json!({"tools": [tool("a")], "nextCursor": "again"}).to_string(),
                );
            }
            "tools/list" if mode == "never-lists" => {}
            "tools/list" if mode == "lists-once" && count_trace("tools/list") > 1 => {}
            "tools/list" => respond(id, &tools(mode).to_string()),
            "tools/call" if mode != "tasks-ask-aloud" => {
                call_tool(mode, id, calls, &request, &mut lines);
            }
            // Sends a request during a call or during `tasks/result`.
            "tools/call" | "tasks/result" => {
                if let Some(said) = ask_client("q1", tasks::input_request(mode), &mut lines) {
                    respond(id, &tasks::text_result(&said.to_string()).to_string());
                }
            }
            // Echoes the parameters.
            method if method.starts_with("echo") => {
                respond(id, request.params.as_deref().unwrap_or("null"));
            }
            _ => {
                let error = json!({"code": -32601, "message": "no such method"});
                write_line(
                    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}").as_bytes(),
                );
            }
        }
        calls += 1;
        if mode == "deaf" && request.method == "tools/list" {
            sleep(FOREVER);
        }
        if mode == "deaf-and-dies" && request.method == "tools/list" {
            sleep(Duration::from_millis(500));
            std::process::exit(1);
        }
    }
}

/// Sends 200 MB of notifications.
fn flood() {
    let params = format!("{{\"x\":\"{}\"}}", "y".repeat(10_000));
    let line =
        format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/flood\",\"params\":{params}}}");
    for _ in 0..20_000 {
        write_line(line.as_bytes());
    }
}

fn call_tool(
    mode: &str,
    id: &str,
    calls: usize,
    request: &RpcRequest,
    lines: &mut dyn Iterator<Item = io::Result<Vec<u8>>>,
) {
    let done = |text: &str| json!({"content": [{"type": "text", "text": text}]}).to_string();
    match mode {
        "crash" => {
            eprintln!("segmentation something");
            std::process::exit(139);
        }
        "twice" => {
            respond(id, &done(&format!("first {calls}")));
            respond(id, &done(&format!("second {calls}")));
        }
        "other" => {
            respond("987654", &done("of another"));
            respond("\"a string\"", &done("of another"));
            respond(id, &done("of this one"));
        }
        // Responds after the client's deadline.
        "late" => {
            sleep(Duration::from_millis(400));
            respond(id, &done("too late"));
        }
        "never" => {}
        // Sends a request and cancels it.
        "takes-back" => {
            write_line(br#"{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"Well?"}}"#);
            sleep(Duration::from_millis(100));
            write_line(br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q1"}}"#);
            sleep(Duration::from_millis(100));
            respond(id, &done("never mind"));
        }
        // Sends progress and a log message.
        "progress" => {
            let params: Value =
                serde_json::from_str(request.params.as_deref().unwrap_or("{}")).unwrap_or_default();
            let token = &params["_meta"]["progressToken"];
            for progress in 1..=3 {
                let said = json!({"progressToken": token, "progress": progress, "total": 3});
                write_line(
                    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": said})
                        .to_string()
                        .as_bytes(),
                );
            }
            write_line(br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hello"}}"#);
            respond(id, &done("there"));
        }
        // Repeats one request 5,000 times.
        "nags" => {
            for _ in 0..5_000 {
                write_line(br#"{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"Well?"}}"#);
            }
            respond(id, &done("enough"));
        }
        // A legacy server that uses a modern `resultType` with a meaning of its own.
        "input" => respond(
            id,
            &format!("{{\"resultType\":\"input_required\",\"calls\":{calls}}}"),
        ),
        "batch" => write_line(
            format!("[{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[]}}}}]")
                .as_bytes(),
        ),
        "no-error" => write_line(
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[]}},\"error\":null}}"
            )
            .as_bytes(),
        ),
        "long-goodbye" => {
            respond_long(id, request);
            std::process::exit(0);
        }
        "chatty" => loop {
            let params = format!("{{\"progressToken\":{id},\"progress\":1}}");
            let method = "notifications/progress";
            write_line(
                format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{params}}}")
                    .as_bytes(),
            );
            sleep(Duration::from_millis(5));
        },
        "flood" => {
            flood();
            respond(id, &done("after the flood"));
        }
        // Returns the arguments as the result.
        "mirror" | "modern-mirror" => respond(id, &request.arguments()),
        "long" => respond_long(id, request),
        "asks" | "modern-asks" => {
            write_line(br#"{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"Well?","requestedSchema":{"type":"object","properties":{}}}}"#);
            let mut texts = lines
                .map_while(Result::ok)
                .map(|line| String::from_utf8(line).unwrap_or_default());
            let answered = texts.find(|line| line.contains("\"q1\""));
            respond(id, &done(&answered.unwrap_or_default()));
        }
        "asks-twice" | "asks-and-hangs" | "asks-and-dies" => {
            if let Some(said) = ask_twice(mode, request, lines) {
                respond(id, &done(&said));
            }
        }
        _ => respond(id, &done("done")),
    }
}

/// Sends two requests with progress between them. The modes `asks-and-hangs` and `asks-and-dies` stop after the progress.
fn ask_twice(
    mode: &str,
    request: &RpcRequest,
    lines: &mut dyn Iterator<Item = io::Result<Vec<u8>>>,
) -> Option<String> {
    let first = ask_client("q1", tasks::elicitation("q1"), lines)?["content"].take();
    send_progress(request);
    match mode {
        "asks-and-hangs" => return None,
        "asks-and-dies" => {
            eprintln!("out of memory");
            std::process::exit(137);
        }
        _ => {}
    }
    let second = ask_client("q2", tasks::elicitation("q2"), lines)?["content"].take();
    Some(format!("{first} {second}"))
}

/// Sends a request and returns its result, or `None` if another message arrives first, such as a cancellation.
fn ask_client(
    id: &str,
    mut question: Value,
    lines: &mut dyn Iterator<Item = io::Result<Vec<u8>>>,
) -> Option<Value> {
    question["jsonrpc"] = "2.0".into();
    question["id"] = id.into();
    write_line(question.to_string().as_bytes());
    for line in lines.map_while(Result::ok) {
        if let Some(request) = RpcRequest::parse(&line) {
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

fn send_progress(request: &RpcRequest) {
    let params: Value =
        serde_json::from_str(request.params.as_deref().unwrap_or("{}")).unwrap_or_default();
    let said = json!({"progressToken": params["_meta"]["progressToken"], "progress": 1});
    let said = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": said});
    write_line(said.to_string().as_bytes());
}

/// Writes a result of `bytes` bytes in pieces, and after each piece the value of the environment variable `leak`.
fn respond_long(id: &str, request: &RpcRequest) {
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

struct RpcRequest {
    id: Option<String>,
    method: String,
    params: Option<String>,
}

impl RpcRequest {
    fn parse(line: &[u8]) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct RawRequest<'a> {
            #[serde(borrow)]
            id: Option<&'a serde_json::value::RawValue>,
            method: Option<String>,
            #[serde(borrow)]
            params: Option<&'a serde_json::value::RawValue>,
        }
        let wire: RawRequest<'_> = serde_json::from_slice(line).ok()?;
        Some(Self {
            id: wire.id.map(|id| id.get().to_owned()),
            method: wire.method?,
            params: wire.params.map(|params| params.get().to_owned()),
        })
    }
}

impl RpcRequest {
    /// Returns the arguments of a call, unchanged.
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

fn discover_result() -> Value {
    json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "mischief", "version": "0"}}})
}

fn initialize_result(mode: &str) -> Value {
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
        // Longer than a message that is held in memory, with a `title` after the name.
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
