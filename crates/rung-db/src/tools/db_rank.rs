//! `rung.db_rank`: the place of a key in its table, or what is at a place.

use rung_fault::{Code, Detail, Fault};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, Number, Text};
use super::{Definition, read};
use crate::asking::{Asking, part, with_result};
use crate::json::{given, to_json};
use crate::shape::Outcome;
use crate::store::Types;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_rank",
    description: "How many keys of a kv table come before key, or null where it is not there; or the pair before which rank keys come.",
    writes: false,
    arguments: &[
        ("kv", Text, true),
        ("dbi", Text, true),
        ("key", Any, false),
        ("keyType", Any, false),
        ("rank", Number, false),
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
    let input: Input = read(input)?;
    let store = asking.kv(&input.kv)?;
    let types = Types::read(part(input.key_type.as_ref())?, None)?;
    let result = match (&input.key, input.rank) {
        (Some(key), None) => json!(store.rank(&input.dbi, given(key)?, &types)?),
        (None, Some(rank)) => {
            let found = store.by_rank(&input.dbi, rank)?;
            json!(found.map(|(key, value)| [to_json(&key), to_json(&value)]))
        }
        _ => {
            let why = "exactly one of key and rank says what is looked for";
            return Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "key|rank"));
        }
    };
    Ok(with_result(super::of_table(&input.kv, &input.dbi), result))
}
