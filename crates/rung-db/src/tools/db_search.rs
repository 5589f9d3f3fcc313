//! `rung.db_search`: full-text search by words and phrases, combined with *and*, *or* and *not*.

use rung_fault::{Code, Detail, Fault};
use rung_tool::ParameterType::{Any, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::Value;

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope, map_or_empty};
use crate::json::parse_argument;
use crate::row_sink::Slice;

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "rung.db_search",
    "Searches a searchIndex, or the full texts of a database, by an expression of words and phrases.",
    &[
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
);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    search_index: Option<String>,
    database: Option<String>,
    query: Value,
    opts: Option<Value>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let query = parse_argument(&input.query)?;
    let options = map_or_empty(input.opts.as_ref())?;
    match (&input.search_index, &input.database) {
        (Some(id), None) => {
            let texts = context.texts(id)?;
            context.list(envelope("searchIndex", id), Slice::ALL, |sink| {
                texts.search(&query, options, sink)
            })
        }
        (None, Some(id)) => {
            let database = context.database(id)?;
            context.list(envelope("database", id), Slice::ALL, |sink| {
                database.fulltext(&query, options, sink)
            })
        }
        _ => {
            let why = "exactly one of searchIndex and database is required";
            Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "searchIndex|database"))
        }
    }
}
