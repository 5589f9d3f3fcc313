//! A graph that leads to what is near: hierarchical, navigable and small-world, after Malkov and Yashunin.
//!
//! Every vector is on the lowest level, and few of each on the next. On a level it is linked to some that are near to it, in different
//! directions. Whoever searches goes down from above, on each level as near as it can, and on the lowest looks around there.
//!
//! A vector that is gone is in nobody's way: whoever was seen to link to it is linked to others, and what still does is led nowhere.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::hash_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};

use super::form::Form;
use super::measure::Measure;
use super::options::Made;
use super::rows::{Id, Vectors, corrupt, links_key};
use crate::{Error, Result};

/// Levels, at most.
const LEVELS: u8 = 16;

/// Vectors and how far they are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Near {
    pub(crate) distance: f32,
    pub(crate) id: Id,
}

impl Eq for Near {}

impl PartialOrd for Near {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Near {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_distance = self.distance.total_cmp(&other.distance);
        by_distance.then(self.id.cmp(&other.id))
    }
}

/// What is asked of those that are met on the lowest level, and what is thought of going on.
pub(crate) trait Look<E> {
    /// Whether a vector may be found.
    fn takes(&mut self, id: Id) -> Result<bool, E>;
    /// Called before each step.
    fn step(&mut self) -> Result<(), E>;
    /// Whether it is not worth going on.
    fn is_enough(&self) -> bool;
}

/// Everything may be found.
struct Everything;

impl Look<Error> for Everything {
    fn takes(&mut self, _: Id) -> Result<bool> {
        Ok(true)
    }

    fn step(&mut self) -> Result<()> {
        Ok(())
    }

    fn is_enough(&self) -> bool {
        false
    }
}

/// A vector's links on a level.
struct Links {
    ids: Vec<Id>,
    changed: bool,
}

/// The graph at one moment, and what is to be changed of it.
pub(crate) struct Graph<'t> {
    form: Form,
    made: Made,
    vectors: Vectors<'t>,
    /// By level and vector; `None` where it is not there, or not any more.
    links: FxHashMap<(u8, Id), Option<Links>>,
    entry: Option<(u8, Id)>,
    /// Which vectors were met by the search that is under way.
    met: FxHashSet<Id>,
}

impl<'t> Graph<'t> {
    pub(crate) fn new(form: Form, made: Made, vectors: Vectors<'t>) -> Result<Self> {
        Ok(Self {
            form,
            made,
            entry: vectors.rows.entry(vectors.view)?,
            met: FxHashSet::default(),
            links: FxHashMap::default(),
            vectors,
        })
    }

    /// Links on a level, before some are let go.
    fn most(&self, level: u8) -> usize {
        self.made.connectivity * if level == 0 { 2 } else { 1 }
    }

    fn links(&mut self, level: u8, id: Id) -> Result<Option<&mut Links>> {
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

    fn set_links(&mut self, level: u8, id: Id, ids: Vec<Id>) {
        let links = Links { ids, changed: true };
        self.links.insert((level, id), Some(links));
    }

    /// The nearest on a level, the nearest first, found from some that are known.
    fn around<E: From<Error>>(
        &mut self,
        measure: &Measure,
        known: &[Near],
        level: u8,
        width: usize,
        look: &mut impl Look<E>,
    ) -> Result<Vec<Near>, E> {
        self.met.clear();
        let mut open = BinaryHeap::new();
        let mut found: BinaryHeap<Near> = BinaryHeap::with_capacity(width + 1);
        for near in known {
            if self.met.insert(near.id) {
                open.push(Reverse(*near));
                if look.takes(near.id)? {
                    found.push(*near);
                }
            }
        }
        while let Some(Reverse(next)) = open.pop() {
            if found.len() >= width && found.peek().is_some_and(|worst| next > *worst) {
                break;
            }
            look.step()?;
            if look.is_enough() {
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

    /// Looks at those that one is linked to.
    fn expand<E: From<Error>>(
        &mut self,
        measure: &Measure,
        ids: &[Id],
        width: usize,
        (open, found): (&mut BinaryHeap<Reverse<Near>>, &mut BinaryHeap<Near>),
        look: &mut impl Look<E>,
    ) -> Result<(), E> {
        for id in ids.iter().copied() {
            if !self.met.insert(id) {
                continue;
            }
            let Some(vector) = self.vectors.get(id)? else {
                continue;
            };
            let near = Near {
                distance: measure.distance(vector),
                id,
            };
            if found.len() < width || found.peek().is_some_and(|worst| near < *worst) {
                open.push(Reverse(near));
                if look.takes(id)? {
                    found.push(near);
                    if found.len() > width {
                        found.pop();
                    }
                }
            }
        }
        Ok(())
    }

    /// A place on a level to begin from, as near as the levels above lead.
    fn descend(&mut self, measure: &Measure, to: u8) -> Result<Option<Near>> {
        let Some((top, id)) = self.entry else {
            return Ok(None);
        };
        let vector = self.vectors.get(id)?;
        let vector = vector.ok_or_else(|| corrupt("link to a vector"))?;
        let mut near = Near {
            distance: measure.distance(vector),
            id,
        };
        for level in (to.saturating_add(1)..=top).rev() {
            let found = self.around::<Error>(measure, &[near], level, 1, &mut Everything)?;
            near = found.first().copied().unwrap_or(near);
        }
        Ok(Some(near))
    }

    /// The nearest to a vector, the nearest first, of those that may be found.
    pub(crate) fn nearest<E: From<Error>>(
        &mut self,
        measure: &Measure,
        width: usize,
        look: &mut impl Look<E>,
    ) -> Result<Vec<Near>, E> {
        match self.descend(measure, 0)? {
            Some(near) => self.around(measure, &[near], 0, width, look),
            None => Ok(Vec::new()),
        }
    }

    /// Those of some, the nearest first, that are worth a link: near, and none of them nearer to another that was chosen.
    fn choose(&mut self, near: &[Near], most: usize) -> Result<Vec<Id>> {
        let mut chosen: Vec<(Id, Measure)> = Vec::with_capacity(most);
        let mut left = Vec::new();
        for one in near {
            if chosen.len() == most {
                break;
            }
            let Some(vector) = self.vectors.get(one.id)? else {
                continue;
            };
            let apart = |(_, other): &(Id, Measure)| other.distance(vector) > one.distance;
            if chosen.iter().all(apart) {
                chosen.push((one.id, Measure::kept(self.form, vector)));
            } else {
                left.push(one.id);
            }
        }
        let chosen = chosen.into_iter().map(|(id, _)| id);
        Ok(chosen.chain(left).take(most).collect())
    }

    /// Adds a vector, which is in a block already.
    pub(crate) fn link(&mut self, id: Id) -> Result<()> {
        let Some(vector) = self.vectors.get(id)? else {
            return Ok(());
        };
        let measure = Measure::kept(self.form, vector);
        let level = level_of(id, self.made.connectivity);
        let begin = self.descend(&measure, level)?;
        let mut near: Vec<Near> = begin.into_iter().collect();
        let top = self.entry.map(|(top, _)| top);
        for on in (0..=level).rev() {
            if top.is_none_or(|top| on > top) {
                self.set_links(on, id, Vec::new());
                continue;
            }
            let width = self.made.expansion_add;
            near = self.around::<Error>(&measure, &near, on, width, &mut Everything)?;
            let chosen = self.choose(&near, self.made.connectivity)?;
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

    /// Adds a link. Where there are too many, some are let go: enough of them at once that it need not be done at every one.
    fn link_back(&mut self, level: u8, from: Id, to: Id) -> Result<()> {
        let most = self.most(level);
        let links = self.links(level, from)?;
        let links = links.ok_or_else(|| corrupt("vector without links"))?;
        links.ids.push(to);
        links.changed = true;
        if links.ids.len() > most + most / 4 {
            let ids = links.ids.clone();
            let near = self.measured(from, &ids)?;
            let chosen = self.choose(&near, most)?;
            self.set_links(level, from, chosen);
        }
        Ok(())
    }

    /// How far some are from a vector, the nearest first. What is gone is left out.
    fn measured(&mut self, from: Id, ids: &[Id]) -> Result<Vec<Near>> {
        let Some(vector) = self.vectors.get(from)? else {
            return Ok(Vec::new());
        };
        let measure = Measure::kept(self.form, vector);
        let mut near = Vec::with_capacity(ids.len());
        for id in ids.iter().copied() {
            if let Some(vector) = self.vectors.get(id)? {
                let distance = measure.distance(vector);
                near.push(Near { distance, id });
            }
        }
        near.sort_unstable();
        Ok(near)
    }

    /// Takes a vector out, which is in its block still. Whoever is seen to link to it is linked to others that are near.
    pub(crate) fn unlink(&mut self, id: Id) -> Result<()> {
        let Some(vector) = self.vectors.get(id)? else {
            return Ok(());
        };
        let measure = Measure::kept(self.form, vector);
        for level in 0..LEVELS {
            let Some(links) = self.links(level, id)? else {
                break;
            };
            let ids = links.ids.clone();
            // Whoever links to it is near to it, and so is who it could be replaced by.
            let mut known = self.measured(id, &ids)?;
            known.insert(0, Near { distance: 0.0, id });
            let width = self.made.expansion_add;
            let mut near = self.around::<Error>(&measure, &known, level, width, &mut Everything)?;
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
                let fill = near.iter().map(|near| near.id).take(self.most(level));
                ids.extend(fill.filter(|fill| *fill != from.id));
                ids.retain(|other| *other != id);
                ids.sort_unstable();
                ids.dedup();
                let measured = self.measured(from.id, &ids)?;
                let chosen = self.choose(&measured, self.most(level))?;
                self.set_links(level, from.id, chosen);
            }
        }
        for level in 0..LEVELS {
            self.links.insert((level, id), None);
        }
        Ok(())
    }

    /// The rows that changed; those without a value are to be deleted.
    pub(crate) fn into_changed(self) -> Vec<([u8; 6], Option<Vec<u8>>)> {
        let mut changed = Vec::new();
        for ((level, id), links) in self.links {
            let row = match links {
                Some(links) if links.changed => {
                    Some(links.ids.into_iter().flat_map(Id::to_le_bytes).collect())
                }
                Some(_) => continue,
                None => None,
            };
            changed.push((links_key(level, id), row));
        }
        // In order they are written to one page after the other.
        changed.sort_unstable();
        changed
    }
}

/// On how many levels a vector is. It looks like chance, and is always the same.
fn level_of(id: Id, connectivity: usize) -> u8 {
    let mut mixed = (u64::from(id) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^= mixed >> 31;
    // Of the vectors on a level, one of so many is on the next.
    let share = u64::MAX / u64::try_from(connectivity).unwrap_or(u64::MAX);
    let mut bound = share;
    let mut level = 0;
    while mixed < bound && level + 1 < LEVELS {
        level += 1;
        bound /= u64::try_from(connectivity).unwrap_or(u64::MAX);
    }
    level
}
