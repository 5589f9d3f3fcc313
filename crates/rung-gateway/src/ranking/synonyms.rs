//! Synonyms for tool search.
//!
//! Owns: one small table. Refuses to know: which words occur in any tool.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::words::WordStemmer;

/// The words of a row are synonyms. A word may be in several rows.
const SYNONYMS: [&[&str]; 69] = [
    // Actions.
    &["create", "add", "new", "make", "insert"],
    &["create", "open", "start"],
    &["create", "generate", "build"],
    &["delete", "remove", "erase", "drop", "destroy"],
    &["update", "edit", "modify", "change", "set", "patch"],
    &["list", "show", "enumerate", "all"],
    &["list", "get"],
    &["get", "fetch", "retrieve", "read", "view", "show"],
    &["get", "describe", "inspect", "details", "info"],
    &["search", "find", "query", "lookup", "look"],
    &["run", "execute", "exec", "evaluate", "invoke"],
    &["send", "post", "publish"],
    &["write", "save", "store"],
    &["memory", "remember", "recall"],
    &["stop", "kill", "terminate", "cancel", "end"],
    &["start", "launch", "begin"],
    &["rename", "move"],
    &["copy", "duplicate", "clone"],
    &["click", "press", "tap"],
    &["type", "fill", "enter", "input"],
    &["scrape", "crawl", "extract"],
    &["open", "navigate", "visit", "browse", "go"],
    &["convert", "conversion", "transform", "translate"],
    &["compare", "diff", "difference"],
    &["check", "verify", "validate"],
    &["install", "deploy"],
    &["merge", "combine", "join"],
    &["wait", "sleep", "pause"],
    &["reply", "respond", "answer"],
    &["close", "resolve", "finish"],
    &["schedule", "plan"],
    &["import", "load"],
    &["undo", "revert", "reset"],
    &["restart", "rollout"],
    &["watch", "monitor", "track"],
    &["highlight", "format"],
    // Objects.
    &["file", "document"],
    &["folder", "directory", "dir"],
    &["issue", "ticket", "bug"],
    &["repo", "repository", "project"],
    &["database", "db"],
    &["doc", "docs", "documentation", "reference", "manual"],
    &["message", "msg", "chat"],
    &["message", "email", "mail"],
    &["image", "picture", "photo", "screenshot"],
    &["page", "webpage", "website", "site", "url", "link"],
    &["web", "internet", "online"],
    &["config", "configuration", "settings", "options"],
    &["environment", "env"],
    &["command", "shell", "terminal", "cmd", "bash"],
    &["script", "code", "javascript", "js"],
    &["user", "member", "people", "person", "account"],
    &["error", "exception", "failure", "crash"],
    &["log", "logs", "output"],
    &["event", "meeting", "appointment"],
    &["task", "todo", "reminder"],
    &["location", "place", "address"],
    &["directions", "route", "way"],
    &["picture", "snapshot"],
    &["comment", "note", "remark"],
    &["history", "log"],
    &["table", "sheet", "spreadsheet"],
    &["spreadsheet", "workbook", "excel"],
    &["permission", "restriction", "access"],
    &["row", "record", "entry"],
    &["column", "field"],
    &["customer", "client", "contact"],
    &["process", "program"],
    &["label", "tag"],
];

/// Abbreviations and their long forms.
const ABBREVIATIONS: [(&str, &[&str]); 6] = [
    ("pr", &["pull", "request"]),
    ("prs", &["pull", "request"]),
    ("mr", &["merge", "request"]),
    ("mrs", &["merge", "request"]),
    ("k8s", &["kubernetes"]),
    ("gh", &["github"]),
];

/// The synonyms by stem.
static BY_STEM: LazyLock<FxHashMap<String, Vec<String>>> = LazyLock::new(|| {
    let stems = WordStemmer::new();
    let mut table: FxHashMap<String, Vec<String>> = FxHashMap::default();
    for row in SYNONYMS {
        for &word in row {
            let alike = table.entry(stems.stem(word).into_owned()).or_default();
            for &other in row {
                let other = stems.stem(other).into_owned();
                if !alike.contains(&other) {
                    alike.push(other);
                }
            }
        }
    }
    for (word, alike) in &mut table {
        alike.retain(|other| other != word);
    }
    table
});

/// Returns the stems of the synonyms of words with this stem.
pub(super) fn synonyms_of(stem: &str) -> &'static [String] {
    BY_STEM.get(stem).map_or(&[], Vec::as_slice)
}

/// Returns the long form of an abbreviation.
pub(super) fn expand_abbreviation(word: &str) -> Option<&'static [&'static str]> {
    ABBREVIATIONS
        .iter()
        .find(|(short, _)| *short == word)
        .map(|&(_, words)| words)
}
