//! A server that is not configured but could be added, as `gateway.catalog_search` reports it.

use serde::Serialize;
use serde_json::Value;

/// A server that could be added. Its texts may be untrusted; they are short and have one line.
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
    /// Names of the headers that it requires.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) remote_headers: Vec<String>,
    /// Package registry and name.
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
    /// True if the gateway could add it itself.
    pub(crate) provisionable: bool,
    /// The configuration entry that would add it.
    pub(crate) entry: Value,
}

/// Identifies a server that is not configured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerIdentity<'a> {
    pub(crate) name: &'a str,
    /// Package name without its registry.
    pub(crate) package: Option<&'a str>,
    pub(crate) url: Option<&'a str>,
}

/// Returns a package name without its registry.
pub(crate) fn bare_package_name(package: &str) -> &str {
    package.split_once(':').map_or(package, |(_, name)| name)
}

/// Returns true if the environment variable is set and not empty.
pub(crate) fn is_env_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}
