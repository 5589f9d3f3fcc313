//! Advice to agents: that several calls are better made by code than one after another.
//!
//! Owns: the file in which the user says how much of it is given, and its words: a sentence in the instructions, a word on a card, a few
//! lines beside a description, and a page to be read. Refuses to know: how code is run. None is from here.
//!
//! The law it keeps: what the user switched off is not said, and what nobody asked for costs no more than a word a card.

use std::path::Path;

use rung_tool::Names;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config::{Problem, Seen, read};
use crate::seen::{Known, words};

/// Where the page is.
pub(crate) const PAGE_URI: &str = "pmcp://guidance/code-execution";
/// The page.
pub(crate) const PAGE: &str = include_str!("guidance.md");

/// The sentence in the instructions.
const SENTENCE: &str = "\
Where several calls are needed, write code that makes them: loop, filter, stop early, and show only what matters.\n";
/// Where the user says how much advice is given.
const FILE: &str = ".claude/gateway-guidance.yaml";
/// Characters of what the user adds to the instructions.
const MAX_OWN_CHARS: usize = 2_000;

/// How much advice is given.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one of four places, and any of them can be on without the others"
)]
pub struct Guidance {
    instructions: bool,
    hints: bool,
    snippets: bool,
    page: bool,
    /// What the user adds to the instructions.
    own: Option<String>,
    max_hint_chars: usize,
    max_snippet_lines: usize,
}

impl Default for Guidance {
    fn default() -> Self {
        Self::of(Said::default())
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    guidance: Option<Said>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Said {
    level: Level,
    layers: Layers,
    custom_instructions: Option<String>,
    max_hint_length: Option<usize>,
    max_snippet_lines: Option<usize>,
    /// Taken, because files have them. Nothing is ever sent to anybody from here.
    #[serde(rename = "enable_telemetry")]
    _enable_telemetry: Option<bool>,
    #[serde(rename = "enable_feedback_submission")]
    _enable_feedback_submission: Option<bool>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Off,
    #[default]
    Minimal,
    Standard,
}

/// What is said of one place counts before the level.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Layers {
    mcp_instructions: Option<bool>,
    code_hints: Option<bool>,
    code_snippets: Option<bool>,
    methodology_resource: Option<bool>,
}

impl Guidance {
    fn of(said: Said) -> Self {
        let on = said.level != Level::Off;
        let layer = |said: Option<bool>, usual: bool| on && said.unwrap_or(usual);
        let layers = said.layers;
        Self {
            instructions: layer(layers.mcp_instructions, true),
            hints: layer(layers.code_hints, true),
            snippets: layer(layers.code_snippets, said.level == Level::Standard),
            page: layer(layers.methodology_resource, true),
            own: said.custom_instructions.filter(|_| on),
            max_hint_chars: said.max_hint_length.unwrap_or(8),
            max_snippet_lines: said.max_snippet_lines.unwrap_or(4),
        }
    }

    /// None at all.
    pub fn none() -> Self {
        Self::of(Said {
            level: Level::Off,
            ..Said::default()
        })
    }

    /// What the file of a user with this folder says, and the file as it was seen.
    pub fn read(home: &Path) -> (Seen, Result<Self, Problem>) {
        let path = home.join(FILE);
        let (seen, text) = read(&path);
        let parsed = text.and_then(|text| parse(&path, &text.unwrap_or_default()));
        (seen, parsed)
    }

    /// What is said before anything is called.
    pub(crate) fn instructions(&self) -> String {
        let mut said = String::new();
        if self.instructions {
            said.push_str(SENTENCE);
        }
        if let Some(own) = &self.own {
            said.extend([own.trim(), "\n"]);
        }
        said
    }

    /// The word on a tool's card.
    pub(crate) fn hint(&self, known: &Known) -> Option<&'static str> {
        let word = self.hints.then(|| Pattern::of(known))??.word();
        (word.len() <= self.max_hint_chars).then_some(word)
    }

    /// The lines beside a tool's description.
    pub(crate) fn snippet(&self, server: &str, known: &Known, names: Names) -> Option<String> {
        let lines = self.snippets.then(|| Pattern::of(known))??;
        let lines = lines.code(server, known, names);
        (lines.lines().count() <= self.max_snippet_lines).then_some(lines)
    }

    /// Whether there is a page to be read.
    pub(crate) fn has_page(&self) -> bool {
        self.page
    }
}

fn parse(path: &Path, text: &str) -> Result<Guidance, Problem> {
    let file: Option<File> =
        serde_saphyr::from_str(text).map_err(|error| Problem::in_yaml(path, &error))?;
    let said = file.and_then(|file| file.guidance).unwrap_or_default();
    let long = |own: &String| own.chars().count() > MAX_OWN_CHARS;
    if said.custom_instructions.as_ref().is_some_and(long) {
        let why = format!("custom_instructions: longer than {MAX_OWN_CHARS} characters");
        return Err(Problem::new(path, why));
    }
    Ok(Guidance::of(said))
}

/// How code uses a tool well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pattern {
    /// Once for each of many.
    Loop,
    /// Once, and most of the answer left out.
    Filter,
    /// To decide by.
    Branch,
    /// Prepared for that it fails.
    Try,
    /// Until it is done.
    Poll,
}

/// Words of a tool's name that say how code uses it.
const PATTERNS: [(Pattern, &[&str]); 5] = [
    (
        Pattern::Poll,
        &[
            "wait", "poll", "status", "progress", "start", "deploy", "build", "job", "monitor",
        ],
    ),
    (
        Pattern::Filter,
        &[
            "list", "search", "find", "query", "select", "scan", "browse", "logs", "history",
            "tree",
        ],
    ),
    (
        Pattern::Branch,
        &[
            "check", "exists", "is", "has", "validate", "verify", "test", "lint", "diff",
        ],
    ),
    (
        Pattern::Try,
        &[
            "create", "update", "delete", "remove", "drop", "write", "edit", "modify", "send",
            "post", "put", "set", "add", "insert", "move", "rename", "push", "merge", "execute",
            "run", "upload", "click", "fill", "navigate",
        ],
    ),
    (
        Pattern::Loop,
        &[
            "get",
            "read",
            "fetch",
            "show",
            "describe",
            "download",
            "convert",
            "resolve",
            "lookup",
            "extract",
            "summarize",
            "translate",
        ],
    ),
];

impl Pattern {
    /// The first word of a tool's name that says something decides; what can be a task is waited for.
    fn of(known: &Known) -> Option<Self> {
        if known.tasks.is_some() {
            return Some(Self::Poll);
        }
        words(&known.tool.name).find_map(|word| {
            let mut patterns = PATTERNS.iter();
            let said = patterns.find(|(_, said)| said.contains(&word.as_str()));
            said.map(|(pattern, _)| *pattern)
        })
    }

    fn word(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Filter => "filter",
            Self::Branch => "if/else",
            Self::Try => "try",
            Self::Poll => "poll",
        }
    }

    /// A few lines of Python, in which `call` calls a tool by its name.
    fn code(self, server: &str, known: &Known, names: Names) -> String {
        let tool = &known.tool;
        let required = tool.input_schema["required"]
            .as_array()
            .into_iter()
            .flatten();
        let required: Vec<&str> = required.filter_map(Value::as_str).collect();
        let id = format!("{server}::{}", tool.name);
        let invoke = names.show("gateway.invoke");
        let order = |each: Option<&str>, more: &str| {
            let arguments: Vec<String> = required
                .iter()
                .map(|name| {
                    let value = if each == Some(name) { "each" } else { "..." };
                    format!("{}: {value}", json!(name))
                })
                .collect();
            let (id, arguments) = (json!(id), arguments.join(", "));
            format!(
                "call(\"{invoke}\", {{\"tool_id\": {id}, \"arguments\": {{{arguments}}}{more}}})"
            )
        };
        match self {
            Self::Loop => {
                let order = order(required.first().copied(), "");
                format!(
                    "for each in wanted:\n    answer = {order}\n    if not answer.get(\"isError\"):\n        kept.append(short(answer))"
                )
            }
            Self::Filter => {
                let order = order(None, "");
                format!(
                    "answer = {order}\nsaid = answer.get(\"structuredContent\")\nrows = said[\"result\"] if said else json.loads(answer[\"content\"][0][\"text\"])\nprint([row for row in rows if matters(row)][:10])"
                )
            }
            Self::Branch => {
                let order = order(None, "");
                format!(
                    "answer = {order}\nif not answer.get(\"isError\") and is_fine(answer):\n    go_on()"
                )
            }
            Self::Try => {
                let order = order(None, "");
                format!(
                    "answer = {order}\nif answer.get(\"isError\"):\n    raise RuntimeError(answer[\"content\"][0][\"text\"])"
                )
            }
            Self::Poll if known.tasks.is_some() => {
                let order = order(None, ", \"task\": {}");
                let (get, result) = (
                    names.show("gateway.tasks_get"),
                    names.show("gateway.tasks_result"),
                );
                let of = format!("{{\"server_name\": {}, \"task_id\": id}}", json!(server));
                format!(
                    "id = {order}[\"structuredContent\"][\"task\"][\"task_id\"]\nwhile call(\"{get}\", {of})[\"structuredContent\"][\"task\"][\"status\"] == \"working\":\n    sleep(1)\nanswer = call(\"{result}\", {of})"
                )
            }
            Self::Poll => {
                let order = order(None, "");
                format!("while not is_done(answer := {order}):\n    sleep(1)")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rung_mcp::connect::Tool;
    use serde_json::value::to_raw_value;

    use super::*;

    fn known(name: &str, more: &Value) -> Known {
        let mut tool = json!({
            "name": name,
            "inputSchema": {"type": "object", "properties": {"path \"x\"": {"type": "string"}}, "required": ["path \"x\""]},
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            tool[name] = value.clone();
        }
        Known::new(Tool::read(to_raw_value(&tool).unwrap()).unwrap(), None)
    }

    fn said(text: &str) -> Result<Guidance, Problem> {
        parse(Path::new("guidance.yaml"), text)
    }

    #[test]
    fn the_first_telling_word_of_a_name_decides_what_is_hinted() {
        let guidance = Guidance::default();
        for (name, expected) in [
            ("list_issues", Some("filter")),
            ("getFile", Some("loop")),
            ("delete_file", Some("try")),
            ("check_status", Some("if/else")),
            ("job_status", Some("poll")),
            ("think", None),
            ("listless", None),
        ] {
            assert_eq!(guidance.hint(&known(name, &json!({}))), expected, "{name}");
        }
        let task = json!({"execution": {"taskSupport": "optional"}});
        assert_eq!(guidance.hint(&known("think", &task)), Some("poll"));
    }

    #[test]
    fn a_level_says_what_is_usual_and_a_layer_what_is_so() {
        let tool = known("list_issues", &json!({}));
        let of = |text: &str| {
            let guidance = said(text).unwrap();
            (
                guidance.instructions() == SENTENCE,
                guidance.hint(&tool).is_some(),
                guidance.snippet("house", &tool, Names::Dotted).is_some(),
                guidance.has_page(),
            )
        };
        assert_eq!(of(""), (true, true, false, true));
        assert_eq!(of("guidance:\n  level: standard"), (true, true, true, true));
        assert_eq!(
            of("guidance:\n  level: \"off\""),
            (false, false, false, false)
        );
        assert_eq!(
            of(
                "guidance: {level: minimal, layers: {code_snippets: true, code_hints: false, mcp_instructions: false, methodology_resource: false}}"
            ),
            (false, false, true, false)
        );
        assert_eq!(
            of("guidance: {level: standard, max_hint_length: 3, max_snippet_lines: 2}"),
            (true, false, false, true)
        );
        let own = said("guidance: {custom_instructions: Be brief.}").unwrap();
        assert_eq!(own.instructions(), format!("{SENTENCE}Be brief.\n"));
        for wrong in [
            "guidance: {level: most}",
            "guidance: {layers: {code: true}}",
            "advice: {}",
            "guidance: [",
            &format!("guidance: {{custom_instructions: {}}}", "x".repeat(2_001)),
        ] {
            assert!(said(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_snippet_names_the_tool_and_what_it_must_be_given() {
        let guidance = said("guidance: {level: standard}").unwrap();
        let task = json!({"execution": {"taskSupport": "required"}});
        for (name, more) in [
            ("get_file", json!({})),
            ("list_files", json!({})),
            ("check_file", json!({})),
            ("write_file", json!({})),
            ("file_status", json!({})),
            ("anything", task),
        ] {
            let tool = known(name, &more);
            let code = guidance.snippet("house", &tool, Names::Plain).unwrap();
            assert!(code.contains("gateway_invoke"), "{code}");
            assert!(code.contains(&format!("\"house::{name}\"")), "{code}");
            assert!(code.contains(r#""path \"x\"": "#), "{code}");
            assert!(code.lines().count() <= 4, "{code}");
        }
    }
}
