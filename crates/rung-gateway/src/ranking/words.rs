//! Splitting text into words.
//!
//! Owns: where identifiers are split, the stop words and stemming. Refuses to know: the field of a text, and the weight of
//! a word in it.
//!
//! The law it keeps: an identifier has the same parts and the same whole in every notation (`readFile`, `read_file`,
//! `read-file`).

use std::borrow::Cow;

use rust_stemmers::{Algorithm, Stemmer};

/// Maximum bytes of a word; longer ones are ignored.
pub(super) const MAX_WORD_BYTES: usize = 64;

/// Maximum words of a query that are read.
pub(super) const MAX_READ_WORDS: usize = 128;

/// Separators between the parts of an identifier.
const SEPARATORS: [char; 3] = ['_', '-', '.'];

/// Stop words, sorted: common English words, and words with which tasks are phrased.
const STOP_WORDS: [&str; 147] = [
    "a", "about", "above", "across", "after", "again", "against", "also", "am", "an", "and", "any",
    "are", "as", "at", "be", "because", "been", "before", "being", "below", "between", "both",
    "but", "by", "can", "could", "did", "do", "does", "doing", "done", "during", "each", "every",
    "few", "for", "from", "further", "had", "has", "have", "having", "help", "here", "how", "i",
    "if", "in", "into", "is", "it", "its", "just", "let", "like", "ll", "m", "may", "me", "might",
    "more", "most", "must", "my", "need", "needed", "needs", "no", "nor", "not", "of", "off", "on",
    "once", "only", "onto", "or", "other", "our", "out", "over", "own", "please", "re", "s",
    "same", "shall", "should", "so", "some", "somebody", "somehow", "someone", "such", "t", "than",
    "that", "the", "their", "them", "then", "there", "these", "they", "thing", "things", "this",
    "those", "through", "to", "too", "tool", "tools", "under", "until", "up", "us", "use", "used",
    "useful", "uses", "using", "ve", "very", "via", "want", "wants", "was", "we", "were", "what",
    "when", "where", "whether", "which", "while", "who", "whose", "why", "will", "with", "within",
    "without", "would", "you", "your",
];

pub(super) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// A word as written, which may have parts.
#[derive(Clone, Copy)]
pub(super) struct WordToken<'t>(&'t str);

/// Splits a text into words.
pub(super) fn words(text: &str) -> impl Iterator<Item = WordToken<'_>> {
    text.split(|c: char| !c.is_alphanumeric() && !SEPARATORS.contains(&c))
        .map(|word| word.trim_matches(SEPARATORS))
        .filter(|word| !word.is_empty())
        .map(WordToken)
}

impl<'t> WordToken<'t> {
    /// Returns the parts in lowercase. Single letters and digits are omitted if there are other parts: they are meaningful
    /// only in the whole.
    pub(super) fn parts(self) -> Vec<String> {
        let mut parts: Vec<&'t str> = Vec::new();
        for piece in self.0.split(SEPARATORS) {
            split_identifier(piece, &mut parts);
        }
        if parts.len() > 1 {
            parts.retain(|part| part.chars().nth(1).is_some());
        }
        parts.iter().map(|part| part.to_lowercase()).collect()
    }

    /// Returns the whole word in lowercase, without separators.
    pub(super) fn whole(self) -> String {
        fold_chars(self.0).collect()
    }

    /// Returns true if prose treats it as one word despite inner capitals: `GitHub` has nothing to do with hubs.
    pub(super) fn is_name(self) -> bool {
        self.0.starts_with(char::is_uppercase) && !self.0.contains(SEPARATORS)
    }
}

/// Returns the letters and digits of a text in lowercase.
pub(super) fn fold_chars(text: &str) -> impl Iterator<Item = char> {
    text.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
}

/// Splits between letters and digits, and before a capital that begins a part.
fn split_identifier<'t>(piece: &'t str, parts: &mut Vec<&'t str>) {
    let mut start = 0;
    let mut before: Option<char> = None;
    for (at, c) in piece.char_indices() {
        let after = &piece[at + c.len_utf8()..];
        if before.is_some_and(|before| starts_part(before, c, after)) {
            parts.push(&piece[start..at]);
            start = at;
        }
        before = Some(c);
    }
    if start < piece.len() {
        parts.push(&piece[start..]);
    }
}

fn starts_part(before: char, c: char, after: &str) -> bool {
    if before.is_numeric() != c.is_numeric() {
        return true;
    }
    if !c.is_uppercase() {
        return false;
    }
    // `getURL` and `URLPath` are split before the last capital followed by a lowercase letter, but `URLs` is the plural of
    // one word.
    !before.is_uppercase() || (after.starts_with(char::is_lowercase) && after != "s")
}

/// A stemmed text in which phrases are searched.
pub(crate) struct StemmedText {
    stems: WordStemmer,
    /// Stems, in order.
    words: Vec<String>,
}

impl StemmedText {
    pub(crate) fn new(text: &str) -> Self {
        let stems = WordStemmer::new();
        let words = stem_words(&stems, text).take(MAX_READ_WORDS).collect();
        Self { stems, words }
    }

    /// Returns true if the words of a phrase occur in sequence.
    pub(crate) fn contains_phrase(&self, phrase: &str) -> bool {
        let phrase: Vec<String> = stem_words(&self.stems, phrase).collect();
        self.contains_stems(&phrase)
    }

    /// Like [`contains_phrase`](Self::contains_phrase), for a phrase of stems.
    pub(crate) fn contains_stems(&self, phrase: &[String]) -> bool {
        self.words
            .windows(phrase.len().max(1))
            .any(|said| said == phrase)
    }

    /// Returns the stems.
    pub(crate) fn into_stems(self) -> Vec<String> {
        self.words
    }
}

fn stem_words<'t>(stems: &'t WordStemmer, text: &'t str) -> impl Iterator<Item = String> + 't {
    words(text).map(|word| stems.stem(&word.whole()).into_owned())
}

/// The English stemmer.
pub(super) struct WordStemmer(Stemmer);

impl WordStemmer {
    pub(super) fn new() -> Self {
        Self(Stemmer::create(Algorithm::English))
    }

    pub(super) fn stem<'w>(&self, word: &'w str) -> Cow<'w, str> {
        if word.bytes().all(|byte| byte.is_ascii_lowercase()) {
            self.0.stem(word)
        } else {
            Cow::Borrowed(word)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_words_are_in_order() {
        assert!(STOP_WORDS.is_sorted());
    }

    #[test]
    fn an_identifier_is_cut_into_its_parts() {
        for (text, parts, whole) in [
            ("read_file", vec!["read", "file"], "readfile"),
            ("readFile", vec!["read", "file"], "readfile"),
            ("ReadFile", vec!["read", "file"], "readfile"),
            ("read-file", vec!["read", "file"], "readfile"),
            ("fs.readFile", vec!["fs", "read", "file"], "fsreadfile"),
            (
                "getHTTPResponse",
                vec!["get", "http", "response"],
                "gethttpresponse",
            ),
            ("listURLs", vec!["list", "urls"], "listurls"),
            ("base64", vec!["base", "64"], "base64"),
            ("s3", vec![], "s3"),
            ("x", vec!["x"], "x"),
            ("GRÖSSE", vec!["grösse"], "grösse"),
        ] {
            let all: Vec<WordToken> = words(text).collect();
            let [word] = all[..] else {
                panic!("{text} is one word");
            };
            assert_eq!(word.parts(), parts, "{text}");
            assert_eq!(word.whole(), whole, "{text}");
        }
    }

    #[test]
    fn punctuation_parts_words_and_is_no_part_of_them() {
        let all: Vec<String> = words("“Reads” (a file), e.g. one... -- of_ them!")
            .map(WordToken::whole)
            .collect();
        assert_eq!(all, ["reads", "a", "file", "eg", "one", "of", "them"]);
    }
}
