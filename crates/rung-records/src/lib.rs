//! Personal data: what sources declare, what was collected from them, and who may see what of it.
//!
//! Owns: declarations, connections, streams, records with their versions, blobs, connectors' states, grants and tokens as
//! stored facts, the change log, search by words; one service over two SQL stores. Refuses to know: HTTP and MCP.
//!
//! Two laws. Everything that is read goes through a [`Bearer`] and what it may see (`scope`), so no surface can forget
//! a grant. And every version of a record is kept with the version that followed it (`until`), so that a moment of a
//! stream can be read again: pages, changes and counts are of one moment, however much is written meanwhile.

mod aggregate;
pub mod authority;
mod blobs;
mod bookmark;
mod changes;
mod connections;
pub mod declaration;
mod disclosure;
mod document;
mod erase;
mod error;
mod expand;
mod filter;
pub mod grant;
mod ingest;
pub mod key;
mod page;
mod reading;
mod records;
mod schema;
mod scope;
mod search;
mod shared;
mod state;
pub mod store;
mod tend;
mod tokens;
mod window;
mod write;

pub use aggregate::{Aggregate, Granularity, Metric};
pub use blobs::{Blob, BlobUpload};
pub use changes::{Changes, ChangesQuery};
pub use connections::ConnectionChange;
pub use disclosure::{Disclosure, Journal};
pub use document::{digest, digest_bytes};
pub use erase::Erased;
pub use error::{Candidate, Error, Result, candidates_json};
pub use filter::Filter;
pub use ingest::{Ingest, Ingested, Rejection, Target};
pub use page::{Count, ExpandQuery, ListQuery, Order, Page, RecordQuery};
pub use records::{Clock, Options, Records};
pub use schema::SchemaQuery;
pub use scope::{Bearer, Choice, Connection};
pub use search::{Found, SearchQuery};
pub use shared::{SharedResult, SharedResults};
pub use tend::{Progress, Tended};
pub use tokens::{Agent, GivenGrant, GrantRequest, Member, OwnToken, TokenRegistry};
pub use window::{FieldWindow, MAX_CHARS, MAX_CONTEXT_CHARS, WindowQuery, WindowSelector};
