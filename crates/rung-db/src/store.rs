//! A store of keys and values, wherever it is.

use std::sync::Arc;

use rung_dtlv::{KvStore, SearchEngine};
use rung_edn::{Map, Value as Edn};
use rung_fault::{Code, Detail, Fault};
use rung_kv::typed::{Kind as TableKind, Op, Span, Tables, Type};
use rung_search::text::{TextIndex, TextOptions};
use rung_search::vectors::{VectorIndex, VectorOptions};
use serde_json::json;

use crate::json::to_json;
use crate::taker::{Taker, Watch};
use crate::texts::Texts;
use crate::vectors::Vectors;

/// Where an index is, where nobody says.
const DOMAIN: &str = "datalevin";

/// A store.
#[derive(Clone)]
pub(crate) enum Store {
    /// In a folder.
    Here(Arc<Tables>),
    /// On a server.
    Elsewhere(KvStore),
}

/// What keys and values are.
pub(crate) struct Types {
    key: Kind,
    value: Kind,
}

struct Kind {
    of: Type,
    /// As a server is told.
    told: Edn,
}

impl Kind {
    fn read(given: Option<Edn>) -> Result<Self, Fault> {
        let given = given.unwrap_or_else(|| Edn::keyword("data"));
        Ok(Self {
            of: Type::read(&given)?,
            told: word(given),
        })
    }
}

impl Types {
    /// The types that are given, or any.
    pub(crate) fn read(key: Option<Edn>, value: Option<Edn>) -> Result<Self, Fault> {
        Ok(Self {
            key: Kind::read(key)?,
            value: Kind::read(value)?,
        })
    }

    fn told(&self) -> (&Edn, &Edn) {
        (&self.key.told, &self.value.told)
    }
}

/// What is written `long` or `:long`, and vectors of such, as servers know it.
fn word(given: Edn) -> Edn {
    match given {
        Edn::String(text) => Edn::keyword(text.trim_start_matches(':')),
        Edn::Vector(items) | Edn::List(items) => Edn::Vector(items.into_iter().map(word).collect()),
        other => other,
    }
}

/// The name of an index, and its other options.
fn domain(options: &mut Map) -> Result<String, Fault> {
    match options.shift_remove(&Edn::keyword("domain")) {
        None => Ok(DOMAIN.to_owned()),
        Some(Edn::String(name)) => Ok(name.to_string()),
        Some(other) => {
            let why = format!(":domain is a text, and {other} is none");
            Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "opts"))
        }
    }
}

fn absent(kind: &str, domain: &str) -> Fault {
    let why = format!("there is no {kind} index {domain:?}");
    Fault::new(Code::NotFound, why).with_hint("writing must be allowed for one to be made")
}

/// Whether a server's store has a table.
fn has(store: &KvStore, table: &str) -> Result<bool, Fault> {
    let tables = store.tables()?;
    let tables = tables.as_sequence().unwrap_or_default();
    Ok(tables.iter().any(|own| own.as_str() == Some(table)))
}

impl Store {
    /// The same, for somebody who waits no longer than that.
    pub(crate) fn within(&self, watch: &Watch) -> Self {
        match self {
            Self::Here(tables) => Self::Here(tables.clone()),
            Self::Elsewhere(store) => Self::Elsewhere(store.within(watch.patience())),
        }
    }

    /// The tables themselves, for what can be done to those in a folder alone.
    pub(crate) fn here(&self) -> Result<&Arc<Tables>, Fault> {
        match self {
            Self::Here(tables) => Ok(tables),
            Self::Elsewhere(_) => {
                let why = "a server elsewhere cannot be asked for this";
                Err(Fault::new(Code::InvalidRequest, why)
                    .with_hint("open a folder of this machine: datalevin_open_kv with dir")
                    .with(Detail::Field, "kv"))
            }
        }
    }

    /// How many entries lie in a range.
    pub(crate) fn count(&self, table: &str, range: Edn, types: &Types) -> Result<u64, Fault> {
        let span = Span::read(range, &types.key.of)?;
        let counted = self.here()?.read(|snapshot| {
            for named in snapshot.names()? {
                let (name, kind) = named?;
                if name != table {
                    continue;
                }
                return match kind {
                    TableKind::Plain => {
                        snapshot.plain(table)?.map_or(Ok(0), |own| own.count(&span))
                    }
                    TableKind::List => snapshot.list(table)?.map_or(Ok(0), |own| own.count(&span)),
                };
            }
            Ok::<_, rung_kv::Error>(0)
        });
        Ok(counted?)
    }

    /// How many keys come before one, where it is there.
    pub(crate) fn rank(&self, table: &str, key: Edn, types: &Types) -> Result<Option<u64>, Fault> {
        let key = types.key.of.fit(key)?;
        let found = self.here()?.read(|snapshot| match snapshot.plain(table)? {
            Some(table) => table.rank(&key),
            None => Ok::<_, rung_kv::Error>(None),
        });
        Ok(found?)
    }

    /// The pair before which so many keys come.
    pub(crate) fn by_rank(&self, table: &str, rank: u64) -> Result<Option<(Edn, Edn)>, Fault> {
        let found = self.here()?.read(|snapshot| {
            let Some(table) = snapshot.plain(table)? else {
                return Ok(None);
            };
            match table.by_rank(rank)? {
                Some(entry) => Ok::<_, rung_kv::Error>(Some((entry.key()?, entry.value()?))),
                None => Ok(None),
            }
        });
        Ok(found?)
    }

    /// A key as it is kept, and its value.
    pub(crate) fn get(
        &self,
        table: &str,
        key: Edn,
        types: &Types,
    ) -> Result<Option<(Edn, Edn)>, Fault> {
        let key = types.key.of.fit(key)?;
        let value = match self {
            Self::Here(tables) => tables.read(|snapshot| match snapshot.plain(table)? {
                Some(table) => table.get(&key),
                None => Ok(None),
            })?,
            Self::Elsewhere(store) => {
                // A server makes a table when it is opened, and does not read one that is not.
                if !has(store, table)? {
                    return Ok(None);
                }
                store.open_table(table, None)?;
                let value = store.get(table, &key, types.told(), false)?;
                Some(value).filter(|value| !value.is_nil())
            }
        };
        Ok(value.map(|value| (key, value)))
    }

    /// The pairs whose keys are in a range.
    pub(crate) fn range(
        &self,
        table: &str,
        range: &Edn,
        types: &Types,
        taker: &mut Taker<'_>,
    ) -> Result<(), Fault> {
        let span = Span::read(range.clone(), &types.key.of)?;
        let store = match self {
            Self::Here(tables) => {
                let read = tables.read(|snapshot| {
                    let Some(table) = snapshot.plain(table)? else {
                        return Ok(());
                    };
                    for entry in table.range(&span)? {
                        let entry = entry?;
                        let (key, value) = (entry.key()?, entry.value()?);
                        if !taker.take(|| json!([to_json(&key), to_json(&value)])) {
                            break;
                        }
                    }
                    Ok::<_, rung_kv::Error>(())
                });
                return Ok(read?);
            }
            Self::Elsewhere(store) => store,
        };
        if !has(store, table)? {
            return Ok(());
        }
        store.open_table(table, None)?;
        let mut parts = range.as_sequence().unwrap_or_default().to_vec().into_iter();
        let mut range: Vec<Edn> = parts.next().map(word).into_iter().collect();
        for bound in parts {
            range.push(types.key.of.fit(bound)?);
        }
        let each = |pair| taker.flow(|| to_json(&pair));
        Ok(store.range(table, &Edn::Vector(range), types.told(), each)?)
    }

    /// Does all of it, or nothing.
    pub(crate) fn transact(
        &self,
        table: Option<&str>,
        changes: Vec<Edn>,
        types: &Types,
    ) -> Result<(), Fault> {
        let ops = Op::read_all(changes.clone(), table, &types.key.of, &types.value.of)?;
        let store = match self {
            Self::Here(tables) => return Ok(tables.transact(&ops)?),
            Self::Elsewhere(store) => store,
        };
        let mut opened: Vec<&str> = Vec::new();
        for op in &ops {
            if !opened.contains(&&*op.table) {
                store.open_table(&op.table, None)?;
                opened.push(&op.table);
            }
        }
        // What is done and the types are words, after and before what is data.
        let types_at = if table.is_some() { 3 } else { 4 };
        let told = |change: Edn| {
            let parts = change.as_sequence().unwrap_or_default().iter().enumerate();
            let parts = parts.map(|(at, part)| match at {
                0 => word(part.clone()),
                at if at >= types_at => word(part.clone()),
                _ => part.clone(),
            });
            Edn::Vector(parts.collect())
        };
        let changes: Vec<Edn> = changes.into_iter().map(told).collect();
        Ok(store.transact(table, &changes, types.told())?)
    }

    /// An index of texts in it. It is made where there is none, if that may be.
    pub(crate) fn texts(&self, mut options: Map, create: bool) -> Result<Texts, Fault> {
        let given = options.clone();
        let domain = domain(&mut options)?;
        match self {
            Self::Here(tables) => {
                let options = TextOptions::from_edn(&Edn::Map(options))?;
                let index = if create {
                    TextIndex::create(tables.kv(), &domain, options)?
                } else {
                    let found = TextIndex::open(tables.kv(), &domain)?;
                    found.ok_or_else(|| absent("search", &domain))?
                };
                Ok(Texts::Here(tables.clone(), index))
            }
            Self::Elsewhere(store) => {
                if !create && !has(store, &format!("{domain}/docs"))? {
                    return Err(absent("search", &domain));
                }
                let index = SearchEngine::open(store.clone(), Some(given))?;
                Ok(Texts::Elsewhere(index))
            }
        }
    }

    /// An index of vectors in it. It is made where there is none, if that may be.
    pub(crate) fn vectors(&self, mut options: Map, create: bool) -> Result<Vectors, Fault> {
        let given = options.clone();
        let domain = domain(&mut options)?;
        match self {
            Self::Here(tables) => {
                let options = VectorOptions::read(&Edn::Map(options))?;
                let index = VectorIndex::open(tables.kv(), &domain, Some(&options), create)?;
                let index = index.ok_or_else(|| absent("vector", &domain))?;
                Ok(Vectors::Here(tables.clone(), index))
            }
            Self::Elsewhere(store) => {
                if !create && !has(store, &format!("{domain}/vec-refs"))? {
                    return Err(absent("vector", &domain));
                }
                let index = rung_dtlv::VectorIndex::open(store.clone(), given)?;
                Ok(Vectors::Elsewhere(index))
            }
        }
    }
}
