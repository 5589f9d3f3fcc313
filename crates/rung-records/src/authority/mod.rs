//! Authorization requests: what a client requests, what the owner decides, and the tokens issued for it.
//!
//! Each request is an [`AuthorizationRequest`] with a [`Delivery`]. All four deliveries share one decision: an OAuth
//! redirect, a device code, a polling command and a pushed request (PAR) differ only in how the client gets the result.
//!
//! Law: an approval issues exactly once. A decision and everything it creates are one transaction, and so is the
//! redemption of a code or the collection of a token.

mod authorization_detail;
mod authorization_request;
mod clients;
mod consent_options;
mod decision;
mod introspect;
mod issue;
mod owner;
mod preview;
mod redemption;

pub use authorization_detail::{AuthorizationDetail, DETAILS_TYPE, RequestedStream};
pub use authorization_request::{
    ApprovalResponse, ApprovedRequest, AuthorizationRequest, Delivery, DeniedRequest,
    NewAuthorizationRequest, PendingRequest, PollResult, RequestedAccess,
};
pub use clients::{ClientMetadata, PRE_REGISTERED};
pub use consent_options::{ConsentSource, ConsentStream};
pub use decision::{ConsentChoice, ConsentDecision, Review, SourceSelection};
pub use introspect::Introspection;
pub use issue::{IssuedToken, TokenKind};
pub(crate) use issue::{NewToken, insert_grant, insert_token};
pub use owner::{NewOwnerSession, SESSION_MS};
pub use preview::{SampleRecord, StreamPreview};
pub use redemption::Redemption;
