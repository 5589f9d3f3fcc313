//! What carries messages to a server and back.

use std::sync::Arc;

use rung_tool::Pending;

use super::board::{Delegate, Outcome};
use super::error::Failure;
use crate::version::Version;

/// A request on its way out.
pub(super) struct Sent<'a> {
    pub(super) id: u64,
    pub(super) method: &'a str,
    pub(super) message: Vec<u8>,
    /// What it was written with, for whoever must say parts of it again.
    pub(super) params: Option<&'a str>,
    /// Headers that repeat arguments.
    pub(super) headers: Vec<(String, String)>,
    /// Who hears what is said on the way to the answer.
    pub(super) delegate: Option<Arc<dyn Delegate>>,
}

/// A way to one server.
pub(super) trait Wire: Send + Sync {
    /// Sends a request and waits for its answer. Dropped, it no longer waits, and says so to the server where that is
    /// the way to say it.
    fn exchange<'a>(&'a self, sent: Sent<'a>) -> Pending<'a, Result<Outcome, Failure>>;

    /// Sends what has no answer.
    fn tell(&self, message: Vec<u8>) -> Pending<'_, Result<(), Failure>>;

    /// From now on this version is spoken.
    fn agreed(&self, version: Version);

    /// Agreement is over: whatever belongs to no request may come from now on.
    fn ready(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Whether a request that is no longer wanted is taken back by a message.
    fn hears_cancelling(&self) -> bool {
        true
    }

    /// Whether anything can still come of it.
    fn is_open(&self) -> bool;

    /// The last the server said beside the protocol.
    fn last_words(&self) -> String {
        String::new()
    }

    /// Nobody will use it any more.
    fn let_go(&self) {}

    /// Ends it, in good order as far as the server lets us.
    fn close(&self) -> Pending<'_, ()>;
}
