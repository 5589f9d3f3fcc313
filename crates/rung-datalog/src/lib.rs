//! A database of datoms: facts of the form *entity, attribute, value*, stored on disk, changed in transactions, queried in
//! Datalog.
//!
//! Owns: the schema, the storage of datoms, transactions, index access, pull, and queries with their closed table of functions.
//! Refuses to know: MCP, files other than the store's own, and the host, which a query cannot reach.
//!
//! The laws it keeps: a transaction is atomic, and is on disk when it is reported; every read sees one snapshot; and the result
//! of a query does not depend on its plan.

mod alter;
mod coerce;
mod datom;
mod db;
mod document;
mod embedding;
mod error;
mod index;
mod pull;
mod query;
mod sample;
mod schema;
mod search_indexes;
mod transact;

pub use datom::{Datom, Entity};
pub use db::{AttributeFilter, Db, DbOptions, Snapshot};
pub use embedding::{Embed, Purpose};
pub use error::{Error, Result};
pub use index::{IndexOrder, IndexScan};
pub use query::{Bounds, PlanStep, QueryResult, QueryResultHeader, read_query};
pub use schema::{Attribute, Schema, Tuple, Type, Unique};
pub use transact::TransactionResult;
