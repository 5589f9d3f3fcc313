//! Reading JSON as providers write it: each text is looked at once, eight bytes at a time, and stays where it is.
//!
//! Whatever is odd is left to `serde_json`, which also says what is wrong with it: so nothing is read here that it would read
//! otherwise.

use rung_ladder::json_plain_bytes;
use serde_json::{Number, Value};

use super::{Json, Members, Text};

/// What is nested deeper is odd.
const MAX_DEPTH: usize = 100;
/// Digits of a whole number that always fits.
const MAX_DIGITS: usize = 18;

pub(in crate::tools) fn read(bytes: &[u8]) -> Result<Json<'_>, serde_json::Error> {
    let text = std::str::from_utf8(bytes).ok();
    let usual = text.and_then(|text| {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        reader.skip_space();
        (reader.at == text.len()).then_some(value)
    });
    match usual {
        Some(value) => Ok(value),
        None => serde_json::from_slice::<Value>(bytes).map(Json::from),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

/// Each is `None` where something is odd.
impl<'a> Reader<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn skip_space(&mut self) {
        let space = |byte: &&u8| matches!(**byte, b' ' | b'\n' | b'\r' | b'\t');
        self.at += self.rest().iter().take_while(space).count();
    }

    /// The next byte that is no space, which is taken.
    fn next(&mut self) -> Option<u8> {
        self.skip_space();
        let byte = self.rest().first()?;
        self.at += 1;
        Some(*byte)
    }

    fn value(&mut self, depth: usize) -> Option<Json<'a>> {
        if depth > MAX_DEPTH {
            return None;
        }
        match self.next()? {
            b'"' => self.string().map(Json::String),
            b'{' => self.object(depth).map(Json::Object),
            b'[' => self.array(depth).map(Json::Array),
            b't' => self.word("rue", Json::Bool(true)),
            b'f' => self.word("alse", Json::Bool(false)),
            b'n' => self.word("ull", Json::Null),
            b'-' | b'0'..=b'9' => self.number().map(Json::Number),
            _ => None,
        }
    }

    fn word(&mut self, rest: &str, value: Json<'a>) -> Option<Json<'a>> {
        let there = self.rest().starts_with(rest.as_bytes());
        self.at += rest.len();
        there.then_some(value)
    }

    /// A number of which the first byte is taken.
    fn number(&mut self) -> Option<Number> {
        let start = self.at - 1;
        let part = |byte: &&u8| matches!(**byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        self.at += self.rest().iter().take_while(part).count();
        let number = &self.text[start..self.at];
        let whole = number.bytes().all(|byte| byte.is_ascii_digit());
        if whole && number.len() <= MAX_DIGITS && (!number.starts_with('0') || number == "0") {
            return number.parse::<u64>().ok().map(Number::from);
        }
        serde_json::from_str(number).ok()
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
                [b'\\', b'u', digits @ ..] => (6, unicode(digits)?),
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
        self.skip_space();
        let over = self.rest().first() == Some(&end);
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

/// What four digits mean; of a pair the half means nothing, and is odd.
fn unicode(digits: &[u8]) -> Option<char> {
    let digits = std::str::from_utf8(digits.get(..4)?).ok()?;
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let code = u32::from_str_radix(digits, 16).ok().filter(|_| plain)?;
    char::from_u32(code)
}
