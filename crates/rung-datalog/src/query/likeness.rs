//! `fulltext`, `vec-neighbors` and `embedding-neighbors`: facts by the likeness of their values.

use std::collections::HashSet;
use std::sync::Arc;

use rung_edn::{Name, Value};
use rung_search::text::{Display as Shown, Query, SearchOptions as TextSearch};
use rung_search::vectors::{Display, SearchOptions, VectorIndex};

use super::ast::Argument;
use super::solve::Context;
use super::watch::Watch;
use crate::datom::of_eav;
use crate::db::{Moment, entity_value};
use crate::likeness::{Domains, numbers};
use crate::{Error, Result};

fn wrong<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

/// What a call says: an attribute or none, what is searched for, and options or none.
fn parts(function: &str, given: &[Value]) -> Result<(Option<Name>, Value, Value)> {
    let (attribute, rest) = match given {
        [Value::Keyword(name), rest @ ..] => (Some(name.clone()), rest),
        rest => (None, rest),
    };
    match rest {
        [wanted] => Ok((attribute, wanted.clone(), Value::Nil)),
        [wanted, options] => Ok((attribute, wanted.clone(), options.clone())),
        _ => wrong(format!(
            "{function} is given a source, an attribute or none, what is searched for, and options or none"
        )),
    }
}

impl Context<'_, '_> {
    /// The facts that a search by likeness finds, as rows; nothing where there are none.
    pub(crate) fn alike(
        &self,
        function: &Name,
        arguments: &[Argument],
        value: &impl Fn(&Argument) -> Result<Value>,
    ) -> Result<Value> {
        let [Argument::Source(source), given @ ..] = arguments else {
            return wrong(format!("{function} is given a source first, as $"));
        };
        let moment = self.moment(source)?;
        let given = given.iter().map(value).collect::<Result<Vec<_>>>()?;
        let parts = parts(function.as_str(), &given)?;
        let rows = match function.as_str() {
            "fulltext" => texts(moment, parts, self.watch)?,
            "embedding-neighbors" => meanings(moment, parts, self.watch)?,
            _ => vectors(moment, parts, self.watch)?,
        };
        Ok(if rows.is_empty() {
            Value::Nil
        } else {
            Value::Vector(rows.into_iter().map(Value::Vector).collect())
        })
    }
}

/// The fact of a reference: entity, attribute, value.
fn fact<'t>(moment: &Moment<'t>, reference: &'t [u8]) -> Result<Option<Vec<Value>>> {
    let Some((e, a, in_key)) = of_eav(reference) else {
        return Ok(None);
    };
    let Some(attribute) = moment.schema.by_id(a) else {
        return Ok(None);
    };
    let value = moment.value(a, moment.whole(e, a, in_key)?)?;
    let name = Value::Keyword(attribute.name.clone());
    Ok(Some(vec![entity_value(e), name, value]))
}

/// Where is searched, and for what.
struct Meant<'i, 't> {
    moment: &'i Moment<'t>,
    domains: Vec<String>,
    /// The attribute, where one is named.
    a: Option<u32>,
}

impl<'i, 't> Meant<'i, 't> {
    /// The domains that are said, or those of the attribute that is named, or all.
    fn new(
        moment: &'i Moment<'t>,
        attribute: Option<&Name>,
        said: Option<&Vec<String>>,
        all: impl Iterator<Item = &'i String>,
        own: impl Fn(&'i Domains) -> &'i Vec<String>,
    ) -> Result<Self> {
        let Some(name) = attribute else {
            let mut domains = said.cloned().unwrap_or_else(|| all.cloned().collect());
            domains.sort();
            return Ok(Self {
                moment,
                domains,
                a: None,
            });
        };
        let known = moment.attribute(name).map(|attribute| attribute.id);
        let domains = known.and_then(|a| moment.indexes.domains(a)).map(own);
        match domains.filter(|domains| !domains.is_empty()) {
            Some(domains) => Ok(Self {
                moment,
                domains: said.unwrap_or(domains).clone(),
                a: known,
            }),
            None => wrong(format!(
                ":{name} has no index for that: see :db/fulltext, :db/embedding and :db.type/vec"
            )),
        }
    }

    /// Whether a fact is of the attribute that is named, and there for whoever reads; by its reference.
    fn takes(&self, reference: &[u8]) -> bool {
        of_eav(reference)
            .is_some_and(|(_, own, _)| self.a.map_or_else(|| self.moment.sees(own), |a| own == a))
    }
}

/// Facts by the words of their texts, the best first.
pub(crate) fn texts(
    moment: &Moment<'_>,
    (attribute, wanted, options): (Option<Name>, Value, Value),
    watch: &Watch,
) -> Result<Vec<Vec<Value>>> {
    let query = Query::from_edn(&wanted)?;
    let options = if options.is_nil() {
        TextSearch::default()
    } else {
        TextSearch::from_edn(&options)?
    };
    let indexes = &moment.indexes;
    let (said, all) = (options.domains.as_ref(), indexes.texts.keys());
    let meant = Meant::new(moment, attribute.as_ref(), said, all, |own| &own.texts)?;
    let is_meant = |reference: &[u8]| meant.takes(reference);
    let (mut rows, mut known) = (Vec::new(), HashSet::new());
    for domain in &meant.domains {
        let Some(index) = indexes.texts.get(domain) else {
            return wrong(format!("there is no domain {domain:?} of texts"));
        };
        let hits =
            index.search::<Error>(moment.view, &query, &options, Some(&is_meant), &|| {
                watch.step()
            })?;
        for hit in hits {
            let Some(mut row) = owned_fact(moment, &hit.reference)? else {
                continue;
            };
            if !known.insert(hit.reference.clone()) {
                continue;
            }
            let offsets = || {
                let each = hit.offsets.iter().map(|(term, places)| {
                    let places = places
                        .iter()
                        .map(|place| Value::Long(i64::try_from(*place).unwrap_or(i64::MAX)));
                    Value::Vector(vec![
                        Value::text(term.as_str()),
                        Value::Vector(places.collect()),
                    ])
                });
                Value::Vector(each.collect())
            };
            let text = || hit.text.as_deref().map_or(Value::Nil, Value::text);
            match options.display {
                Shown::Refs => {}
                Shown::RefsScores => row.push(Value::Double(hit.score)),
                Shown::Texts => row.push(text()),
                Shown::Offsets => row.push(offsets()),
                Shown::TextsOffsets => row.extend([text(), offsets()]),
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

/// The fact of a reference that is not the store's own bytes.
fn owned_fact(moment: &Moment<'_>, reference: &[u8]) -> Result<Option<Vec<Value>>> {
    // Read at the same moment, from where the fact itself stands.
    let found = moment.view.first_from(moment.tables.eav, reference)?;
    match found {
        Some((key, _)) if key == reference => fact(moment, key),
        _ => Ok(None),
    }
}

/// Facts by how near their vectors are, the nearest first.
fn vectors(
    moment: &Moment<'_>,
    (attribute, wanted, options): (Option<Name>, Value, Value),
    watch: &Watch,
) -> Result<Vec<Vec<Value>>> {
    let Some(vector) = numbers(&wanted) else {
        return wrong(format!("{wanted} is no vector of numbers"));
    };
    let options = SearchOptions::read(&options)?;
    let indexes = &moment.indexes;
    let (said, all) = (options.domains.as_ref(), indexes.vectors.keys());
    let meant = Meant::new(moment, attribute.as_ref(), said, all, |own| &own.vectors)?;
    meant.near(options, watch, |domain| match indexes.vectors.get(domain) {
        Some(index) => Ok(Some((index, vector.as_slice().into()))),
        None => wrong(format!("there is no domain {domain:?} of vectors")),
    })
}

/// Facts by how near what their texts mean is to what a text means, the nearest first.
fn meanings(
    moment: &Moment<'_>,
    (attribute, wanted, options): (Option<Name>, Value, Value),
    watch: &Watch,
) -> Result<Vec<Vec<Value>>> {
    let Some(text) = wanted.as_str() else {
        return wrong(format!("{wanted} is no text: its meaning is searched for"));
    };
    let options = SearchOptions::read(&options)?;
    let indexes = &moment.indexes;
    let (said, all) = (options.domains.as_ref(), indexes.embeddings.keys());
    let meant = Meant::new(moment, attribute.as_ref(), said, all, |own| &own.embeddings)?;
    let kept = (moment.view, moment.tables.meta);
    meant.near(options, watch, |domain| {
        let Some(embeddings) = indexes.embeddings.get(domain) else {
            return wrong(format!("there is no domain {domain:?} of embeddings"));
        };
        watch.look()?;
        let vector = embeddings.of_query(kept, indexes.by(), text, watch.ends())?;
        Ok(vector.map(|vector| (&embeddings.index, vector)))
    })
}

impl Meant<'_, '_> {
    /// The facts that are meant, by how near they are in each index to the vector that is wanted of it.
    fn near<'i>(
        &self,
        options: SearchOptions<'_>,
        watch: &Watch,
        wanted: impl Fn(&str) -> Result<Option<(&'i VectorIndex, Arc<[f32]>)>>,
    ) -> Result<Vec<Vec<Value>>> {
        let is_meant = |reference: &[u8]| self.takes(reference);
        // All facts of an attribute are in each of its domains, and its own one has no others.
        let domains = match (self.a, &options.domains) {
            (Some(_), None) => &self.domains[self.domains.len().saturating_sub(1)..],
            _ => &self.domains,
        };
        let options = SearchOptions {
            filter: Some(&is_meant),
            ..options
        };
        let (moment, mut rows) = (self.moment, Vec::new());
        for domain in domains {
            let Some((index, vector)) = wanted(domain)? else {
                continue;
            };
            for found in index.search::<Error>(moment.view, &vector, &options, &|| watch.step())? {
                let Some(mut row) = owned_fact(moment, found.reference)? else {
                    continue;
                };
                if options.display == Display::RefsAndDistances {
                    row.push(Value::Double(f64::from(found.distance)));
                }
                rows.push(row);
            }
        }
        Ok(rows)
    }
}
