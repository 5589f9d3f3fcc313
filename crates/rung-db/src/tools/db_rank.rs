//! `rung.db_rank`: the rank of a key in its table, or the pair at a rank.

use rung_fault::{Code, Detail, Fault};
use rung_tool::ParameterType::{Any, Count, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, optional_edn, with_result};
use crate::json::{parse_argument, to_json};
use crate::store::KeyValueTypes;

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "rung.db_rank",
    "The number of keys before key in a table, or null if key is absent; or, given rank, the pair at that rank.",
    &[
        ("kv", Text, true, parameters::KV),
        ("dbi", Text, true, parameters::DBI),
        ("key", Any, false, "Key whose rank is returned"),
        ("keyType", Any, false, parameters::KEY_TYPE),
        ("rank", Count, false, "Rank, from 0"),
    ],
    run,
);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    kv: String,
    dbi: String,
    key: Option<Value>,
    key_type: Option<Value>,
    rank: Option<u64>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let store = context.kv(&input.kv)?;
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
