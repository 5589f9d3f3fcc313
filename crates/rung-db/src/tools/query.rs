//! `datalevin_query`: a Datalog query.

use rung_edn::Value as Edn;
use rung_fault::{Code, Detail, Fault};
use rung_tool::ParameterType::{List, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::Value;

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope};
use crate::json::parse_argument;
use crate::row_sink::Slice;

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_query",
    "Runs a Datalog query.",
    &[
        ("database", Text, true, parameters::DATABASE),
        ("query", Text, true, parameters::QUERY),
        ("inputs", List, false, parameters::INPUTS),
    ],
    run,
)
.as_entry();

#[derive(Deserialize)]
pub(super) struct Input {
    database: String,
    query: String,
    #[serde(default)]
    inputs: Option<Vec<Value>>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let database = context.database(&input.database)?;
    let query = parse_query(&input.query)?;
    let inputs: Vec<Edn> = input
        .inputs
        .unwrap_or_default()
        .iter()
        .map(parse_argument)
        .collect::<Result<_, _>>()?;
    context.answer(envelope("database", &input.database), Slice::ALL, |sink| {
        database.query(&query, &inputs, sink)
    })
}

/// Parses a query.
pub(super) fn parse_query(text: &str) -> Result<Edn, Fault> {
    rung_datalog::read_query(text).map_err(|error| {
        let fault = match error {
            rung_datalog::Error::Edn(error) => Fault::new(
                Code::InvalidEdn,
                format!("the query is not valid EDN: {error}"),
            ),
            other => other.into(),
        };
        fault.with(Detail::Field, "query")
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_query_in_another_language_is_refused_with_an_example() {
        for text in ["select * from people", "  SELECT 1", "MATCH (n) RETURN n"] {
            let fault = parse_query(text).unwrap_err();
            assert_eq!(fault.code(), Code::InvalidEdn, "{text}");
            assert!(fault.message().contains("Datalog in EDN"), "{text}");
            assert!(fault.hint().unwrap().contains("[:find"), "{text}");
        }
    }

    #[test]
    fn an_error_of_a_query_names_its_position_and_is_short() {
        let message = |text: &str| parse_query(text).unwrap_err().message().to_owned();
        assert_eq!(
            message("[:find ?e\n :where [?e :name]"),
            "the query is not valid EDN: line 2, column 19: `[`, opened at line 1, column 1, is not closed"
        );
        let deep = message(&"[".repeat(100_000));
        assert_eq!(
            deep,
            "the query is not valid EDN: line 1, column 201: values are nested deeper than 200 levels"
        );
    }
}
