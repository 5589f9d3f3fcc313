//! The call history: the last completed calls, each visible to its owner only.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rung_fault::Fault;

use crate::calls::{ActiveCall, CallOwner};
use crate::redact::CallerRedactor;
use crate::tools::shorten;

/// Bounds: calls kept, bytes of a tool's id, characters of an error.
const MAX_CALLS: usize = 256;
const MAX_ID_BYTES: usize = 512;
const ERROR_CHARS: usize = 160;

#[derive(Clone)]
pub(crate) struct CompletedCall {
    pub(crate) call: Arc<ActiveCall>,
    pub(crate) duration: Duration,
    /// Fault code and shortened message, with secrets masked.
    pub(crate) error: Option<(&'static str, String)>,
}

#[derive(Default)]
pub(crate) struct CallHistory(Mutex<VecDeque<CompletedCall>>);

impl CallHistory {
    pub(crate) fn record(
        &self,
        call: &Arc<ActiveCall>,
        lasted: Duration,
        fault: Option<&Fault>,
        masks: CallerRedactor<'_>,
    ) {
        // A caller can send a tool id of any length.
        if call.tool_id.len() > MAX_ID_BYTES {
            return;
        }
        let words = |fault: &Fault| shorten(&masks.redact_text(fault.message()), ERROR_CHARS);
        let over = CompletedCall {
            call: call.clone(),
            duration: lasted,
            error: fault.map(|fault| (fault.code().name(), words(fault))),
        };
        let mut all = self.0.lock();
        if all.len() == MAX_CALLS {
            all.pop_front();
        }
        all.push_back(over);
    }

    /// Returns the owner's calls that `wanted` accepts, newest first.
    pub(crate) fn list(
        &self,
        owner: &CallOwner,
        wanted: impl Fn(&ActiveCall) -> bool,
    ) -> Vec<CompletedCall> {
        let all = self.0.lock();
        let own = all.iter().rev();
        own.filter(|over| over.call.owner == *owner && wanted(&over.call))
            .cloned()
            .collect()
    }
}
