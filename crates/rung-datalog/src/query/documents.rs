//! `idoc-match`: documents of which something is true.

use std::sync::Arc;

use rung_edn::{Name, Value};

use super::ast::Argument;
use super::solve::Context;
use super::watch::Held;
use crate::db::Moment;
use crate::document::{self, Condition, Format};
use crate::schema::Attribute;
use crate::{Error, Result};

fn wrong<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

/// The attributes whose documents are looked at.
enum Among {
    All,
    /// Those that are found together with this one's.
    Like(Name),
    Domains(Vec<String>),
}

impl<'t> Context<'_, 't> {
    /// The documents of which a condition is true, each with its entity and its attribute; nothing where there are none.
    pub(crate) fn matching_documents(
        &self,
        arguments: &[Argument],
        value: &impl Fn(&Argument) -> Result<Value>,
    ) -> Result<Value> {
        let [Argument::Source(source), given @ ..] = arguments else {
            return wrong("idoc-match is given a source first, as $");
        };
        let moment = self.moment(source)?;
        let given = given.iter().map(value).collect::<Result<Vec<_>>>()?;
        let empty = Value::Map(rung_edn::Map::new());
        let (mut among, condition, options) = match &given[..] {
            [Value::Keyword(name)] => (Among::Like(name.clone()), &empty, None),
            [Value::Keyword(name), condition] => (Among::Like(name.clone()), condition, None),
            [Value::Keyword(name), condition, options] => {
                (Among::Like(name.clone()), condition, Some(options))
            }
            [condition] => (Among::All, condition, None),
            [condition, options] => (Among::All, condition, Some(options)),
            _ => {
                return wrong(
                    "idoc-match is given an attribute or none, a condition, and options or none",
                );
            }
        };
        if let Some(domains) = domains(options)? {
            among = Among::Domains(domains);
        }
        let mut found = Vec::new();
        let mut held = Held::default();
        for (attribute, headings) in attributes(moment, &among)? {
            let condition = Condition::read(condition, headings)?;
            self.documents_of(moment, &attribute, &condition, &mut held, &mut found)?;
        }
        Ok(if found.is_empty() {
            Value::Nil
        } else {
            Value::Vector(found)
        })
    }

    fn documents_of(
        &self,
        moment: &Moment<'t>,
        attribute: &Attribute,
        condition: &Condition,
        held: &mut Held,
        found: &mut Vec<Value>,
    ) -> Result<()> {
        let name = Value::Keyword(attribute.name.clone());
        let mut look = |(e, _, bytes): (u64, u32, &[u8])| -> Result<()> {
            self.watch.step()?;
            let document = moment.value(attribute.id, bytes)?;
            if condition.holds(&document, &|| self.watch.step())? {
                held.take(bytes.len() * 2, self.watch)?;
                let e = crate::db::entity_value(e);
                found.push(Value::Vector(vec![e, name.clone(), document]));
            }
            Ok(())
        };
        let Some(probe) = condition.probe() else {
            let all = moment.of_attribute(
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
            for fact in moment.of_entity(e, Some(attribute.id))? {
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
            return wrong(format!(
                "the options of idoc-match are a map, and {other} is none"
            ));
        }
    };
    let mut domains = None;
    for (name, value) in options {
        if *name != Value::keyword("domains") {
            return wrong(format!("idoc-match has no option {name}; it has :domains"));
        }
        if !value.is_nil() {
            let names = value
                .as_sequence()
                .map(|names| names.iter().map(Value::as_str));
            let names = names.and_then(Iterator::collect::<Option<Vec<&str>>>);
            let Some(names) = names else {
                return wrong(format!(":domains are a vector of strings, and not {value}"));
            };
            domains = Some(names.into_iter().map(str::to_owned).collect());
        }
    }
    Ok(domains)
}

/// The attributes that are meant, and whether their keys are written as headings.
fn attributes(moment: &Moment<'_>, among: &Among) -> Result<Vec<(Arc<Attribute>, bool)>> {
    let all: Vec<(&Arc<Attribute>, String)> = moment
        .schema()
        .attributes()
        .filter(|attribute| document::has_documents(attribute))
        .map(|attribute| (attribute, document::domain(attribute)))
        .collect();
    let meant: Option<Vec<String>> = match among {
        Among::All => None,
        Among::Like(name) => match all.iter().find(|(attribute, _)| attribute.name == *name) {
            Some((_, domain)) => Some(vec![domain.clone()]),
            None => {
                return wrong(format!(
                    ":{name} is no attribute with documents: it has no :db/valueType :db.type/idoc"
                ));
            }
        },
        Among::Domains(names) => {
            let missing = names
                .iter()
                .find(|name| all.iter().all(|(_, domain)| domain != *name));
            if let Some(missing) = missing {
                return wrong(format!("there is no domain {missing:?} of documents"));
            }
            Some(names.clone())
        }
    };
    let headings = |wanted: &String| {
        let mut within = all.iter().filter(|(_, domain)| domain == wanted);
        within.all(|(attribute, _)| Format::of(attribute) == Format::Markdown)
    };
    let is_meant = |domain: &String| meant.as_ref().is_none_or(|names| names.contains(domain));
    let attributes = all.iter().filter(|(_, domain)| is_meant(domain));
    Ok(attributes
        .map(|(attribute, domain)| (Arc::clone(attribute), headings(domain)))
        .collect())
}
