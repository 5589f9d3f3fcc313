//! Glob patterns for names.
//!
//! `*` matches any text, including `/` and `:`; `?` matches one character; `[a-z]` matches one of a set, `[!a-z]` one
//! outside of it. Every other character matches itself. Matching takes time proportional to text length times pattern
//! length.

use serde::Deserialize;

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Glob {
    text: String,
    parts: Vec<GlobPart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum GlobPart {
    AnyText,
    AnyChar,
    Char(char),
    Set {
        ranges: Vec<(char, char)>,
        negated: bool,
    },
}

impl GlobPart {
    fn matches_char(&self, c: char) -> bool {
        match self {
            Self::AnyText => false,
            Self::AnyChar => true,
            Self::Char(own) => *own == c,
            Self::Set {
                ranges,
                negated: outside,
            } => ranges.iter().any(|&(low, high)| low <= c && c <= high) != *outside,
        }
    }
}

impl TryFrom<String> for Glob {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.is_empty() {
            return Err("an empty pattern matches nothing".to_owned());
        }
        let mut parts = Vec::new();
        let mut rest = text.as_str();
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                // Consecutive stars equal one.
                '*' if parts.last() == Some(&GlobPart::AnyText) => {}
                '*' => parts.push(GlobPart::AnyText),
                '?' => parts.push(GlobPart::AnyChar),
                '[' => {
                    let (part, after) =
                        parse_set(rest).map_err(|why| format!("the pattern `{text}` {why}"))?;
                    parts.push(part);
                    rest = after;
                }
                c => parts.push(GlobPart::Char(c)),
            }
        }
        Ok(Self { text, parts })
    }
}

/// Parses a set, from after its opening bracket, and returns the text after it.
fn parse_set(text: &str) -> Result<(GlobPart, &str), &'static str> {
    if text.starts_with('^') {
        return Err("has `[^`: write `[!` for what is outside of a set");
    }
    let inside = text.strip_prefix('!');
    let outside = inside.is_some();
    let inside = inside.unwrap_or(text);
    // A bracket in first position is a member of the set: there are no empty sets.
    let close = inside
        .char_indices()
        .skip(1)
        .find(|&(_, c)| c == ']')
        .ok_or("has a `[` that is not closed")?
        .0;
    let mut ranges = Vec::new();
    let mut rest = &inside[..close];
    while let Some(low) = rest.chars().next() {
        rest = &rest[low.len_utf8()..];
        let high = rest.strip_prefix('-').and_then(|high| high.chars().next());
        let Some(high) = high else {
            ranges.push((low, low));
            continue;
        };
        rest = &rest[1 + high.len_utf8()..];
        if low > high {
            return Err("has a range that ends before it begins");
        }
        ranges.push((low, high));
    }
    Ok((
        GlobPart::Set {
            ranges,
            negated: outside,
        },
        &inside[close + 1..],
    ))
}

impl Glob {
    /// Returns the pattern as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if the pattern matches the whole text.
    ///
    /// The parts before the first `*` must match the start of the text. After each `*`, the earliest position where the
    /// parts up to the next one match leaves the most text for the rest, so only the last `*` is ever retried.
    pub fn matches(&self, text: &str) -> bool {
        let (mut at, mut part) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        while let Some(c) = text[at..].chars().next() {
            match self.parts.get(part) {
                Some(GlobPart::AnyText) => {
                    part += 1;
                    retry = Some((at, part));
                }
                Some(own) if own.matches_char(c) => {
                    at += c.len_utf8();
                    part += 1;
                }
                _ => {
                    let Some((from, after)) = retry else {
                        return false;
                    };
                    let skipped = text[from..].chars().next().map_or(1, char::len_utf8);
                    (at, part) = (from + skipped, after);
                    retry = Some((at, after));
                }
            }
        }
        self.parts[part..]
            .iter()
            .all(|part| *part == GlobPart::AnyText)
    }
}
