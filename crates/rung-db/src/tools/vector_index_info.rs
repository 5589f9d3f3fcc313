//! `datalevin_vector_index_info`: what an index of vectors is.

use super::Kind::Text;
use super::{Definition, OfVectors, read};
use crate::asking::{head, with_result};
use crate::json::to_json;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_vector_index_info",
    description: "What a vector index is.",
    writes: false,
    arguments: &[("vectorIndex", Text, true)],
    run: |asking, input| {
        let input: OfVectors = read(input)?;
        let info = asking.vectors(&input.vector_index)?.info()?;
        let beside = head("vectorIndex", &input.vector_index);
        Ok(with_result(beside, to_json(&info)))
    },
};
