//! A database of facts, wherever it is.

use std::path::PathBuf;
use std::sync::Arc;

use rung_datalog::{Bounds, Datom, Db, Head, Moment, Order, Reach};
use rung_dtlv::{Answer, Index, Pattern};
use rung_edn::{Map, Name, Value as Edn};
use rung_fault::{Code, Detail, Fault};
use serde_json::{Value, json};

use crate::elsewhere::closed;
use crate::json::to_json;
use crate::taker::{Made, Taker, Watch};

/// Entities that are asked for in one question to a server.
const AT_ONCE: usize = 500;

/// A database.
#[derive(Clone)]
pub(crate) enum Database {
    /// In a folder.
    Here {
        /// As much of it as the caller sees.
        db: Arc<Db>,
        /// All of it, which is open for as long as anybody sees some.
        whole: Arc<Db>,
        folder: PathBuf,
        bounds: Bounds,
    },
    /// On a server.
    Elsewhere(rung_dtlv::Database),
}

/// What is known of facts that are looked for.
pub(crate) struct Known {
    pub(crate) e: Option<Edn>,
    pub(crate) a: Option<Edn>,
    pub(crate) v: Option<Edn>,
}

/// A fact as callers know it.
pub(crate) struct Fact {
    e: Edn,
    a: Edn,
    v: Edn,
    tx: u64,
    added: bool,
}

impl Fact {
    /// One that holds. When it was said is not kept.
    fn holding(e: Edn, a: Edn, v: Edn) -> Self {
        Self {
            e,
            a,
            v,
            tx: 1,
            added: true,
        }
    }

    /// One of a moment.
    fn of(moment: &Moment<'_>, datom: Datom) -> Self {
        let name = moment.schema().by_id(datom.a);
        let name = name.map_or(Edn::Nil, |own| Edn::Keyword(own.name.clone()));
        Self::holding(number(datom.e), name, datom.v)
    }

    pub(crate) fn to_json(&self) -> Value {
        let [e, a, v] = [&self.e, &self.a, &self.v].map(to_json);
        json!({"e": e, "a": a, "v": v, "tx": self.tx, "added": self.added})
    }
}

impl From<rung_dtlv::Datom> for Fact {
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

/// What a transaction did.
pub(crate) struct Report {
    pub(crate) facts: Vec<Fact>,
    pub(crate) tempids: Map,
    pub(crate) tx: Option<u64>,
}

fn number(e: u64) -> Edn {
    Edn::Long(i64::try_from(e).unwrap_or(i64::MAX))
}

fn attribute(given: &Edn) -> Result<Name, Fault> {
    let why = || {
        let why = format!("{given} is no attribute: it is a keyword");
        Fault::new(Code::InvalidQuery, why)
    };
    given.as_keyword().cloned().ok_or_else(why)
}

impl Database {
    /// The same, for somebody who waits no longer than that.
    pub(crate) fn within(&self, watch: &Watch) -> Self {
        match self {
            Self::Here {
                db, whole, folder, ..
            } => Self::Here {
                db: db.clone(),
                whole: whole.clone(),
                folder: folder.clone(),
                bounds: watch.bounds(),
            },
            Self::Elsewhere(database) => Self::Elsewhere(database.within(watch.patience())),
        }
    }

    /// The database itself, for what can be done to one in a folder alone.
    pub(crate) fn here(&self) -> Result<&Arc<Db>, Fault> {
        match self {
            Self::Here { db, .. } => Ok(db),
            Self::Elsewhere(_) => {
                let why = "a server elsewhere cannot be asked for this";
                Err(Fault::new(Code::InvalidRequest, why)
                    .with_hint("open a folder of this machine: datalevin_open_database with dir")
                    .with(Detail::Field, "database"))
            }
        }
    }

    /// Answers a query.
    pub(crate) fn query(
        &self,
        query: &Edn,
        inputs: &[Edn],
        taker: &mut Taker<'_>,
    ) -> Result<Made, Fault> {
        match self {
            Self::Here { db, bounds, .. } => {
                let head = db.head(query)?;
                if head.is_one() {
                    let answer = db.query(query, inputs, bounds)?;
                    return Ok(Made::One(answer.into_value()));
                }
                let mut take =
                    |head: &Head, row: Vec<Edn>| Ok(taker.take(|| to_json(&head.row(row))));
                db.each_row(query, inputs, bounds, &mut take)?;
                Ok(if head.is_set() { Made::Set } else { Made::List })
            }
            Self::Elsewhere(database) => {
                closed(query)?;
                inputs.iter().try_for_each(closed)?;
                let answer =
                    database.query_each(query, inputs, |row| taker.flow(|| to_json(&row)))?;
                Ok(match answer {
                    Answer::Vector => Made::List,
                    Answer::Set => Made::Set,
                    Answer::Value(value) => Made::One(value),
                })
            }
        }
    }

    /// An entity, as far as a pattern goes.
    pub(crate) fn pull(&self, pattern: &Edn, entity: &Edn) -> Result<Edn, Fault> {
        match self {
            Self::Here { db, bounds, .. } => pulled((db, bounds), pattern, entity),
            Self::Elsewhere(database) => {
                closed(pattern)?;
                Ok(database.pull(pattern, entity)?)
            }
        }
    }

    /// Several entities, as far as a pattern goes.
    pub(crate) fn pull_many(
        &self,
        pattern: &Edn,
        entities: &[Edn],
        taker: &mut Taker<'_>,
    ) -> Result<(), Fault> {
        match self {
            Self::Here { db, bounds, .. } => {
                for entity in entities {
                    // One alone can be much.
                    taker.look()?;
                    let pulled = pulled((db, bounds), pattern, entity)?;
                    if !taker.take(|| to_json(&pulled)) {
                        break;
                    }
                }
            }
            Self::Elsewhere(database) => {
                closed(pattern)?;
                for some in entities.chunks(AT_ONCE) {
                    let pulled = database.pull_many(pattern, some)?;
                    let pulled = pulled.as_sequence().unwrap_or_default();
                    if !pulled.iter().all(|pulled| taker.take(|| to_json(pulled))) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Everything of an entity; nothing of one that there is nothing of, and `None` of one that cannot be found.
    pub(crate) fn entity(&self, called: &Edn) -> Result<Option<Map>, Fault> {
        let found = match self {
            Self::Here { db, .. } => db.entity(called)?,
            Self::Elsewhere(database) => match database.entity(called)? {
                // Of what is not there servers give the number that they were asked for.
                Edn::Map(members) if members.len() > 1 => Some(members),
                _ => None,
            },
        };
        let is_number = matches!(called, Edn::Long(_));
        Ok(found.or_else(|| is_number.then(Map::new)))
    }

    /// Facts in an order from their first parts on, or back from there.
    pub(crate) fn seek(
        &self,
        order: Order,
        reach: Reach,
        parts: &[Edn],
        taker: &mut Taker<'_>,
    ) -> Result<(), Fault> {
        Ok(self.here()?.read(|moment| {
            moment.each(order, reach, parts, |datom| {
                Ok(taker.take(|| Fact::of(moment, datom).to_json()))
            })
        })?)
    }

    /// Facts of an attribute whose values lie between two.
    pub(crate) fn range(
        &self,
        called: &Edn,
        (from, to): &(Option<Edn>, Option<Edn>),
        taker: &mut Taker<'_>,
    ) -> Result<(), Fault> {
        let name = attribute(called)?;
        let bound = |bound: &Option<Edn>| bound.clone().unwrap_or(Edn::Nil);
        let (from, to) = (bound(from), bound(to));
        Ok(self.here()?.read(|moment| {
            moment.each_between(&name, &from, &to, |datom| {
                Ok(taker.take(|| Fact::of(moment, datom).to_json()))
            })
        })?)
    }

    /// Facts in an order, by their first parts.
    pub(crate) fn datoms(
        &self,
        order: Order,
        parts: &[Edn],
        taker: &mut Taker<'_>,
    ) -> Result<(), Fault> {
        let database = match self {
            Self::Here { .. } => return self.seek(order, Reach::Within, parts, taker),
            Self::Elsewhere(database) => database,
        };
        let [e, a, v] = match order {
            Order::Eav => [0, 1, 2],
            Order::Ave => [2, 0, 1],
        };
        let known = [e, a, v].map(|at| parts.get(at).cloned());
        let [e, a, v] = known;
        let Some(pattern) = pattern(database, &Known { e, a, v })? else {
            return Ok(());
        };
        let index = match order {
            Order::Eav => Index::Eav,
            Order::Ave => Index::Ave,
        };
        let each = |datom| taker.flow(|| Fact::from(datom).to_json());
        Ok(database.datoms(index, &pattern, each)?)
    }

    /// Facts by whatever is known of them.
    pub(crate) fn search(&self, known: &Known, taker: &mut Taker<'_>) -> Result<(), Fault> {
        match self {
            Self::Here { db, bounds, .. } => {
                let (query, given) = known.query(db)?;
                let mut take = |_: &Head, row: Vec<Edn>| {
                    let Ok([e, a, v]) = <[Edn; 3]>::try_from(row) else {
                        return Ok(false);
                    };
                    Ok(taker.take(|| Fact::holding(e, a, v).to_json()))
                };
                db.each_row(&query, &given, bounds, &mut take)?;
            }
            Self::Elsewhere(database) => {
                if let Some(pattern) = pattern(database, known)? {
                    let each = |datom| taker.flow(|| Fact::from(datom).to_json());
                    database.search_datoms(&pattern, each)?;
                }
            }
        }
        Ok(())
    }

    /// How many facts there are of which this is known.
    pub(crate) fn count(&self, known: &Known) -> Result<u64, Fault> {
        match self {
            Self::Here { db, bounds, .. } => {
                let (query, given) = known.query(db)?;
                let mut count = 0;
                let mut take = |_: &Head, _| {
                    count += 1;
                    Ok(true)
                };
                db.each_row(&query, &given, bounds, &mut take)?;
                Ok(count)
            }
            Self::Elsewhere(database) => match pattern(database, known)? {
                Some(pattern) => Ok(database.count_datoms(&pattern)?),
                None => Ok(0),
            },
        }
    }

    /// Facts by the words of their texts, the best first.
    pub(crate) fn fulltext(
        &self,
        query: &Edn,
        options: Map,
        taker: &mut Taker<'_>,
    ) -> Result<(), Fault> {
        let rows = match self {
            Self::Here { db, bounds, .. } => {
                let rows = db.fulltext(query, &Edn::Map(options), bounds)?;
                rows.into_iter().map(Edn::Vector).collect()
            }
            Self::Elsewhere(database) => match database.fulltext_datoms(query, options)? {
                Edn::Vector(rows) | Edn::List(rows) => rows,
                _ => Vec::new(),
            },
        };
        for row in rows {
            let parts = match &row {
                // As a server has facts.
                Edn::Tagged(_, inner) => inner
                    .as_sequence()
                    .map(|parts| &parts[..parts.len().min(3)]),
                other => other.as_sequence(),
            };
            let item = || match parts {
                Some([e, a, v]) => Fact::holding(e.clone(), a.clone(), v.clone()).to_json(),
                _ => to_json(&row),
            };
            if !taker.take(item) {
                break;
            }
        }
        Ok(())
    }

    /// Changes facts, all of it or nothing.
    pub(crate) fn transact(&self, changes: Vec<Edn>) -> Result<Report, Fault> {
        match self {
            Self::Here { db, .. } => {
                let report = db.transact(&Edn::Vector(changes))?;
                let fact = |datom: &rung_datalog::Datom| {
                    let name = report.schema.by_id(datom.a);
                    Fact {
                        e: number(datom.e),
                        a: name.map_or(Edn::Nil, |own| Edn::Keyword(own.name.clone())),
                        v: datom.v.clone(),
                        tx: report.tx,
                        added: datom.added,
                    }
                };
                Ok(Report {
                    facts: report.datoms.iter().map(fact).collect(),
                    tempids: report.tempids.clone(),
                    tx: Some(report.tx),
                })
            }
            Self::Elsewhere(database) => {
                changes.iter().try_for_each(no_call)?;
                let report = database.transact(&changes)?;
                Ok(Report {
                    facts: report.tx_data.into_iter().map(Fact::from).collect(),
                    tempids: report.tempids,
                    tx: report.tx.map(i64::unsigned_abs),
                })
            }
        }
    }
}

/// An entity, as far as a pattern goes. All of one that there is nothing of is its number, as servers have it.
fn pulled((db, bounds): (&Db, &Bounds), pattern: &Edn, entity: &Edn) -> Result<Edn, Fault> {
    let pulled = db.pull_within(pattern, entity, bounds)?;
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

/// Refuses a change that calls a function of the server's host.
fn no_call(change: &Edn) -> Result<(), Fault> {
    let first = change.as_sequence().and_then(<[Edn]>::first);
    if first == Some(&Edn::keyword("db.fn/call")) {
        let why = ":db.fn/call would run a function of the server's host";
        return Err(Fault::new(Code::InvalidTransaction, why)
            .with_hint("say what is to be added and retracted"));
    }
    Ok(())
}

/// What is known as a server is asked for it; `None` where no entity is called so.
fn pattern(database: &rung_dtlv::Database, known: &Known) -> Result<Option<Pattern>, Fault> {
    let entity = match &known.e {
        None => None,
        Some(called) => match database.entity_id(called)? {
            None => return Ok(None),
            found => found,
        },
    };
    Ok(Some(Pattern {
        entity,
        attribute: known.a.as_ref().map(attribute).transpose()?,
        value: known.v.clone(),
    }))
}

impl Known {
    /// The query that finds them, and what it is given.
    fn query(&self, db: &Db) -> Result<(Edn, Vec<Edn>), Fault> {
        let known = [("?e", &self.e), ("?a", &self.a), ("?v", &self.v)];
        let mut inputs = vec![Edn::symbol("$")];
        let mut given = Vec::new();
        for (name, value) in known {
            let Some(mut value) = value.clone() else {
                continue;
            };
            // An entity is told by its number, however it is called.
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
