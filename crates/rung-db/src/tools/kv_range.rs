//! `datalevin_kv_range`: the pairs in a range of keys, in order.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, List, Number, Text};
use super::{Definition, parameters, parse_input, table_envelope};
use crate::asking::{Asking, optional_edn};
use crate::json::parse_argument;
use crate::shape::Outcome;
use crate::store::KeyValueTypes;
use crate::taker::Wanted;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_kv_range",
    description: "Pairs of a table with keys in a range.",
    writes: false,
    arguments: &[
        ("kv", Text, true, parameters::KV),
        ("dbi", Text, true, parameters::DBI),
        ("keyRange", List, true, parameters::KEY_RANGE),
        ("keyType", Any, false, parameters::KEY_TYPE),
        ("valueType", Any, false, parameters::VALUE_TYPE),
        ("limit", Number, false, parameters::LIMIT),
        ("offset", Number, false, parameters::OFFSET),
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
    let input: Input = parse_input(input)?;
    let store = asking.kv(&input.kv)?;
    let types = KeyValueTypes::parse(
        optional_edn(input.key_type.as_ref())?,
        optional_edn(input.value_type.as_ref())?,
    )?;
    let range = parse_argument(&input.key_range)?;
    let told = table_envelope(&input.kv, &input.dbi);
    let wanted = Wanted::of(input.limit, input.offset);
    asking.list(told, wanted, |taker| {
        store.range(&input.dbi, &range, &types, taker)
    })
}
