//! `datalevin_close_kv`: closes a key-value store and invalidates its id.

use rung_tool::ParameterType::Text;
use rung_tool::Tool;
use serde::Deserialize;

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, confirmation};

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_close_kv",
    "Closes a key-value store and its indexes.",
    &[("kv", Text, true, parameters::KV)],
    |context: &DatabaseContext<'_>, input: Input| {
        context.kv(&input.kv)?;
        context.state.handles.close(&input.kv);
        Ok(confirmation("kv", &input.kv, "closed"))
    },
);

#[derive(Deserialize)]
pub(super) struct Input {
    kv: String,
}
