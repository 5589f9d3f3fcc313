//! `rung.db_list`: the databases that the caller may open by name.

use serde_json::{Map, Value, json};

use super::Definition;
use crate::asking::Asking;
use crate::named::StoreKind;
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_list",
    description: "The databases that the caller may open. Pass a name as dir to datalevin_open_database, or to datalevin_open_kv if holds is tables.",
    writes: false,
    arguments: &[],
    run: |asking, _| Ok(Outcome::Whole(databases_json(asking))),
};

fn databases_json(asking: &Asking<'_>) -> Map<String, Value> {
    let known = asking.state.options.databases.iter();
    let granted = known.filter_map(|known| {
        let leave = known.access_for(asking.permit())?;
        let mut told = json!({
            "name": known.name,
            "holds": match known.kind {
                StoreKind::Facts => "facts",
                StoreKind::Tables => "tables",
            },
            "mode": leave.access.min(asking.most()),
        });
        if !leave.attributes.is_empty() {
            told["attributes"] = json!(leave.attributes);
        }
        Some(told)
    });
    let granted: Vec<Value> = granted.collect();
    let options = &asking.state.options;
    let any_folder = options.any_folder && options.roots.is_empty();
    let mut list = Map::new();
    list.insert("result".to_owned(), json!(granted));
    list.insert("anyFolder".to_owned(), json!(any_folder));
    if !options.roots.is_empty() {
        list.insert("roots".to_owned(), json!(options.roots));
    }
    list
}
