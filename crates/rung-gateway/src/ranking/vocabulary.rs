//! Every word of every tool, once.
//!
//! Owns: which words there are, which of them begin alike and which are nearly alike. Refuses to know: where they stand.
//!
//! The words lie in one string, in order, and beside each are the term that it belongs to (words of one stem are one term) and
//! the set of its letters. Two words that differ by an edit differ by at most two letters, so nearly all words are ruled out
//! by one look at a number, and a misspelt word is found without a second index.

use std::ops::Range;

/// A set of words of one stem.
pub(super) type Term = u32;

/// From as many letters on, a word may have one mistake.
const ONE_MISTAKE_CHARS: usize = 4;
/// From as many letters on, it may have two.
const TWO_MISTAKES_CHARS: usize = 8;
/// What is longer is not looked for with mistakes: it is no word that somebody typed.
const MISTAKEN_CHARS: usize = 32;
/// Words that a beginning stands for, at most.
const COMPLETIONS: usize = 48;
/// A beginning has as many letters at least.
const BEGINNING_CHARS: usize = 2;

/// The words, in order.
#[derive(Default)]
pub(super) struct Vocabulary {
    text: Box<str>,
    ends: Box<[u32]>,
    terms: Box<[Term]>,
    letters: Box<[u32]>,
}

impl Vocabulary {
    /// The vocabulary of these words.
    pub(super) fn of(mut words: Vec<(Box<str>, Term)>) -> Self {
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
            letters: words.iter().map(|(word, _)| letters(word)).collect(),
        }
    }

    /// The term of a word.
    pub(super) fn term(&self, word: &str) -> Option<Term> {
        let at = self.first_from(word);
        (at < self.ends.len() && self.word(at) == word).then(|| self.terms[at])
    }

    /// The terms of words that begin like this one and go on.
    pub(super) fn beginning_with(&self, beginning: &str) -> impl Iterator<Item = Term> {
        let from = self.first_from(beginning);
        let long_enough = beginning.chars().nth(BEGINNING_CHARS - 1).is_some();
        (from..self.ends.len())
            .take_while(move |&at| long_enough && self.word(at).starts_with(beginning))
            .take(COMPLETIONS)
            .map(|at| self.terms[at])
    }

    /// The terms of the words that are nearest to a misspelt one, and the mistakes that were made.
    pub(super) fn near(&self, word: &str) -> Option<(Vec<Term>, u32)> {
        let chars: Vec<char> = word.chars().collect();
        // One number is not a misspelling of another.
        if chars.len() > MISTAKEN_CHARS || chars.iter().any(|c| c.is_numeric()) {
            return None;
        }
        let most = [ONE_MISTAKE_CHARS, TWO_MISTAKES_CHARS]
            .iter()
            .fold(0, |most, &from| most + u32::from(chars.len() >= from));
        if most == 0 {
            return None;
        }
        let wanted = letters(word);
        let mut nearest = most;
        let mut found = Vec::new();
        for (at, &letters) in self.letters.iter().enumerate() {
            if (letters ^ wanted).count_ones() > 2 * nearest {
                continue;
            }
            let Some(mistakes) = mistakes(&chars, self.word(at), nearest) else {
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

    fn first_from(&self, word: &str) -> usize {
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

/// The set of a word's letters: those of the alphabet have a bit each, and others share them.
fn letters(word: &str) -> u32 {
    word.chars()
        .fold(0, |set, c| set | 1 << (u32::from(c) % u32::BITS))
}

/// Letters left out, put in, exchanged, or swapped with their neighbours between two words, if there are at most as many.
fn mistakes(one: &[char], other: &str, most: u32) -> Option<u32> {
    let other_chars = other.chars().count();
    if one.len().abs_diff(other_chars) > most as usize || other_chars > MISTAKEN_CHARS {
        return None;
    }
    let mut two_before = [0_u32; MISTAKEN_CHARS + 1];
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
        Vocabulary::of(words.zip(0..).collect())
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
            assert_eq!(mistakes(&chars, other, most), counted, "{one} {other}");
        }
    }

    #[test]
    fn the_nearest_words_are_those_with_fewest_mistakes() {
        let vocabulary = vocabulary(&["calendar", "colander", "repository", "file", "2025"]);
        assert_eq!(vocabulary.near("calender"), Some((vec![0], 1)));
        assert_eq!(vocabulary.near("repostroy"), Some((vec![2], 2)));
        assert_eq!(vocabulary.near("fle"), None);
        assert_eq!(vocabulary.near("2024"), None);
    }
}
