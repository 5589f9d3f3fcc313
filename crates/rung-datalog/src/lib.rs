//! A database of datoms: facts of the form *entity, attribute, value*, kept on disk, changed in transactions, asked by Datalog.
//!
//! Owns: the schema, how datoms are kept, transactions, index access, pull, and queries with their closed table of functions.
//! Refuses to know: MCP, files other than the store's own, and the host: a query cannot reach it.
//!
//! The laws it keeps: a transaction is done whole or not at all, and is on disk when it is reported; whatever reads sees
//! one moment; and the same query has the same answer whatever the plan.

mod alter;
mod coerce;
mod datom;
mod db;
mod document;
mod embedding;
mod error;
mod index;
mod likeness;
mod pull;
mod query;
mod sample;
mod schema;
mod transact;

pub use datom::{Datom, Entity};
pub use db::{Db, Moment, Options, Sight};
pub use embedding::{Embed, Purpose};
pub use error::{Error, Result};
pub use index::{Order, Reach};
pub use query::{Answer, Bounds, Head, Step};
pub use schema::{Attribute, Schema, Tuple, Type, Unique};
pub use transact::Report;
