//! Databases as MCP tools.
//!
//! Owns: the `datalevin_*` and `rung.db_*` tools with their arguments, envelopes and truncation records, values as JSON
//! ([`json`]), the open databases of each caller, and results that begin with their first rows while the whole result is
//! stored. A database is local (a folder) or remote (a server), and no tool knows which: `database`, `store`,
//! `texts` and `vectors` do. Refuses to know: how facts are stored and queries evaluated, MCP, and where results are
//! stored.
//!
//! The laws it keeps: without write access nothing is created or changed, not even by opening; a committed change is never
//! reported as a failure; no output contains a password; a result that does not fit into a reply can be read to its end
//! from one snapshot.

mod context;
mod database;
mod handles;
pub mod json;
mod named;
mod remote;
mod row_sink;
mod stop;
mod store;
mod texts;
mod tools;
mod vectors;

pub use named::{DatabaseAudience, NamedDatabase, StoreKind};
pub use remote::RemoteServer;
pub use tools::{Options, Tools};
