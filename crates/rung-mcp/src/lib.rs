//! The MCP protocol, client and server, in its legacy and modern versions, over stdio and Streamable HTTP.
//!
//! Owns: the JSON-RPC envelope, protocol versions, sessions, streams, tasks, the sealed state that clients carry
//! between requests, and the admission checks of HTTP. Refuses to know: what the tools do.
//!
//! The laws it keeps: the contents of a message pass byte for byte; a session, a task, a cursor or a request state
//! belongs to its caller and is checked on every use; invalid input is rejected with the protocol's error code and
//! never ends a connection that others use; a client that is slow or gone costs a bounded amount of memory.

mod client;
mod client_profile;
pub mod connect;
mod envelope;
mod headers;
pub mod http;
mod id_scanner;
mod methods;
mod metrics;
mod protocol_error;
mod remote;
mod request_context;
mod seal;
mod server;
mod session;
pub mod stdio;
mod suspended;
mod tasks;
mod version;

pub use client::{Capabilities, SubscriptionFilter};
pub use envelope::{MAX_MESSAGE_BYTES, MalformedMessage, Message, RequestId};
pub use remote::{DownstreamToolSource, PeerDelegate};
pub use seal::SealKey;
pub use server::{CallDeadlines, Instructions, McpServer, ServerConfig};
pub use tasks::TaskStore;
pub use version::ProtocolVersion;
