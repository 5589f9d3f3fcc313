//! Anything that offers tools: our own boxes, and other servers.

use std::pin::Pin;
use std::time::Instant;

use rung_auth::Permit;
use rung_fault::Fault;
use rung_ladder::Budget;
use serde_json::Value;

use crate::card::Card;
use crate::reply::{Rendering, Reply};

/// An answer that is not there yet.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Who calls, and what the answer may cost.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who, and what they may do.
    pub permit: Permit,
    /// The bound of the reply.
    pub budget: Budget,
    /// The forms the caller can read.
    pub rendering: Rendering,
    /// When the answer is no longer wanted.
    pub deadline: Option<Instant>,
}

impl Call {
    /// A call with the usual budget, every rendering and no deadline.
    pub fn new(permit: Permit) -> Self {
        Self {
            permit,
            budget: Budget::default(),
            rendering: Rendering::default(),
            deadline: None,
        }
    }
}

/// A place where tools come from.
///
/// What a permit may not use is absent from all three: not listed, not described, not called, and
/// reported as a name that does not exist.
pub trait ToolSource: Send + Sync {
    /// The tools that `permit` may use, always in the same order.
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<Card>, Fault>>;

    /// One of them.
    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> Pending<'a, Result<Card, Fault>>;

    /// Calls one. What goes wrong is in the reply.
    fn call<'a>(&'a self, call: &'a Call, name: &'a str, arguments: Value) -> Pending<'a, Reply>;
}
