//! Words that mean the same when a tool is looked for.
//!
//! Owns: one small table. Refuses to know: which of the words any tool has.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::words::Stems;

/// Words of a row stand for one another. A word may stand in several rows.
const ALIKE: [&[&str]; 69] = [
    // What is done.
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
    // What it is done to.
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

/// Short forms of more than a synonym, and what they are short for.
const SHORT: [(&str, &[&str]); 6] = [
    ("pr", &["pull", "request"]),
    ("prs", &["pull", "request"]),
    ("mr", &["merge", "request"]),
    ("mrs", &["merge", "request"]),
    ("k8s", &["kubernetes"]),
    ("gh", &["github"]),
];

/// The table by stem.
static BY_STEM: LazyLock<FxHashMap<String, Vec<String>>> = LazyLock::new(|| {
    let stems = Stems::new();
    let mut table: FxHashMap<String, Vec<String>> = FxHashMap::default();
    for row in ALIKE {
        for &word in row {
            let alike = table.entry(stems.of(word).into_owned()).or_default();
            for &other in row {
                let other = stems.of(other).into_owned();
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

/// The stems of words that mean the same as words of this stem.
pub(super) fn alike(stem: &str) -> &'static [String] {
    BY_STEM.get(stem).map_or(&[], Vec::as_slice)
}

/// What a word is short for.
pub(super) fn long_form(word: &str) -> Option<&'static [&'static str]> {
    SHORT
        .iter()
        .find(|(short, _)| *short == word)
        .map(|&(_, words)| words)
}
