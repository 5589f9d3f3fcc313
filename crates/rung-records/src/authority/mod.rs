//! Who asks the owner for access, what the owner decides, and what becomes of it.
//!
//! Whoever asks leaves a [`Petition`]: what is asked for, and how the answer goes back. There are four ways for it to
//! go back and one way to decide, so an application's redirect, a device's code, a command that polls and a request
//! that was pushed are all the same thing here.
//!
//! The law: approved means issued, once. A decision and everything that it makes are one transaction; what is given out
//! for it, a code or a token, is taken by one transaction too.

mod ask;
mod clients;
mod decide;
mod exchange;
mod introspect;
mod issue;
mod offer;
mod owner;
mod petition;
mod preview;

pub use ask::{Ask, AskedStream, DETAILS_TYPE};
pub use clients::{ClientCard, PRE_REGISTERED};
pub use decide::{Choice, Decision, Narrowed, Review};
pub use exchange::Redeemed;
pub use introspect::Introspected;
pub(crate) use issue::{Fresh, insert_grant, insert_token};
pub use issue::{Holder, Issued};
pub use offer::{OfferedSource, OfferedStream};
pub use owner::{SESSION_MS, Session};
pub use petition::{Approved, Collected, Denied, Filed, Filing, Handed, Petition, Wanted, Way};
pub use preview::{Sample, StreamPreview};
