//! `datalevin_vector_index_info`: what an index of vectors is.

use super::Kind::Text;
use super::{Definition, OfVectors, head, read, with_result};
use crate::json::to_json;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_vector_index_info",
    description: "What a vector index is.",
    writes: false,
    arguments: &[("vectorIndex", Text, true)],
    run: |asking, input| {
        let input: OfVectors = read(input)?;
        let (tables, index) = asking.vector_index(&input.vector_index)?;
        let info = tables.kv().read(|view| index.info(view))?;
        let told = to_json(&rung_edn::Value::Map(info));
        Ok(with_result(head("vectorIndex", &input.vector_index), told))
    },
};
