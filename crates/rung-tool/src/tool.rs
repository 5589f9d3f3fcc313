//! The typed tool: name, schemas and code in one type, so that they cannot diverge.

use rung_auth::Access;
use rung_fault::Fault;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::card::Hints;
use crate::reply::ToolOutput;
use crate::source::Call;

/// A tool that an agent can call. One file each.
pub trait Tool: Send + Sync + 'static {
    /// The name of the tool.
    const NAME: &'static str;
    /// The title to show to people.
    const TITLE: &'static str;
    /// The purpose of the tool. The text never depends on data.
    const DESCRIPTION: &'static str;
    /// The URI of an SVG icon.
    const ICON: Option<&'static str> = None;
    /// The tool's annotations.
    const HINTS: Hints = Hints::READ;
    /// The access that a permit must allow.
    const ACCESS: Access = Access::Read;

    /// The arguments: a struct with `#[serde(deny_unknown_fields)]`.
    type Input: DeserializeOwned + JsonSchema + Send;
    /// The structured content: a struct.
    type Output: Serialize + JsonSchema + Send;
    /// The error of a failed call.
    type Error: Into<Fault> + Send;

    /// Runs the tool.
    fn run(
        &self,
        call: &Call,
        input: Self::Input,
    ) -> impl Future<Output = Result<ToolOutput<Self::Output>, Self::Error>> + Send;
}
