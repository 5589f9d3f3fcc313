//! The faulty server over hand-written HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, sleep};
use std::time::Duration;

use serde_json::json;

use crate::{FOREVER, RpcRequest, discover_result, initialize_result, tools};

/// The SSE stream of the 2024-11-05 transport.
static SSE_STREAM: Mutex<Option<TcpStream>> = Mutex::new(None);
/// The id of the request whose stream was cut off.
static CUT_OFF_REQUEST: Mutex<String> = Mutex::new(String::new());

fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().expect("nobody panics")
}

pub(crate) fn serve(mode: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    eprintln!("http://{}/mcp", listener.local_addr().expect("an address"));
    for stream in listener.incoming().flatten() {
        let mode = mode.to_owned();
        thread::spawn(move || serve_connection(&mode, stream));
    }
}

/// A received HTTP request.
struct HttpRequest {
    method: String,
    resumed: Option<String>,
    /// True if it has headers of a negotiated or modern request.
    names_version: bool,
    body: Vec<u8>,
}

impl HttpRequest {
    fn is_initialize(&self) -> bool {
        RpcRequest::parse(&self.body).is_some_and(|request| request.method == "initialize")
    }

    fn read(reader: &mut BufReader<TcpStream>) -> Option<Self> {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_owned());
        }
        let header = |name: &str| {
            let mut values = head.iter().filter_map(|line| line.split_once(':'));
            let found = values.find(|(own, _)| own.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.trim().to_owned())
        };
        let length = header("content-length").and_then(|length| length.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
        Some(Self {
            method: head.first()?.split(' ').next()?.to_owned(),
            resumed: header("last-event-id"),
            names_version: header("mcp-protocol-version")
                .or(header("mcp-method"))
                .is_some(),
            body,
        })
    }
}

fn serve_connection(mode: &str, mut stream: TcpStream) {
    stream.set_nodelay(true).expect("a stream of ours");
    let mut reader = BufReader::new(stream.try_clone().expect("a stream can be cloned"));
    while let Some(arrival) = HttpRequest::read(&mut reader) {
        let goes_on = match answer_by_mode(mode, &arrival, &mut stream) {
            Some(goes_on) => goes_on,
            None => answer_message(mode, &arrival.body, &mut stream),
        };
        if !goes_on {
            return;
        }
    }
}

fn write(stream: &mut TcpStream, text: &str) -> bool {
    stream.write_all(text.as_bytes()).is_ok()
}

fn reply(stream: &mut TcpStream, status: &str, kind: &str, body: &str) -> bool {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n");
    write(stream, &(head + body))
}

fn open_stream(stream: &mut TcpStream) {
    write(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",
    );
}

/// Answers requests whose response depends on the mode only. Returns whether the connection stays open, or `None` if not
/// answered.
fn answer_by_mode(mode: &str, arrival: &HttpRequest, stream: &mut TcpStream) -> Option<bool> {
    let goes_on = match (mode, arrival.method.as_str()) {
        ("500", _) => reply(
            stream,
            "500 Internal Server Error",
            "text/html",
            "<h1>oops</h1>\x1b[31m",
        ),
        ("401", _) => reply(stream, "401 Unauthorized", "text/plain", "who are you?"),
        ("redirect", _) => write(
            stream,
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.2:9/steal?token=SECRET\r\ncontent-length: 0\r\n\r\n",
        ),
        ("401-json", _) => reply(
            stream,
            "401 Unauthorized",
            "application/json",
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"who are you?"}}"#,
        ),
        // Rejects an `initialize` with headers of a later request.
        ("strict", _) if arrival.is_initialize() && arrival.names_version => {
            reply(stream, "400 Bad Request", "text/plain", "what is that?")
        }
        ("garbage", _) => {
            write(stream, "\0\u{1} not HTTP at all");
            false
        }
        ("old" | "old-elsewhere", "GET") => {
            let to = if mode == "old" {
                "/post?session=1"
            } else {
                "http://127.0.0.2:9/post"
            };
            open_stream(stream);
            *lock(&SSE_STREAM) = stream.try_clone().ok();
            write(stream, &format!("event: endpoint\ndata: {to}\n\n"));
            sleep(FOREVER);
            false
        }
        ("resume", "GET") if arrival.resumed.as_deref() == Some("7") => {
            open_stream(stream);
            let id = lock(&CUT_OFF_REQUEST).clone();
            let answer =
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[]}}}}");
            write(stream, &format!("id: 8\ndata: {answer}\n\n"));
            false
        }
        (_, "GET" | "DELETE") => reply(stream, "405 Method Not Allowed", "text/plain", ""),
        // In 2024-11-05 messages are accepted only while the stream is open.
        ("old" | "old-elsewhere", _) if lock(&SSE_STREAM).is_none() => {
            reply(stream, "404 Not Found", "text/plain", "")
        }
        _ => return None,
    };
    Some(goes_on)
}

/// Answers a message. Returns true if the connection stays open.
fn answer_message(mode: &str, body: &[u8], stream: &mut TcpStream) -> bool {
    let Some(request) = RpcRequest::parse(body) else {
        return reply(stream, "400 Bad Request", "text/plain", "not JSON");
    };
    let Some(id) = request.id.clone() else {
        return reply(stream, "202 Accepted", "text/plain", "");
    };
    let result = match request.method.as_str() {
        "server/discover" if mode.starts_with("modern") => discover_result().to_string(),
        "server/discover" => return reply(stream, "400 Bad Request", "text/plain", "no session"),
        "initialize" => initialize_result(mode).to_string(),
        "tools/list" => tools(mode).to_string(),
        "tools/call" if break_off(mode, &id, stream) => return false,
        "tools/call" if mode == "modern-task" => {
            json!({"resultType": "task", "taskId": "t", "status": "working", "pollIntervalMs": 50})
                .to_string()
        }
        "tasks/get" => return reply(stream, "503 Service Unavailable", "text/plain", "later"),
        "tools/call" if answer_inconclusively(mode, stream) => return true,
        "tools/call" => json!({"content": [{"type": "text", "text": "done"}]}).to_string(),
        _ => request.params.clone().unwrap_or_else(|| "null".to_owned()),
    };
    let id = if mode == "other" && request.method == "tools/call" {
        "424242"
    } else {
        &id
    };
    let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}");
    // Each line of a message is a `data` line of its event.
    let event = format!("data: {}\n\n", answer.replace('\n', "\ndata: "));
    if mode == "old" {
        reply(stream, "202 Accepted", "text/plain", "");
        if let Some(stream) = lock(&SSE_STREAM).as_mut() {
            write(stream, &format!("event: message\n{event}"));
        }
        return true;
    }
    if mode.ends_with("stream") && request.method != "initialize" {
        open_stream(stream);
        write(stream, &format!(": hello\n\n{event}"));
        return false;
    }
    reply(stream, "200 OK", "application/json", &answer)
}

/// In some modes, answers a call with a response that does not tell its outcome. Returns true if it did.
fn answer_inconclusively(mode: &str, stream: &mut TcpStream) -> bool {
    match mode {
        "504" => reply(
            stream,
            "504 Gateway Timeout",
            "application/json",
            r#"{"error":{"code":504,"message":"upstream timed out"}}"#,
        ),
        "503" => reply(
            stream,
            "503 Service Unavailable",
            "text/plain",
            "reset before headers",
        ),
        "303" => write(
            stream,
            "HTTP/1.1 303 See Other\r\nlocation: /done\r\ncontent-length: 0\r\n\r\n",
        ),
        "202" => reply(stream, "202 Accepted", "text/plain", ""),
        "half" => reply(
            stream,
            "200 OK",
            "application/json",
            "{\"jsonrpc\":\"2.0\",\"id\":",
        ),
        _ => false,
    }
}

/// In some modes, ends a call without a response. Returns true if it did.
fn break_off(mode: &str, id: &str, stream: &mut TcpStream) -> bool {
    match mode {
        "cut" => {}
        "endless" | "modern-endless" => {
            open_stream(stream);
            while write(stream, ": still here\n\n") {
                sleep(Duration::from_millis(10));
            }
        }
        "cut-stream" => {
            open_stream(stream);
            let said = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}";
            write(stream, &format!("data: {said}\n\ndata: {{\"jsonr"));
        }
        "resume" => {
            id.clone_into(&mut lock(&CUT_OFF_REQUEST));
            open_stream(stream);
            write(stream, "id: 7\nretry: 50\ndata: \n\n");
        }
        _ => return false,
    }
    true
}
