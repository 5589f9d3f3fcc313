//! The distinct words of all tools.
//!
//! Owns: the set of words, prefix search and fuzzy search in it. Refuses to know: where the words occur.
//!
//! The words are stored sorted in one string. Each has its term (words of one stem share a term) and the set of its letters
//! as a bit mask. One edit changes at most two letters, so comparing masks rules out nearly all words, and a misspelling is
//! found without a second index.

use std::ops::Range;

/// The number of a stem, shared by all its words.
pub(super) type Term = u32;

/// Minimum letters of a word that may have one mistake.
const ONE_MISTAKE_CHARS: usize = 4;
/// Minimum letters of a word that may have two mistakes.
const TWO_MISTAKES_CHARS: usize = 8;
/// Maximum letters for fuzzy search: a longer word was not typed by hand.
const MAX_FUZZY_CHARS: usize = 32;
/// Maximum number of words for a prefix.
const MAX_COMPLETIONS: usize = 48;
/// Minimum letters of a prefix.
const MIN_PREFIX_CHARS: usize = 2;

/// The words, sorted.
#[derive(Default)]
pub(super) struct Vocabulary {
    text: Box<str>,
    ends: Box<[u32]>,
    terms: Box<[Term]>,
    letters: Box<[u32]>,
}

impl Vocabulary {
    pub(super) fn new(mut words: Vec<(Box<str>, Term)>) -> Self {
        words.sort_unstable();
        let mut text = String::with_capacity(words.iter().map(|(word, _)| word.len()).sum());
        let mut ends = Vec::with_capacity(words.len());
        for (word, _) in &words {
            text.push_str(word);
            ends.push(u32::try_from(text.len()).expect("tools are listed within a few megabytes"));
        }
        Self {
            text: text.into(),
            ends: ends.into(),
            terms: words.iter().map(|&(_, term)| term).collect(),
            letters: words.iter().map(|(word, _)| letter_set(word)).collect(),
        }
    }

    /// Returns the term of a word.
    pub(super) fn term(&self, word: &str) -> Option<Term> {
        let at = self.lower_bound(word);
        (at < self.ends.len() && self.word(at) == word).then(|| self.terms[at])
    }

    /// Returns the terms of words with this prefix.
    pub(super) fn with_prefix(&self, beginning: &str) -> impl Iterator<Item = Term> {
        let from = self.lower_bound(beginning);
        let long_enough = beginning.chars().nth(MIN_PREFIX_CHARS - 1).is_some();
        (from..self.ends.len())
            .take_while(move |&at| long_enough && self.word(at).starts_with(beginning))
            .take(MAX_COMPLETIONS)
            .map(|at| self.terms[at])
    }

    /// Returns the terms nearest to a misspelt word, and their edit distance.
    pub(super) fn nearest(&self, word: &str) -> Option<(Vec<Term>, u32)> {
        let chars: Vec<char> = word.chars().collect();
        // A number is never a misspelling of another.
        if chars.len() > MAX_FUZZY_CHARS || chars.iter().any(|c| c.is_numeric()) {
            return None;
        }
        let most = [ONE_MISTAKE_CHARS, TWO_MISTAKES_CHARS]
            .iter()
            .fold(0, |most, &from| most + u32::from(chars.len() >= from));
        if most == 0 {
            return None;
        }
        let wanted = letter_set(word);
        let mut nearest = most;
        let mut found = Vec::new();
        for (at, &letters) in self.letters.iter().enumerate() {
            if (letters ^ wanted).count_ones() > 2 * nearest {
                continue;
            }
            let Some(mistakes) = edit_distance(&chars, self.word(at), nearest) else {
                continue;
            };
            if mistakes < nearest {
                nearest = mistakes;
                found.clear();
            }
            if !found.contains(&self.terms[at]) {
                found.push(self.terms[at]);
            }
        }
        (!found.is_empty()).then_some((found, nearest))
    }

    fn lower_bound(&self, word: &str) -> usize {
        let mut range = 0..self.ends.len();
        while !range.is_empty() {
            let middle = range.start.midpoint(range.end);
            if self.word(middle) < word {
                range.start = middle + 1;
            } else {
                range.end = middle;
            }
        }
        range.start
    }

    fn word(&self, at: usize) -> &str {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        let range: Range<usize> = start as usize..self.ends[at] as usize;
        &self.text[range]
    }
}

/// Returns the set of a word's letters as a bit mask: each letter of the alphabet has its own bit, other characters share
/// them.
fn letter_set(word: &str) -> u32 {
    word.chars()
        .fold(0, |set, c| set | 1 << (u32::from(c) % u32::BITS))
}

/// Returns the edit distance (omission, insertion, substitution, transposition) between two words, if at most `most`.
fn edit_distance(one: &[char], other: &str, most: u32) -> Option<u32> {
    let other_chars = other.chars().count();
    if one.len().abs_diff(other_chars) > most as usize || other_chars > MAX_FUZZY_CHARS {
        return None;
    }
    let mut two_before = [0_u32; MAX_FUZZY_CHARS + 1];
    let mut before = two_before;
    let mut now = two_before;
    for (column, cell) in (0..).zip(&mut before) {
        *cell = column;
    }
    let mut other_before = None;
    for (row, c) in (1..).zip(other.chars()) {
        now[0] = row;
        let mut least = row;
        for (column, &own) in one.iter().enumerate() {
            let mut cost = (before[column] + u32::from(own != c))
                .min(before[column + 1] + 1)
                .min(now[column] + 1);
            if column > 0 && Some(own) == other_before && one[column - 1] == c {
                cost = cost.min(two_before[column - 1] + 1);
            }
            now[column + 1] = cost;
            least = least.min(cost);
        }
        if least > most {
            return None;
        }
        two_before = before;
        before = now;
        other_before = Some(c);
    }
    let mistakes = before[one.len()];
    (mistakes <= most).then_some(mistakes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary(words: &[&str]) -> Vocabulary {
        let words = words.iter().map(|&word| word.into());
        Vocabulary::new(words.zip(0..).collect())
    }

    #[test]
    fn a_word_has_its_term_and_no_other_has() {
        let vocabulary = vocabulary(&["file", "a", "files", "directory"]);
        assert_eq!(vocabulary.term("file"), Some(0));
        assert_eq!(vocabulary.term("a"), Some(1));
        assert_eq!(vocabulary.term("files"), Some(2));
        assert_eq!(vocabulary.term("fil"), None);
        assert_eq!(vocabulary.term("zoo"), None);
        assert_eq!(Vocabulary::default().term("file"), None);
    }

    #[test]
    fn mistakes_are_counted() {
        for (one, other, most, counted) in [
            ("file", "file", 1, Some(0)),
            ("flie", "file", 1, Some(1)),
            ("fil", "file", 1, Some(1)),
            ("filee", "file", 1, Some(1)),
            ("fire", "file", 1, Some(1)),
            ("fries", "file", 1, None),
            ("repositroy", "repository", 2, Some(1)),
            ("repostroy", "repository", 2, Some(2)),
            ("", "", 0, Some(0)),
        ] {
            let chars: Vec<char> = one.chars().collect();
            assert_eq!(edit_distance(&chars, other, most), counted, "{one} {other}");
        }
    }

    #[test]
    fn the_nearest_words_are_those_with_fewest_mistakes() {
        let vocabulary = vocabulary(&["calendar", "colander", "repository", "file", "2025"]);
        assert_eq!(vocabulary.nearest("calender"), Some((vec![0], 1)));
        assert_eq!(vocabulary.nearest("repostroy"), Some((vec![2], 2)));
        assert_eq!(vocabulary.nearest("fle"), None);
        assert_eq!(vocabulary.nearest("2024"), None);
    }
}
