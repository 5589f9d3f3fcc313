//! `rung.db_add_documents`: texts that are put into an index together.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{List, Text};
use super::{Definition, read};
use crate::asking::{Asking, head, with_result};
use crate::json::given;
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_add_documents",
    description: "Adds [{ref, text}, …] to a search index in one transaction, each in place of the one that has its ref. result is how many.",
    writes: true,
    arguments: &[("searchIndex", Text, true), ("documents", List, true)],
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
    let input: Input = read(input)?;
    let texts = asking.texts(&input.search_index)?;
    let documents = input.documents.into_iter();
    let documents = documents.map(|document| Ok((given(&document.r#ref)?, document.text)));
    let documents = documents.collect::<Result<Vec<_>, Fault>>()?;
    let added = documents.len();
    texts.add_many(&documents)?;
    Ok(with_result(
        head("searchIndex", &input.search_index),
        added.into(),
    ))
}
