//! Authentication, permits, and secrets.
//!
//! Owns: [`Permit`], which every service requires and only this crate creates; [`Scope`], which lists what a grant names;
//! [`Secret`], which does not print; [`Token`]s and their stored hashes. Refuses to know: tools, and where records or
//! tokens are stored.
//!
//! The law it keeps: a caller has a `Permit` only with evidence: the process runs as the
//! local user ([`Permit::local_user`]), or the caller sent a token whose hash is on record ([`admit`]).
//! [`Permit::anonymous`] needs no evidence and only reads.

mod error;
mod password;
mod permit;
mod scope;
mod secret;
mod token;

pub use error::{Error, Result};
pub use password::Password;
pub use permit::{Access, Caller, GrantId, Permit, SHARED_TOKEN_GRANT, TOKEN_GRANT};
pub use scope::{DatabaseGrant, Pattern, Scope, ServerGrant};
pub use secret::Secret;
pub use token::{Token, TokenHash, TokenRecord, admit};
