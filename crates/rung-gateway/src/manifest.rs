//! The manifest: built-in servers that are not configured but could be added by a user whose search found no tool.
//!
//! Owns: the built-in list and which entries match a query. Refuses to know: how a server is added. None is ever added from
//! here, and no network request is made.

use std::cmp::Reverse;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::candidate::{Candidate, ServerIdentity, bare_package_name, is_env_set};
use crate::ranking::StemmedText;

/// One server per line, with its keywords.
const MANIFEST_JSON: &str = include_str!("../data/manifest.json");
const MAX_CANDIDATES: usize = 2;
/// Keywords that a query must contain if it does not contain the server's name: a single one is ambiguous.
const MIN_KEYWORDS: usize = 2;
/// Score by number of matching keywords, from 0 on. A matching name scores 1.
const KEYWORD_SCORES: [f64; 4] = [0.0, 0.3, 0.6, 0.9];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestEntry {
    name: String,
    #[serde(default)]
    category: String,
    words: Vec<String>,
    /// URL of a remote server.
    url: Option<String>,
    /// Command line of a local server.
    #[serde(default)]
    run: Vec<String>,
    package: Option<String>,
    /// The variable of its credential, and in `also` further required variables.
    key: Option<String>,
    #[serde(default)]
    also: Vec<String>,
    key_from: Option<String>,
}

/// An entry, with its name and keywords stemmed for matching.
struct IndexedEntry {
    entry: ManifestEntry,
    name: Vec<String>,
    words: Vec<Vec<String>>,
}

static MANIFEST: LazyLock<Vec<IndexedEntry>> = LazyLock::new(|| {
    let entries: Vec<ManifestEntry> =
        serde_json::from_str(MANIFEST_JSON).expect("the list is as it is tested");
    let known = |entry: ManifestEntry| IndexedEntry {
        name: StemmedText::new(&entry.name).into_stems(),
        words: entry
            .words
            .iter()
            .map(|word| StemmedText::new(word).into_stems())
            .collect(),
        entry,
    };
    entries.into_iter().map(known).collect()
});

/// Returns the entries that match the query, best first, without those that are `out_of_question`.
pub(crate) fn candidates(
    query: &str,
    out_of_question: impl Fn(ServerIdentity<'_>) -> bool,
) -> Vec<Candidate> {
    let meant = matching_entries(query).into_iter();
    let left = meant.filter(|(known, _)| !out_of_question(known.entry.identity()));
    left.take(MAX_CANDIDATES)
        .map(|(known, said)| known.entry.candidate(&said))
        .collect()
}

/// Returns the matching entries, best first, each with what matched.
fn matching_entries(query: &str) -> Vec<(&'static IndexedEntry, QueryMatch)> {
    let query = StemmedText::new(query);
    let said = |known: &'static IndexedEntry| {
        let words = known.words.iter().zip(&known.entry.words);
        let words = words.filter(|(stems, _)| query.contains_stems(stems));
        let words: Vec<&str> = words.map(|(_, word)| word.as_str()).collect();
        let named = query.contains_stems(&known.name);
        (named || words.len() >= MIN_KEYWORDS).then_some((known, QueryMatch { named, words }))
    };
    let mut meant: Vec<_> = MANIFEST.iter().filter_map(said).collect();
    meant.sort_by_key(|(_, said)| Reverse((said.named, said.words.len())));
    meant
}

/// What of an entry occurs in the query.
struct QueryMatch {
    named: bool,
    words: Vec<&'static str>,
}

impl ManifestEntry {
    fn identity(&self) -> ServerIdentity<'_> {
        ServerIdentity {
            name: &self.name,
            package: self.package.as_deref().map(bare_package_name),
            url: self.url.as_deref(),
        }
    }

    fn candidate(&self, said: &QueryMatch) -> Candidate {
        let score = if said.named {
            1.0
        } else {
            KEYWORD_SCORES[said.words.len().min(KEYWORD_SCORES.len() - 1)]
        };
        let mut words = said.words.clone();
        if said.named && !words.contains(&self.name.as_str()) {
            words.insert(0, &self.name);
        }
        Candidate {
            name: self.name.clone(),
            candidate_type: "server",
            relevance_score: score,
            reasoning: format!("{}: the query has {}", self.category(), words.join(", ")),
            source: "manifest",
            transport: if self.url.is_some() {
                "streamable-http"
            } else {
                "stdio"
            },
            url: self.url.clone(),
            remote_headers: self.headers().keys().cloned().collect(),
            package: self.package.clone(),
            requires_api_key: self.key.is_some(),
            api_key_available: self.key.as_deref().is_some_and(is_env_set),
            env_var: self.key.clone(),
            env_instructions: self.env_instructions(),
            is_installed: false,
            is_running: false,
            provisionable: false,
            entry: self.config_entry(),
        }
    }

    /// Returns where its key is set and where it comes from.
    fn env_instructions(&self) -> Option<String> {
        let key = self.key.as_deref()?;
        let from = self.key_from.as_ref();
        let from = from.map(|from| format!("; see {from}")).unwrap_or_default();
        Some(format!("set {key} in ~/.config/pmcp/pmcp.env{from}"))
    }

    /// Returns the headers that it requires. None if the credential is part of the URL.
    fn headers(&self) -> Map<String, Value> {
        let url = self.url.as_deref();
        let apart = |key: &&String| url.is_some_and(|url| !url.contains(key.as_str()));
        let key = self.key.as_ref().filter(apart).into_iter();
        key.map(|key| {
            (
                "Authorization".to_owned(),
                json!(format!("Bearer ${{{key}}}")),
            )
        })
        .collect()
    }

    fn category(&self) -> &str {
        if self.category.is_empty() {
            "known server"
        } else {
            &self.category
        }
    }

    /// Returns the configuration entry that would add it. Credentials appear only as variable names.
    fn config_entry(&self) -> Value {
        let by_name = |name: &String| (name.clone(), json!(format!("${{{name}}}")));
        if let Some(url) = &self.url {
            let mut entry = json!({"type": "http", "url": url});
            let headers = self.headers();
            if !headers.is_empty() {
                entry["headers"] = headers.into();
            }
            return entry;
        }
        let mut entry = json!({"command": self.run.first(), "args": self.run.get(1..)});
        let env: serde_json::Map<_, _> = self.key.iter().chain(&self.also).map(by_name).collect();
        if !env.is_empty() {
            entry["env"] = env.into();
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_meant_where_its_name_or_several_of_its_words_are_said() {
        for (query, expected) in [
            ("list pull requests on GitHub", "github"),
            ("post to slack", "slack"),
            ("take a screenshot of a page in a browser", "playwright"),
            ("query a postgres table", "postgres"),
            ("remember notes", "memory"),
        ] {
            let found = candidates(query, |_| false);
            assert!(!found.is_empty(), "{query}");
            let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
            assert!(names.contains(&expected), "{query}: {names:?}");
            assert!(found.iter().all(|one| one.relevance_score >= 0.5));
            let others = candidates(query, |one| one.name == expected);
            assert!(others.iter().all(|one| one.name != expected), "{query}");
        }
        for query in ["", "echo a message", "sum two numbers", "\u{0}"] {
            let found = candidates(query, |_| false);
            let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
            assert!(names.is_empty(), "{query}: {names:?}");
        }
    }

    #[test]
    fn every_entry_can_be_written_into_a_file() {
        assert!(MANIFEST.len() > 90);
        for IndexedEntry { entry, words, .. } in MANIFEST.iter() {
            let name = &entry.name;
            assert_ne!(entry.url.is_some(), !entry.run.is_empty(), "{name}");
            assert_eq!(entry.package.is_some(), !entry.run.is_empty(), "{name}");
            assert!(words.iter().all(|stems| !stems.is_empty()), "{name}");
            let written = entry.config_entry().to_string();
            assert!(
                entry.key.as_ref().is_none_or(|key| written.contains(key)),
                "{written}"
            );
        }
        let mut names: Vec<_> = MANIFEST.iter().map(|known| &known.entry.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), MANIFEST.len());
    }
}
