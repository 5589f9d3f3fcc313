//! Reading JSON as providers write it: each text is looked at once, eight bytes at a time, and stays where it is. Nothing is
//! read here that others would read otherwise, but for what providers get wrong where nobody else minds.

use std::fmt;
use std::str::Utf8Error;

use rung_ladder::json_plain_bytes;
use serde::de::{Error as _, IgnoredAny};

use super::{Json, Members, Number, Text};

/// Lists and objects within each other. Many read no more than 127 of them, and a message puts three around what it tells.
pub(super) const MAX_DEPTH: usize = 124;

/// Why something could not be read.
#[derive(Debug)]
pub(in crate::tools) enum Unread {
    NotText(Utf8Error),
    NotJson(serde_json::Error),
    TooDeep,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotText(error) => error.fmt(f),
            Self::NotJson(error) => error.fmt(f),
            Self::TooDeep => write!(f, "it is nested deeper than {MAX_DEPTH} levels"),
        }
    }
}

pub(in crate::tools) fn read(bytes: &[u8]) -> Result<Json<'_>, Unread> {
    read_all(bytes, false)
}

/// The same without what is nested too deep, where the rest is worth having without it.
pub(in crate::tools) fn read_shallow(bytes: &[u8]) -> Result<Json<'_>, Unread> {
    read_all(bytes, true)
}

fn read_all(bytes: &[u8], shallow: bool) -> Result<Json<'_>, Unread> {
    let text = std::str::from_utf8(bytes).map_err(Unread::NotText)?;
    let mut reader = Reader {
        text,
        at: 0,
        shallow,
        too_deep: false,
    };
    match reader.all() {
        Some(value) => Ok(value),
        None if reader.too_deep && !shallow => Err(Unread::TooDeep),
        None => Err(Unread::NotJson(fault(text))),
    }
}

/// What is wrong with a text, in the words of those who know best.
fn fault(text: &str) -> serde_json::Error {
    match serde_json::from_str::<IgnoredAny>(text) {
        Err(error) => error,
        Ok(IgnoredAny) => serde_json::Error::custom("it is written as nobody writes it"),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Whether what is nested too deep is left out.
    shallow: bool,
    too_deep: bool,
}

/// Each is `None` where something is wrong.
impl<'a> Reader<'a> {
    fn all(&mut self) -> Option<Json<'a>> {
        let value = self.value(0)?;
        self.peek().is_none().then_some(value)
    }

    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    /// The next byte that is no space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.as_bytes().get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(*byte),
            }
        }
    }

    /// The same, which is taken.
    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn value(&mut self, depth: usize) -> Option<Json<'a>> {
        match self.next()? {
            b'"' => self.string().map(Json::String),
            b'{' | b'[' if depth == MAX_DEPTH => self.left_out(),
            b'{' => self.object(depth).map(Json::Object),
            b'[' => self.array(depth).map(Json::Array),
            b't' => self.word("rue", Json::Bool(true)),
            b'f' => self.word("alse", Json::Bool(false)),
            b'n' => self.word("ull", Json::Null),
            first @ (b'-' | b'0'..=b'9') => self.number(first),
            _ => None,
        }
    }

    fn word(&mut self, rest: &str, value: Json<'a>) -> Option<Json<'a>> {
        let there = self.rest().starts_with(rest.as_bytes());
        self.at += rest.len();
        there.then_some(value)
    }

    /// Goes over a list or an object of which the bracket is taken.
    fn left_out(&mut self) -> Option<Json<'a>> {
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
        self.shallow
            .then(|| Json::from("left out: nested too deep"))
    }

    /// A number of which the first byte is taken.
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
        Some(Json::Number(Number::AsItCame(number)))
    }

    fn some_digits(&mut self) -> Option<()> {
        let count = digits(self.rest());
        self.at += count;
        (count > 0).then_some(())
    }

    /// A text of which the first quote is taken.
    fn string(&mut self) -> Option<Text<'a>> {
        let plain = self.plain();
        if self.rest().first() == Some(&b'"') {
            self.at += 1;
            return Some(Text::as_it_stands(plain));
        }
        // It ends with the next quote, as a rule.
        let rest = memchr::memchr(b'"', self.rest()).unwrap_or_default();
        let mut meant = String::with_capacity(plain.len() + rest);
        meant.push_str(plain);
        loop {
            let (taken, meaning) = match self.rest() {
                [b'"', ..] => break,
                [b'\\', b'u', behind @ ..] => unicode(behind)?,
                [b'\\', named, ..] => (2, escaped(*named)?),
                _ => return None,
            };
            self.at += taken;
            meant.push(meaning);
            meant.push_str(self.plain());
        }
        self.at += 1;
        Some(meant.into())
    }

    /// What stands here as it is meant, up to what does not.
    fn plain(&mut self) -> &'a str {
        let start = self.at;
        self.at += json_plain_bytes(self.rest());
        &self.text[start..self.at]
    }

    /// A list of which the bracket is taken.
    fn array(&mut self, depth: usize) -> Option<Vec<Json<'a>>> {
        let mut items = Vec::new();
        if self.is_over(b']') {
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

    /// An object of which the brace is taken.
    fn object(&mut self, depth: usize) -> Option<Members<'a>> {
        if self.is_over(b'}') {
            return Some(Members::default());
        }
        // As many as most have, so that they are not moved.
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

    /// Whether nothing comes but the end, which is taken then.
    fn is_over(&mut self, end: u8) -> bool {
        let over = self.peek() == Some(end);
        self.at += usize::from(over);
        over
    }
}

/// What a letter behind a backslash means.
fn escaped(named: u8) -> Option<char> {
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

/// What is meant by what stands behind `\u`, and the bytes of the whole. A half without its other half means nothing: programs that
/// count in UTF-16 cut pairs apart.
fn unicode(behind: &[u8]) -> Option<(usize, char)> {
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

/// How many digits a text begins with.
fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}
