//! `datalevin_close_database`: closes a database and invalidates its id.

use rung_tool::ParameterType::Text;
use rung_tool::Tool;
use serde::Deserialize;

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, confirmation};

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_close_database",
    "Closes a database.",
    &[("database", Text, true, parameters::DATABASE)],
    |context: &DatabaseContext<'_>, input: Input| {
        context.database(&input.database)?;
        context.state.handles.close(&input.database);
        Ok(confirmation("database", &input.database, "closed"))
    },
);

#[derive(Deserialize)]
pub(super) struct Input {
    database: String,
}
