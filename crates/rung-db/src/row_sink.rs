//! Delivery of result items: offset, limit and cancellation.

use std::time::Instant;

use rung_datalog::Bounds;
use rung_edn::Value as Edn;
use rung_fault::Fault;
use rung_tool::Cancellation;
use serde_json::Value;

/// Items between two checks of the deadline.
const STEPS: u32 = 32;
/// Default limit.
pub(crate) const MAX_LIMIT: usize = 10_000;

/// Returns the bounds of a query of the local engine.
pub(crate) fn query_bounds(cancellation: &Cancellation) -> Bounds {
    let left = cancellation
        .deadline()
        .map(|end| end.saturating_duration_since(Instant::now()));
    Bounds {
        max_ms: left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
        cancelled: Some(cancellation.flag()),
        ..Bounds::default()
    }
}

/// Returns the bounds of a request to a remote server.
pub(crate) fn wait_limit(cancellation: &Cancellation) -> rung_dtlv::WaitLimit {
    rung_dtlv::WaitLimit {
        deadline: cancellation.deadline(),
        cancelled: Some(cancellation.flag()),
    }
}

/// The requested range of items.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice {
    pub(crate) offset: usize,
    pub(crate) limit: usize,
}

impl Slice {
    pub(crate) const ALL: Self = Self {
        offset: 0,
        limit: usize::MAX,
    };

    /// Creates a range from the caller's limit and offset, or the defaults.
    pub(crate) fn of(limit: Option<usize>, offset: Option<usize>) -> Self {
        Self {
            offset: offset.unwrap_or(0),
            limit: limit.unwrap_or(MAX_LIMIT),
        }
    }
}

/// The kind of result that was produced.
pub(crate) enum ResultShape {
    /// Ordered items.
    List,
    /// Unordered items.
    Set,
    /// A single value, and no items.
    One(Edn),
}

/// Receives result items.
pub(crate) struct RowSink<'t> {
    give: &'t mut dyn FnMut(String) -> bool,
    wanted: Slice,
    cancellation: &'t Cancellation,
    steps: u32,
    ended: Option<Fault>,
}

impl<'t> RowSink<'t> {
    pub(crate) fn new(
        give: &'t mut dyn FnMut(String) -> bool,
        wanted: Slice,
        cancellation: &'t Cancellation,
    ) -> Self {
        Self {
            give,
            wanted,
            cancellation,
            steps: 0,
            ended: None,
        }
    }

    /// Takes the next item, unless the offset skips it, and returns whether more are wanted.
    pub(crate) fn take(&mut self, item: impl FnOnce() -> Value) -> bool {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS)
            && let Err(fault) = self.cancellation.check()
        {
            self.ended = Some(fault);
        }
        if self.ended.is_some() || self.wanted.limit == 0 {
            return false;
        }
        if self.wanted.offset > 0 {
            self.wanted.offset -= 1;
            return true;
        }
        self.wanted.limit -= 1;
        (self.give)(item().to_string()) && self.wanted.limit > 0
    }

    /// Like [`take`](Self::take), as `ControlFlow`.
    pub(crate) fn flow(&mut self, item: impl FnOnce() -> Value) -> std::ops::ControlFlow<()> {
        if self.take(item) {
            std::ops::ControlFlow::Continue(())
        } else {
            std::ops::ControlFlow::Break(())
        }
    }

    /// Returns an error if the call was cancelled or its deadline has passed.
    pub(crate) fn look(&self) -> Result<(), Fault> {
        self.cancellation.check()
    }

    /// Returns the error that stopped the items, if any.
    pub(crate) fn end(self) -> Result<(), Fault> {
        self.ended.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use rung_fault::Code;

    use super::*;

    #[test]
    fn those_that_are_wanted_are_taken_and_no_more_are_asked_for() {
        let cancellation = Cancellation::new(None, Arc::default());
        let mut items = Vec::new();
        let mut give = |item| {
            items.push(item);
            true
        };
        let wanted = Slice::of(Some(2), Some(3));
        let mut sink = RowSink::new(&mut give, wanted, &cancellation);
        let asked = (0..99)
            .take_while(|n| sink.take(|| Value::from(*n)))
            .count();
        sink.end().unwrap();
        assert_eq!((items, asked), (vec!["3".to_owned(), "4".to_owned()], 4));
    }

    #[test]
    fn what_nobody_waits_for_ends_also_while_items_are_left_out() {
        let cancellation = Cancellation::new(None, Arc::new(AtomicBool::new(true)));
        let mut give = |_| true;
        let wanted = Slice::of(None, Some(usize::MAX));
        let mut sink = RowSink::new(&mut give, wanted, &cancellation);
        while sink.take(|| Value::Null) {}
        assert_eq!(sink.end().unwrap_err().code(), Code::DeadlineExceeded);
    }
}
