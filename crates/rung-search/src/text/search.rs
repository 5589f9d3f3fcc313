//! Search and ranking of documents.
//!
//! Documents that have more of the wanted terms come before those that have fewer, whatever their scores; among those with
//! equally many, the greater score is first, then the older document. The cursors of all wanted terms advance together. Once
//! the requested number is found, a document must have as many terms as the worst of them: documents with fewer are
//! skipped, and so are blocks in which no weight is large enough.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use rung_kv::{Table, View};

use super::analyze::TermPlace;
use super::options::SearchOptions;
use super::postings::{PostingCursor, weight_of_times};
use super::proximity::{self, TermPositions};
use super::query::{DocCondition, QueryPlan};
use super::rows::{
    Counters, DOCS, DocId, NO_DOC, TermEntry, TermId, last_number, reference_of, text_key,
};
use super::{TextHit, forward};
use crate::{Error, Result};

/// The score of a document that has none of the wanted terms, and matches because it lacks others.
const WITHOUT_TERMS: f64 = 0.1;

/// Documents between two calls of `step`.
const STEP_INTERVAL: u32 = 256;

/// A term of the query that the index has.
struct SearchTerm<'t> {
    /// Its index in the plan.
    plan_index: usize,
    id: TermId,
    wanted: bool,
    /// Its weight in this query: greater for rarer terms.
    weight: f64,
    cursor: PostingCursor<'t>,
}

/// A found document, ordered by rank. Greater is better.
#[derive(Debug, Clone, Copy)]
struct RankedDoc {
    hits: usize,
    score: f64,
    doc: DocId,
    unique: u32,
}

impl Ord for RankedDoc {
    fn cmp(&self, other: &Self) -> Ordering {
        let hits = self.hits.cmp(&other.hits);
        let score = self.score.total_cmp(&other.score);
        hits.then(score).then(other.doc.cmp(&self.doc))
    }
}

impl PartialOrd for RankedDoc {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RankedDoc {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for RankedDoc {}

/// A filter of references.
pub type Filter<'f> = &'f dyn Fn(&[u8]) -> bool;

/// A running search.
pub(super) struct TextSearch<'t, 'q, E> {
    view: View<'t>,
    table: Table,
    plan: &'q QueryPlan,
    filter: Option<Filter<'q>>,
    step: &'q dyn Fn() -> Result<(), E>,
    terms: Vec<SearchTerm<'t>>,
    /// For each term of the plan, true if the current document has it.
    present: Vec<bool>,
    steps: u32,
}

impl<'t, 'q, E: From<Error>> TextSearch<'t, 'q, E> {
    pub(super) fn new(
        view: View<'t>,
        table: Table,
        plan: &'q QueryPlan,
        filter: Option<Filter<'q>>,
        step: &'q dyn Fn() -> Result<(), E>,
    ) -> Result<Self> {
        let all = f64::from(Counters::read(view, table)?.docs);
        let mut terms = Vec::new();
        for (at, term) in plan.terms.iter().enumerate() {
            let Some(known) = TermEntry::read(view, table, &term.term)? else {
                continue;
            };
            terms.push(SearchTerm {
                plan_index: at,
                id: known.id,
                wanted: term.wanted,
                weight: weight_of_times(term.times) * (all / f64::from(known.docs)).log10(),
                cursor: PostingCursor::new(view, table, known.id)?,
            });
        }
        Ok(Self {
            view,
            table,
            plan,
            filter,
            step,
            terms,
            present: vec![false; plan.terms.len()],
            steps: 0,
        })
    }

    /// Returns the best documents, the best first. `near` is true if the index has positions; then documents are
    /// ranked by proximity, too.
    pub(super) fn run(mut self, options: &SearchOptions, near: bool) -> Result<Vec<TextHit>, E> {
        let top = options.top;
        if top == 0 {
            return Ok(Vec::new());
        }
        let many = if near {
            top.saturating_mul(options.proximity_expansion)
        } else {
            top
        };
        let least = self.plan.condition.min_terms();
        let mut found = self.best_docs(many, least)?;
        if near {
            found = self.rank_by_proximity(&found, options)?;
        }
        if least == 0 && found.len() < top {
            self.add_without_terms(top, &mut found)?;
        }
        found
            .iter()
            .map(|one| self.hit(one, options, near))
            .collect()
    }

    fn step(&mut self) -> Result<(), E> {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(STEP_INTERVAL) {
            (self.step)()?;
        }
        Ok(())
    }

    /// Returns the best documents that have a wanted term.
    fn best_docs(&mut self, many: usize, least: usize) -> Result<Vec<RankedDoc>, E> {
        let mut best: BinaryHeap<Reverse<RankedDoc>> = BinaryHeap::new();
        // The document and index of each wanted term's cursor, the smallest document first.
        let mut going: Vec<(DocId, usize)> = Vec::new();
        for (term, searched) in self.terms.iter().enumerate() {
            if searched.wanted {
                going.push((searched.cursor.doc(), term));
            }
        }
        loop {
            self.step()?;
            going.sort_unstable();
            let ended = going.partition_point(|(doc, _)| *doc != NO_DOC);
            going.truncate(ended);
            let worst = best.peek().filter(|_| best.len() >= many).map(|one| one.0);
            let needed = worst.map_or(least, |worst| worst.hits).max(1);
            // No document before this one has enough of the terms.
            let Some(&(doc, _)) = going.get(needed - 1) else {
                break;
            };
            if going[0].0 < doc {
                self.advance(&mut going[..needed - 1], doc)?;
                continue;
            }
            let hits = going.partition_point(|(other, _)| *other <= doc);
            let (here, further) = going.split_at_mut(hits);
            if let Some(worst) = worst
                && hits == worst.hits
                && self.max_score(here) <= worst.score
            {
                // Neither has another one up to the end of a block, or to the next document of a further term.
                let bounds = here
                    .iter()
                    .map(|(_, term)| self.terms[*term].cursor.bound());
                let bound = bounds.min().unwrap_or(NO_DOC).saturating_add(1);
                let next = further.first().map_or(NO_DOC, |(doc, _)| *doc);
                self.advance(here, next.min(bound))?;
                continue;
            }
            let one = self.score_doc(here, doc);
            if worst.is_none_or(|worst| one > worst) && self.accepts(doc)? {
                best.push(Reverse(one));
                if best.len() > many {
                    best.pop();
                }
            }
            self.advance(here, doc + 1)?;
        }
        let best = best.into_sorted_vec().into_iter();
        Ok(best.map(|Reverse(one)| one).collect())
    }

    /// Advances cursors to a document or the first one after it.
    fn advance(&mut self, going: &mut [(DocId, usize)], doc: DocId) -> Result<()> {
        for (here, term) in going {
            let cursor = &mut self.terms[*term].cursor;
            cursor.seek(doc)?;
            *here = cursor.doc();
        }
        Ok(())
    }

    /// Returns an upper bound of the score of these terms in their current blocks.
    fn max_score(&self, here: &[(DocId, usize)]) -> f64 {
        let terms = here.iter().map(|(_, term)| &self.terms[*term]);
        terms
            .map(|term| term.weight * term.cursor.max_weight())
            .sum()
    }

    /// Scores the document that the cursors of these terms are at, and makes it the current one.
    fn score_doc(&mut self, here: &[(DocId, usize)], doc: DocId) -> RankedDoc {
        let (mut score, mut unique) = (0.0, 0);
        self.present.fill(false);
        for (_, term) in here {
            let term = &self.terms[*term];
            if let Some(posting) = term.cursor.posting() {
                score += term.weight * posting.weight();
                unique = posting.unique;
            }
            self.present[term.plan_index] = true;
        }
        RankedDoc {
            hits: here.len(),
            score,
            doc,
            unique,
        }
    }

    /// Orders documents with equally many terms by proximity, and returns the requested number.
    fn rank_by_proximity(
        &mut self,
        found: &[RankedDoc],
        options: &SearchOptions,
    ) -> Result<Vec<RankedDoc>, E> {
        let mut nearest: Vec<RankedDoc> = Vec::new();
        for tier in found.chunk_by(|one, other| one.hits == other.hits) {
            let wanted = options.top - nearest.len();
            let looked_at = wanted.saturating_mul(options.proximity_expansion);
            let mut tier = tier[..tier.len().min(looked_at)].to_vec();
            for one in &mut tier {
                self.step()?;
                one.score = self.proximity_score(one, options.proximity_max_dist)?;
            }
            tier.sort_unstable_by_key(|one| Reverse(*one));
            tier.truncate(wanted);
            nearest.append(&mut tier);
        }
        Ok(nearest)
    }

    fn proximity_score(&self, one: &RankedDoc, max_dist: u32) -> Result<f64> {
        let mut places = Vec::new();
        let mut terms = Vec::with_capacity(self.terms.len());
        for term in self.terms.iter().filter(|term| term.wanted) {
            forward::read_places(self.view, self.table, one.doc, term.id, &mut places)?;
            terms.push(TermPositions {
                weight: term.weight,
                positions: places.iter().map(|place| place.position).collect(),
            });
        }
        Ok(proximity::score(&terms, one.unique, max_dist))
    }

    /// Adds documents that have none of the wanted terms, up to the requested number.
    fn add_without_terms(&mut self, top: usize, found: &mut Vec<RankedDoc>) -> Result<(), E> {
        for term in &mut self.terms {
            term.cursor = PostingCursor::new(self.view, self.table, term.id)?;
        }
        for pair in self.view.prefix(self.table, DOCS).map_err(Error::from)? {
            self.step()?;
            let doc = last_number(pair.map_err(Error::from)?.0)?;
            self.present.fill(false);
            let mut has_wanted = false;
            for term in self.terms.iter_mut().filter(|term| term.wanted) {
                term.cursor.seek(doc)?;
                has_wanted |= term.cursor.doc() == doc;
            }
            if has_wanted || !self.accepts(doc)? {
                continue;
            }
            found.push(RankedDoc {
                hits: 0,
                score: WITHOUT_TERMS,
                doc,
                unique: 0,
            });
            if found.len() >= top {
                break;
            }
        }
        Ok(())
    }

    /// Returns true if a document matches. Its wanted terms must be in `present` already.
    fn accepts(&mut self, doc: DocId) -> Result<bool> {
        for term in self.terms.iter_mut().filter(|term| !term.wanted) {
            term.cursor.seek(doc)?;
            self.present[term.plan_index] = term.cursor.doc() == doc;
        }
        if !self.matches(&self.plan.condition, doc)? {
            return Ok(false);
        }
        match self.filter {
            Some(filter) => Ok(filter(reference_of(self.view, self.table, doc)?)),
            None => Ok(true),
        }
    }

    fn matches(&self, condition: &DocCondition, doc: DocId) -> Result<bool> {
        Ok(match condition {
            DocCondition::Has(term) => self.present[*term],
            DocCondition::Lacks(term) => !self.present[*term],
            DocCondition::Phrase(phrase) => self.has_phrase(phrase, doc)?,
            DocCondition::NoPhrase(phrase) => !self.has_phrase(phrase, doc)?,
            DocCondition::All(all) => {
                for one in all {
                    if !self.matches(one, doc)? {
                        return Ok(false);
                    }
                }
                true
            }
            DocCondition::Any(any) => {
                for one in any {
                    if self.matches(one, doc)? {
                        return Ok(true);
                    }
                }
                false
            }
        })
    }

    fn has_phrase(&self, phrase: &[(usize, u32)], doc: DocId) -> Result<bool> {
        if !phrase.iter().all(|(term, _)| self.present[*term]) {
            return Ok(false);
        }
        // Positions where the phrase may begin.
        let mut begins: Vec<u32> = Vec::new();
        let mut places: Vec<TermPlace> = Vec::new();
        for (at, (term, distance)) in phrase.iter().enumerate() {
            let Some(term) = self.terms.iter().find(|one| one.plan_index == *term) else {
                return Ok(false);
            };
            forward::read_places(self.view, self.table, doc, term.id, &mut places)?;
            if at == 0 {
                begins.extend(places.iter().map(|place| place.position));
            } else {
                begins.retain(|begin| {
                    let position = begin.saturating_add(*distance);
                    let place = places.binary_search_by_key(&position, |place| place.position);
                    place.is_ok()
                });
            }
            if begins.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Builds the hit of a found document.
    fn hit(&self, one: &RankedDoc, options: &SearchOptions, near: bool) -> Result<TextHit, E> {
        let mut hit = TextHit {
            reference: reference_of(self.view, self.table, one.doc)?.to_owned(),
            score: one.score,
            text: None,
            offsets: Vec::new(),
        };
        if options.display.has_texts()
            && let Some(row) = self
                .view
                .get(self.table, &text_key(one.doc))
                .map_err(Error::from)?
        {
            let text = std::str::from_utf8(row).map_err(|_| Error::corrupt("text"))?;
            hit.text = Some(text.to_owned());
        }
        if near && options.display.has_offsets() {
            let mut places = Vec::new();
            for term in &self.terms {
                forward::read_places(self.view, self.table, one.doc, term.id, &mut places)?;
                if !places.is_empty() {
                    let offsets = places.iter().map(|place| place.offset as usize);
                    let letters = self.plan.terms[term.plan_index].term.clone();
                    hit.offsets.push((letters, offsets.collect()));
                }
            }
        }
        Ok(hit)
    }
}
