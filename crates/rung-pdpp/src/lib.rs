//! Personal data over HTTP: the `/v1` routes of a PDPP resource server, and the authorization server with its pages.
//!
//! Owns: parameters, envelopes, headers and statuses, as the contract has them, and what the owner sees. Refuses to know: SQL,
//! what a grant lets through, and what is decided; that is done beneath, for every surface.

mod answer;
mod authority;
pub mod connect;
mod foreign;
mod metrics;
mod params;
mod routes;
mod service;
pub mod tools;

pub use authority::router as authority;
pub use foreign::Foreign;
pub use routes::router;
pub use service::{Authority, Config, Service};
