//! `datalevin_close_database`: its id is good no longer.

use serde_json::json;

use super::Kind::Text;
use super::{Definition, OfDatabase, head, read};
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_close_database",
    description: "Closes a database.",
    writes: false,
    arguments: &[("database", Text, true)],
    run: |asking, input| {
        let input: OfDatabase = read(input)?;
        asking.database(&input.database)?;
        asking.state.handles.close(&input.database);
        let mut told = head("database", &input.database);
        told.insert("closed".to_owned(), json!(true));
        Ok(Outcome::Whole(told))
    },
};
