//! The store: LMDB under the data folder, and the results that are kept there.
//!
//! Owns: the data folder ([`Home`]), the key-value [`Store`] with its growth, its format version and its
//! place among other processes, and the [`ResultStore`] upon it; folders of tables of sorted bytes ([`Kv`]), values as bytes in
//! their order ([`encode`]), and tables of values of types, plain or of lists, read by ranges and written in transactions ([`typed`]).
//! Refuses to know: Datalog, search, tools.
//! No other crate names the storage engine.
//!
//! The laws it keeps: what was acknowledged is on disk; a crash leaves the old state or the new one; and
//! a result is read by whoever stored it, under the same grant, or it is not there.

pub mod encode;
mod error;
mod home;
mod kv;
#[cfg(unix)]
mod presence;
#[cfg(unix)]
mod private;
mod records;
mod results;
mod store;
pub mod typed;

pub use error::{Error, Failure, Result};
pub use home::Home;
pub use kv::{Batch, Kv, KvOptions, MAX_KEY_BYTES, Pair, Pairs, Table, View};
#[cfg(unix)]
pub use presence::Presence;
pub use records::Records;
pub use results::{Incoming, ResultStore, Stored};
pub use store::{Options, Store};
