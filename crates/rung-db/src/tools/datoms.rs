//! `datalevin_datoms`: facts in the order of an index.

use rung_datalog::Order;
use rung_edn::Value as Edn;
use rung_fault::{Code, Detail, Fault};
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, Number, Text};
use super::{Definition, read};
use crate::asking::{Asking, head, part};
use crate::shape::Outcome;
use crate::taker::Wanted;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_datoms",
    description: "Datoms in the order of an index (eav, ave), by its first parts.",
    writes: false,
    arguments: &[
        ("database", Text, true),
        ("index", Text, true),
        ("c1", Any, false),
        ("c2", Any, false),
        ("c3", Any, false),
        ("limit", Number, false),
        ("offset", Number, false),
    ],
    run,
};

#[derive(Deserialize)]
struct Input {
    database: String,
    index: String,
    c1: Option<Value>,
    c2: Option<Value>,
    c3: Option<Value>,
    limit: Option<usize>,
    offset: Option<usize>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let order = order(&input.index)?;
    let parts = parts([&input.c1, &input.c2, &input.c3])?;
    let database = asking.database(&input.database)?;
    let wanted = Wanted::of(input.limit, input.offset);
    asking.list(head("database", &input.database), wanted, |taker| {
        database.datoms(order, &parts, taker)
    })
}

/// The order of an index, by its name.
pub(super) fn order(index: &str) -> Result<Order, Fault> {
    match index.trim_start_matches(':') {
        "eav" => Ok(Order::Eav),
        "ave" => Ok(Order::Ave),
        other => {
            let why = format!("there is no index {other:?}; there are eav and ave");
            Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "index"))
        }
    }
}

/// The first parts of datoms.
pub(super) fn parts(given: [&Option<Value>; 3]) -> Result<Vec<Edn>, Fault> {
    let is_said = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    if given
        .windows(2)
        .any(|two| !is_said(two[0]) && is_said(two[1]))
    {
        let why = "a part of a datom is given without the one before it";
        return Err(Fault::new(Code::InvalidArguments, why)
            .with_hint("datalevin_search_datoms finds datoms by any of their parts")
            .with(Detail::Field, "c1"));
    }
    let said = given.iter();
    said.map_while(|value| part(value.as_ref()).transpose())
        .collect()
}
