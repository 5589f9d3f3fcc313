//! The description of a tool.

use std::sync::Arc;

use rung_auth::Access;
use serde_json::Value;
use serde_json::value::RawValue;

/// A tool's behaviour (MCP annotations), for hosts that ask the user before they run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "four independent facts, as hosts know them"
)]
pub struct Hints {
    /// The tool changes nothing.
    pub read_only: bool,
    /// The tool may destroy data.
    pub destructive: bool,
    /// Repeating a call with the same arguments has no further effect.
    pub idempotent: bool,
    /// The tool reaches systems outside the data that Rung holds.
    pub open_world: bool,
}

impl Hints {
    /// The hints of a tool that only reads data that Rung holds.
    pub const READ: Self = Self {
        read_only: true,
        destructive: false,
        idempotent: true,
        open_world: false,
    };
}

/// The task support of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskUse {
    /// The call never becomes a task.
    #[default]
    Never,
    /// The call may become a task, since it may take long.
    Optional,
    /// The call always becomes a task: only callers that support tasks can make it.
    Required,
}

/// The description of a tool. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Card {
    /// The name of the tool.
    pub name: Arc<str>,
    /// The title to show to people.
    pub title: Arc<str>,
    /// The purpose of the tool.
    pub description: Arc<str>,
    /// The URI of an SVG icon.
    pub icon: Option<&'static str>,
    /// The schema of the arguments (JSON Schema 2020-12).
    pub input_schema: Arc<Value>,
    /// The schema of the structured content.
    pub output_schema: Option<Arc<Value>>,
    /// The tool's annotations.
    pub hints: Hints,
    /// The access that a permit must allow; without it the tool is absent.
    pub access: Access,
    /// The tool's task support.
    pub tasks: TaskUse,
    /// True if a model begins with this tool. Clients that keep tools from their model until it searches for them show it at once.
    pub is_entry: bool,
    /// Words by which such a client finds the tool, besides its name and description.
    pub search_hint: &'static str,
    /// The definition as another server lists it, passed on byte for byte except for its name.
    pub listed: Option<Arc<RawValue>>,
}
