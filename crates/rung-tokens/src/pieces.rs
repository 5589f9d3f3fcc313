//! The pieces of a text. No token goes beyond a piece.
//!
//! The vocabulary defines them by a pattern, whose alternatives are tried in this order at the end of the last piece:
//!
//! ```text
//! [^\r\n\p{L}\p{N}]?HEAD*TAIL+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//! [^\r\n\p{L}\p{N}]?HEAD+TAIL*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//! \p{N}{1,3}
//!  ?[^\s\p{L}\p{N}]+[\r\n/]*
//! \s*[\r\n]+
//! \s+(?!\S)
//! \s+
//! ```
//!
//! `HEAD` and `TAIL` are explained in [`class`](crate::layout::class). The scanner finds what a backtracking matcher would. It
//! reads each character a few times at most, and does not need the megabytes that a compiled pattern takes.

use crate::classes::class_at;
use crate::layout::class::{HEAD, LETTER, NEWLINE, NUMBER, SPACE, TAIL};

/// Characters that a word may begin with although they are no part of it are of none of these classes.
const NO_PREFIX: u8 = LETTER | NUMBER | NEWLINE;
/// Symbols are of none of these classes.
const NO_SYMBOL: u8 = SPACE | LETTER | NUMBER;

/// Endings of a word, in lower case.
const CONTRACTIONS: [&str; 7] = ["s", "t", "re", "ve", "m", "ll", "d"];

/// Iterates over the pieces. None is empty, and together they are the text.
pub(crate) struct Pieces<'a> {
    text: &'a str,
    start: usize,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, start: 0 }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let end = piece_end(self.text, self.start)?;
        let piece = self.text.get(self.start..end)?;
        self.start = end;
        Some(piece)
    }
}

/// The end of the piece that begins at `start`. `None` at the end of the text.
fn piece_end(text: &str, start: usize) -> Option<usize> {
    let (first, first_bytes) = class_at(text, start)?;
    let second = start + first_bytes;
    let word_end = if first & NO_PREFIX == 0 {
        let prefixed = lower_word_end(text, second).or_else(|| lower_word_end(text, start));
        prefixed.or_else(|| upper_word_end(text, second))
    } else if first & LETTER != 0 {
        lower_word_end(text, start).or_else(|| upper_word_end(text, start))
    } else {
        None
    };
    if let Some(end) = word_end {
        return Some(end + contraction_bytes(text, end));
    }
    if first & NUMBER != 0 {
        return Some(number_end(text, second));
    }
    symbols_end(text, start).or_else(|| Some(space_end(text, second, first & NEWLINE != 0)))
}

/// The end of `HEAD*TAIL+` from `start`.
///
/// The heads are as many as possible. If no tail follows them, they are given back one by one, until one is a tail, too.
fn lower_word_end(text: &str, start: usize) -> Option<usize> {
    let mut at = start;
    let mut last_tail = None;
    while let Some((class, bytes)) = class_at(text, at) {
        if class & HEAD == 0 {
            if class & TAIL == 0 {
                break;
            }
            return Some(run_end(text, at + bytes, |class| class & TAIL != 0));
        }
        at += bytes;
        if class & TAIL != 0 {
            last_tail = Some(at);
        }
    }
    last_tail
}

/// The end of `HEAD+` from `start`. Where this is asked for, [`lower_word_end`] found no tail, so that none follows.
fn upper_word_end(text: &str, start: usize) -> Option<usize> {
    let end = run_end(text, start, |class| class & HEAD != 0);
    (end > start).then_some(end)
}

/// The length of the contraction at `at`, or zero.
fn contraction_bytes(text: &str, at: usize) -> usize {
    let Some(after) = text.get(at..).and_then(|rest| rest.strip_prefix('\'')) else {
        return 0;
    };
    // The long s is a lower-case form of S.
    if after.starts_with('ſ') {
        return 1 + 'ſ'.len_utf8();
    }
    let after = after.as_bytes();
    let ending = CONTRACTIONS.iter().find(|ending| {
        let head = after.get(..ending.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(ending.as_bytes()))
    });
    ending.map_or(0, |ending| 1 + ending.len())
}

/// The end of a number of up to three digits whose first ends at `second`.
fn number_end(text: &str, second: usize) -> usize {
    let mut end = second;
    for _ in 0..2 {
        match class_at(text, end) {
            Some((class, bytes)) if class & NUMBER != 0 => end += bytes,
            _ => break,
        }
    }
    end
}

/// The end of ` ?[^\s\p{L}\p{N}]+[\r\n/]*` from `start`.
fn symbols_end(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let symbols = start + usize::from(bytes.get(start) == Some(&b' '));
    let mut end = run_end(text, symbols, |class| class & NO_SYMBOL == 0);
    if end == symbols {
        return None;
    }
    while matches!(bytes.get(end), Some(b'\r' | b'\n' | b'/')) {
        end += 1;
    }
    Some(end)
}

/// The end of a piece of white space whose first character ends at `second`.
///
/// It ends after the last line break of the white space. Without one it leaves the last character to the word that follows.
fn space_end(text: &str, second: usize, starts_with_newline: bool) -> usize {
    let mut newline_end = starts_with_newline.then_some(second);
    let mut last = None;
    let mut end = second;
    while let Some((class, bytes)) = class_at(text, end) {
        if class & SPACE == 0 {
            break;
        }
        last = Some(end);
        end += bytes;
        if class & NEWLINE != 0 {
            newline_end = Some(end);
        }
    }
    if let Some(newline_end) = newline_end {
        return newline_end;
    }
    match last {
        Some(last) if end < text.len() => last,
        _ => end,
    }
}

/// The end of the characters from `start` whose class fits.
fn run_end(text: &str, start: usize, fits: impl Fn(u8) -> bool) -> usize {
    let mut end = start;
    while let Some((class, bytes)) = class_at(text, end) {
        if !fits(class) {
            break;
        }
        end += bytes;
    }
    end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn assert_same_pieces(text: &str) {
        let pieces: Vec<&str> = Pieces::new(text).collect();
        let expected: Vec<&str> = bpe_openai::o200k_base().split(text).collect();
        assert_eq!(pieces, expected, "{text:?}");
    }

    #[test]
    fn every_character_is_split_as_by_the_reference() {
        for character in '\0'..=char::MAX {
            assert_same_pieces(&format!("{character}"));
            assert_same_pieces(&format!(
                "a{character}a{character}A{character}A {character} {character}{character}1{character}'s{character}'{character}"
            ));
        }
    }

    /// One or more characters of each combination of classes.
    const ALPHABET: [&str; 40] = [
        "a",
        "z",
        "A",
        "Z",
        "ǅ",
        "ʰ",
        "中",
        "ª",
        "\u{301}",
        "\u{903}",
        "\u{20dd}",
        "1",
        "²",
        "Ⅷ",
        "٣",
        " ",
        " ",
        "\t",
        "\u{a0}",
        "\u{3000}",
        "\u{85}",
        "\u{2028}",
        "\r",
        "\n",
        "\r\n",
        "'",
        "'s",
        "'S",
        "'ſ",
        "'LL",
        "'re",
        "'d",
        "/",
        ".",
        "_",
        "\0",
        "\u{200d}",
        "👩",
        "\u{fe0f}",
        "\u{10ffff}",
    ];

    #[test]
    fn every_sequence_of_three_is_split_as_by_the_reference() {
        for first in ALPHABET {
            for second in ALPHABET {
                for third in ALPHABET {
                    assert_same_pieces(&[first, second, third].concat());
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn every_text_is_split_as_by_the_reference(
            parts in prop::collection::vec((prop::sample::select(&ALPHABET[..]), 1..4_usize), 0..24),
        ) {
            let text: String = parts.iter().map(|(part, times)| part.repeat(*times)).collect();
            assert_same_pieces(&text);
        }
    }
}
