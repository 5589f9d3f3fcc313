//! Redaction: secrets are masked in everything that is forwarded.
//!
//! Owns: the mask, where patterns and known values are searched, and the usual forms of secrets. Refuses to know: where the
//! patterns and values come from, and when they are applied.
//!
//! The law it keeps: a JSON document stays valid JSON. Only the inside of strings is masked, member names included; every
//! number, order and escape that is not part of a secret is forwarded byte for byte.
//!
//! The decoded content of strings is searched, not their escapes. A member is also searched together with its name, as
//! `name: value`, `name=value` and `"name": "value"`, because patterns recognize a password that way. A string that itself
//! contains a JSON array or object is searched as a document.

mod caller;
mod patterns;
mod reader;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use aho_corasick::AhoCorasick;
use regex::{Captures, Regex, RegexSet};
use serde::de::IgnoredAny;

pub(crate) use caller::CallerRedactor;
pub use patterns::usual_forms;
pub use reader::{MaskingReader, WINDOW_BYTES};

/// Replaces a secret. Needs no escape at any depth.
pub const MASK: &str = "[REDACTED]";
/// Shorter known values are not masked: they could be ordinary words.
pub(crate) const SHORTEST_SECRET_BYTES: usize = 6;
/// Bytes of a long value that are first searched together with its name.
const NAMED_VALUE_BYTES: usize = 4_096;
/// Nesting of documents in strings that is followed; each level doubles the escapes.
const MAX_DEPTH: usize = 8;

#[derive(Clone, Default)]
pub struct Redactor {
    patterns: Vec<Regex>,
    /// All patterns as one set; `None` if a pattern has anchors, because it would match less inside a longer text.
    any: Option<RegexSet>,
    secrets: Option<KnownSecrets>,
}

#[derive(Clone)]
struct KnownSecrets {
    find: AhoCorasick,
    /// Finds the values themselves and the escapes that may hide one of them.
    hint: AhoCorasick,
    /// Bytes of the longest value.
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
    /// Creates a redactor for matches of patterns and for known values. Of a pattern with groups only the last group is masked,
    /// so `password=` stays readable. Flags must be part of a pattern. Values of less than six bytes are ignored.
    pub fn new<'s>(
        patterns: impl IntoIterator<Item = Regex>,
        secrets: impl IntoIterator<Item = &'s str>,
    ) -> Self {
        let patterns: Vec<Regex> = patterns.into_iter().collect();
        let at_edges = patterns.iter().any(|regex| has_anchors(regex.as_str()));
        let any = RegexSet::new(patterns.iter().map(Regex::as_str));
        Self {
            any: any.ok().filter(|_| !at_edges && !patterns.is_empty()),
            patterns,
            secrets: None,
        }
        .with_secrets(secrets)
    }

    /// Returns a redactor with the same compiled patterns and other known values.
    #[must_use]
    pub fn with_secrets<'s>(&self, secrets: impl IntoIterator<Item = &'s str>) -> Self {
        let mut secrets: Vec<&str> = secrets
            .into_iter()
            .filter(|secret| secret.len() >= SHORTEST_SECRET_BYTES)
            .collect();
        // A secret of several lines may be printed line by line.
        let lines: Vec<&str> = secrets
            .iter()
            .flat_map(|secret| secret_lines(secret))
            .collect();
        secrets.extend(lines);
        secrets.sort_unstable();
        secrets.dedup();
        Self {
            secrets: KnownSecrets::new(&secrets),
            ..self.clone()
        }
    }

    /// Returns a redactor with additional patterns.
    #[must_use]
    pub fn with_patterns(&self, patterns: impl IntoIterator<Item = Regex>) -> Self {
        Self {
            secrets: self.secrets.clone(),
            ..Self::new(self.patterns.iter().cloned().chain(patterns), [])
        }
    }

    /// Returns true if there is nothing to mask.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty() && self.secrets.is_none()
    }

    /// Masks the secrets of a JSON document.
    pub fn json<'a>(&self, raw: &'a str) -> Cow<'a, str> {
        if self.is_empty() || !self.may_match(raw) {
            return Cow::Borrowed(raw);
        }
        self.masked_json(raw)
    }

    fn masked_json<'a>(&self, raw: &'a str) -> Cow<'a, str> {
        let mut spans = Spans::new();
        self.find_in_document(raw, 0, &mut spans);
        mask_spans(raw, spans)
    }

    /// Masks the secrets of a text. A JSON document stays valid JSON.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut spans = Spans::new();
        self.find_in_content(None, text, 0, &mut spans);
        mask_spans(text, spans)
    }

    /// Returns false only if nothing will be found; true may be wrong.
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

    fn find_in_document(&self, raw: &str, depth: usize, spans: &mut Spans) {
        for (name, written) in strings(raw) {
            let name = name.map(|name| decode_string(&raw[name]));
            let text = &raw[written.clone()];
            let mut found = Spans::new();
            self.find_in_string(name.as_deref(), &decode_string(text), depth, &mut found);
            to_document_spans(text, &merge_spans(found), written.start, spans);
        }
    }

    /// Finds secrets in the content of a string. One quick search rules most strings out.
    fn find_in_string(&self, name: Option<&str>, content: &str, depth: usize, spans: &mut Spans) {
        let mut flat = String::new();
        flatten_string(name, content, depth, &mut flat);
        if self.may_match_flat(&flat) {
            self.find_in_content(name, content, depth, spans);
        }
    }

    fn find_in_content(&self, name: Option<&str>, content: &str, depth: usize, spans: &mut Spans) {
        let is_document = depth < MAX_DEPTH && is_document(content);
        if is_document {
            self.find_in_document(content, depth + 1, spans);
        } else {
            self.find_in_text(content, spans);
        }
        let Some(name) = name.filter(|_| !content.is_empty() && !self.patterns.is_empty()) else {
            return;
        };
        let found = spans.len();
        for form in MemberForm::ALL {
            self.find_in_member(form, name, content, NAMED_VALUE_BYTES, false, spans);
        }
        if is_document && spans.len() > found {
            // Masking a part would leave an invalid document.
            spans.push(0..content.len());
        }
    }

    fn find_in_text(&self, text: &str, spans: &mut Spans) {
        if let Some(secrets) = &self.secrets {
            // All overlapping values are masked: masking only one could leave a part of another.
            let found = secrets.find.find_overlapping_iter(text);
            spans.extend(found.map(|found| found.range()));
        }
        for pattern in self.matching_patterns(text) {
            spans.extend(pattern.captures_iter(text).map(|found| secret_span(&found)));
        }
    }

    /// Finds matches that begin in a member's name and reach into its value. A match that reaches the end of the searched part
    /// is repeated with the whole value; if `content` is only the beginning (`goes_on`), all the rest is masked.
    fn find_in_member(
        &self,
        form: MemberForm,
        name: &str,
        content: &str,
        max_bytes: usize,
        goes_on: bool,
        spans: &mut Spans,
    ) {
        let shown = &content[..content.floor_char_boundary(max_bytes)];
        let mut text = String::with_capacity(name.len() + shown.len() + 6);
        let value = form.write(name, shown, &mut text);
        for pattern in self.matching_patterns(&text) {
            for found in pattern.captures_iter(&text) {
                let whole = found.get_match();
                if whole.start() >= value.start {
                    break;
                }
                if whole.end() >= value.end && shown.len() < content.len() {
                    return self.find_in_member(form, name, content, content.len(), goes_on, spans);
                }
                let secret = secret_span(&found);
                let secret = secret.start.max(value.start)..secret.end.min(value.end);
                if goes_on && whole.end() >= value.end {
                    spans.push(secret.start - value.start..usize::MAX);
                } else if !secret.is_empty() {
                    spans.push(secret.start - value.start..secret.end - value.start);
                }
            }
        }
    }

    /// Returns the patterns that match somewhere in a text.
    fn matching_patterns(&self, text: &str) -> impl Iterator<Item = &Regex> {
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

impl KnownSecrets {
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

/// Returns the lines of a multi-line secret, without short ones and PEM markers.
fn secret_lines(secret: &str) -> impl Iterator<Item = &str> {
    const LEAST_BYTES: usize = 16;
    let lines = secret.contains('\n').then(|| secret.lines().map(str::trim));
    let telling = |line: &&str| line.len() >= LEAST_BYTES && !line.starts_with("-----");
    lines.into_iter().flatten().filter(telling)
}

/// The form in which a member is presented to patterns.
#[derive(Clone, Copy)]
enum MemberForm {
    Colon,
    Equals,
    Quoted,
}

impl MemberForm {
    const ALL: [Self; 3] = [Self::Colon, Self::Equals, Self::Quoted];

    /// Appends the member to `text` and returns the range of its value.
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

/// Returns true if a pattern may have anchors. Such a pattern finds less in a longer text.
fn has_anchors(pattern: &str) -> bool {
    let bytes = pattern.as_bytes();
    let is_set = |at: usize| at > 0 && bytes[at - 1] == b'[' && (at == 1 || bytes[at - 2] != b'\\');
    let anchors = bytes.iter().enumerate();
    let mut anchors = anchors.filter(|&(at, &b)| b == b'$' || b == b'^' && !is_set(at));
    anchors.next().is_some() || pattern.contains("\\A") || pattern.contains("\\z")
}

/// Returns the secret of a match: its last group. The whole match if that group is at its beginning and does not cover it,
/// because such a group only selects a prefix.
fn secret_span(found: &Captures<'_>) -> Range<usize> {
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

/// Appends every text that patterns are tried on, one per line.
fn flatten(raw: &str, depth: usize, flat: &mut String) {
    for (name, written) in strings(raw) {
        let name = name.map(|name| decode_string(&raw[name]));
        flatten_string(name.as_deref(), &decode_string(&raw[written]), depth, flat);
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
        let shown = &content[..content.floor_char_boundary(NAMED_VALUE_BYTES)];
        for form in MemberForm::ALL {
            form.write(name, shown, flat);
            flat.push('\n');
        }
    }
}

fn is_document(content: &str) -> bool {
    content.trim_start().starts_with(['{', '['])
        && serde_json::from_str::<IgnoredAny>(content).is_ok()
}

/// Returns the ranges of all strings of a document, member names included, without quotes. A string that is a member's value
/// comes with the range of its name.
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
        // Only a string that follows directly is the value of this name.
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

/// Decodes the escapes of a JSON string.
fn decode_string(written: &str) -> Cow<'_, str> {
    if !written.contains('\\') {
        return Cow::Borrowed(written);
    }
    let mut content = String::with_capacity(written.len());
    let mut rest = written;
    while let Some(at) = rest.find('\\') {
        content.push_str(&rest[..at]);
        let (c, bytes) = decode_escape(&rest[at + 1..]);
        content.push(c);
        rest = rest.get(at + bytes..).unwrap_or_default();
    }
    content.push_str(rest);
    Cow::Owned(content)
}

/// Returns the characters of a JSON string, each with the number of its encoded bytes. A lone surrogate becomes U+FFFD.
fn characters(written: &str) -> impl Iterator<Item = (char, usize)> {
    let mut rest = written;
    std::iter::from_fn(move || {
        let plain = rest.chars().next()?;
        let (c, bytes) = match rest.strip_prefix('\\') {
            None => (plain, plain.len_utf8()),
            Some(escape) => decode_escape(escape),
        };
        rest = rest.get(bytes..).unwrap_or_default();
        Some((c, bytes))
    })
}

/// Decodes an escape, given without its backslash. Returns the character and the bytes of the whole escape.
fn decode_escape(escape: &str) -> (char, usize) {
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

/// Converts spans of a string's decoded content into spans of the document, in which the string begins at `start`.
fn to_document_spans(written: &str, found: &[Range<usize>], start: usize, spans: &mut Spans) {
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

/// Sorts spans and merges those that touch.
fn merge_spans(mut spans: Spans) -> Spans {
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

fn mask_spans(text: &str, spans: Spans) -> Cow<'_, str> {
    if spans.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for span in merge_spans(spans) {
        out.push_str(&text[at..span.start]);
        out.push_str(MASK);
        at = span.end;
    }
    out.push_str(&text[at..]);
    Cow::Owned(out)
}
