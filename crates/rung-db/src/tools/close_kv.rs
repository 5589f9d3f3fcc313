//! `datalevin_close_kv`: closes a key-value store and invalidates its id.

use serde::Deserialize;

use super::Kind::Text;
use super::{Definition, parameters, parse_input};
use crate::asking::confirmation;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_close_kv",
    description: "Closes a key-value store and its indexes.",
    writes: false,
    arguments: &[("kv", Text, true, parameters::KV)],
    run: |asking, input| {
        let input: Input = parse_input(input)?;
        asking.kv(&input.kv)?;
        asking.state.handles.close(&input.kv);
        Ok(confirmation("kv", &input.kv, "closed"))
    },
};

#[derive(Deserialize)]
struct Input {
    kv: String,
}
