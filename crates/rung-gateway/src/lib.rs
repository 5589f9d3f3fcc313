//! Downstream MCP servers behind one gateway.
//!
//! Owns: the configured servers and how they are reached, the catalog of what each offers, which callers may reach which of
//! it, active calls and tasks, and the `gateway.*` tools. Refuses to know: which sources are local, and over which transport
//! a caller came.
//!
//! The laws it keeps: one access decision governs listing, search, description and calls; a server's result is forwarded
//! unchanged or stored whole; a server that does not answer delays only the callers of that server.

mod access;
mod answer;
mod auth;
mod call_history;
mod calls;
mod candidate;
mod catalog;
mod catalog_store;
mod cli_hints;
pub mod config;
mod definition;
mod delegate;
mod direct;
mod gateway;
mod guidance;
mod invoke;
mod manifest;
mod metrics;
mod owned_work;
pub mod policy;
mod prompts;
pub mod ranking;
pub mod redact;
mod registry;
mod resources;
mod server;
mod tasks;
mod tools;
mod uri_template;

pub use access::{AccessDecision, AccessPolicy, HttpAccess};
pub use auth::SignIn;
pub use catalog::Risk;
pub use definition::{ServerDefinition, WithheldReason};
pub use direct::{DirectTools, Surface};
pub use gateway::{
    Configuration, Gateway, GatewayOptions, LoadConfiguration, ServerReport, SkippedServer,
    StatusReport,
};
pub use guidance::Guidance;
pub use prompts::DownstreamPrompts;
pub use resources::DownstreamResources;
pub use tools::{Tools, names};

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
