//! Search indexes in tables of the store.
//!
//! Owns: full-text indexes ([`text`]), and nearest-neighbour indexes of [`vectors`]. Refuses to know: what a
//! reference refers to, where vectors come from, Datalog, tools.
//!
//! The laws it keeps: an index is changed within the caller's transaction, whole or not at all, and read on the
//! caller's snapshot; the results of a text query depend on the documents, not on the history of the index; and a removed
//! document or vector is never found.

mod error;
pub mod text;
pub mod vectors;

pub use error::{Error, Result};
