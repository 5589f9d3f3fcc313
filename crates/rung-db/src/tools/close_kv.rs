//! `datalevin_close_kv`: its id is good no longer.

use serde::Deserialize;

use super::Kind::Text;
use super::{Definition, read};
use crate::asking::done;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_close_kv",
    description: "Closes a key-value store and its indexes.",
    writes: false,
    arguments: &[("kv", Text, true)],
    run: |asking, input| {
        let input: Input = read(input)?;
        asking.kv(&input.kv)?;
        asking.state.handles.close(&input.kv);
        Ok(done("kv", &input.kv, "closed"))
    },
};

#[derive(Deserialize)]
struct Input {
    kv: String,
}
