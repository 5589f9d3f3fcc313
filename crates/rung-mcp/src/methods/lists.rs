//! Lists, a page at a time. A page fits the reply's budget; its cursor is sealed and bound to the caller.

use std::sync::Arc;

use rung_ladder::{Measure, json_bytes};
use rung_tool::{Card, Change};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{Begun, read};
use crate::client::Client;
use crate::envelope::{json, write_notification};
use crate::refusal::{Refusal, Result};
use crate::server::{Body, Server};
use crate::version::Version;

/// Items of a page.
const PAGE: usize = 100;
/// Set aside for the cursor and the list's own name.
const AROUND_BYTES: usize = 1_000;

pub(super) fn tools(
    server: Server,
    client: Arc<Client>,
    params: Option<&RawValue>,
) -> Result<Begun> {
    let after = After::read(&server, &client, "tools", params)?;
    Ok(Begun::later(async move {
        let cards = server.0.offer.tools.list(&client.permit).await?;
        let shown = |card: &Card| described(card, client.version);
        let name = |card: &Card| card.name.to_string();
        Ok(page(&server, &client, "tools", after, &cards, name, shown))
    }))
}

pub(super) fn resources(
    server: Server,
    client: Arc<Client>,
    params: Option<&RawValue>,
) -> Result<Begun> {
    let after = After::read(&server, &client, "resources", params)?;
    Ok(Begun::later(async move {
        let cards = server.0.offer.resources.list(&client.permit).await?;
        let name = |card: &rung_tool::ResourceCard| card.uri.clone();
        Ok(page(
            &server,
            &client,
            "resources",
            after,
            &cards,
            name,
            |card| json!(card),
        ))
    }))
}

pub(super) fn templates(
    server: &Server,
    client: &Client,
    params: Option<&RawValue>,
) -> Result<Begun> {
    let after = After::read(server, client, "resourceTemplates", params)?;
    let cards = server.0.offer.resources.templates();
    let name = |card: &rung_tool::TemplateCard| card.uri_template.clone();
    let body = page(
        server,
        client,
        "resourceTemplates",
        after,
        &cards,
        name,
        |card| json!(card),
    );
    Ok(Begun::Now(body))
}

pub(super) fn prompts(
    server: Server,
    client: Arc<Client>,
    params: Option<&RawValue>,
) -> Result<Begun> {
    let after = After::read(&server, &client, "prompts", params)?;
    Ok(Begun::later(async move {
        let prompts = server.0.offer.prompts.as_ref();
        let prompts = prompts.ok_or_else(|| Refusal::method("prompts/list"))?;
        let cards = prompts.list(&client.permit).await?;
        let name = |card: &rung_tool::PromptCard| card.name.clone();
        Ok(page(
            &server,
            &client,
            "prompts",
            after,
            &cards,
            name,
            |card| json!(card),
        ))
    }))
}

/// Where a page begins: behind the item of that name, or, if it has gone, where it was.
#[derive(Serialize, Deserialize)]
struct After {
    name: String,
    index: usize,
}

impl After {
    fn read(
        server: &Server,
        client: &Client,
        list: &str,
        params: Option<&RawValue>,
    ) -> Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Params {
            cursor: Option<String>,
        }
        let Some(cursor) = read::<Params>(params)?.cursor else {
            return Ok(None);
        };
        let opened = server.0.offer.key.open(list, &client.bound(), &cursor);
        let refused = || {
            Refusal::params("the cursor is not one of this list")
                .with_data(json!({"code": "invalid_cursor", "hint": "list again without a cursor"}))
        };
        opened.ok_or_else(refused).map(Some)
    }
}

fn page<T>(
    server: &Server,
    client: &Client,
    list: &'static str,
    after: Option<After>,
    items: &[T],
    name: impl Fn(&T) -> String,
    shown: impl Fn(&T) -> Value,
) -> Body {
    let first = after.map_or(0, |after| {
        let found = items.iter().position(|item| name(item) == after.name);
        found.map_or(after.index, |at| at + 1).min(items.len())
    });
    let mut room = server.0.offer.budget.max_bytes.saturating_sub(AROUND_BYTES);
    let mut page = Vec::new();
    for item in items[first..].iter().take(PAGE) {
        let item = shown(item);
        let bytes = json_bytes(&item, Measure::Bare) + 1;
        // One that is larger than a page is a page.
        if bytes > room && !page.is_empty() {
            break;
        }
        room = room.saturating_sub(bytes);
        page.push(item);
    }
    let next = first + page.len();
    let mut result = Map::new();
    result.insert(list.to_owned(), page.into());
    if next < items.len() {
        let after = After {
            name: name(&items[next - 1]),
            index: next,
        };
        let cursor = server.0.offer.key.seal(list, &client.bound(), &after);
        result.insert("nextCursor".to_owned(), cursor.into());
    }
    Body::Cacheable(json(&result).into_bytes())
}

/// A tool as a client of that version knows tools.
fn described(card: &Card, version: Version) -> Value {
    let mut tool = Map::new();
    let mut put = |key: &str, value: Value| tool.insert(key.to_owned(), value);
    put("name", (*card.name).into());
    if version >= Version::V2025_06_18 {
        put("title", (*card.title).into());
    }
    put("description", (*card.description).into());
    put("inputSchema", (*card.input_schema).clone());
    if let Some(schema) = card
        .output_schema
        .as_deref()
        .filter(|_| version >= Version::V2025_06_18)
    {
        put("outputSchema", schema.clone());
    }
    if version >= Version::V2025_03_26 {
        let hints = card.hints;
        put(
            "annotations",
            json!({
                "title": *card.title,
                "readOnlyHint": hints.read_only,
                "destructiveHint": hints.destructive,
                "idempotentHint": hints.idempotent,
                "openWorldHint": hints.open_world,
            }),
        );
    }
    Value::Object(tool)
}

/// The notification of a change, with what must stand in its `_meta`.
pub(crate) fn change_message(change: &Change, meta: Option<&Value>) -> Vec<u8> {
    let mut params = Map::new();
    if let Some(meta) = meta {
        params.insert("_meta".to_owned(), meta.clone());
    }
    let method = match change {
        Change::Tools => "notifications/tools/list_changed",
        Change::Prompts => "notifications/prompts/list_changed",
        Change::Resources => "notifications/resources/list_changed",
        Change::Resource(uri) => {
            params.insert("uri".to_owned(), uri.as_str().into());
            "notifications/resources/updated"
        }
    };
    write_notification(method, &params)
}
