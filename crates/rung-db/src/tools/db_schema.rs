//! `rung.db_schema`: what there is to ask for, and how much of it.

use rung_auth::Pattern;
use rung_datalog::{Attribute, Db, Moment, Unique};
use rung_edn::Value as Edn;
use rung_fault::{Code, Detail, Fault};
use rung_kv::typed::{Kind as TableKind, Span};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Kind::{Number, Text};
use super::{Definition, read};
use crate::asking::{Asking, head};
use crate::json::to_json;
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_schema",
    description: "What a database (or kv) has: attributes with type, count and an example, the most used first; or tables with their entries. \
                  maxTokens (2000) bounds the reply; attribute narrows it, as \"person/*\".",
    writes: false,
    arguments: &[
        ("database", Text, false),
        ("kv", Text, false),
        ("attribute", Text, false),
        ("maxTokens", Number, false),
    ],
    run,
};

/// Tokens where nobody says how many.
const MAX_TOKENS: usize = 2_000;
/// Characters of an example.
const EXAMPLE_CHARS: usize = 40;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    database: Option<String>,
    kv: Option<String>,
    attribute: Option<String>,
    max_tokens: Option<usize>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let (head, items) = match (&input.database, &input.kv) {
        (Some(id), None) => {
            let database = asking.database(id)?;
            let wanted = input
                .attribute
                .map(|text| Pattern::new(text.strip_prefix(':').unwrap_or(&text)));
            of_database(id, database.here()?, wanted.as_ref())?
        }
        (None, Some(id)) => (head("kv", id), of_store(asking, id)?),
        _ => {
            let why = "exactly one of database and kv says what is described";
            return Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "database|kv"));
        }
    };
    let most = input.max_tokens.unwrap_or(MAX_TOKENS);
    asking.list_some(head, fitting(asking, &items, most), |taker| {
        for item in items {
            if !taker.take(|| item) {
                break;
            }
        }
        Ok(())
    })
}

/// How many items have no more tokens than that, one at least.
fn fitting(asking: &Asking<'_>, items: &[Value], max_tokens: usize) -> usize {
    let texts: Vec<String> = items.iter().map(Value::to_string).collect();
    // No text has more tokens than bytes, so what is short need not be counted.
    if texts.iter().map(String::len).sum::<usize>() <= max_tokens {
        return items.len();
    }
    let mut left = max_tokens;
    let fits = |text: &&String| {
        let tokens = (asking.state.options.count_tokens)(text);
        let fits = tokens <= left;
        left = left.saturating_sub(tokens);
        fits
    };
    texts.iter().take_while(fits).count().max(1)
}

fn of_database(
    id: &str,
    db: &Db,
    wanted: Option<&Pattern>,
) -> Result<(Map<String, Value>, Vec<Value>), Fault> {
    let (mut told, described) = db.read(|moment| {
        let mut told = head("database", id);
        told.insert("datoms".to_owned(), json!(moment.count()?));
        told.insert("transactions".to_owned(), json!(moment.max_transaction()?));
        let attributes = moment.schema().attributes();
        let named = attributes
            .filter(|attribute| wanted.is_none_or(|wanted| wanted.fits(attribute.name.as_str())));
        let counted = named.map(|attribute| Ok((moment.count_of(attribute.id)?, attribute)));
        let mut described = counted.collect::<rung_datalog::Result<Vec<_>>>()?;
        described.sort_by(|one, other| {
            other
                .0
                .cmp(&one.0)
                .then_with(|| one.1.name.cmp(&other.1.name))
        });
        let described = described.iter();
        let described = described.map(|(count, attribute)| describe(moment, attribute, *count));
        Ok((told, described.collect::<rung_datalog::Result<Vec<_>>>()?))
    })?;
    told.insert("attributes".to_owned(), json!(described.len()));
    told.insert("diskBytes".to_owned(), json!(db.disk_bytes()?));
    Ok((told, described))
}

/// An attribute without what goes without saying.
fn describe(moment: &Moment<'_>, attribute: &Attribute, count: u64) -> rung_datalog::Result<Value> {
    let mut told = json!({"name": format!(":{}", attribute.name), "count": count});
    if let Some(kind) = attribute.kind {
        told["type"] = json!(kind.name());
    }
    if attribute.many {
        told["many"] = json!(true);
    }
    if let Some(unique) = attribute.unique {
        told["unique"] = json!(match unique {
            Unique::Identity => "identity",
            Unique::Value => "value",
        });
    }
    for (name, value) in &attribute.further {
        told[name.to_string()] = to_json(value);
    }
    if let Some(example) = moment.example(attribute.id)? {
        told["example"] = shortened(&example);
    }
    Ok(told)
}

/// An example that costs little to read.
fn shortened(value: &Edn) -> Value {
    let text = match value {
        Edn::String(text) => text.to_string(),
        Edn::Long(_) | Edn::Double(_) | Edn::Bool(_) => return to_json(value),
        other => other.to_string(),
    };
    match text.char_indices().nth(EXAMPLE_CHARS) {
        Some((end, _)) => json!(format!("{}…", &text[..end])),
        None => json!(text),
    }
}

fn of_store(asking: &Asking<'_>, id: &str) -> Result<Vec<Value>, Fault> {
    let store = asking.kv(id)?;
    let described = store.here()?.read(|snapshot| {
        let mut described = Vec::new();
        for table in snapshot.names()? {
            let (name, kind) = table?;
            let entries = match kind {
                TableKind::Plain => match snapshot.plain(&name)? {
                    Some(table) => table.count(&Span::all())?,
                    None => 0,
                },
                TableKind::List => match snapshot.list(&name)? {
                    Some(table) => table.count(&Span::all())?,
                    None => 0,
                },
            };
            let kind = match kind {
                TableKind::Plain => "plain",
                TableKind::List => "list",
            };
            described.push(json!({"name": name, "kind": kind, "entries": entries}));
        }
        Ok::<_, rung_kv::Error>(described)
    });
    Ok(described?)
}
