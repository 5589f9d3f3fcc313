//! Who may come through the door, and what must never be seen there.
//!
//! Owns: [`Permit`], which every service asks for and only this crate makes; [`Scope`], which says what it names;
//! [`Secret`], which does not print; [`Token`]s and the hashes that are kept of them. Refuses to know: tools, and where records or
//! tokens are stored.
//!
//! The law it keeps: no `Permit` without evidence. There are two kinds of it: the process runs as the
//! local user ([`Permit::local_user`]), or a caller showed a token whose hash is on record ([`admit`]).

mod error;
mod password;
mod permit;
mod scope;
mod secret;
mod token;

pub use error::{Error, Result};
pub use password::Password;
pub use permit::{Access, Caller, GIVEN, GrantId, Permit, TOKEN_GRANT};
pub use scope::{OfDatabase, OfServer, Pattern, Scope};
pub use secret::Secret;
pub use token::{Token, TokenHash, TokenRecord, admit};
