//! Databases as tools that agents call, under the names that they are known by.
//!
//! Owns: the `datalevin_*` tools with their arguments, envelopes and truncation records, values as JSON ([`json`]), what is open for whom,
//! and answers that begin with their first rows while all of them are kept ([`page`]). Refuses to know: how facts are kept and
//! queries answered, MCP, and where results are kept.
//!
//! The laws it keeps: without leave to write nothing is made or changed, not even by opening; what was committed is never answered as a
//! failure; and what does not fit into a reply can be read to its end, as it was at one moment.

pub mod json;
mod open;
pub mod page;
mod shape;
mod tools;

pub use tools::{Limits, Options, Tools};
