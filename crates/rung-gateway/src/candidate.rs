//! A server that is not set up here and could be: how it is told.

use serde::Serialize;
use serde_json::Value;

/// A server that could be added. Its words may be those of strangers; they are short, and on one line.
#[derive(Debug, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "it is told in the words that readers of candidates know"
)]
pub(crate) struct Candidate {
    pub(crate) name: String,
    pub(crate) candidate_type: &'static str,
    pub(crate) relevance_score: f64,
    pub(crate) reasoning: String,
    pub(crate) source: &'static str,
    pub(crate) transport: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// Headers that it wants, by their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) remote_headers: Vec<String>,
    /// Where it is published, and under which name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) package: Option<String>,
    pub(crate) requires_api_key: bool,
    pub(crate) api_key_available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) env_var: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) env_instructions: Option<String>,
    pub(crate) is_installed: bool,
    pub(crate) is_running: bool,
    /// Whether we add it ourselves.
    pub(crate) provisionable: bool,
    /// What a configuration file would say of it.
    pub(crate) entry: Value,
}

/// What tells a server from others before it is set up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity<'a> {
    pub(crate) name: &'a str,
    /// The name of its package, without where that is published.
    pub(crate) package: Option<&'a str>,
    pub(crate) url: Option<&'a str>,
}

/// The name of a package, without where it is published.
pub(crate) fn bare(package: &str) -> &str {
    package.split_once(':').map_or(package, |(_, name)| name)
}

/// Whether a variable has a value here.
pub(crate) fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}
