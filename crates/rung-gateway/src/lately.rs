//! The last calls that ended, each for whoever made it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rung_fault::Fault;

use crate::calls::{Begun, Owner};
use crate::redact::Masks;
use crate::tools::short;

/// Calls that are remembered, bytes of a tool's id, and characters of what went wrong.
const MOST: usize = 256;
const MAX_ID_BYTES: usize = 512;
const ERROR_CHARS: usize = 160;

/// A call that has ended.
#[derive(Clone)]
pub(crate) struct Over {
    pub(crate) call: Arc<Begun>,
    pub(crate) lasted: Duration,
    /// What went wrong, in a word and in a few: those of a server, without its secrets.
    pub(crate) failed: Option<(&'static str, String)>,
}

/// The last calls that ended.
#[derive(Default)]
pub(crate) struct Lately(Mutex<VecDeque<Over>>);

impl Lately {
    pub(crate) fn note(
        &self,
        call: &Arc<Begun>,
        lasted: Duration,
        fault: Option<&Fault>,
        masks: Masks<'_>,
    ) {
        // A caller may ask for a tool by any name.
        if call.tool_id.len() > MAX_ID_BYTES {
            return;
        }
        let words = |fault: &Fault| short(&masks.text(fault.message()), ERROR_CHARS);
        let over = Over {
            call: call.clone(),
            lasted,
            failed: fault.map(|fault| (fault.code().name(), words(fault))),
        };
        let mut all = self.0.lock();
        if all.len() == MOST {
            all.pop_front();
        }
        all.push_back(over);
    }

    /// Somebody's, the last one first.
    pub(crate) fn of(&self, owner: &Owner, wanted: impl Fn(&Begun) -> bool) -> Vec<Over> {
        let all = self.0.lock();
        let own = all.iter().rev();
        own.filter(|over| over.call.owner == *owner && wanted(&over.call))
            .cloned()
            .collect()
    }
}
