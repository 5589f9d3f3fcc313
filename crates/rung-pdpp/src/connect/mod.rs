//! The client side: requests access from a provider and caches the credential.
//!
//! Owns: discovery, waiting for the owner's consent, the credential cache on disk, and refreshing a token before it expires.
//! Refuses to know: what is read with the token.

mod cache;
mod flow;
mod provider;
mod refresh;

pub use cache::{CachedGrant, ClientRegistration, Credential, CredentialCache};
pub(crate) use cache::{file_stamp, is_owner_schema, owner_token_fault};
pub use flow::{ConnectOutcome, ConnectRequest, PendingApproval, connect};
pub(crate) use provider::describe_failure;
pub use provider::normalize_provider_url;
pub(crate) use refresh::expires_soon;
pub use refresh::{cached_grant, fetch_schema, fresh_grant, revoke};
