//! `rung.db_schema`: the attributes of a database or the tables of a store, with counts.

use rung_auth::Pattern;
use rung_datalog::{Attribute, Db, Snapshot, Unique};
use rung_edn::Value as Edn;
use rung_fault::{Code, Detail, Fault};
use rung_kv::typed::{KeySpan, TableKind};
use rung_tool::ParameterType::{Count, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope};
use crate::json::to_json;

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "rung.db_schema",
    "Describes a database (attributes with type, count and an example, most used first) or a kv (tables with their entries).",
    &[
        ("database", Text, false, parameters::DATABASE),
        ("kv", Text, false, parameters::KV),
        (
            "attribute",
            Text,
            false,
            "Pattern of attributes, as \"person/*\"",
        ),
        ("maxTokens", Count, false, "Most tokens of the reply (2000)"),
    ],
    run,
);

/// Default maximum tokens.
const MAX_TOKENS: usize = 2_000;
/// Maximum characters of an example.
const EXAMPLE_CHARS: usize = 40;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    database: Option<String>,
    kv: Option<String>,
    attribute: Option<String>,
    max_tokens: Option<usize>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let (head, items) = match (&input.database, &input.kv) {
        (Some(id), None) => {
            let database = context.database(id)?;
            let wanted = input
                .attribute
                .map(|text| Pattern::new(text.strip_prefix(':').unwrap_or(&text)));
            describe_database(id, database.local()?, wanted.as_ref())?
        }
        (None, Some(id)) => (envelope("kv", id), describe_store(context, id)?),
        _ => {
            let why = "exactly one of database and kv is required";
            return Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "database|kv"));
        }
    };
    let most = input.max_tokens.unwrap_or(MAX_TOKENS);
    context.list_some(head, count_fitting(&items, most), |sink| {
        for item in items {
            if !sink.take(|| item) {
                break;
            }
        }
        Ok(())
    })
}

/// Returns the number of items that fit in `max_tokens`, at least one.
fn count_fitting(items: &[Value], max_tokens: usize) -> usize {
    let texts: Vec<String> = items.iter().map(Value::to_string).collect();
    // No text has more tokens than bytes, so short texts need not be counted.
    if texts.iter().map(String::len).sum::<usize>() <= max_tokens {
        return items.len();
    }
    let mut left = max_tokens;
    let fits = |text: &&String| {
        let tokens = rung_tokens::count_tokens(text);
        let fits = tokens <= left;
        left = left.saturating_sub(tokens);
        fits
    };
    texts.iter().take_while(fits).count().max(1)
}

fn describe_database(
    id: &str,
    db: &Db,
    wanted: Option<&Pattern>,
) -> Result<(Map<String, Value>, Vec<Value>), Fault> {
    let (mut told, described) = db.read(|moment| {
        let mut told = envelope("database", id);
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
        let described =
            described.map(|(count, attribute)| describe_attribute(moment, attribute, *count));
        Ok((told, described.collect::<rung_datalog::Result<Vec<_>>>()?))
    })?;
    told.insert("attributes".to_owned(), json!(described.len()));
    told.insert("diskBytes".to_owned(), json!(db.disk_bytes()?));
    Ok((told, described))
}

/// Describes an attribute, without defaults.
fn describe_attribute(
    moment: &Snapshot<'_>,
    attribute: &Attribute,
    count: u64,
) -> rung_datalog::Result<Value> {
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
    for (name, value) in &attribute.extra {
        told[name.to_string()] = to_json(value);
    }
    if let Some(example) = moment.example(attribute.id)? {
        told["example"] = shorten_example(&example);
    }
    Ok(told)
}

/// Shortens an example.
fn shorten_example(value: &Edn) -> Value {
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

fn describe_store(context: &DatabaseContext<'_>, id: &str) -> Result<Vec<Value>, Fault> {
    let store = context.kv(id)?;
    let described = store.local()?.read(|snapshot| {
        let mut described = Vec::new();
        for table in snapshot.names()? {
            let (name, kind) = table?;
            let entries = match kind {
                TableKind::Plain => match snapshot.plain(&name)? {
                    Some(table) => table.count(&KeySpan::all())?,
                    None => 0,
                },
                TableKind::List => match snapshot.list(&name)? {
                    Some(table) => table.count(&KeySpan::all())?,
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
