//! The hierarchical navigable small-world graph (HNSW), after Malkov and Yashunin.
//!
//! Every vector is on the lowest level, and a few of each level are on the next. On a level a vector is linked to near ones in
//! different directions. A search descends from the top, as near as possible on each level, and explores the lowest level.
//!
//! When a vector is removed, the vectors that are found to link to it get other links; remaining links to it are ignored.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::hash_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};

use super::distance::DistanceMeasure;
use super::encoding::VectorEncoding;
use super::options::IndexConfig;
use super::rows::{PackedVectors, VectorId, corrupt, links_key};
use crate::{Error, Result};

/// Levels, at most.
const MAX_LEVELS: u8 = 16;

/// A vector with its distance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Neighbor {
    pub(crate) distance: f32,
    pub(crate) id: VectorId,
}

impl Eq for Neighbor {}

impl PartialOrd for Neighbor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Neighbor {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_distance = self.distance.total_cmp(&other.distance);
        by_distance.then(self.id.cmp(&other.id))
    }
}

/// The callbacks of a search: filter, progress and early stop.
pub(crate) trait SearchVisitor<E> {
    /// Returns true if a vector may be found.
    fn accepts(&mut self, id: VectorId) -> Result<bool, E>;
    /// Called before each step.
    fn step(&mut self) -> Result<(), E>;
    /// Returns true if the search should stop.
    fn should_stop(&self) -> bool;
}

/// Accepts every vector.
struct AcceptAll;

impl SearchVisitor<Error> for AcceptAll {
    fn accepts(&mut self, _: VectorId) -> Result<bool> {
        Ok(true)
    }

    fn step(&mut self) -> Result<()> {
        Ok(())
    }

    fn should_stop(&self) -> bool {
        false
    }
}

/// The links of a vector on a level.
struct Links {
    ids: Vec<VectorId>,
    changed: bool,
}

/// The graph of a snapshot, with pending changes.
pub(crate) struct Graph<'t> {
    encoding: VectorEncoding,
    config: IndexConfig,
    vectors: PackedVectors<'t>,
    /// By level and vector; `None` if the vector is not on the level, or was removed.
    links: FxHashMap<(u8, VectorId), Option<Links>>,
    entry: Option<(u8, VectorId)>,
    /// The vectors that the current search has visited.
    visited: FxHashSet<VectorId>,
}

impl<'t> Graph<'t> {
    pub(crate) fn new(
        form: VectorEncoding,
        made: IndexConfig,
        vectors: PackedVectors<'t>,
    ) -> Result<Self> {
        Ok(Self {
            encoding: form,
            config: made,
            entry: vectors.rows.entry_point(vectors.view)?,
            visited: FxHashSet::default(),
            links: FxHashMap::default(),
            vectors,
        })
    }

    /// Returns the number of links on a level, at most.
    fn max_links(&self, level: u8) -> usize {
        self.config.connectivity * if level == 0 { 2 } else { 1 }
    }

    fn links(&mut self, level: u8, id: VectorId) -> Result<Option<&mut Links>> {
        let place = match self.links.entry((level, id)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                let ids = self.vectors.rows.links(self.vectors.view, level, id)?;
                vacant.insert(ids.map(|ids| Links {
                    ids,
                    changed: false,
                }))
            }
        };
        Ok(place.as_mut())
    }

    fn set_links(&mut self, level: u8, id: VectorId, ids: Vec<VectorId>) {
        let links = Links { ids, changed: true };
        self.links.insert((level, id), Some(links));
    }

    /// Searches a level from some known vectors. Returns the nearest, the nearest first.
    fn search_level<E: From<Error>>(
        &mut self,
        measure: &DistanceMeasure,
        known: &[Neighbor],
        level: u8,
        width: usize,
        look: &mut impl SearchVisitor<E>,
    ) -> Result<Vec<Neighbor>, E> {
        self.visited.clear();
        let mut open = BinaryHeap::new();
        let mut found: BinaryHeap<Neighbor> = BinaryHeap::with_capacity(width + 1);
        for near in known {
            if self.visited.insert(near.id) {
                open.push(Reverse(*near));
                if look.accepts(near.id)? {
                    found.push(*near);
                }
            }
        }
        while let Some(Reverse(next)) = open.pop() {
            if found.len() >= width && found.peek().is_some_and(|worst| next > *worst) {
                break;
            }
            look.step()?;
            if look.should_stop() {
                break;
            }
            let links = self.links(level, next.id)?;
            let links = links.ok_or_else(|| corrupt("vector without links"))?;
            let ids = std::mem::take(&mut links.ids);
            let met = self.expand(measure, &ids, width, (&mut open, &mut found), look);
            if let Some(links) = self.links(level, next.id)? {
                links.ids = ids;
            }
            met?;
        }
        Ok(found.into_sorted_vec())
    }

    /// Visits the vectors that a vector is linked to.
    fn expand<E: From<Error>>(
        &mut self,
        measure: &DistanceMeasure,
        ids: &[VectorId],
        width: usize,
        (open, found): (
            &mut BinaryHeap<Reverse<Neighbor>>,
            &mut BinaryHeap<Neighbor>,
        ),
        look: &mut impl SearchVisitor<E>,
    ) -> Result<(), E> {
        for id in ids.iter().copied() {
            if !self.visited.insert(id) {
                continue;
            }
            let Some(vector) = self.vectors.get(id)? else {
                continue;
            };
            let near = Neighbor {
                distance: measure.distance(vector),
                id,
            };
            if found.len() < width || found.peek().is_some_and(|worst| near < *worst) {
                open.push(Reverse(near));
                if look.accepts(id)? {
                    found.push(near);
                    if found.len() > width {
                        found.pop();
                    }
                }
            }
        }
        Ok(())
    }

    /// Descends to the level above `to`. Returns the nearest vector found, to start from.
    fn descend(&mut self, measure: &DistanceMeasure, to: u8) -> Result<Option<Neighbor>> {
        let Some((top, id)) = self.entry else {
            return Ok(None);
        };
        let vector = self.vectors.get(id)?;
        let vector = vector.ok_or_else(|| corrupt("link to a vector"))?;
        let mut near = Neighbor {
            distance: measure.distance(vector),
            id,
        };
        for level in (to.saturating_add(1)..=top).rev() {
            let found = self.search_level::<Error>(measure, &[near], level, 1, &mut AcceptAll)?;
            near = found.first().copied().unwrap_or(near);
        }
        Ok(Some(near))
    }

    /// Returns the nearest accepted vectors, the nearest first.
    pub(crate) fn nearest<E: From<Error>>(
        &mut self,
        measure: &DistanceMeasure,
        width: usize,
        look: &mut impl SearchVisitor<E>,
    ) -> Result<Vec<Neighbor>, E> {
        match self.descend(measure, 0)? {
            Some(near) => self.search_level(measure, &[near], 0, width, look),
            None => Ok(Vec::new()),
        }
    }

    /// Chooses links from `near`, the nearest first: vectors that are not nearer to a chosen one than to the base, then others.
    fn choose_links(&mut self, near: &[Neighbor], most: usize) -> Result<Vec<VectorId>> {
        let mut chosen: Vec<(VectorId, DistanceMeasure)> = Vec::with_capacity(most);
        let mut left = Vec::new();
        for one in near {
            if chosen.len() == most {
                break;
            }
            let Some(vector) = self.vectors.get(one.id)? else {
                continue;
            };
            let apart =
                |(_, other): &(VectorId, DistanceMeasure)| other.distance(vector) > one.distance;
            if chosen.iter().all(apart) {
                chosen.push((one.id, DistanceMeasure::from_stored(self.encoding, vector)));
            } else {
                left.push(one.id);
            }
        }
        let chosen = chosen.into_iter().map(|(id, _)| id);
        Ok(chosen.chain(left).take(most).collect())
    }

    /// Adds a vector, which must be in a block already.
    pub(crate) fn link(&mut self, id: VectorId) -> Result<()> {
        let Some(vector) = self.vectors.get(id)? else {
            return Ok(());
        };
        let measure = DistanceMeasure::from_stored(self.encoding, vector);
        let level = level_of(id, self.config.connectivity);
        let begin = self.descend(&measure, level)?;
        let mut near: Vec<Neighbor> = begin.into_iter().collect();
        let top = self.entry.map(|(top, _)| top);
        for on in (0..=level).rev() {
            if top.is_none_or(|top| on > top) {
                self.set_links(on, id, Vec::new());
                continue;
            }
            let width = self.config.expansion_add;
            near = self.search_level::<Error>(&measure, &near, on, width, &mut AcceptAll)?;
            let chosen = self.choose_links(&near, self.config.connectivity)?;
            for other in &chosen {
                self.link_back(on, *other, id)?;
            }
            self.set_links(on, id, chosen);
        }
        if top.is_none_or(|top| level > top) {
            self.entry = Some((level, id));
        }
        Ok(())
    }

    /// Adds a link. If there are too many, drops several at once, so that it is not necessary for every link.
    fn link_back(&mut self, level: u8, from: VectorId, to: VectorId) -> Result<()> {
        let most = self.max_links(level);
        let links = self.links(level, from)?;
        let links = links.ok_or_else(|| corrupt("vector without links"))?;
        links.ids.push(to);
        links.changed = true;
        if links.ids.len() > most + most / 4 {
            let ids = links.ids.clone();
            let near = self.sorted_neighbors(from, &ids)?;
            let chosen = self.choose_links(&near, most)?;
            self.set_links(level, from, chosen);
        }
        Ok(())
    }

    /// Returns the distances of vectors from a vector, the nearest first. Removed vectors are omitted.
    fn sorted_neighbors(&mut self, from: VectorId, ids: &[VectorId]) -> Result<Vec<Neighbor>> {
        let Some(vector) = self.vectors.get(from)? else {
            return Ok(Vec::new());
        };
        let measure = DistanceMeasure::from_stored(self.encoding, vector);
        let mut near = Vec::with_capacity(ids.len());
        for id in ids.iter().copied() {
            if let Some(vector) = self.vectors.get(id)? {
                let distance = measure.distance(vector);
                near.push(Neighbor { distance, id });
            }
        }
        near.sort_unstable();
        Ok(near)
    }

    /// Removes a vector, which must still be in its block. Vectors that are found to link to it get links to other near ones.
    pub(crate) fn unlink(&mut self, id: VectorId) -> Result<()> {
        let Some(vector) = self.vectors.get(id)? else {
            return Ok(());
        };
        let measure = DistanceMeasure::from_stored(self.encoding, vector);
        for level in 0..MAX_LEVELS {
            let Some(links) = self.links(level, id)? else {
                break;
            };
            let ids = links.ids.clone();
            // Vectors that link to it are near it, and so are their possible replacements.
            let mut known = self.sorted_neighbors(id, &ids)?;
            known.insert(0, Neighbor { distance: 0.0, id });
            let width = self.config.expansion_add;
            let mut near =
                self.search_level::<Error>(&measure, &known, level, width, &mut AcceptAll)?;
            near.extend(known);
            near.sort_unstable();
            near.dedup();
            near.retain(|near| near.id != id);
            for from in &near {
                let Some(links) = self.links(level, from.id)? else {
                    continue;
                };
                if !links.ids.contains(&id) {
                    continue;
                }
                let mut ids = links.ids.clone();
                let fill = near.iter().map(|near| near.id).take(self.max_links(level));
                ids.extend(fill.filter(|fill| *fill != from.id));
                ids.retain(|other| *other != id);
                ids.sort_unstable();
                ids.dedup();
                let measured = self.sorted_neighbors(from.id, &ids)?;
                let chosen = self.choose_links(&measured, self.max_links(level))?;
                self.set_links(level, from.id, chosen);
            }
        }
        for level in 0..MAX_LEVELS {
            self.links.insert((level, id), None);
        }
        Ok(())
    }

    /// Returns the changed rows; rows without a value must be deleted.
    pub(crate) fn into_changed(self) -> Vec<([u8; 6], Option<Vec<u8>>)> {
        let mut changed = Vec::new();
        for ((level, id), links) in self.links {
            let row = match links {
                Some(links) if links.changed => Some(
                    links
                        .ids
                        .into_iter()
                        .flat_map(VectorId::to_le_bytes)
                        .collect(),
                ),
                Some(_) => continue,
                None => None,
            };
            changed.push((links_key(level, id), row));
        }
        // Sorted, so that pages are written one after the other.
        changed.sort_unstable();
        changed
    }
}

/// Returns the highest level of a vector: pseudo-random, but deterministic.
fn level_of(id: VectorId, connectivity: usize) -> u8 {
    let mut mixed = (u64::from(id) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^= mixed >> 31;
    // One in `connectivity` vectors of a level is on the next.
    let share = u64::MAX / u64::try_from(connectivity).unwrap_or(u64::MAX);
    let mut bound = share;
    let mut level = 0;
    while mixed < bound && level + 1 < MAX_LEVELS {
        level += 1;
        bound /= u64::try_from(connectivity).unwrap_or(u64::MAX);
    }
    level
}
