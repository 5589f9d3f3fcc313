//! Tokenizer for indexed texts and search queries.

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

/// Maximum length of an indexed word. Longer words are truncated.
const MAX_WORD_BYTES: usize = 64;

/// Calls `word` with each word and its range: runs of letters and digits, lowercased and without accents.
pub(crate) fn for_each_word(text: &str, mut word: impl FnMut(&str, std::ops::Range<usize>)) {
    let mut plain = String::with_capacity(MAX_WORD_BYTES);
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        // Fast path: most text is ASCII words.
        if bytes[at].is_ascii() && !bytes[at].is_ascii_alphanumeric() {
            at += 1;
            continue;
        }
        let start = at;
        while at < bytes.len() && bytes[at].is_ascii_alphanumeric() {
            at += 1;
        }
        if at == bytes.len() || bytes[at].is_ascii() {
            if at > start {
                plain.clear();
                plain.push_str(&text[start..at]);
                plain.make_ascii_lowercase();
                plain.truncate(MAX_WORD_BYTES);
                word(&plain, start..at);
            }
            continue;
        }
        // A non-ASCII character: part of this word, the start of another, or a separator.
        at = start;
        while let Some(c) = text[at..].chars().next() {
            if !c.is_alphanumeric() && !is_combining_mark(c) {
                break;
            }
            at += c.len_utf8();
        }
        if at > start {
            fold_case_and_accents(&text[start..at], &mut plain);
            if !plain.is_empty() {
                word(&plain, start..at);
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
}

fn fold_case_and_accents(word: &str, plain: &mut String) {
    plain.clear();
    for c in word
        .nfkd()
        .filter(|c| !is_combining_mark(*c))
        .flat_map(char::to_lowercase)
    {
        if plain.len() + c.len_utf8() > MAX_WORD_BYTES {
            break;
        }
        plain.push(c);
    }
}

/// Returns the distinct words of a query, in order.
pub(crate) fn query_words(question: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for_each_word(question, |word, _| {
        if !words.iter().any(|own| own == word) {
            words.push(word.to_owned());
        }
    });
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(text: &str) -> Vec<String> {
        let mut words = Vec::new();
        for_each_word(text, |word, place| {
            assert!(text.is_char_boundary(place.start) && text.is_char_boundary(place.end));
            words.push(word.to_owned());
        });
        words
    }

    #[test]
    fn words_are_found_in_any_script_without_case_and_accents() {
        assert_eq!(
            words_of("Hello, World-2 don't"),
            ["hello", "world", "2", "don", "t"]
        );
        assert_eq!(
            words_of("Ünïcödé CAFÉ cafe\u{301}s"),
            ["unicode", "cafe", "cafes"]
        );
        assert_eq!(
            words_of("naïveté\u{2014}Ωmega 東京 \u{1F980}x"),
            ["naivete", "ωmega", "東京", "x"]
        );
        assert_eq!(words_of(""), Vec::<String>::new());
        assert_eq!(words_of(" \u{301}"), Vec::<String>::new());
        assert_eq!(words_of(&"a".repeat(100))[0].len(), 64);
    }
}
