//! Reading a part of any document: where ([`Path`]), and how much ([`Range`]).

use std::ops::{self, ControlFlow};

use crate::budget::limits;
use crate::cursor::{Place, Position, Shortcut};
use crate::document::{Document, Mark, Part, Unescaped, find_char, take_chars};
use crate::items::read_items;
use crate::path::Segment;
use crate::scan::{Kind, Node, select};
use crate::search::{Hit, Search};
use crate::text::json_string_bytes;
use crate::window::{Extent, Window, around_match, at_offset, of_lines, up_to};
use crate::{Error, Path, Result};

/// What to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// Where. The root is the document's own text; a path needs JSON.
    pub path: Path,
    /// How much of it.
    pub range: Range,
}

/// Which part of what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Range {
    /// A number of code points from an offset.
    Chars {
        /// Code points to pass over.
        offset_chars: u64,
        /// Code points to read.
        limit_chars: u64,
    },
    /// A number of code points up to an offset.
    Before {
        /// Where it ends.
        end_chars: u64,
        /// Code points to read.
        limit_chars: u64,
    },
    /// Lines, counted from 1, both ends included.
    Lines {
        /// The first.
        first: u64,
        /// The last.
        last: u64,
    },
    /// Whole items of what the path leads to, as many as fit.
    Items {
        /// Items to pass over.
        first: u64,
        /// Code points to read.
        limit_chars: u64,
    },
    /// A number of code points of one of the items, which is too long to be shown whole.
    Item {
        /// Items before it.
        index: u64,
        /// Code points to pass over.
        offset_chars: u64,
        /// Code points to read.
        limit_chars: u64,
    },
    /// The surroundings of a text's first occurrence, whatever its case.
    Match {
        /// The text.
        q: String,
        /// Code points before it.
        before_chars: u64,
        /// Code points after it.
        after_chars: u64,
    },
    /// The places where a regular expression matches.
    Pattern {
        /// The expression.
        pattern: String,
        /// Code points to pass over.
        offset_chars: u64,
    },
}

impl Selector {
    /// A window of the document's own text.
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

/// One place where a regular expression matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where the match begins.
    pub start_chars: u64,
    /// Where it ends.
    pub end_chars: u64,
    /// Its line, counted from 1.
    pub line: u64,
    /// What stands around it on that line.
    pub text: String,
}

/// One of the items that a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Among {
    /// The path to all of them.
    pub path: Path,
    /// Items before this one.
    pub index: u64,
    /// Items there are.
    pub original: u64,
    /// A short way to the next one.
    pub behind: Option<Shortcut>,
}

/// What a selector leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// A part of a text.
    Text {
        /// The text's place, with every slice resolved.
        path: Path,
        /// What it is in the document; `None` for the document's own text. A string is shown as the text
        /// it means, everything else as the JSON it is.
        kind: Option<Kind>,
        /// The part.
        window: Window,
        /// Which of several items it belongs to, where it is one.
        among: Option<Among>,
        /// A short way to its end.
        shortcut: Option<Shortcut>,
    },
    /// Whole values, as one JSON array or object.
    Items {
        /// What was asked.
        path: Path,
        /// The values, each with the bytes it has in the document.
        text: String,
        /// Values passed over before the first one.
        first: u64,
        /// Values in `text`.
        returned: u64,
        /// Values the path leads to.
        original: u64,
        /// Where to go on.
        next: Option<Position>,
    },
    /// Places where a regular expression matched.
    Hits {
        /// What was searched.
        path: Path,
        /// The places.
        hits: Vec<Found>,
        /// Where to go on.
        next: Option<Position>,
    },
}

/// Reads what `selector` names. The text of the reading takes at most `max_bytes` inside a JSON string.
pub fn read<D: Document + ?Sized>(
    doc: &D,
    selector: &Selector,
    max_bytes: usize,
) -> Result<Reading, D::Error> {
    doc.len_chars().ok_or(Error::NotText)?;
    let Selector { path, range } = selector;
    if path.is_plural() {
        return read_items(doc, path, range, None, max_bytes);
    }
    let at_root = path.segments().is_empty();
    if at_root && !matches!(range, Range::Items { .. }) {
        return read_text(doc, path, range, max_bytes);
    }
    let node = locate(doc, path)?;
    match (node.kind, range) {
        (Kind::Array | Kind::Object, Range::Items { .. }) => {
            let inside = path.then(Segment::Slice(0, None));
            read_items(doc, &inside, range, None, max_bytes)
        }
        // At the root a text is the document's own, so that every offset means the same.
        _ if at_root => read_text(doc, path, range, max_bytes),
        _ => read_node(doc, &node, path, range, max_bytes),
    }
}

/// Reads on where an earlier reading of the same document stopped: what [`read()`] gives for the position's
/// selector, by the short way where one is known.
pub fn go_on<D: Document + ?Sized>(
    doc: &D,
    position: &Position,
    max_bytes: usize,
) -> Result<Reading, D::Error> {
    match (&position.place, position.sound_shortcut(doc.len_bytes())) {
        (
            Place::Text(path),
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
            if *kind == Kind::String {
                let inside = span.start + 1..span.end - 1;
                let size = (*size_bytes, *size_chars);
                let text = Unescaped::known(doc, inside, size, near, *raw);
                read_string(&text, span, path, &range, max_bytes)
            } else {
                let part = Part::known(doc, span.clone(), *size_chars, near);
                read_json(&part, *kind, span, path, &range, max_bytes)
            }
        }
        (Place::Items(path), Some(Shortcut::Item { .. })) if path.is_plural() => {
            let range = position.selector().range;
            read_items(doc, path, &range, position.shortcut.as_ref(), max_bytes)
        }
        _ => read(doc, &position.selector(), max_bytes),
    }
}

impl Position {
    /// What a cursor that holds this position goes on to read.
    pub fn selector(&self) -> Selector {
        let (offset, limit_chars) = (self.offset, self.limit_chars);
        let (path, range) = match &self.place {
            Place::Text(path) => (
                path,
                Range::Chars {
                    offset_chars: offset,
                    limit_chars,
                },
            ),
            Place::Before(path) => (
                path,
                Range::Before {
                    end_chars: offset,
                    limit_chars,
                },
            ),
            Place::Items(path) => (
                path,
                Range::Items {
                    first: offset,
                    limit_chars,
                },
            ),
            Place::Item(path, index) => (
                path,
                Range::Item {
                    index: *index,
                    offset_chars: offset,
                    limit_chars,
                },
            ),
            Place::Hits(path, pattern) => (
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
    /// Where reading goes on behind this, in the document's order.
    pub fn next(&self) -> Option<Position> {
        match self {
            Self::Text {
                path,
                window,
                among,
                shortcut,
                ..
            } => {
                if let Some(offset) = window.next_offset() {
                    let (place, shortcut) = match among {
                        Some(Among { path, index, .. }) => {
                            (Place::Item(path.clone(), *index), None)
                        }
                        None => (Place::Text(path.clone()), shortcut.clone()),
                    };
                    return Some(window.neighbour(place, offset, shortcut));
                }
                let among = among.as_ref()?;
                let next = among.index + 1;
                (next < among.original).then(|| Position {
                    place: Place::Items(among.path.clone()),
                    offset: next,
                    limit_chars: window.limit_chars,
                    shortcut: among.behind.clone(),
                })
            }
            Self::Items { next, .. } | Self::Hits { next, .. } => next.clone(),
        }
    }

    /// Where the part before this one ends.
    pub fn previous(&self) -> Option<Position> {
        match self {
            // Of one item among several the beginning is where the items are.
            Self::Text {
                path,
                window,
                among: None,
                ..
            } if window.start_chars > 0 => {
                Some(window.neighbour(Place::Before(path.clone()), window.start_chars, None))
            }
            _ => None,
        }
    }

    /// Bytes of its text inside a JSON string: what it took of the room it was given.
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::Text { window, .. } => json_string_bytes(&window.text),
            Self::Items { text, .. } => json_string_bytes(text),
            Self::Hits { hits, .. } => hits.iter().map(Found::bytes).sum(),
        }
    }
}

impl Found {
    fn bytes(&self) -> usize {
        json_string_bytes(&self.text) + limits::HIT_BYTES
    }
}

impl Window {
    /// A place in the same text, to be read in steps of the same size.
    fn neighbour(&self, place: Place, offset: u64, shortcut: Option<Shortcut>) -> Position {
        Position {
            place,
            offset,
            limit_chars: self.step_chars(),
            shortcut,
        }
    }
}

/// The one value at a path.
pub(crate) fn locate<D: Document + ?Sized>(doc: &D, path: &Path) -> Result<Node, D::Error> {
    let mut found = None;
    select(doc, path, |node| {
        found = Some(node);
        ControlFlow::Break(())
    })?;
    found.ok_or_else(|| Error::PathAbsent(path.to_string()).into())
}

/// A string is read as the text it means, everything else as the text it is.
///
/// `path` is how the node was asked for, which is what a cursor carries: it is no longer than it has to be.
pub(crate) fn read_node<D: Document + ?Sized>(
    doc: &D,
    node: &Node,
    path: &Path,
    range: &Range,
    max_bytes: usize,
) -> Result<Reading, D::Error> {
    let span = &node.span;
    if node.kind == Kind::String {
        let text = Unescaped::new(doc, span.start + 1..span.end - 1)?;
        read_string(&text, span, path, range, max_bytes)
    } else {
        let part = Part::new(doc, span.clone())?;
        if node.kind == Kind::Scalar {
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
    read_value(text, Kind::String, span, path, range, raw_before, max_bytes)
}

fn read_json<D: Document + ?Sized>(
    part: &Part<'_, D>,
    kind: Kind,
    span: &ops::Range<u64>,
    path: &Path,
    range: &Range,
    max_bytes: usize,
) -> Result<Reading, D::Error> {
    read_value(part, kind, span, path, range, Ok, max_bytes)
}

/// The text of a value, with a short way to where the reading ends.
fn read_value<D: Document>(
    text: &D,
    value_kind: Kind,
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

/// The scanner passes scalars over by where they end; one that is shown should be one.
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
        } => at_offset(doc, *offset_chars, most(*limit_chars)?)?,
        Range::Before {
            end_chars,
            limit_chars,
        } => up_to(doc, *end_chars, most(*limit_chars)?)?,
        // A text is one item.
        Range::Items { limit_chars, .. } => at_offset(doc, 0, most(*limit_chars)?)?,
        Range::Lines { first, last } => {
            of_lines(doc, *first, *last, most(limits::WINDOW_CHARS_MAX)?)?
        }
        Range::Match {
            q,
            before_chars,
            after_chars,
        } => around_match(
            doc,
            &Search::text(q)?,
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
        among: None,
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
    let search = Search::pattern(pattern)?;
    let mut hits = Vec::new();
    let mut next = None;
    let mut room = max_bytes;
    search.each(doc, offset_chars, |hit| {
        let found = Found {
            start_chars: hit.start.chars,
            end_chars: hit.end_chars,
            line: hit.start.lines + 1,
            text: line_around(&hit),
        };
        if hits.len() == limits::HITS || found.bytes() > room {
            next = Some(Position {
                place: Place::Hits(path.clone(), pattern.to_owned()),
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
        hits,
        next,
    })
}

/// What stands on the line of a hit, a little to either side of it.
fn line_around(hit: &Hit<'_>) -> String {
    let context = limits::HIT_CONTEXT_CHARS;
    let before = hit
        .before
        .rsplit(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let before = &before[before.len().saturating_sub(context * 4)..];
    let before: Vec<char> = String::from_utf8_lossy(before)
        .chars()
        .rev()
        .take(context)
        .collect();
    // The match itself may span lines; the line it begins on is the one shown.
    let after = hit
        .after
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let after = &after[..after.len().min(context * 8)];
    let matched = usize::try_from(hit.end_chars - hit.start.chars).unwrap_or(usize::MAX);
    let after = String::from_utf8_lossy(after);
    let shown = after
        .trim_end_matches('\r')
        .chars()
        .take(matched.min(context) + context);
    before.into_iter().rev().chain(shown).collect()
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
            ("[0]", Kind::String),
            ("[1]", Kind::Array),
            ("[2]", Kind::String),
            ("[3]", Kind::Scalar),
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
                Place::Items("rows[*]".parse().unwrap()),
                Shortcut::Item {
                    at: far,
                    original: 3,
                },
            ),
            (
                Place::Items("rows[*]".parse().unwrap()),
                Shortcut::Item { at: 9, original: 1 },
            ),
            (
                Place::Items("rows".parse().unwrap()),
                Shortcut::Item { at: 9, original: 3 },
            ),
            (
                Place::Text("body".parse().unwrap()),
                Shortcut::Text {
                    kind: Kind::String,
                    span: 7..8,
                    size_bytes: 9,
                    size_chars: 9,
                    bytes: 1,
                    raw: 1,
                },
            ),
        ] {
            let position = Position {
                place,
                offset: 1,
                limit_chars: 99,
                shortcut: Some(shortcut),
            };
            let long_way = read(doc, &position.selector(), 1_000);
            assert_eq!(go_on(doc, &position, 1_000), long_way, "{position:?}");
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
