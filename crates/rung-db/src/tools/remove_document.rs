//! `datalevin_remove_document`: a text that is found no longer.

use rung_fault::{Code, Detail, Fault};
use serde_json::json;

use super::Kind::{Any, Text};
use super::{Definition, OfDocument, head, read, reference};
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_remove_document",
    description: "Removes the text of a reference.",
    writes: true,
    arguments: &[("searchIndex", Text, true), ("docRef", Any, true)],
    run: |asking, input| {
        let input: OfDocument = read(input)?;
        let (tables, index) = asking.search_index(&input.search_index)?;
        let reference = reference(&input.doc_ref)?;
        if !tables.kv().write(|batch| index.remove(batch, &reference))? {
            let why = format!("no document has the reference {}", input.doc_ref);
            return Err(Fault::new(Code::NotFound, why).with(Detail::Field, "docRef"));
        }
        let mut told = head("searchIndex", &input.search_index);
        told.insert("removed".to_owned(), json!(true));
        Ok(Outcome::Whole(told))
    },
};
