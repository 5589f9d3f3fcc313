//! A server's lists, read page by page to the end, with each item unchanged.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::incoming::{ItemLimits, ServerResult};
use super::{Error, RequestOptions, ServerConnection};
use crate::headers::{check_mirrored_schema, has_mirrored_arguments};

/// Pages that are read; if there are more, the list is marked as cut.
const MAX_PAGES: usize = 200;
/// Items after which no further page is read.
const MAX_ITEMS: usize = 20_000;
/// Bytes after which no further page is read.
const MAX_LIST_BYTES: usize = 32 << 20;
/// Bytes of a tool's name.
const MAX_NAME_BYTES: usize = 128;
/// Bytes of a schema.
const MAX_SCHEMA_BYTES: usize = 1 << 20;
/// Bytes of a tool's whole definition, and of an item on a page that is read from a file.
const MAX_ITEM_BYTES: usize = 2 << 20;

/// The lists that a server can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind {
    Tools,
    Resources,
    Templates,
    Prompts,
    /// 2025-11-25 only.
    Tasks,
}

impl ListKind {
    fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
            Self::Prompts => "prompts/list",
            Self::Tasks => "tasks/list",
        }
    }

    fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Prompts => "prompts",
            Self::Tasks => "tasks",
        }
    }

    /// Returns the capability that a server with this list declares.
    fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources | Self::Templates => "resources",
            Self::Prompts => "prompts",
            Self::Tasks => "tasks",
        }
    }
}

/// All pages of a list.
#[derive(Debug, Default)]
pub struct ServerList {
    /// The items, unchanged.
    pub items: Vec<Box<RawValue>>,
    /// Items over the size limit.
    pub oversized: Vec<RejectedItem>,
    /// True if a limit was reached and the rest is missing.
    pub cut: bool,
    /// Milliseconds for which the list may be cached, if the server says so.
    pub ttl_ms: Option<u64>,
}

/// A tool with a valid definition.
#[derive(Debug, Clone)]
pub struct DownstreamTool {
    pub name: Arc<str>,
    pub input_schema: Arc<Value>,
    /// The server's definition, unchanged.
    pub definition: Arc<RawValue>,
    /// True if some arguments are mirrored in headers.
    pub(super) mirrors: bool,
    /// True if a call may, or must, be a task (2025-11-25).
    pub(super) may_be_task: bool,
    pub(super) must_be_task: bool,
}

/// An item that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedItem {
    /// The item's name, or empty.
    pub name: String,
    pub why: String,
}

/// A server's tools.
#[derive(Debug, Default)]
pub struct DownstreamTools {
    pub tools: Vec<DownstreamTool>,
    /// Tools with an invalid or duplicate definition.
    pub rejected: Vec<RejectedItem>,
    /// True if a limit was reached and the rest is missing.
    pub cut: bool,
    /// Milliseconds for which the list may be cached, if the server says so.
    pub ttl_ms: Option<u64>,
}

impl ServerConnection {
    /// Reads a list to its end. Returns an empty list if the server lacks the capability.
    pub async fn list(&self, kind: ListKind, how: &RequestOptions) -> Result<ServerList, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ListPage<'a> {
            #[serde(borrow)]
            next_cursor: Option<Cow<'a, str>>,
            ttl_ms: Option<u64>,
        }
        let mut listed = ServerList::default();
        let mut bytes = 0;
        // One deadline for the whole list, however many pages it has.
        let deadline = how.deadline;
        let deadline = deadline.unwrap_or_else(|| Instant::now() + self.0.options.request_timeout);
        let how = &RequestOptions {
            deadline: Some(deadline),
            ..how.clone()
        };
        let mut cursor: Option<String> = None;
        let unusable = |why: String| Error::Unusable {
            server: self.name().clone(),
            why,
        };
        for _ in 0..MAX_PAGES {
            let params = cursor.as_ref().map(|cursor| {
                serde_json::value::to_raw_value(&json!({"cursor": cursor}))
                    .expect("an object of text")
            });
            let answer = match self
                .request_idempotent(kind.method(), params.as_deref(), how)
                .await
            {
                // A server may refuse a list whose capability it did not declare.
                Err(Error::Refused { .. }) if !self.declares(kind) => return Ok(listed),
                answer => answer?,
            };
            let (page, page_bytes) = match answer {
                ServerResult::InMemory(page) => {
                    let items = rung_tool::splice::member(page.get(), kind.member());
                    let items =
                        items.map(|items| serde_json::from_str::<Vec<&RawValue>>(items.get()));
                    let Some(Ok(items)) = items else {
                        return Err(unusable(format!(
                            "the result of {} has no list",
                            kind.method()
                        )));
                    };
                    listed
                        .items
                        .extend(items.into_iter().map(ToOwned::to_owned));
                    let bytes = page.get().len();
                    (String::from(Box::<str>::from(page)), bytes)
                }
                // An oversized item is left out; the others stay.
                ServerResult::InFile(page) => {
                    let room = MAX_LIST_BYTES.saturating_sub(bytes);
                    let limits = ItemLimits {
                        item_bytes: MAX_ITEM_BYTES,
                        total_bytes: room,
                    };
                    let page = page.items(kind.member(), limits).await;
                    let page = page.map_err(|error| {
                        unusable(format!("a page of {}: {error}", kind.method()))
                    })?;
                    let Some(page) = page else {
                        return Err(unusable(format!(
                            "the result of {} has no list",
                            kind.method()
                        )));
                    };
                    let items = page.items.iter().map(|item| item.get().len());
                    let bytes = items.sum();
                    listed.items.extend(page.items);
                    let oversized = page.oversized.into_iter();
                    listed
                        .oversized
                        .extend(oversized.map(|(name, bytes)| RejectedItem {
                            name: rung_ladder::head(&name, MAX_NAME_BYTES).to_owned(),
                            why: too_long("its definition", bytes, MAX_ITEM_BYTES),
                        }));
                    listed.cut |= page.cut;
                    (page.rest, bytes)
                }
            };
            let page: ListPage<'_> = serde_json::from_str(&page)
                .map_err(|error| unusable(format!("{}: {error}", kind.method())))?;
            listed.ttl_ms = match (listed.ttl_ms, page.ttl_ms) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            let next = page.next_cursor.map(Cow::into_owned);
            // A cursor that repeats itself ends the list.
            if next.is_none() || next == cursor {
                return Ok(listed);
            }
            bytes += page_bytes;
            if listed.items.len() >= MAX_ITEMS || bytes >= MAX_LIST_BYTES {
                break;
            }
            cursor = next;
        }
        listed.cut = true;
        Ok(listed)
    }

    /// Reads the tool list and validates each tool separately: an invalid tool does not affect the others.
    pub async fn tools(&self, how: &RequestOptions) -> Result<DownstreamTools, Error> {
        let listed = self.list(ListKind::Tools, how).await?;
        let mut tools = DownstreamTools {
            cut: listed.cut,
            ttl_ms: listed.ttl_ms,
            ..DownstreamTools::default()
        };
        let mut names = HashSet::new();
        for dropped in listed.oversized {
            tools.reject(self.name(), dropped);
        }
        for item in listed.items {
            match DownstreamTool::parse(item) {
                Ok(tool) if !names.insert(tool.name.clone()) => {
                    let name = tool.name.to_string();
                    tools.rejected.push(RejectedItem {
                        name,
                        why: "another tool has this name".to_owned(),
                    });
                }
                Ok(tool) => tools.tools.push(tool),
                Err(dropped) => tools.reject(self.name(), dropped),
            }
        }
        Ok(tools)
    }

    fn declares(&self, kind: ListKind) -> bool {
        self.handshake()
            .is_none_or(|agreed| agreed.capabilities.get(kind.capability()).is_some())
    }
}

impl DownstreamTools {
    fn reject(&mut self, server: &str, dropped: RejectedItem) {
        tracing::warn!(%server, tool = ?dropped.name, why = %dropped.why, "skipped an invalid tool");
        self.rejected.push(dropped);
    }
}

fn too_long(what: &str, bytes: usize, most: usize) -> String {
    format!("{what} has {bytes} bytes; the limit is {most}")
}

impl DownstreamTool {
    /// Parses and validates one item of a tool list.
    pub fn parse(listed: Box<RawValue>) -> Result<Self, RejectedItem> {
        let tool: Value = serde_json::from_str(listed.get()).unwrap_or_default();
        let name = tool["name"].as_str().unwrap_or_default();
        let dropped = |why: &str| RejectedItem {
            name: rung_ladder::head(name, MAX_NAME_BYTES).to_owned(),
            why: why.to_owned(),
        };
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) || name.chars().any(char::is_control) {
            return Err(dropped(
                "its name is missing, too long or has control characters",
            ));
        }
        if listed.get().len() > MAX_ITEM_BYTES {
            let bytes = listed.get().len();
            return Err(dropped(&too_long("its definition", bytes, MAX_ITEM_BYTES)));
        }
        let schema = &tool["inputSchema"];
        if !schema.is_object() {
            return Err(dropped("its inputSchema is not an object"));
        }
        let schema_bytes = schema.to_string().len();
        if schema_bytes > MAX_SCHEMA_BYTES {
            let why = too_long("its inputSchema", schema_bytes, MAX_SCHEMA_BYTES);
            return Err(dropped(&why));
        }
        if tool
            .get("outputSchema")
            .is_some_and(|schema| !schema.is_object())
        {
            return Err(dropped("its outputSchema is not an object"));
        }
        if tool
            .get("description")
            .is_some_and(|text| !text.is_string())
        {
            return Err(dropped("its description is not a string"));
        }
        if let Err(why) = check_mirrored_schema(schema) {
            return Err(dropped(&why));
        }
        let support = tool["execution"]["taskSupport"].as_str();
        Ok(Self {
            name: name.into(),
            input_schema: Arc::new(schema.clone()),
            mirrors: has_mirrored_arguments(schema),
            may_be_task: matches!(support, Some("optional" | "required")),
            must_be_task: support == Some("required"),
            definition: listed.into(),
        })
    }
}
