//! What a tool says of itself.

use std::sync::Arc;

use rung_auth::Access;
use serde_json::Value;
use serde_json::value::RawValue;

/// How a tool behaves, for hosts that ask before they let it run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "four independent facts, as hosts know them"
)]
pub struct Hints {
    /// It changes nothing.
    pub read_only: bool,
    /// What it changes may be lost.
    pub destructive: bool,
    /// Doing it twice is doing it once.
    pub idempotent: bool,
    /// It reaches beyond what we hold.
    pub open_world: bool,
}

impl Hints {
    /// It reads what we hold.
    pub const READ: Self = Self {
        read_only: true,
        destructive: false,
        idempotent: true,
        open_world: false,
    };
}

/// Whether a call may go on as a task, behind the answer that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskUse {
    /// It answers at once.
    #[default]
    Never,
    /// It may take long.
    Optional,
    /// It is only for callers that can follow a task.
    Required,
}

/// A tool, described. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Card {
    /// Its name.
    pub name: Arc<str>,
    /// Its name for people.
    pub title: Arc<str>,
    /// What it is for.
    pub description: Arc<str>,
    /// A picture of it, as the address of an SVG.
    pub icon: Option<&'static str>,
    /// What it takes, as JSON Schema 2020-12.
    pub input_schema: Arc<Value>,
    /// What it gives.
    pub output_schema: Option<Arc<Value>>,
    /// How it behaves.
    pub hints: Hints,
    /// What a permit must allow for the tool to be there at all.
    pub access: Access,
    /// Whether it becomes a task.
    pub tasks: TaskUse,
    /// The tool as another server lists it, to be passed on byte for byte but for its name.
    pub listed: Option<Arc<RawValue>>,
}
