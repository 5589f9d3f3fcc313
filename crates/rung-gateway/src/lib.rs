//! Other MCP servers behind one door.
//!
//! Owns: which servers there are and how they are reached, what each of them offers and has been seen to offer, who may see
//! what of it, the calls and tasks under way, and the `gateway.*` tools. Refuses to know: which source is ours, and how a
//! caller reached us.
//!
//! The laws it keeps: what is not listed is not found, not described and not called, by one decision; what a server says goes on
//! as it came, or is kept whole; a server that does not answer delays nobody but those who ask it.

mod answer;
mod auth;
mod calls;
mod candidate;
mod catalogue;
mod commands;
pub mod config;
mod definition;
mod direct;
mod gateway;
mod guidance;
mod heard;
mod invoke;
mod lately;
mod manifest;
mod metrics;
pub mod policy;
mod prompts;
pub mod ranking;
pub mod redact;
mod registry;
mod resources;
mod seen;
mod server;
mod sight;
mod tasks;
mod template;
mod tools;
mod work;

pub use auth::SignIn;
pub use definition::{Definition, Withheld};
pub use direct::{Direct, Surface};
pub use gateway::{Configuration, Configure, Gateway, Options, Report, Row, Skipped};
pub use guidance::Guidance;
pub use prompts::Prompts;
pub use resources::Resources;
pub use seen::Risk;
pub use sight::{Decision, OpenTo, Rules};
pub use tools::{Tools, names};

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
