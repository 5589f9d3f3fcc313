//! `rung.db_list`: the databases that the caller may open by name.

use rung_tool::{Payload, Tool};
use serde_json::{Map, Value, json};

use super::{Databases, NoInput, reading_tool};
use crate::context::DatabaseContext;
use crate::named::StoreKind;

pub(super) const TOOL: Tool<Databases, NoInput> = reading_tool(
    "rung.db_list",
    "The databases that the caller may open. Pass a name as dir to datalevin_open_database, or to datalevin_open_kv if holds is tables.",
    &[],
    |context: &DatabaseContext<'_>, _| Ok(Payload::of(databases_json(context))),
)
.as_entry();

fn databases_json(context: &DatabaseContext<'_>) -> Map<String, Value> {
    let known = context.state.options.databases.iter();
    let granted = known.filter_map(|known| {
        let leave = known.access_for(context.permit())?;
        let mut told = json!({
            "name": known.name,
            "holds": match known.kind {
                StoreKind::Facts => "facts",
                StoreKind::Tables => "tables",
            },
            "mode": leave.access.min(context.most()),
        });
        if !leave.attributes.is_empty() {
            told["attributes"] = json!(leave.attributes);
        }
        Some(told)
    });
    let granted: Vec<Value> = granted.collect();
    let options = &context.state.options;
    let any_folder = options.any_folder && options.roots.is_empty();
    let mut list = Map::new();
    list.insert("result".to_owned(), json!(granted));
    list.insert("anyFolder".to_owned(), json!(any_folder));
    if !options.roots.is_empty() {
        list.insert("roots".to_owned(), json!(options.roots));
    }
    list
}
