//! Secrets masked in what is passed on.
//!
//! Owns: what a mask looks like, where patterns and known values are looked for, and the forms in which secrets usually
//! come. Refuses to know: where the patterns and the values come from, and when they are asked for.
//!
//! The law it keeps: a document stays one. Only what lies inside of strings is masked, names of members among them, so that every number,
//! order and escape that is not part of a secret goes on byte for byte.
//!
//! What is looked at is the content of strings, not their escapes. A member is also looked at together with its name, as
//! `name: value`, `name=value` and `"name": "value"`, because that is how patterns know a password. A string that is itself
//! an array or an object is looked at as such.

mod forms;
mod masks;
mod reader;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use aho_corasick::AhoCorasick;
use regex::{Captures, Regex, RegexSet};
use serde::de::IgnoredAny;

pub use forms::usual_forms;
pub(crate) use masks::Masks;
pub use reader::{MaskingReader, WINDOW_BYTES};

/// What stands for a secret. It needs no escape at any depth.
pub const MASK: &str = "[REDACTED]";
/// Known values that are shorter are words of any text.
pub(crate) const SHORTEST_SECRET_BYTES: usize = 6;
/// How much of a long value is looked at with its name at first.
const BESIDE_NAME_BYTES: usize = 4_096;
/// How deep documents in strings of documents are followed; each level doubles their escapes.
const MAX_DEPTH: usize = 8;

/// Masks patterns and known values.
#[derive(Clone, Default)]
pub struct Redactor {
    patterns: Vec<Regex>,
    /// All patterns at once, where a text in a longer one is matched as it is alone.
    any: Option<RegexSet>,
    secrets: Option<Secrets>,
}

#[derive(Clone)]
struct Secrets {
    find: AhoCorasick,
    /// Finds them as they are, and the escapes behind which one of them may hide.
    hint: AhoCorasick,
    /// Bytes of the longest of them.
    longest: usize,
}

type Spans = Vec<Range<usize>>;

// Known values are secrets.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field("patterns", &self.patterns)
            .finish_non_exhaustive()
    }
}

impl Redactor {
    /// Masks what patterns find, and values wherever they stand. Of a pattern with groups the last is what is masked, so
    /// that `password=` stays readable. Flags must be part of a pattern. Values of less than six bytes are not looked for.
    pub fn new<'s>(
        patterns: impl IntoIterator<Item = Regex>,
        secrets: impl IntoIterator<Item = &'s str>,
    ) -> Self {
        let patterns: Vec<Regex> = patterns.into_iter().collect();
        let at_edges = patterns.iter().any(|regex| looks_at_edges(regex.as_str()));
        let any = RegexSet::new(patterns.iter().map(Regex::as_str));
        Self {
            any: any.ok().filter(|_| !at_edges && !patterns.is_empty()),
            patterns,
            secrets: None,
        }
        .knowing(secrets)
    }

    /// The same patterns, which are not read again, and these values instead of those it knew.
    #[must_use]
    pub fn knowing<'s>(&self, secrets: impl IntoIterator<Item = &'s str>) -> Self {
        let mut secrets: Vec<&str> = secrets
            .into_iter()
            .filter(|secret| secret.len() >= SHORTEST_SECRET_BYTES)
            .collect();
        // What is told line by line is told without what is between them.
        let lines: Vec<&str> = secrets.iter().flat_map(|secret| lines_of(secret)).collect();
        secrets.extend(lines);
        secrets.sort_unstable();
        secrets.dedup();
        Self {
            secrets: Secrets::new(&secrets),
            ..self.clone()
        }
    }

    /// The same, with these patterns as well.
    #[must_use]
    pub fn and(&self, patterns: impl IntoIterator<Item = Regex>) -> Self {
        Self {
            secrets: self.secrets.clone(),
            ..Self::new(self.patterns.iter().cloned().chain(patterns), [])
        }
    }

    /// Whether there is nothing to mask.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty() && self.secrets.is_none()
    }

    /// A JSON document without its secrets.
    pub fn json<'a>(&self, raw: &'a str) -> Cow<'a, str> {
        if self.is_empty() || !self.may_match(raw) {
            return Cow::Borrowed(raw);
        }
        self.masked_json(raw)
    }

    fn masked_json<'a>(&self, raw: &'a str) -> Cow<'a, str> {
        let mut spans = Spans::new();
        self.in_document(raw, 0, &mut spans);
        masked(raw, spans)
    }

    /// A text without its secrets. One that is a JSON document stays one.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut spans = Spans::new();
        self.in_content(None, text, 0, &mut spans);
        masked(text, spans)
    }

    /// Whether anything may be found. Wrong only in saying so.
    fn may_match(&self, raw: &str) -> bool {
        if self.patterns.is_empty() {
            let secrets = self.secrets.as_ref();
            return secrets.is_some_and(|secrets| secrets.hint.is_match(raw));
        }
        if self.any.is_none() {
            return true;
        }
        let mut flat = String::with_capacity(raw.len() + raw.len() / 2);
        flatten(raw, 0, &mut flat);
        self.may_match_flat(&flat)
    }

    fn may_match_flat(&self, flat: &str) -> bool {
        let secrets = self.secrets.as_ref();
        let by_pattern = match &self.any {
            Some(any) => any.is_match(flat),
            None => !self.patterns.is_empty(),
        };
        by_pattern || secrets.is_some_and(|secrets| secrets.find.is_match(flat))
    }

    /// Finds what is to be masked in a document.
    fn in_document(&self, raw: &str, depth: usize, spans: &mut Spans) {
        for (name, written) in strings(raw) {
            let name = name.map(|name| decoded(&raw[name]));
            let text = &raw[written.clone()];
            let mut found = Spans::new();
            self.in_string(name.as_deref(), &decoded(text), depth, &mut found);
            as_written(text, &united(found), written.start, spans);
        }
    }

    /// Finds what is to be masked in the content of a string. Most have nothing in them: one look at each is enough.
    fn in_string(&self, name: Option<&str>, content: &str, depth: usize, spans: &mut Spans) {
        let mut flat = String::new();
        flatten_string(name, content, depth, &mut flat);
        if self.may_match_flat(&flat) {
            self.in_content(name, content, depth, spans);
        }
    }

    /// Finds what is to be masked in the content of a string.
    fn in_content(&self, name: Option<&str>, content: &str, depth: usize, spans: &mut Spans) {
        let is_document = depth < MAX_DEPTH && is_document(content);
        if is_document {
            self.in_document(content, depth + 1, spans);
        } else {
            self.in_text(content, spans);
        }
        let Some(name) = name.filter(|_| !content.is_empty() && !self.patterns.is_empty()) else {
            return;
        };
        let found = spans.len();
        for form in Form::ALL {
            self.beside_name(form, name, content, BESIDE_NAME_BYTES, false, spans);
        }
        if is_document && spans.len() > found {
            // A part of it would leave something that is no document.
            spans.push(0..content.len());
        }
    }

    fn in_text(&self, text: &str, spans: &mut Spans) {
        if let Some(secrets) = &self.secrets {
            // Those that overlap are all masked: one must not leave the rest of another.
            let found = secrets.find.find_overlapping_iter(text);
            spans.extend(found.map(|found| found.range()));
        }
        for pattern in self.matching(text) {
            spans.extend(pattern.captures_iter(text).map(|found| secret_of(&found)));
        }
    }

    /// Finds what begins in the name of a member and reaches into its value. Where it reaches to the end of what was looked
    /// at, all of the value is; where the value goes on beyond what is given of it, all the rest is masked.
    fn beside_name(
        &self,
        form: Form,
        name: &str,
        content: &str,
        max_bytes: usize,
        goes_on: bool,
        spans: &mut Spans,
    ) {
        let shown = &content[..content.floor_char_boundary(max_bytes)];
        let mut text = String::with_capacity(name.len() + shown.len() + 6);
        let value = form.write(name, shown, &mut text);
        for pattern in self.matching(&text) {
            for found in pattern.captures_iter(&text) {
                let whole = found.get_match();
                if whole.start() >= value.start {
                    break;
                }
                if whole.end() >= value.end && shown.len() < content.len() {
                    return self.beside_name(form, name, content, content.len(), goes_on, spans);
                }
                let secret = secret_of(&found);
                let secret = secret.start.max(value.start)..secret.end.min(value.end);
                if goes_on && whole.end() >= value.end {
                    spans.push(secret.start - value.start..usize::MAX);
                } else if !secret.is_empty() {
                    spans.push(secret.start - value.start..secret.end - value.start);
                }
            }
        }
    }

    /// The patterns that match somewhere in a text.
    fn matching(&self, text: &str) -> impl Iterator<Item = &Regex> {
        let matching = self.any.as_ref().map(|any| any.matches(text));
        let patterns = self.patterns.iter().enumerate();
        patterns
            .filter(move |(at, _)| {
                matching
                    .as_ref()
                    .is_none_or(|matching| matching.matched(*at))
            })
            .map(|(_, pattern)| pattern)
    }
}

impl Secrets {
    fn new(secrets: &[&str]) -> Option<Self> {
        if secrets.is_empty() {
            return None;
        }
        let must_be_escaped = |c: char| !matches!(c, ' '..='~') || c == '"' || c == '\\';
        let some_have = |wanted: &dyn Fn(char) -> bool| secrets.iter().any(|s| s.contains(wanted));
        let escapes = [
            ("\\u", true),
            ("\\/", some_have(&|c| c == '/')),
            ("\\", some_have(&must_be_escaped)),
        ];
        let escapes = escapes.iter().filter(|(_, may_be)| *may_be);
        let hints = secrets.iter().chain(escapes.map(|(escape, _)| escape));
        Some(Self {
            find: AhoCorasick::new(secrets).ok()?,
            hint: AhoCorasick::new(hints).ok()?,
            longest: secrets.iter().map(|secret| secret.len()).max()?,
        })
    }
}

/// The lines of a secret that has several, but for those that are short or say what it is.
fn lines_of(secret: &str) -> impl Iterator<Item = &str> {
    const LEAST_BYTES: usize = 16;
    let lines = secret.contains('\n').then(|| secret.lines().map(str::trim));
    let telling = |line: &&str| line.len() >= LEAST_BYTES && !line.starts_with("-----");
    lines.into_iter().flatten().filter(telling)
}

/// How a member is written for patterns.
#[derive(Clone, Copy)]
enum Form {
    Colon,
    Equals,
    Quoted,
}

impl Form {
    const ALL: [Self; 3] = [Self::Colon, Self::Equals, Self::Quoted];

    /// Writes it, and says where its value is.
    fn write(self, name: &str, value: &str, text: &mut String) -> Range<usize> {
        let (before, between, after) = match self {
            Self::Colon => ("", ": ", ""),
            Self::Equals => ("", "=", ""),
            Self::Quoted => ("\"", "\": \"", "\""),
        };
        for part in [before, name, between] {
            text.push_str(part);
        }
        let start = text.len();
        text.push_str(value);
        let end = text.len();
        text.push_str(after);
        start..end
    }
}

/// Whether a pattern may look at where a text begins or ends. Such a one finds less in a longer text.
fn looks_at_edges(pattern: &str) -> bool {
    let bytes = pattern.as_bytes();
    let is_set = |at: usize| at > 0 && bytes[at - 1] == b'[' && (at == 1 || bytes[at - 2] != b'\\');
    let anchors = bytes.iter().enumerate();
    let mut anchors = anchors.filter(|&(at, &b)| b == b'$' || b == b'^' && !is_set(at));
    anchors.next().is_some() || pattern.contains("\\A") || pattern.contains("\\z")
}

/// What of a match is the secret: its last group. A group with which the match begins, and after which it goes on, only
/// chooses between beginnings.
fn secret_of(found: &Captures<'_>) -> Range<usize> {
    let whole = found.get_match().range();
    let last = found.len().checked_sub(1).filter(|&last| last > 0);
    let group = last
        .and_then(|last| found.get(last))
        .map(|group| group.range());
    match group {
        Some(group) if group.start == whole.start && group.end < whole.end => whole,
        Some(group) if !group.is_empty() => group,
        _ => whole,
    }
}

/// Everything that patterns are tried on, in lines.
fn flatten(raw: &str, depth: usize, flat: &mut String) {
    for (name, written) in strings(raw) {
        let name = name.map(|name| decoded(&raw[name]));
        flatten_string(name.as_deref(), &decoded(&raw[written]), depth, flat);
    }
}

fn flatten_string(name: Option<&str>, content: &str, depth: usize, flat: &mut String) {
    if depth < MAX_DEPTH && is_document(content) {
        flatten(content, depth + 1, flat);
    } else {
        flat.push_str(content);
        flat.push('\n');
    }
    if let Some(name) = name {
        let shown = &content[..content.floor_char_boundary(BESIDE_NAME_BYTES)];
        for form in Form::ALL {
            form.write(name, shown, flat);
            flat.push('\n');
        }
    }
}

fn is_document(content: &str) -> bool {
    content.trim_start().starts_with(['{', '['])
        && serde_json::from_str::<IgnoredAny>(content).is_ok()
}

/// The strings of a document, names of members among them; each that is a value with the name of the member that it is the value of. All
/// without their quotes.
fn strings(raw: &str) -> impl Iterator<Item = (Option<Range<usize>>, Range<usize>)> {
    let mut at = 0;
    let mut name: Option<Range<usize>> = None;
    std::iter::from_fn(move || {
        at += raw.as_bytes()[at..].iter().position(|&b| b == b'"')? + 1;
        let string = at..closing_quote(raw, at);
        at = raw.len().min(string.end + 1);
        let own = name.take();
        let Some(after) = raw[at..].trim_start().strip_prefix(':') else {
            return Some((own, string));
        };
        // Only a string that follows at once is the value of this name.
        let after = after.trim_start();
        name = after.starts_with('"').then(|| string.clone());
        at = raw.len() - after.len();
        Some((None, string))
    })
}

fn closing_quote(raw: &str, from: usize) -> usize {
    let bytes = raw.as_bytes();
    let mut at = from;
    while let Some(found) = bytes
        .get(at..)
        .and_then(|rest| rest.iter().position(|&b| b == b'"' || b == b'\\'))
    {
        at += found;
        if bytes[at] == b'"' {
            return at;
        }
        at += 2;
    }
    bytes.len()
}

/// The content of a string.
fn decoded(written: &str) -> Cow<'_, str> {
    if !written.contains('\\') {
        return Cow::Borrowed(written);
    }
    let mut content = String::with_capacity(written.len());
    let mut rest = written;
    while let Some(at) = rest.find('\\') {
        content.push_str(&rest[..at]);
        let (c, bytes) = escaped(&rest[at + 1..]);
        content.push(c);
        rest = rest.get(at + bytes..).unwrap_or_default();
    }
    content.push_str(rest);
    Cow::Owned(content)
}

/// The characters of a string, each with the number of bytes in which it is written. Half a pair of surrogates is no
/// character, and is taken for the one that stands for such.
fn characters(written: &str) -> impl Iterator<Item = (char, usize)> {
    let mut rest = written;
    std::iter::from_fn(move || {
        let plain = rest.chars().next()?;
        let (c, bytes) = match rest.strip_prefix('\\') {
            None => (plain, plain.len_utf8()),
            Some(escape) => escaped(escape),
        };
        rest = rest.get(bytes..).unwrap_or_default();
        Some((c, bytes))
    })
}

/// The character of an escape, from behind its mark on, and the bytes of the whole of it.
fn escaped(escape: &str) -> (char, usize) {
    let simple = match escape.chars().next() {
        None => return ('\\', 1),
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('u') => {
            let unit = |text: Option<&str>| u16::from_str_radix(text?, 16).ok();
            let Some(first) = unit(escape.get(1..5)) else {
                return ('u', 2);
            };
            let second = escape.get(5..7).filter(|mark| *mark == "\\u");
            let second = second.and_then(|_| unit(escape.get(7..11)));
            let pair = char::decode_utf16([first].into_iter().chain(second)).next();
            return match pair {
                Some(Ok(c)) => (c, if c.len_utf16() == 2 { 12 } else { 6 }),
                _ => (char::REPLACEMENT_CHARACTER, 6),
            };
        }
        Some(c) => return (c, 1 + c.len_utf8()),
    };
    (simple, 2)
}

/// Spans of the content of a string, as spans of the document in which it is written from `start` on.
fn as_written(written: &str, found: &[Range<usize>], start: usize, spans: &mut Spans) {
    if !written.contains('\\') {
        spans.extend(
            found
                .iter()
                .map(|span| start + span.start..start + span.end),
        );
        return;
    }
    let (mut inside, mut outside) = (0, start);
    let mut found = found.iter();
    let mut next = found.next();
    let mut began = start;
    for (c, bytes) in characters(written) {
        let Some(span) = next else { return };
        if inside == span.start {
            began = outside;
        }
        inside += c.len_utf8();
        outside += bytes;
        if inside == span.end {
            spans.push(began..outside);
            next = found.next();
        }
    }
}

/// Spans in order, those that meet as one.
fn united(mut spans: Spans) -> Spans {
    spans.retain(|span| !span.is_empty());
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    spans.dedup_by(|next, span| {
        let meet = next.start <= span.end;
        if meet {
            span.end = span.end.max(next.end);
        }
        meet
    });
    spans
}

fn masked(text: &str, spans: Spans) -> Cow<'_, str> {
    if spans.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for span in united(spans) {
        out.push_str(&text[at..span.start]);
        out.push_str(MASK);
        at = span.end;
    }
    out.push_str(&text[at..]);
    Cow::Owned(out)
}
