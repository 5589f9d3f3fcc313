//! Advice to agents: make several calls from code instead of one after another.
//!
//! Owns: the user's guidance file and the advice itself: a sentence in the instructions, a hint on a tool's card, a snippet
//! with a description, and a resource page. Refuses to know: how code is run. None is run from here.
//!
//! The law it keeps: advice that the user switched off is not given, and unrequested advice costs at most one hint per card.

use std::path::Path;

use rung_tool::NameStyle;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::catalog::{CatalogTool, identifier_words};
use crate::config::{FileSnapshot, Problem, read_text};

/// URI of the page.
pub(crate) const PAGE_URI: &str = "pmcp://guidance/code-execution";
pub(crate) const PAGE_TEXT: &str = include_str!("guidance.md");

const INSTRUCTION_SENTENCE: &str = "\
For several calls, write code that makes them: loop, filter, stop early and print only what matters.\n";
/// The user's guidance file, relative to the home directory.
const GUIDANCE_FILE: &str = ".claude/gateway-guidance.yaml";
/// Longest text that the user may add to the instructions.
const MAX_CUSTOM_CHARS: usize = 2_000;

/// Which advice is given, and in which size.
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
    /// The user's own addition to the instructions.
    custom_instructions: Option<String>,
    max_hint_chars: usize,
    max_snippet_lines: usize,
}

impl Default for Guidance {
    fn default() -> Self {
        Self::from_settings(GuidanceSettings::default())
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct GuidanceFile {
    #[serde(default)]
    guidance: Option<GuidanceSettings>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GuidanceSettings {
    level: GuidanceLevel,
    layers: GuidanceLayers,
    custom_instructions: Option<String>,
    max_hint_length: Option<usize>,
    max_snippet_lines: Option<usize>,
    /// Accepted because existing files have them. Nothing is ever sent from here.
    #[serde(rename = "enable_telemetry")]
    _enable_telemetry: Option<bool>,
    #[serde(rename = "enable_feedback_submission")]
    _enable_feedback_submission: Option<bool>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GuidanceLevel {
    Off,
    #[default]
    Minimal,
    Standard,
}

/// Switches of single layers. They override every level except `off`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GuidanceLayers {
    mcp_instructions: Option<bool>,
    code_hints: Option<bool>,
    code_snippets: Option<bool>,
    methodology_resource: Option<bool>,
}

impl Guidance {
    fn from_settings(said: GuidanceSettings) -> Self {
        let on = said.level != GuidanceLevel::Off;
        let layer = |said: Option<bool>, usual: bool| on && said.unwrap_or(usual);
        let layers = said.layers;
        Self {
            instructions: layer(layers.mcp_instructions, true),
            hints: layer(layers.code_hints, true),
            snippets: layer(layers.code_snippets, said.level == GuidanceLevel::Standard),
            page: layer(layers.methodology_resource, true),
            custom_instructions: said.custom_instructions.filter(|_| on),
            max_hint_chars: said.max_hint_length.unwrap_or(8),
            max_snippet_lines: said.max_snippet_lines.unwrap_or(4),
        }
    }

    /// Returns guidance with all advice switched off.
    pub fn off() -> Self {
        Self::from_settings(GuidanceSettings {
            level: GuidanceLevel::Off,
            ..GuidanceSettings::default()
        })
    }

    /// Reads the guidance file below a home directory. Also returns the file's stamp, by which edits are detected.
    pub fn read(home: &Path) -> (FileSnapshot, Result<Self, Problem>) {
        let path = home.join(GUIDANCE_FILE);
        let (seen, text) = read_text(&path);
        let parsed = text.and_then(|text| parse(&path, &text.unwrap_or_default()));
        (seen, parsed)
    }

    /// Returns the advice in the instructions.
    pub(crate) fn instructions(&self) -> String {
        let mut said = String::new();
        if self.instructions {
            said.push_str(INSTRUCTION_SENTENCE);
        }
        if let Some(own) = &self.custom_instructions {
            said.extend([own.trim(), "\n"]);
        }
        said
    }

    /// Returns the hint on a tool's card.
    pub(crate) fn hint(&self, known: &CatalogTool) -> Option<&'static str> {
        let word = self.hints.then(|| UsagePattern::from_tool(known))??.hint();
        (word.len() <= self.max_hint_chars).then_some(word)
    }

    /// Returns the code snippet with a tool's description.
    pub(crate) fn snippet(
        &self,
        server: &str,
        known: &CatalogTool,
        names: NameStyle,
    ) -> Option<String> {
        let lines = self.snippets.then(|| UsagePattern::from_tool(known))??;
        let lines = lines.snippet(server, known, names);
        (lines.lines().count() <= self.max_snippet_lines).then_some(lines)
    }

    pub(crate) fn has_page(&self) -> bool {
        self.page
    }
}

fn parse(path: &Path, text: &str) -> Result<Guidance, Problem> {
    let file: Option<GuidanceFile> =
        serde_saphyr::from_str(text).map_err(|error| Problem::in_yaml(path, &error))?;
    let said = file.and_then(|file| file.guidance).unwrap_or_default();
    let long = |own: &String| own.chars().count() > MAX_CUSTOM_CHARS;
    if said.custom_instructions.as_ref().is_some_and(long) {
        let why = format!("custom_instructions: longer than {MAX_CUSTOM_CHARS} characters");
        return Err(Problem::new(path, why));
    }
    Ok(Guidance::from_settings(said))
}

/// How code should use a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UsagePattern {
    /// One call for each of many items.
    Loop,
    /// One call, most of whose result is left out.
    Filter,
    /// A call whose result decides what to do next.
    Branch,
    /// A call that may fail.
    Try,
    /// Repeated calls until something is done.
    Poll,
}

/// Patterns, each with the words in a tool's name that indicate it.
const PATTERNS: [(UsagePattern, &[&str]); 5] = [
    (
        UsagePattern::Poll,
        &[
            "wait", "poll", "status", "progress", "start", "deploy", "build", "job", "monitor",
        ],
    ),
    (
        UsagePattern::Filter,
        &[
            "list", "search", "find", "query", "select", "scan", "browse", "logs", "history",
            "tree",
        ],
    ),
    (
        UsagePattern::Branch,
        &[
            "check", "exists", "is", "has", "validate", "verify", "test", "lint", "diff",
        ],
    ),
    (
        UsagePattern::Try,
        &[
            "create", "update", "delete", "remove", "drop", "write", "edit", "modify", "send",
            "post", "put", "set", "add", "insert", "move", "rename", "push", "merge", "execute",
            "run", "upload", "click", "fill", "navigate",
        ],
    ),
    (
        UsagePattern::Loop,
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

impl UsagePattern {
    /// Derives the pattern: `Poll` if the tool supports tasks, else by the first word of its name that indicates one.
    fn from_tool(known: &CatalogTool) -> Option<Self> {
        if known.task_support.is_some() {
            return Some(Self::Poll);
        }
        identifier_words(&known.tool.name).find_map(|word| {
            let mut patterns = PATTERNS.iter();
            let said = patterns.find(|(_, said)| said.contains(&word.as_str()));
            said.map(|(pattern, _)| *pattern)
        })
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Filter => "filter",
            Self::Branch => "if/else",
            Self::Try => "try",
            Self::Poll => "poll",
        }
    }

    /// Returns a few lines of Python, in which `call` calls a tool by its name.
    fn snippet(self, server: &str, known: &CatalogTool, names: NameStyle) -> String {
        let tool = &known.tool;
        let required = tool.input_schema["required"]
            .as_array()
            .into_iter()
            .flatten();
        let required: Vec<&str> = required.filter_map(Value::as_str).collect();
        let id = format!("{server}::{}", tool.name);
        let invoke = names.apply("gateway.invoke");
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
                    "answer = {order}\ndata = answer.get(\"structuredContent\")\nrows = data[\"result\"] if data else json.loads(answer[\"content\"][0][\"text\"])\nprint([row for row in rows if matters(row)][:10])"
                )
            }
            Self::Branch => {
                let order = order(None, "");
                format!(
                    "answer = {order}\nif not answer.get(\"isError\") and is_fine(answer):\n    next_step()"
                )
            }
            Self::Try => {
                let order = order(None, "");
                format!(
                    "answer = {order}\nif answer.get(\"isError\"):\n    raise RuntimeError(answer[\"content\"][0][\"text\"])"
                )
            }
            Self::Poll if known.task_support.is_some() => {
                let order = order(None, ", \"task\": {}");
                let (get, result) = (
                    names.apply("gateway.tasks_get"),
                    names.apply("gateway.tasks_result"),
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
    use rung_mcp::connect::DownstreamTool;
    use serde_json::value::to_raw_value;

    use super::*;

    fn catalog_tool(name: &str, more: &Value) -> CatalogTool {
        let mut tool = json!({
            "name": name,
            "inputSchema": {"type": "object", "properties": {"path \"x\"": {"type": "string"}}, "required": ["path \"x\""]},
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            tool[name] = value.clone();
        }
        CatalogTool::new(
            DownstreamTool::parse(to_raw_value(&tool).unwrap()).unwrap(),
            None,
        )
    }

    fn parse_text(text: &str) -> Result<Guidance, Problem> {
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
            assert_eq!(
                guidance.hint(&catalog_tool(name, &json!({}))),
                expected,
                "{name}"
            );
        }
        let task = json!({"execution": {"taskSupport": "optional"}});
        assert_eq!(guidance.hint(&catalog_tool("think", &task)), Some("poll"));
    }

    #[test]
    fn a_level_says_what_is_usual_and_a_layer_what_is_so() {
        let tool = catalog_tool("list_issues", &json!({}));
        let of = |text: &str| {
            let guidance = parse_text(text).unwrap();
            (
                guidance.instructions() == INSTRUCTION_SENTENCE,
                guidance.hint(&tool).is_some(),
                guidance
                    .snippet("house", &tool, NameStyle::Dotted)
                    .is_some(),
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
        let own = parse_text("guidance: {custom_instructions: Be brief.}").unwrap();
        assert_eq!(
            own.instructions(),
            format!("{INSTRUCTION_SENTENCE}Be brief.\n")
        );
        for wrong in [
            "guidance: {level: most}",
            "guidance: {layers: {code: true}}",
            "advice: {}",
            "guidance: [",
            &format!("guidance: {{custom_instructions: {}}}", "x".repeat(2_001)),
        ] {
            assert!(parse_text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_snippet_names_the_tool_and_what_it_must_be_given() {
        let guidance = parse_text("guidance: {level: standard}").unwrap();
        let task = json!({"execution": {"taskSupport": "required"}});
        for (name, more) in [
            ("get_file", json!({})),
            ("list_files", json!({})),
            ("check_file", json!({})),
            ("write_file", json!({})),
            ("file_status", json!({})),
            ("anything", task),
        ] {
            let tool = catalog_tool(name, &more);
            let code = guidance.snippet("house", &tool, NameStyle::Plain).unwrap();
            assert!(code.contains("gateway_invoke"), "{code}");
            assert!(code.contains(&format!("\"house::{name}\"")), "{code}");
            assert!(code.contains(r#""path \"x\"": "#), "{code}");
            assert!(code.lines().count() <= 4, "{code}");
        }
    }
}
