//! `datalevin_close_database`: its id is good no longer.

use serde::Deserialize;

use super::Kind::Text;
use super::{Definition, read};
use crate::asking::done;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_close_database",
    description: "Closes a database.",
    writes: false,
    arguments: &[("database", Text, true)],
    run: |asking, input| {
        let input: Input = read(input)?;
        asking.database(&input.database)?;
        asking.state.handles.close(&input.database);
        Ok(done("database", &input.database, "closed"))
    },
};

#[derive(Deserialize)]
struct Input {
    database: String,
}
