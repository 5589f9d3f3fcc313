//! What comes in: in memory while it is small, in a file beyond that.
//!
//! A server may answer with more than anybody wants to hold. Such a message is written to a file without a name, and
//! looked through once for its members; what it carries is read from there, a piece at a time.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::ops::Range;

use rung_fault::{Code, Fault};
use rung_tool::{Given, LongResult};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::envelope::Id;

/// What is held in memory of one message.
pub(super) const MEMORY_BYTES: usize = 4 << 20;
/// What is taken of one message at all.
const MAX_BYTES: u64 = 1 << 30;
/// Bytes of a member that names something: a method, an id.
const MAX_NAME_BYTES: usize = 1 << 10;
/// Bytes of an error that are read.
const MAX_ERROR_BYTES: u64 = 64 << 10;

/// A message on its way in.
#[derive(Debug, Default)]
pub(super) struct Intake {
    memory: Vec<u8>,
    file: Option<File>,
    bytes: u64,
}

/// Why a message was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Overflow {
    #[error("a message has more than {MAX_BYTES} bytes")]
    TooLong,
    #[error("a long message could not be put aside: {0}")]
    Disk(#[from] io::Error),
}

/// A message that has come in.
#[derive(Debug)]
pub(super) enum Arrived {
    Short(Vec<u8>),
    Long(File, u64),
}

impl Intake {
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), Overflow> {
        self.bytes += bytes.len() as u64;
        if self.bytes > MAX_BYTES {
            return Err(Overflow::TooLong);
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

    pub(super) fn finish(&mut self) -> Arrived {
        let Self {
            memory,
            file,
            bytes,
        } = std::mem::take(self);
        match file {
            Some(file) => Arrived::Long(file, bytes),
            None => Arrived::Short(memory),
        }
    }
}

/// What a server answered: a result as it came.
#[derive(Debug)]
pub enum Answer {
    /// In memory.
    Here(Box<RawValue>),
    /// Too long for that.
    Long(LongAnswer),
}

impl Answer {
    /// It, to be passed on. What came but cannot be read any more was done all the same.
    pub fn given(self) -> Result<Given, Fault> {
        match self {
            Self::Here(result) => Ok(Given::Here(result)),
            Self::Long(long) => long.open().map(Given::Long).map_err(|error| {
                let why = format!("the call was done, but its result could not be read: {error}");
                Fault::new(Code::SourceFailed, why)
            }),
        }
    }
}

/// A result that is too long to be held.
#[derive(Debug)]
pub struct LongAnswer {
    file: File,
    span: Range<u64>,
    is_error: bool,
}

/// What is taken of the items of a long list.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemLimits {
    /// Bytes of one item.
    pub(super) each: usize,
    /// Bytes of all of them.
    pub(super) all: usize,
}

/// A list in a long result, item by item.
#[derive(Debug, Default)]
pub(super) struct LongList {
    pub(super) items: Vec<Box<RawValue>>,
    /// The `name` and the bytes of each item that is too long.
    pub(super) oversized: Vec<(String, usize)>,
    /// Whether there were more items than are taken.
    pub(super) cut: bool,
    /// The other members of the result that are short, as an object.
    pub(super) rest: String,
}

impl LongAnswer {
    /// The items of the array in this member, read from the file one at a time. `None` if there is no such array.
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
        let whole = self.scan(&self.span)?.each_member(|name, span, _| {
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
        if !self.scan(&array)?.each_item(|span| spans.push(span))? {
            return Ok(None);
        }
        let mut list = LongList::default();
        let mut room = limits.all;
        for span in spans {
            let span = absolute(array.start, &span);
            let bytes = usize::try_from(span.end - span.start).unwrap_or(usize::MAX);
            if bytes > limits.each {
                list.oversized.push((self.name_of(&span)?, bytes));
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

    /// The `name` of an object; empty where it has none that is short and plain.
    fn name_of(&self, span: &Range<u64>) -> io::Result<String> {
        let mut found = String::new();
        self.scan(span)?.each_member(|name, _, text| {
            if name == b"name" {
                found = serde_json::from_slice(text).unwrap_or_default();
            }
        })?;
        Ok(found)
    }

    fn scan(&self, span: &Range<u64>) -> io::Result<Scan<io::Take<&File>>> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(span.start))?;
        let part = file.take(span.end - span.start);
        Ok(Scan {
            input: BufReader::with_capacity(64 << 10, part),
            at: 0,
        })
    }

    fn text(&self, span: &Range<u64>) -> io::Result<String> {
        let mut text = String::new();
        self.scan(span)?.input.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Its bytes, and how it begins.
    pub fn open(self) -> io::Result<LongResult> {
        let is_error = self.is_error;
        let (file, bytes) = self.into_file()?;
        LongResult::read(is_error, file.take(bytes))
    }

    /// Whether it says that the call failed.
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// The file in which it is, at its first byte, and how many bytes it has.
    pub fn into_file(mut self) -> io::Result<(File, u64)> {
        self.file.seek(SeekFrom::Start(self.span.start))?;
        Ok((self.file, self.span.end - self.span.start))
    }
}

/// A long message, taken apart. Nothing but an answer is worth so many bytes.
pub(super) struct LongMessage {
    pub(super) id: Id,
    /// The result, or the error's text.
    pub(super) outcome: Result<LongAnswer, Box<RawValue>>,
}

/// Looks a long message through, on a thread that may wait for the disk. `None` if it is no answer.
pub(super) async fn taken_apart(file: File, bytes: u64) -> Option<LongMessage> {
    let looking = tokio::task::spawn_blocking(move || take_apart(file));
    let found = looking.await.ok()?.ok().flatten();
    if found.is_none() {
        tracing::warn!(bytes, "a long message that is no answer");
    }
    found
}

/// `None` if it is no answer.
pub(super) fn take_apart(mut file: File) -> io::Result<Option<LongMessage>> {
    file.rewind()?;
    let mut scan = Scan {
        input: BufReader::with_capacity(64 << 10, &file),
        at: 0,
    };
    let Some(found) = scan.members()? else {
        return Ok(None);
    };
    let Some(id) = found.id.and_then(|raw| Id::read(&raw)) else {
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
        return Ok(Some(LongMessage {
            id,
            outcome: Err(error),
        }));
    }
    // Whoever reads it later takes it for JSON.
    let body = BufReader::with_capacity(64 << 10, (&file).take(place.end - place.start));
    if serde_json::from_reader::<_, IgnoredAny>(body).is_err() {
        return Ok(None);
    }
    // A tool that failed at length has failed.
    file.seek(SeekFrom::Start(place.start))?;
    let mut scan = Scan {
        input: BufReader::with_capacity(64 << 10, (&file).take(place.end - place.start)),
        at: 0,
    };
    let is_error = scan.members()?.is_some_and(|found| found.is_error);
    Ok(Some(LongMessage {
        id,
        outcome: Ok(LongAnswer {
            file,
            span: place,
            is_error,
        }),
    }))
}

/// The members of a message, as far as they matter here.
#[derive(Default)]
struct Members {
    id: Option<Box<RawValue>>,
    result: Option<Range<u64>>,
    error: Option<Range<u64>>,
    /// Of a result: whether it says that it is an error.
    is_error: bool,
}

/// A value that was passed over.
struct ScannedValue {
    span: Range<u64>,
    /// How it begins.
    text: Vec<u8>,
    /// What follows it, spaces apart.
    after: Option<u8>,
}

/// Goes through the outermost object once, looking at structure alone.
struct Scan<R> {
    input: BufReader<R>,
    at: u64,
}

impl<R: Read> Scan<R> {
    fn next(&mut self) -> io::Result<Option<u8>> {
        let mut byte = [0];
        if self.input.read(&mut byte)? == 0 {
            return Ok(None);
        }
        self.at += 1;
        Ok(Some(byte[0]))
    }

    fn next_solid(&mut self) -> io::Result<Option<u8>> {
        loop {
            match self.next()? {
                Some(b' ' | b'\t' | b'\n' | b'\r') => {}
                other => return Ok(other),
            }
        }
    }

    /// `None` if it is no object.
    fn members(&mut self) -> io::Result<Option<Members>> {
        let mut found = Members::default();
        let whole = self.each_member(|name, span, text| match name {
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

    /// Visits the members of an object: each one's name, where its value is, and how that begins. `false` if it is no object that
    /// has a member.
    fn each_member(&mut self, mut visit: impl FnMut(&[u8], Range<u64>, &[u8])) -> io::Result<bool> {
        if self.next_solid()? != Some(b'{') {
            return Ok(false);
        }
        let mut next = self.next_solid()?;
        while next == Some(b'"') {
            let Some(name) = self.string()? else {
                return Ok(false);
            };
            if self.next_solid()? != Some(b':') {
                return Ok(false);
            }
            let Some(first) = self.next_solid()? else {
                return Ok(false);
            };
            let Some(value) = self.spanned(first)? else {
                return Ok(false);
            };
            visit(&name, value.span, &value.text);
            match value.after {
                Some(b',') => next = self.next_solid()?,
                Some(b'}') => return Ok(true),
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Visits the items of an array: where each is. `false` if it is no array.
    fn each_item(&mut self, mut visit: impl FnMut(Range<u64>)) -> io::Result<bool> {
        if self.next_solid()? != Some(b'[') {
            return Ok(false);
        }
        let mut next = self.next_solid()?;
        if next == Some(b']') {
            return Ok(true);
        }
        while let Some(first) = next {
            let Some(value) = self.spanned(first)? else {
                return Ok(false);
            };
            visit(value.span);
            match value.after {
                Some(b',') => next = self.next_solid()?,
                Some(b']') => return Ok(true),
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Passes over a value that begins with `first`: where it is, how it begins, and what follows it.
    fn spanned(&mut self, first: u8) -> io::Result<Option<ScannedValue>> {
        let start = self.at - 1;
        let Some((text, after)) = self.value(first)? else {
            return Ok(None);
        };
        let span = start..self.at - u64::from(after.is_some());
        let after = match after {
            Some(b' ' | b'\t' | b'\n' | b'\r') | None => self.next_solid()?,
            after => after,
        };
        Ok(Some(ScannedValue { span, text, after }))
    }

    /// The rest of a string, behind its first quote; of a long one, how it begins.
    fn string(&mut self) -> io::Result<Option<Vec<u8>>> {
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
            self.at += passed as u64;
            if end.is_none() {
                continue;
            }
            match self.next()? {
                Some(b'"') => return Ok(Some(text)),
                // An escaped name is none that we look for.
                Some(escape) => {
                    text.push(escape);
                    if self.next()?.is_none() {
                        return Ok(None);
                    }
                }
                None => return Ok(None),
            }
        }
    }

    /// Passes over a value that begins with `first`. How its text begins, and, where that had to be read to know that
    /// the value has ended, the byte behind it.
    fn value(&mut self, first: u8) -> io::Result<Option<(Vec<u8>, Option<u8>)>> {
        let mut text = vec![first];
        if first == b'"' {
            let Some(rest) = self.string()? else {
                return Ok(None);
            };
            text.extend(rest);
            text.push(b'"');
            return Ok(Some((text, None)));
        }
        if !matches!(first, b'{' | b'[') {
            loop {
                match self.next()? {
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
            match self.next()? {
                Some(b'"') => {
                    if self.string()?.is_none() {
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

    fn apart(text: &str) -> Option<(String, Result<String, String>)> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        let found = take_apart(file).unwrap()?;
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
    fn a_long_answer_is_taken_apart_wherever_its_members_stand() {
        let result = r#"{"a":[1,"}",{"b":"\"]"}], "c": 1.50 }"#;
        for text in [
            format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#),
            format!(" {{ \"result\" : {result} , \"id\" : 7 , \"jsonrpc\":\"2.0\" }} \n"),
        ] {
            assert_eq!(apart(&text), Some(("7".to_owned(), Ok(result.to_owned()))));
        }
        let error = r#"{"code":-1,"message":"no"}"#;
        let refused = apart(&format!(r#"{{"id":"x","error":{error},"jsonrpc":"2.0"}}"#));
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
            assert_eq!(apart(none), None, "{none}");
        }
    }

    /// The items of a list in a long result, with at most 40 bytes each and 200 in all.
    fn items(result: &str) -> Option<LongList> {
        let mut file = tempfile::tempfile().unwrap();
        write!(file, "{{\"id\":1,\"result\":{result}}}").unwrap();
        let long = take_apart(file).unwrap().unwrap().outcome.unwrap();
        let limits = ItemLimits { each: 40, all: 200 };
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
        /// The span of the result is the bytes that came, for any JSON.
        #[test]
        fn a_long_result_comes_out_byte_for_byte(value in any_json(), front in any::<bool>()) {
            let text = if front {
                format!("{{\"result\":{value},\"id\":12}}")
            } else {
                format!("{{\"id\":12,\"result\":{value}}}")
            };
            prop_assert_eq!(apart(&text), Some(("12".to_owned(), Ok(value))));
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
