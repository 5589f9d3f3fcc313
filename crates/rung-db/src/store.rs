//! A key-value store, local or remote.

use std::sync::Arc;

use rung_dtlv::{KvStore, SearchEngine};
use rung_edn::{Map, Value as Edn};
use rung_fault::{Code, Detail, Fault};
use rung_kv::typed::{KeySpan, TableKind, TableOp, TypedTables, ValueType};
use rung_search::text::{TextIndex, TextOptions};
use rung_search::vectors::{VectorIndex, VectorOptions};
use rung_tool::Cancellation;
use serde_json::json;

use crate::json::to_json;
use crate::row_sink::{RowSink, wait_limit};
use crate::texts::TextSearchIndex;
use crate::vectors::VectorSearchIndex;

/// The default index domain.
const DEFAULT_DOMAIN: &str = "datalevin";

#[derive(Clone)]
pub(crate) enum KeyValueStore {
    /// In a folder of this machine.
    Local(Arc<TypedTables>),
    Remote(KvStore),
}

/// The types of keys and values.
pub(crate) struct KeyValueTypes {
    key: EntryType,
    value: EntryType,
}

struct EntryType {
    parsed: ValueType,
    /// The type as sent to a server.
    wire: Edn,
}

impl EntryType {
    fn parse(given: Option<Edn>) -> Result<Self, Fault> {
        let given = given.unwrap_or_else(|| Edn::keyword("data"));
        Ok(Self {
            parsed: ValueType::parse(&given)?,
            wire: to_keyword(given),
        })
    }
}

impl KeyValueTypes {
    /// Parses the given types; the default is any data.
    pub(crate) fn parse(key: Option<Edn>, value: Option<Edn>) -> Result<Self, Fault> {
        Ok(Self {
            key: EntryType::parse(key)?,
            value: EntryType::parse(value)?,
        })
    }

    fn as_wire(&self) -> (&Edn, &Edn) {
        (&self.key.wire, &self.value.wire)
    }
}

/// Converts `long` or `:long`, and vectors of such, to the keywords that servers expect.
fn to_keyword(given: Edn) -> Edn {
    match given {
        Edn::String(text) => Edn::keyword(text.trim_start_matches(':')),
        Edn::Vector(items) | Edn::List(items) => {
            Edn::Vector(items.into_iter().map(to_keyword).collect())
        }
        other => other,
    }
}

/// Removes the domain from the options and returns it.
fn take_domain(options: &mut Map) -> Result<String, Fault> {
    match options.shift_remove(&Edn::keyword("domain")) {
        None => Ok(DEFAULT_DOMAIN.to_owned()),
        Some(Edn::String(name)) => Ok(name.to_string()),
        Some(other) => {
            let why = format!(":domain must be a string, not {other}");
            Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "opts"))
        }
    }
}

fn index_not_found(kind: &str, domain: &str) -> Fault {
    let why = format!("the {kind} index {domain:?} does not exist");
    Fault::new(Code::NotFound, why).with_hint("only a caller with write access creates an index")
}

/// Returns true if a server's store has a table.
fn has_table(store: &KvStore, table: &str) -> Result<bool, Fault> {
    let tables = store.tables()?;
    let tables = tables.as_sequence().unwrap_or_default();
    Ok(tables.iter().any(|own| own.as_str() == Some(table)))
}

impl KeyValueStore {
    /// Returns the store with the deadline and cancellation of a call.
    pub(crate) fn with_cancellation(&self, cancellation: &Cancellation) -> Self {
        match self {
            Self::Local(tables) => Self::Local(tables.clone()),
            Self::Remote(store) => Self::Remote(store.with_wait_limit(wait_limit(cancellation))),
        }
    }

    /// Returns the local tables, for operations that a server does not support.
    pub(crate) fn local(&self) -> Result<&Arc<TypedTables>, Fault> {
        match self {
            Self::Local(tables) => Ok(tables),
            Self::Remote(_) => {
                let why = "a remote server does not support this tool";
                Err(Fault::new(Code::InvalidRequest, why)
                    .with_hint("call datalevin_open_kv with dir to open a local folder")
                    .with(Detail::Field, "kv"))
            }
        }
    }

    /// Counts the entries in a range of keys.
    pub(crate) fn count(
        &self,
        table: &str,
        range: Edn,
        types: &KeyValueTypes,
    ) -> Result<u64, Fault> {
        let span = KeySpan::parse(range, &types.key.parsed)?;
        let counted = self.local()?.read(|snapshot| {
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

    /// Returns the number of keys before `key`; `None` if the key is absent.
    pub(crate) fn rank(
        &self,
        table: &str,
        key: Edn,
        types: &KeyValueTypes,
    ) -> Result<Option<u64>, Fault> {
        let key = types.key.parsed.convert(key)?;
        let found = self.local()?.read(|snapshot| match snapshot.plain(table)? {
            Some(table) => table.rank(&key),
            None => Ok::<_, rung_kv::Error>(None),
        });
        Ok(found?)
    }

    /// Returns the pair at this rank.
    pub(crate) fn by_rank(&self, table: &str, rank: u64) -> Result<Option<(Edn, Edn)>, Fault> {
        let found = self.local()?.read(|snapshot| {
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

    /// Returns the stored key and its value.
    pub(crate) fn get(
        &self,
        table: &str,
        key: Edn,
        types: &KeyValueTypes,
    ) -> Result<Option<(Edn, Edn)>, Fault> {
        let key = types.key.parsed.convert(key)?;
        let value = match self {
            Self::Local(tables) => tables.read(|snapshot| match snapshot.plain(table)? {
                Some(table) => table.get(&key),
                None => Ok(None),
            })?,
            Self::Remote(store) => {
                // A server creates a table when opening it, and cannot read one that is not open.
                if !has_table(store, table)? {
                    return Ok(None);
                }
                store.open_table(table, None)?;
                let value = store.get(table, &key, types.as_wire(), false)?;
                Some(value).filter(|value| !value.is_nil())
            }
        };
        Ok(value.map(|value| (key, value)))
    }

    /// Returns the pairs whose keys are in a range.
    pub(crate) fn range(
        &self,
        table: &str,
        range: &Edn,
        types: &KeyValueTypes,
        sink: &mut RowSink<'_>,
    ) -> Result<(), Fault> {
        let span = KeySpan::parse(range.clone(), &types.key.parsed)?;
        let store = match self {
            Self::Local(tables) => {
                let read = tables.read(|snapshot| {
                    let Some(table) = snapshot.plain(table)? else {
                        return Ok(());
                    };
                    for entry in table.range(&span)? {
                        let entry = entry?;
                        let (key, value) = (entry.key()?, entry.value()?);
                        if !sink.take(|| json!([to_json(&key), to_json(&value)])) {
                            break;
                        }
                    }
                    Ok::<_, rung_kv::Error>(())
                });
                return Ok(read?);
            }
            Self::Remote(store) => store,
        };
        if !has_table(store, table)? {
            return Ok(());
        }
        store.open_table(table, None)?;
        let mut parts = range.as_sequence().unwrap_or_default().to_vec().into_iter();
        let mut range: Vec<Edn> = parts.next().map(to_keyword).into_iter().collect();
        for bound in parts {
            range.push(types.key.parsed.convert(bound)?);
        }
        let each = |pair| sink.flow(|| to_json(&pair));
        Ok(store.range(table, &Edn::Vector(range), types.as_wire(), each)?)
    }

    /// Applies all changes or none.
    pub(crate) fn transact(
        &self,
        table: Option<&str>,
        changes: Vec<Edn>,
        types: &KeyValueTypes,
    ) -> Result<(), Fault> {
        let ops = TableOp::parse_all(
            changes.clone(),
            table,
            &types.key.parsed,
            &types.value.parsed,
        )?;
        let store = match self {
            Self::Local(tables) => return Ok(tables.transact(&ops)?),
            Self::Remote(store) => store,
        };
        let mut opened: Vec<&str> = Vec::new();
        for op in &ops {
            if !opened.contains(&&*op.table) {
                store.open_table(&op.table, None)?;
                opened.push(&op.table);
            }
        }
        // The operation and the types are keywords; the parts between are data.
        let types_at = if table.is_some() { 3 } else { 4 };
        let told = |change: Edn| {
            let parts = change.as_sequence().unwrap_or_default().iter().enumerate();
            let parts = parts.map(|(at, part)| match at {
                0 => to_keyword(part.clone()),
                at if at >= types_at => to_keyword(part.clone()),
                _ => part.clone(),
            });
            Edn::Vector(parts.collect())
        };
        let changes: Vec<Edn> = changes.into_iter().map(told).collect();
        Ok(store.transact(table, &changes, types.as_wire())?)
    }

    /// Opens a full-text index of the store, creating it if `create`.
    pub(crate) fn texts(&self, mut options: Map, create: bool) -> Result<TextSearchIndex, Fault> {
        let given = options.clone();
        let domain = take_domain(&mut options)?;
        match self {
            Self::Local(tables) => {
                let options = TextOptions::from_edn(&Edn::Map(options))?;
                let index = if create {
                    TextIndex::create(tables.kv(), &domain, options)?
                } else {
                    let found = TextIndex::open(tables.kv(), &domain)?;
                    found.ok_or_else(|| index_not_found("search", &domain))?
                };
                Ok(TextSearchIndex::Local(tables.clone(), index))
            }
            Self::Remote(store) => {
                if !create && !has_table(store, &format!("{domain}/docs"))? {
                    return Err(index_not_found("search", &domain));
                }
                let index = SearchEngine::open(store.clone(), Some(given))?;
                Ok(TextSearchIndex::Remote(index))
            }
        }
    }

    /// Opens a vector index of the store, creating it if `create`.
    pub(crate) fn vectors(
        &self,
        mut options: Map,
        create: bool,
    ) -> Result<VectorSearchIndex, Fault> {
        let given = options.clone();
        let domain = take_domain(&mut options)?;
        match self {
            Self::Local(tables) => {
                let options = VectorOptions::read(&Edn::Map(options))?;
                let index = VectorIndex::open(tables.kv(), &domain, Some(&options), create)?;
                let index = index.ok_or_else(|| index_not_found("vector", &domain))?;
                Ok(VectorSearchIndex::Local(tables.clone(), index))
            }
            Self::Remote(store) => {
                if !create && !has_table(store, &format!("{domain}/vec-refs"))? {
                    return Err(index_not_found("vector", &domain));
                }
                let index = rung_dtlv::VectorIndex::open(store.clone(), given)?;
                Ok(VectorSearchIndex::Remote(index))
            }
        }
    }
}
