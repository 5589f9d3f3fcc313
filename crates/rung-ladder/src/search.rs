//! Search for a text or a regular expression in a document of any size.
//!
//! A buffer slides over the document with an overlap, so memory is bounded and a match is found whole as
//! long as it is no longer than the overlap. Context before the buffer's search start is kept, so that
//! `\b` and `^` look at real text and not at a buffer boundary.

use regex::bytes::{Regex, RegexBuilder};

use crate::budget::limits;
use crate::document::{Document, Mark, find_char};
use crate::text::{chars_in, is_char_start};
use crate::{Error, Result};

/// A compiled search pattern.
pub(crate) struct DocumentSearch(Regex);

/// A match within the buffer.
pub(crate) struct BufferMatch<'b> {
    /// The position where the match begins.
    pub(crate) start: Mark,
    /// The end of the match, in code points.
    pub(crate) end_chars: u64,
    /// The buffered bytes before the match.
    pub(crate) before: &'b [u8],
    /// The match and the buffered bytes after it.
    pub(crate) after: &'b [u8],
}

/// Bytes kept before the position where the search continues: boundaries look back at them, and matches are shown with them.
const CONTEXT_BYTES: usize = limits::HIT_CONTEXT_CHARS * 4;

impl DocumentSearch {
    /// Searches for a text, case-insensitive.
    pub(crate) fn from_text(q: &str) -> Result<Self> {
        if q.is_empty() {
            return Err(Error::WindowInvalid("q is empty"));
        }
        Self::build(q, &regex::escape(q), true)
    }

    /// Searches for a regular expression; `^` and `$` match at line boundaries.
    pub(crate) fn from_pattern(pattern: &str) -> Result<Self> {
        Self::build(pattern, pattern, false)
    }

    fn build(given: &str, pattern: &str, any_case: bool) -> Result<Self> {
        if given.chars().count() > limits::PATTERN_CHARS {
            return Err(Error::PatternInvalid("the pattern is too long".to_owned()));
        }
        let invalid = |error: regex::Error| Error::PatternInvalid(last_line(&error.to_string()));
        // The text engine rejects patterns that could match a part of a character; the byte engine, which
        // can search a buffer that ends anywhere, does not.
        regex::RegexBuilder::new(pattern)
            .size_limit(limits::PATTERN_BYTES)
            .build()
            .map_err(invalid)?;
        RegexBuilder::new(pattern)
            .case_insensitive(any_case)
            .multi_line(true)
            .crlf(true)
            .size_limit(limits::PATTERN_BYTES)
            .build()
            .map(Self)
            .map_err(invalid)
    }

    /// Returns the start and end of the first occurrence, in code points.
    pub(crate) fn first_match<D: Document + ?Sized>(
        &self,
        doc: &D,
    ) -> Result<Option<(u64, u64)>, D::Error> {
        let mut found = None;
        self.visit_matches(doc, 0, |hit| {
            found = Some((hit.start.chars, hit.end_chars));
            false
        })?;
        Ok(found)
    }

    /// Calls `visit` with every occurrence that begins at or after a code point, until it returns false.
    pub(crate) fn visit_matches<D: Document + ?Sized>(
        &self,
        doc: &D,
        from_chars: u64,
        mut visit: impl FnMut(BufferMatch) -> bool,
    ) -> Result<(), D::Error> {
        let mut base = find_char(
            doc,
            from_chars.saturating_sub(limits::HIT_CONTEXT_CHARS as u64),
        )?;
        let from = find_char(doc, from_chars)?;
        let mut buffer = Vec::new();
        let mut at = usize::try_from(from.bytes - base.bytes).expect("a little context");
        // The end of the last match: an empty match directly after a match does not count.
        let mut last_end = None;
        // The position in the buffer up to which code points and lines are counted.
        let mut counted = (0, base);
        loop {
            let more = fill(doc, base.bytes, &mut buffer)?;
            // A match that ends after this may be longer than the buffer shows, or lose to a match that begins
            // earlier and ends outside the buffer.
            let sure = if more {
                buffer.len().saturating_sub(limits::MATCH_BYTES).max(at)
            } else {
                buffer.len()
            };
            let found = self.0.find_at(&buffer, at).map(|found| found.range());
            // An empty match at the very end of the buffer may be an artefact of the boundary.
            let found = found.filter(|found| !more || found.start < buffer.len());
            let keep = found.as_ref().map_or(sure, |found| found.start.min(sure));
            match found {
                Some(found)
                    if found.is_empty() && last_end == Some(base.bytes + found.end as u64) =>
                {
                    at = next_char(&buffer, found.end);
                    if at > buffer.len() {
                        return Ok(());
                    }
                }
                Some(found) if found.end <= sure || keep <= CONTEXT_BYTES => {
                    let start = counted.1.after(&buffer[counted.0..found.start]);
                    counted = (found.start, start);
                    let hit = BufferMatch {
                        start,
                        end_chars: start.chars + chars_in(&buffer[found.clone()]),
                        before: &buffer[..found.start],
                        after: &buffer[found.start..],
                    };
                    if !visit(hit) {
                        return Ok(());
                    }
                    last_end = Some(base.bytes + found.end as u64);
                    at = found.end;
                }
                None if !more => return Ok(()),
                _ => {
                    let keep = next_char(&buffer, keep - 1);
                    at = slide(&mut base, &mut buffer, keep);
                    counted = (0, base);
                }
            }
        }
    }
}

/// Fills the buffer that begins at `base`. Returns true if the document continues after it.
fn fill<D: Document + ?Sized>(doc: &D, base: u64, buffer: &mut Vec<u8>) -> Result<bool, D::Error> {
    while buffer.len() < limits::SEARCH_BYTES {
        let piece = doc.piece(base + buffer.len() as u64)?;
        if piece.is_empty() {
            return Ok(false);
        }
        let wanted = (limits::SEARCH_BYTES - buffer.len()).min(piece.len());
        buffer.extend_from_slice(&piece[..wanted]);
    }
    // An incomplete character at the end is left for the next fill.
    if let Some(start) = buffer.iter().rposition(|byte| is_char_start(*byte)) {
        let half = std::str::from_utf8(&buffer[start..]).is_err_and(|e| e.error_len().is_none());
        buffer.truncate(if half { start } else { buffer.len() });
    }
    Ok(base + (buffer.len() as u64) < doc.len_bytes())
}

/// Drops the bytes before `to`, except for a little context. Returns the new offset of `to`.
fn slide(base: &mut Mark, buffer: &mut Vec<u8>, to: usize) -> usize {
    let mut start = to.saturating_sub(CONTEXT_BYTES);
    while start < to && !is_char_start(buffer[start]) {
        start += 1;
    }
    *base = base.after(&buffer[..start]);
    buffer.drain(..start);
    to - start
}

/// Returns the first character boundary after `at`.
fn next_char(buffer: &[u8], at: usize) -> usize {
    let rest = buffer.get(at + 1..).unwrap_or_default();
    at + 1
        + rest
            .iter()
            .take_while(|byte| !is_char_start(**byte))
            .count()
}

/// The regex crate prints the pattern over several lines; the last line is the message.
fn last_line(message: &str) -> String {
    let line = message.lines().last().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(search: &DocumentSearch, text: &str) -> Vec<(u64, u64, u64)> {
        let mut hits = Vec::new();
        search
            .visit_matches(text, 0, |hit| {
                hits.push((hit.start.chars, hit.end_chars, hit.start.lines));
                true
            })
            .unwrap();
        hits
    }

    #[test]
    fn text_is_found_whatever_its_case() {
        let search = DocumentSearch::from_text("STRASSE.").unwrap();
        assert_eq!(hits(&search, "x\né strasse. strasse"), [(4, 12, 1)]);
        let folded = DocumentSearch::from_text("ÉTÉ").unwrap();
        assert_eq!(hits(&folded, "l'été"), [(2, 5, 0)]);
    }

    #[test]
    fn hits_are_the_same_wherever_the_buffer_ends() {
        // Long enough for several slides, with hits on the borders and boundaries that look back.
        let unit = "é needle haystack_needle\n";
        let text = unit.repeat(40_000);
        let search = DocumentSearch::from_pattern(r"(?:^|\b)needle\b").unwrap();
        let found = hits(&search, &text);
        assert_eq!(found.len(), 40_000);
        let per_line = unit.chars().count() as u64;
        for (line, hit) in found.iter().enumerate() {
            let start = line as u64 * per_line + 2;
            assert_eq!(*hit, (start, start + 6, line as u64));
        }
    }

    #[test]
    fn lines_may_end_as_they_do_elsewhere() {
        let search = DocumentSearch::from_pattern("^b$").unwrap();
        assert_eq!(hits(&search, "a\r\nb\r\nc"), [(3, 4, 1)]);
    }

    #[test]
    fn going_on_in_the_middle_sees_what_is_before() {
        let search = DocumentSearch::from_pattern(r"\Bneedle").unwrap();
        let text = "haystackneedle needle\n".repeat(3);
        let all = hits(&search, &text);
        assert_eq!(all.len(), 3);
        for from in 0..text.len() as u64 {
            let mut first = None;
            let visit = |hit: BufferMatch<'_>| {
                first = Some(hit.start.chars);
                false
            };
            search.visit_matches(text.as_str(), from, visit).unwrap();
            let expected = all.iter().map(|hit| hit.0).find(|start| *start >= from);
            assert_eq!(first, expected, "from {from}");
        }
    }

    #[test]
    fn a_match_that_begins_first_is_the_one_found() {
        let size = limits::SEARCH_BYTES;
        let mut text = "x".repeat(size + 5_000);
        text.replace_range(size - 14_000..size - 13_999, "a");
        text.replace_range(size - 9_000..size - 8_999, "c");
        text.replace_range(size + 2_000..size + 2_001, "b");
        let search = DocumentSearch::from_pattern("a[^b]*b|c").unwrap();
        let start = size as u64 - 14_000;
        assert_eq!(hits(&search, &text), [(start, start + 16_001, 0)]);
        // A match that is longer than the lookahead may be missed; later matches are still found.
        let long = format!("a{}b c", "x".repeat(size * 2));
        let end = long.len() as u64;
        assert_eq!(hits(&search, &long).last(), Some(&(end - 1, end, 0)));
    }

    #[test]
    fn the_same_is_found_as_with_everything_in_sight() {
        let size = limits::SEARCH_BYTES;
        let texts = [
            String::new(),
            "\u{e9}x".to_owned(),
            format!("{}\nsecond\nthird\n", "a".repeat(1_000)),
            "one, two\r\nthree \u{1F980} four\n\n".repeat(size / 10),
            format!("{} needle ", "xy".repeat(size)),
        ];
        for pattern in [
            "x*",
            ".*",
            "^",
            "$",
            r"\b",
            "needle|x*",
            "[a-z]+",
            r"\s+",
            "two\r?$",
            "(?s)e.{0,40}t",
        ] {
            let search = DocumentSearch::from_pattern(pattern).unwrap();
            let mut whole = regex::RegexBuilder::new(pattern);
            let whole = whole.multi_line(true).crlf(true).build().unwrap();
            for text in &texts {
                let all: Vec<_> = whole.find_iter(text).collect();
                let found = hits(&search, text);
                // A single match that is longer than the buffer may be reported in parts; nothing else may differ.
                if all.iter().all(|found| found.len() < limits::MATCH_BYTES) {
                    assert_eq!(found.len(), all.len(), "{pattern}");
                }
                let mut chars = vec![0; text.len() + 1];
                for (count, (at, _)) in text.char_indices().enumerate() {
                    chars[at] = count as u64;
                }
                chars[text.len()] = chars_in(text.as_bytes());
                for (hit, expected) in found.iter().zip(&all) {
                    if expected.len() >= limits::MATCH_BYTES {
                        break;
                    }
                    let expected = (chars[expected.start()], chars[expected.end()]);
                    assert_eq!((hit.0, hit.1), expected, "{pattern}");
                }
            }
        }
    }

    #[test]
    fn what_can_match_nothing_does_not_end_at_a_border_of_ours() {
        let size = limits::SEARCH_BYTES;
        let text = format!("{}\nsecond\nthird\n", "a".repeat(size * 3));
        let lines: Vec<_> = hits(&DocumentSearch::from_pattern(".*").unwrap(), &text);
        let behind: Vec<u64> = lines
            .iter()
            .map(|hit| hit.2)
            .filter(|line| *line > 0)
            .collect();
        assert_eq!(behind, [1, 2, 3]);
        let text = format!("{} needle ", "x".repeat(size * 3));
        let found = hits(&DocumentSearch::from_pattern("needle|x*").unwrap(), &text);
        let start = size as u64 * 3 + 1;
        assert!(found.contains(&(start, start + 6, 0)));
    }

    #[test]
    fn bad_patterns_say_why() {
        for pattern in [
            "(",
            r"(?=x)",
            r"\1",
            r"(?-u:\xa6)",
            "a{1000}{1000}{1000}",
            &"x".repeat(2_000),
        ] {
            assert!(matches!(
                DocumentSearch::from_pattern(pattern),
                Err(Error::PatternInvalid(_))
            ));
        }
    }
}
