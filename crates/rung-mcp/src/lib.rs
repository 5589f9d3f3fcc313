//! The MCP envelope: both generations of the protocol, over stdio and Streamable HTTP.
//!
//! Owns: the JSON-RPC envelope, versions and eras, sessions, streams, tasks, what clients carry between requests,
//! and who is let in at the door. Refuses to know: what the tools do.
//!
//! The laws it keeps: what is inside a message passes byte for byte; a session, a task, a cursor or a state is
//! its caller's and is checked on every use; bad input is refused with the number the protocol has for it, and
//! never ends a connection that others use; a client that is slow or gone costs a bounded amount of memory.

mod client;
pub mod connect;
mod envelope;
mod exchange;
mod headers;
mod held;
pub mod http;
mod methods;
mod metrics;
mod oversized;
mod refusal;
mod remote;
mod seal;
mod server;
mod session;
pub mod splice;
pub mod stdio;
mod tasks;
mod version;

pub use client::{Capabilities, Wanted};
pub use envelope::{Id, MAX_MESSAGE_BYTES, Malformed, Message};
pub use remote::{ForPeer, Remote};
pub use seal::SealKey;
pub use server::{Instructions, Offer, Server};
pub use tasks::TaskStore;
pub use version::Version;
