//! `idoc-match`: documents that match a condition.

use std::sync::Arc;

use rung_edn::{Name, Value};

use super::ast::CallArgument;
use super::solve::QueryContext;
use super::watch::MemoryReservation;
use crate::db::Snapshot;
use crate::document::{self, Condition, DocumentFormat};
use crate::schema::Attribute;
use crate::{Error, Result};

fn invalid_query<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

/// The attributes whose documents are searched.
enum DocumentScope {
    All,
    /// All attributes of the same domain as this one.
    SameDomain(Name),
    Domains(Vec<String>),
}

impl<'t> QueryContext<'_, 't> {
    /// Returns the documents that match a condition, each with its entity and attribute. Nil if there are none.
    pub(crate) fn matching_documents(
        &self,
        arguments: &[CallArgument],
        value: &impl Fn(&CallArgument) -> Result<Value>,
    ) -> Result<Value> {
        let [CallArgument::Source(source), given @ ..] = arguments else {
            return invalid_query("the first argument of idoc-match is a source, such as $");
        };
        let moment = self.snapshot(source)?;
        let given = given.iter().map(value).collect::<Result<Vec<_>>>()?;
        let empty = Value::Map(rung_edn::Map::new());
        let (mut among, condition, options) = match &given[..] {
            [Value::Keyword(name)] => (DocumentScope::SameDomain(name.clone()), &empty, None),
            [Value::Keyword(name), condition] => {
                (DocumentScope::SameDomain(name.clone()), condition, None)
            }
            [Value::Keyword(name), condition, options] => (
                DocumentScope::SameDomain(name.clone()),
                condition,
                Some(options),
            ),
            [condition] => (DocumentScope::All, condition, None),
            [condition, options] => (DocumentScope::All, condition, Some(options)),
            _ => {
                return invalid_query(
                    "idoc-match takes an optional attribute, a condition, and optional options",
                );
            }
        };
        if let Some(domains) = domains(options)? {
            among = DocumentScope::Domains(domains);
        }
        let mut found = Vec::new();
        let mut held = MemoryReservation::default();
        for (attribute, headings) in attributes(moment, &among)? {
            let condition = Condition::read(condition, headings)?;
            self.match_attribute(moment, &attribute, &condition, &mut held, &mut found)?;
        }
        Ok(if found.is_empty() {
            Value::Nil
        } else {
            Value::Vector(found)
        })
    }

    fn match_attribute(
        &self,
        moment: &Snapshot<'t>,
        attribute: &Attribute,
        condition: &Condition,
        held: &mut MemoryReservation,
        found: &mut Vec<Value>,
    ) -> Result<()> {
        let name = Value::Keyword(attribute.name.clone());
        let mut look = |(e, _, bytes): (u64, u32, &[u8])| -> Result<()> {
            self.watch.step()?;
            let document = moment.decode_value(attribute.id, bytes)?;
            if condition.holds(&document, &|| self.watch.step())? {
                held.reserve(bytes.len() * 2, self.watch)?;
                let e = crate::db::entity_value(e);
                found.push(Value::Vector(vec![e, name.clone(), document]));
            }
            Ok(())
        };
        let Some(probe) = condition.probe() else {
            let all = moment.attribute_facts(
                attribute.id,
                std::ops::Bound::Unbounded,
                std::ops::Bound::Unbounded,
            )?;
            for fact in all {
                look(fact?)?;
            }
            return Ok(());
        };
        let (view, table) = (moment.view, moment.tables.paths);
        let entities = probe.entities(view, table, attribute.id, &mut || self.watch.step())?;
        for e in entities {
            for fact in moment.entity_facts(e, Some(attribute.id))? {
                look(fact?)?;
            }
        }
        Ok(())
    }
}

/// The domains that options name.
fn domains(options: Option<&Value>) -> Result<Option<Vec<String>>> {
    let options = match options {
        None | Some(Value::Nil) => return Ok(None),
        Some(Value::Map(options)) => options,
        Some(other) => {
            return invalid_query(format!(
                "the options of idoc-match are a map; {other} is not"
            ));
        }
    };
    let mut domains = None;
    for (name, value) in options {
        if *name != Value::keyword("domains") {
            return invalid_query(format!(
                "{name} is not an option of idoc-match; its option is :domains"
            ));
        }
        if !value.is_nil() {
            let names = value
                .as_sequence()
                .map(|names| names.iter().map(Value::as_str));
            let names = names.and_then(Iterator::collect::<Option<Vec<&str>>>);
            let Some(names) = names else {
                return invalid_query(format!(":domains must be a vector of strings, not {value}"));
            };
            domains = Some(names.into_iter().map(str::to_owned).collect());
        }
    }
    Ok(domains)
}

/// Returns the attributes of a scope, each with true if the keys of its domain are converted like Markdown headings.
fn attributes(moment: &Snapshot<'_>, among: &DocumentScope) -> Result<Vec<(Arc<Attribute>, bool)>> {
    let all: Vec<(&Arc<Attribute>, String)> = moment
        .schema()
        .attributes()
        .filter(|attribute| document::has_documents(attribute))
        .map(|attribute| (attribute, document::domain(attribute)))
        .collect();
    let meant: Option<Vec<String>> = match among {
        DocumentScope::All => None,
        DocumentScope::SameDomain(name) => {
            match all.iter().find(|(attribute, _)| attribute.name == *name) {
                Some((_, domain)) => Some(vec![domain.clone()]),
                None => {
                    return invalid_query(format!(
                        ":{name} has no documents: its :db/valueType is not :db.type/idoc"
                    ));
                }
            }
        }
        DocumentScope::Domains(names) => {
            let missing = names
                .iter()
                .find(|name| all.iter().all(|(_, domain)| domain != *name));
            if let Some(missing) = missing {
                return invalid_query(format!("the document domain {missing:?} does not exist"));
            }
            Some(names.clone())
        }
    };
    let headings = |wanted: &String| {
        let mut within = all.iter().filter(|(_, domain)| domain == wanted);
        within.all(|(attribute, _)| {
            DocumentFormat::from_attribute(attribute) == DocumentFormat::Markdown
        })
    };
    let is_meant = |domain: &String| meant.as_ref().is_none_or(|names| names.contains(domain));
    let attributes = all.iter().filter(|(_, domain)| is_meant(domain));
    Ok(attributes
        .map(|(attribute, domain)| (Arc::clone(attribute), headings(domain)))
        .collect())
}
