//! Databases on a Datalevin server, over its own protocol.
//!
//! Owns: [`Target`] (`dtlv://…`), the values on the wire ([`nippy`]), the [`Session`] with its few connections, and what can be asked:
//! [`Database`], [`KvStore`], [`SearchEngine`], [`VectorIndex`]. Refuses to know: tools, and how facts are kept here.
//!
//! The laws it keeps: whatever a server sends, nothing panics, takes more than its bound, or lasts longer than its time; a password
//! is in no error and no `Debug`; a read is asked again once where its answer was lost, and a write never is.

mod connection;
mod database;
mod datom;
mod error;
mod frame;
mod kv;
mod message;
pub mod nippy;
mod pool;
mod search;
mod session;
mod target;
mod vector;

pub use connection::Patience;
pub use database::{Database, Info, Report};
pub use datom::{Datom, Index, Pattern};
pub use error::{Error, Result};
pub use kv::KvStore;
pub use search::SearchEngine;
pub use session::{Answer, Options, Session};
pub use target::{Store, Target};
pub use vector::VectorIndex;
