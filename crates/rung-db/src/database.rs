//! A Datalog database, local or remote.

use std::path::PathBuf;
use std::sync::Arc;

use rung_datalog::{Bounds, Datom, Db, IndexOrder, IndexScan, QueryResultHeader, Snapshot};
use rung_dtlv::{DatomIndex, DatomPattern, QueryAnswer};
use rung_edn::{Map, Name, Value as Edn};
use rung_fault::{Code, Detail, Fault};
use rung_tool::Cancellation;
use serde_json::{Value, json};

use crate::json::to_json;
use crate::remote::reject_host_functions;
use crate::row_sink::{ResultShape, RowSink, query_bounds, wait_limit};

/// Entities per request to a server.
const PULL_BATCH: usize = 500;

#[derive(Clone)]
pub(crate) enum Database {
    /// In a folder of this machine.
    Local {
        /// The part that the caller may see.
        db: Arc<Db>,
        /// The unfiltered database, kept open while the filtered one is in use.
        whole: Arc<Db>,
        folder: PathBuf,
        bounds: Bounds,
    },
    Remote(rung_dtlv::DtlvDatabase),
}

/// A datom pattern: the known parts.
pub(crate) struct FactPattern {
    pub(crate) e: Option<Edn>,
    pub(crate) a: Option<Edn>,
    pub(crate) v: Option<Edn>,
}

/// A datom as callers see it.
pub(crate) struct OutputDatom {
    e: Edn,
    a: Edn,
    v: Edn,
    tx: u64,
    added: bool,
}

impl OutputDatom {
    /// Creates one that currently holds. Its transaction is not recorded.
    fn current(e: Edn, a: Edn, v: Edn) -> Self {
        Self {
            e,
            a,
            v,
            tx: 1,
            added: true,
        }
    }

    /// Converts a datom of a snapshot.
    fn from_datom(moment: &Snapshot<'_>, datom: Datom) -> Self {
        let name = moment.schema().by_id(datom.a);
        let name = name.map_or(Edn::Nil, |own| Edn::Keyword(own.name.clone()));
        Self::current(entity_number(datom.e), name, datom.v)
    }

    pub(crate) fn to_json(&self) -> Value {
        let [e, a, v] = [&self.e, &self.a, &self.v].map(to_json);
        json!({"e": e, "a": a, "v": v, "tx": self.tx, "added": self.added})
    }
}

impl From<rung_dtlv::Datom> for OutputDatom {
    fn from(datom: rung_dtlv::Datom) -> Self {
        Self {
            e: Edn::Long(datom.entity),
            a: datom.attribute,
            v: datom.value,
            tx: datom.tx.unsigned_abs(),
            added: datom.added,
        }
    }
}

/// The result of a transaction.
pub(crate) struct TransactionReport {
    pub(crate) facts: Vec<OutputDatom>,
    pub(crate) tempids: Map,
    pub(crate) tx: Option<u64>,
}

fn entity_number(e: u64) -> Edn {
    Edn::Long(i64::try_from(e).unwrap_or(i64::MAX))
}

fn parse_attribute(given: &Edn) -> Result<Name, Fault> {
    let why = || {
        let why = format!("{given} is not an attribute; an attribute is a keyword");
        Fault::new(Code::InvalidQuery, why)
    };
    given.as_keyword().cloned().ok_or_else(why)
}

impl Database {
    /// Returns the database with the deadline and cancellation of a call.
    pub(crate) fn with_cancellation(&self, cancellation: &Cancellation) -> Self {
        match self {
            Self::Local {
                db, whole, folder, ..
            } => Self::Local {
                db: db.clone(),
                whole: whole.clone(),
                folder: folder.clone(),
                bounds: query_bounds(cancellation),
            },
            Self::Remote(database) => {
                Self::Remote(database.with_wait_limit(wait_limit(cancellation)))
            }
        }
    }

    /// Returns the local database, for operations that a server does not support.
    pub(crate) fn local(&self) -> Result<&Arc<Db>, Fault> {
        match self {
            Self::Local { db, .. } => Ok(db),
            Self::Remote(_) => {
                let why = "a remote server does not support this tool";
                Err(Fault::new(Code::InvalidRequest, why)
                    .with_hint("call datalevin_open_database with dir to open a local folder")
                    .with(Detail::Field, "database"))
            }
        }
    }

    /// Evaluates a query.
    pub(crate) fn query(
        &self,
        query: &Edn,
        inputs: &[Edn],
        sink: &mut RowSink<'_>,
    ) -> Result<ResultShape, Fault> {
        match self {
            Self::Local { db, bounds, .. } => {
                let head = db.head(query)?;
                if head.is_one() {
                    let answer = db.query(query, inputs, bounds)?;
                    return Ok(ResultShape::One(answer.into_value()));
                }
                let mut take = |head: &QueryResultHeader, row: Vec<Edn>| {
                    Ok(sink.take(|| to_json(&head.row(row))))
                };
                db.visit_rows(query, inputs, bounds, &mut take)?;
                Ok(if head.is_set() {
                    ResultShape::Set
                } else {
                    ResultShape::List
                })
            }
            Self::Remote(database) => {
                reject_host_functions(query)?;
                inputs.iter().try_for_each(reject_host_functions)?;
                let answer =
                    database.query_each(query, inputs, |row| sink.flow(|| to_json(&row)))?;
                Ok(match answer {
                    QueryAnswer::Vector => ResultShape::List,
                    QueryAnswer::Set => ResultShape::Set,
                    QueryAnswer::Value(value) => ResultShape::One(value),
                })
            }
        }
    }

    /// Pulls an entity.
    pub(crate) fn pull(&self, pattern: &Edn, entity: &Edn) -> Result<Edn, Fault> {
        match self {
            Self::Local { db, bounds, .. } => pull_local((db, bounds), pattern, entity),
            Self::Remote(database) => {
                reject_host_functions(pattern)?;
                Ok(database.pull(pattern, entity)?)
            }
        }
    }

    /// Pulls several entities.
    pub(crate) fn pull_many(
        &self,
        pattern: &Edn,
        entities: &[Edn],
        sink: &mut RowSink<'_>,
    ) -> Result<(), Fault> {
        match self {
            Self::Local { db, bounds, .. } => {
                for entity in entities {
                    // A single entity can be large.
                    sink.look()?;
                    let pulled = pull_local((db, bounds), pattern, entity)?;
                    if !sink.take(|| to_json(&pulled)) {
                        break;
                    }
                }
            }
            Self::Remote(database) => {
                reject_host_functions(pattern)?;
                for some in entities.chunks(PULL_BATCH) {
                    let pulled = database.pull_many(pattern, some)?;
                    let pulled = pulled.as_sequence().unwrap_or_default();
                    if !pulled.iter().all(|pulled| sink.take(|| to_json(pulled))) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns all attributes of an entity: an empty map if an entity id has none, `None` if a lookup finds no entity.
    pub(crate) fn entity(&self, called: &Edn) -> Result<Option<Map>, Fault> {
        let found = match self {
            Self::Local { db, .. } => db.entity(called)?,
            Self::Remote(database) => match database.entity(called)? {
                // For an unknown entity, servers return a map with only its id.
                Edn::Map(members) if members.len() > 1 => Some(members),
                _ => None,
            },
        };
        let is_number = matches!(called, Edn::Long(_));
        Ok(found.or_else(|| is_number.then(Map::new)))
    }

    /// Returns the datoms of an index from a position on, or backwards from it.
    pub(crate) fn seek(
        &self,
        order: IndexOrder,
        reach: IndexScan,
        parts: &[Edn],
        sink: &mut RowSink<'_>,
    ) -> Result<(), Fault> {
        Ok(self.local()?.read(|moment| {
            moment.visit_datoms(order, reach, parts, |datom| {
                Ok(sink.take(|| OutputDatom::from_datom(moment, datom).to_json()))
            })
        })?)
    }

    /// Returns the datoms of an attribute whose values are within a range.
    pub(crate) fn range(
        &self,
        called: &Edn,
        (from, to): &(Option<Edn>, Option<Edn>),
        sink: &mut RowSink<'_>,
    ) -> Result<(), Fault> {
        let name = parse_attribute(called)?;
        let bound = |bound: &Option<Edn>| bound.clone().unwrap_or(Edn::Nil);
        let (from, to) = (bound(from), bound(to));
        Ok(self.local()?.read(|moment| {
            moment.visit_range(&name, &from, &to, |datom| {
                Ok(sink.take(|| OutputDatom::from_datom(moment, datom).to_json()))
            })
        })?)
    }

    /// Returns the datoms of an index with these first components.
    pub(crate) fn datoms(
        &self,
        order: IndexOrder,
        parts: &[Edn],
        sink: &mut RowSink<'_>,
    ) -> Result<(), Fault> {
        let database = match self {
            Self::Local { .. } => return self.seek(order, IndexScan::Prefix, parts, sink),
            Self::Remote(database) => database,
        };
        let [e, a, v] = match order {
            IndexOrder::Eav => [0, 1, 2],
            IndexOrder::Ave => [2, 0, 1],
        };
        let known = [e, a, v].map(|at| parts.get(at).cloned());
        let [e, a, v] = known;
        let Some(pattern) = to_remote_pattern(database, &FactPattern { e, a, v })? else {
            return Ok(());
        };
        let index = match order {
            IndexOrder::Eav => DatomIndex::Eav,
            IndexOrder::Ave => DatomIndex::Ave,
        };
        let each = |datom| sink.flow(|| OutputDatom::from(datom).to_json());
        Ok(database.datoms(index, &pattern, each)?)
    }

    /// Returns the datoms that match a pattern.
    pub(crate) fn search(&self, known: &FactPattern, sink: &mut RowSink<'_>) -> Result<(), Fault> {
        match self {
            Self::Local { db, bounds, .. } => {
                let (query, given) = known.to_query(db)?;
                let mut take = |_: &QueryResultHeader, row: Vec<Edn>| {
                    let Ok([e, a, v]) = <[Edn; 3]>::try_from(row) else {
                        return Ok(false);
                    };
                    Ok(sink.take(|| OutputDatom::current(e, a, v).to_json()))
                };
                db.visit_rows(&query, &given, bounds, &mut take)?;
            }
            Self::Remote(database) => {
                if let Some(pattern) = to_remote_pattern(database, known)? {
                    let each = |datom| sink.flow(|| OutputDatom::from(datom).to_json());
                    database.search_datoms(&pattern, each)?;
                }
            }
        }
        Ok(())
    }

    /// Counts the datoms that match a pattern.
    pub(crate) fn count(&self, known: &FactPattern) -> Result<u64, Fault> {
        match self {
            Self::Local { db, bounds, .. } => {
                let (query, given) = known.to_query(db)?;
                let mut count = 0;
                let mut take = |_: &QueryResultHeader, _| {
                    count += 1;
                    Ok(true)
                };
                db.visit_rows(&query, &given, bounds, &mut take)?;
                Ok(count)
            }
            Self::Remote(database) => match to_remote_pattern(database, known)? {
                Some(pattern) => Ok(database.count_datoms(&pattern)?),
                None => Ok(0),
            },
        }
    }

    /// Returns the datoms whose texts match a full-text query, best first.
    pub(crate) fn fulltext(
        &self,
        query: &Edn,
        options: Map,
        sink: &mut RowSink<'_>,
    ) -> Result<(), Fault> {
        let rows = match self {
            Self::Local { db, bounds, .. } => {
                let rows = db.fulltext(query, &Edn::Map(options), bounds)?;
                rows.into_iter().map(Edn::Vector).collect()
            }
            Self::Remote(database) => match database.fulltext_datoms(query, options)? {
                Edn::Vector(rows) | Edn::List(rows) => rows,
                _ => Vec::new(),
            },
        };
        for row in rows {
            let parts = match &row {
                // A server's tagged datom.
                Edn::Tagged(_, inner) => inner
                    .as_sequence()
                    .map(|parts| &parts[..parts.len().min(3)]),
                other => other.as_sequence(),
            };
            let item = || match parts {
                Some([e, a, v]) => OutputDatom::current(e.clone(), a.clone(), v.clone()).to_json(),
                _ => to_json(&row),
            };
            if !sink.take(item) {
                break;
            }
        }
        Ok(())
    }

    /// Applies a transaction, all or nothing.
    pub(crate) fn transact(&self, changes: Vec<Edn>) -> Result<TransactionReport, Fault> {
        match self {
            Self::Local { db, .. } => {
                let report = db.transact(&Edn::Vector(changes))?;
                let fact = |datom: &rung_datalog::Datom| {
                    let name = report.schema.by_id(datom.a);
                    OutputDatom {
                        e: entity_number(datom.e),
                        a: name.map_or(Edn::Nil, |own| Edn::Keyword(own.name.clone())),
                        v: datom.v.clone(),
                        tx: report.tx,
                        added: datom.added,
                    }
                };
                Ok(TransactionReport {
                    facts: report.datoms.iter().map(fact).collect(),
                    tempids: report.tempids.clone(),
                    tx: Some(report.tx),
                })
            }
            Self::Remote(database) => {
                changes.iter().try_for_each(reject_function_call)?;
                let report = database.transact(&changes)?;
                Ok(TransactionReport {
                    facts: report.tx_data.into_iter().map(OutputDatom::from).collect(),
                    tempids: report.tempids,
                    tx: report.tx.map(i64::unsigned_abs),
                })
            }
        }
    }
}

/// Pulls an entity. A wildcard pull of an entity without datoms returns its id, as servers do.
fn pull_local((db, bounds): (&Db, &Bounds), pattern: &Edn, entity: &Edn) -> Result<Edn, Fault> {
    let pulled = db.pull_with_bounds(pattern, entity, bounds)?;
    let wants_all = || {
        let items = pattern.as_sequence().unwrap_or_default();
        items.contains(&Edn::symbol("*"))
    };
    if pulled.is_nil() && matches!(entity, Edn::Long(_)) && wants_all() {
        let number = (Edn::keyword("db/id"), entity.clone());
        return Ok(Edn::Map(std::iter::once(number).collect()));
    }
    Ok(pulled)
}

/// Rejects a change that calls a function on the server's host.
fn reject_function_call(change: &Edn) -> Result<(), Fault> {
    let first = change.as_sequence().and_then(<[Edn]>::first);
    if first == Some(&Edn::keyword("db.fn/call")) {
        let why = ":db.fn/call would run a function on the remote server's host";
        return Err(Fault::new(Code::InvalidTransaction, why)
            .with_hint("pass the additions and retractions themselves"));
    }
    Ok(())
}

/// Converts a pattern for a server; `None` if the entity does not exist.
fn to_remote_pattern(
    database: &rung_dtlv::DtlvDatabase,
    known: &FactPattern,
) -> Result<Option<DatomPattern>, Fault> {
    let entity = match &known.e {
        None => None,
        Some(called) => match database.entity_id(called)? {
            None => return Ok(None),
            found => found,
        },
    };
    Ok(Some(DatomPattern {
        entity,
        attribute: known.a.as_ref().map(parse_attribute).transpose()?,
        value: known.v.clone(),
    }))
}

impl FactPattern {
    /// Returns the query that matches the pattern, and its inputs.
    fn to_query(&self, db: &Db) -> Result<(Edn, Vec<Edn>), Fault> {
        let known = [("?e", &self.e), ("?a", &self.a), ("?v", &self.v)];
        let mut inputs = vec![Edn::symbol("$")];
        let mut given = Vec::new();
        for (name, value) in known {
            let Some(mut value) = value.clone() else {
                continue;
            };
            // A lookup reference or ident is resolved to the entity id.
            if name == "?e" {
                let e = db.read(|moment| moment.entity_id(&value))?;
                value = Edn::Long(e.and_then(|e| i64::try_from(e).ok()).unwrap_or(-1));
            }
            inputs.push(Edn::symbol(name));
            given.push(value);
        }
        let vars: Vec<Edn> = known.iter().map(|(name, _)| Edn::symbol(name)).collect();
        let mut query = vec![Edn::keyword("find")];
        query.extend(vars.iter().cloned());
        query.push(Edn::keyword("in"));
        query.extend(inputs);
        query.push(Edn::keyword("where"));
        query.push(Edn::Vector(vars));
        Ok((Edn::Vector(query), given))
    }
}
