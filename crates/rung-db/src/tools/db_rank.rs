//! `rung.db_rank`: the rank of a key in its table, or the pair at a rank.

use rung_fault::{Code, Detail, Fault};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, Number, Text};
use super::{Definition, parameters, parse_input};
use crate::asking::{Asking, optional_edn, with_result};
use crate::json::{parse_argument, to_json};
use crate::shape::Outcome;
use crate::store::KeyValueTypes;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_rank",
    description: "The number of keys before key in a table, or null if key is absent; or, given rank, the pair at that rank.",
    writes: false,
    arguments: &[
        ("kv", Text, true, parameters::KV),
        ("dbi", Text, true, parameters::DBI),
        ("key", Any, false, "Key whose rank is returned"),
        ("keyType", Any, false, parameters::KEY_TYPE),
        ("rank", Number, false, "Rank, from 0"),
    ],
    run,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    kv: String,
    dbi: String,
    key: Option<Value>,
    key_type: Option<Value>,
    rank: Option<u64>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = parse_input(input)?;
    let store = asking.kv(&input.kv)?;
    let types = KeyValueTypes::parse(optional_edn(input.key_type.as_ref())?, None)?;
    let result = match (&input.key, input.rank) {
        (Some(key), None) => json!(store.rank(&input.dbi, parse_argument(key)?, &types)?),
        (None, Some(rank)) => {
            let found = store.by_rank(&input.dbi, rank)?;
            json!(found.map(|(key, value)| [to_json(&key), to_json(&value)]))
        }
        _ => {
            let why = "exactly one of key and rank is required";
            return Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "key|rank"));
        }
    };
    Ok(with_result(
        super::table_envelope(&input.kv, &input.dbi),
        result,
    ))
}
