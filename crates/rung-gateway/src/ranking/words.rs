//! How a text becomes words.
//!
//! Owns: where an identifier is cut, what is said too often to mean anything, and what a word's stem is. Refuses to know: which
//! field a text stands in, and what a word is worth there.
//!
//! The law it keeps: however an identifier is written (`readFile`, `read_file`, `read-file`), it has the same parts and the same
//! whole.

use std::borrow::Cow;

use rust_stemmers::{Algorithm, Stemmer};

/// A word has at most as many bytes; what is longer is no word.
pub(super) const WORD_BYTES: usize = 64;

/// Words of a query that are read; who says more has said it by then.
pub(super) const READ_WORDS: usize = 128;

/// What joins the parts of an identifier.
const JOINTS: [char; 3] = ['_', '-', '.'];

/// Words that say nothing about a tool, in order: those of every English text, and those with which a task is handed over.
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

/// Whether a word says nothing.
pub(super) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// A word as it was written, which may have parts.
#[derive(Clone, Copy)]
pub(super) struct Written<'t>(&'t str);

/// The words of a text.
pub(super) fn words(text: &str) -> impl Iterator<Item = Written<'_>> {
    text.split(|c: char| !c.is_alphanumeric() && !JOINTS.contains(&c))
        .map(|word| word.trim_matches(JOINTS))
        .filter(|word| !word.is_empty())
        .map(Written)
}

impl<'t> Written<'t> {
    /// Its parts, in small letters. Single letters and digits are left out where there is more: they mean something only in
    /// the whole.
    pub(super) fn parts(self) -> Vec<String> {
        let mut parts: Vec<&'t str> = Vec::new();
        for piece in self.0.split(JOINTS) {
            cut(piece, &mut parts);
        }
        if parts.len() > 1 {
            parts.retain(|part| part.chars().nth(1).is_some());
        }
        parts.iter().map(|part| part.to_lowercase()).collect()
    }

    /// All of it without its joints, in small letters.
    pub(super) fn whole(self) -> String {
        folded(self.0).collect()
    }

    /// Whether it is one word for whoever writes prose, capitals within it or not: `GitHub` has nothing to do with hubs.
    pub(super) fn is_name(self) -> bool {
        self.0.starts_with(char::is_uppercase) && !self.0.contains(JOINTS)
    }
}

/// The letters and digits of a text, small.
pub(super) fn folded(text: &str) -> impl Iterator<Item = char> {
    text.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
}

/// Cuts a piece where letters and digits meet, and where a capital begins a part.
fn cut<'t>(piece: &'t str, parts: &mut Vec<&'t str>) {
    let mut start = 0;
    let mut before: Option<char> = None;
    for (at, c) in piece.char_indices() {
        let after = &piece[at + c.len_utf8()..];
        if before.is_some_and(|before| begins(before, c, after)) {
            parts.push(&piece[start..at]);
            start = at;
        }
        before = Some(c);
    }
    if start < piece.len() {
        parts.push(&piece[start..]);
    }
}

fn begins(before: char, c: char, after: &str) -> bool {
    if before.is_numeric() != c.is_numeric() {
        return true;
    }
    if !c.is_uppercase() {
        return false;
    }
    // `getURL` and `URLPath` are cut before the last capital that a small letter follows, but `URLs` is the plural of one word.
    !before.is_uppercase() || (after.starts_with(char::is_lowercase) && after != "s")
}

/// What somebody says, of which phrases are looked for.
pub(crate) struct Sentence {
    stems: Stems,
    /// In the order in which they were said.
    words: Vec<String>,
}

impl Sentence {
    pub(crate) fn of(text: &str) -> Self {
        let stems = Stems::new();
        let words = stemmed(&stems, text).take(READ_WORDS).collect();
        Self { stems, words }
    }

    /// Whether the words of a phrase are said, one after another.
    pub(crate) fn has(&self, phrase: &str) -> bool {
        let phrase: Vec<String> = stemmed(&self.stems, phrase).collect();
        self.says(&phrase)
    }

    /// The same of a phrase whose words are stems already.
    pub(crate) fn says(&self, phrase: &[String]) -> bool {
        self.words
            .windows(phrase.len().max(1))
            .any(|said| said == phrase)
    }

    /// The stems of its words.
    pub(crate) fn into_stems(self) -> Vec<String> {
        self.words
    }
}

fn stemmed<'t>(stems: &'t Stems, text: &'t str) -> impl Iterator<Item = String> + 't {
    words(text).map(|word| stems.of(&word.whole()).into_owned())
}

/// What brings words to their stems.
pub(super) struct Stems(Stemmer);

impl Stems {
    pub(super) fn new() -> Self {
        Self(Stemmer::create(Algorithm::English))
    }

    pub(super) fn of<'w>(&self, word: &'w str) -> Cow<'w, str> {
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
            let all: Vec<Written> = words(text).collect();
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
            .map(Written::whole)
            .collect();
        assert_eq!(all, ["reads", "a", "file", "eg", "one", "of", "them"]);
    }
}
