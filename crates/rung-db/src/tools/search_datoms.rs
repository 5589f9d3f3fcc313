//! `datalevin_search_datoms`: facts by whatever is known of them.

use rung_datalog::Db;
use rung_edn::Value as Edn;
use rung_fault::Fault;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, Number, Text};
use super::{Asking, Definition, MAX_LIMIT, head, part, read};
use crate::json::to_json;
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_search_datoms",
    description: "Datoms by entity, attribute and value.",
    writes: false,
    arguments: &[
        ("database", Text, true),
        ("e", Any, false),
        ("a", Any, false),
        ("v", Any, false),
        ("limit", Number, false),
        ("offset", Number, false),
    ],
    run,
};

#[derive(Deserialize)]
pub(super) struct Input {
    pub(super) database: String,
    e: Option<Value>,
    a: Option<Value>,
    v: Option<Value>,
    limit: Option<usize>,
    offset: Option<usize>,
}

impl Input {
    /// The query that finds them, and what it is given.
    pub(super) fn query(&self, db: &Db) -> Result<(Edn, Vec<Edn>), Fault> {
        let known = [("?e", &self.e), ("?a", &self.a), ("?v", &self.v)];
        let mut inputs = vec![Edn::symbol("$")];
        let mut given = Vec::new();
        for (name, value) in known {
            if let Some(mut value) = part(value.as_ref())? {
                // An entity is told by its number, however it is called.
                if name == "?e" {
                    let e = db.read(|moment| moment.entity_id(&value))?;
                    value = Edn::Long(e.and_then(|e| i64::try_from(e).ok()).unwrap_or(-1));
                }
                inputs.push(Edn::symbol(name));
                given.push(value);
            }
        }
        let vars: Vec<Edn> = known.iter().map(|(name, _)| Edn::symbol(name)).collect();
        let mut query = vec![Edn::keyword("find")];
        query.extend(vars.iter().cloned());
        query.push(Edn::keyword("in"));
        query.extend(inputs);
        query.push(Edn::keyword("where"));
        query.push(Edn::Vector(vars));
        Ok((Edn::Vector(query), given))
    }
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let db = asking.database(&input.database)?;
    let (query, given) = input.query(&db)?;
    let (mut left_out, mut wanted) = (input.offset.unwrap_or(0), input.limit.unwrap_or(MAX_LIMIT));
    asking.list(head("database", &input.database), false, |give| {
        let mut take = |_: &rung_datalog::Head, row: Vec<Edn>| {
            if left_out > 0 {
                left_out -= 1;
                return Ok(true);
            }
            if wanted == 0 {
                return Ok(false);
            }
            wanted -= 1;
            let [e, a, v] = &row[..] else {
                return Ok(false);
            };
            let datom =
                json!({"e": to_json(e), "a": to_json(a), "v": to_json(v), "tx": 1, "added": true});
            Ok(give(datom.to_string()) && wanted > 0)
        };
        db.each_row(&query, &given, &asking.bounds, &mut take)?;
        Ok(())
    })
}
