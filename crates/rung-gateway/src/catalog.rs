//! The catalog of a server: what it was last seen to offer, as it listed it. Catalogs are stored on disk, so that tools can be
//! searched and described while their server does not run.

use std::sync::{Arc, OnceLock};

use rung_mcp::connect::DownstreamTool;
use rung_tool::Schema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The dialect of a schema that has no `$schema`.
pub(crate) const DEFAULT_DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Estimated risk of calling a tool.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    /// The tool reads.
    Low,
    /// Unknown.
    Medium,
    /// The tool changes or destroys something.
    High,
}

#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) tools: Vec<Arc<CatalogTool>>,
    pub(crate) resources: Vec<Arc<RawValue>>,
    pub(crate) templates: Vec<Arc<RawValue>>,
    pub(crate) prompts: Vec<Arc<RawValue>>,
    /// Tools that were left out, each with the reason.
    pub(crate) dropped: Vec<(String, String)>,
    pub(crate) description: ServerDescription,
}

/// How a server described itself when it was initialized.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerDescription {
    pub(crate) version: String,
    pub(crate) capabilities: Value,
    pub(crate) server: Value,
    pub(crate) instructions: Option<String>,
}

/// A listed tool, with what is derived from its definition.
#[derive(Debug)]
pub(crate) struct CatalogTool {
    pub(crate) tool: DownstreamTool,
    pub(crate) title: Option<String>,
    pub(crate) description: String,
    pub(crate) risk: Risk,
    /// True if the annotations say that a repeated call has no further effect: `readOnlyHint` or `idempotentHint`.
    pub(crate) idempotent: bool,
    /// Task support: `optional` or `required`.
    pub(crate) task_support: Option<String>,
    /// Tokens of the definition, once counted.
    tokens: OnceLock<u32>,
    schema: OnceLock<Result<Schema, String>>,
}

/// A catalog as it is stored on disk.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredCatalog {
    about: ServerDescription,
    tools: Vec<(Arc<RawValue>, Option<u32>)>,
    resources: Vec<Arc<RawValue>>,
    templates: Vec<Arc<RawValue>>,
    prompts: Vec<Arc<RawValue>>,
    dropped: Vec<(String, String)>,
}

impl CatalogTool {
    pub(crate) fn new(tool: DownstreamTool, tokens: Option<u32>) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct DeclaredFields {
            title: Option<String>,
            description: Option<String>,
            annotations: Value,
            execution: Value,
        }
        let says: DeclaredFields = serde_json::from_str(tool.definition.get()).unwrap_or_default();
        let hint = |name: &str| says.annotations[name].as_bool();
        let reads = hint("readOnlyHint") == Some(true);
        let supports = says.execution["taskSupport"].as_str();
        Self {
            title: says
                .title
                .or_else(|| says.annotations["title"].as_str().map(str::to_owned)),
            description: says.description.unwrap_or_default(),
            risk: estimate_risk(&tool.name, hint("destructiveHint"), reads),
            idempotent: reads || hint("idempotentHint") == Some(true),
            task_support: supports
                .filter(|support| matches!(*support, "optional" | "required"))
                .map(str::to_owned),
            tokens: tokens.map(OnceLock::from).unwrap_or_default(),
            schema: OnceLock::new(),
            tool,
        }
    }

    /// Returns the tokens of the tool's definition. They are counted once and stored: a catalog has megabytes of definitions.
    pub(crate) fn tokens(&self) -> u32 {
        *self.tokens.get_or_init(|| {
            let tokens = rung_tokens::count_tokens(self.tool.definition.get());
            u32::try_from(tokens).unwrap_or(u32::MAX)
        })
    }

    pub(crate) fn has_token_count(&self) -> bool {
        self.tokens.get().is_some()
    }

    /// Returns a member of the tool's definition.
    pub(crate) fn definition_member(&self, name: &str) -> Option<Value> {
        let value = rung_tool::splice::member(self.tool.definition.get(), name)?;
        serde_json::from_str(value.get()).ok()
    }

    pub(crate) fn schema_dialect(&self) -> &str {
        let said = self.tool.input_schema["$schema"].as_str();
        said.unwrap_or(DEFAULT_DIALECT)
    }

    /// Returns the input schema, compiled on first use.
    pub(crate) fn schema(&self) -> Result<&Schema, &str> {
        let compiled = self.schema.get_or_init(|| {
            Schema::compile(&self.tool.input_schema).map_err(|error| error.to_string())
        });
        compiled.as_ref().map_err(String::as_str)
    }
}

impl Catalog {
    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<CatalogTool>> {
        self.tools.iter().find(|known| &*known.tool.name == name)
    }

    pub(crate) fn to_stored(&self) -> StoredCatalog {
        let tools = self.tools.iter();
        StoredCatalog {
            about: self.description.clone(),
            tools: tools
                .map(|known| (known.tool.definition.clone(), known.tokens.get().copied()))
                .collect(),
            resources: self.resources.clone(),
            templates: self.templates.clone(),
            prompts: self.prompts.clone(),
            dropped: self.dropped.clone(),
        }
    }
}

impl From<StoredCatalog> for Catalog {
    fn from(kept: StoredCatalog) -> Self {
        let tools = kept.tools.into_iter().filter_map(|(listed, tokens)| {
            let tool = DownstreamTool::parse((*listed).to_owned()).ok()?;
            Some(Arc::new(CatalogTool::new(tool, tokens)))
        });
        Self {
            tools: tools.collect(),
            resources: kept.resources,
            templates: kept.templates,
            prompts: kept.prompts,
            dropped: kept.dropped,
            description: kept.about,
        }
    }
}

/// Words in a tool's name that indicate a change, and words that indicate a read.
const CHANGE_WORDS: [&str; 16] = [
    "delete", "remove", "drop", "execute", "run", "write", "create", "update", "modify", "send",
    "post", "put", "edit", "move", "set", "add",
];
const READ_WORDS: [&str; 9] = [
    "read", "get", "list", "search", "query", "fetch", "describe", "find", "show",
];

/// Estimates the risk: annotations come first, then the words of the name.
fn estimate_risk(name: &str, destructive: Option<bool>, reads: bool) -> Risk {
    if destructive == Some(true) && !reads {
        return Risk::High;
    }
    if reads {
        return Risk::Low;
    }
    let words: Vec<String> = identifier_words(name).collect();
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    if has(&CHANGE_WORDS) {
        Risk::High
    } else if has(&READ_WORDS) {
        Risk::Low
    } else {
        Risk::Medium
    }
}

/// Splits an identifier into lowercase words, at punctuation and camel-case boundaries.
pub(crate) fn identifier_words(name: &str) -> impl Iterator<Item = String> {
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

/// Tags, each with the words in a name or description that assign it.
const TAGS: [(&str, &[&str]); 6] = [
    ("database", &["database", "sql", "query", "table"]),
    ("file", &["file", "directory", "folder"]),
    ("git", &["git", "commit", "branch", "repository"]),
    ("http", &["http", "url", "web", "fetch", "browser"]),
    ("search", &["search", "find"]),
    ("code", &["code", "function", "symbol"]),
];

impl CatalogTool {
    /// Returns the tags of the tool.
    pub(crate) fn tags(&self) -> Vec<&'static str> {
        let said = format!("{} {}", self.tool.name, self.description);
        let said: Vec<String> = identifier_words(&said).collect();
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
            assert_eq!(estimate_risk(name, destructive, reads), expected, "{name}");
        }
    }
}
