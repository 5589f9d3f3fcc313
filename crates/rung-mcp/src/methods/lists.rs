//! Paginated lists. A page fits the reply's budget; its cursor is sealed and bound to the caller.

use std::borrow::Cow;
use std::sync::Arc;

use rung_tool::{Card, Change, PromptCard, ResourceCard, TaskUse, TemplateCard};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{MethodResult, parse_params};
use crate::client::ClientContext;
use crate::client_profile::ClientProfile;
use crate::envelope::{RequestId, to_json, write_notification};
use crate::protocol_error::{ProtocolError, Result};
use crate::server::{McpServer, ResultBody, icons};
use crate::tasks::TaskRecord;
use crate::version::ProtocolVersion;
use rung_tool::splice;

/// Maximum number of items in a page.
const PAGE_ITEMS: usize = 100;
/// Bytes reserved around a page, for the list's name and a cursor.
const ENVELOPE_BYTES: usize = 400;

pub(super) fn tools(
    server: McpServer,
    client: Arc<ClientContext>,
    id: &RequestId,
    params: Option<&RawValue>,
) -> Result<MethodResult> {
    let place = PageRequest::parse(&server, &client, id, "tools", params)?;
    Ok(MethodResult::deferred(async move {
        let cards = server.0.config.tools.list(&client.permit).await?;
        let shown = |card: &Card| tool_json(card, &client, true);
        // The output schema can be left out: results show it.
        let smaller = |card: &Card| tool_json(card, &client, false);
        Ok(place.encode_page(&server, &client, &cards, |card| &card.name, shown, smaller))
    }))
}

pub(super) fn resources(
    server: McpServer,
    client: Arc<ClientContext>,
    id: &RequestId,
    params: Option<&RawValue>,
) -> Result<MethodResult> {
    let place = PageRequest::parse(&server, &client, id, "resources", params)?;
    Ok(MethodResult::deferred(async move {
        let cards = server.0.config.resources.list(&client.permit).await?;
        let shown = |card: &ResourceCard| match &card.listed {
            Some(listed) => with_local_names(listed, &[("uri", &card.uri), ("name", &card.name)]),
            None => to_raw_json(card),
        };
        Ok(place.encode_page(&server, &client, &cards, |card| &card.uri, shown, shown))
    }))
}

pub(super) fn templates(
    server: McpServer,
    client: Arc<ClientContext>,
    id: &RequestId,
    params: Option<&RawValue>,
) -> Result<MethodResult> {
    let place = PageRequest::parse(&server, &client, id, "resourceTemplates", params)?;
    Ok(MethodResult::deferred(async move {
        let cards = server.0.config.resources.templates(&client.permit).await?;
        let shown = |card: &TemplateCard| match &card.listed {
            Some(listed) => with_local_names(
                listed,
                &[("uriTemplate", &card.uri_template), ("name", &card.name)],
            ),
            None => to_raw_json(card),
        };
        Ok(place.encode_page(
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
    server: McpServer,
    client: Arc<ClientContext>,
    id: &RequestId,
    params: Option<&RawValue>,
) -> Result<MethodResult> {
    let place = PageRequest::parse(&server, &client, id, "prompts", params)?;
    Ok(MethodResult::deferred(async move {
        let prompts = server.0.config.prompts.as_ref();
        let prompts = prompts.ok_or_else(|| ProtocolError::method_not_found("prompts/list"))?;
        let cards = prompts.list(&client.permit).await?;
        let shown = |card: &PromptCard| match &card.listed {
            Some(listed) => with_local_names(listed, &[("name", &card.name)]),
            None => to_raw_json(card),
        };
        Ok(place.encode_page(&server, &client, &cards, |card| &card.name, shown, shown))
    }))
}

pub(super) fn tasks(
    server: McpServer,
    client: Arc<ClientContext>,
    id: &RequestId,
    params: Option<&RawValue>,
) -> Result<MethodResult> {
    let place = PageRequest::parse(&server, &client, id, "tasks", params)?;
    Ok(MethodResult::deferred(async move {
        let records = server.0.tasks.list(&client).await?;
        let shown = |record: &TaskRecord| to_raw_json(&record.to_legacy());
        Ok(place.encode_page(
            &server,
            &client,
            &records,
            |record| &record.id,
            shown,
            shown,
        ))
    }))
}

/// Start of a page: after the item of that name or, if the item is gone, at the index after its former one.
#[derive(Serialize, Deserialize)]
struct PageCursor {
    name: String,
    index: usize,
}

/// A requested page.
struct PageRequest {
    list: &'static str,
    after: Option<PageCursor>,
    /// Bytes available for the items.
    item_bytes: usize,
}

impl PageRequest {
    fn parse(
        server: &McpServer,
        client: &ClientContext,
        id: &RequestId,
        list: &'static str,
        params: Option<&RawValue>,
    ) -> Result<Self> {
        #[derive(Deserialize)]
        struct Params {
            cursor: Option<String>,
        }
        let after = match parse_params::<Params>(params)?.cursor {
            None => None,
            Some(cursor) => {
                let opened = server.0.config.key.open(list, &client.binding(), &cursor);
                let hint = "list again without a cursor";
                let data = json!({"code": "invalid_cursor", "hint": hint});
                let refused = || {
                    ProtocolError::invalid_params("the cursor does not belong to this list")
                        .with_data(data)
                };
                Some(opened.ok_or_else(refused)?)
            }
        };
        let room = server
            .reply_budget(client, id)
            .less(ENVELOPE_BYTES)
            .max_bytes;
        Ok(Self {
            list,
            after,
            item_bytes: room,
        })
    }

    /// Encodes the page, with each item as `shown` writes it. An item that fits no page is written by `smaller`.
    fn encode_page<T>(
        self,
        server: &McpServer,
        client: &ClientContext,
        items: &[T],
        name: impl Fn(&T) -> &str,
        shown: impl Fn(&T) -> Box<RawValue>,
        smaller: impl Fn(&T) -> Box<RawValue>,
    ) -> ResultBody {
        let first = self.after.map_or(0, |after| {
            let found = items.iter().position(|item| name(item) == after.name);
            found.map_or(after.index, |at| at + 1).min(items.len())
        });
        let bytes = |value: &RawValue| value.get().len() + 1;
        let mut room = self.item_bytes;
        let mut page = Vec::new();
        let mut next = first;
        for item in items[first..].iter().take(PAGE_ITEMS) {
            let mut value = shown(item);
            if bytes(&value) > self.item_bytes {
                value = smaller(item);
            }
            let needed = bytes(&value);
            if needed > room && !page.is_empty() {
                break;
            }
            next += 1;
            // An item that fits no page is left out; otherwise the list would end there.
            if needed > room {
                tracing::warn!(name = name(item), needed, "left out of the list: too large");
                continue;
            }
            room -= needed;
            page.push(value);
        }
        let items_json: Vec<&str> = page.iter().map(|item| item.get()).collect();
        let mut result = format!("{{\"{}\":[{}]", self.list, items_json.join(","));
        if next < items.len() {
            let after = PageCursor {
                name: name(&items[next - 1]).to_owned(),
                index: next,
            };
            let cursor = server
                .0
                .config
                .key
                .seal(self.list, &client.binding(), &after);
            result.push_str(",\"nextCursor\":");
            result.push_str(&to_json(&cursor));
        }
        result.push('}');
        ResultBody::Cacheable(result.into_bytes())
    }
}

fn to_raw_json(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("our own shapes have string keys")
}

/// Returns a downstream server's listing, with only its names replaced by those used here.
fn with_local_names(listed: &RawValue, names: &[(&str, &str)]) -> Box<RawValue> {
    let mut all = Cow::Borrowed(listed.get());
    for (member, name) in names {
        let own = splice::member(&all, member).map_or("\"\"", RawValue::get);
        let own = serde_json::from_str::<Cow<'_, str>>(own);
        if !own.is_ok_and(|own| own == *name) {
            all = Cow::Owned(splice::set_member(&all, member, &to_json(name)));
        }
    }
    raw_json(all.into_owned())
}

/// Describes a tool for a client. A downstream tool keeps the listing of its server.
fn tool_json(card: &Card, client: &ClientContext, whole: bool) -> Box<RawValue> {
    let (version, shows_structured) = (client.version, client.rendering().structured);
    let hints =
        (whole && client.profile.reads_tool_hints).then(|| tool_hints(card, client.profile));
    if let Some(listed) = &card.listed {
        let mut listed = with_local_names(listed, &[("name", &card.name)]);
        if !shows_structured && splice::member(listed.get(), "outputSchema").is_some() {
            // Clients expect structured content of a tool with an output schema.
            listed = raw_json(splice::without_member(listed.get(), "outputSchema"));
        }
        if let Some(hints) = hints {
            listed = with_hints(&listed, &hints);
        }
        return listed;
    }
    let mut tool = Map::new();
    let mut put = |key: &str, value: Value| tool.insert(key.to_owned(), value);
    put("name", (*card.name).into());
    if version >= ProtocolVersion::V2025_06_18 {
        put("title", (*card.title).into());
    }
    put("description", (*card.description).into());
    put("inputSchema", (*card.input_schema).clone());
    if let Some(schema) = card
        .output_schema
        .as_deref()
        .filter(|_| whole && shows_structured)
    {
        put("outputSchema", schema.clone());
    }
    if let Some(icon) = card
        .icon
        .filter(|_| version >= ProtocolVersion::V2025_11_25)
    {
        put("icons", icons(icon));
    }
    if version == ProtocolVersion::V2025_11_25 && card.tasks != TaskUse::Never {
        let support = match card.tasks {
            TaskUse::Required => "required",
            _ => "optional",
        };
        put("execution", json!({"taskSupport": support}));
    }
    if version >= ProtocolVersion::V2025_03_26 {
        let hints = card.hints;
        let mut told = json!({
            "readOnlyHint": hints.read_only,
            "destructiveHint": hints.destructive,
            "idempotentHint": hints.idempotent,
            "openWorldHint": hints.open_world,
        });
        // This version has no other place for the title.
        if version < ProtocolVersion::V2025_06_18 {
            told["title"] = (*card.title).into();
        }
        put("annotations", told);
    }
    if let Some(hints) = hints {
        put("_meta", hints.into());
    }
    to_raw_json(&tool)
}

/// Returns the members of a tool's `_meta` for clients that keep tools from their model until it searches for them.
fn tool_hints(card: &Card, profile: &ClientProfile) -> Map<String, Value> {
    let mut hints = Map::new();
    if card.is_entry {
        hints.insert("anthropic/alwaysLoad".to_owned(), true.into());
    }
    if !card.search_hint.is_empty() {
        hints.insert("anthropic/searchHint".to_owned(), card.search_hint.into());
    }
    let most = profile.max_form_bytes.into();
    hints.insert("anthropic/maxResultSizeChars".to_owned(), most);
    hints
}

/// Returns a downstream server's listing with these members in its `_meta`.
fn with_hints(listed: &RawValue, hints: &Map<String, Value>) -> Box<RawValue> {
    let meta = splice::member(listed.get(), "_meta").map_or("{}", RawValue::get);
    let meta = hints.iter().fold(meta.to_owned(), |meta, (name, value)| {
        splice::set_member(&meta, name, &to_json(value))
    });
    raw_json(splice::set_member(listed.get(), "_meta", &meta))
}

fn raw_json(json: String) -> Box<RawValue> {
    RawValue::from_string(json).expect("members of JSON objects are replaced by JSON")
}

/// Encodes the notification of a change, with the given `_meta`.
pub(crate) fn change_notification(change: &Change, meta: Option<&Value>) -> Vec<u8> {
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
