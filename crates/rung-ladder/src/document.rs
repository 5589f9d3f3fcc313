//! Documents: bytes that are read a piece at a time.
//!
//! Everything that reads parts works on a [`Document`], so a text in memory, a stored result and one
//! string inside a stored JSON document are windowed by the same code, with memory that does not depend
//! on their size.

use std::cell::Cell;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::budget::limits;
use crate::text::{chars_in, lines_in, nth_char};
use crate::{Error, Result};

/// A position in a text in bytes, code points and lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// Bytes before the position.
    pub bytes: u64,
    /// Code points that begin before the position.
    pub chars: u64,
    /// Line breaks before the position.
    pub lines: u64,
}

impl Mark {
    /// Returns the position after `bytes`, which follow this one.
    #[must_use]
    pub fn after(self, bytes: &[u8]) -> Self {
        Self {
            bytes: self.bytes + bytes.len() as u64,
            chars: self.chars + chars_in(bytes),
            lines: self.lines + lines_in(bytes),
        }
    }
}

/// Some bytes of a document, borrowed from it or shared.
#[derive(Debug, Clone)]
pub enum Piece<'d> {
    /// Borrowed from the document.
    Borrowed(&'d [u8]),
    /// A range of fetched bytes.
    Shared(Arc<[u8]>, Range<usize>),
}

impl Piece<'_> {
    fn truncate(&mut self, len: usize) {
        match self {
            Self::Borrowed(bytes) => *bytes = &bytes[..len.min(bytes.len())],
            Self::Shared(_, range) => range.end = range.end.min(range.start + len),
        }
    }
}

impl Deref for Piece<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Shared(bytes, range) => &bytes[range.clone()],
        }
    }
}

impl From<Vec<u8>> for Piece<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self::Shared(bytes.into(), range)
    }
}

/// Bytes with random access.
pub trait Document {
    /// The error of a failed read.
    type Error: From<Error>;

    /// Returns the length in bytes.
    fn len_bytes(&self) -> u64;

    /// Returns the length in code points; `None` if the document is not text.
    fn len_chars(&self) -> Option<u64>;

    /// Returns some bytes from `offset` on: at least one if `offset` lies inside, none at or past the end.
    fn piece(&self, offset: u64) -> Result<Piece<'_>, Self::Error>;

    /// Returns a known position at or before the code point `chars`.
    fn near_char(&self, _chars: u64) -> Result<Mark, Self::Error> {
        Ok(Mark::default())
    }

    /// Returns a known position at or before the start of the line with `lines` line breaks before it.
    fn near_line(&self, _lines: u64) -> Result<Mark, Self::Error> {
        Ok(Mark::default())
    }
}

impl Document for str {
    type Error = Error;

    fn len_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn len_chars(&self) -> Option<u64> {
        Some(chars_in(self.as_bytes()))
    }

    fn piece(&self, offset: u64) -> Result<Piece<'_>> {
        self.as_bytes().piece(offset)
    }
}

/// Bytes that are not declared as text.
impl Document for [u8] {
    type Error = Error;

    fn len_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn len_chars(&self) -> Option<u64> {
        None
    }

    fn piece(&self, offset: u64) -> Result<Piece<'_>> {
        let start = usize::try_from(offset).map_or(self.len(), |at| at.min(self.len()));
        Ok(Piece::Borrowed(&self[start..]))
    }
}

/// A part of a document, as a document.
pub(crate) struct DocumentPart<'d, D: ?Sized> {
    doc: &'d D,
    span: Range<u64>,
    chars: Option<u64>,
    /// A known position in it.
    near: Mark,
}

impl<'d, D: Document + ?Sized> DocumentPart<'d, D> {
    pub(crate) fn new(doc: &'d D, span: Range<u64>) -> Result<Self, D::Error> {
        let mut part = Self {
            doc,
            span,
            chars: None,
            near: Mark::default(),
        };
        if doc.len_chars().is_some() {
            part.chars = Some(count_chars(&part)?);
        }
        Ok(part)
    }

    /// Creates a part whose length and one position are known already.
    pub(crate) fn with_known_chars(doc: &'d D, span: Range<u64>, chars: u64, near: Mark) -> Self {
        Self {
            doc,
            span,
            chars: Some(chars),
            near,
        }
    }
}

impl<D: Document + ?Sized> Document for DocumentPart<'_, D> {
    type Error = D::Error;

    fn len_bytes(&self) -> u64 {
        self.span.end - self.span.start
    }

    fn len_chars(&self) -> Option<u64> {
        self.chars
    }

    fn piece(&self, offset: u64) -> Result<Piece<'_>, D::Error> {
        let left = self.len_bytes().saturating_sub(offset);
        if left == 0 {
            return Ok(Piece::Borrowed(&[]));
        }
        let mut piece = self.doc.piece(self.span.start + offset)?;
        piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        Ok(piece)
    }

    fn near_char(&self, chars: u64) -> Result<Mark, D::Error> {
        Ok(near_or_start(self.near, chars))
    }
}

/// Returns the known position if it lies before the wanted one, else the beginning.
fn near_or_start(near: Mark, chars: u64) -> Mark {
    if near.chars <= chars {
        near
    } else {
        Mark::default()
    }
}

/// The text of one JSON string inside a document, with its escapes undone.
///
/// The text is decoded as it is read; continuing where the last piece ended costs nothing extra.
pub(crate) struct Unescaped<'d, D: ?Sized> {
    raw: DocumentPart<'d, D>,
    bytes: u64,
    chars: u64,
    /// A known position in it.
    near: Mark,
    /// The start and end of the last read: bytes of raw text, and of decoded text, before each.
    last_read: Cell<[(u64, u64); 2]>,
}

impl<'d, D: Document + ?Sized> Unescaped<'d, D> {
    /// `span` is the range between the quotes.
    pub(crate) fn new(doc: &'d D, span: Range<u64>) -> Result<Self, D::Error> {
        let mut text = Self {
            raw: DocumentPart {
                doc,
                span,
                chars: None,
                near: Mark::default(),
            },
            bytes: u64::MAX,
            chars: 0,
            near: Mark::default(),
            last_read: Cell::default(),
        };
        let (mut bytes, mut chars) = (0, 0);
        loop {
            let piece = text.piece(bytes)?;
            if piece.is_empty() {
                break;
            }
            chars += chars_in(&piece);
            bytes += piece.len() as u64;
        }
        text.bytes = bytes;
        text.chars = chars;
        Ok(text)
    }

    /// Creates a string whose lengths and one position are known already. `raw` is that position in the raw text.
    pub(crate) fn known(
        doc: &'d D,
        span: Range<u64>,
        (bytes, chars): (u64, u64),
        near: Mark,
        raw: u64,
    ) -> Self {
        let text = Self {
            raw: DocumentPart::with_known_chars(doc, span, 0, Mark::default()),
            bytes,
            chars,
            near,
            last_read: Cell::default(),
        };
        text.last_read.set([(raw, near.bytes); 2]);
        text
    }

    /// Returns the bytes of raw text before a position in the decoded text.
    pub(crate) fn raw_before(&self, decoded: u64) -> Result<u64, D::Error> {
        // Moves the last read to the position, so that `last_read` has the start of that read.
        self.piece(decoded)?;
        let [(mut raw, mut at), _] = self.last_read.get();
        while at < decoded {
            let piece = self.raw.piece(raw)?;
            let plain = memchr::memchr(b'\\', &piece).unwrap_or(piece.len()) as u64;
            if plain > 0 {
                let step = plain.min(decoded - at);
                (raw, at) = (raw + step, at + step);
            } else {
                let (used, char) = self.escape(raw)?;
                (raw, at) = (raw + used as u64, at + char.len_utf8() as u64);
            }
        }
        Ok(raw)
    }

    /// Decodes some of the raw text from `at` on. Returns how many raw bytes were used, and the decoded bytes.
    fn decode(&self, at: u64) -> Result<(u64, Vec<u8>), D::Error> {
        let mut raw = self.raw.piece(at)?;
        raw.truncate(limits::DECODE_BYTES);
        let mut decoded = Vec::with_capacity(raw.len());
        let mut used = 0;
        while used < raw.len() {
            let rest = &raw[used..];
            let plain = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
            decoded.extend_from_slice(&rest[..plain]);
            used += plain;
            if plain < rest.len() {
                let (escaped, char) = self.escape(at + used as u64)?;
                let mut buffer = [0; 4];
                decoded.extend_from_slice(char.encode_utf8(&mut buffer).as_bytes());
                used += escaped;
            }
        }
        Ok((used as u64, decoded))
    }

    /// Returns the length and the character of the escape that begins at `at`.
    fn escape(&self, at: u64) -> Result<(usize, char), D::Error> {
        // `\uD83E\uDD80` is the longest escape there is.
        let mut escape = [0; 12];
        let mut length = 0;
        while length < escape.len() {
            let piece = self.raw.piece(at + length as u64)?;
            if piece.is_empty() {
                break;
            }
            let wanted = (escape.len() - length).min(piece.len());
            escape[length..length + wanted].copy_from_slice(&piece[..wanted]);
            length += wanted;
        }
        let escape = &escape[..length];
        Ok(match escape.get(1) {
            Some(b'n') => (2, '\n'),
            Some(b't') => (2, '\t'),
            Some(b'r') => (2, '\r'),
            Some(b'b') => (2, '\u{8}'),
            Some(b'f') => (2, '\u{c}'),
            Some(byte @ (b'"' | b'\\' | b'/')) => (2, char::from(*byte)),
            Some(b'u') => unicode_escape(escape),
            _ => {
                let at = self.raw.span.start + at;
                return Err(Error::NotJson { at }.into());
            }
        })
    }
}

/// Decodes a `\u` escape or a pair of them; a lone surrogate gives U+FFFD.
fn unicode_escape(escape: &[u8]) -> (usize, char) {
    let unit = |at: usize| {
        let digits = std::str::from_utf8(escape.get(at..at + 4)?).ok()?;
        u32::from_str_radix(digits, 16).ok()
    };
    let first = unit(2).unwrap_or(0xFFFD);
    if (0xD800..0xDC00).contains(&first)
        && escape.get(6..8) == Some(b"\\u")
        && let Some(second @ 0xDC00..0xE000) = unit(8)
    {
        let pair = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        return (12, char::from_u32(pair).unwrap_or('\u{FFFD}'));
    }
    (
        escape.len().min(6),
        char::from_u32(first).unwrap_or('\u{FFFD}'),
    )
}

impl<D: Document + ?Sized> Document for Unescaped<'_, D> {
    type Error = D::Error;

    fn len_bytes(&self) -> u64 {
        self.bytes
    }

    fn len_chars(&self) -> Option<u64> {
        Some(self.chars)
    }

    fn near_char(&self, chars: u64) -> Result<Mark, D::Error> {
        Ok(near_or_start(self.near, chars))
    }

    fn piece(&self, offset: u64) -> Result<Piece<'_>, D::Error> {
        let [start, end] = self.last_read.get();
        let known = [end, start, (0, 0)];
        let (mut raw, mut decoded) = *known
            .iter()
            .find(|(_, decoded)| *decoded <= offset)
            .expect("nothing lies before the beginning");
        while raw < self.raw.len_bytes() {
            let (used, bytes) = self.decode(raw)?;
            let after = decoded + bytes.len() as u64;
            if offset < after {
                self.last_read.set([(raw, decoded), (raw + used, after)]);
                let skip = usize::try_from(offset - decoded).expect("less than a piece");
                let range = skip..bytes.len();
                return Ok(Piece::Shared(bytes.into(), range));
            }
            (raw, decoded) = (raw + used, after);
        }
        Ok(Piece::Borrowed(&[]))
    }
}

fn count_chars<D: Document + ?Sized>(doc: &D) -> Result<u64, D::Error> {
    let (mut at, mut chars) = (0, 0);
    loop {
        let piece = doc.piece(at)?;
        if piece.is_empty() {
            return Ok(chars);
        }
        chars += chars_in(&piece);
        at += piece.len() as u64;
    }
}

/// Returns the position where the code point `chars` begins, or the end.
pub(crate) fn find_char<D: Document + ?Sized>(doc: &D, chars: u64) -> Result<Mark, D::Error> {
    let mut mark = doc.near_char(chars)?;
    loop {
        let piece = doc.piece(mark.bytes)?;
        if piece.is_empty() {
            return Ok(mark);
        }
        match nth_char(&piece, chars - mark.chars) {
            Ok(skip) => return Ok(mark.after(&piece[..skip])),
            Err(_) => mark = mark.after(&piece),
        }
    }
}

/// Returns the position of the line with `lines` line breaks before it, or the end.
pub(crate) fn find_line<D: Document + ?Sized>(doc: &D, lines: u64) -> Result<Mark, D::Error> {
    let mut mark = doc.near_line(lines)?;
    while mark.lines < lines {
        let piece = doc.piece(mark.bytes)?;
        if piece.is_empty() {
            break;
        }
        let wanted = usize::try_from(lines - mark.lines - 1).unwrap_or(usize::MAX);
        let end = memchr::memchr_iter(b'\n', &piece)
            .nth(wanted)
            .map_or(piece.len(), |at| at + 1);
        mark = mark.after(&piece[..end]);
    }
    Ok(mark)
}

/// Returns up to `chars` code points from `mark` on.
pub(crate) fn take_chars<D: Document + ?Sized>(
    doc: &D,
    mark: Mark,
    chars: u64,
) -> Result<String, D::Error> {
    let mut bytes = Vec::new();
    let (mut at, mut left) = (mark.bytes, chars);
    loop {
        let piece = doc.piece(at)?;
        if piece.is_empty() {
            break;
        }
        // A code point may continue in the next piece, so stop where one more would begin.
        match nth_char(&piece, left) {
            Ok(end) => {
                bytes.extend_from_slice(&piece[..end]);
                break;
            }
            Err(inside) => {
                bytes.extend_from_slice(&piece);
                left -= inside;
                at += piece.len() as u64;
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| Error::NotText.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document of very small pieces, so that everything crosses a border.
    struct Crumbs<'t>(&'t str, usize);

    impl Document for Crumbs<'_> {
        type Error = Error;
        fn len_bytes(&self) -> u64 {
            self.0.len() as u64
        }
        fn len_chars(&self) -> Option<u64> {
            self.0.len_chars()
        }
        fn piece(&self, offset: u64) -> Result<Piece<'_>> {
            let piece = self.0.piece(offset)?;
            Ok(piece[..piece.len().min(self.1)].to_vec().into())
        }
    }

    #[test]
    fn characters_are_found_and_taken_across_pieces() {
        let text = "añ\n\u{1F980}e\u{301}\nz";
        for size in 1..6 {
            let doc = Crumbs(text, size);
            let chars: Vec<char> = text.chars().collect();
            for from in 0..=chars.len() {
                for count in 0..4 {
                    let mark = find_char(&doc, from as u64).unwrap();
                    let expected: String = chars.iter().skip(from).take(count).collect();
                    assert_eq!(take_chars(&doc, mark, count as u64).unwrap(), expected);
                    assert_eq!(mark.chars, from as u64);
                }
            }
            assert_eq!(find_line(&doc, 2).unwrap().chars, 7);
            assert_eq!(find_line(&doc, 9).unwrap().chars, 8, "the end");
        }
    }

    #[test]
    fn json_strings_are_decoded_across_pieces() {
        let value = "line\n\t\"quoted\\\" \u{1F980} é \u{8}\u{c}\r / end";
        let mut raw = serde_json::to_string(value).unwrap();
        raw.insert_str(1, r"\u00e9\ud83e\udd80\/");
        let expected = format!("é\u{1F980}/{value}");
        for size in 1..8 {
            let doc = Crumbs(&raw, size);
            let text = Unescaped::new(&doc, 1..raw.len() as u64 - 1).unwrap();
            assert_eq!(text.len_chars(), expected.len_chars());
            let all = take_chars(&text, Mark::default(), 1_000).unwrap();
            assert_eq!(all, expected);
            let late = find_char(&text, 9).unwrap();
            let early = find_char(&text, 2).unwrap();
            assert_eq!(late.bytes, expected.char_indices().nth(9).unwrap().0 as u64);
            assert_eq!(take_chars(&text, early, 1).unwrap(), "/");
        }
    }

    #[test]
    fn lone_surrogates_and_bad_escapes_do_not_panic() {
        for (raw, expected) in [
            (r"\ud83e", Some("\u{FFFD}")),
            (r"\ud83e\u0041", Some("\u{FFFD}A")),
            (r"\udd80x", Some("\u{FFFD}x")),
            (r"\u12", Some("\u{FFFD}")),
            (r"\q", None),
            ("\\", None),
        ] {
            let text = Unescaped::new(raw, 0..raw.len() as u64);
            match (text, expected) {
                (Ok(text), Some(expected)) => {
                    assert_eq!(take_chars(&text, Mark::default(), 99).unwrap(), expected);
                }
                (Err(error), None) => assert_eq!(error, Error::NotJson { at: 0 }),
                (Ok(_), None) => panic!("{raw} was taken"),
                (Err(error), Some(_)) => panic!("{raw}: {error}"),
            }
        }
    }
}
