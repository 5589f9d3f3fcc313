//! `datalevin_vector_index_info`: the options and size of a vector index.

use super::Kind::Text;
use super::{Definition, VectorIndexInput, parameters, parse_input};
use crate::asking::{envelope, with_result};
use crate::json::to_json;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_vector_index_info",
    description: "The options and size of a vector index.",
    writes: false,
    arguments: &[("vectorIndex", Text, true, parameters::VECTOR_INDEX)],
    run: |asking, input| {
        let input: VectorIndexInput = parse_input(input)?;
        let info = asking.vectors(&input.vector_index)?.info()?;
        let beside = envelope("vectorIndex", &input.vector_index);
        Ok(with_result(beside, to_json(&info)))
    },
};
