//! What records promise, on both stores: every test here runs on SQLite and on PostgreSQL.

mod aggregate;
mod blobs;
mod changes;
mod grants;
mod ingest;
mod list;
mod search;
mod stores;
mod support;
mod window;
