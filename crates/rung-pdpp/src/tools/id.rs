//! Ids and resource URIs of records and of parts of their fields.
//!
//! A record id is `{connection}/{stream}:{record}`. It carries no authority. Each part is checked before a request is sent, so
//! that none can change the request's path. A record that the readable form cannot name has a handle.

use std::borrow::Cow;
use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use rung_fault::{Code, Fault};
use rung_ladder::{json_plain_bytes, json_string_bytes, push_json_string};
use serde::{Deserialize, Serialize};

use super::provider_request::{ProviderRequest, encode_segment};

const RECORD_URI: &str = "pdpp://record/";
const WINDOW_URI: &str = "pdpp://field-window/";
const STREAM_URI: &str = "pdpp://stream/";
/// The version of the handle format.
const HANDLE_VERSION: u8 = 1;
/// Bytes of a name, of a record key, and of a handle, at most.
const MAX_NAME_BYTES: usize = 256;
const MAX_KEY_BYTES: usize = 1 << 10;
const MAX_BYTES: usize = 8 << 10;

/// Returns the name, or an error if it could change a request's path.
pub(super) fn check_name<'n>(what: &str, name: &'n str) -> Result<&'n str, Fault> {
    if name.is_empty() {
        let why = format!("{what} is required");
        return Err(Fault::new(Code::InvalidArguments, why));
    }
    if !is_name(name) {
        let why = format!("{what} contains invalid characters");
        return Err(Fault::new(Code::InvalidArguments, why)
            .with_hint("use names from `schema` and ids from `search`"));
    }
    Ok(name)
}

/// Bytes that need no further check in a name.
const PLAIN_BYTES: [bool; 256] = {
    let mut plain = [false; 256];
    let those = *b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-";
    let mut at = 0;
    while at < those.len() {
        plain[those[at] as usize] = true;
        at += 1;
    }
    plain
};

/// True if a text is valid as a path segment.
pub(super) fn is_name(name: &str) -> bool {
    // Nearly all names are plain and need no further check.
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && (name.bytes().all(|byte| PLAIN_BYTES[usize::from(byte)])
            || !name.bytes().any(|byte| matches!(byte, b'/' | b'\\')) && is_harmless(name))
}

/// True if a name has no `..`, control or text-direction characters.
pub(super) fn is_harmless(name: &str) -> bool {
    let odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
    };
    // Most names are plain, which is quick to check.
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'.' || byte == b' ';
    name.bytes().all(plain) || name != "." && !name.contains("..") && !name.chars().any(odd)
}

/// The id of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RecordId {
    /// Missing in ids of the older form.
    pub(super) connection: Option<String>,
    pub(super) stream: String,
    pub(super) record: String,
}

/// A borrowed [`RecordId`].
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordNames<'a> {
    pub(super) connection: Option<&'a str>,
    pub(super) stream: &'a str,
    pub(super) record: &'a str,
}

impl RecordNames<'_> {
    /// True if all parts are valid.
    pub(super) fn is_valid(self) -> bool {
        self.connection.is_none_or(is_name) && is_name(self.stream) && is_key(self.record)
    }

    pub(super) fn to_id(self) -> RecordId {
        RecordId {
            connection: self.connection.map(str::to_owned),
            stream: self.stream.to_owned(),
            record: self.record.to_owned(),
        }
    }

    /// True if the readable form is unambiguous.
    fn is_readable(self) -> bool {
        let joined = |name: &str| name.bytes().any(|byte| matches!(byte, b':' | b'/'));
        !self.connection.is_some_and(joined)
            && !joined(self.stream)
            && memchr::memchr(b'/', self.record.as_bytes()).is_none()
    }

    /// Returns the id as text: the readable form, or else the URI with a handle.
    pub(super) fn to_id_string(self) -> String {
        if !self.is_readable() {
            return self.uri();
        }
        let connection = self.connection.map_or(0, |connection| connection.len() + 1);
        let room = connection + self.stream.len() + 1 + self.record.len();
        let mut shown = String::with_capacity(room);
        self.push_to(&mut shown);
        shown
    }

    /// Appends the id as a JSON string.
    pub(super) fn write(self, out: &mut String) {
        if self.is_readable() && self.is_plain() {
            out.push('"');
            self.push_to(out);
            out.push('"');
        } else {
            push_json_string(out, &self.to_id_string());
        }
    }

    /// True if no part needs JSON escapes.
    fn is_plain(self) -> bool {
        let parts = [
            self.connection.unwrap_or_default(),
            self.stream,
            self.record,
        ];
        let plain = |part: &&str| json_plain_bytes(part.as_bytes()) == part.len();
        parts.iter().all(plain)
    }

    fn push_to(self, out: &mut String) {
        if let Some(connection) = self.connection {
            out.push_str(connection);
            out.push('/');
        }
        out.push_str(self.stream);
        out.push(':');
        out.push_str(self.record);
    }

    /// Returns the bytes of the id as a JSON string.
    pub(super) fn json_bytes(self) -> usize {
        if !self.is_readable() {
            return self.uri().len() + 2;
        }
        let bytes = |part: &str| json_string_bytes(part) - 2;
        let connection = self.connection.map_or(0, |part| bytes(part) + 1);
        connection + bytes(self.stream) + 1 + bytes(self.record) + 2
    }

    /// Returns the resource URI.
    fn uri(self) -> String {
        if self.is_readable() {
            return format!("{RECORD_URI}{}", encode_segment(&self.to_id_string()));
        }
        let handle = RecordHandle {
            v: HANDLE_VERSION,
            kind: "record".into(),
            connection_id: self.connection.map(Cow::from),
            stream: self.stream.into(),
            record_id: self.record.into(),
        };
        format!("{RECORD_URI}{}", write_handle(&handle))
    }
}

/// True if a text is valid as a record key. A key may be a URL: its slashes are percent-encoded in requests.
fn is_key(record: &str) -> bool {
    (1..=MAX_KEY_BYTES).contains(&record.len())
        && memchr::memchr(b'\\', record.as_bytes()).is_none()
        && is_harmless(record)
}

impl RecordId {
    pub(super) fn new(
        connection: Option<String>,
        stream: String,
        record: String,
    ) -> Result<Self, Fault> {
        if let Some(connection) = &connection {
            check_name("connection_id", connection)?;
        }
        check_name("stream", &stream)?;
        if record.is_empty() {
            return Err(Fault::new(Code::InvalidArguments, "record_id is required"));
        }
        if !is_key(&record) {
            let why = "record_id contains invalid characters";
            return Err(Fault::new(Code::InvalidArguments, why));
        }
        Ok(Self {
            connection,
            stream,
            record,
        })
    }

    pub(super) fn names(&self) -> RecordNames<'_> {
        RecordNames {
            connection: self.connection.as_deref(),
            stream: &self.stream,
            record: &self.record,
        }
    }

    /// Parses any form of an id.
    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let read = match text.strip_prefix(RECORD_URI) {
            Some(handle) => Self::of_handle(handle),
            None => Self::parse_readable(text),
        };
        read.map_err(|fault| {
            let shown = rung_ladder::head(text, 200);
            let why = format!("{shown:?} is not the id of a record: {}", fault.message());
            Fault::new(Code::InvalidRecordIdentity, why)
                .with_hint("pass an id from `search` or `query_records` unchanged: connection_id/stream:record_id")
        })
    }

    fn parse_readable(text: &str) -> Result<Self, Fault> {
        let (connection, rest) = match text.split_once('/') {
            Some((connection, rest)) => (Some(connection), rest),
            None => (None, text),
        };
        let Some((stream, record)) = rest.split_once(':') else {
            return Err(Fault::new(
                Code::InvalidArguments,
                "stream and record_id must be separated by a colon",
            ));
        };
        // Without this check one id could name two records, with and without a connection.
        if connection.is_some_and(|connection| connection.contains(':')) {
            let why = "connection_id contains invalid characters";
            return Err(Fault::new(Code::InvalidArguments, why));
        }
        Self::from_parts(connection, stream, record)
    }

    /// Builds an id from separate names. A key with slashes is rejected: only a handle can name it unambiguously.
    pub(super) fn from_parts(
        connection: Option<&str>,
        stream: &str,
        record: &str,
    ) -> Result<Self, Fault> {
        if record.contains('/') {
            let why = "record_id contains invalid characters";
            return Err(Fault::new(Code::InvalidArguments, why)
                .with_hint("pass the id from `search` or `query_records` as `id`"));
        }
        let connection = connection.map(str::to_owned);
        Self::new(connection, stream.to_owned(), record.to_owned())
    }

    fn of_handle(handle: &str) -> Result<Self, Fault> {
        if handle.contains(['%', ':']) {
            let text = percent_decode(handle).ok_or_else(|| malformed_handle("it is not UTF-8"))?;
            return Self::parse_readable(&text);
        }
        let handle: RecordHandle<'_> = read_handle(handle)?;
        if handle.v != HANDLE_VERSION || handle.kind != "record" {
            return Err(malformed_handle("it is of another kind"));
        }
        Self::new(
            handle.connection_id.map(Cow::into_owned),
            handle.stream.into_owned(),
            handle.record_id.into_owned(),
        )
    }

    /// Returns the resource URI.
    pub(super) fn uri(&self) -> String {
        self.names().uri()
    }

    /// Returns the request for the record, or for a path below it.
    pub(super) fn to_request(&self, beneath: &[&str]) -> ProviderRequest {
        let mut segments = vec!["v1", "streams", &self.stream, "records", &self.record];
        segments.extend(beneath);
        ProviderRequest::new(&segments).with_param("connection_id", self.connection.as_deref())
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().to_id_string())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordHandle<'a> {
    v: u8,
    kind: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connection_id: Option<Cow<'a, str>>,
    stream: Cow<'a, str>,
    record_id: Cow<'a, str>,
}

/// The part of a field to read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FieldSelector {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cursor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) offset_chars: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) limit_chars: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) q: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before_chars: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) after_chars: Option<u64>,
}

/// The id of a part of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WindowId {
    pub(super) record: RecordId,
    pub(super) field: String,
    pub(super) selector: FieldSelector,
}

impl WindowId {
    /// Returns the resource URI.
    pub(super) fn uri(&self) -> String {
        let handle = WindowHandle {
            v: HANDLE_VERSION,
            kind: "field-window".into(),
            connection_id: self.record.connection.as_deref().map(Cow::from),
            stream: self.record.stream.as_str().into(),
            record_id: self.record.record.as_str().into(),
            field_path: self.field.as_str().into(),
            selector: self.selector.clone(),
        };
        format!("{WINDOW_URI}{}", write_handle(&handle))
    }

    fn of_handle(handle: &str) -> Result<Self, Fault> {
        let handle: WindowHandle<'_> = read_handle(handle)?;
        if handle.v != HANDLE_VERSION || handle.kind != "field-window" {
            return Err(malformed_handle("it is of another kind"));
        }
        Ok(Self {
            record: RecordId::new(
                handle.connection_id.map(Cow::into_owned),
                handle.stream.into_owned(),
                handle.record_id.into_owned(),
            )?,
            field: handle.field_path.into_owned(),
            selector: handle.selector,
        })
    }
}

// `deny_unknown_fields` also covers the flattened selector: a test checks that.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowHandle<'a> {
    v: u8,
    kind: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connection_id: Option<Cow<'a, str>>,
    stream: Cow<'a, str>,
    record_id: Cow<'a, str>,
    field_path: Cow<'a, str>,
    #[serde(flatten)]
    selector: FieldSelector,
}

/// A parsed resource URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResourceAddress {
    Stream(String),
    Record(RecordId),
    Window(WindowId),
}

impl ResourceAddress {
    /// Parses a resource URI; returns `None` for any other URI.
    pub(super) fn parse(uri: &str) -> Option<Result<Self, Fault>> {
        if let Some(name) = uri.strip_prefix(STREAM_URI) {
            let name = percent_decode(name).ok_or_else(|| malformed_handle("it is not UTF-8"));
            let checked = |name: String| check_name("stream", &name).map(str::to_owned);
            return Some(name.and_then(checked).map(Self::Stream));
        }
        if let Some(handle) = uri.strip_prefix(WINDOW_URI) {
            // Contents that only point to the next part have the URI of their part with a fragment.
            let handle = handle.split('#').next().unwrap_or_default();
            return Some(WindowId::of_handle(handle).map(Self::Window));
        }
        uri.strip_prefix(RECORD_URI)
            .map(|handle| RecordId::of_handle(handle).map(Self::Record))
    }
}

fn malformed_handle(why: &str) -> Fault {
    Fault::new(
        Code::InvalidHandle,
        format!("Resource handle is malformed: {why}"),
    )
    .with_hint("use resource URIs from results unchanged")
}

fn write_handle(handle: &impl Serialize) -> String {
    let json = serde_json::to_vec(handle).unwrap_or_default();
    BASE64URL_NOPAD.encode(&json)
}

fn read_handle<T: serde::de::DeserializeOwned>(handle: &str) -> Result<T, Fault> {
    if handle.len() > MAX_BYTES {
        return Err(malformed_handle("it is too long"));
    }
    let json = BASE64URL_NOPAD
        .decode(handle.trim_end_matches('=').as_bytes())
        .map_err(|_| malformed_handle("it is not base64url"))?;
    serde_json::from_slice(&json).map_err(|error| malformed_handle(&error.to_string()))
}

/// Decodes percent escapes.
fn percent_decode(text: &str) -> Option<String> {
    let text = percent_encoding::percent_decode_str(text).decode_utf8();
    text.ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(connection: Option<&str>, stream: &str, record: &str) -> RecordId {
        RecordId {
            connection: connection.map(str::to_owned),
            stream: stream.to_owned(),
            record: record.to_owned(),
        }
    }

    #[test]
    fn ids_read_back_whatever_the_key_is() {
        for one in [
            id(Some("cin_a"), "messages", "m-1"),
            id(Some("cin_a"), "messages", "a:b:c"),
            id(Some("cin_a"), "pages", "https://a.example/x?y=1#z"),
            id(Some("cin_a"), "pages", "[\"a\",\"b/c\"]"),
            id(Some("cin:a"), "messages", "m-1"),
            id(Some("cin_a"), "odd:stream", "m-1"),
            id(None, "messages", "ü 100% \u{1F980}"),
        ] {
            assert_eq!(RecordId::parse(&one.to_string()).unwrap(), one, "{one}");
            assert_eq!(RecordId::parse(&one.uri()).unwrap(), one, "{}", one.uri());
        }
        assert_eq!(
            id(Some("cin_a"), "messages", "m-1").to_string(),
            "cin_a/messages:m-1"
        );
        let uri = id(Some("cin_a"), "messages", "m-1").uri();
        assert_eq!(uri, "pdpp://record/cin_a%2Fmessages%3Am-1");
    }

    #[test]
    fn no_id_leads_elsewhere() {
        let handle =
            |json: &str| format!("{RECORD_URI}{}", BASE64URL_NOPAD.encode(json.as_bytes()));
        let bad = [
            String::new(),
            "cin/orders".to_owned(),
            "cin/".to_owned(),
            "/orders:o1".to_owned(),
            "cin/extra/orders:o1".to_owned(),
            "cin/orders:".to_owned(),
            "cin/:o1".to_owned(),
            "../orders:o1".to_owned(),
            "cin/..:o1".to_owned(),
            "cin/orders:..".to_owned(),
            "cin/orders:.".to_owned(),
            "cin/orders:a..b".to_owned(),
            "cin/orders:a\\b".to_owned(),
            "cin/orders:a\u{0}b".to_owned(),
            "cin/orders:a\nb".to_owned(),
            "pdpp://record/".to_owned(),
            "pdpp://record/%2e%2e%2Forders%3Ao1".to_owned(),
            "pdpp://record/cin%2Forders%3A..".to_owned(),
            "pdpp://record/%ff%3Ao1".to_owned(),
            "pdpp://record/****".to_owned(),
            "https://a.example/x:y".to_owned(),
            "orders:a/b:c".to_owned(),
            "pdpp://record/orders%3Aa%2Fb%3Ac".to_owned(),
            handle(r#"{"v":2,"kind":"record","stream":"s","record_id":"r"}"#),
            handle(r#"{"v":1,"kind":"field-window","stream":"s","record_id":"r"}"#),
            handle(r#"{"v":1,"kind":"record","stream":"s","record_id":"../../x"}"#),
            handle(r#"{"v":1,"kind":"record","stream":"a/b","record_id":"x"}"#),
            handle(r#"{"v":1,"kind":"record","stream":"s","record_id":"x","token":"y"}"#),
            handle(
                r#"{"v":1,"kind":"record","connection_id":"a/..","stream":"s","record_id":"x"}"#,
            ),
        ];
        for bad in bad {
            let fault = RecordId::parse(&bad).expect_err(&bad);
            assert_eq!(fault.code(), Code::InvalidRecordIdentity, "{bad}");
        }
        assert!(RecordId::from_parts(Some("cin:a"), "orders", "o1").is_ok());
        assert!(RecordId::from_parts(Some("cin"), "orders", "a/b").is_err());
    }

    #[test]
    fn addresses_of_windows_say_nothing_else() {
        let handle =
            |json: &str| format!("{WINDOW_URI}{}", BASE64URL_NOPAD.encode(json.as_bytes()));
        let window = r#"{"v":1,"kind":"field-window","stream":"s","record_id":"r","field_path":"f","offset_chars":3"#;
        let read = ResourceAddress::parse(&handle(&format!("{window}}}"))).unwrap();
        let Ok(ResourceAddress::Window(read)) = read else {
            panic!("{read:?}");
        };
        assert_eq!(read.selector.offset_chars, Some(3));
        let again = ResourceAddress::parse(&read.uri()).unwrap();
        assert_eq!(again.unwrap(), ResourceAddress::Window(read));
        for more in [r#""token":"x""#, r#""selector":{}"#, r#""offset":3"#] {
            let refused = ResourceAddress::parse(&handle(&format!("{window},{more}}}"))).unwrap();
            let fault = refused.expect_err(more);
            assert_eq!(fault.code(), Code::InvalidHandle, "{more}");
        }
    }
}
