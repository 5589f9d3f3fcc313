//! How a query finds documents.

use rustc_hash::FxHashSet;

use super::build::{mark, pair};
use super::synonyms;
use super::vocabulary::Term;
use super::words::{Stems, WORD_BYTES, Written, folded, is_stop_word, words};
use super::{Found, Hit, Index};

/// Words of a query that are looked for; who says more has said it by then.
const QUERY_WORDS: usize = 48;

/// What a word that means the same is worth, of what the word itself is.
const SYNONYM: f32 = 0.35;
/// What a word that the last one begins is worth.
const COMPLETION: f32 = 0.3;
/// What a word is worth that one mistake, or two, lead to.
const MISTAKEN: [f32; 3] = [1.0, 0.7, 0.5];
/// What two words side by side in a name are worth beyond each of them.
const PAIR: f32 = 0.5;
/// What an identifier is worth beyond its parts.
const WHOLE: f32 = 0.5;
/// How much it counts to have more of the words.
const COVERAGE: f32 = 1.0;

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
                score: tally.score / most * covered.powf(COVERAGE),
            }
        };
        found.into_iter().map(hit).collect()
    }

    /// Raises documents of which the query is the name, whether they were found by words or not.
    fn by_name(&self, query: &str, hits: &mut Vec<Hit>) {
        let wanted = mark(folded(query));
        for (document, &(name, both)) in (0..).zip(&self.names.marks) {
            if name != wanted && both != wanted {
                continue;
            }
            let step = self.names.step(document as usize, query);
            if step == 0.0 {
                continue;
            }
            match hits.iter_mut().find(|hit| hit.document == document) {
                Some(hit) => hit.score += step,
                None => hits.push(Hit {
                    document,
                    score: step,
                }),
            }
        }
    }

    /// What is looked for.
    fn clauses(&self, query: &str) -> Vec<Clause> {
        let stems = Stems::new();
        let mut asked: Vec<String> = Vec::new();
        let mut wholes: Vec<String> = Vec::new();
        for word in words(query).take(QUERY_WORDS) {
            self.take(word, &mut asked, &mut wholes);
        }
        if !asked.iter().all(|word| is_stop_word(word)) {
            asked.retain(|word| !is_stop_word(word));
        }
        let mut seen = FxHashSet::default();
        asked.retain(|word| seen.insert(stems.of(word).into_owned()));
        asked.truncate(QUERY_WORDS);
        let last = query
            .ends_with(char::is_alphanumeric)
            .then(|| asked.last().cloned())
            .flatten();
        let mut clauses: Vec<Clause> = Vec::new();
        for word in &asked {
            let is_last = last.as_ref() == Some(word);
            clauses.push(self.clause(word, is_last, &stems));
        }
        let pairs = self.pairs_in(&clauses);
        let joined = asked.windows(2).map(|sides| sides.concat());
        let beyond = wholes
            .into_iter()
            .chain(joined)
            .filter_map(|whole| self.term(&whole, &stems))
            .map(|term| self.beyond(term, WHOLE));
        clauses.extend(beyond);
        clauses.extend(pairs);
        clauses
    }

    /// Takes a written word of the query apart.
    fn take(&self, word: Written<'_>, asked: &mut Vec<String>, wholes: &mut Vec<String>) {
        let whole = word.whole();
        if let Some(words) = synonyms::long_form(&whole) {
            asked.extend(words.iter().map(|&word| word.to_owned()));
            return;
        }
        if word.is_name() && self.vocabulary.term(&whole).is_some() {
            asked.push(whole);
            return;
        }
        let parts = word.parts();
        match &parts[..] {
            [] => asked.push(whole),
            [part] => match self.split(part) {
                Some(sides) => asked.extend(sides),
                None => asked.push(whole),
            },
            _ => {
                asked.extend(parts);
                wholes.push(whole);
            }
        }
    }

    /// The two words that an unknown one consists of.
    fn split(&self, word: &str) -> Option<[String; 2]> {
        const SIDE_BYTES: usize = 3;
        if word.len() > WORD_BYTES || self.term(word, &Stems::new()).is_some() {
            return None;
        }
        let known = |at: &usize| {
            word.split_at_checked(*at).is_some_and(|(one, other)| {
                self.vocabulary.term(one).is_some() && self.vocabulary.term(other).is_some()
            })
        };
        let at = (SIDE_BYTES..word.len().saturating_sub(SIDE_BYTES - 1)).find(known)?;
        Some([word[..at].to_owned(), word[at..].to_owned()])
    }

    fn clause(&self, word: &str, is_last: bool, stems: &Stems) -> Clause {
        let mut ways = Vec::new();
        let own = self.term(word, stems);
        ways.extend(own.map(|term| (term, 1.0)));
        let alike = synonyms::alike(&stems.of(word));
        let alike = alike.iter().filter_map(|stem| self.vocabulary.term(stem));
        ways.extend(alike.map(|term| (term, SYNONYM)));
        if is_last {
            let completions = self.vocabulary.beginning_with(word);
            ways.extend(completions.map(|term| (term, COMPLETION)));
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
                    let wanted = pair(one, other);
                    let place = self.pairs.binary_search_by_key(&wanted, |&(pair, _)| pair);
                    if let Ok(at) = place {
                        ways.push((self.pairs[at].1, one_factor * other_factor));
                    }
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

    fn beyond(&self, term: Term, factor: f32) -> Clause {
        Clause {
            weight: self.rarity(self.postings.count(term)) * factor,
            asked: false,
            ways: vec![(term, 1.0)],
        }
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
        (1.0 + (all - those + 0.5) / (those + 0.5)).ln()
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
            .strip_prefix(server)
            .and_then(|rest| rest.strip_prefix("::"));
        if qualified == Some(name) {
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
