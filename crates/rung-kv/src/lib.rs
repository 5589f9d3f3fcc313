//! The store: LMDB in the data folder, and the results that are stored there.
//!
//! Owns: the data folder ([`Home`]), the key-value [`Store`] with its growth, its format version and its
//! sharing among processes, and the [`ResultStore`] on it; folders of tables of sorted bytes ([`Kv`]), an order-preserving
//! encoding of values ([`encode`]), and typed tables of values or lists, read by ranges and written in transactions ([`typed`]).
//! Refuses to know: Datalog, search, tools.
//! No other crate names the storage engine.
//!
//! The laws it keeps: an acknowledged write is on disk; a crash leaves the old state or the new one; and
//! a result is readable only by the caller that stored it, under the same grant.

pub mod encode;
mod error;
mod home;
mod kv;
#[cfg(unix)]
mod permissions;
#[cfg(unix)]
mod presence;
mod records;
mod results;
mod store;
pub mod typed;

pub use error::{Error, Failure, Result};
pub use home::Home;
pub use kv::{Batch, Kv, KvOptions, MAX_KEY_BYTES, Pair, Pairs, Table, View};
#[cfg(unix)]
pub use presence::Presence;
pub use records::RecordTable;
pub use results::{ResultReader, ResultStore, ResultWriter};
pub use store::{Options, Store};
