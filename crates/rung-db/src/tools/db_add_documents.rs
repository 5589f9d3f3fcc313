//! `rung.db_add_documents`: adds several texts to a full-text index in one transaction.

use rung_fault::Fault;
use rung_tool::ParameterType::{List, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::Value;

use super::{Databases, parameters, writing_tool};
use crate::context::{DatabaseContext, envelope, with_result};
use crate::json::parse_argument;

pub(super) const TOOL: Tool<Databases, Input> = writing_tool(
    "rung.db_add_documents",
    "Adds texts to a search index in one transaction, each replacing the one with its ref. Returns their number.",
    &[
        ("searchIndex", Text, true, parameters::SEARCH_INDEX),
        ("documents", List, true, "[{ref, text}, …]"),
    ],
    run,
);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    search_index: String,
    documents: Vec<Document>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    r#ref: Value,
    text: String,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let texts = context.texts(&input.search_index)?;
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
