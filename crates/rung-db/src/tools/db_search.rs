//! `rung.db_search`: full-text search by words and phrases, combined with *and*, *or* and *not*.

use rung_fault::{Code, Detail, Fault};
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, Text};
use super::{Definition, parameters, parse_input};
use crate::asking::{Asking, envelope, map_or_empty};
use crate::json::parse_argument;
use crate::shape::Outcome;
use crate::taker::Wanted;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_search",
    description: "Searches a searchIndex, or the full texts of a database, by an expression of words and phrases.",
    writes: false,
    arguments: &[
        ("searchIndex", Text, false, parameters::SEARCH_INDEX),
        ("database", Text, false, parameters::DATABASE),
        (
            "query",
            Any,
            true,
            "\"words\", {\":phrase\": \"red fox\"}, [\":and\", x, y], [\":or\", x, y], [\":not\", x]",
        ),
        ("opts", Any, false, parameters::SEARCH_OPTS),
    ],
    run,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    search_index: Option<String>,
    database: Option<String>,
    query: Value,
    opts: Option<Value>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = parse_input(input)?;
    let query = parse_argument(&input.query)?;
    let options = map_or_empty(input.opts.as_ref())?;
    match (&input.search_index, &input.database) {
        (Some(id), None) => {
            let texts = asking.texts(id)?;
            asking.list(envelope("searchIndex", id), Wanted::ALL, |taker| {
                texts.search(&query, options, taker)
            })
        }
        (None, Some(id)) => {
            let database = asking.database(id)?;
            asking.list(envelope("database", id), Wanted::ALL, |taker| {
                database.fulltext(&query, options, taker)
            })
        }
        _ => {
            let why = "exactly one of searchIndex and database is required";
            Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "searchIndex|database"))
        }
    }
}
