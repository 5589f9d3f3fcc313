//! A client for databases on a Datalevin server, over Datalevin's own protocol.
//!
//! Owns: the address [`DtlvUrl`] (`dtlv://…`), the value encoding ([`nippy`]), the [`DtlvSession`] with its connection pool, and
//! the operations of [`DtlvDatabase`], [`KvStore`], [`SearchEngine`] and [`VectorIndex`]. Refuses to know: tools, and Rung's own
//! store.
//!
//! The laws it keeps: whatever a server sends, nothing panics, exceeds its size limit or its deadline; a password appears in no
//! error and no `Debug`; a read whose response is lost is repeated once, a write never.

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
mod url;
mod vector;

pub use connection::WaitLimit;
pub use database::{DatabaseInfo, DtlvDatabase, TxReport};
pub use datom::{Datom, DatomIndex, DatomPattern};
pub use error::{Error, Result};
pub use kv::KvStore;
pub use search::SearchEngine;
pub use session::{DtlvSession, Options, QueryAnswer};
pub use url::{DtlvStoreKind, DtlvUrl};
pub use vector::VectorIndex;
