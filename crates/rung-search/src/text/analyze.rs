//! Analysis of texts into terms.

use std::borrow::Cow;

use rust_stemmers::Stemmer;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use super::options::{StopWords, TextOptions};

/// A term has fewer characters than this; longer words are ignored.
pub(super) const TERM_CHARS: usize = 128;

/// English stop words, sorted.
const ENGLISH_STOP_WORDS: [&str; 33] = [
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it",
    "no", "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these",
    "they", "this", "to", "was", "will", "with",
];

/// The position of a term in its text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TermPlace {
    /// Words before it, stop words included.
    pub(super) position: u32,
    /// Characters before it.
    pub(super) offset: u32,
}

/// Splits texts into terms.
pub(super) struct Analyzer {
    stop_words: StopWords,
    fold_accents: bool,
    stemmer: Option<Stemmer>,
}

impl Analyzer {
    pub(super) fn new(options: TextOptions) -> Self {
        Self {
            stop_words: options.stop_words,
            fold_accents: options.fold_accents,
            stemmer: options
                .stemming
                .map(|language| Stemmer::create(language.algorithm())),
        }
    }

    /// Calls `found` with each term of a text and its position.
    pub(super) fn terms<E>(
        &self,
        text: &str,
        mut found: impl FnMut(&str, TermPlace) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut word = String::new();
        let mut place = TermPlace::default();
        for (at, c) in text.chars().enumerate() {
            if is_separator(c) {
                if !word.is_empty() {
                    self.term(&word, |term| found(term, place))?;
                    word.clear();
                    place.position = place.position.saturating_add(1);
                }
                continue;
            }
            if word.is_empty() {
                place.offset = u32::try_from(at).unwrap_or(u32::MAX);
            }
            // Only the first character of a lower-case mapping is taken: the few that have more add combining marks.
            word.extend(c.to_lowercase().next());
        }
        if !word.is_empty() {
            self.term(&word, |term| found(term, place))?;
        }
        Ok(())
    }

    /// Calls `found` with the term of a lower-case word, unless the word is ignored.
    fn term<E>(&self, word: &str, found: impl FnOnce(&str) -> Result<(), E>) -> Result<(), E> {
        if self.stop_words == StopWords::English && ENGLISH_STOP_WORDS.binary_search(&word).is_ok()
        {
            return Ok(());
        }
        let mut term = Cow::Borrowed(word);
        if self.fold_accents && !word.is_ascii() {
            term = Cow::Owned(
                word.nfd()
                    .filter(|&c| !is_combining_mark(c))
                    .nfc()
                    .collect(),
            );
        }
        if let Some(stemmer) = &self.stemmer {
            term = Cow::Owned(stemmer.stem(&term).into_owned());
        }
        // Most terms are short enough by their bytes.
        if term.is_empty() || (term.len() >= TERM_CHARS && term.chars().count() >= TERM_CHARS) {
            return Ok(());
        }
        found(&term)
    }
}

/// Returns true if a character separates words: whitespace, punctuation, or an ASCII separator (U+001C to U+001F).
fn is_separator(c: char) -> bool {
    match c {
        ':'
        | '/'
        | '.'
        | ';'
        | ','
        | '!'
        | '='
        | '?'
        | '"'
        | '\''
        | '('
        | ')'
        | '['
        | ']'
        | '{'
        | '}'
        | '|'
        | '<'
        | '>'
        | '&'
        | '@'
        | '#'
        | '^'
        | '*'
        | '\\'
        | '~'
        | '`'
        | '\u{1C}'..='\u{1F}' => true,
        _ => c.is_whitespace(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    fn terms(options: TextOptions, text: &str) -> Vec<(String, u32, u32)> {
        let mut all = Vec::new();
        let found = |term: &str, place: TermPlace| {
            all.push((term.to_owned(), place.position, place.offset));
            Ok::<_, ()>(())
        };
        Analyzer::new(options).terms(text, found).unwrap();
        all
    }

    fn words(options: TextOptions, text: &str) -> Vec<String> {
        terms(options, text)
            .into_iter()
            .map(|(term, ..)| term)
            .collect()
    }

    #[test]
    fn words_are_split_lowered_and_placed() {
        let found = terms(
            TextOptions::default(),
            " The Quick-Brown fox, (jumped) it's!",
        );
        let expected = [
            ("quick-brown", 1, 5),
            ("fox", 2, 17),
            ("jumped", 3, 23),
            ("s", 5, 34),
        ];
        assert_eq!(found, expected.map(|(term, p, o)| (term.to_owned(), p, o)));
    }

    #[test]
    fn stop_words_are_in_order() {
        assert!(ENGLISH_STOP_WORDS.is_sorted());
        let plain = TextOptions::default();
        assert!(words(plain, "This is NOT the end of it").eq(&["end"]));
        let all = TextOptions {
            stop_words: StopWords::None,
            ..plain
        };
        assert_eq!(words(all, "to be"), ["to", "be"]);
    }

    #[test]
    fn accents_and_scripts() {
        let plain = TextOptions::default();
        assert_eq!(
            words(plain, "Café ÉTUDE 東京タワー 한국어"),
            ["café", "étude", "東京タワー", "한국어"]
        );
        let folded = TextOptions {
            fold_accents: true,
            ..plain
        };
        assert_eq!(
            words(folded, "Café E\u{301}TUDE 東京 한국어"),
            ["cafe", "etude", "東京", "한국어"]
        );
        assert!(words(folded, "\u{301}").is_empty());
    }

    #[test]
    fn offsets_count_characters() {
        assert_eq!(
            terms(TextOptions::default(), "😀é 😀 x")[2],
            ("x".to_owned(), 2, 5)
        );
    }

    #[test]
    fn words_have_stems() {
        let english = TextOptions {
            stemming: Some(Language::English),
            ..TextOptions::default()
        };
        assert_eq!(words(english, "running Ponies"), ["run", "poni"]);
        let german = TextOptions {
            stemming: Some(Language::German),
            ..TextOptions::default()
        };
        assert_eq!(words(german, "Häuser"), ["haus"]);
    }

    #[test]
    fn what_is_too_long_is_no_word() {
        let (short, long) = ("é".repeat(127), "é".repeat(128));
        let found = terms(TextOptions::default(), &format!("{short} {long} end"));
        assert_eq!(found, [(short, 0, 0), ("end".to_owned(), 2, 257)]);
    }
}
