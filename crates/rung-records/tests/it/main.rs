//! Tests of the record service. Each runs on SQLite and on PostgreSQL.

#![allow(
    clippy::unwrap_used,
    clippy::too_many_lines,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::naive_bytecount,
    clippy::needless_pass_by_value,
    clippy::default_trait_access
)]

mod aggregate;
mod authority;
mod blobs;
mod changes;
mod grants;
mod ingest;
mod list;
mod maintenance;
mod search;
mod shared;
mod stores;
mod support;
mod surrogates;
mod time;
mod window;
