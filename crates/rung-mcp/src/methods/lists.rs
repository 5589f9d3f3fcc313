//! Lists, a page at a time. A page fits the reply's budget; its cursor is sealed and bound to the caller.

use std::borrow::Cow;
use std::sync::Arc;

use rung_tool::{Card, Change, PromptCard, ResourceCard, TaskUse, TemplateCard};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{Begun, read};
use crate::client::Client;
use crate::envelope::{Id, json, write_notification};
use crate::refusal::{Refusal, Result};
use crate::server::{Body, Server, icons};
use crate::splice;
use crate::tasks::Record;
use crate::version::Version;

/// Items of a page.
const PAGE: usize = 100;
/// Set aside for what stands around a page: the list's name, and a cursor.
const AROUND_BYTES: usize = 400;

pub(super) fn tools(
    server: Server,
    client: Arc<Client>,
    id: &Id,
    params: Option<&RawValue>,
) -> Result<Begun> {
    let place = Place::read(&server, &client, id, "tools", params)?;
    Ok(Begun::later(async move {
        let cards = server.0.offer.tools.list(&client.permit).await?;
        let shown = |card: &Card| described(card, client.version, true);
        // What a tool gives can be seen when it gives it.
        let smaller = |card: &Card| described(card, client.version, false);
        Ok(place.page(&server, &client, &cards, |card| &card.name, shown, smaller))
    }))
}

pub(super) fn resources(
    server: Server,
    client: Arc<Client>,
    id: &Id,
    params: Option<&RawValue>,
) -> Result<Begun> {
    let place = Place::read(&server, &client, id, "resources", params)?;
    Ok(Begun::later(async move {
        let cards = server.0.offer.resources.list(&client.permit).await?;
        let shown = |card: &ResourceCard| match &card.listed {
            Some(listed) => as_listed(listed, &[("uri", &card.uri), ("name", &card.name)]),
            None => raw(card),
        };
        Ok(place.page(&server, &client, &cards, |card| &card.uri, shown, shown))
    }))
}

pub(super) fn templates(
    server: Server,
    client: Arc<Client>,
    id: &Id,
    params: Option<&RawValue>,
) -> Result<Begun> {
    let place = Place::read(&server, &client, id, "resourceTemplates", params)?;
    Ok(Begun::later(async move {
        let cards = server.0.offer.resources.templates(&client.permit).await?;
        let shown = |card: &TemplateCard| match &card.listed {
            Some(listed) => as_listed(
                listed,
                &[("uriTemplate", &card.uri_template), ("name", &card.name)],
            ),
            None => raw(card),
        };
        Ok(place.page(
            &server,
            &client,
            &cards,
            |card| &card.uri_template,
            shown,
            shown,
        ))
    }))
}

pub(super) fn prompts(
    server: Server,
    client: Arc<Client>,
    id: &Id,
    params: Option<&RawValue>,
) -> Result<Begun> {
    let place = Place::read(&server, &client, id, "prompts", params)?;
    Ok(Begun::later(async move {
        let prompts = server.0.offer.prompts.as_ref();
        let prompts = prompts.ok_or_else(|| Refusal::method("prompts/list"))?;
        let cards = prompts.list(&client.permit).await?;
        let shown = |card: &PromptCard| match &card.listed {
            Some(listed) => as_listed(listed, &[("name", &card.name)]),
            None => raw(card),
        };
        Ok(place.page(&server, &client, &cards, |card| &card.name, shown, shown))
    }))
}

pub(super) fn tasks(
    server: Server,
    client: Arc<Client>,
    id: &Id,
    params: Option<&RawValue>,
) -> Result<Begun> {
    let place = Place::read(&server, &client, id, "tasks", params)?;
    Ok(Begun::later(async move {
        let records = server.0.tasks.list(&client).await?;
        let shown = |record: &Record| raw(&record.legacy());
        Ok(place.page(
            &server,
            &client,
            &records,
            |record| &record.id,
            shown,
            shown,
        ))
    }))
}

/// Where a page begins: behind the item of that name, or, if it has gone, where it was.
#[derive(Serialize, Deserialize)]
struct After {
    name: String,
    index: usize,
}

/// A page that is asked for.
struct Place {
    list: &'static str,
    after: Option<After>,
    /// Bytes for the items of the page.
    room: usize,
}

impl Place {
    fn read(
        server: &Server,
        client: &Client,
        id: &Id,
        list: &'static str,
        params: Option<&RawValue>,
    ) -> Result<Self> {
        #[derive(Deserialize)]
        struct Params {
            cursor: Option<String>,
        }
        let after = match read::<Params>(params)?.cursor {
            None => None,
            Some(cursor) => {
                let opened = server.0.offer.key.open(list, &client.bound(), &cursor);
                let hint = "list again without a cursor";
                let data = json!({"code": "invalid_cursor", "hint": hint});
                let refused =
                    || Refusal::params("the cursor is not one of this list").with_data(data);
                Some(opened.ok_or_else(refused)?)
            }
        };
        let room = server.budget(client, id).less(AROUND_BYTES).max_bytes;
        Ok(Self { list, after, room })
    }

    /// The page, of items that are shown as such. Where one fits no page it is shown smaller, if it can be.
    fn page<T>(
        self,
        server: &Server,
        client: &Client,
        items: &[T],
        name: impl Fn(&T) -> &str,
        shown: impl Fn(&T) -> Box<RawValue>,
        smaller: impl Fn(&T) -> Box<RawValue>,
    ) -> Body {
        let first = self.after.map_or(0, |after| {
            let found = items.iter().position(|item| name(item) == after.name);
            found.map_or(after.index, |at| at + 1).min(items.len())
        });
        let bytes = |value: &RawValue| value.get().len() + 1;
        let mut room = self.room;
        let mut page = Vec::new();
        let mut next = first;
        for item in items[first..].iter().take(PAGE) {
            let mut value = shown(item);
            if bytes(&value) > self.room {
                value = smaller(item);
            }
            let needed = bytes(&value);
            if needed > room && !page.is_empty() {
                break;
            }
            next += 1;
            // What fits no page at all would take the rest of the list with it.
            if needed > room {
                tracing::warn!(name = name(item), needed, "left out of its list: too large");
                continue;
            }
            room -= needed;
            page.push(value);
        }
        let items_json: Vec<&str> = page.iter().map(|item| item.get()).collect();
        let mut result = format!("{{\"{}\":[{}]", self.list, items_json.join(","));
        if next < items.len() {
            let after = After {
                name: name(&items[next - 1]).to_owned(),
                index: next,
            };
            let cursor = server.0.offer.key.seal(self.list, &client.bound(), &after);
            result.push_str(",\"nextCursor\":");
            result.push_str(&json(&cursor));
        }
        result.push('}');
        Body::Cacheable(result.into_bytes())
    }
}

fn raw(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("our own shapes have string keys")
}

/// Something as another server lists it, but for the names by which it is known here.
fn as_listed(listed: &RawValue, names: &[(&str, &str)]) -> Box<RawValue> {
    let mut all = Cow::Borrowed(listed.get());
    for (member, name) in names {
        let own = splice::member(&all, member).map_or("\"\"", RawValue::get);
        let own = serde_json::from_str::<Cow<'_, str>>(own);
        if !own.is_ok_and(|own| own == *name) {
            all = Cow::Owned(splice::with(&all, member, &json(name)));
        }
    }
    RawValue::from_string(all.into_owned()).expect("one member of it is another one")
}

/// A tool as a client of that version knows tools; another server's as that server lists it.
fn described(card: &Card, version: Version, whole: bool) -> Box<RawValue> {
    if let Some(listed) = &card.listed {
        return as_listed(listed, &[("name", &card.name)]);
    }
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
        .filter(|_| whole && version >= Version::V2025_06_18)
    {
        put("outputSchema", schema.clone());
    }
    if let Some(icon) = card.icon.filter(|_| version >= Version::V2025_11_25) {
        put("icons", icons(icon));
    }
    if version == Version::V2025_11_25 && card.tasks != TaskUse::Never {
        let support = match card.tasks {
            TaskUse::Required => "required",
            _ => "optional",
        };
        put("execution", json!({"taskSupport": support}));
    }
    if version >= Version::V2025_03_26 {
        let hints = card.hints;
        let mut told = json!({
            "readOnlyHint": hints.read_only,
            "destructiveHint": hints.destructive,
            "idempotentHint": hints.idempotent,
            "openWorldHint": hints.open_world,
        });
        // Said here by the version that has no other place for it.
        if version < Version::V2025_06_18 {
            told["title"] = (*card.title).into();
        }
        put("annotations", told);
    }
    raw(&tool)
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
        Change::Missed => unreachable!("told of as what may have changed"),
        Change::Resource(uri) => {
            params.insert("uri".to_owned(), uri.as_str().into());
            "notifications/resources/updated"
        }
    };
    write_notification(method, &params)
}
