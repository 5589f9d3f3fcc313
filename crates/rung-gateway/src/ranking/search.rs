//! How a query finds documents.

use rustc_hash::FxHashSet;

use super::build::{form, mark, pair};
use super::synonyms;
use super::vocabulary::Term;
use super::words::{READ_WORDS, Stems, WORD_BYTES, Written, folded, is_stop_word, words};
use super::{Found, Hit, Index};

/// Words of a query that are looked for.
const ASKED_WORDS: usize = 24;

/// What a word that means the same is worth, of what the word itself is.
const SYNONYM: f32 = 0.45;
/// What a word that the last one begins is worth.
const COMPLETION: f32 = 0.3;
/// What a word is worth that one mistake, or two, lead to.
const MISTAKEN: [f32; 3] = [1.0, 0.7, 0.5];
/// What two words side by side in a name are worth beyond each of them.
const PAIR: f32 = 0.6;
/// What it is worth that a name means one thing or many, as the query does.
const FORM: f32 = 0.6;

/// A word of the query.
struct Asked {
    word: String,
    /// What it is a part of, or would be if it were written together with its neighbour.
    wholes: Vec<Term>,
}

/// A word of the query, in all the ways in which a document can have it.
struct Clause {
    /// What it is worth to have it.
    weight: f32,
    /// Whether a document without it lacks something that was asked for.
    asked: bool,
    /// Terms, each with what it is worth of the word itself.
    ways: Vec<(Term, f32)>,
}

/// What a document has of the query.
#[derive(Clone, Copy, Default)]
struct Tally {
    score: f32,
    covered: f32,
    /// The best way to have the clause at hand.
    best: f32,
}

impl Index {
    /// The best documents for a query, of those that `keep` lets through. An empty query matches all, in order.
    ///
    /// Of what is not let through, nothing is shown; but its words are known, and a word that is known is not taken for a
    /// misspelt one. Whoever should not even guess that is to be given an index of their own.
    pub fn search(&self, query: &str, keep: impl Fn(u32) -> bool, limit: usize) -> Found {
        let query = query.trim();
        if query.is_empty() {
            return self.all(keep, limit);
        }
        let mut hits = self.by_words(query);
        self.by_name(query, &mut hits);
        hits.retain(|hit| keep(hit.document));
        let total = hits.len();
        let order = |one: &Hit, other: &Hit| {
            let by_score = other.score.total_cmp(&one.score);
            by_score.then(one.document.cmp(&other.document))
        };
        if limit < total {
            hits.select_nth_unstable_by(limit, order);
            hits.truncate(limit);
        }
        hits.sort_unstable_by(order);
        Found { hits, total }
    }

    fn all(&self, keep: impl Fn(u32) -> bool, limit: usize) -> Found {
        let mut found = Found {
            hits: Vec::new(),
            total: 0,
        };
        for (document, _) in (0..).zip(&self.names.ends) {
            if keep(document) {
                found.total += 1;
                if found.hits.len() < limit {
                    found.hits.push(Hit {
                        document,
                        score: 0.0,
                    });
                }
            }
        }
        found
    }

    /// Documents that have words of the query, in no order.
    fn by_words(&self, query: &str) -> Vec<Hit> {
        let clauses = self.clauses(query);
        let mut tallies = vec![Tally::default(); self.names.ends.len()];
        let mut touched: Vec<u32> = Vec::new();
        let mut found: Vec<u32> = Vec::new();
        let mut most = 0.0;
        let mut asked = 0.0;
        for clause in &clauses {
            for &(term, factor) in &clause.ways {
                for (document, worth) in self.postings.of(term) {
                    let tally = &mut tallies[document as usize];
                    if tally.best == 0.0 {
                        touched.push(document);
                    }
                    tally.best = tally.best.max(factor * worth);
                }
            }
            most += clause.weight;
            asked += if clause.asked { clause.weight } else { 0.0 };
            for document in touched.drain(..) {
                let tally = &mut tallies[document as usize];
                if tally.score == 0.0 {
                    found.push(document);
                }
                tally.score += clause.weight * tally.best;
                if clause.asked {
                    tally.covered += clause.weight;
                }
                tally.best = 0.0;
            }
        }
        let hit = |document: u32| {
            let tally = tallies[document as usize];
            let covered: f32 = tally.covered / asked;
            Hit {
                document,
                score: tally.score / most * covered,
            }
        };
        found.into_iter().map(hit).collect()
    }

    /// Raises documents of which the query is the name, whether they were found by words or not.
    fn by_name(&self, query: &str, hits: &mut Vec<Hit>) {
        let wanted = mark(folded(query));
        let marks = (0..).zip(&self.names.marks);
        let named = marks.filter(|&(_, &(name, both))| name == wanted || both == wanted);
        let mut raised = named
            .map(|(document, _)| (document, self.names.step(document as usize, query)))
            .filter(|&(_, step)| step > 0.0)
            .peekable();
        if raised.peek().is_none() {
            return;
        }
        hits.sort_unstable_by_key(|hit| hit.document);
        let by_words = hits.len();
        for (document, step) in raised {
            match hits[..by_words].binary_search_by_key(&document, |hit| hit.document) {
                Ok(at) => hits[at].score += step,
                Err(_) => hits.push(Hit {
                    document,
                    score: step,
                }),
            }
        }
    }

    /// What is looked for.
    fn clauses(&self, query: &str) -> Vec<Clause> {
        let stems = Stems::new();
        let asked = self.asked(query, &stems);
        let last = asked.len().checked_sub(1);
        let last = last.filter(|_| query.ends_with(char::is_alphanumeric));
        let mut clauses: Vec<Clause> = asked
            .iter()
            .enumerate()
            .map(|(at, asked)| self.clause(asked, Some(at) == last, &stems))
            .collect();
        let mut beyond = self.pairs_in(&clauses);
        let forms = asked.iter().zip(&clauses);
        beyond.extend(forms.filter_map(|(asked, clause)| self.form_of(&asked.word, clause)));
        clauses.extend(beyond);
        clauses
    }

    /// The words of the query that say something, each once.
    fn asked(&self, query: &str, stems: &Stems) -> Vec<Asked> {
        let mut asked: Vec<Asked> = Vec::new();
        for written in words(query).take(READ_WORDS) {
            self.take(written, stems, &mut asked);
        }
        if !asked.iter().all(|asked| is_stop_word(&asked.word)) {
            asked.retain(|asked| !is_stop_word(&asked.word));
        }
        asked.retain(|asked| asked.word.len() <= WORD_BYTES);
        let mut seen = FxHashSet::default();
        asked.retain(|asked| seen.insert(stems.of(&asked.word).into_owned()));
        asked.truncate(ASKED_WORDS);
        // What one writes apart, another writes together.
        for at in 1..asked.len() {
            let together = [&*asked[at - 1].word, &*asked[at].word].concat();
            if let Some(term) = self.term(&together, stems) {
                asked[at - 1].wholes.push(term);
                asked[at].wholes.push(term);
            }
        }
        asked
    }

    /// Takes a written word of the query apart.
    fn take(&self, written: Written<'_>, stems: &Stems, asked: &mut Vec<Asked>) {
        let whole = written.whole();
        let term = self.term(&whole, stems);
        let parts = if let Some(words) = synonyms::long_form(&whole) {
            words.iter().map(|&word| word.to_owned()).collect()
        } else if written.is_name() && term.is_some() {
            vec![whole]
        } else {
            let parts = written.parts();
            match &parts[..] {
                [] => vec![whole],
                [part] if *part == whole && term.is_none() => {
                    self.split(part).map_or(parts, Vec::from)
                }
                _ => parts,
            }
        };
        asked.extend(parts.into_iter().map(|word| Asked {
            word,
            wholes: Vec::from_iter(term),
        }));
    }

    /// The two words that an unknown one consists of.
    fn split(&self, word: &str) -> Option<[String; 2]> {
        const SIDE_BYTES: usize = 3;
        if word.len() > WORD_BYTES {
            return None;
        }
        let known = |(one, other): &(&str, &str)| {
            self.vocabulary.term(one).is_some() && self.vocabulary.term(other).is_some()
        };
        let (one, other) = (SIDE_BYTES..=word.len().saturating_sub(SIDE_BYTES))
            .filter_map(|at| word.split_at_checked(at))
            .find(known)?;
        Some([one.to_owned(), other.to_owned()])
    }

    fn clause(&self, asked: &Asked, is_last: bool, stems: &Stems) -> Clause {
        let word = &asked.word;
        let own = self.term(word, stems);
        let mut ways: Vec<(Term, f32)> = Vec::new();
        // What comes first is worth more.
        let mut offer = |term: Term, factor: f32| {
            if ways.iter().all(|&(offered, _)| offered != term) {
                ways.push((term, factor));
            }
        };
        for term in own.into_iter().chain(asked.wholes.iter().copied()) {
            offer(term, 1.0);
        }
        let alike = synonyms::alike(&stems.of(word));
        for term in alike.iter().filter_map(|stem| self.vocabulary.term(stem)) {
            offer(term, SYNONYM);
        }
        if is_last {
            for term in self.vocabulary.beginning_with(word) {
                offer(term, COMPLETION);
            }
        }
        if ways.is_empty()
            && let Some((terms, mistakes)) = self.vocabulary.near(word)
        {
            let factor = MISTAKEN[mistakes as usize];
            ways.extend(terms.into_iter().map(|term| (term, factor)));
        }
        // A word that nobody has is as rare as can be: what has it not, has less of what was asked.
        let documents = match own {
            Some(term) => self.postings.count(term),
            None => ways
                .iter()
                .map(|&(term, _)| self.postings.count(term))
                .max()
                .unwrap_or(0),
        };
        Clause {
            weight: self.rarity(documents),
            asked: true,
            ways,
        }
    }

    /// Neighbours in the query that are neighbours in names.
    fn pairs_in(&self, clauses: &[Clause]) -> Vec<Clause> {
        let mut pairs = Vec::new();
        for sides in clauses.windows(2) {
            let mut ways: Vec<(Term, f32)> = Vec::new();
            for &(one, one_factor) in &sides[0].ways {
                for &(other, other_factor) in &sides[1].ways {
                    let pair = self.pair(one, other);
                    ways.extend(pair.map(|pair| (pair, one_factor * other_factor)));
                }
            }
            if !ways.is_empty() {
                let weight = sides[0].weight.min(sides[1].weight) * PAIR;
                pairs.push(Clause {
                    weight,
                    asked: false,
                    ways,
                });
            }
        }
        pairs
    }

    /// The word in names, in the form that it has in the query.
    fn form_of(&self, word: &str, clause: &Clause) -> Option<Clause> {
        let form = form(word);
        let ways = clause.ways.iter().filter_map(|&(term, factor)| {
            let pair = self.pair(form, term)?;
            Some((pair, factor))
        });
        let ways: Vec<(Term, f32)> = ways.collect();
        (!ways.is_empty()).then_some(Clause {
            weight: clause.weight * FORM,
            asked: false,
            ways,
        })
    }

    fn pair(&self, one: Term, other: Term) -> Option<Term> {
        let wanted = pair(one, other);
        let place = self.pairs.binary_search_by_key(&wanted, |&(pair, _)| pair);
        place.ok().map(|at| self.pairs[at].1)
    }

    fn term(&self, word: &str, stems: &Stems) -> Option<Term> {
        let by_word = self.vocabulary.term(word);
        by_word.or_else(|| self.vocabulary.term(&stems.of(word)))
    }

    /// What it is worth to be one of so many documents.
    #[allow(clippy::cast_precision_loss)]
    fn rarity(&self, documents: usize) -> f32 {
        let all = self.names.ends.len() as f32;
        let those = documents as f32;
        ((all - those + 0.5) / (those + 0.5)).ln_1p()
    }
}

impl super::Postings {
    fn of(&self, term: Term) -> impl Iterator<Item = (u32, f32)> {
        let range = self.range(term);
        let documents = self.documents[range.clone()].iter();
        documents
            .zip(&self.worths[range])
            // Nothing that was written is worth nothing.
            .map(|(&document, &worth)| (document, f32::from(worth.max(1)) / f32::from(u16::MAX)))
    }

    fn count(&self, term: Term) -> usize {
        self.range(term).len()
    }

    fn range(&self, term: Term) -> std::ops::Range<usize> {
        let at = term as usize;
        self.starts[at] as usize..self.starts[at + 1] as usize
    }
}

impl super::Names {
    /// How much it raises a document that its name is the query: letter for letter more than otherwise, with the server's more
    /// than without.
    fn step(&self, document: usize, query: &str) -> f32 {
        let start = document
            .checked_sub(1)
            .map_or(0, |before| self.ends[before].1) as usize;
        let (server_end, end) = self.ends[document];
        let server = &self.text[start..server_end as usize];
        let name = &self.text[server_end as usize..end as usize];
        let qualified = query
            .strip_prefix(server.trim_start())
            .and_then(|rest| rest.strip_prefix("::"));
        if qualified == Some(name.trim_end()) {
            4.0
        } else if name.trim() == query {
            3.0
        } else if folded(query).next().is_none() {
            0.0
        } else if folded(server).chain(folded(name)).eq(folded(query)) {
            2.0
        } else if folded(name).eq(folded(query)) {
            1.0
        } else {
            0.0
        }
    }
}
