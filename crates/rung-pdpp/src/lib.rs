//! Personal data over HTTP: the `/v1` routes of a PDPP resource server.
//!
//! Owns: parameters, envelopes, headers and statuses, as the contract has them. Refuses to know: SQL, and what a grant lets
//! through; that is decided beneath, for every surface.

mod answer;
mod metrics;
mod params;
mod routes;
mod service;

pub use routes::router;
pub use service::{Config, Service, Source};
