//! The search functions `fulltext`, `vec-neighbors` and `embedding-neighbors`.

use std::collections::HashSet;
use std::sync::Arc;

use rung_edn::{Name, Value};
use rung_search::text::{Display as Shown, Query, SearchOptions as TextSearch};
use rung_search::vectors::{Display, SearchOptions, VectorIndex};

use super::ast::CallArgument;
use super::solve::QueryContext;
use super::watch::QueryWatch;
use crate::datom::parse_eav_key;
use crate::db::{Snapshot, entity_value};
use crate::search_indexes::{IndexDomains, vector_numbers};
use crate::{Error, Result};

fn invalid_query<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

/// Splits the arguments of a call: an optional attribute, the search term, and optional options.
fn split_arguments(function: &str, given: &[Value]) -> Result<(Option<Name>, Value, Value)> {
    let (attribute, rest) = match given {
        [Value::Keyword(name), rest @ ..] => (Some(name.clone()), rest),
        rest => (None, rest),
    };
    match rest {
        [wanted] => Ok((attribute, wanted.clone(), Value::Nil)),
        [wanted, options] => Ok((attribute, wanted.clone(), options.clone())),
        _ => invalid_query(format!(
            "{function} takes a source, an optional attribute, a search expression, and optional options"
        )),
    }
}

impl QueryContext<'_, '_> {
    /// Returns the facts that a search function finds, as rows. Nil if there are none.
    pub(crate) fn search_facts(
        &self,
        function: &Name,
        arguments: &[CallArgument],
        value: &impl Fn(&CallArgument) -> Result<Value>,
    ) -> Result<Value> {
        let [CallArgument::Source(source), given @ ..] = arguments else {
            return invalid_query(format!(
                "the first argument of {function} is a source, such as $"
            ));
        };
        let moment = self.snapshot(source)?;
        let given = given.iter().map(value).collect::<Result<Vec<_>>>()?;
        let parts = split_arguments(function.as_str(), &given)?;
        let rows = match function.as_str() {
            "fulltext" => search_texts(moment, parts, self.watch)?,
            "embedding-neighbors" => search_embeddings(moment, parts, self.watch)?,
            _ => search_vectors(moment, parts, self.watch)?,
        };
        Ok(if rows.is_empty() {
            Value::Nil
        } else {
            Value::Vector(rows.into_iter().map(Value::Vector).collect())
        })
    }
}

/// Returns the fact of an index reference as entity, attribute and value.
fn fact_row<'t>(moment: &Snapshot<'t>, reference: &'t [u8]) -> Result<Option<Vec<Value>>> {
    let Some((e, a, in_key)) = parse_eav_key(reference) else {
        return Ok(None);
    };
    let Some(attribute) = moment.schema.by_id(a) else {
        return Ok(None);
    };
    let value = moment.decode_value(a, moment.full_value(e, a, in_key)?)?;
    let name = Value::Keyword(attribute.name.clone());
    Ok(Some(vec![entity_value(e), name, value]))
}

/// The domains and the attribute to search.
struct SearchScope<'i, 't> {
    moment: &'i Snapshot<'t>,
    domains: Vec<String>,
    /// The attribute, if one is named.
    a: Option<u32>,
}

impl<'i, 't> SearchScope<'i, 't> {
    /// Selects the domains in the options, or those of the named attribute, or all.
    fn new(
        moment: &'i Snapshot<'t>,
        attribute: Option<&Name>,
        said: Option<&Vec<String>>,
        all: impl Iterator<Item = &'i String>,
        own: impl Fn(&'i IndexDomains) -> &'i Vec<String>,
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
            None => invalid_query(format!(
                ":{name} has no search index; an index needs :db/fulltext, :db/embedding or :db.type/vec in the schema"
            )),
        }
    }

    /// Returns true if a reference is to a fact of the named attribute, or of any visible attribute if none is named.
    fn includes(&self, reference: &[u8]) -> bool {
        parse_eav_key(reference).is_some_and(|(_, own, _)| {
            self.a
                .map_or_else(|| self.moment.is_visible(own), |a| own == a)
        })
    }
}

/// Returns facts by the words of their texts, the best first.
pub(crate) fn search_texts(
    moment: &Snapshot<'_>,
    (attribute, wanted, options): (Option<Name>, Value, Value),
    watch: &QueryWatch,
) -> Result<Vec<Vec<Value>>> {
    let query = Query::from_edn(&wanted)?;
    let options = if options.is_nil() {
        TextSearch::default()
    } else {
        TextSearch::from_edn(&options)?
    };
    let indexes = &moment.indexes;
    let (said, all) = (options.domains.as_ref(), indexes.texts.keys());
    let meant = SearchScope::new(moment, attribute.as_ref(), said, all, |own| &own.texts)?;
    let is_meant = |reference: &[u8]| meant.includes(reference);
    let (mut rows, mut known) = (Vec::new(), HashSet::new());
    for domain in &meant.domains {
        let Some(index) = indexes.texts.get(domain) else {
            return invalid_query(format!("the full-text domain {domain:?} does not exist"));
        };
        let hits =
            index.search::<Error>(moment.view, &query, &options, Some(&is_meant), &|| {
                watch.step()
            })?;
        for hit in hits {
            let Some(mut row) = stored_fact_row(moment, &hit.reference)? else {
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

/// Returns the fact of a reference whose bytes are not in the snapshot.
fn stored_fact_row(moment: &Snapshot<'_>, reference: &[u8]) -> Result<Option<Vec<Value>>> {
    // Look up the key in the same snapshot, to get bytes that live as long as it.
    let found = moment.view.first_from(moment.tables.eav, reference)?;
    match found {
        Some((key, _)) if key == reference => fact_row(moment, key),
        _ => Ok(None),
    }
}

/// Returns facts by the distance of their vectors, the nearest first.
fn search_vectors(
    moment: &Snapshot<'_>,
    (attribute, wanted, options): (Option<Name>, Value, Value),
    watch: &QueryWatch,
) -> Result<Vec<Vec<Value>>> {
    let Some(vector) = vector_numbers(&wanted) else {
        return invalid_query(format!("{wanted} is not a vector of numbers"));
    };
    let options = SearchOptions::read(&options)?;
    let indexes = &moment.indexes;
    let (said, all) = (options.domains.as_ref(), indexes.vectors.keys());
    let meant = SearchScope::new(moment, attribute.as_ref(), said, all, |own| &own.vectors)?;
    meant.nearest_facts(options, watch, |domain| match indexes.vectors.get(domain) {
        Some(index) => Ok(Some((index, vector.as_slice().into()))),
        None => invalid_query(format!("the vector domain {domain:?} does not exist")),
    })
}

/// Returns facts by the distance of their texts' embeddings to that of a query text, the nearest first.
fn search_embeddings(
    moment: &Snapshot<'_>,
    (attribute, wanted, options): (Option<Name>, Value, Value),
    watch: &QueryWatch,
) -> Result<Vec<Vec<Value>>> {
    let Some(text) = wanted.as_str() else {
        return invalid_query(format!(
            "{wanted} is not a string; a search by meaning takes a string"
        ));
    };
    let options = SearchOptions::read(&options)?;
    let indexes = &moment.indexes;
    let (said, all) = (options.domains.as_ref(), indexes.embeddings.keys());
    let meant = SearchScope::new(moment, attribute.as_ref(), said, all, |own| &own.embeddings)?;
    let kept = (moment.view, moment.tables.meta);
    meant.nearest_facts(options, watch, |domain| {
        let Some(embeddings) = indexes.embeddings.get(domain) else {
            return invalid_query(format!("the embedding domain {domain:?} does not exist"));
        };
        watch.check()?;
        let vector = embeddings.query_vector(kept, indexes.embedder(), text, watch.deadline())?;
        Ok(vector.map(|vector| (&embeddings.index, vector)))
    })
}

impl SearchScope<'_, '_> {
    /// Returns the facts in the scope by their distance to the vector that `wanted` returns for each domain.
    fn nearest_facts<'i>(
        &self,
        options: SearchOptions<'_>,
        watch: &QueryWatch,
        wanted: impl Fn(&str) -> Result<Option<(&'i VectorIndex, Arc<[f32]>)>>,
    ) -> Result<Vec<Vec<Value>>> {
        let is_meant = |reference: &[u8]| self.includes(reference);
        // Each domain of an attribute has all of its facts. The last one, its own, has no others.
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
                let Some(mut row) = stored_fact_row(moment, found.reference)? else {
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
