//! `datalevin_count_datoms`: how many facts there are.

use serde_json::json;

use super::Kind::{Any, Text};
use super::search_datoms::Input;
use super::{Definition, head, read, with_result};

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_count_datoms",
    description: "Counts datoms by entity, attribute and value.",
    writes: false,
    arguments: &[
        ("database", Text, true),
        ("e", Any, false),
        ("a", Any, false),
        ("v", Any, false),
    ],
    run: |asking, input| {
        let input: Input = read(input)?;
        let db = asking.database(&input.database)?;
        let (query, given) = input.query(&db)?;
        let mut count: u64 = 0;
        let mut take = |_: &rung_datalog::Head, _| {
            count += 1;
            Ok(true)
        };
        db.each_row(&query, &given, &asking.bounds, &mut take)?;
        Ok(with_result(head("database", &input.database), json!(count)))
    },
};
