//! What the protocol's own test suite calls: tools, resources and prompts whose names and answers it prescribes.
//!
//! They are there under `--conformance` alone, and are never part of what is served otherwise.

pub(crate) mod client;
mod prompts;
mod resources;
mod tools;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rung_tool::Changes;

/// All of it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Fixtures {
    /// Where the fixtures that change something say so.
    pub(crate) changes: Changes,
    /// How often they did. The lists say so, and are thereby others indeed: whoever stands in between looks.
    told: Arc<AtomicUsize>,
}

impl Fixtures {
    pub(crate) fn new() -> Self {
        Self {
            changes: Changes::default(),
            told: Arc::default(),
        }
    }

    /// What a fixture is described by whose list changes.
    fn changing(&self) -> String {
        let told = self.told.load(Ordering::Relaxed);
        format!("A fixture of the conformance suite; changes told: {told}")
    }
}

/// One red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";
/// A millisecond of silence.
const WAV: &str = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==";
