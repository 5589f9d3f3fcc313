//! A tool is a type: its name, its schemas and its body cannot drift apart.

use rung_auth::Access;
use rung_fault::Fault;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::card::Hints;
use crate::reply::Answer;
use crate::source::Call;

/// Something an agent can call. One file each.
pub trait Tool: Send + Sync + 'static {
    /// What it is called.
    const NAME: &'static str;
    /// What people call it.
    const TITLE: &'static str;
    /// What it is for, in words that never depend on data.
    const DESCRIPTION: &'static str;
    /// A picture of it, as the address of an SVG.
    const ICON: Option<&'static str> = None;
    /// How it behaves.
    const HINTS: Hints = Hints::READ;
    /// What a permit must allow.
    const ACCESS: Access = Access::Read;

    /// What it takes: a struct with `#[serde(deny_unknown_fields)]`.
    type Input: DeserializeOwned + JsonSchema + Send;
    /// What it gives: a struct.
    type Output: Serialize + JsonSchema + Send;
    /// What it fails with.
    type Error: Into<Fault> + Send;

    /// Does it.
    fn run(
        &self,
        call: &Call,
        input: Self::Input,
    ) -> impl Future<Output = Result<Answer<Self::Output>, Self::Error>> + Send;
}
