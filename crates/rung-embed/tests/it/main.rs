//! Embeddings by generated models and by faulty endpoints.
#![allow(clippy::unwrap_used)]

mod bert;
mod endpoint;
mod fixture;
mod import;
mod real;
mod table;
