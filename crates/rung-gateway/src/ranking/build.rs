//! How documents become an index.

use std::hash::Hasher as _;

use rustc_hash::{FxHashMap, FxHasher};

use super::vocabulary::{Term, Vocabulary};
use super::words::{Stems, WORD_BYTES, Written, folded, is_stop_word, words};
use super::{Document, Index, Names, Postings};

/// What a field is worth, and what its length does to that.
struct Field {
    weight: f32,
    /// Words that are neither many nor few for it.
    usual_words: f32,
    /// How much length counts, from 0 to 1.
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
/// The beginning of the description, which says what the tool does.
const LEAD: Field = Field {
    weight: 1.0,
    usual_words: 8.0,
    by_length: 0.9,
};
/// What comes after the beginning of a description: how, when, and when not.
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

/// Words of a description that are its beginning.
const LEAD_WORDS: usize = 25;

/// How soon another mention stops counting.
const SATURATION: f32 = 1.0;

/// Whether texts are written for machines or for people: people write names of one word with capitals within.
#[derive(Clone, Copy, PartialEq)]
enum Writing {
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
    marks: Vec<(u32, u32)>,
    /// What each term of the document at hand is worth in it so far.
    weights: FxHashMap<Term, f32>,
    /// The terms of the field at hand, and how many words there are behind them.
    field: Vec<Term>,
    field_words: u16,
}

impl Index {
    /// The index of these documents.
    pub fn of<'a>(documents: impl IntoIterator<Item = Document<'a>>) -> Self {
        let stems = Stems::new();
        let mut builder = Builder::default();
        for (number, document) in (0..).zip(documents) {
            builder.add(number, &document, &stems);
        }
        builder.finish()
    }
}

impl Builder {
    fn add(&mut self, number: u32, document: &Document<'_>, stems: &Stems) {
        self.text(document.name, Writing::Identifiers, stems);
        self.pairs_of(document.name, stems);
        self.end_field(&NAME);
        self.text(document.title, Writing::Prose, stems);
        self.end_field(&TITLE);
        self.text(document.server, Writing::Identifiers, stems);
        self.end_field(&SERVER);
        let mut description = words(document.description);
        self.words(description.by_ref().take(LEAD_WORDS), Writing::Prose, stems);
        self.end_field(&LEAD);
        self.words(description, Writing::Prose, stems);
        self.end_field(&REST);
        for (name, _) in document.arguments {
            self.text(name, Writing::Identifiers, stems);
        }
        self.end_field(&ARGUMENT_NAMES);
        for (_, text) in document.arguments {
            self.text(text, Writing::Prose, stems);
        }
        self.end_field(&ARGUMENT_TEXTS);
        let worths = self.weights.drain().map(|(term, weight)| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let worth = (weight / (weight + SATURATION) * f32::from(u16::MAX)) as u16;
            (term, number, worth)
        });
        self.postings.extend(worths);
        self.name(document);
    }

    fn text(&mut self, text: &str, writing: Writing, stems: &Stems) {
        self.words(words(text), writing, stems);
    }

    /// Takes words into the field at hand.
    fn words<'t>(
        &mut self,
        words: impl Iterator<Item = Written<'t>>,
        writing: Writing,
        stems: &Stems,
    ) {
        for word in words {
            let prose = writing == Writing::Prose;
            let parts = if prose && word.is_name() {
                vec![word.whole()]
            } else {
                word.parts()
            };
            // Whoever gives a name of a word or two means each of them.
            let said = parts.iter().filter(|part| !prose || !is_stop_word(part));
            for part in said {
                self.word(part, stems);
                self.field_words = self.field_words.saturating_add(1);
            }
            let whole = word.whole();
            if parts != [whole.as_str()] {
                self.word(&whole, stems);
                let alone = u16::from(parts.is_empty());
                self.field_words = self.field_words.saturating_add(alone);
            }
        }
    }

    fn word(&mut self, word: &str, stems: &Stems) {
        if word.len() <= WORD_BYTES {
            let term = self.term(word, stems);
            self.field.push(term);
        }
    }

    /// Takes what stands side by side in a name into the field at hand.
    fn pairs_of(&mut self, name: &str, stems: &Stems) {
        let mut before = None;
        for part in words(name).flat_map(Written::parts) {
            if part.len() > WORD_BYTES {
                continue;
            }
            let term = self.term(&part, stems);
            self.pair(form(&part), term);
            if let Some(before) = before.replace(term) {
                self.pair(before, term);
            }
        }
    }

    fn pair(&mut self, one: Term, other: Term) {
        let term = *self.pairs.entry(pair(one, other)).or_insert(self.terms);
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

    fn term(&mut self, word: &str, stems: &Stems) -> Term {
        if let Some(&term) = self.terms_of_words.get(word) {
            return term;
        }
        let stem = stems.of(word);
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

    fn name(&mut self, document: &Document<'_>) {
        self.names.push_str(document.server);
        let server_end = offset(self.names.len());
        self.names.push_str(document.name);
        self.name_ends.push((server_end, offset(self.names.len())));
        let both = folded(document.server).chain(folded(document.name));
        self.marks.push((mark(folded(document.name)), mark(both)));
    }

    fn finish(mut self) -> Index {
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
        Index {
            vocabulary: Vocabulary::of(self.terms_of_words.into_iter().collect()),
            postings: Postings {
                starts: starts.into(),
                documents: self.postings.iter().map(|posting| posting.1).collect(),
                worths: self.postings.iter().map(|posting| posting.2).collect(),
            },
            pairs: pairs.into(),
            names: Names {
                text: self.names.into(),
                ends: self.name_ends.into(),
                marks: self.marks.into(),
            },
        }
    }
}

/// What stands for the form of a word beside its term: a stem does not tell one thing from many, and names do.
pub(super) fn form(word: &str) -> Term {
    if word.ends_with('s') && !word.ends_with("ss") {
        Term::MAX
    } else {
        Term::MAX - 1
    }
}

/// Two terms, whichever comes first.
pub(super) fn pair(one: Term, other: Term) -> (Term, Term) {
    (one.min(other), one.max(other))
}

/// What letters come to. Names that have the same mark are compared.
pub(super) fn mark(letters: impl Iterator<Item = char>) -> u32 {
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
