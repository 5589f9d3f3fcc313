//! `rung.db_search`: texts by words, phrases, and both put together by *and*, *or* and *not*.

use rung_fault::{Code, Detail, Fault};
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, Text};
use super::{Definition, read};
use crate::asking::{Asking, head, options};
use crate::json::given;
use crate::shape::Outcome;
use crate::taker::Wanted;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_search",
    description: "Searches a searchIndex, or the full texts of a database, by an expression: \"words\", {\":phrase\": \"red fox\"}, \
                  [\":and\", …], [\":or\", …], [\":not\", x]. opts as in datalevin_search_documents: {\":top\": 5, \":display\": \":texts\"}.",
    writes: false,
    arguments: &[
        ("searchIndex", Text, false),
        ("database", Text, false),
        ("query", Any, true),
        ("opts", Any, false),
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
    let input: Input = read(input)?;
    let query = given(&input.query)?;
    let options = options(input.opts.as_ref())?;
    match (&input.search_index, &input.database) {
        (Some(id), None) => {
            let texts = asking.texts(id)?;
            asking.list(head("searchIndex", id), Wanted::ALL, |taker| {
                texts.search(&query, options, taker)
            })
        }
        (None, Some(id)) => {
            let database = asking.database(id)?;
            asking.list(head("database", id), Wanted::ALL, |taker| {
                database.fulltext(&query, options, taker)
            })
        }
        _ => {
            let why = "exactly one of searchIndex and database says where";
            Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "searchIndex|database"))
        }
    }
}
