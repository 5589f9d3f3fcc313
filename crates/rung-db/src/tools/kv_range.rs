//! `datalevin_kv_range`: keys with their values, in order.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, List, Number, Text};
use super::{Definition, of_table, read};
use crate::asking::{Asking, part};
use crate::json::given;
use crate::shape::Outcome;
use crate::store::Types;
use crate::taker::Wanted;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_kv_range",
    description: "Pairs within a range: [\":all\"], [\":closed\", 1, 9], [\":at-least\", 5], with -back twins.",
    writes: false,
    arguments: &[
        ("kv", Text, true),
        ("dbi", Text, true),
        ("keyRange", List, true),
        ("keyType", Any, false),
        ("valueType", Any, false),
        ("limit", Number, false),
        ("offset", Number, false),
    ],
    run,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    kv: String,
    dbi: String,
    key_range: Value,
    key_type: Option<Value>,
    value_type: Option<Value>,
    limit: Option<usize>,
    offset: Option<usize>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let store = asking.kv(&input.kv)?;
    let types = Types::read(
        part(input.key_type.as_ref())?,
        part(input.value_type.as_ref())?,
    )?;
    let range = given(&input.key_range)?;
    let told = of_table(&input.kv, &input.dbi);
    let wanted = Wanted::of(input.limit, input.offset);
    asking.list(told, wanted, |taker| {
        store.range(&input.dbi, &range, &types, taker)
    })
}
