//! The parser.

use std::borrow::Cow;
use std::str::FromStr as _;
use std::sync::Arc;

use bigdecimal::BigDecimal;
use data_encoding::BASE64;
use indexmap::map::Entry;
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Num as _, Zero as _};

use crate::error::shorten;
use crate::write::NAMED_CHARS;
use crate::{Error, Map, Name, Position, Result, Set, Value, instant};

/// Nesting of values, at most.
const MAX_DEPTH: usize = 200;
/// Digits of a number, at most: the time to parse it grows with their square.
const MAX_DIGITS: usize = 4_096;
/// Characters of the input that an error repeats, at most.
const MAX_SHOWN_CHARS: usize = 80;

/// Parses a text that is exactly one value.
pub fn read(text: &str) -> Result<Value> {
    let mut reader = Reader::new(text);
    let Some(value) = reader.next_value()? else {
        return Err(reader.unfinished("the text is empty; a value is expected"));
    };
    let end = reader.at;
    if reader.next_value()?.is_none() {
        return Ok(value);
    }
    reader.at = end;
    reader.skip()?;
    Err(reader.error("a second value follows; one is expected"))
}

/// Parses a text of any number of values, one after the other.
#[derive(Debug)]
pub struct Reader<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

/// The next item of a text.
enum NextItem {
    Value(Value),
    /// A closing delimiter.
    Close(u8),
    End,
}

impl<'t> Reader<'t> {
    /// Creates a reader of `text`.
    pub fn new(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
        }
    }

    /// Returns the next value; `None` at the end.
    pub fn next_value(&mut self) -> Result<Option<Value>> {
        let at = self.at;
        match self.next()? {
            NextItem::Value(value) => Ok(Some(value)),
            NextItem::End => Ok(None),
            NextItem::Close(mark) => {
                self.at = at;
                self.skip()?;
                Err(self.error(format!("`{}` closes no open bracket", char::from(mark))))
            }
        }
    }

    /// Returns the current position.
    pub fn position(&self) -> Position {
        Position::from_offset(self.text, self.at)
    }

    fn error_at(&self, at: usize, why: impl Into<String>) -> Error {
        Error {
            position: Position::from_offset(self.text, at),
            why: why.into(),
            unfinished: false,
        }
    }

    fn error(&self, why: impl Into<String>) -> Error {
        self.error_at(self.at, why)
    }

    fn unfinished(&self, why: impl Into<String>) -> Error {
        Error {
            unfinished: true,
            ..self.error_at(self.text.len(), why)
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Skips whitespace, commas, comments and discarded values.
    fn skip(&mut self) -> Result<()> {
        loop {
            let rest = self.rest();
            let apart = |c: char| !(c.is_whitespace() || c == ',');
            self.at += rest.find(apart).unwrap_or(rest.len());
            match self.rest().as_bytes() {
                [b';', ..] => {
                    let rest = self.rest();
                    self.at += rest.find('\n').unwrap_or(rest.len());
                }
                [b'#', b'_', ..] => {
                    let start = self.at;
                    self.at += 2;
                    let discarded = self.nested(start, Self::next)?;
                    if !matches!(discarded, NextItem::Value(_)) {
                        self.at = start;
                        return Err(self.missing(&discarded, "`#_` is not followed by a value"));
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// Returns the error for a missing value: unfinished at the end of the text, else invalid.
    fn missing(&self, found: &NextItem, why: &str) -> Error {
        match found {
            NextItem::End => self.unfinished(why),
            _ => self.error(why),
        }
    }

    fn nested<T>(&mut self, start: usize, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return Err(self.error_at(
                start,
                format!("values are nested deeper than {MAX_DEPTH} levels"),
            ));
        }
        self.depth += 1;
        let read = f(self);
        self.depth -= 1;
        read
    }

    fn next(&mut self) -> Result<NextItem> {
        self.skip()?;
        let start = self.at;
        let Some(first) = self.peek() else {
            return Ok(NextItem::End);
        };
        let value = match first {
            b')' | b']' | b'}' => {
                self.at += 1;
                return Ok(NextItem::Close(first));
            }
            b'(' => Value::List(self.items(start, 1, b')')?),
            b'[' => Value::Vector(self.items(start, 1, b']')?),
            b'{' => Value::Map(self.map(start, None)?),
            b'"' => Value::String(self.string()?.into()),
            b'\\' => self.character()?,
            b'#' => self.dispatch()?,
            b'0'..=b'9' => self.number()?,
            b'+' | b'-' if self.digit_follows() => self.number()?,
            _ => self.name()?,
        };
        Ok(NextItem::Value(value))
    }

    fn digit_follows(&self) -> bool {
        let next = self.text.as_bytes().get(self.at + 1);
        next.is_some_and(u8::is_ascii_digit)
    }

    /// Parses values up to their closing delimiter.
    fn items(&mut self, start: usize, open_bytes: usize, close: u8) -> Result<Vec<Value>> {
        self.at = start + open_bytes;
        self.nested(start, |reader| {
            let mut items = Vec::new();
            loop {
                match reader.next()? {
                    NextItem::Value(value) => items.push(value),
                    NextItem::Close(mark) if mark == close => return Ok(items),
                    NextItem::Close(mark) => {
                        let at = reader.at - 1;
                        let opened = Position::from_offset(reader.text, start);
                        let open = &reader.text[start..start + open_bytes];
                        let why = format!(
                            "`{}` does not close `{open}`, opened at {opened}",
                            char::from(mark)
                        );
                        return Err(reader.error_at(at, why));
                    }
                    NextItem::End => {
                        let opened = Position::from_offset(reader.text, start);
                        let open = &reader.text[start..start + open_bytes];
                        let why = format!("`{open}`, opened at {opened}, is not closed");
                        return Err(reader.unfinished(why));
                    }
                }
            }
        })
    }

    /// Parses a map. If `namespace` is given, its keys are in that namespace.
    fn map(&mut self, start: usize, namespace: Option<&str>) -> Result<Map> {
        let items = self.items(self.at, 1, b'}')?;
        if !items.len().is_multiple_of(2) {
            return Err(self.error_at(start, "the last key of the map has no value"));
        }
        let mut map = Map::with_capacity(items.len() / 2);
        let mut items = items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            let key = match namespace {
                Some(namespace) => qualify_key(namespace, key),
                None => key,
            };
            match map.entry(key) {
                Entry::Vacant(vacant) => {
                    vacant.insert(value);
                }
                Entry::Occupied(taken) => {
                    let why = format!(
                        "the map has the key {} twice",
                        shorten(&taken.key().to_string(), MAX_SHOWN_CHARS)
                    );
                    return Err(self.error_at(start, why));
                }
            }
        }
        Ok(map)
    }

    fn dispatch(&mut self) -> Result<Value> {
        let start = self.at;
        match self.text.as_bytes().get(start + 1) {
            Some(b'{') => {
                let items = self.items(start, 2, b'}')?;
                let mut set = Set::with_capacity(items.len());
                for item in items {
                    if let (at, false) = set.insert_full(item) {
                        let why = format!(
                            "the set has {} twice",
                            shorten(&set[at].to_string(), MAX_SHOWN_CHARS)
                        );
                        return Err(self.error_at(start, why));
                    }
                }
                Ok(Value::Set(set))
            }
            Some(b'#') => {
                self.at += 2;
                match self.token() {
                    "Inf" => Ok(Value::Double(f64::INFINITY)),
                    "-Inf" => Ok(Value::Double(f64::NEG_INFINITY)),
                    "NaN" => Ok(Value::Double(f64::NAN)),
                    _ => Err(self.error_at(start, "`##` must be followed by Inf, -Inf or NaN")),
                }
            }
            Some(b':') => {
                self.at += 2;
                let namespace = self.token();
                if !is_name(namespace) || namespace.contains('/') {
                    return Err(self.error_at(start, "`#:` must be followed by a namespace"));
                }
                self.skip()?;
                if self.peek() != Some(b'{') {
                    return Err(self.error("a map must follow its namespace"));
                }
                Ok(Value::Map(self.map(start, Some(namespace))?))
            }
            Some(b'"') => self.pattern(),
            None => Err(self.unfinished("`#` is not followed by a tag or a value")),
            Some(_) => self.tagged(),
        }
    }

    /// Parses a regular expression literal. The text is taken verbatim, and a backslash escapes a quote.
    fn pattern(&mut self) -> Result<Value> {
        let start = self.at + 2;
        let mut escaped = false;
        let ends = |c: char| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        };
        let Some(length) = self.text[start..].find(ends) else {
            return Err(self.unfinished("the regular expression is not closed"));
        };
        self.at = start + length + 1;
        let source = Value::text(&self.text[start..start + length]);
        Ok(Value::Tagged("datalevin/regex".into(), Box::new(source)))
    }

    fn tagged(&mut self) -> Result<Value> {
        let start = self.at;
        self.at += 1;
        let tag = self.token();
        if !is_name(tag) || !tag.starts_with(char::is_alphabetic) {
            return Err(self.error_at(
                start,
                "`#` must be followed by a tag, which begins with a letter",
            ));
        }
        let value = match self.nested(start, Self::next)? {
            NextItem::Value(value) => value,
            other => {
                return Err(self.missing(
                    &other,
                    &format!(
                        "`#{}` must be followed by a value",
                        shorten(tag, MAX_SHOWN_CHARS)
                    ),
                ));
            }
        };
        let text = value.as_str();
        let read = match tag {
            "inst" => text.and_then(instant::parse_instant).map(Value::Instant),
            "uuid" => text.and_then(parse_uuid).map(Value::Uuid),
            "datalevin/bigint" => {
                let number = text.and_then(|text| text.parse().ok());
                number.map(|number| Value::BigInt(Arc::new(number)))
            }
            "datalevin/bytes" => {
                let bytes = text.and_then(|text| BASE64.decode(text.as_bytes()).ok());
                bytes.map(|bytes| Value::Bytes(bytes.into()))
            }
            _ => return Ok(Value::Tagged(tag.into(), Box::new(value))),
        };
        let expected = match tag {
            "inst" => "a date and time such as \"2026-01-31T12:00:00Z\"",
            "uuid" => "a UUID such as \"0f9a1c52-6f1e-4d0b-9d6e-8f1b2c3d4e5f\"",
            "datalevin/bigint" => "the digits of an integer, as a string",
            _ => "bytes in base64",
        };
        read.ok_or_else(|| self.error_at(start, format!("#{tag} must be followed by {expected}")))
    }

    /// Returns the text up to the next delimiter.
    fn token(&mut self) -> &'t str {
        let rest = self.rest();
        let ends = |c: char| c.is_whitespace() || ",\"();[]{}\\`~@^".contains(c);
        let token = &rest[..rest.find(ends).unwrap_or(rest.len())];
        self.at += token.len();
        token
    }

    fn name(&mut self) -> Result<Value> {
        let start = self.at;
        let token = self.token();
        if let Some(name) = token.strip_prefix(':') {
            if is_keyword(name) {
                return Ok(Value::Keyword(name.into()));
            }
            return Err(self.error_at(
                start,
                format!("{:?} is not a keyword", shorten(token, MAX_SHOWN_CHARS)),
            ));
        }
        match token {
            "nil" => Ok(Value::Nil),
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ if is_name(token) => Ok(Value::Symbol(token.into())),
            _ => {
                // A character that cannot begin a value is shown alone.
                let most = if token.is_empty() {
                    1
                } else {
                    token.chars().count().min(40)
                };
                let shown: String = self.text[start..].chars().take(most).collect();
                Err(self.error_at(start, format!("{shown:?} is not a value")))
            }
        }
    }

    fn number(&mut self) -> Result<Value> {
        let start = self.at;
        let token = self.token();
        if token.len() > MAX_DIGITS {
            return Err(self.error_at(start, format!("a number has more than {MAX_DIGITS} digits")));
        }
        parse_number(token).ok_or_else(|| {
            self.error_at(
                start,
                format!("{:?} is not a number", shorten(token, MAX_SHOWN_CHARS)),
            )
        })
    }

    fn character(&mut self) -> Result<Value> {
        let start = self.at;
        self.at += 1;
        let Some(first) = self.rest().chars().next() else {
            return Err(self.unfinished("`\\` is not followed by a character"));
        };
        self.at += first.len_utf8();
        let tail = self.token();
        let name = &self.text[start + 1..self.at];
        let c = if tail.is_empty() {
            Some(first)
        } else if let Some((_, c)) = NAMED_CHARS.iter().find(|(own, _)| *own == name) {
            Some(*c)
        } else if let Some(hex) = name.strip_prefix('u').filter(|hex| hex.len() == 4) {
            u32::from_str_radix(hex, 16).ok().and_then(char::from_u32)
        } else if let Some(octal) = name.strip_prefix('o').filter(|octal| octal.len() <= 3) {
            let code = u32::from_str_radix(octal, 8).ok();
            code.filter(|code| *code <= 0o377).and_then(char::from_u32)
        } else {
            None
        };
        c.map(Value::Char).ok_or_else(|| {
            self.error_at(
                start,
                format!("\\{} is not a character", shorten(name, MAX_SHOWN_CHARS)),
            )
        })
    }

    fn string(&mut self) -> Result<Cow<'t, str>> {
        self.at += 1;
        let start = self.at;
        let mut read: Option<String> = None;
        loop {
            let rest = self.rest();
            let Some(end) = rest.find(['"', '\\']) else {
                let opened = Position::from_offset(self.text, start - 1);
                return Err(self.unfinished(format!("the string opened at {opened} is not closed")));
            };
            self.at += end;
            if rest.as_bytes()[end] == b'"' {
                self.at += 1;
                return Ok(match read {
                    None => Cow::Borrowed(&rest[..end]),
                    Some(text) => Cow::Owned(text + &rest[..end]),
                });
            }
            let text = read.get_or_insert_with(String::new);
            text.push_str(&rest[..end]);
            let c = self.escape()?;
            read.get_or_insert_with(String::new).push(c);
        }
    }

    /// Parses an escape in a string.
    fn escape(&mut self) -> Result<char> {
        let start = self.at;
        self.at += 1;
        let Some(c) = self.rest().chars().next() else {
            return Err(self.unfinished("the string is not closed"));
        };
        self.at += c.len_utf8();
        let plain = match c {
            't' => '\t',
            'r' => '\r',
            'n' => '\n',
            'b' => '\u{8}',
            'f' => '\u{c}',
            '"' | '\\' => c,
            'u' => {
                let first = self.hex()?;
                // Code points beyond 16 bits are written as surrogate pairs.
                let code = if (0xD800..0xDC00).contains(&first) && self.rest().starts_with("\\u") {
                    self.at += 2;
                    let second = self.hex()?;
                    let low = second.checked_sub(0xDC00).filter(|low| *low < 0x400);
                    low.map(|low| 0x1_0000 + ((first - 0xD800) << 10) + low)
                } else {
                    Some(first)
                };
                let c = code.and_then(char::from_u32);
                return c.ok_or_else(|| self.error_at(start, "a surrogate is not part of a pair"));
            }
            '0'..='7' => {
                let digits = self.text[start + 1..].bytes();
                let length = digits
                    .take(3)
                    .take_while(|b| (b'0'..=b'7').contains(b))
                    .count();
                self.at = start + 1 + length;
                let code = u32::from_str_radix(&self.text[start + 1..self.at], 8).ok();
                let c = code.filter(|code| *code <= 0o377).and_then(char::from_u32);
                return c.ok_or_else(|| self.error_at(start, "an octal escape is at most \\377"));
            }
            other => {
                return Err(self.error_at(start, format!("\\{other} is not an escape of strings")));
            }
        };
        Ok(plain)
    }

    fn hex(&mut self) -> Result<u32> {
        let digits = self.rest().get(..4);
        let digits = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let code =
            code.ok_or_else(|| self.error("\\u must be followed by four hexadecimal digits"))?;
        self.at += 4;
        Ok(code)
    }
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || ".*+!-_?$%&=<>|:#'/".contains(c)
}

/// Returns true if a text is a valid symbol or tag.
fn is_name(text: &str) -> bool {
    let unlike_number = {
        let bare = text.strip_prefix(['+', '-', '.']).unwrap_or(text);
        !bare.starts_with(|c: char| c.is_ascii_digit())
    };
    unlike_number && !text.starts_with([':', '#', '\'']) && is_keyword(text)
}

/// Returns true if a text is a valid name, with or without a namespace.
pub(crate) fn is_keyword(text: &str) -> bool {
    let name = Name::from(text);
    let plain = |part: &str| part == "/" || (!part.is_empty() && !part.contains('/'));
    !text.is_empty()
        && text.chars().all(is_name_char)
        && !text.starts_with(':')
        && !text.ends_with(':')
        && name.namespace().is_none_or(plain)
        && plain(name.name())
}

/// Puts a key of a namespaced map into the namespace.
fn qualify_key(namespace: &str, key: Value) -> Value {
    let named = |name: &Name| match name.namespace() {
        None => Name::with_namespace(namespace, name.as_str()),
        Some("_") => name.name().into(),
        Some(_) => name.clone(),
    };
    match key {
        Value::Keyword(name) => Value::Keyword(named(&name)),
        Value::Symbol(name) => Value::Symbol(named(&name)),
        other => other,
    }
}

/// Parses a number.
fn parse_number(token: &str) -> Option<Value> {
    let unsigned = token.strip_prefix(['+', '-']).unwrap_or(token);
    let negative = token.starts_with('-');
    let whole = |digits: &str, radix: u32| {
        if digits.is_empty() || digits.starts_with(['+', '-']) || digits.contains('_') {
            return None;
        }
        let number = BigInt::from_str_radix(digits, radix).ok()?;
        Some(if negative { -number } else { number })
    };
    if let Some(decimal) = unsigned.strip_suffix('M') {
        return parse_decimal(decimal, negative);
    }
    if let Some((over, under)) = unsigned.split_once('/') {
        let under = (!under.starts_with(['+', '-'])).then(|| BigInt::from_str(under).ok())??;
        if under.is_zero() {
            return None;
        }
        let ratio = BigRational::new(whole(over, 10)?, under);
        return Some(if ratio.is_integer() {
            Value::integer(ratio.to_integer())
        } else {
            Value::Ratio(Arc::new(ratio))
        });
    }
    let (digits, big) = match unsigned.strip_suffix('N') {
        Some(digits) => (digits, true),
        None => (unsigned, false),
    };
    let read = if digits.bytes().all(|b| b.is_ascii_digit()) {
        match digits.strip_prefix('0') {
            Some(octal) if !octal.is_empty() => whole(octal, 8)?,
            _ => whole(digits, 10)?,
        }
    } else if let Some(hex) = digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        whole(hex, 16)?
    } else if let Some((radix, rest)) = digits.split_once(['r', 'R']) {
        let radix: u32 = radix
            .parse()
            .ok()
            .filter(|radix| (2..=36).contains(radix))?;
        whole(rest, radix)?
    } else if !big && is_float(unsigned) {
        return token.parse().ok().map(Value::Double);
    } else {
        return None;
    };
    Some(if big {
        Value::BigInt(Arc::new(read))
    } else {
        Value::integer(read)
    })
}

fn is_float(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_digit() || b".eE+-".contains(&b))
}

fn parse_decimal(text: &str, negative: bool) -> Option<Value> {
    if !is_float(text) {
        return None;
    }
    let number = BigDecimal::from_str(text).ok()?;
    // A large exponent must not turn a few bytes into a huge number.
    if number.fractional_digit_count().unsigned_abs() > MAX_DIGITS as u64 {
        return None;
    }
    let number = if negative { -number } else { number };
    Some(Value::BigDec(Arc::new(number)))
}

fn parse_uuid(text: &str) -> Option<u128> {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    let hex = parts.concat();
    let right = lengths == [8, 4, 4, 4, 12] && hex.bytes().all(|b| b.is_ascii_hexdigit());
    right.then(|| u128::from_str_radix(&hex, 16).ok()).flatten()
}
