//! `datalevin_search_datoms`: the datoms that match a pattern.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, Number, Text};
use super::{Definition, parameters, parse_input};
use crate::asking::{Asking, envelope, optional_edn};
use crate::database::FactPattern;
use crate::shape::Outcome;
use crate::taker::Wanted;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_search_datoms",
    description: "Datoms by entity, attribute and value.",
    writes: false,
    arguments: &[
        ("database", Text, true, parameters::DATABASE),
        ("e", Any, false, parameters::ENTITY),
        ("a", Any, false, parameters::ATTRIBUTE),
        ("v", Any, false, parameters::VALUE),
        ("limit", Number, false, parameters::LIMIT),
        ("offset", Number, false, parameters::OFFSET),
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
    pub(super) fn pattern(&self) -> Result<FactPattern, Fault> {
        Ok(FactPattern {
            e: optional_edn(self.e.as_ref())?,
            a: optional_edn(self.a.as_ref())?,
            v: optional_edn(self.v.as_ref())?,
        })
    }
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = parse_input(input)?;
    let database = asking.database(&input.database)?;
    let known = input.pattern()?;
    let wanted = Wanted::of(input.limit, input.offset);
    asking.list(envelope("database", &input.database), wanted, |taker| {
        database.search(&known, taker)
    })
}
