//! Finds the id of an oversized request while the request is skipped.

use serde_json::value::RawValue;

use crate::envelope::{MAX_ID_BYTES, RequestId};

/// Scans the top-level members of a message, piece by piece, and stores no more than an id.
#[derive(Debug, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "the state of a scanner, each of them independent of the others"
)]
pub(crate) struct IdScanner {
    /// Number of open objects and arrays.
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// True in the value of a top-level member, false in its name.
    in_value: bool,
    /// The top-level name or value being read, up to the length of an id.
    text: Vec<u8>,
    member: ScannedMember,
    id: Option<RequestId>,
    has_method: bool,
}

#[derive(Debug, Default, Clone, Copy)]
enum ScannedMember {
    Id,
    Method,
    #[default]
    Other,
}

impl IdScanner {
    pub(crate) fn push(&mut self, piece: &[u8]) {
        for byte in piece {
            self.push_byte(*byte);
        }
    }

    /// Returns the id if the message is a request. A response has an id as well, but is not answered.
    pub(crate) fn into_id(self) -> Option<RequestId> {
        self.id.filter(|_| self.has_method)
    }

    fn push_byte(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
        } else {
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    self.depth += 1;
                    return;
                }
                b'}' | b']' => {
                    if self.depth == 1 {
                        self.end_member();
                    }
                    self.depth = self.depth.saturating_sub(1);
                    return;
                }
                b':' if self.depth == 1 && !self.in_value => {
                    self.member = match &self.text[..] {
                        br#""id""# => ScannedMember::Id,
                        br#""method""# => ScannedMember::Method,
                        _ => ScannedMember::Other,
                    };
                    self.text.clear();
                    self.in_value = true;
                    return;
                }
                b',' if self.depth == 1 => {
                    self.end_member();
                    return;
                }
                b' ' | b'\t' | b'\r' | b'\n' => return,
                _ => {}
            }
        }
        if self.depth == 1 && self.text.len() <= MAX_ID_BYTES {
            self.text.push(byte);
        }
    }

    fn end_member(&mut self) {
        match self.member {
            ScannedMember::Id => {
                let raw: Option<&RawValue> = serde_json::from_slice(&self.text).ok();
                self.id = raw.and_then(RequestId::parse);
            }
            ScannedMember::Method => self.has_method = true,
            ScannedMember::Other => {}
        }
        self.in_value = false;
        self.member = ScannedMember::Other;
        self.text.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_request_is_found_wherever_it_stands() {
        for (message, id) in [
            (r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#, Some("7")),
            (
                r#"{"method":"m","params":{"id":1,"x":["a\"}",{"id":2}]},"jsonrpc":"2.0","id":"a,b"}"#,
                Some(r#""a,b""#),
            ),
            (
                "{ \"id\" : \"x\\\"y\" ,\r\n \"method\" : \"m\" }",
                Some(r#""x\"y""#),
            ),
            // Cut off after the id.
            (
                r#"{"id":-3,"method":"m","params":{"text":"aaaa"#,
                Some("-3"),
            ),
            // Not requests, or not with an id.
            (r#"{"id":7,"result":{"method":"m"}}"#, None),
            (r#"{"method":"m","params":{"id":1}}"#, None),
            (r#"{"method":"m","id":null}"#, None),
            (r#"{"method":"m","id":{"a":1}}"#, None),
            (r#"{"method":"m","id":[1]}"#, None),
            (r#"[{"method":"m","id":1}]"#, None),
            (r#"}}]{"method":"m","id":1}"#, Some("1")),
            ("", None),
        ] {
            for size in [1, 3, 1_000] {
                let mut scanner = IdScanner::default();
                for piece in message.as_bytes().chunks(size) {
                    scanner.push(piece);
                }
                let found = scanner.into_id();
                assert_eq!(found.as_ref().map(RequestId::as_json), id, "{message}");
            }
        }
        let mut scanner = IdScanner::default();
        let long = "9".repeat(2_000);
        scanner.push(format!(r#"{{"method":"m","id":"{long}"}}"#).as_bytes());
        assert!(scanner.text.capacity() < 2 * MAX_ID_BYTES + 64);
        assert_eq!(scanner.into_id(), None);
    }
}
