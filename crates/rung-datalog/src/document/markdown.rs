//! Markdown as a document: headings are keys, and their values are the text below them, or the headings below them.

use std::sync::LazyLock;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use regex::Regex;
use rung_edn::{Map, Name, Value};

use super::invalid_document;
use crate::Result;

/// The key of a text that has headings below it, or none above it. No heading has this key.
const TEXT: &str = "_text";

/// A heading with its text and the sections below it.
#[derive(Default)]
struct Section {
    level: usize,
    key: String,
    /// Blocks of text.
    blocks: Vec<String>,
    below: Vec<Section>,
}

impl Section {
    fn value(self) -> Option<Value> {
        let text = (!self.blocks.is_empty()).then(|| Value::text(self.blocks.join("\n")));
        if self.below.is_empty() {
            return text;
        }
        Some(Value::Map(section_map(text, self.below)))
    }
}

/// Returns the map of a text and its sections. Sections of the same name become a vector.
fn section_map(text: Option<Value>, sections: Vec<Section>) -> Map {
    let mut members = Map::new();
    if let Some(text) = text {
        members.insert(Value::keyword(TEXT), text);
    }
    let mut several: Vec<String> = Vec::new();
    for section in sections {
        let name = section.key.clone();
        let key = Value::Keyword(Name::new(name.as_str()));
        let Some(value) = section.value() else {
            continue;
        };
        match members.get_mut(&key) {
            None => {
                members.insert(key, value);
            }
            Some(Value::Vector(values)) if several.contains(&name) => values.push(value),
            Some(first) => {
                let before = std::mem::replace(first, Value::Nil);
                *first = Value::Vector(vec![before, value]);
                several.push(name);
            }
        }
    }
    members
}

/// Parses Markdown to a document.
pub(super) fn parse(text: &str) -> Result<Value> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_MATH;
    let mut open = vec![Section::default()];
    let mut block = String::new();
    let (mut depth, mut hidden) = (0_usize, 0_usize);
    for event in Parser::new_ext(text, options) {
        match event {
            Event::Start(Tag::FootnoteDefinition(_)) => hidden += 1,
            Event::End(TagEnd::FootnoteDefinition) => hidden -= 1,
            _ if hidden > 0 => {}
            Event::Start(tag) => {
                match tag {
                    Tag::Item | Tag::TableHead | Tag::TableRow | Tag::Paragraph => {
                        break_line(&mut block);
                    }
                    Tag::TableCell if !block.is_empty() && !block.ends_with('\n') => {
                        block.push_str(" | ");
                    }
                    _ => {}
                }
                depth += 1;
            }
            Event::End(tag) => {
                depth -= 1;
                match tag {
                    TagEnd::Heading(level) if depth == 0 => {
                        let key = heading_key(&block)?;
                        open_section(
                            &mut open,
                            Section {
                                level: heading_level(level),
                                key,
                                ..Section::default()
                            },
                        );
                    }
                    TagEnd::CodeBlock if depth == 0 => end_block(&mut open, &block),
                    _ if depth == 0 => end_block(&mut open, block.trim_matches('\n')),
                    _ => {}
                }
                if depth == 0 {
                    block.clear();
                }
            }
            Event::Text(text)
            | Event::Code(text)
            | Event::InlineHtml(text)
            | Event::Html(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text) => block.push_str(&text),
            Event::SoftBreak | Event::HardBreak => block.push('\n'),
            Event::Rule | Event::FootnoteReference(_) | Event::TaskListMarker(_) => {}
        }
    }
    open_section(
        &mut open,
        Section {
            level: 0,
            ..Section::default()
        },
    );
    let root = open.swap_remove(0);
    let text = (!root.blocks.is_empty()).then(|| Value::text(root.blocks.join("\n")));
    Ok(Value::Map(section_map(text, root.below)))
}

/// Starts a new line.
fn break_line(block: &mut String) {
    if !block.is_empty() && !block.ends_with('\n') {
        block.push('\n');
    }
}

fn end_block(open: &mut [Section], block: &str) {
    if let (Some(section), false) = (open.last_mut(), block.trim().is_empty()) {
        section.blocks.push(block.to_owned());
    }
}

/// Closes the open sections that do not contain the new one, and opens it.
fn open_section(open: &mut Vec<Section>, section: Section) {
    while open.len() > 1 && open[open.len() - 1].level >= section.level {
        let (done, above) = (open.pop(), open.last_mut());
        if let (Some(done), Some(above)) = (done, above) {
            above.below.push(done);
        }
    }
    open.push(section);
}

fn heading_level(level: HeadingLevel) -> usize {
    level as usize
}

/// The number before a heading.
static HEADING_NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[0-9]+[.) \-]*"));
static NOT_IN_KEY: LazyLock<Regex> = LazyLock::new(|| pattern(r"[^\p{L}\p{Nd} \t\-]"));
static SEPARATORS: LazyLock<Regex> = LazyLock::new(|| pattern(r"[ \t\-]+"));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("it is written right")
}

/// Returns the key of a heading: its letters and digits in lower case, without the number in front of it.
pub(super) fn heading_key(heading: &str) -> Result<String> {
    let lower = heading.trim().to_lowercase();
    let bare = HEADING_NUMBER.replace(&lower, "");
    // The heading may be only a number.
    for text in [&*bare, &lower] {
        let kept = NOT_IN_KEY.replace_all(text, "");
        let key = SEPARATORS.replace_all(&kept, "-");
        let key = key.trim_matches('-');
        if !key.is_empty() && Name::new(key).is_readable() {
            return Ok(key.to_owned());
        }
    }
    invalid_document(format!(
        "the heading {heading:?} has no letter or digit for a key"
    ))
}
