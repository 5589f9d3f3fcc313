//! Paths into a JSON document. Truncation records, `path` arguments and cursors use the same text.
//!
//! The grammar is the part of JSONPath that can be followed in one pass without holding the document:
//! `result[3].body`, `$["odd key"]`, `rows[10:20]`, `rows[*].id`.

use std::fmt;
use std::str::FromStr;

use crate::{Error, budget::limits};

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// The member of an object.
    Name(String),
    /// The item of an array, or the entry of an object by position.
    Index(u64),
    /// Items or entries from a position up to but not including another.
    Slice(u64, Option<u64>),
}

/// A list of steps from the root of a document. The empty path is the document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path(Vec<Segment>);

impl Path {
    /// Returns the empty path.
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// Returns the steps.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Returns true if the path can lead to several values.
    pub fn is_plural(&self) -> bool {
        self.0.iter().any(|s| matches!(s, Segment::Slice(..)))
    }

    /// Returns the path with one more step.
    #[must_use]
    pub fn then(&self, segment: Segment) -> Self {
        let mut segments = self.0.clone();
        segments.push(segment);
        Self(segments)
    }

    /// Returns the first steps and the others.
    pub(crate) fn split_at(&self, steps: usize) -> (Self, Self) {
        let (first, rest) = self.0.split_at(steps);
        (Self(first.to_vec()), Self(rest.to_vec()))
    }

    /// Returns the path that continues with the steps of another one.
    pub(crate) fn join(&self, after: &Self) -> Self {
        Self(self.0.iter().chain(&after.0).cloned().collect())
    }

    pub(crate) fn push(&mut self, segment: Segment) {
        self.0.push(segment);
    }

    pub(crate) fn pop(&mut self) {
        self.0.pop();
    }
}

impl From<&str> for Segment {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl<S: Into<Segment>> FromIterator<S> for Path {
    fn from_iter<I: IntoIterator<Item = S>>(segments: I) -> Self {
        Self(segments.into_iter().map(Into::into).collect())
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) if is_plain(name) => write!(f, ".{name}"),
            Self::Name(name) => {
                let quoted = serde_json::to_string(name).map_err(|_| fmt::Error)?;
                write!(f, "[{quoted}]")
            }
            Self::Index(at) => write!(f, "[{at}]"),
            Self::Slice(0, None) => f.write_str("[*]"),
            Self::Slice(from, None) => write!(f, "[{from}:]"),
            Self::Slice(from, Some(to)) => write!(f, "[{from}:{to}]"),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Name(name) if at == 0 && is_plain(name) => f.write_str(name)?,
                _ => segment.fmt(f)?,
            }
        }
        Ok(())
    }
}

/// Returns true if the name needs no quotes. `$` is excluded: at the start it means the root.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_plain_byte)
}

fn is_plain_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'~') || byte >= 0x80
}

impl FromStr for Path {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() > limits::PATH_BYTES {
            return Err(Error::PathInvalid {
                at: limits::PATH_BYTES,
                why: "the path is too long",
            });
        }
        let path = Self::from_own_text(text)?;
        if path.0.len() > limits::PATH_SEGMENTS {
            return Err(Error::PathInvalid {
                at: text.len(),
                why: "the path has too many steps",
            });
        }
        Ok(path)
    }
}

impl Path {
    /// Parses a path that this crate printed, which may be longer than the limit for paths of callers.
    pub(crate) fn from_own_text(text: &str) -> Result<Self, Error> {
        Parser { text, at: 0 }.path()
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl Parser<'_> {
    fn path(&mut self) -> Result<Path, Error> {
        let mut segments = Vec::new();
        let rooted = self.eat('$');
        if !rooted && self.peek().is_some_and(is_plain_byte) {
            segments.push(Segment::Name(self.plain().to_owned()));
        }
        while let Some(byte) = self.peek() {
            segments.push(match byte {
                b'.' => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'*') => {
                            self.at += 1;
                            Segment::Slice(0, None)
                        }
                        Some(byte) if is_plain_byte(byte) => Segment::Name(self.plain().to_owned()),
                        _ => return Err(self.fail("a name or * must follow a dot")),
                    }
                }
                b'[' => {
                    self.at += 1;
                    self.bracket()?
                }
                _ => return Err(self.fail("a step must begin with a dot or a bracket")),
            });
        }
        Ok(Path(segments))
    }

    fn bracket(&mut self) -> Result<Segment, Error> {
        let segment = match self.peek() {
            Some(b'*') => {
                self.at += 1;
                Segment::Slice(0, None)
            }
            Some(b'"') => Segment::Name(self.double_quoted()?),
            Some(b'\'') => Segment::Name(self.single_quoted()?),
            Some(b'0'..=b'9' | b':') => {
                let from = self.number()?;
                if self.eat(':') {
                    Segment::Slice(from.unwrap_or(0), self.number()?)
                } else {
                    Segment::Index(from.ok_or_else(|| self.fail("a number is expected"))?)
                }
            }
            Some(b'-') => return Err(self.fail("positions count from the start, from 0")),
            Some(b'?') => return Err(self.fail("filters are not supported; search with pattern")),
            _ => return Err(self.fail("a number, a range, * or a quoted name is expected")),
        };
        if self.eat(']') {
            Ok(segment)
        } else {
            Err(self.fail("] is expected"))
        }
    }

    fn plain(&mut self) -> &str {
        let rest = &self.text[self.at..];
        let length = rest.bytes().take_while(|b| is_plain_byte(*b)).count();
        self.at += length;
        &rest[..length]
    }

    fn number(&mut self) -> Result<Option<u64>, Error> {
        let rest = &self.text[self.at..];
        let length = rest.bytes().take_while(u8::is_ascii_digit).count();
        if length == 0 {
            return Ok(None);
        }
        let number = rest[..length]
            .parse()
            .map_err(|_| self.fail("the number is too large"))?;
        self.at += length;
        Ok(Some(number))
    }

    fn double_quoted(&mut self) -> Result<String, Error> {
        let rest = &self.text[self.at..];
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        match stream.next() {
            Some(Ok(name)) => {
                self.at += stream.byte_offset();
                Ok(name)
            }
            _ => Err(self.fail("the quoted name is not a JSON string")),
        }
    }

    /// Parses the form that other JSONPath dialects prefer; it has no escapes.
    fn single_quoted(&mut self) -> Result<String, Error> {
        let rest = &self.text[self.at + 1..];
        let length = rest
            .find('\'')
            .ok_or_else(|| self.fail("the quote is not closed"))?;
        self.at += length + 2;
        Ok(rest[..length].to_owned())
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, char: char) -> bool {
        let eaten = self.text[self.at..].starts_with(char);
        self.at += usize::from(eaten);
        eaten
    }

    fn fail(&self, why: &'static str) -> Error {
        Error::PathInvalid { at: self.at, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_parse_and_print() {
        for (text, printed) in [
            ("", ""),
            ("$", ""),
            ("result", "result"),
            ("$.result", "result"),
            ("result[3].body", "result[3].body"),
            ("[3]", "[3]"),
            ("a[10:20]", "a[10:20]"),
            ("a[10:]", "a[10:]"),
            ("a[:20]", "a[0:20]"),
            ("a[:]", "a[*]"),
            ("a.*", "a[*]"),
            ("a[*].id", "a[*].id"),
            (r#"["a.b"]["\n"]"#, r#"["a.b"]["\n"]"#),
            ("['a b'].c", r#"["a b"].c"#),
            ("~set[0]", "~set[0]"),
            ("größe", "größe"),
        ] {
            let path: Path = text.parse().expect(text);
            assert_eq!(path.to_string(), printed);
            assert_eq!(path.to_string().parse(), Ok(path), "{printed}");
        }
    }

    #[test]
    fn what_does_not_parse_says_where() {
        for (text, at) in [
            (".", 1),
            ("a..b", 2),
            ("a[", 2),
            ("a[1", 3),
            ("a[-1]", 2),
            ("a[?(@.x)]", 2),
            ("a['x]", 2),
            (r#"a["x]"#, 2),
            ("a b", 1),
            ("a[99999999999999999999]", 2),
        ] {
            match text.parse::<Path>() {
                Err(Error::PathInvalid { at: found, .. }) => assert_eq!(found, at, "{text}"),
                other => panic!("{text} gave {other:?}"),
            }
        }
    }
}
