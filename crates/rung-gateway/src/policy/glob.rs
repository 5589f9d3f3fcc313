//! Names with wildcards.
//!
//! `*` is any text, `/` and `:` in it too; `?` is one character; `[a-z]` is one of a set, `[!a-z]` one outside of it.
//! Every other character is itself. The time to match grows with the text times the pattern, whatever they are.

use serde::Deserialize;

/// A pattern that was read once and is matched often.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Glob {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Any,
    One,
    Char(char),
    Set {
        ranges: Vec<(char, char)>,
        outside: bool,
    },
}

impl Part {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Any => false,
            Self::One => true,
            Self::Char(own) => *own == c,
            Self::Set { ranges, outside } => {
                ranges.iter().any(|&(low, high)| low <= c && c <= high) != *outside
            }
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
                // Two of them say no more than one.
                '*' if parts.last() == Some(&Part::Any) => {}
                '*' => parts.push(Part::Any),
                '?' => parts.push(Part::One),
                '[' => {
                    let (part, after) =
                        set(rest).map_err(|why| format!("the pattern `{text}` {why}"))?;
                    parts.push(part);
                    rest = after;
                }
                c => parts.push(Part::Char(c)),
            }
        }
        Ok(Self { text, parts })
    }
}

/// A set from behind its opening bracket on, and what follows it.
fn set(text: &str) -> Result<(Part, &str), &'static str> {
    if text.starts_with('^') {
        return Err("has `[^`: write `[!` for what is outside of a set");
    }
    let inside = text.strip_prefix('!');
    let outside = inside.is_some();
    let inside = inside.unwrap_or(text);
    // A bracket that comes first is a member of the set: there are no empty ones.
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
    Ok((Part::Set { ranges, outside }, &inside[close + 1..]))
}

impl Glob {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it matches the whole of a text.
    ///
    /// What stands before the first `*` must begin the text. Behind every `*`, the earliest place where the parts up to
    /// the next one fit leaves the most for those that follow, so that only the last `*` is ever tried again.
    pub fn matches(&self, text: &str) -> bool {
        let (mut at, mut part) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        while let Some(c) = text[at..].chars().next() {
            match self.parts.get(part) {
                Some(Part::Any) => {
                    part += 1;
                    retry = Some((at, part));
                }
                Some(own) if own.takes(c) => {
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
        self.parts[part..].iter().all(|part| *part == Part::Any)
    }
}
