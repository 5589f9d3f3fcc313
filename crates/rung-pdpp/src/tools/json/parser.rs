//! The JSON parser: each string is scanned once, eight bytes at a time, and borrowed. Accepts what `serde_json` accepts, and
//! unpaired surrogate escapes, which some providers send.

use std::fmt;
use std::str::Utf8Error;

use rung_ladder::json_plain_bytes;
use serde::de::{Error as _, IgnoredAny};

use super::{Json, JsonObject, JsonText, Number};

/// Nesting depth, at most. Many parsers accept 127 levels, and a message adds three around its content.
pub(super) const MAX_DEPTH: usize = 124;

/// Why a text could not be parsed.
#[derive(Debug)]
pub(in crate::tools) enum JsonError {
    NotUtf8(Utf8Error),
    NotJson(serde_json::Error),
    TooDeep,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8(error) => error.fmt(f),
            Self::NotJson(error) => error.fmt(f),
            Self::TooDeep => write!(f, "the JSON is nested deeper than {MAX_DEPTH} levels"),
        }
    }
}

pub(in crate::tools) fn parse(bytes: &[u8]) -> Result<Json<'_>, JsonError> {
    parse_with(bytes, false)
}

/// Parses JSON; values that are nested too deep are replaced by a placeholder.
pub(in crate::tools) fn parse_shallow(bytes: &[u8]) -> Result<Json<'_>, JsonError> {
    parse_with(bytes, true)
}

fn parse_with(bytes: &[u8], shallow: bool) -> Result<Json<'_>, JsonError> {
    let text = std::str::from_utf8(bytes).map_err(JsonError::NotUtf8)?;
    let mut reader = JsonParser {
        text,
        at: 0,
        shallow,
        too_deep: false,
    };
    match reader.document() {
        Some(value) => Ok(value),
        None if reader.too_deep && !shallow => Err(JsonError::TooDeep),
        None => Err(JsonError::NotJson(serde_error(text))),
    }
}

/// Returns `serde_json`'s error for a text that could not be parsed.
fn serde_error(text: &str) -> serde_json::Error {
    match serde_json::from_str::<IgnoredAny>(text) {
        Err(error) => error,
        Ok(IgnoredAny) => serde_json::Error::custom("the JSON cannot be parsed"),
    }
}

struct JsonParser<'a> {
    text: &'a str,
    at: usize,
    /// True if values that are nested too deep are replaced.
    shallow: bool,
    too_deep: bool,
}

/// All parsing methods return `None` on a syntax error.
impl<'a> JsonParser<'a> {
    fn document(&mut self) -> Option<Json<'a>> {
        let value = self.value(0)?;
        self.peek().is_none().then_some(value)
    }

    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    /// Returns the next byte that is not whitespace.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.as_bytes().get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(*byte),
            }
        }
    }

    /// Consumes and returns the next byte that is not whitespace.
    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn value(&mut self, depth: usize) -> Option<Json<'a>> {
        match self.next()? {
            b'"' => self.string().map(Json::String),
            b'{' | b'[' if depth == MAX_DEPTH => self.skip_nested(),
            b'{' => self.object(depth).map(Json::Object),
            b'[' => self.array(depth).map(Json::Array),
            b't' => self.literal("rue", Json::Bool(true)),
            b'f' => self.literal("alse", Json::Bool(false)),
            b'n' => self.literal("ull", Json::Null),
            first @ (b'-' | b'0'..=b'9') => self.number(first),
            _ => None,
        }
    }

    fn literal(&mut self, rest: &str, value: Json<'a>) -> Option<Json<'a>> {
        let there = self.rest().starts_with(rest.as_bytes());
        self.at += rest.len();
        there.then_some(value)
    }

    /// Skips an array or object whose bracket is consumed.
    fn skip_nested(&mut self) -> Option<Json<'a>> {
        self.too_deep = true;
        let mut open = usize::from(self.shallow);
        while open > 0 {
            match self.next()? {
                b'"' => drop(self.string()?),
                b'{' | b'[' => open += 1,
                b'}' | b']' => open -= 1,
                _ => {}
            }
        }
        self.shallow.then(|| Json::from("omitted: nested too deep"))
    }

    /// Parses a number whose first byte is consumed.
    fn number(&mut self, first: u8) -> Option<Json<'a>> {
        let start = self.at - 1;
        let first = if first == b'-' {
            let digit = *self.rest().first()?;
            self.at += 1;
            digit
        } else {
            first
        };
        match first {
            b'0' => {}
            b'1'..=b'9' => self.at += digits(self.rest()),
            _ => return None,
        }
        if self.rest().first() == Some(&b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if let [b'e' | b'E', power @ ..] = self.rest() {
            let signed = matches!(power.first(), Some(b'+' | b'-'));
            self.at += 1 + usize::from(signed);
            self.some_digits()?;
        }
        let number = &self.text[start..self.at];
        Some(Json::Number(Number::Raw(number)))
    }

    fn some_digits(&mut self) -> Option<()> {
        let count = digits(self.rest());
        self.at += count;
        (count > 0).then_some(())
    }

    /// Parses a string whose first quote is consumed.
    fn string(&mut self) -> Option<JsonText<'a>> {
        let plain = self.plain_text();
        if self.rest().first() == Some(&b'"') {
            self.at += 1;
            return Some(JsonText::from_unescaped(plain));
        }
        // The string usually ends at the next quote.
        let rest = memchr::memchr(b'"', self.rest()).unwrap_or_default();
        let mut meant = String::with_capacity(plain.len() + rest);
        meant.push_str(plain);
        loop {
            let (taken, meaning) = match self.rest() {
                [b'"', ..] => break,
                [b'\\', b'u', behind @ ..] => unescape_unicode(behind)?,
                [b'\\', named, ..] => (2, unescape_letter(*named)?),
                _ => return None,
            };
            self.at += taken;
            meant.push(meaning);
            meant.push_str(self.plain_text());
        }
        self.at += 1;
        Some(meant.into())
    }

    /// Consumes the bytes up to the next quote, escape or control character.
    fn plain_text(&mut self) -> &'a str {
        let start = self.at;
        self.at += json_plain_bytes(self.rest());
        &self.text[start..self.at]
    }

    /// Parses an array whose bracket is consumed.
    fn array(&mut self, depth: usize) -> Option<Vec<Json<'a>>> {
        let mut items = Vec::new();
        if self.take_end(b']') {
            return Some(items);
        }
        loop {
            items.push(self.value(depth + 1)?);
            match self.next()? {
                b',' => {}
                b']' => return Some(items),
                _ => return None,
            }
        }
    }

    /// Parses an object whose brace is consumed.
    fn object(&mut self, depth: usize) -> Option<JsonObject<'a>> {
        if self.take_end(b'}') {
            return Some(JsonObject::default());
        }
        // Enough for most objects without reallocation.
        let mut members = Vec::with_capacity(8);
        loop {
            if self.next()? != b'"' {
                return None;
            }
            let name = self.string()?;
            if self.next()? != b':' {
                return None;
            }
            members.push((name, self.value(depth + 1)?));
            match self.next()? {
                b',' => {}
                b'}' => return Some(members.into_iter().collect()),
                _ => return None,
            }
        }
    }

    /// Consumes the closing bracket if it is next; returns true if it was.
    fn take_end(&mut self, end: u8) -> bool {
        let over = self.peek() == Some(end);
        self.at += usize::from(over);
        over
    }
}

/// Returns the character of a single-letter escape.
fn unescape_letter(named: u8) -> Option<char> {
    Some(match named {
        b'"' | b'\\' | b'/' => char::from(named),
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        _ => return None,
    })
}

/// Decodes the digits after `\u`; returns the bytes of the whole escape and its character. An unpaired surrogate becomes U+FFFD:
/// programs that count in UTF-16 split pairs.
fn unescape_unicode(behind: &[u8]) -> Option<(usize, char)> {
    let first = four_digits(behind)?;
    if let Some(meant) = char::from_u32(first) {
        return Some((6, meant));
    }
    if let (0xD800..0xDC00, [b'\\', b'u', other @ ..]) = (first, &behind[4..])
        && let Some(second @ 0xDC00..0xE000) = four_digits(other)
    {
        let code = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        return char::from_u32(code).map(|meant| (12, meant));
    }
    Some((6, char::REPLACEMENT_CHARACTER))
}

fn four_digits(text: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(text.get(..4)?).ok()?;
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| plain)
}

/// Returns the number of leading digits.
fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}
