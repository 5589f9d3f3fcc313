//! `datalevin_close_database`: closes a database and invalidates its id.

use serde::Deserialize;

use super::Kind::Text;
use super::{Definition, parameters, parse_input};
use crate::asking::confirmation;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_close_database",
    description: "Closes a database.",
    writes: false,
    arguments: &[("database", Text, true, parameters::DATABASE)],
    run: |asking, input| {
        let input: Input = parse_input(input)?;
        asking.database(&input.database)?;
        asking.state.handles.close(&input.database);
        Ok(confirmation("database", &input.database, "closed"))
    },
};

#[derive(Deserialize)]
struct Input {
    database: String,
}
