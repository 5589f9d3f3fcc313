//! The other side: a command that asks a provider for access, and keeps what it was given.
//!
//! Owns: finding out where access is asked for, waiting for the owner, the file that credentials are kept in, and
//! getting a new token before the old one ends. Refuses to know: what is read with it.

mod cache;
mod flow;
mod provider;
mod refresh;

pub use cache::{Cache, Cached, ClientKept, Credential};
pub(crate) use cache::{is_owner, owner_token, written};
pub use flow::{Ask, Connected, Waiting, connect};
pub use provider::provider_url;
pub(crate) use refresh::ends_soon;
pub use refresh::{fresh, kept, revoke, schema};
