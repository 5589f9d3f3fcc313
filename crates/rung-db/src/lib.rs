//! Databases as tools that agents call, under the names that they are known by.
//!
//! Owns: the `datalevin_*` tools with their arguments, envelopes and truncation records, values as JSON ([`json`]), what is open for whom,
//! and answers that begin with their first rows while all of them are kept ([`page`]). What is open is in a folder or on a server
//! elsewhere, and no tool knows which: `database`, `store`, `texts` and `vectors` do. Refuses to know: how facts are kept and
//! queries answered, MCP, and where results are kept.
//!
//! The laws it keeps: without leave to write nothing is made or changed, not even by opening; what was committed is never answered as a
//! failure; a password is in nothing that is said; and what does not fit into a reply can be read to its end, as it was at one moment.

mod asking;
mod database;
mod elsewhere;
pub mod json;
mod known;
mod open;
pub mod page;
mod shape;
mod stop;
mod store;
mod taker;
mod texts;
mod tools;
mod vectors;

pub use elsewhere::Place;
pub use known::{Holds, Known, OpenTo};
pub use tools::{Limits, Options, Tools};
