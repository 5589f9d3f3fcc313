//! `rung.db_list`: the databases that the caller may open by name.

use rung_fault::Fault;
use serde_json::{Value, json};

use super::Definition;
use crate::asking::Asking;
use crate::known::Holds;
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_list",
    description: "The databases that you may open: pass a name as dir to datalevin_open_database, or to datalevin_open_kv where holds is tables.",
    writes: false,
    arguments: &[],
    run,
};

fn run(asking: &Asking<'_>, _: Value) -> Result<Outcome, Fault> {
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
    let told = json!({"result": granted, "anyFolder": asking.state.options.anywhere});
    let Value::Object(told) = told else {
        unreachable!("an object was just made");
    };
    Ok(Outcome::Whole(told))
}
