//! Searching the index.

use rustc_hash::FxHashSet;

use super::build::{form_term, name_hash, ordered_pair};
use super::synonyms;
use super::vocabulary::Term;
use super::words::{
    MAX_READ_WORDS, MAX_WORD_BYTES, WordStemmer, WordToken, fold_chars, is_stop_word, words,
};
use super::{DocumentHit, DocumentIndex, SearchResults};

/// Maximum words of a query that are searched.
const MAX_QUERY_WORDS: usize = 24;

/// Weight of a synonym, relative to the word itself.
const SYNONYM_WEIGHT: f32 = 0.45;
/// Weight of a word of which the last query word is a prefix.
const COMPLETION_WEIGHT: f32 = 0.3;
/// Weights of words at an edit distance of 0, 1 and 2.
const MISSPELLING_WEIGHTS: [f32; 3] = [1.0, 0.7, 0.5];
/// Additional weight of two adjacent words of a name.
const PAIR_WEIGHT: f32 = 0.6;
/// Additional weight of a match in singular or plural form.
const FORM_WEIGHT: f32 = 0.6;

struct QueryWord {
    word: String,
    /// Terms of compounds that the word is a part of, as written or joined with its neighbour.
    compounds: Vec<Term>,
}

/// A word of the query with all its alternatives.
struct QueryClause {
    weight: f32,
    /// True if the clause is a word of the query, so a document without it covers less of the query.
    is_query_word: bool,
    /// Terms, each with its weight relative to the word.
    alternatives: Vec<(Term, f32)>,
}

/// Score of one document.
#[derive(Clone, Copy, Default)]
struct Tally {
    score: f32,
    covered: f32,
    /// Best alternative of the current clause.
    best: f32,
}

impl DocumentIndex {
    /// Returns the best documents for a query, of those that `keep` accepts. An empty query matches all, in order.
    ///
    /// Filtered documents are never returned, but their words affect spelling correction: a known word is not treated as a
    /// misspelling. A caller that must not be able to infer that needs an index of its own.
    pub fn search(&self, query: &str, keep: impl Fn(u32) -> bool, limit: usize) -> SearchResults {
        let query = query.trim();
        if query.is_empty() {
            return self.match_all(keep, limit);
        }
        let mut hits = self.search_words(query);
        self.boost_names(query, &mut hits);
        hits.retain(|hit| keep(hit.document));
        let total = hits.len();
        let order = |one: &DocumentHit, other: &DocumentHit| {
            let by_score = other.score.total_cmp(&one.score);
            by_score.then(one.document.cmp(&other.document))
        };
        if limit < total {
            hits.select_nth_unstable_by(limit, order);
            hits.truncate(limit);
        }
        hits.sort_unstable_by(order);
        SearchResults { hits, total }
    }

    fn match_all(&self, keep: impl Fn(u32) -> bool, limit: usize) -> SearchResults {
        let mut found = SearchResults {
            hits: Vec::new(),
            total: 0,
        };
        for (document, _) in (0..).zip(&self.names.ends) {
            if keep(document) {
                found.total += 1;
                if found.hits.len() < limit {
                    found.hits.push(DocumentHit {
                        document,
                        score: 0.0,
                    });
                }
            }
        }
        found
    }

    /// Returns documents that have words of the query, in no order.
    fn search_words(&self, query: &str) -> Vec<DocumentHit> {
        let clauses = self.clauses(query);
        let mut tallies = vec![Tally::default(); self.names.ends.len()];
        let mut touched: Vec<u32> = Vec::new();
        let mut found: Vec<u32> = Vec::new();
        let mut most = 0.0;
        let mut asked = 0.0;
        for clause in &clauses {
            for &(term, factor) in &clause.alternatives {
                for (document, worth) in self.postings.get(term) {
                    let tally = &mut tallies[document as usize];
                    if tally.best == 0.0 {
                        touched.push(document);
                    }
                    tally.best = tally.best.max(factor * worth);
                }
            }
            most += clause.weight;
            asked += if clause.is_query_word {
                clause.weight
            } else {
                0.0
            };
            for document in touched.drain(..) {
                let tally = &mut tallies[document as usize];
                if tally.score == 0.0 {
                    found.push(document);
                }
                tally.score += clause.weight * tally.best;
                if clause.is_query_word {
                    tally.covered += clause.weight;
                }
                tally.best = 0.0;
            }
        }
        let hit = |document: u32| {
            let tally = tallies[document as usize];
            let covered: f32 = tally.covered / asked;
            DocumentHit {
                document,
                score: tally.score / most * covered,
            }
        };
        found.into_iter().map(hit).collect()
    }

    /// Raises the score of documents whose name is the query, and adds those not found by words.
    fn boost_names(&self, query: &str, hits: &mut Vec<DocumentHit>) {
        let wanted = name_hash(fold_chars(query));
        let marks = (0..).zip(&self.names.hashes);
        let named = marks.filter(|&(_, &(name, both))| name == wanted || both == wanted);
        let mut raised = named
            .map(|(document, _)| (document, self.names.score_boost(document as usize, query)))
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
                Err(_) => hits.push(DocumentHit {
                    document,
                    score: step,
                }),
            }
        }
    }

    /// Returns the clauses of a query.
    fn clauses(&self, query: &str) -> Vec<QueryClause> {
        let stems = WordStemmer::new();
        let asked = self.query_words(query, &stems);
        let last = asked.len().checked_sub(1);
        let last = last.filter(|_| query.ends_with(char::is_alphanumeric));
        let mut clauses: Vec<QueryClause> = asked
            .iter()
            .enumerate()
            .map(|(at, asked)| self.clause(asked, Some(at) == last, &stems))
            .collect();
        let mut beyond = self.pair_clauses(&clauses);
        let forms = asked.iter().zip(&clauses);
        beyond.extend(forms.filter_map(|(asked, clause)| self.form_clause(&asked.word, clause)));
        clauses.extend(beyond);
        clauses
    }

    /// Returns the distinct significant words of the query.
    fn query_words(&self, query: &str, stems: &WordStemmer) -> Vec<QueryWord> {
        let mut asked: Vec<QueryWord> = Vec::new();
        for written in words(query).take(MAX_READ_WORDS) {
            self.split_query_word(written, stems, &mut asked);
        }
        if !asked.iter().all(|asked| is_stop_word(&asked.word)) {
            asked.retain(|asked| !is_stop_word(&asked.word));
        }
        asked.retain(|asked| asked.word.len() <= MAX_WORD_BYTES);
        let mut seen = FxHashSet::default();
        asked.retain(|asked| seen.insert(stems.stem(&asked.word).into_owned()));
        asked.truncate(MAX_QUERY_WORDS);
        // Words written separately may be one word in a document.
        for at in 1..asked.len() {
            let together = [&*asked[at - 1].word, &*asked[at].word].concat();
            if let Some(term) = self.term(&together, stems) {
                asked[at - 1].compounds.push(term);
                asked[at].compounds.push(term);
            }
        }
        asked
    }

    /// Splits a written word of the query and adds its parts.
    fn split_query_word(
        &self,
        written: WordToken<'_>,
        stems: &WordStemmer,
        asked: &mut Vec<QueryWord>,
    ) {
        let whole = written.whole();
        let term = self.term(&whole, stems);
        let parts = if let Some(words) = synonyms::expand_abbreviation(&whole) {
            words.iter().map(|&word| word.to_owned()).collect()
        } else if written.is_name() && term.is_some() {
            vec![whole]
        } else {
            let parts = written.parts();
            match &parts[..] {
                [] => vec![whole],
                [part] if *part == whole && term.is_none() => {
                    self.split_compound(part).map_or(parts, Vec::from)
                }
                _ => parts,
            }
        };
        asked.extend(parts.into_iter().map(|word| QueryWord {
            word,
            compounds: Vec::from_iter(term),
        }));
    }

    /// Splits an unknown word into two known ones.
    fn split_compound(&self, word: &str) -> Option<[String; 2]> {
        const SIDE_BYTES: usize = 3;
        if word.len() > MAX_WORD_BYTES {
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

    fn clause(&self, asked: &QueryWord, is_last: bool, stems: &WordStemmer) -> QueryClause {
        let word = &asked.word;
        let own = self.term(word, stems);
        let mut ways: Vec<(Term, f32)> = Vec::new();
        // The first alternative for a term has the highest weight.
        let mut offer = |term: Term, factor: f32| {
            if ways.iter().all(|&(offered, _)| offered != term) {
                ways.push((term, factor));
            }
        };
        for term in own.into_iter().chain(asked.compounds.iter().copied()) {
            offer(term, 1.0);
        }
        let alike = synonyms::synonyms_of(&stems.stem(word));
        for term in alike.iter().filter_map(|stem| self.vocabulary.term(stem)) {
            offer(term, SYNONYM_WEIGHT);
        }
        if is_last {
            for term in self.vocabulary.with_prefix(word) {
                offer(term, COMPLETION_WEIGHT);
            }
        }
        if ways.is_empty()
            && let Some((terms, mistakes)) = self.vocabulary.nearest(word)
        {
            let factor = MISSPELLING_WEIGHTS[mistakes as usize];
            ways.extend(terms.into_iter().map(|term| (term, factor)));
        }
        // A word that no document has counts as the rarest: without it a document covers less of the query.
        let documents = match own {
            Some(term) => self.postings.count(term),
            None => ways
                .iter()
                .map(|&(term, _)| self.postings.count(term))
                .max()
                .unwrap_or(0),
        };
        QueryClause {
            weight: self.rarity(documents),
            is_query_word: true,
            alternatives: ways,
        }
    }

    /// Returns clauses for adjacent query words that are adjacent in names.
    fn pair_clauses(&self, clauses: &[QueryClause]) -> Vec<QueryClause> {
        let mut pairs = Vec::new();
        for sides in clauses.windows(2) {
            let mut ways: Vec<(Term, f32)> = Vec::new();
            for &(one, one_factor) in &sides[0].alternatives {
                for &(other, other_factor) in &sides[1].alternatives {
                    let pair = self.pair_term(one, other);
                    ways.extend(pair.map(|pair| (pair, one_factor * other_factor)));
                }
            }
            if !ways.is_empty() {
                let weight = sides[0].weight.min(sides[1].weight) * PAIR_WEIGHT;
                pairs.push(QueryClause {
                    weight,
                    is_query_word: false,
                    alternatives: ways,
                });
            }
        }
        pairs
    }

    /// Returns the clause for names that have the word in the same grammatical form.
    fn form_clause(&self, word: &str, clause: &QueryClause) -> Option<QueryClause> {
        let form = form_term(word);
        let ways = clause.alternatives.iter().filter_map(|&(term, factor)| {
            let pair = self.pair_term(form, term)?;
            Some((pair, factor))
        });
        let ways: Vec<(Term, f32)> = ways.collect();
        (!ways.is_empty()).then_some(QueryClause {
            weight: clause.weight * FORM_WEIGHT,
            is_query_word: false,
            alternatives: ways,
        })
    }

    fn pair_term(&self, one: Term, other: Term) -> Option<Term> {
        let wanted = ordered_pair(one, other);
        let place = self.pairs.binary_search_by_key(&wanted, |&(pair, _)| pair);
        place.ok().map(|at| self.pairs[at].1)
    }

    fn term(&self, word: &str, stems: &WordStemmer) -> Option<Term> {
        let by_word = self.vocabulary.term(word);
        by_word.or_else(|| self.vocabulary.term(&stems.stem(word)))
    }

    /// Returns the inverse document frequency for this number of documents.
    #[allow(clippy::cast_precision_loss)]
    fn rarity(&self, documents: usize) -> f32 {
        let all = self.names.ends.len() as f32;
        let those = documents as f32;
        ((all - those + 0.5) / (those + 0.5)).ln_1p()
    }
}

impl super::Postings {
    fn get(&self, term: Term) -> impl Iterator<Item = (u32, f32)> {
        let range = self.range(term);
        let documents = self.documents[range.clone()].iter();
        documents
            .zip(&self.weights[range])
            // A term that occurs has a weight above zero.
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

impl super::DocumentNames {
    /// Returns the score added if the document's name is the query: more for an exact match, and more with the server's
    /// name.
    fn score_boost(&self, document: usize, query: &str) -> f32 {
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
        } else if fold_chars(query).next().is_none() {
            0.0
        } else if fold_chars(server)
            .chain(fold_chars(name))
            .eq(fold_chars(query))
        {
            2.0
        } else if fold_chars(name).eq(fold_chars(query)) {
            1.0
        } else {
            0.0
        }
    }
}
