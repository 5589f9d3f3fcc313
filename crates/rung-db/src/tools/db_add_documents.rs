//! `rung.db_add_documents`: adds several texts to a full-text index in one transaction.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{List, Text};
use super::{Definition, parameters, parse_input};
use crate::asking::{Asking, envelope, with_result};
use crate::json::parse_argument;
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_add_documents",
    description: "Adds texts to a search index in one transaction, each replacing the one with its ref. Returns their number.",
    writes: true,
    arguments: &[
        ("searchIndex", Text, true, parameters::SEARCH_INDEX),
        ("documents", List, true, "[{ref, text}, …]"),
    ],
    run,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    search_index: String,
    documents: Vec<Document>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    r#ref: Value,
    text: String,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = parse_input(input)?;
    let texts = asking.texts(&input.search_index)?;
    let documents = input.documents.into_iter();
    let documents = documents.map(|document| Ok((parse_argument(&document.r#ref)?, document.text)));
    let documents = documents.collect::<Result<Vec<_>, Fault>>()?;
    let added = documents.len();
    texts.add_many(&documents)?;
    Ok(with_result(
        envelope("searchIndex", &input.search_index),
        added.into(),
    ))
}
