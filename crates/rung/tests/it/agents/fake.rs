//! A provider that says what it is told to, and remembers what it was asked.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// What was asked of it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Path and query, as they came.
    pub(crate) target: String,
    pub(crate) authorization: String,
}

impl Asked {
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap()
    }

    /// The parameters, as they are meant.
    pub(crate) fn pairs(&self) -> Vec<(String, String)> {
        let query = self.target.split_once('?').map_or("", |(_, query)| query);
        form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect()
    }

    pub(crate) fn has(&self, name: &str, value: &str) -> bool {
        self.pairs().contains(&(name.to_owned(), value.to_owned()))
    }

    pub(crate) fn names(&self, name: &str) -> bool {
        self.pairs().iter().any(|(own, _)| own == name)
    }
}

/// What it answers: the bytes, from the status line on.
pub(crate) type Says = dyn Fn(&Asked, &mut TcpStream) + Send + Sync;

pub(crate) struct Provider {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Provider {
    /// Answers with JSON.
    pub(crate) fn of(says: impl Fn(&Asked) -> (u16, Value) + Send + Sync + 'static) -> Self {
        Self::raw(move |asked, stream| {
            let (status, body) = says(asked);
            answer(
                stream,
                status,
                "application/json",
                "Request-Id: req_fake\r\n",
                body.to_string().as_bytes(),
            );
        })
    }

    /// Answers with whatever it likes.
    pub(crate) fn raw(says: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (says, seen): (Arc<Says>, _) = (Arc::new(says), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { break };
                let (says, seen) = (says.clone(), seen.clone());
                std::thread::spawn(move || serve(stream, &*says, &seen));
            }
        });
        Self { address, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// What was asked last.
    pub(crate) fn last(&self) -> Asked {
        self.asked().last().expect("it was asked").clone()
    }
}

fn serve(stream: TcpStream, says: &Says, seen: &Mutex<Vec<Asked>>) {
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
        let asked = Asked {
            target,
            authorization,
        };
        seen.lock().unwrap().push(asked.clone());
        says(&asked, &mut writer);
    }
}

/// An answer on a connection that stays.
pub(crate) fn answer(stream: &mut TcpStream, status: u16, kind: &str, more: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{more}Content-Length: {}\r\n\r\n",
        body.len()
    );
    // At once: whoever waits for a second part waits long.
    let _gone = stream.write_all(&[head.as_bytes(), body].concat());
}
