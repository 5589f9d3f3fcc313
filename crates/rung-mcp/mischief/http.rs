//! The same, over HTTP written by hand.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread::{self, sleep};
use std::time::Duration;

use serde_json::{Value, json};

use crate::{Request, discovered, initialized, tools};

/// Where the answers of the oldest sort go.
static STREAM: Mutex<Option<TcpStream>> = Mutex::new(None);

pub(crate) fn serve(mode: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    eprintln!("http://{}/mcp", listener.local_addr().expect("an address"));
    for stream in listener.incoming() {
        let (Ok(stream), mode) = (stream, mode.to_owned()) else {
            continue;
        };
        thread::spawn(move || connection(&mode, stream));
    }
}

fn connection(mode: &str, mut stream: TcpStream) {
    stream.set_nodelay(true).expect("a stream of ours");
    let mut reader = BufReader::new(stream.try_clone().expect("a stream can be cloned"));
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_owned());
        }
        let header = |name: &str| {
            let mut values = head.iter().filter_map(|line| line.split_once(':'));
            values
                .find(|(own, _)| own.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.trim().to_owned())
        };
        let length = header("content-length")
            .and_then(|length| length.parse().ok())
            .unwrap_or(0);
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let method = head
            .first()
            .and_then(|line| line.split(' ').next())
            .unwrap_or_default();
        let resumed = header("last-event-id");
        if !answered(mode, method, resumed.as_deref(), &body, &mut stream) {
            return;
        }
    }
}

fn reply(stream: &mut TcpStream, status: &str, kind: &str, body: &[u8]) -> bool {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body))
        .is_ok()
}

fn open_stream(stream: &mut TcpStream) -> bool {
    stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        .is_ok()
}

/// Whether the connection goes on.
fn answered(
    mode: &str,
    method: &str,
    resumed: Option<&str>,
    body: &[u8],
    stream: &mut TcpStream,
) -> bool {
    match (mode, method) {
        ("500", _) => {
            return reply(
                stream,
                "500 Internal Server Error",
                "text/html",
                b"<h1>oops</h1>\x1b[31m",
            );
        }
        ("401", _) => return reply(stream, "401 Unauthorized", "text/plain", b"who are you?"),
        ("redirect", _) => {
            let _gone = stream.write_all(b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.2:9/steal\r\ncontent-length: 0\r\n\r\n");
            return true;
        }
        ("garbage", _) => {
            let _gone = stream.write_all(b"\x00\x01\x02 not HTTP at all");
            return false;
        }
        ("old", "GET") => {
            open_stream(stream);
            let _gone = stream.write_all(b"event: endpoint\ndata: /post?session=1\n\n");
            *STREAM.lock().expect("nobody panics") = stream.try_clone().ok();
            sleep(Duration::from_secs(3_600));
            return false;
        }
        ("old-elsewhere", "GET") => {
            open_stream(stream);
            let _gone = stream.write_all(b"event: endpoint\ndata: http://127.0.0.2:9/post\n\n");
            sleep(Duration::from_secs(3_600));
            return false;
        }
        ("resume", "GET") if resumed == Some("7") => {
            open_stream(stream);
            let _gone = stream.write_all(
                b"id: 8\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"content\":[]}}\n\n"
                    .replace_id()
                    .as_slice(),
            );
            return false;
        }
        (_, "GET" | "DELETE") => return reply(stream, "405 Method Not Allowed", "text/plain", b""),
        ("old" | "old-elsewhere", "POST") if !is_for_old(stream) => {
            return reply(stream, "404 Not Found", "text/plain", b"");
        }
        _ => {}
    }
    let Some(request) = Request::read(body) else {
        return reply(stream, "400 Bad Request", "text/plain", b"not JSON");
    };
    let Some(id) = request.id.clone() else {
        return reply(stream, "202 Accepted", "text/plain", b"");
    };
    let modern = mode.starts_with("modern");
    let result = match request.method.as_str() {
        "server/discover" if modern => discovered().to_string(),
        "server/discover" => {
            return reply(
                stream,
                "400 Bad Request",
                "text/plain",
                b"Bad Request: no session",
            );
        }
        "initialize" => initialized(mode).to_string(),
        "tools/list" => tools(mode).to_string(),
        "tools/call" => {
            match mode {
                "cut" => return false,
                "endless" | "modern-endless" => {
                    open_stream(stream);
                    while stream.write_all(b": still here\n\n").is_ok() {
                        sleep(Duration::from_millis(10));
                    }
                    return false;
                }
                "cut-stream" => {
                    open_stream(stream);
                    let _gone = stream.write_all(b"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\ndata: {\"jsonr");
                    return false;
                }
                "resume" => {
                    ID.lock().expect("nobody panics").clone_from(&id);
                    open_stream(stream);
                    let _gone = stream.write_all(b"id: 7\nretry: 50\ndata: \n\n");
                    return false;
                }
                "other" => "\"of another\"".to_owned(),
                _ => json!({"content": [{"type": "text", "text": "done"}]}).to_string(),
            }
        }
        _ => request.params.clone().unwrap_or_else(|| "null".to_owned()),
    };
    let id = if mode == "other" && request.method == "tools/call" {
        "424242".to_owned()
    } else {
        id
    };
    let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}");
    if mode.starts_with("old") {
        reply(stream, "202 Accepted", "text/plain", b"");
        let stream = STREAM.lock().expect("nobody panics").take();
        if let Some(mut stream) = stream {
            let _gone = stream.write_all(format!("event: message\ndata: {answer}\n\n").as_bytes());
            *STREAM.lock().expect("nobody panics") = Some(stream);
        }
        return true;
    }
    if mode.ends_with("stream") && request.method != "initialize" {
        open_stream(stream);
        // A line break between the parts of a message is another line of its event.
        let event: String = answer
            .split('\n')
            .map(|line| format!("data: {line}\n"))
            .collect();
        let _gone = stream.write_all(format!(": hello\n\n{event}\n").as_bytes());
        return false;
    }
    let _checked: Value = serde_json::from_str(&answer).unwrap_or_default();
    reply(stream, "200 OK", "application/json", answer.as_bytes())
}

/// Messages of the oldest sort are posted while a stream is open, and only then.
fn is_for_old(_: &TcpStream) -> bool {
    STREAM.lock().expect("nobody panics").is_some()
}

/// The request that was cut off.
static ID: Mutex<String> = Mutex::new(String::new());

trait ReplaceId {
    fn replace_id(&self) -> Vec<u8>;
}

impl ReplaceId for [u8] {
    fn replace_id(&self) -> Vec<u8> {
        let id = ID.lock().expect("nobody panics").clone();
        String::from_utf8_lossy(self)
            .replace("ID", &id)
            .into_bytes()
    }
}
