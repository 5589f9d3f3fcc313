//! What the protocol's own test suite calls: tools, resources and prompts whose names and answers it prescribes.
//!
//! They are there under `--conformance` alone, and are never part of what is served otherwise.

pub(crate) mod client;
mod prompts;
mod resources;
mod tools;

use rung_tool::Changes;

/// All of it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Fixtures {
    /// Where the fixtures that change something say so.
    pub(crate) changes: Changes,
}

impl Fixtures {
    pub(crate) fn new() -> Self {
        Self {
            changes: Changes::default(),
        }
    }
}

/// One red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";
/// A millisecond of silence.
const WAV: &str = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==";
