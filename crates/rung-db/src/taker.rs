//! Items of an answer on their way out: which of them are wanted, and whether anybody still waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rung_datalog::Bounds;
use rung_edn::Value as Edn;
use rung_fault::{Code, Fault};
use serde_json::Value;

/// Items between two looks at the clock.
const STEPS: u32 = 32;
/// Items where nobody says how many.
pub(crate) const MAX_LIMIT: usize = 10_000;

/// Whether anybody still waits.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    until: Option<Instant>,
    cancelled: Arc<AtomicBool>,
}

impl Watch {
    pub(crate) fn new(until: Option<Instant>, cancelled: Arc<AtomicBool>) -> Self {
        Self { until, cancelled }
    }

    /// An error where nobody does.
    pub(crate) fn look(&self) -> Result<(), Fault> {
        let late = self.until.is_some_and(|end| Instant::now() >= end);
        if late || self.cancelled.load(Ordering::Relaxed) {
            let why = "it took longer than anybody waits";
            return Err(Fault::new(Code::DeadlineExceeded, why)
                .with_hint("ask for less: name more of what is wanted, or give a limit"));
        }
        Ok(())
    }

    /// The same for the engine here.
    pub(crate) fn bounds(&self) -> Bounds {
        let left = self
            .until
            .map(|end| end.saturating_duration_since(Instant::now()));
        Bounds {
            max_ms: left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            cancelled: Some(self.cancelled.clone()),
            ..Bounds::default()
        }
    }

    /// The same for a server elsewhere.
    pub(crate) fn patience(&self) -> rung_dtlv::Patience {
        rung_dtlv::Patience {
            until: self.until,
            cancelled: Some(self.cancelled.clone()),
        }
    }
}

/// Which items of an answer are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) offset: usize,
    pub(crate) limit: usize,
}

impl Wanted {
    /// All of them.
    pub(crate) const ALL: Self = Self {
        offset: 0,
        limit: usize::MAX,
    };

    /// Those that a caller says, or the usual ones.
    pub(crate) fn of(limit: Option<usize>, offset: Option<usize>) -> Self {
        Self {
            offset: offset.unwrap_or(0),
            limit: limit.unwrap_or(MAX_LIMIT),
        }
    }
}

/// What was made.
pub(crate) enum Made {
    /// Items in their order.
    List,
    /// Items that have no order.
    Set,
    /// A single value, and no items.
    One(Edn),
}

/// Takes items.
pub(crate) struct Taker<'t> {
    give: &'t mut dyn FnMut(String) -> bool,
    wanted: Wanted,
    watch: &'t Watch,
    steps: u32,
    ended: Option<Fault>,
}

impl<'t> Taker<'t> {
    pub(crate) fn new(
        give: &'t mut dyn FnMut(String) -> bool,
        wanted: Wanted,
        watch: &'t Watch,
    ) -> Self {
        Self {
            give,
            wanted,
            watch,
            steps: 0,
            ended: None,
        }
    }

    /// Takes the next item, unless it is one of those that are left out, and says whether there should be more.
    pub(crate) fn take(&mut self, item: impl FnOnce() -> Value) -> bool {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS)
            && let Err(fault) = self.watch.look()
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

    /// The same for whoever breaks off otherwise.
    pub(crate) fn flow(&mut self, item: impl FnOnce() -> Value) -> std::ops::ControlFlow<()> {
        if self.take(item) {
            std::ops::ControlFlow::Continue(())
        } else {
            std::ops::ControlFlow::Break(())
        }
    }

    /// An error where nobody waits any more.
    pub(crate) fn look(&self) -> Result<(), Fault> {
        self.watch.look()
    }

    /// An error where items stopped because nobody waited any more.
    pub(crate) fn end(self) -> Result<(), Fault> {
        self.ended.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_wanted_are_taken_and_no_more_are_asked_for() {
        let watch = Watch::new(None, Arc::default());
        let mut items = Vec::new();
        let mut give = |item| {
            items.push(item);
            true
        };
        let wanted = Wanted::of(Some(2), Some(3));
        let mut taker = Taker::new(&mut give, wanted, &watch);
        let asked = (0..99)
            .take_while(|n| taker.take(|| Value::from(*n)))
            .count();
        taker.end().unwrap();
        assert_eq!((items, asked), (vec!["3".to_owned(), "4".to_owned()], 4));
    }

    #[test]
    fn what_nobody_waits_for_ends_also_while_items_are_left_out() {
        let watch = Watch::new(None, Arc::new(AtomicBool::new(true)));
        let mut give = |_| true;
        let wanted = Wanted::of(None, Some(usize::MAX));
        let mut taker = Taker::new(&mut give, wanted, &watch);
        while taker.take(|| Value::Null) {}
        assert_eq!(taker.end().unwrap_err().code(), Code::DeadlineExceeded);
    }
}
