//! Lists of a server's, followed to their end, each item as it came.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::intake::{Answer, ItemLimits};
use super::{Connection, Error, How};
use crate::headers::{check_mirrored, wants_headers};

/// Pages that are followed; what lies beyond is left out, and that is said.
const MAX_PAGES: usize = 200;
/// Items that are taken.
const MAX_ITEMS: usize = 20_000;
/// Bytes of a list.
const MAX_LIST_BYTES: usize = 32 << 20;
/// Bytes of a tool's name.
const MAX_NAME_BYTES: usize = 128;
/// Bytes of a schema.
const MAX_SCHEMA_BYTES: usize = 1 << 20;
/// Bytes of a tool's whole definition, and of an item on a page that is too long to be held in memory.
const MAX_ITEM_BYTES: usize = 2 << 20;

/// What can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Tools.
    Tools,
    /// Resources.
    Resources,
    /// Templates of resources.
    Templates,
    /// Prompts.
    Prompts,
    /// Tasks, of 2025-11-25.
    Tasks,
}

impl Kind {
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

    /// The capability of a server that has such a list.
    fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources | Self::Templates => "resources",
            Self::Prompts => "prompts",
            Self::Tasks => "tasks",
        }
    }
}

/// A list.
#[derive(Debug, Default)]
pub struct Listed {
    /// Its items, as they came.
    pub items: Vec<Box<RawValue>>,
    /// Items that are too long to be taken.
    pub oversized: Vec<Dropped>,
    /// Whether there was more than anybody follows.
    pub cut: bool,
    /// Milliseconds for which it may be kept, where the server says.
    pub ttl_ms: Option<u64>,
}

/// A tool that can be called.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Its name.
    pub name: Arc<str>,
    /// What it takes.
    pub input_schema: Arc<Value>,
    /// Everything the server says of it, as it came.
    pub listed: Arc<RawValue>,
    /// Whether some of its arguments are repeated in headers.
    pub(super) mirrors: bool,
    /// Whether it can be called as a task, in 2025-11-25, and whether only so.
    pub(super) may_be_task: bool,
    pub(super) must_be_task: bool,
}

/// A tool that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Its name, where it has one.
    pub name: String,
    /// Why.
    pub why: String,
}

/// The tools of a server.
#[derive(Debug, Default)]
pub struct Tools {
    /// Those that can be called.
    pub tools: Vec<Tool>,
    /// Those that cannot.
    pub dropped: Vec<Dropped>,
    /// Whether there were more than anybody follows.
    pub cut: bool,
    /// Milliseconds for which the list may be kept, where the server says.
    pub ttl_ms: Option<u64>,
}

impl Connection {
    /// A list, to its end. A server that does not have such things has none.
    pub async fn list(&self, kind: Kind, how: &How) -> Result<Listed, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Page<'a> {
            #[serde(borrow)]
            next_cursor: Option<Cow<'a, str>>,
            ttl_ms: Option<u64>,
        }
        let mut listed = Listed::default();
        let mut bytes = 0;
        // One time for the whole list, however many pages it has.
        let deadline = how.deadline;
        let deadline = deadline.unwrap_or_else(|| Instant::now() + self.0.options.answering);
        let how = &How {
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
            let answer = match self.look(kind.method(), params.as_deref(), how).await {
                // What it never said it had it need not have.
                Err(Error::Refused { .. }) if !self.has(kind) => return Ok(listed),
                answer => answer?,
            };
            let (page, page_bytes) = match answer {
                Answer::Here(page) => {
                    let items = crate::splice::member(page.get(), kind.member());
                    let items =
                        items.map(|items| serde_json::from_str::<Vec<&RawValue>>(items.get()));
                    let Some(Ok(items)) = items else {
                        return Err(unusable(format!("{} gave no list", kind.method())));
                    };
                    listed
                        .items
                        .extend(items.into_iter().map(ToOwned::to_owned));
                    let bytes = page.get().len();
                    (String::from(Box::<str>::from(page)), bytes)
                }
                // One item of many bytes does not cost the others.
                Answer::Long(page) => {
                    let room = MAX_LIST_BYTES.saturating_sub(bytes);
                    let limits = ItemLimits {
                        each: MAX_ITEM_BYTES,
                        all: room,
                    };
                    let page = page.items(kind.member(), limits).await;
                    let page = page.map_err(|error| {
                        unusable(format!("a page of {}: {error}", kind.method()))
                    })?;
                    let Some(page) = page else {
                        return Err(unusable(format!("{} gave no list", kind.method())));
                    };
                    let items = page.items.iter().map(|item| item.get().len());
                    let bytes = items.sum();
                    listed.items.extend(page.items);
                    let oversized = page.oversized.into_iter();
                    listed
                        .oversized
                        .extend(oversized.map(|(name, bytes)| Dropped {
                            name: rung_ladder::head(&name, MAX_NAME_BYTES).to_owned(),
                            why: too_long("its definition", bytes, MAX_ITEM_BYTES),
                        }));
                    listed.cut |= page.cut;
                    (page.rest, bytes)
                }
            };
            let page: Page<'_> = serde_json::from_str(&page)
                .map_err(|error| unusable(format!("{}: {error}", kind.method())))?;
            listed.ttl_ms = match (listed.ttl_ms, page.ttl_ms) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            let next = page.next_cursor.map(Cow::into_owned);
            // A cursor that leads to itself leads nowhere.
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

    /// The tools, each looked at alone: a bad one does not take the others with it.
    pub async fn tools(&self, how: &How) -> Result<Tools, Error> {
        let listed = self.list(Kind::Tools, how).await?;
        let mut tools = Tools {
            cut: listed.cut,
            ttl_ms: listed.ttl_ms,
            ..Tools::default()
        };
        let mut names = HashSet::new();
        for dropped in listed.oversized {
            tools.leave_out(self.name(), dropped);
        }
        for item in listed.items {
            match Tool::read(item) {
                Ok(tool) if !names.insert(tool.name.clone()) => {
                    let name = tool.name.to_string();
                    tools.dropped.push(Dropped {
                        name,
                        why: "another one has this name".to_owned(),
                    });
                }
                Ok(tool) => tools.tools.push(tool),
                Err(dropped) => tools.leave_out(self.name(), dropped),
            }
        }
        Ok(tools)
    }

    fn has(&self, kind: Kind) -> bool {
        self.agreement()
            .is_none_or(|agreed| agreed.capabilities.get(kind.capability()).is_some())
    }
}

impl Tools {
    fn leave_out(&mut self, server: &str, dropped: Dropped) {
        tracing::warn!(%server, tool = ?dropped.name, why = %dropped.why, "a tool is left out");
        self.dropped.push(dropped);
    }
}

fn too_long(what: &str, bytes: usize, most: usize) -> String {
    format!("{what} has {bytes} bytes, and at most {most} are taken")
}

impl Tool {
    /// Reads one tool of a list.
    pub fn read(listed: Box<RawValue>) -> Result<Self, Dropped> {
        let tool: Value = serde_json::from_str(listed.get()).unwrap_or_default();
        let name = tool["name"].as_str().unwrap_or_default();
        let dropped = |why: &str| Dropped {
            name: rung_ladder::head(name, MAX_NAME_BYTES).to_owned(),
            why: why.to_owned(),
        };
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) || name.chars().any(char::is_control) {
            return Err(dropped("its name is none"));
        }
        if listed.get().len() > MAX_ITEM_BYTES {
            let bytes = listed.get().len();
            return Err(dropped(&too_long("its definition", bytes, MAX_ITEM_BYTES)));
        }
        let schema = &tool["inputSchema"];
        if !schema.is_object() {
            return Err(dropped("its inputSchema is no object"));
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
            return Err(dropped("its outputSchema is no object"));
        }
        if tool
            .get("description")
            .is_some_and(|text| !text.is_string())
        {
            return Err(dropped("its description is no text"));
        }
        if let Err(why) = check_mirrored(schema) {
            return Err(dropped(&why));
        }
        let support = tool["execution"]["taskSupport"].as_str();
        Ok(Self {
            name: name.into(),
            input_schema: Arc::new(schema.clone()),
            mirrors: wants_headers(schema),
            may_be_task: matches!(support, Some("optional" | "required")),
            must_be_task: support == Some("required"),
            listed: listed.into(),
        })
    }
}
