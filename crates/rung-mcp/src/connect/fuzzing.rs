//! Entry points of the fuzzer into the parsers of server bytes.

use std::io::{Read as _, Write as _};

use super::incoming::{ReceivedMessage, parse_long_response_blocking};
use super::sse::SseParser;

/// Returns the data of all events in `bytes`, which are parsed in chunks of these lengths.
pub fn events(bytes: &[u8], lengths: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut events = SseParser::default();
    let mut found = Vec::new();
    let mut lengths = lengths.iter().copied().chain(std::iter::repeat(u8::MAX));
    let mut rest = bytes;
    while !rest.is_empty() {
        let length = usize::from(lengths.next().unwrap_or(1)).clamp(1, rest.len());
        let (piece, later) = rest.split_at(length);
        rest = later;
        for event in events.push(piece).expect("it is short") {
            let ReceivedMessage::Short(data) = event.data else {
                panic!("it is short");
            };
            found.push((event.kind, data));
        }
    }
    found
}

/// Returns the id and the result of a message that is parsed from a file.
pub fn long_message(bytes: &[u8]) -> Option<(String, String)> {
    let mut file = tempfile::tempfile().expect("a disk");
    file.write_all(bytes).expect("a disk");
    let found = parse_long_response_blocking(file).expect("a disk")?;
    let mut result = String::new();
    let long = found.outcome.ok()?.open().expect("a disk");
    { long.body }.read_to_string(&mut result).ok()?;
    Some((found.id.as_json().to_owned(), result))
}
