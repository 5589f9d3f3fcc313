//! Servers that are known and not set up here: what somebody who finds no tool could add.
//!
//! Owns: the list that is built in, and which of it is meant by a question. Refuses to know: how a server is added. None ever is
//! from here, and nobody elsewhere is asked: a search waits for nothing.

use std::cmp::Reverse;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::candidate::{Candidate, Identity, bare, is_set};
use crate::ranking::Sentence;

/// One server a line, with the words it is known for.
const LIST: &str = include_str!("../data/manifest.json");
/// Candidates in one answer.
const MOST: usize = 2;
/// Words of a server that are said, where its name is not: one of them alone says little.
const FEW_WORDS: usize = 2;
/// What a server is worth by so many of its words, from none on; its name is worth 1.
const WORTHS: [f64; 4] = [0.0, 0.3, 0.6, 0.9];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    category: String,
    words: Vec<String>,
    /// Where it is, if it is not started here.
    url: Option<String>,
    /// What it is started with otherwise.
    #[serde(default)]
    run: Vec<String>,
    package: Option<String>,
    /// The variable of its credential, and others that it wants.
    key: Option<String>,
    #[serde(default)]
    also: Vec<String>,
    key_from: Option<String>,
}

/// An entry, and its words as they are looked for.
struct Known {
    entry: Entry,
    name: Vec<String>,
    words: Vec<Vec<String>>,
}

static KNOWN: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let entries: Vec<Entry> = serde_json::from_str(LIST).expect("the list is as it is tested");
    let known = |entry: Entry| Known {
        name: Sentence::of(&entry.name).into_stems(),
        words: entry
            .words
            .iter()
            .map(|word| Sentence::of(word).into_stems())
            .collect(),
        entry,
    };
    entries.into_iter().map(known).collect()
});

/// Servers that would do what is asked for, the likeliest first, but for those that are `out_of_question`.
pub(crate) fn candidates(
    query: &str,
    out_of_question: impl Fn(Identity<'_>) -> bool,
) -> Vec<Candidate> {
    let meant = meant(query).into_iter();
    let left = meant.filter(|(known, _)| !out_of_question(known.entry.identity()));
    left.take(MOST)
        .map(|(known, said)| known.entry.candidate(&said))
        .collect()
}

/// Servers that are meant, the likeliest first, each with the words that say so.
fn meant(query: &str) -> Vec<(&'static Known, Said)> {
    let query = Sentence::of(query);
    let said = |known: &'static Known| {
        let words = known.words.iter().zip(&known.entry.words);
        let words = words.filter(|(stems, _)| query.says(stems));
        let words: Vec<&str> = words.map(|(_, word)| word.as_str()).collect();
        let named = query.says(&known.name);
        (named || words.len() >= FEW_WORDS).then_some((known, Said { named, words }))
    };
    let mut meant: Vec<_> = KNOWN.iter().filter_map(said).collect();
    meant.sort_by_key(|(_, said)| Reverse((said.named, said.words.len())));
    meant
}

/// What of a server was said.
struct Said {
    named: bool,
    words: Vec<&'static str>,
}

impl Entry {
    fn identity(&self) -> Identity<'_> {
        Identity {
            name: &self.name,
            package: self.package.as_deref().map(bare),
            url: self.url.as_deref(),
        }
    }

    fn candidate(&self, said: &Said) -> Candidate {
        let score = if said.named {
            1.0
        } else {
            WORTHS[said.words.len().min(WORTHS.len() - 1)]
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
            api_key_available: self.key.as_deref().is_some_and(is_set),
            env_var: self.key.clone(),
            env_instructions: self.key_from.as_ref().map(|from| format!("see {from}")),
            is_installed: false,
            is_running: false,
            provisionable: false,
            entry: self.configured(),
        }
    }

    /// Headers that it wants, where its credential is not a part of its address.
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

    /// What a configuration file would say of it. Credentials are named, never told.
    fn configured(&self) -> Value {
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
        assert!(KNOWN.len() > 90);
        for Known { entry, words, .. } in KNOWN.iter() {
            let name = &entry.name;
            assert_ne!(entry.url.is_some(), !entry.run.is_empty(), "{name}");
            assert_eq!(entry.package.is_some(), !entry.run.is_empty(), "{name}");
            assert!(words.iter().all(|stems| !stems.is_empty()), "{name}");
            let written = entry.configured().to_string();
            assert!(
                entry.key.as_ref().is_none_or(|key| written.contains(key)),
                "{written}"
            );
        }
        let mut names: Vec<_> = KNOWN.iter().map(|known| &known.entry.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KNOWN.len());
    }
}
