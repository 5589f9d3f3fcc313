//! How documents are found and ranked.
//!
//! Documents that have more of the wanted terms come before those that have fewer, whatever their scores; among those that have as many,
//! the greater score is first, then the document that came first. The cursors of all wanted terms go through the documents together. Once as
//! many are found as are asked for, a document must have as many terms as the worst of them: whatever can only have fewer is
//! passed over without a look, and so are blocks in which nothing weighs enough.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use rung_kv::{Table, View};

use super::analyze::Place;
use super::options::SearchOptions;
use super::postings::{Cursor, weight_of_times};
use super::proximity::{self, Stands};
use super::query::{Condition, Plan};
use super::rows::{
    Counters, DOCS, DocId, Known, NO_DOC, TermId, last_number, reference_of, text_key,
};
use super::{Hit, forward};
use crate::{Error, Result};

/// The score of a document that has none of the wanted terms, and was found for what it lacks.
const WITHOUT_TERMS: f64 = 0.1;

/// Documents after which is asked whether to go on.
const STRIDE: u32 = 256;

/// A term of the query that the index knows.
struct Searched<'t> {
    /// Its place in the plan.
    at: usize,
    id: TermId,
    wanted: bool,
    /// What it is worth in this query: the rarer, the more.
    weight: f64,
    cursor: Cursor<'t>,
}

/// A document that was found. The greater is the better.
#[derive(Debug, Clone, Copy)]
struct Ranked {
    hits: usize,
    score: f64,
    doc: DocId,
    unique: u32,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        let hits = self.hits.cmp(&other.hits);
        let score = self.score.total_cmp(&other.score);
        hits.then(score).then(other.doc.cmp(&self.doc))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked {}

/// Which references are meant.
pub type Filter<'f> = &'f dyn Fn(&[u8]) -> bool;

/// A search under way.
pub(super) struct Search<'t, 'q, E> {
    view: View<'t>,
    table: Table,
    plan: &'q Plan,
    filter: Option<Filter<'q>>,
    step: &'q dyn Fn() -> Result<(), E>,
    terms: Vec<Searched<'t>>,
    /// Which terms of the plan the document has that is looked at.
    present: Vec<bool>,
    steps: u32,
}

impl<'t, 'q, E: From<Error>> Search<'t, 'q, E> {
    pub(super) fn new(
        view: View<'t>,
        table: Table,
        plan: &'q Plan,
        filter: Option<Filter<'q>>,
        step: &'q dyn Fn() -> Result<(), E>,
    ) -> Result<Self> {
        let all = f64::from(Counters::read(view, table)?.docs);
        let mut terms = Vec::new();
        for (at, term) in plan.terms.iter().enumerate() {
            let Some(known) = Known::read(view, table, &term.term)? else {
                continue;
            };
            terms.push(Searched {
                at,
                id: known.id,
                wanted: term.wanted,
                weight: weight_of_times(term.times) * (all / f64::from(known.docs)).log10(),
                cursor: Cursor::new(view, table, known.id)?,
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

    /// The best documents, the best first. `near` says whether it is known where words stand, and
    /// those are better in which they are near to each other.
    pub(super) fn run(mut self, options: &SearchOptions, near: bool) -> Result<Vec<Hit>, E> {
        let top = options.top;
        if top == 0 {
            return Ok(Vec::new());
        }
        let many = if near {
            top.saturating_mul(options.proximity_expansion)
        } else {
            top
        };
        let least = self.plan.condition.least();
        let mut found = self.ranked(many, least)?;
        if near {
            found = self.nearest(&found, options)?;
        }
        if least == 0 && found.len() < top {
            self.others(top, &mut found)?;
        }
        found
            .iter()
            .map(|one| self.hit(one, options, near))
            .collect()
    }

    fn step(&mut self) -> Result<(), E> {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(STRIDE) {
            (self.step)()?;
        }
        Ok(())
    }

    /// The best of those that have a wanted term.
    fn ranked(&mut self, many: usize, least: usize) -> Result<Vec<Ranked>, E> {
        let mut best: BinaryHeap<Reverse<Ranked>> = BinaryHeap::new();
        // Where each of the wanted terms is, the one that is furthest behind first.
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
            // No document before this one has enough of them.
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
                && self.most(here) <= worst.score
            {
                // Nor has another one up to the end of a block, or to where a further term joins in.
                let bounds = here
                    .iter()
                    .map(|(_, term)| self.terms[*term].cursor.bound());
                let bound = bounds.min().unwrap_or(NO_DOC).saturating_add(1);
                let next = further.first().map_or(NO_DOC, |(doc, _)| *doc);
                self.advance(here, next.min(bound))?;
                continue;
            }
            let one = self.scored(here, doc);
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

    /// Brings terms to a document or the first one after it.
    fn advance(&mut self, going: &mut [(DocId, usize)], doc: DocId) -> Result<()> {
        for (here, term) in going {
            let cursor = &mut self.terms[*term].cursor;
            cursor.seek(doc)?;
            *here = cursor.doc();
        }
        Ok(())
    }

    /// No score of these terms is greater in their blocks.
    fn most(&self, here: &[(DocId, usize)]) -> f64 {
        let terms = here.iter().map(|(_, term)| &self.terms[*term]);
        terms.map(|term| term.weight * term.cursor.most()).sum()
    }

    /// The document that all of these terms have come to, which is the one that is looked at from now on.
    fn scored(&mut self, here: &[(DocId, usize)], doc: DocId) -> Ranked {
        let (mut score, mut unique) = (0.0, 0);
        self.present.fill(false);
        for (_, term) in here {
            let term = &self.terms[*term];
            if let Some(posting) = term.cursor.posting() {
                score += term.weight * posting.weight();
                unique = posting.unique;
            }
            self.present[term.at] = true;
        }
        Ranked {
            hits: here.len(),
            score,
            doc,
            unique,
        }
    }

    /// Of those that have equally many terms, in the order of nearness, as many as are asked for.
    fn nearest(&mut self, found: &[Ranked], options: &SearchOptions) -> Result<Vec<Ranked>, E> {
        let mut nearest: Vec<Ranked> = Vec::new();
        for tier in found.chunk_by(|one, other| one.hits == other.hits) {
            let wanted = options.top - nearest.len();
            let looked_at = wanted.saturating_mul(options.proximity_expansion);
            let mut tier = tier[..tier.len().min(looked_at)].to_vec();
            for one in &mut tier {
                self.step()?;
                one.score = self.nearness(one, options.proximity_max_dist)?;
            }
            tier.sort_unstable_by_key(|one| Reverse(*one));
            tier.truncate(wanted);
            nearest.append(&mut tier);
        }
        Ok(nearest)
    }

    fn nearness(&self, one: &Ranked, max_dist: u32) -> Result<f64> {
        let mut places = Vec::new();
        let mut terms = Vec::with_capacity(self.terms.len());
        for term in self.terms.iter().filter(|term| term.wanted) {
            forward::places(self.view, self.table, one.doc, term.id, &mut places)?;
            terms.push(Stands {
                weight: term.weight,
                positions: places.iter().map(|place| place.position).collect(),
            });
        }
        Ok(proximity::score(&terms, one.unique, max_dist))
    }

    /// Adds documents that have none of the wanted terms, up to as many as are asked for.
    fn others(&mut self, top: usize, found: &mut Vec<Ranked>) -> Result<(), E> {
        for term in &mut self.terms {
            term.cursor = Cursor::new(self.view, self.table, term.id)?;
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
            found.push(Ranked {
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

    /// Whether a document is meant, of which the wanted terms are known that it has.
    fn accepts(&mut self, doc: DocId) -> Result<bool> {
        for term in self.terms.iter_mut().filter(|term| !term.wanted) {
            term.cursor.seek(doc)?;
            self.present[term.at] = term.cursor.doc() == doc;
        }
        if !self.holds(&self.plan.condition, doc)? {
            return Ok(false);
        }
        match self.filter {
            Some(filter) => Ok(filter(reference_of(self.view, self.table, doc)?)),
            None => Ok(true),
        }
    }

    fn holds(&self, condition: &Condition, doc: DocId) -> Result<bool> {
        Ok(match condition {
            Condition::Has(term) => self.present[*term],
            Condition::Lacks(term) => !self.present[*term],
            Condition::Phrase(phrase) => self.has_phrase(phrase, doc)?,
            Condition::NoPhrase(phrase) => !self.has_phrase(phrase, doc)?,
            Condition::All(all) => {
                for one in all {
                    if !self.holds(one, doc)? {
                        return Ok(false);
                    }
                }
                true
            }
            Condition::Any(any) => {
                for one in any {
                    if self.holds(one, doc)? {
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
        // Where the phrase may begin.
        let mut begins: Vec<u32> = Vec::new();
        let mut places: Vec<Place> = Vec::new();
        for (at, (term, distance)) in phrase.iter().enumerate() {
            let Some(term) = self.terms.iter().find(|one| one.at == *term) else {
                return Ok(false);
            };
            forward::places(self.view, self.table, doc, term.id, &mut places)?;
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

    /// What is said of a document that was found.
    fn hit(&self, one: &Ranked, options: &SearchOptions, near: bool) -> Result<Hit, E> {
        let mut hit = Hit {
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
                forward::places(self.view, self.table, one.doc, term.id, &mut places)?;
                if !places.is_empty() {
                    let offsets = places.iter().map(|place| place.offset as usize);
                    let letters = self.plan.terms[term.at].term.clone();
                    hit.offsets.push((letters, offsets.collect()));
                }
            }
        }
        Ok(hit)
    }
}
