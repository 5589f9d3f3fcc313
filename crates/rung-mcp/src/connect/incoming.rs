//! Buffering of incoming messages: in memory while short, in a temporary file beyond that.
//!
//! A long message is written to an unnamed file and scanned once for its members; its result is then read from the file
//! in pieces.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::ops::Range;

use rung_fault::{Code, Fault};
use rung_tool::{LongResult, RelayedResult};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::envelope::RequestId;

/// Bytes of one message that are held in memory.
pub(super) const MEMORY_BYTES: usize = 4 << 20;
/// Bytes of one message.
const MAX_BYTES: u64 = 1 << 30;
/// Bytes of a member name, or of a short value such as an id, that are kept while scanning.
const MAX_NAME_BYTES: usize = 1 << 10;
/// Bytes of an error in a long message that are read.
const MAX_ERROR_BYTES: u64 = 64 << 10;

/// A message that is being received.
#[derive(Debug, Default)]
pub(super) struct MessageBuffer {
    memory: Vec<u8>,
    file: Option<File>,
    bytes: u64,
}

/// The reason why a message is rejected.
#[derive(Debug, thiserror::Error)]
pub(super) enum BufferError {
    #[error("the message has more than {MAX_BYTES} bytes")]
    TooLong,
    #[error("cannot store a long message: {0}")]
    Disk(#[from] io::Error),
}

/// A complete message: in memory, or a file and its length.
#[derive(Debug)]
pub(super) enum ReceivedMessage {
    Short(Vec<u8>),
    Long(File, u64),
}

impl MessageBuffer {
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), BufferError> {
        self.bytes += bytes.len() as u64;
        if self.bytes > MAX_BYTES {
            return Err(BufferError::TooLong);
        }
        if let Some(file) = &mut self.file {
            return Ok(file.write_all(bytes)?);
        }
        if self.memory.len() + bytes.len() <= MEMORY_BYTES {
            self.memory.extend_from_slice(bytes);
            return Ok(());
        }
        let mut file = tempfile::tempfile()?;
        file.write_all(&self.memory)?;
        file.write_all(bytes)?;
        self.memory = Vec::new();
        self.file = Some(file);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(super) fn finish(&mut self) -> ReceivedMessage {
        let Self {
            memory,
            file,
            bytes,
        } = std::mem::take(self);
        match file {
            Some(file) => ReceivedMessage::Long(file, bytes),
            None => ReceivedMessage::Short(memory),
        }
    }
}

/// A server's result, unchanged.
#[derive(Debug)]
pub enum ServerResult {
    InMemory(Box<RawValue>),
    /// In a file.
    InFile(LongServerResult),
}

impl ServerResult {
    /// Converts the result for relaying. If its file cannot be read, the fault says that the call was done.
    pub fn into_relayed(self) -> Result<RelayedResult, Fault> {
        match self {
            Self::InMemory(result) => Ok(RelayedResult::InMemory(result)),
            Self::InFile(long) => long.open().map(RelayedResult::Long).map_err(|error| {
                let why = format!("the call succeeded, but its result could not be read: {error}");
                Fault::new(Code::SourceFailed, why)
            }),
        }
    }
}

/// A result in a file.
#[derive(Debug)]
pub struct LongServerResult {
    file: File,
    span: Range<u64>,
    is_error: bool,
}

/// Limits on the items of a long list.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemLimits {
    /// Bytes of one item.
    pub(super) item_bytes: usize,
    /// Bytes of all items.
    pub(super) total_bytes: usize,
}

/// A list in a long result.
#[derive(Debug, Default)]
pub(super) struct LongList {
    pub(super) items: Vec<Box<RawValue>>,
    /// The `name` and the size in bytes of each item that is too long.
    pub(super) oversized: Vec<(String, usize)>,
    /// True if items were left out because of the total limit.
    pub(super) cut: bool,
    /// The other short members of the result, as an object.
    pub(super) rest: String,
}

impl LongServerResult {
    /// Reads the items of the array in this member, one at a time. Returns `None` if there is no such array.
    pub(super) async fn items(
        self,
        member: &'static str,
        limits: ItemLimits,
    ) -> io::Result<Option<LongList>> {
        let reading = tokio::task::spawn_blocking(move || self.read_items(member, limits));
        reading.await.map_err(io::Error::other)?
    }

    fn read_items(&self, member: &str, limits: ItemLimits) -> io::Result<Option<LongList>> {
        let (mut array, mut rest) = (None, Vec::new());
        let whole = self.scan(&self.span)?.for_each_member(|name, span, _| {
            let is_short = span.end - span.start <= MAX_NAME_BYTES as u64;
            if name == member.as_bytes() {
                array = Some(span);
            } else if is_short && let Ok(name) = std::str::from_utf8(name) {
                rest.push((name.to_owned(), span));
            }
        })?;
        let (Some(array), true) = (array, whole) else {
            return Ok(None);
        };
        let absolute = |start: u64, span: &Range<u64>| start + span.start..start + span.end;
        let array = absolute(self.span.start, &array);
        let mut spans = Vec::new();
        if !self.scan(&array)?.for_each_item(|span| spans.push(span))? {
            return Ok(None);
        }
        let mut list = LongList::default();
        let mut room = limits.total_bytes;
        for span in spans {
            let span = absolute(array.start, &span);
            let bytes = usize::try_from(span.end - span.start).unwrap_or(usize::MAX);
            if bytes > limits.item_bytes {
                list.oversized.push((self.item_name(&span)?, bytes));
            } else if bytes > room {
                list.cut = true;
            } else {
                room -= bytes;
                list.items.push(RawValue::from_string(self.text(&span)?)?);
            }
        }
        let mut members = serde_json::Map::new();
        for (name, span) in rest {
            let text = self.text(&absolute(self.span.start, &span))?;
            members.insert(name, serde_json::from_str(&text)?);
        }
        list.rest = serde_json::Value::from(members).to_string();
        Ok(Some(list))
    }

    /// Returns the `name` of an object, or an empty string if it is missing, too long or escaped.
    fn item_name(&self, span: &Range<u64>) -> io::Result<String> {
        let mut found = String::new();
        self.scan(span)?.for_each_member(|name, _, text| {
            if name == b"name" {
                found = serde_json::from_slice(text).unwrap_or_default();
            }
        })?;
        Ok(found)
    }

    fn scan(&self, span: &Range<u64>) -> io::Result<JsonScanner<io::Take<&File>>> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(span.start))?;
        let part = file.take(span.end - span.start);
        Ok(JsonScanner {
            input: BufReader::with_capacity(64 << 10, part),
            offset: 0,
        })
    }

    fn text(&self, span: &Range<u64>) -> io::Result<String> {
        let mut text = String::new();
        self.scan(span)?.input.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Opens the result for reading.
    pub fn open(self) -> io::Result<LongResult> {
        let is_error = self.is_error;
        let (file, bytes) = self.into_file()?;
        LongResult::read(is_error, file.take(bytes))
    }

    /// Returns the result's `isError`.
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// Returns the file, positioned at the result's first byte, and the result's length.
    pub fn into_file(mut self) -> io::Result<(File, u64)> {
        self.file.seek(SeekFrom::Start(self.span.start))?;
        Ok((self.file, self.span.end - self.span.start))
    }
}

/// A parsed long response. Long messages of other kinds are ignored.
pub(super) struct LongResponse {
    pub(super) id: RequestId,
    pub(super) outcome: Result<LongServerResult, Box<RawValue>>,
}

/// Parses a long message on a blocking thread. Returns `None` if it is no response.
pub(super) async fn parse_long_response(file: File, bytes: u64) -> Option<LongResponse> {
    let looking = tokio::task::spawn_blocking(move || parse_long_response_blocking(file));
    let found = looking.await.ok()?.ok().flatten();
    if found.is_none() {
        tracing::warn!(bytes, "ignored a long message that is not a response");
    }
    found
}

/// Parses a long message. Returns `None` if it is no response.
pub(super) fn parse_long_response_blocking(mut file: File) -> io::Result<Option<LongResponse>> {
    file.rewind()?;
    let mut scan = JsonScanner {
        input: BufReader::with_capacity(64 << 10, &file),
        offset: 0,
    };
    let Some(found) = scan.members()? else {
        return Ok(None);
    };
    let Some(id) = found.id.and_then(|raw| RequestId::parse(&raw)) else {
        return Ok(None);
    };
    let (is_error, place) = match (found.result, found.error) {
        (Some(result), None) => (false, result),
        (None, Some(error)) => (true, error),
        _ => return Ok(None),
    };
    file.seek(SeekFrom::Start(place.start))?;
    if is_error {
        let mut text = Vec::new();
        let length = place.end - place.start;
        (&file)
            .take(length.min(MAX_ERROR_BYTES))
            .read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let error = RawValue::from_string(text).or_else(|_| {
            RawValue::from_string(r#"{"message":"an error of many bytes"}"#.to_owned())
        })?;
        return Ok(Some(LongResponse {
            id,
            outcome: Err(error),
        }));
    }
    // Later readers rely on valid JSON.
    let body = BufReader::with_capacity(64 << 10, (&file).take(place.end - place.start));
    if serde_json::from_reader::<_, IgnoredAny>(body).is_err() {
        return Ok(None);
    }
    // `isError` must be known also for a long result.
    file.seek(SeekFrom::Start(place.start))?;
    let mut scan = JsonScanner {
        input: BufReader::with_capacity(64 << 10, (&file).take(place.end - place.start)),
        offset: 0,
    };
    let is_error = scan.members()?.is_some_and(|found| found.is_error);
    Ok(Some(LongResponse {
        id,
        outcome: Ok(LongServerResult {
            file,
            span: place,
            is_error,
        }),
    }))
}

/// The members of a message or result that matter here.
#[derive(Default)]
struct ResponseMembers {
    id: Option<Box<RawValue>>,
    result: Option<Range<u64>>,
    error: Option<Range<u64>>,
    /// `isError`, of a result.
    is_error: bool,
}

/// A value that was skipped.
struct ScannedValue {
    span: Range<u64>,
    /// The beginning of the value.
    text: Vec<u8>,
    /// The next byte after the value that is not whitespace.
    after: Option<u8>,
}

/// Scans one object or array once, checking only its structure.
struct JsonScanner<R> {
    input: BufReader<R>,
    offset: u64,
}

impl<R: Read> JsonScanner<R> {
    fn next_byte(&mut self) -> io::Result<Option<u8>> {
        let mut byte = [0];
        if self.input.read(&mut byte)? == 0 {
            return Ok(None);
        }
        self.offset += 1;
        Ok(Some(byte[0]))
    }

    fn next_non_space(&mut self) -> io::Result<Option<u8>> {
        loop {
            match self.next_byte()? {
                Some(b' ' | b'\t' | b'\n' | b'\r') => {}
                other => return Ok(other),
            }
        }
    }

    /// Returns `None` if the value is not an object.
    fn members(&mut self) -> io::Result<Option<ResponseMembers>> {
        let mut found = ResponseMembers::default();
        let whole = self.for_each_member(|name, span, text| match name {
            b"id" => {
                let text = String::from_utf8(text.to_owned()).unwrap_or_default();
                found.id = RawValue::from_string(text.trim_end().to_owned()).ok();
            }
            b"result" => found.result = Some(span),
            b"error" => found.error = Some(span),
            b"isError" => found.is_error = text.trim_ascii() == b"true",
            _ => {}
        })?;
        Ok(whole.then_some(found))
    }

    /// Visits the members of an object with name, span and beginning of the value. Returns false if the value is not an
    /// object with at least one member.
    fn for_each_member(
        &mut self,
        mut visit: impl FnMut(&[u8], Range<u64>, &[u8]),
    ) -> io::Result<bool> {
        if self.next_non_space()? != Some(b'{') {
            return Ok(false);
        }
        let mut next = self.next_non_space()?;
        while next == Some(b'"') {
            let Some(name) = self.read_string()? else {
                return Ok(false);
            };
            if self.next_non_space()? != Some(b':') {
                return Ok(false);
            }
            let Some(first) = self.next_non_space()? else {
                return Ok(false);
            };
            let Some(value) = self.skip_value_spanned(first)? else {
                return Ok(false);
            };
            visit(&name, value.span, &value.text);
            match value.after {
                Some(b',') => next = self.next_non_space()?,
                Some(b'}') => return Ok(true),
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Visits the items of an array with their spans. Returns false if the value is not an array.
    fn for_each_item(&mut self, mut visit: impl FnMut(Range<u64>)) -> io::Result<bool> {
        if self.next_non_space()? != Some(b'[') {
            return Ok(false);
        }
        let mut next = self.next_non_space()?;
        if next == Some(b']') {
            return Ok(true);
        }
        while let Some(first) = next {
            let Some(value) = self.skip_value_spanned(first)? else {
                return Ok(false);
            };
            visit(value.span);
            match value.after {
                Some(b',') => next = self.next_non_space()?,
                Some(b']') => return Ok(true),
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Skips a value that begins with `first`.
    fn skip_value_spanned(&mut self, first: u8) -> io::Result<Option<ScannedValue>> {
        let start = self.offset - 1;
        let Some((text, after)) = self.skip_value(first)? else {
            return Ok(None);
        };
        let span = start..self.offset - u64::from(after.is_some());
        let after = match after {
            Some(b' ' | b'\t' | b'\n' | b'\r') | None => self.next_non_space()?,
            after => after,
        };
        Ok(Some(ScannedValue { span, text, after }))
    }

    /// Reads the rest of a string after its opening quote. Of a long string only the beginning is returned.
    fn read_string(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut text = Vec::new();
        loop {
            let piece = self.input.fill_buf()?;
            if piece.is_empty() {
                return Ok(None);
            }
            let end = memchr::memchr2(b'"', b'\\', piece);
            let part = &piece[..end.unwrap_or(piece.len())];
            let room = MAX_NAME_BYTES.saturating_sub(text.len());
            text.extend_from_slice(&part[..part.len().min(room)]);
            let passed = part.len();
            self.input.consume(passed);
            self.offset += passed as u64;
            if end.is_none() {
                continue;
            }
            match self.next_byte()? {
                Some(b'"') => return Ok(Some(text)),
                // Escapes are not decoded: no searched name contains one.
                Some(escape) => {
                    text.push(escape);
                    if self.next_byte()?.is_none() {
                        return Ok(None);
                    }
                }
                None => return Ok(None),
            }
        }
    }

    /// Skips a value that begins with `first`. Returns the beginning of its text, and the byte after it if that had to be
    /// read to find the end.
    fn skip_value(&mut self, first: u8) -> io::Result<Option<(Vec<u8>, Option<u8>)>> {
        let mut text = vec![first];
        if first == b'"' {
            let Some(rest) = self.read_string()? else {
                return Ok(None);
            };
            text.extend(rest);
            text.push(b'"');
            return Ok(Some((text, None)));
        }
        if !matches!(first, b'{' | b'[') {
            loop {
                match self.next_byte()? {
                    Some(byte @ (b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r')) => {
                        return Ok(Some((text, Some(byte))));
                    }
                    Some(byte) if text.len() < MAX_NAME_BYTES => text.push(byte),
                    Some(_) => {}
                    None => return Ok(None),
                }
            }
        }
        let mut depth = 1_u64;
        while depth > 0 {
            match self.next_byte()? {
                Some(b'"') => {
                    if self.read_string()?.is_none() {
                        return Ok(None);
                    }
                }
                Some(b'{' | b'[') => depth += 1,
                Some(b'}' | b']') => depth -= 1,
                Some(_) => {}
                None => return Ok(None),
            }
        }
        Ok(Some((text, None)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Option<(String, Result<String, String>)> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        let found = parse_long_response_blocking(file).unwrap()?;
        let outcome = match found.outcome {
            Ok(long) => {
                let mut text = String::new();
                long.open().unwrap().body.read_to_string(&mut text).unwrap();
                Ok(text)
            }
            Err(error) => Err(error.get().to_owned()),
        };
        Some((found.id.as_json().to_owned(), outcome))
    }

    #[test]
    fn a_long_response_is_parsed_in_any_member_order() {
        let result = r#"{"a":[1,"}",{"b":"\"]"}], "c": 1.50 }"#;
        for text in [
            format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#),
            format!(" {{ \"result\" : {result} , \"id\" : 7 , \"jsonrpc\":\"2.0\" }} \n"),
        ] {
            assert_eq!(parse(&text), Some(("7".to_owned(), Ok(result.to_owned()))));
        }
        let error = r#"{"code":-1,"message":"no"}"#;
        let refused = parse(&format!(r#"{{"id":"x","error":{error},"jsonrpc":"2.0"}}"#));
        assert_eq!(refused, Some(("\"x\"".to_owned(), Err(error.to_owned()))));
        for none in [
            "",
            "[]",
            "{",
            r#"{"id":7}"#,
            r#"{"id":7,"result":{"#,
            r#"{"id":7,"result":{]}"#,
            r#"{"result":{}}"#,
            r#"{"method":"x","params":{}}"#,
        ] {
            assert_eq!(parse(none), None, "{none}");
        }
    }

    /// Reads the items of a list in a long result, with at most 40 bytes each and 200 in total.
    fn items(result: &str) -> Option<LongList> {
        let mut file = tempfile::tempfile().unwrap();
        write!(file, "{{\"id\":1,\"result\":{result}}}").unwrap();
        let long = parse_long_response_blocking(file)
            .unwrap()
            .unwrap()
            .outcome
            .unwrap();
        let limits = ItemLimits {
            item_bytes: 40,
            total_bytes: 200,
        };
        long.read_items("tools", limits).unwrap()
    }

    #[test]
    fn an_item_that_is_too_long_costs_no_other_item() {
        let big = format!(r#"{{"text":"{}", "name" : "big"}}"#, "x".repeat(50));
        let result = format!(
            r#"{{ "ttlMs": 7 , "tools" : [ {{"name":"a"}} , {big},7, "]," , [{{}}] ], "nextCursor":"c" }}"#
        );
        let list = items(&result).unwrap();
        let texts: Vec<&str> = list.items.iter().map(|item| item.get()).collect();
        assert_eq!(texts, [r#"{"name":"a"}"#, "7", "\"],\"", "[{}]"]);
        assert_eq!(list.oversized, [("big".to_owned(), big.len())]);
        let rest: serde_json::Value = serde_json::from_str(&list.rest).unwrap();
        assert_eq!(rest, serde_json::json!({"ttlMs": 7, "nextCursor": "c"}));
        assert!(!list.cut);
        let many = ["\"0123456789012345678901234567\""; 8].join(",");
        let list = items(&format!(r#"{{"tools":[{many}]}}"#)).unwrap();
        assert_eq!((list.items.len(), list.cut), (6, true));
        for (result, has) in [
            (r#"{"tools":[]}"#, true),
            (r#"{"tools":7}"#, false),
            (r#"{"other":[]}"#, false),
            ("[]", false),
        ] {
            assert_eq!(items(result).is_some(), has, "{result}");
        }
    }

    proptest! {
        /// For any JSON, the span of the result has exactly the bytes that were sent.
        #[test]
        fn a_long_result_comes_out_byte_for_byte(value in any_json(), front in any::<bool>()) {
            let text = if front {
                format!("{{\"result\":{value},\"id\":12}}")
            } else {
                format!("{{\"id\":12,\"result\":{value}}}")
            };
            prop_assert_eq!(parse(&text), Some(("12".to_owned(), Ok(value))));
        }
    }

    fn any_json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
            any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
            Just("null".to_owned()),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4)
                    .prop_map(|items| format!("[{}]", items.join(" , "))),
                proptest::collection::vec(("[a-z\"\\\\]{0,3}", inner), 0..4).prop_map(|members| {
                    let member = |(name, value): &(String, String)| {
                        format!("{}: {value}", serde_json::to_string(name).unwrap())
                    };
                    let members: Vec<_> = members.iter().map(member).collect();
                    format!("{{{}}}", members.join(","))
                }),
            ]
        })
    }
}
