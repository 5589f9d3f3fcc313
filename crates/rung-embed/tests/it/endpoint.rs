//! Correct and faulty endpoints over real HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use rung_embed::{
    Embedder, EmbeddingSource, EndpointConfig, EndpointKey, Error, Prefixes, Purpose,
};
use rung_fault::{Code, Coded as _};
use serde_json::{Value, json};

const KEY: &str = "sk-3f9a-very-secret-4711";

/// A received request.
#[derive(Debug, Clone)]
struct ReceivedRequest {
    head: String,
    body: Value,
}

/// The server's response.
enum ServerReply {
    /// Status, additional headers, body.
    Respond(u16, &'static str, String),
    /// The announced length, and the shorter body.
    Truncated(usize, String),
    /// No response until the client disconnects.
    Hang,
}

/// A server whose responses are computed by a closure.
struct EndpointServer {
    url: String,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl EndpointServer {
    fn new(
        answer: impl Fn(usize, &ReceivedRequest) -> ServerReply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let (seen, answer) = (asked.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, answer) = (seen.clone(), answer.clone());
                std::thread::spawn(move || serve(&stream, &seen, &*answer));
            }
        });
        Self { url, asked }
    }

    /// A correct server: the vector of a text is its length and its number of words. The order is reversed.
    fn good() -> Self {
        Self::new(|_, request| ServerReply::Respond(200, "", good_response(request)))
    }

    fn requests(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().unwrap().clone()
    }

    fn config(&self) -> EndpointConfig {
        EndpointConfig {
            url: self.url.clone(),
            model: "small".to_owned(),
            key: EndpointKey::None,
            dimensions: None,
            timeout: Duration::from_secs(20),
        }
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, Error> {
        embed(self.config(), texts)
    }
}

fn embed(said: EndpointConfig, texts: &[&str]) -> Result<Vec<Vec<f32>>, Error> {
    let embedder = Embedder::new(&EmbeddingSource::Endpoint(said), Prefixes::default())?;
    embedder.embed(texts, Purpose::Document, None)
}

fn texts(request: &ReceivedRequest) -> Vec<&str> {
    let input = request.body["input"].as_array().unwrap();
    input.iter().map(|text| text.as_str().unwrap()).collect()
}

fn good_response(request: &ReceivedRequest) -> String {
    let item = |(index, text): (usize, &str)| json!({"object": "embedding", "index": index, "embedding": [text.len(), text.split(' ').count()]});
    let mut data: Vec<Value> = texts(request).into_iter().enumerate().map(item).collect();
    data.reverse();
    json!({"object": "list", "data": data, "model": "small", "usage": {"total_tokens": 3}})
        .to_string()
}

/// The normalized vector of [`good`].
fn expected_vector(text: &str) -> [f32; 2] {
    let pair = [text.len(), text.split(' ').count()];
    let pair = pair.map(|number| f32::from(u16::try_from(number).unwrap()));
    let length = pair[0].hypot(pair[1]);
    pair.map(|number| number / length)
}

fn serve(
    stream: &TcpStream,
    seen: &Mutex<Vec<ReceivedRequest>>,
    answer: &(impl Fn(usize, &ReceivedRequest) -> ServerReply + ?Sized),
) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_it = name.eq_ignore_ascii_case("content-length");
            is_it.then(|| value.trim().parse().unwrap())
        });
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).unwrap();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let request = ReceivedRequest { head, body };
        let at = {
            let mut seen = seen.lock().unwrap();
            seen.push(request.clone());
            seen.len() - 1
        };
        let (length, head, body) = match answer(at, &request) {
            ServerReply::Respond(status, further, body) => (
                body.len(),
                format!("HTTP/1.1 {status} Said\r\n{further}"),
                body,
            ),
            ServerReply::Truncated(length, body) => {
                (length, "HTTP/1.1 200 OK\r\n".to_owned(), body)
            }
            ServerReply::Hang => {
                let _gone = reader.read_line(&mut String::new());
                return;
            }
        };
        let reply = format!(
            "{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        // The client may disconnect early.
        if (&*stream).write_all(reply.as_bytes()).is_err() || length > body.len() {
            return;
        }
    }
}

fn key_file(folder: &Path, key: &str) -> EndpointKey {
    let path = folder.join("key");
    std::fs::write(&path, key).unwrap();
    EndpointKey::File(path)
}

#[test]
fn texts_have_their_vectors_whatever_the_order_they_come_in() {
    let server = EndpointServer::good();
    let many: Vec<String> = (0..150)
        .map(|at| format!("{} b", "a".repeat(1 + at % 40)))
        .collect();
    let mut asked: Vec<&str> = many.iter().map(String::as_str).collect();
    asked.extend(["", " \n "]);
    let vectors = server.embed(&asked).unwrap();
    for (text, vector) in asked.iter().zip(&vectors) {
        let wanted = if text.trim().is_empty() {
            [0.0; 2]
        } else {
            expected_vector(text)
        };
        assert!(
            vector.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-6),
            "{text:?} {vector:?}"
        );
    }
    // Requests are full batches; blank texts are not sent.
    let requests = server.requests();
    let counts: Vec<usize> = requests
        .iter()
        .map(|request| texts(request).len())
        .collect();
    assert_eq!(counts, [64, 64, 22]);
    assert!(
        requests[0].head.starts_with("POST /v1/embeddings HTTP/1.1"),
        "{}",
        requests[0].head
    );
    assert_eq!(requests[0].body["model"], "small");
    assert!(!requests[0].head.to_lowercase().contains("authorization"));
    // Long texts make smaller batches; a text over the limit is sent alone.
    let server = EndpointServer::good();
    let long = [
        "x".repeat(200_000),
        "y".repeat(100_000),
        "z".repeat(300_000),
    ];
    server.embed(&long.each_ref().map(String::as_str)).unwrap();
    let counts: Vec<usize> = server
        .requests()
        .iter()
        .map(|request| texts(request).len())
        .collect();
    assert_eq!(counts, [1, 1, 1]);
}

#[test]
fn the_dimensions_are_asked_for_where_they_are_not_known() {
    let server = EndpointServer::good();
    let known = |dimensions| {
        let said = EndpointConfig {
            dimensions,
            ..server.config()
        };
        Embedder::new(&EmbeddingSource::Endpoint(said), Prefixes::default()).unwrap()
    };
    assert_eq!(known(Some(7)).dimensions().unwrap(), 7);
    assert_eq!(server.requests().len(), 0);
    let embedder = known(None);
    assert_eq!(embedder.dimensions().unwrap(), 2);
    assert_eq!(embedder.dimensions().unwrap(), 2);
    assert_eq!(server.requests().len(), 1);
    assert_eq!(embedder.id(), "endpoint:small");
    let error = known(Some(7))
        .embed(&["a"], Purpose::Query, None)
        .unwrap_err();
    assert!(error.to_string().contains("2 numbers, not 7"), "{error}");
}

#[test]
fn a_busy_endpoint_is_asked_again() {
    let server = EndpointServer::new(|at, request| match at {
        0 => ServerReply::Respond(429, "Retry-After: 1\r\n", String::new()),
        1 => ServerReply::Respond(503, "", "<html>".to_owned()),
        2 => ServerReply::Truncated(1_000, "{".to_owned()),
        _ => ServerReply::Respond(200, "", good_response(request)),
    });
    let vectors = server.embed(&["a b"]).unwrap();
    assert_eq!(vectors.len(), 1);
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn an_endpoint_that_stays_busy_is_given_up() {
    for (further, hint) in [
        ("Retry-After: 86400\r\n", "in 86400 seconds"),
        ("Retry-After: Fri, 31 Dec 2100 23:59:59 GMT\r\n", " seconds"),
    ] {
        let server =
            EndpointServer::new(move |_, _| ServerReply::Respond(429, further, String::new()));
        let error = server.embed(&["a"]).unwrap_err();
        assert_eq!(error.code(), Code::SourceFailed);
        assert!(error.hint().unwrap().contains(hint), "{:?}", error.hint());
        assert_eq!(server.requests().len(), 1, "it would not be in time");
    }
    let server = EndpointServer::new(|_, _| ServerReply::Respond(500, "", String::new()));
    let error = server.embed(&["a"]).unwrap_err();
    assert!(matches!(error, Error::Busy { status: 500, .. }), "{error}");
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn every_request_ends_by_its_deadline() {
    let server = EndpointServer::new(|_, _| ServerReply::Hang);
    let patience = Duration::from_millis(300);
    let said = || EndpointConfig {
        timeout: patience,
        ..server.config()
    };
    let error = embed(said(), &["a"]).unwrap_err();
    assert_eq!(error.code(), Code::SourceUnavailable);
    let patient = EndpointConfig {
        timeout: Duration::from_hours(1),
        ..server.config()
    };
    let embedder = Embedder::new(&EmbeddingSource::Endpoint(patient), Prefixes::default()).unwrap();
    let ends = Some(Instant::now() + patience);
    let error = embedder.embed(&["a"], Purpose::Query, ends).unwrap_err();
    assert!(matches!(error, Error::TimedOut), "{error}");
    // Nor if nothing listens: a port that is probably free.
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let nobody = EndpointConfig {
        url: format!("http://{gone}/v1"),
        ..said()
    };
    let error = embed(nobody, &["a"]).unwrap_err();
    assert_eq!(error.code(), Code::SourceUnavailable);
    assert!(!error.to_string().contains("127.0.0.1"), "{error}");
}

#[test]
fn what_are_no_vectors_is_refused() {
    let vector =
        |index: usize, numbers: &str| format!("{{\"index\":{index},\"embedding\":{numbers}}}");
    let data = |items: &[String]| format!("{{\"data\":[{}]}}", items.join(","));
    let (good, other) = (vector(0, "[1,2]"), vector(1, "[3,4]"));
    let bodies = [
        (
            data(&[good.clone(), vector(1, "[1,2,3]")]),
            "3 numbers, not 2",
        ),
        (data(&[vector(0, "[]"), vector(1, "[]")]), "0 numbers"),
        (data(std::slice::from_ref(&good)), "fewer than 2"),
        (data(&[good.clone(), good.clone()]), "text 0 of 2"),
        (data(&[good.clone(), vector(2, "[3,4]")]), "text 2 of 2"),
        (
            data(&[good.clone(), other.clone(), vector(7, "[5,6]")]),
            "text 7 of 2",
        ),
        (
            data(&[vector(0, "[NaN,1]"), other.clone()]),
            "unexpected JSON",
        ),
        (
            data(&[vector(0, "[null,1]"), other.clone()]),
            "unexpected JSON",
        ),
        (
            data(&[vector(0, "[1e39,1]"), other.clone()]),
            "unexpected JSON",
        ),
        (
            data(&[vector(0, "[1e999,1]"), other.clone()]),
            "unexpected JSON",
        ),
        (data(&[vector(0, "[0,0]"), other.clone()]), "zeros"),
        (
            data(&[vector(0, "\"AACAPwAAAEA=\""), other]),
            "unexpected JSON",
        ),
        ("[]".to_owned(), "unexpected JSON"),
        (String::new(), "unexpected JSON"),
        ("<html>hello</html>".to_owned(), "unexpected JSON"),
    ];
    for (body, why) in bodies {
        let sent = body.clone();
        let server = EndpointServer::new(move |_, _| ServerReply::Respond(200, "", sent.clone()));
        let error = server.embed(&["a", "b"]).unwrap_err();
        assert_eq!(error.code(), Code::SourceFailed, "{body}");
        assert!(error.to_string().contains(why), "{body}: {error}");
        assert_eq!(
            server.requests().len(),
            1,
            "{body}: it would be the same again"
        );
    }
}

#[test]
fn an_answer_without_end_is_not_read_to_its_end() {
    // The limits with known and with unknown dimensions.
    for (dimensions, length) in [(Some(2), 200_000), (None, 80 << 20)] {
        let body = " ".repeat(length);
        let server = EndpointServer::new(move |_, _| ServerReply::Respond(200, "", body.clone()));
        let said = EndpointConfig {
            dimensions,
            ..server.config()
        };
        let error = embed(said, &["a"]).unwrap_err();
        assert!(error.to_string().contains("longer than"), "{error}");
    }
}

#[test]
fn redirects_are_not_followed() {
    let elsewhere = EndpointServer::good();
    let place: &'static str = format!("Location: {}/embeddings\r\n", elsewhere.url).leak();
    for status in [301, 302, 307, 308] {
        let server =
            EndpointServer::new(move |_, _| ServerReply::Respond(status, place, String::new()));
        let error = server.embed(&["a"]).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{status}: {error}");
    }
    assert_eq!(elsewhere.requests().len(), 0);
}

#[test]
fn the_key_goes_there_and_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let (told, heard) = mpsc::channel();
    let told = Mutex::new(told);
    // The endpoint echoes the key in its message.
    let server = EndpointServer::new(move |at, request| {
        let key = request.head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("authorization").then_some(value)
        });
        let key = key.unwrap_or_default().to_owned();
        told.lock().unwrap().send(key.clone()).unwrap();
        let part = key.get(9..20).unwrap_or_default();
        let (status, said) = [
            (400, json!({"error": {"message": format!("bad key {key}")}})),
            (
                400,
                json!({"error": {"message": format!("bad key {part}****")}}),
            ),
            (404, json!({"error": format!("no model for {key}")})),
            (
                401,
                json!({"error": {"message": format!("bad key {part}")}}),
            ),
            (403, json!({"error": {"message": "no such key"}})),
            (200, json!({"data": key})),
            (200, json!({"data": [{"index": 0, "embedding": [key]}]})),
            (
                400,
                json!({"error": {"message": "input is too long\u{1b}[31m"}}),
            ),
        ][at % 8]
            .clone();
        ServerReply::Respond(status, "", said.to_string())
    });
    let said = || EndpointConfig {
        key: key_file(folder.path(), &format!("{KEY}\nwhat else there is\n")),
        ..server.config()
    };
    let mut seen = Vec::new();
    for _ in 0..8 {
        let error = embed(said(), &["a"]).unwrap_err();
        let all = format!("{error} {error:?} {:?}", error.hint());
        assert!(!all.contains("secret") && !all.contains("sk-3f9a"), "{all}");
        assert_eq!(heard.recv().unwrap(), format!("Bearer {KEY}"));
        seen.push(error);
    }
    assert_eq!(seen[3].code(), Code::SourceUnauthorized);
    assert_eq!(seen[4].code(), Code::SourceUnauthorized);
    // A message without a part of the key is shown.
    assert!(
        seen[7].to_string().contains("input is too long [31m"),
        "{}",
        seen[7]
    );
    let endpoint = Embedder::new(&EmbeddingSource::Endpoint(said()), Prefixes::default()).unwrap();
    assert!(!format!("{endpoint:?}").contains("secret"));
}

#[test]
fn a_key_is_read_from_its_configured_location() {
    let folder = tempfile::tempdir().unwrap();
    let server = EndpointServer::good();
    let with = |key: EndpointKey| {
        let said = EndpointConfig {
            key,
            ..server.config()
        };
        embed(said, &["a"])
    };
    with(key_file(folder.path(), &format!("  {KEY}  \n"))).unwrap();
    // Cargo sets this variable for every test.
    with(EndpointKey::Variable("CARGO_PKG_NAME".to_owned())).unwrap();
    let sent = server.requests();
    assert!(
        sent[1].head.contains("Bearer rung-embed"),
        "{}",
        sent[1].head
    );
    for key in [
        EndpointKey::Variable("NOBODY_SETS_THIS".to_owned()),
        EndpointKey::File(folder.path().join("nowhere")),
        key_file(folder.path(), ""),
        key_file(folder.path(), "two words"),
        key_file(folder.path(), "sk\u{7}\r\nInjected: yes"),
    ] {
        let error = with(key.clone()).unwrap_err();
        assert!(matches!(error, Error::Key(_)), "{key:?}: {error}");
    }
    assert_eq!(server.requests().len(), 2, "nothing was sent without it");
}

#[test]
fn a_key_is_not_sent_in_the_open() {
    let said = |url: &str| EndpointConfig {
        url: url.to_owned(),
        model: "small".to_owned(),
        key: EndpointKey::Variable("CARGO_PKG_NAME".to_owned()),
        dimensions: None,
        timeout: Duration::from_secs(1),
    };
    let made =
        |said: EndpointConfig| Embedder::new(&EmbeddingSource::Endpoint(said), Prefixes::default());
    assert!(
        made(said("http://example.com/v1"))
            .unwrap_err()
            .to_string()
            .contains("https")
    );
    made(said("https://example.com/v1/")).unwrap();
    made(said("http://127.0.0.1:1/v1")).unwrap();
    made(EndpointConfig {
        key: EndpointKey::None,
        ..said("http://example.com/v1")
    })
    .unwrap();
    assert!(made(said("no address")).is_err());
    assert!(
        made(EndpointConfig {
            model: String::new(),
            ..said("https://example.com")
        })
        .is_err()
    );
}

/// Also from an async context.
#[test]
fn it_can_be_asked_from_anywhere() {
    let server = EndpointServer::good();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        assert_eq!(server.embed(&["a"]).unwrap().len(), 1);
    });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(server.embed(&["a", "b"]).unwrap().len(), 2));
        }
    });
}
