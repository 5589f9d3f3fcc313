//! Personal data: source declarations, collected records, and the grants that clients read them under.
//!
//! Owns: declarations, connections, streams, versioned records, blobs, connector state, grants and tokens, the change
//! log and full-text search; one service over two SQL stores. Refuses to know: HTTP and MCP.
//!
//! Two laws. Every read takes a [`Bearer`] and applies its `scope`, so that no interface can bypass a grant. Every
//! version of a record is kept, with the version that superseded it (`until`), so that pages, changes and counts read
//! one consistent state while writes continue.

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
mod field_window;
mod filter;
pub mod grant;
mod ingest;
pub mod key;
mod maintenance;
mod page;
mod records;
mod scan;
mod schema;
mod scope;
mod search;
mod shared;
mod state;
pub mod store;
mod tokens;
mod write;

pub use aggregate::{AggregateQuery, Granularity, Metric};
pub use blobs::{Blob, BlobUpload};
pub use changes::{ChangesPage, ChangesQuery};
pub use connections::ConnectionChange;
pub use disclosure::{Disclosure, DisclosureJournal};
pub use document::{digest, digest_bytes};
pub use erase::EraseReport;
pub use error::{ConnectionCandidate, Error, Result, candidates_json, similar_names};
pub use field_window::{
    FieldWindow, MAX_CONTEXT_CHARS, MAX_WINDOW_CHARS, WindowQuery, WindowSelector,
};
pub use filter::RecordFilter;
pub use ingest::{IngestReport, Ingestion, LineRejection, StreamTarget, json_error_text};
pub use maintenance::{BuildProgress, MaintenanceReport};
pub use page::{CountMode, ExpandQuery, ListQuery, RecordPage, RecordQuery, SortOrder};
pub use records::{Clock, Records, RecordsOptions};
pub use schema::SchemaQuery;
pub use scope::{Bearer, ConnectionFilter, SourceConnection};
pub use search::{SearchPage, SearchQuery};
pub use shared::{SharedResult, SharedResults};
pub use tokens::{
    AuthenticatedAgent, GrantRequest, IssuedGrant, PermitGrant, StoredOwnerToken, TokenRegistry,
};
