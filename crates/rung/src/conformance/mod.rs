//! Fixtures of the MCP conformance suite: tools, resources and prompts whose names and replies the suite prescribes.
//!
//! They are served with `--conformance` only.

pub(crate) mod client;
mod prompts;
mod resources;
mod tools;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rung_tool::ChangeSender;

/// Tools, resources and prompts of the suite. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Fixtures {
    /// Channel of change notifications.
    pub(crate) changes: ChangeSender,
    /// Number of notifications sent. Descriptions contain it, so that the lists really change: a gateway compares them.
    notified: Arc<AtomicUsize>,
}

impl Fixtures {
    pub(crate) fn new() -> Self {
        Self {
            changes: ChangeSender::default(),
            notified: Arc::default(),
        }
    }

    /// Returns the description of the fixtures whose list changes.
    fn changing_description(&self) -> String {
        let told = self.notified.load(Ordering::Relaxed);
        format!("A fixture of the conformance suite; changes told: {told}")
    }
}

/// PNG of one red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";
/// WAV with a millisecond of silence.
const WAV: &str = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==";
