//! Reads a part of any document, selected by a [`Path`] and a [`Range`].

use std::ops::{self, ControlFlow};

use crate::budget::limits;
use crate::cursor::{CursorTarget, Position, Shortcut};
use crate::document::{Document, DocumentPart, Mark, Unescaped, find_char, take_chars};
use crate::items::read_items;
use crate::path::Segment;
use crate::scan::{JsonKind, JsonNode, StringOnPath, select};
use crate::search::{BufferMatch, DocumentSearch};
use crate::text::json_string_bytes;
use crate::window::{
    Extent, Window, window_around_match, window_at_offset, window_of_lines, window_up_to,
};
use crate::{Error, Path, Result};

/// Code points of white space before embedded JSON at most.
const EMBEDDED_SPACE_CHARS: u64 = 64;

/// The part of a document to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The path. The root is the document's own text; any other path needs JSON.
    pub path: Path,
    /// The range of the value at the path.
    pub range: Range,
}

/// The range of a value to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Range {
    /// A number of code points from an offset.
    Chars {
        /// Code points to skip.
        offset_chars: u64,
        /// Code points to read.
        limit_chars: u64,
    },
    /// A number of code points up to an offset.
    Before {
        /// The code point where the range ends.
        end_chars: u64,
        /// Code points to read.
        limit_chars: u64,
    },
    /// Lines, counted from 1, inclusive.
    Lines {
        /// The first line.
        first: u64,
        /// The last line.
        last: u64,
    },
    /// Whole items of the values at the path, as many as fit.
    Items {
        /// Items to skip.
        first: u64,
        /// Code points to read.
        limit_chars: u64,
    },
    /// A number of code points of one item that is too long to be shown whole.
    Item {
        /// Items before it.
        index: u64,
        /// Code points to skip.
        offset_chars: u64,
        /// Code points to read.
        limit_chars: u64,
    },
    /// The context of a text's first occurrence, case-insensitive.
    Match {
        /// The text.
        q: String,
        /// Code points of context before it.
        before_chars: u64,
        /// Code points of context after it.
        after_chars: u64,
    },
    /// The matches of a regular expression.
    Pattern {
        /// The expression.
        pattern: String,
        /// Code points to skip.
        offset_chars: u64,
    },
}

impl Selector {
    /// Selects a window of the document's own text.
    pub fn chars(offset_chars: u64, limit_chars: u64) -> Self {
        Self {
            path: Path::root(),
            range: Range::Chars {
                offset_chars,
                limit_chars,
            },
        }
    }
}

/// A match of a regular expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternMatch {
    /// The first code point of the match.
    pub start_chars: u64,
    /// The code point after the match.
    pub end_chars: u64,
    /// The line of the match, counted from 1.
    pub line: u64,
    /// The text around the match on that line, with `…` where the line is cut.
    pub text: String,
}

/// The position of an item among the items that a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemPosition {
    /// The path to all items.
    pub path: Path,
    /// Items before this one.
    pub index: u64,
    /// The total number of items.
    pub original: u64,
    /// A shortcut to the next item.
    pub next_shortcut: Option<Shortcut>,
}

/// The result of reading a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// A part of a text.
    Text {
        /// The path of the text, with every slice resolved.
        path: Path,
        /// The kind of the value; `None` for the document's own text. A string is shown unescaped,
        /// any other value as JSON.
        kind: Option<JsonKind>,
        /// The window of the text.
        window: Window,
        /// The item that the text belongs to, if the path leads to several items.
        item: Option<ItemPosition>,
        /// A shortcut to the end of the window.
        shortcut: Option<Shortcut>,
    },
    /// Whole values, as one JSON array or object.
    Items {
        /// The path that was read.
        path: Path,
        /// The values, each with the bytes it has in the document.
        text: String,
        /// Values skipped before the first one.
        first: u64,
        /// Values in `text`.
        returned: u64,
        /// The number of values that the path leads to.
        original: u64,
        /// The position where reading continues.
        next: Option<Position>,
    },
    /// Matches of a regular expression.
    Hits {
        /// The path of the searched text.
        path: Path,
        /// The regular expression.
        pattern: String,
        /// The matches.
        hits: Vec<PatternMatch>,
        /// The position where reading continues.
        next: Option<Position>,
    },
}

/// Reads the part that `selector` names. The text of the reading takes at most `max_bytes` inside a JSON string.
pub fn read<D: Document + ?Sized>(
    doc: &D,
    selector: &Selector,
    max_bytes: usize,
) -> Result<Reading, D::Error> {
    doc.len_chars().ok_or(Error::NotText)?;
    let Selector { path, range } = selector;
    if path.is_plural() {
        return match find_parent(doc, path)? {
            Some(string) => read_embedded(doc, &string, selector, max_bytes),
            None => read_items(doc, path, range, None, max_bytes),
        };
    }
    let at_root = path.segments().is_empty();
    if at_root && !matches!(range, Range::Items { .. }) {
        return read_text(doc, path, range, max_bytes);
    }
    let node = match find_node(doc, path)? {
        (Some(node), _) => node,
        (None, Some(string)) => return read_embedded(doc, &string, selector, max_bytes),
        (None, None) => return Err(Error::PathAbsent(path.to_string()).into()),
    };
    match (node.kind, range) {
        (JsonKind::Array | JsonKind::Object, Range::Items { .. }) => {
            let inside = path.then(Segment::Slice(0, None));
            read_items(doc, &inside, range, None, max_bytes)
        }
        // At the root the text is the document's own, so that every offset means the same.
        _ if at_root => read_text(doc, path, range, max_bytes),
        _ => read_node(doc, &node, path, range, max_bytes),
    }
}

/// Returns the kind of the value at a path, without reading it. `None` if nothing is there.
pub fn value_kind<D: Document + ?Sized>(
    doc: &D,
    path: &Path,
) -> Result<Option<JsonKind>, D::Error> {
    Ok(find_node(doc, path)?.0.map(|node| node.kind))
}

/// Continues where an earlier reading of the same document stopped. Returns the same as [`read()`] with the position's
/// selector, but uses the shortcut if there is a valid one.
pub fn continue_reading<D: Document + ?Sized>(
    doc: &D,
    position: &Position,
    max_bytes: usize,
) -> Result<Reading, D::Error> {
    match (&position.target, position.valid_shortcut(doc.len_bytes())) {
        (
            CursorTarget::Text(path),
            Some(Shortcut::Text {
                kind,
                span,
                size_bytes,
                size_chars,
                bytes,
                raw,
            }),
        ) => {
            let near = Mark {
                bytes: *bytes,
                chars: position.offset,
                lines: 0,
            };
            let range = position.selector().range;
            if *kind == JsonKind::String {
                let inside = span.start + 1..span.end - 1;
                let size = (*size_bytes, *size_chars);
                let text = Unescaped::known(doc, inside, size, near, *raw);
                read_string(&text, span, path, &range, max_bytes)
            } else {
                let part = DocumentPart::with_known_chars(doc, span.clone(), *size_chars, near);
                read_json(&part, *kind, span, path, &range, max_bytes)
            }
        }
        (CursorTarget::Items(path), Some(Shortcut::Item { .. })) if path.is_plural() => {
            let range = position.selector().range;
            read_items(doc, path, &range, position.shortcut.as_ref(), max_bytes)
        }
        _ => read(doc, &position.selector(), max_bytes),
    }
}

impl Position {
    /// Returns the selector that reads on from this position.
    pub fn selector(&self) -> Selector {
        let (offset, limit_chars) = (self.offset, self.limit_chars);
        let (path, range) = match &self.target {
            CursorTarget::Text(path) => (
                path,
                Range::Chars {
                    offset_chars: offset,
                    limit_chars,
                },
            ),
            CursorTarget::Before(path) => (
                path,
                Range::Before {
                    end_chars: offset,
                    limit_chars,
                },
            ),
            CursorTarget::Items(path) => (
                path,
                Range::Items {
                    first: offset,
                    limit_chars,
                },
            ),
            CursorTarget::Item(path, index) => (
                path,
                Range::Item {
                    index: *index,
                    offset_chars: offset,
                    limit_chars,
                },
            ),
            CursorTarget::Hits(path, pattern) => (
                path,
                Range::Pattern {
                    pattern: pattern.clone(),
                    offset_chars: offset,
                },
            ),
        };
        Selector {
            path: path.clone(),
            range,
        }
    }
}

impl Reading {
    /// Returns the position after this reading, in document order.
    pub fn next(&self) -> Option<Position> {
        match self {
            Self::Text {
                path,
                window,
                item: among,
                shortcut,
                ..
            } => {
                if let Some(offset) = window.next_offset() {
                    let (place, shortcut) = match among {
                        Some(ItemPosition { path, index, .. }) => {
                            (CursorTarget::Item(path.clone(), *index), None)
                        }
                        None => (CursorTarget::Text(path.clone()), shortcut.clone()),
                    };
                    return Some(window.position_at(place, offset, shortcut));
                }
                let among = among.as_ref()?;
                let next = among.index + 1;
                (next < among.original).then(|| Position {
                    target: CursorTarget::Items(among.path.clone()),
                    offset: next,
                    limit_chars: window.limit_chars,
                    shortcut: among.next_shortcut.clone(),
                })
            }
            Self::Items { next, .. } | Self::Hits { next, .. } => next.clone(),
        }
    }

    /// Returns the position that reads the part before this one.
    pub fn previous(&self) -> Option<Position> {
        match self {
            // A part of one item among several has no previous position.
            Self::Text {
                path,
                window,
                item: None,
                ..
            } if window.start_chars > 0 => Some(window.position_at(
                CursorTarget::Before(path.clone()),
                window.start_chars,
                None,
            )),
            _ => None,
        }
    }

    /// Returns the reading with paths that begin with `outer`. Shortcuts lead into another document, so they are dropped.
    fn within(mut self, outer: &Path) -> Self {
        let whole = |path: &mut Path| *path = outer.join(path);
        let moved = |next: &mut Option<Position>| {
            if let Some(next) = next {
                whole(next.target.path_mut());
                next.shortcut = None;
            }
        };
        match &mut self {
            Self::Text {
                path,
                item,
                shortcut,
                ..
            } => {
                whole(path);
                *shortcut = None;
                if let Some(item) = item {
                    whole(&mut item.path);
                    item.next_shortcut = None;
                }
            }
            Self::Items { path, next, .. } | Self::Hits { path, next, .. } => {
                whole(path);
                moved(next);
            }
        }
        self
    }

    /// Returns the bytes of its text inside a JSON string: how much of `max_bytes` it used.
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::Text { window, .. } => json_string_bytes(&window.text),
            Self::Items { text, .. } => json_string_bytes(text),
            Self::Hits { hits, .. } => hits.iter().map(PatternMatch::bytes).sum(),
        }
    }
}

impl PatternMatch {
    fn bytes(&self) -> usize {
        json_string_bytes(&self.text) + limits::HIT_BYTES
    }
}

impl Window {
    /// Returns a position in the same text, to be read with the same window size.
    fn position_at(
        &self,
        place: CursorTarget,
        offset: u64,
        shortcut: Option<Shortcut>,
    ) -> Position {
        Position {
            target: place,
            offset,
            limit_chars: self.step_chars(),
            shortcut,
        }
    }
}

/// Returns the one value at a path.
pub(crate) fn locate<D: Document + ?Sized>(doc: &D, path: &Path) -> Result<JsonNode, D::Error> {
    let (found, _) = find_node(doc, path)?;
    found.ok_or_else(|| Error::PathAbsent(path.to_string()).into())
}

/// Returns the first value at a path, or the string in which the path goes on.
fn find_node<D: Document + ?Sized>(
    doc: &D,
    path: &Path,
) -> Result<(Option<JsonNode>, Option<StringOnPath>), D::Error> {
    let mut found = None;
    let string = select(doc, path, |node| {
        found = Some(node);
        ControlFlow::Break(())
    })?;
    Ok((found, string))
}

/// Returns the string in which a path with a slice goes on before the slice, or at it.
fn find_parent<D: Document + ?Sized>(
    doc: &D,
    path: &Path,
) -> Result<Option<StringOnPath>, D::Error> {
    let steps = path.segments();
    let single = steps
        .iter()
        .take_while(|step| !matches!(step, Segment::Slice(..)));
    let parent: Path = single.cloned().collect();
    if parent.segments().is_empty() {
        return Ok(None);
    }
    let after = steps.len() - parent.segments().len();
    Ok(match find_node(doc, &parent)? {
        (Some(node), _) if node.kind == JsonKind::String => Some(StringOnPath {
            span: node.span,
            steps_left: after,
        }),
        (None, Some(string)) => Some(StringOnPath {
            steps_left: string.steps_left + after,
            ..string
        }),
        _ => None,
    })
}

/// Reads on in a string that holds JSON, such as a text of a tool's result. If it holds none, nothing is at the path.
fn read_embedded<D: Document + ?Sized>(
    doc: &D,
    string: &StringOnPath,
    selector: &Selector,
    max_bytes: usize,
) -> Result<Reading, D::Error> {
    let Selector { path, range } = selector;
    let (outer, inner) = path.split_at(path.segments().len() - string.steps_left);
    let inside = Unescaped::new(doc, string.span.start + 1..string.span.end - 1)?;
    let first = take_chars(&inside, Mark::default(), EMBEDDED_SPACE_CHARS)?;
    if !first.trim_start().starts_with(['{', '[']) {
        return Err(Error::PathAbsent(path.to_string()).into());
    }
    let inner = Selector {
        path: inner,
        range: range.clone(),
    };
    // The type of the document is erased, because a string may hold JSON that has such a string again.
    let inside: &dyn Document<Error = D::Error> = &inside;
    Ok(read(inside, &inner, max_bytes)?.within(&outer))
}

/// Reads a value: a string as its unescaped text, any other value as JSON.
///
/// `path` is the path that the caller gave, which a cursor carries: it is not longer than necessary.
pub(crate) fn read_node<D: Document + ?Sized>(
    doc: &D,
    node: &JsonNode,
    path: &Path,
    range: &Range,
    max_bytes: usize,
) -> Result<Reading, D::Error> {
    let span = &node.span;
    if node.kind == JsonKind::String {
        let text = Unescaped::new(doc, span.start + 1..span.end - 1)?;
        read_string(&text, span, path, range, max_bytes)
    } else {
        let part = DocumentPart::new(doc, span.clone())?;
        if node.kind == JsonKind::Scalar {
            check_scalar(&part, span.start)?;
        }
        read_json(&part, node.kind, span, path, range, max_bytes)
    }
}

fn read_string<D: Document + ?Sized>(
    text: &Unescaped<'_, D>,
    span: &ops::Range<u64>,
    path: &Path,
    range: &Range,
    max_bytes: usize,
) -> Result<Reading, D::Error> {
    let raw_before = |bytes| text.raw_before(bytes);
    read_value(
        text,
        JsonKind::String,
        span,
        path,
        range,
        raw_before,
        max_bytes,
    )
}

fn read_json<D: Document + ?Sized>(
    part: &DocumentPart<'_, D>,
    kind: JsonKind,
    span: &ops::Range<u64>,
    path: &Path,
    range: &Range,
    max_bytes: usize,
) -> Result<Reading, D::Error> {
    read_value(part, kind, span, path, range, Ok, max_bytes)
}

/// Reads the text of a value, with a shortcut to the end of the reading.
fn read_value<D: Document>(
    text: &D,
    value_kind: JsonKind,
    span: &ops::Range<u64>,
    path: &Path,
    range: &Range,
    raw_before: impl Fn(u64) -> Result<u64, D::Error>,
    max_bytes: usize,
) -> Result<Reading, D::Error> {
    let mut reading = read_text(text, path, range, max_bytes)?;
    if let Reading::Text {
        kind,
        window,
        shortcut,
        ..
    } = &mut reading
    {
        *kind = Some(value_kind);
        if let Some(end_chars) = window.next_offset() {
            let end = find_char(text, end_chars)?;
            *shortcut = Some(Shortcut::Text {
                kind: value_kind,
                span: span.clone(),
                size_bytes: text.len_bytes(),
                size_chars: window.size_chars,
                bytes: end.bytes,
                raw: raw_before(end.bytes)?,
            });
        }
    }
    Ok(reading)
}

/// Checks that a scalar is valid JSON. The scanner only finds where a scalar ends.
pub(crate) fn check_scalar<D: Document + ?Sized>(part: &D, at: u64) -> Result<(), D::Error> {
    let text = take_chars(part, Mark::default(), limits::WINDOW_CHARS_MAX)?;
    match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::NotJson { at }.into()),
    }
}

fn read_text<D: Document + ?Sized>(
    doc: &D,
    path: &Path,
    range: &Range,
    max_bytes: usize,
) -> Result<Reading, D::Error> {
    let most = |limit_chars| Extent::new(limit_chars, max_bytes);
    let window = match range {
        Range::Chars {
            offset_chars,
            limit_chars,
        }
        | Range::Item {
            offset_chars,
            limit_chars,
            ..
        } => window_at_offset(doc, *offset_chars, most(*limit_chars)?)?,
        Range::Before {
            end_chars,
            limit_chars,
        } => window_up_to(doc, *end_chars, most(*limit_chars)?)?,
        // A text counts as one item.
        Range::Items { limit_chars, .. } => window_at_offset(doc, 0, most(*limit_chars)?)?,
        Range::Lines { first, last } => {
            window_of_lines(doc, *first, *last, most(limits::WINDOW_CHARS_MAX)?)?
        }
        Range::Match {
            q,
            before_chars,
            after_chars,
        } => window_around_match(
            doc,
            &DocumentSearch::from_text(q)?,
            *before_chars,
            *after_chars,
            max_bytes,
        )?,
        Range::Pattern {
            pattern,
            offset_chars,
        } => return read_hits(doc, path, pattern, *offset_chars, max_bytes),
    };
    Ok(Reading::Text {
        path: path.clone(),
        kind: None,
        window,
        item: None,
        shortcut: None,
    })
}

fn read_hits<D: Document + ?Sized>(
    doc: &D,
    path: &Path,
    pattern: &str,
    offset_chars: u64,
    max_bytes: usize,
) -> Result<Reading, D::Error> {
    let search = DocumentSearch::from_pattern(pattern)?;
    let mut hits = Vec::new();
    let mut next = None;
    let mut room = max_bytes;
    search.visit_matches(doc, offset_chars, |hit| {
        let found = PatternMatch {
            start_chars: hit.start.chars,
            end_chars: hit.end_chars,
            line: hit.start.lines + 1,
            text: line_around(&hit),
        };
        if hits.len() == limits::HITS || found.bytes() > room {
            next = Some(Position {
                target: CursorTarget::Hits(path.clone(), pattern.to_owned()),
                offset: found.start_chars,
                limit_chars: limits::WINDOW_CHARS,
                shortcut: None,
            });
            return false;
        }
        room -= found.bytes();
        hits.push(found);
        true
    })?;
    if hits.is_empty() {
        return Err(match next {
            Some(_) => Error::BudgetTooSmall { max_bytes },
            None => Error::MatchAbsent,
        }
        .into());
    }
    Ok(Reading::Hits {
        path: path.clone(),
        pattern: pattern.to_owned(),
        hits,
        next,
    })
}

/// Returns the text on the line of a match, with a little context on either side. `…` stands where the line is cut.
fn line_around(hit: &BufferMatch<'_>) -> String {
    let context = limits::HIT_CONTEXT_CHARS;
    let mut lines = hit.before.rsplit(|byte| *byte == b'\n');
    let before = lines.next().unwrap_or_default();
    let begins_in_buffer = lines.next().is_some();
    let before = String::from_utf8_lossy(before);
    let before_chars = before.chars().count();
    let is_cut_before =
        before_chars > context || !begins_in_buffer && hit.start.chars > before_chars as u64;
    let before = before.chars().skip(before_chars.saturating_sub(context));
    // The match itself may span lines; the line it begins on is the one shown.
    let mut lines = hit.after.split(|byte| *byte == b'\n');
    let after = lines.next().unwrap_or_default();
    let matched = usize::try_from(hit.end_chars - hit.start.chars).unwrap_or(usize::MAX);
    let after_chars = matched.min(context) + context;
    // No character has more than four bytes.
    let after = String::from_utf8_lossy(&after[..after.len().min((after_chars + 1) * 4)]);
    let after = after.trim_end_matches('\r');
    let is_cut_after = after.chars().nth(after_chars).is_some();
    let mark = |is_cut: bool| is_cut.then_some('…').into_iter();
    mark(is_cut_before)
        .chain(before)
        .chain(after.chars().take(after_chars))
        .chain(mark(is_cut_after))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(reading: Reading) -> String {
        match reading {
            Reading::Text { window, .. } => window.text,
            Reading::Items { text, .. } => text,
            Reading::Hits { hits, .. } => hits
                .iter()
                .map(|hit| hit.text.as_str())
                .collect::<Vec<_>>()
                .join("|"),
        }
    }

    fn select(doc: &str, path: &str, range: Range) -> Result<Reading> {
        let path = path.parse().expect(path);
        read(doc, &Selector { path, range }, 50_000)
    }

    fn chars(offset_chars: u64, limit_chars: u64) -> Range {
        Range::Chars {
            offset_chars,
            limit_chars,
        }
    }

    #[test]
    fn a_string_is_read_as_the_text_it_means() {
        let doc = r#"{"body":"line\n\ud83e\udd80 two","n":[1, 2]}"#;
        assert_eq!(
            text(select(doc, "body", chars(5, 3)).unwrap()),
            "\u{1F980} t"
        );
        assert_eq!(text(select(doc, "n", chars(0, 99)).unwrap()), "[1, 2]");
        assert_eq!(text(select(doc, "n[*]", chars(0, 99)).unwrap()), "[1,2]");
    }

    #[test]
    fn a_path_goes_on_into_json_inside_a_string() {
        let inner =
            r#"{"rows": [{"id": 1, "note": "{\"deep\": [7, 8]}"}, {"id": 2}], "t": "a\nb"}"#;
        let doc = serde_json::json!({"content": [{"text": inner}, {"text": "plain"}]}).to_string();
        let read = |path: &str| select(&doc, path, chars(0, 99)).map(text);
        assert_eq!(read("content[0].text").unwrap(), inner);
        assert_eq!(read("content[0].text.rows[1]").unwrap(), r#"{"id": 2}"#);
        assert_eq!(read("content[0].text.rows[*].id").unwrap(), "[1,2]");
        assert_eq!(read("content[0].text.t").unwrap(), "a\nb");
        assert_eq!(read("content[0].text.rows[0].note.deep[1]").unwrap(), "8");
        for absent in [
            "content[0].text.nope",
            "content[1].text.rows",
            "content[1].text[*]",
        ] {
            let error = read(absent).unwrap_err();
            assert!(matches!(error, Error::PathAbsent(_)), "{absent}: {error}");
        }
    }

    #[test]
    fn reading_on_in_json_inside_a_string_loses_nothing() {
        let rows: Vec<_> = (0..40)
            .map(|n| serde_json::json!({"n": n, "t": "é\n".repeat(n)}))
            .collect();
        let inner = serde_json::json!({"rows": rows, "long": "xyz".repeat(50)});
        let doc = serde_json::json!({"text": inner.to_string()}).to_string();
        let read_all = |path: &str, range: Range| {
            let path = path.parse().unwrap();
            let mut selector = Selector { path, range };
            let mut parts = Vec::new();
            loop {
                let reading = read(doc.as_str(), &selector, 50_000).unwrap();
                let next = reading.next();
                parts.push(text(reading));
                let Some(next) = next else { return parts };
                selector = next.selector();
            }
        };
        assert_eq!(
            read_all("text.long", chars(0, 16)).concat(),
            "xyz".repeat(50)
        );
        let items = Range::Items {
            first: 0,
            limit_chars: 200,
        };
        let parts = read_all("text.rows", items);
        let read: Vec<serde_json::Value> = parts
            .iter()
            .flat_map(|part| serde_json::from_str::<Vec<_>>(part).unwrap())
            .collect();
        assert!(parts.len() > 3);
        assert_eq!(read, rows);
    }

    #[test]
    fn entries_of_an_object_keep_their_names() {
        let doc = r#"{"a": 1, "b": {"c": 2}, "d\"": 3}"#;
        let reading = select(doc, "[1:]", chars(0, 99)).unwrap();
        assert_eq!(text(reading), r#"{"b":{"c": 2},"d\"":3}"#);
    }

    #[test]
    fn values_of_several_parents_are_a_list() {
        let all = |doc: &str, path: &str| text(select(doc, path, chars(0, 99)).unwrap());
        let doc = r#"{"o": [{"a": 1}, [9], {"a": 2}], "e": {}, "l": [], "n": 7, "s": "abc"}"#;
        assert_eq!(all(doc, "o[*][*]"), "[1,9,2]");
        assert_eq!(all(doc, "o[*].a"), "[1,2]");
        assert_eq!(all(doc, "e[*]"), "{}");
        assert_eq!(all(doc, "l[*]"), "[]");
        assert_eq!(all(doc, "o[5:]"), "[]");
        for wrong in ["nope[*]", "n[*]", "s[0:3]"] {
            let read = select(doc, wrong, chars(0, 99));
            assert!(matches!(read, Err(Error::PathAbsent(_))), "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_as_a_scalar_is_one() {
        for doc in ["[tru]", "[01]", "[nullx]", "[1 ]"] {
            for path in ["[0]", "[*]"] {
                let read = select(doc, path, chars(0, 99));
                assert_eq!(read.is_ok(), doc == "[1 ]", "{doc}");
            }
        }
        assert_eq!(
            text(select("[1e400]", "[0]", chars(0, 99)).unwrap()),
            "1e400"
        );
    }

    #[test]
    fn a_string_and_what_looks_like_it_are_told_apart() {
        let doc = r#"["[1,2]", [1,2], "5", 5]"#;
        for (path, expected) in [
            ("[0]", JsonKind::String),
            ("[1]", JsonKind::Array),
            ("[2]", JsonKind::String),
            ("[3]", JsonKind::Scalar),
        ] {
            match select(doc, path, chars(0, 99)).unwrap() {
                Reading::Text { kind, .. } => assert_eq!(kind, Some(expected)),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn items_go_on_where_they_stopped_and_long_ones_become_text() {
        let doc = r#"[11,22,"a very long text indeed",33]"#;
        let mut selector = Selector {
            path: "[*]".parse().unwrap(),
            range: Range::Items {
                first: 0,
                limit_chars: 8,
            },
        };
        let mut seen = Vec::new();
        loop {
            let reading = read(doc, &selector, 50_000).unwrap();
            let next = reading.next();
            seen.push(text(reading));
            let Some(position) = next else { break };
            selector = position.selector();
        }
        assert_eq!(seen, ["[11,22]", "a very l", "ong text", " indeed", "[33]"]);
    }

    #[test]
    fn a_shortcut_that_cannot_be_is_not_taken() {
        let doc = r#"{"rows": [1, 2, 3], "body": "some text"}"#;
        let far = doc.len() as u64 + 1;
        for (place, shortcut) in [
            (
                CursorTarget::Items("rows[*]".parse().unwrap()),
                Shortcut::Item {
                    at: far,
                    original: 3,
                },
            ),
            (
                CursorTarget::Items("rows[*]".parse().unwrap()),
                Shortcut::Item { at: 9, original: 1 },
            ),
            (
                CursorTarget::Items("rows".parse().unwrap()),
                Shortcut::Item { at: 9, original: 3 },
            ),
            (
                CursorTarget::Text("body".parse().unwrap()),
                Shortcut::Text {
                    kind: JsonKind::String,
                    span: 7..8,
                    size_bytes: 9,
                    size_chars: 9,
                    bytes: 1,
                    raw: 1,
                },
            ),
        ] {
            let position = Position {
                target: place,
                offset: 1,
                limit_chars: 99,
                shortcut: Some(shortcut),
            };
            let long_way = read(doc, &position.selector(), 1_000);
            assert_eq!(
                continue_reading(doc, &position, 1_000),
                long_way,
                "{position:?}"
            );
        }
    }

    #[test]
    fn lines_count_from_one() {
        let doc = "one\ntwo\nthree\n";
        let lines = |first, last| text(select(doc, "", Range::Lines { first, last }).unwrap());
        assert_eq!(lines(1, 1), "one\n");
        assert_eq!(lines(2, 3), "two\nthree\n");
        assert_eq!(lines(3, 99), "three\n");
        assert_eq!(lines(9, 9), "");
        assert!(select(doc, "", Range::Lines { first: 0, last: 1 }).is_err());
    }

    #[test]
    fn matches_are_shown_with_their_surroundings() {
        let doc = format!("{}needle{}", "a".repeat(5_000), "b".repeat(5_000));
        let range = Range::Match {
            q: "NEEDLE".to_owned(),
            before_chars: 3,
            after_chars: 2,
        };
        match select(&doc, "", range).unwrap() {
            Reading::Text { window, .. } => {
                assert_eq!(window.text, "aaaneedlebb");
                assert_eq!(window.found, Some((5_000, 5_006)));
                assert_eq!(window.start_chars, 4_997);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_pattern_lists_places_and_goes_on() {
        let rows: Vec<String> = (0..50).map(|n| format!("row {n} ok\n")).collect();
        let doc = rows.concat();
        let mut range = Range::Pattern {
            pattern: "^row \\d+".to_owned(),
            offset_chars: 0,
        };
        let mut lines = Vec::new();
        loop {
            match select(&doc, "", range).unwrap() {
                Reading::Hits { hits, next, .. } => {
                    lines.extend(hits.iter().map(|hit| (hit.line, hit.text.clone())));
                    let Some(next) = next else { break };
                    range = next.selector().range;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(lines.len(), 50);
        assert_eq!(lines[49], (50, "row 49 ok".to_owned()));
    }

    #[test]
    fn a_hit_says_where_its_line_is_cut() {
        let (long, short) = ("x".repeat(200), "y".repeat(20));
        for (before, after, cut) in [
            (&*short, &*short, [false, false]),
            (&*long, &*short, [true, false]),
            (&*short, &*long, [false, true]),
            (&*long, &*long, [true, true]),
            ("", "", [false, false]),
        ] {
            let doc = format!("first\n{before}needle{after}\nlast");
            let range = Range::Pattern {
                pattern: "needle".to_owned(),
                offset_chars: 0,
            };
            let shown = text(select(&doc, "", range).unwrap());
            let marks = [shown.starts_with('…'), shown.ends_with('…')];
            assert_eq!(marks, cut, "{shown}");
            assert!(cut != [false; 2] || shown == format!("{before}needle{after}"));
        }
    }

    #[test]
    fn binary_is_never_inlined() {
        let doc: &[u8] = &[0xff, 0xfe, 0x00];
        for range in [
            chars(0, 10),
            Range::Lines { first: 1, last: 2 },
            Range::Match {
                q: "x".to_owned(),
                before_chars: 0,
                after_chars: 0,
            },
            Range::Pattern {
                pattern: "x".to_owned(),
                offset_chars: 0,
            },
        ] {
            let selector = Selector {
                path: Path::root(),
                range,
            };
            assert_eq!(read(doc, &selector, 1_000), Err(Error::NotText));
        }
    }
}
