//! A fake provider: answers as a closure decides and records every request.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// A request as the provider received it.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    /// Path and query, not decoded.
    pub(crate) target: String,
    pub(crate) authorization: String,
}

impl RecordedRequest {
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap()
    }

    /// The decoded query parameters.
    pub(crate) fn query_pairs(&self) -> Vec<(String, String)> {
        let query = self.target.split_once('?').map_or("", |(_, query)| query);
        form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect()
    }

    pub(crate) fn has_param(&self, name: &str, value: &str) -> bool {
        self.query_pairs()
            .contains(&(name.to_owned(), value.to_owned()))
    }

    pub(crate) fn has_param_named(&self, name: &str) -> bool {
        self.query_pairs().iter().any(|(own, _)| own == name)
    }
}

/// Writes the raw response, from the status line on.
pub(crate) type Responder = dyn Fn(&RecordedRequest, &mut TcpStream) + Send + Sync;

pub(crate) struct FakeProvider {
    pub(crate) address: String,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl FakeProvider {
    /// Starts a provider that answers with JSON.
    pub(crate) fn with_json(
        says: impl Fn(&RecordedRequest) -> (u16, Value) + Send + Sync + 'static,
    ) -> Self {
        Self::with_responder(move |asked, stream| {
            let (status, body) = says(asked);
            write_response(
                stream,
                status,
                "application/json",
                "Request-Id: req_fake\r\n",
                body.to_string().as_bytes(),
            );
        })
    }

    /// Starts a provider whose closure writes the raw response.
    pub(crate) fn with_responder(
        says: impl Fn(&RecordedRequest, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests: Arc<Mutex<Vec<RecordedRequest>>> = Arc::default();
        let (says, seen): (Arc<Responder>, _) = (Arc::new(says), requests.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { break };
                let (says, seen) = (says.clone(), seen.clone());
                std::thread::spawn(move || serve(stream, &*says, &seen));
            }
        });
        Self { address, requests }
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn last_request(&self) -> RecordedRequest {
        self.requests().last().expect("it was asked").clone()
    }
}

fn serve(stream: TcpStream, says: &Responder, seen: &Mutex<Vec<RecordedRequest>>) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let (mut authorization, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or_default();
            match name.to_ascii_lowercase().as_str() {
                "authorization" => value.trim().clone_into(&mut authorization),
                "content-length" => length = value.trim().parse().unwrap_or(0),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        let _all_of_it = reader.read_exact(&mut body);
        let asked = RecordedRequest {
            target,
            authorization,
        };
        seen.lock().unwrap().push(asked.clone());
        says(&asked, &mut writer);
    }
}

/// Writes a response and keeps the connection open.
pub(crate) fn write_response(
    stream: &mut TcpStream,
    status: u16,
    kind: &str,
    more: &str,
    body: &[u8],
) {
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{more}Content-Length: {}\r\n\r\n",
        body.len()
    );
    // One write: a second packet could be delayed by the network stack.
    let _gone = stream.write_all(&[head.as_bytes(), body].concat());
}
