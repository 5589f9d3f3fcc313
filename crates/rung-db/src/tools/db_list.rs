//! `rung.db_list`: the databases that the caller may open by name.

use serde_json::{Map, Value, json};

use super::Definition;
use crate::asking::Asking;
use crate::known::Holds;
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_list",
    description: "The databases that you may open: pass a name as dir to datalevin_open_database, or to datalevin_open_kv where holds is tables.",
    writes: false,
    arguments: &[],
    run: |asking, _| Ok(Outcome::Whole(told(asking))),
};

fn told(asking: &Asking<'_>) -> Map<String, Value> {
    let known = asking.state.options.known.iter();
    let granted = known.filter_map(|known| {
        let leave = known.leave(asking.permit())?;
        let mut told = json!({
            "name": known.name,
            "holds": match known.holds {
                Holds::Facts => "facts",
                Holds::Tables => "tables",
            },
            "mode": leave.access.min(asking.most()),
        });
        if !leave.attributes.is_empty() {
            told["attributes"] = json!(leave.attributes);
        }
        Some(told)
    });
    let granted: Vec<Value> = granted.collect();
    let anywhere = asking.state.options.anywhere;
    [
        ("result".to_owned(), json!(granted)),
        ("anyFolder".to_owned(), json!(anywhere)),
    ]
    .into_iter()
    .collect()
}
