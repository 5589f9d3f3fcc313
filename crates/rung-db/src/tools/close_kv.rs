//! `datalevin_close_kv`: its id is good no longer.

use serde::Deserialize;
use serde_json::json;

use super::Kind::Text;
use super::{Definition, head, read};
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_close_kv",
    description: "Closes a key-value store and its indexes.",
    writes: false,
    arguments: &[("kv", Text, true)],
    run: |asking, input| {
        let input: Input = read(input)?;
        asking.state.handles.kv(asking.permit(), &input.kv)?;
        asking.state.handles.close(&input.kv);
        let mut told = head("kv", &input.kv);
        told.insert("closed".to_owned(), json!(true));
        Ok(Outcome::Whole(told))
    },
};

#[derive(Deserialize)]
struct Input {
    kv: String,
}
