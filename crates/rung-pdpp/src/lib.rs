//! Personal data over HTTP: the `/v1` routes of a PDPP resource server, and the authorization server with its pages.
//!
//! Owns: parameters, envelopes, headers and statuses, as the PDPP contract defines them, and the owner's pages. Refuses to know:
//! SQL, what a grant allows, and how consent is decided; `rung_records` does that for every surface.

mod authority;
pub mod connect;
mod envelope;
mod introspection;
mod metrics;
mod params;
mod routes;
mod service;
pub mod tools;

pub use authority::router as authority;
pub use introspection::RemoteIntrospection;
pub use routes::router;
pub use service::{AuthorizationServer, Service, ServiceConfig};
