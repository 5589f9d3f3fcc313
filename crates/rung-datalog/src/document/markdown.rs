//! Markdown as a document: headings are keys, and what is under them is their text, or what is under theirs.

use std::sync::LazyLock;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use regex::Regex;
use rung_edn::{Map, Name, Value};

use super::wrong;
use crate::Result;

/// The key of a text that has headings below it, or none above it. No heading becomes it.
const TEXT: &str = "_text";

/// A heading and what is under it.
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
        Some(Value::Map(members(text, self.below)))
    }
}

/// What is under headings of one place. What several of the same name have is a vector.
fn members(text: Option<Value>, sections: Vec<Section>) -> Map {
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

/// The document of a text.
pub(super) fn read(text: &str) -> Result<Value> {
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
                        let key = key(&block)?;
                        begin(
                            &mut open,
                            Section {
                                level: number(level),
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
    begin(
        &mut open,
        Section {
            level: 0,
            ..Section::default()
        },
    );
    let root = open.swap_remove(0);
    let text = (!root.blocks.is_empty()).then(|| Value::text(root.blocks.join("\n")));
    Ok(Value::Map(members(text, root.below)))
}

/// What follows stands in a line of its own.
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

/// Ends the sections that a new one is not below of, and begins it.
fn begin(open: &mut Vec<Section>, section: Section) {
    while open.len() > 1 && open[open.len() - 1].level >= section.level {
        let (done, above) = (open.pop(), open.last_mut());
        if let (Some(done), Some(above)) = (done, above) {
            above.below.push(done);
        }
    }
    open.push(section);
}

fn number(level: HeadingLevel) -> usize {
    level as usize
}

/// Where sections are numbered.
static NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[0-9]+[.) \-]*"));
static NO_PART: LazyLock<Regex> = LazyLock::new(|| pattern(r"[^\p{L}\p{Nd} \t\-]"));
static BETWEEN: LazyLock<Regex> = LazyLock::new(|| pattern(r"[ \t\-]+"));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("it is written right")
}

/// The key that a heading becomes: its letters and digits in lower case, without the number in front of it.
pub(super) fn key(heading: &str) -> Result<String> {
    let lower = heading.trim().to_lowercase();
    let bare = NUMBER.replace(&lower, "");
    // A number may be all that there is.
    for text in [&*bare, &lower] {
        let kept = NO_PART.replace_all(text, "");
        let key = BETWEEN.replace_all(&kept, "-");
        let key = key.trim_matches('-');
        if !key.is_empty() && Name::new(key).is_readable() {
            return Ok(key.to_owned());
        }
    }
    wrong(format!(
        "the heading {heading:?} has no letter to make a key of"
    ))
}
