//! Building the index from documents.

use std::hash::Hasher as _;

use rustc_hash::{FxHashMap, FxHasher};

use super::vocabulary::{Term, Vocabulary};
use super::words::{MAX_WORD_BYTES, WordStemmer, WordToken, fold_chars, is_stop_word, words};
use super::{DocumentIndex, DocumentNames, IndexedDocument, Postings};

/// The weight of a field, and its length normalization.
struct Field {
    weight: f32,
    /// Typical number of words.
    usual_words: f32,
    /// Strength of length normalization, from 0 to 1.
    by_length: f32,
}

const NAME: Field = Field {
    weight: 4.0,
    usual_words: 2.5,
    by_length: 0.7,
};
const TITLE: Field = Field {
    weight: 1.0,
    usual_words: 4.0,
    by_length: 0.3,
};
const SERVER: Field = Field {
    weight: 4.0,
    usual_words: 1.0,
    by_length: 0.0,
};
/// The beginning of the description, which usually says what the tool does.
const LEAD: Field = Field {
    weight: 1.0,
    usual_words: 8.0,
    by_length: 0.9,
};
/// The rest of the description: how and when to use the tool.
const REST: Field = Field {
    weight: 0.2,
    usual_words: 50.0,
    by_length: 0.6,
};
const ARGUMENT_NAMES: Field = Field {
    weight: 0.4,
    usual_words: 12.0,
    by_length: 0.9,
};
const ARGUMENT_TEXTS: Field = Field {
    weight: 0.12,
    usual_words: 30.0,
    by_length: 0.7,
};

/// Number of words in the beginning of a description.
const LEAD_WORDS: usize = 25;

/// Saturation of repeated mentions.
const SATURATION: f32 = 1.0;

/// Identifiers, or prose, in which a name of one word may have inner capitals.
#[derive(Clone, Copy, PartialEq)]
enum TextKind {
    Identifiers,
    Prose,
}

#[derive(Default)]
struct Builder {
    terms_of_words: FxHashMap<Box<str>, Term>,
    pairs: FxHashMap<(Term, Term), Term>,
    terms: Term,
    postings: Vec<(Term, u32, u16)>,
    names: String,
    name_ends: Vec<(u32, u32)>,
    hashes: Vec<(u32, u32)>,
    /// Weights of the terms in the current document so far.
    weights: FxHashMap<Term, f32>,
    /// Terms of the current field, and the number of words they come from.
    field: Vec<Term>,
    field_words: u16,
}

impl DocumentIndex {
    /// Builds the index of these documents.
    pub fn build<'a>(documents: impl IntoIterator<Item = IndexedDocument<'a>>) -> Self {
        let stems = WordStemmer::new();
        let mut builder = Builder::default();
        for (number, document) in (0..).zip(documents) {
            builder.add(number, &document, &stems);
        }
        builder.finish()
    }
}

impl Builder {
    fn add(&mut self, number: u32, document: &IndexedDocument<'_>, stems: &WordStemmer) {
        self.add_text(document.name, TextKind::Identifiers, stems);
        self.add_pairs(document.name, stems);
        self.end_field(&NAME);
        self.add_text(document.title, TextKind::Prose, stems);
        self.end_field(&TITLE);
        self.add_text(document.server, TextKind::Identifiers, stems);
        self.end_field(&SERVER);
        let mut description = words(document.description);
        self.add_words(
            description.by_ref().take(LEAD_WORDS),
            TextKind::Prose,
            stems,
        );
        self.end_field(&LEAD);
        self.add_words(description, TextKind::Prose, stems);
        self.end_field(&REST);
        for (name, _) in document.arguments {
            self.add_text(name, TextKind::Identifiers, stems);
        }
        self.end_field(&ARGUMENT_NAMES);
        for (_, text) in document.arguments {
            self.add_text(text, TextKind::Prose, stems);
        }
        self.end_field(&ARGUMENT_TEXTS);
        let worths = self.weights.drain().map(|(term, weight)| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let worth = (weight / (weight + SATURATION) * f32::from(u16::MAX)) as u16;
            (term, number, worth)
        });
        self.postings.extend(worths);
        self.add_name(document);
    }

    fn add_text(&mut self, text: &str, writing: TextKind, stems: &WordStemmer) {
        self.add_words(words(text), writing, stems);
    }

    /// Adds words to the current field.
    fn add_words<'t>(
        &mut self,
        words: impl Iterator<Item = WordToken<'t>>,
        writing: TextKind,
        stems: &WordStemmer,
    ) {
        for word in words {
            let prose = writing == TextKind::Prose;
            let parts = if prose && word.is_name() {
                vec![word.whole()]
            } else {
                word.parts()
            };
            // Every word of an identifier counts, stop words included.
            let said = parts.iter().filter(|part| !prose || !is_stop_word(part));
            for part in said {
                self.add_word(part, stems);
                self.field_words = self.field_words.saturating_add(1);
            }
            let whole = word.whole();
            if parts != [whole.as_str()] {
                self.add_word(&whole, stems);
                let alone = u16::from(parts.is_empty());
                self.field_words = self.field_words.saturating_add(alone);
            }
        }
    }

    fn add_word(&mut self, word: &str, stems: &WordStemmer) {
        if word.len() <= MAX_WORD_BYTES {
            let term = self.term(word, stems);
            self.field.push(term);
        }
    }

    /// Adds the adjacent pairs of a name to the current field.
    fn add_pairs(&mut self, name: &str, stems: &WordStemmer) {
        let mut before = None;
        for part in words(name).flat_map(WordToken::parts) {
            if part.len() > MAX_WORD_BYTES {
                continue;
            }
            let term = self.term(&part, stems);
            self.add_pair(form_term(&part), term);
            if let Some(before) = before.replace(term) {
                self.add_pair(before, term);
            }
        }
    }

    fn add_pair(&mut self, one: Term, other: Term) {
        let term = *self
            .pairs
            .entry(ordered_pair(one, other))
            .or_insert(self.terms);
        self.terms = self.terms.max(term + 1);
        self.field.push(term);
    }

    fn end_field(&mut self, field: &Field) {
        let length = f32::from(std::mem::take(&mut self.field_words)) / field.usual_words;
        let weight = field.weight / (1.0 + field.by_length * (length - 1.0));
        for term in self.field.drain(..) {
            *self.weights.entry(term).or_default() += weight;
        }
    }

    fn term(&mut self, word: &str, stems: &WordStemmer) -> Term {
        if let Some(&term) = self.terms_of_words.get(word) {
            return term;
        }
        let stem = stems.stem(word);
        let known = self.terms_of_words.get(stem.as_ref()).copied();
        let term = known.unwrap_or_else(|| {
            let term = self.terms;
            self.terms += 1;
            self.terms_of_words.insert(stem.as_ref().into(), term);
            term
        });
        self.terms_of_words.insert(word.into(), term);
        term
    }

    fn add_name(&mut self, document: &IndexedDocument<'_>) {
        self.names.push_str(document.server);
        let server_end = offset(self.names.len());
        self.names.push_str(document.name);
        self.name_ends.push((server_end, offset(self.names.len())));
        let both = fold_chars(document.server).chain(fold_chars(document.name));
        self.hashes
            .push((name_hash(fold_chars(document.name)), name_hash(both)));
    }

    fn finish(mut self) -> DocumentIndex {
        self.postings.sort_unstable();
        let mut starts = vec![0; self.terms as usize + 1];
        for &(term, _, _) in &self.postings {
            starts[term as usize + 1] += 1;
        }
        let mut before = 0;
        for start in &mut starts {
            before += *start;
            *start = before;
        }
        let mut pairs: Vec<_> = self.pairs.into_iter().collect();
        pairs.sort_unstable();
        DocumentIndex {
            vocabulary: Vocabulary::new(self.terms_of_words.into_iter().collect()),
            postings: Postings {
                starts: starts.into(),
                documents: self.postings.iter().map(|posting| posting.1).collect(),
                weights: self.postings.iter().map(|posting| posting.2).collect(),
            },
            pairs: pairs.into(),
            names: DocumentNames {
                text: self.names.into(),
                ends: self.name_ends.into(),
                hashes: self.hashes.into(),
            },
        }
    }
}

/// Returns a pseudo-term for singular or plural: a stem does not distinguish them, and names do.
pub(super) fn form_term(word: &str) -> Term {
    if word.ends_with('s') && !word.ends_with("ss") {
        Term::MAX
    } else {
        Term::MAX - 1
    }
}

/// Orders two terms.
pub(super) fn ordered_pair(one: Term, other: Term) -> (Term, Term) {
    (one.min(other), one.max(other))
}

/// Hashes the letters of a name. Names with equal hashes are compared.
pub(super) fn name_hash(letters: impl Iterator<Item = char>) -> u32 {
    let mut hasher = FxHasher::default();
    for letter in letters {
        hasher.write_u32(letter.into());
    }
    #[allow(clippy::cast_possible_truncation)]
    let mark = (hasher.finish() >> 32) as u32;
    mark
}

fn offset(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("the names of all tools have less than four gigabytes")
}
