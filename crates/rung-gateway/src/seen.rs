//! What a server was last seen to offer, as it said it. It is kept on disk, so that a server can be searched and described while it
//! does not run.

use std::sync::{Arc, OnceLock};

use rung_mcp::connect::Tool;
use rung_tool::Schema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// In which form a schema is written that does not say so.
pub(crate) const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// How much harm a tool could do, as far as can be told.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    /// It reads.
    Low,
    /// Nobody knows.
    Medium,
    /// It changes or destroys something.
    High,
}

/// What a server offers.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) tools: Vec<Arc<Known>>,
    pub(crate) resources: Vec<Arc<RawValue>>,
    pub(crate) templates: Vec<Arc<RawValue>>,
    pub(crate) prompts: Vec<Arc<RawValue>>,
    /// Tools that were left out, and why.
    pub(crate) dropped: Vec<(String, String)>,
    pub(crate) about: About,
}

/// What a server says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) version: String,
    pub(crate) capabilities: Value,
    pub(crate) server: Value,
    pub(crate) instructions: Option<String>,
}

/// A tool, and what is known of it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) tool: Tool,
    pub(crate) title: Option<String>,
    pub(crate) description: String,
    pub(crate) risk: Risk,
    /// It says that asking twice is asking once.
    pub(crate) repeatable: bool,
    /// Whether it can be a task: `optional` or `required`.
    pub(crate) tasks: Option<String>,
    /// Tokens of its definition, once they were counted.
    tokens: OnceLock<u32>,
    schema: OnceLock<Result<Schema, String>>,
}

/// A server's offers, as they are kept.
#[derive(Serialize, Deserialize)]
pub(crate) struct Kept {
    about: About,
    tools: Vec<(Arc<RawValue>, Option<u32>)>,
    resources: Vec<Arc<RawValue>>,
    templates: Vec<Arc<RawValue>>,
    prompts: Vec<Arc<RawValue>>,
    dropped: Vec<(String, String)>,
}

impl Known {
    pub(crate) fn new(tool: Tool, tokens: Option<u32>) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Says {
            title: Option<String>,
            description: Option<String>,
            annotations: Value,
            execution: Value,
        }
        let says: Says = serde_json::from_str(tool.listed.get()).unwrap_or_default();
        let hint = |name: &str| says.annotations[name].as_bool();
        let reads = hint("readOnlyHint") == Some(true);
        let supports = says.execution["taskSupport"].as_str();
        Self {
            title: says
                .title
                .or_else(|| says.annotations["title"].as_str().map(str::to_owned)),
            description: says.description.unwrap_or_default(),
            risk: risk(&tool.name, hint("destructiveHint"), reads),
            repeatable: reads || hint("idempotentHint") == Some(true),
            tasks: supports
                .filter(|support| matches!(*support, "optional" | "required"))
                .map(str::to_owned),
            tokens: tokens.map(OnceLock::from).unwrap_or_default(),
            schema: OnceLock::new(),
            tool,
        }
    }

    /// Tokens of its definition. They are counted once, and kept: whoever counts needs a vocabulary that takes more room than
    /// all the rest.
    pub(crate) fn tokens(&self, count: fn(&str) -> usize) -> u32 {
        *self.tokens.get_or_init(|| {
            let tokens = count(self.tool.listed.get());
            u32::try_from(tokens).unwrap_or(u32::MAX)
        })
    }

    pub(crate) fn is_counted(&self) -> bool {
        self.tokens.get().is_some()
    }

    /// One of the things that it says of itself.
    pub(crate) fn listed(&self, name: &str) -> Option<Value> {
        let value = rung_mcp::splice::member(self.tool.listed.get(), name)?;
        serde_json::from_str(value.get()).ok()
    }

    /// In which form its schema is written.
    pub(crate) fn dialect(&self) -> &str {
        let said = self.tool.input_schema["$schema"].as_str();
        said.unwrap_or(DIALECT)
    }

    /// Its schema, made ready when it is first needed.
    pub(crate) fn schema(&self) -> Result<&Schema, &str> {
        let compiled = self.schema.get_or_init(|| {
            Schema::compile(&self.tool.input_schema).map_err(|error| error.to_string())
        });
        compiled.as_ref().map_err(String::as_str)
    }
}

impl Seen {
    /// The tool of that name.
    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<Known>> {
        self.tools.iter().find(|known| &*known.tool.name == name)
    }

    pub(crate) fn kept(&self) -> Kept {
        let tools = self.tools.iter();
        Kept {
            about: self.about.clone(),
            tools: tools
                .map(|known| (known.tool.listed.clone(), known.tokens.get().copied()))
                .collect(),
            resources: self.resources.clone(),
            templates: self.templates.clone(),
            prompts: self.prompts.clone(),
            dropped: self.dropped.clone(),
        }
    }
}

impl From<Kept> for Seen {
    fn from(kept: Kept) -> Self {
        let tools = kept.tools.into_iter().filter_map(|(listed, tokens)| {
            let tool = Tool::read((*listed).to_owned()).ok()?;
            Some(Arc::new(Known::new(tool, tokens)))
        });
        Self {
            tools: tools.collect(),
            resources: kept.resources,
            templates: kept.templates,
            prompts: kept.prompts,
            dropped: kept.dropped,
            about: kept.about,
        }
    }
}

/// Words in a tool's name that say it changes something, and that say it reads.
const CHANGES: [&str; 16] = [
    "delete", "remove", "drop", "execute", "run", "write", "create", "update", "modify", "send",
    "post", "put", "edit", "move", "set", "add",
];
const READS: [&str; 9] = [
    "read", "get", "list", "search", "query", "fetch", "describe", "find", "show",
];

/// What a tool says of itself comes first, and then what its name says.
fn risk(name: &str, destructive: Option<bool>, reads: bool) -> Risk {
    if destructive == Some(true) && !reads {
        return Risk::High;
    }
    if reads {
        return Risk::Low;
    }
    let words: Vec<String> = words(name).collect();
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    if has(&CHANGES) {
        Risk::High
    } else if has(&READS) {
        Risk::Low
    } else {
        Risk::Medium
    }
}

/// The words of an identifier, however it is written.
pub(crate) fn words(name: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in name.chars() {
        let begins = !letter.is_alphanumeric() || letter.is_uppercase() && before.is_lowercase();
        if begins {
            words.push(String::new());
        }
        if letter.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.into_iter().filter(|word| !word.is_empty())
}

/// What a tool is about, by the words it uses of itself.
const TAGS: [(&str, &[&str]); 6] = [
    ("database", &["database", "sql", "query", "table"]),
    ("file", &["file", "directory", "folder"]),
    ("git", &["git", "commit", "branch", "repository"]),
    ("http", &["http", "url", "web", "fetch", "browser"]),
    ("search", &["search", "find"]),
    ("code", &["code", "function", "symbol"]),
];

impl Known {
    /// What it is about.
    pub(crate) fn tags(&self) -> Vec<&'static str> {
        let said = format!("{} {}", self.tool.name, self.description);
        let said: Vec<String> = words(&said).collect();
        let about = |about: &[&str]| said.iter().any(|word| about.contains(&word.as_str()));
        let tags = TAGS.iter().filter(|(_, words)| about(words));
        tags.map(|(tag, _)| *tag).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn risk_is_what_a_tool_says_and_else_what_its_name_says() {
        for (name, destructive, reads, expected) in [
            ("delete_file", None, false, Risk::High),
            ("deleteFile", None, false, Risk::High),
            ("get_file", None, false, Risk::Low),
            ("get_file", Some(true), false, Risk::High),
            ("delete_file", None, true, Risk::Low),
            ("think", None, false, Risk::Medium),
            ("addendum", None, false, Risk::Medium),
        ] {
            assert_eq!(risk(name, destructive, reads), expected, "{name}");
        }
    }
}
