//! The texts of a result that does not fit: as much as fits, the note that says so, and the call that continues.

use rung_ladder::{Handle, head, json_string_bytes};
use serde_json::{Value, json};

use crate::render::READ_TOOL;
use crate::source::Call;

/// Where a kind of result has its texts.
#[derive(Debug)]
pub struct ResultTexts {
    /// The list that holds the items.
    pub list: &'static str,
    /// The paths where an item can have its text.
    pub texts: &'static [&'static [&'static str]],
}

impl ResultTexts {
    /// The texts of a tool's result.
    pub const TOOL: Self = Self {
        list: "content",
        texts: &[&["text"], &["resource", "text"]],
    };
    /// The texts of a resource.
    pub const RESOURCE: Self = Self {
        list: "contents",
        texts: &[&["text"]],
    };
    /// The texts of a prompt.
    pub const PROMPT: Self = Self {
        list: "messages",
        texts: &[&["content", "text"]],
    };
}

/// The texts of a stored result, joined into one.
pub(crate) struct Excerpt {
    text: String,
    /// The index of the item that holds the first text.
    first: Option<usize>,
    /// For each text, its offset in `text` and its path in the stored result.
    locations: Vec<(usize, String)>,
}

impl Excerpt {
    /// Joins the texts of the items of a list.
    pub(crate) fn from_items(items: &Value, at: &ResultTexts) -> Self {
        let ResultTexts { list, texts } = at;
        let mut excerpt = Self::from_head("");
        for (index, item) in items.as_array().into_iter().flatten().enumerate() {
            let text = texts.iter().find_map(|path| {
                let value = path.iter().try_fold(item, |value, name| value.get(name));
                Some((path, value?.as_str()?))
            });
            let Some((path, text)) = text else {
                continue;
            };
            if excerpt.first.is_some() {
                excerpt.text.push('\n');
            }
            excerpt.first.get_or_insert(index);
            let place = format!("{list}[{index}].{}", path.join("."));
            excerpt.locations.push((excerpt.text.len(), place));
            excerpt.text.push_str(text);
        }
        excerpt
    }

    /// Creates one from the JSON of the value at a path.
    pub(crate) fn from_text(text: &str, path: &str) -> Self {
        Self {
            text: text.to_owned(),
            first: None,
            locations: vec![(0, path.to_owned())],
        }
    }

    /// Creates one from the beginning of the JSON of a result.
    pub(crate) fn from_head(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            first: None,
            locations: Vec::new(),
        }
    }

    /// Returns the index of the item that holds the first text.
    pub(crate) fn first(&self) -> Option<usize> {
        self.first
    }

    /// Returns the metadata that reports the cut and names the next call.
    pub(crate) fn meta(&self, call: &Call, handle: &Handle) -> Value {
        let mut arguments = json!({"handle": handle.to_string()});
        if let Some((_, path)) = self.locations.first() {
            arguments["path"] = path.as_str().into();
        }
        let next = json!({"tool": call.name_style.apply(READ_TOOL), "arguments": arguments});
        json!({"truncated": true, "handle": handle.to_string(), "next": next})
    }

    /// Returns the note and as much of the text as fits `room` bytes of a JSON string, quotes not counted.
    pub(crate) fn text_within(&self, room: usize, call: &Call, handle: &Handle) -> Option<String> {
        // No note is longer than the one with the last path and the count of all code points.
        let last = self.locations.last();
        let longest = last.map(|(_, path)| (path.as_str(), self.text.chars().count()));
        let note = note(call, handle, longest);
        let room = room.checked_sub(json_string_bytes(&note) - 2)?;
        let shown = head(&self.text, room);
        Some(self::note(call, handle, self.next(shown.len())) + shown)
    }

    /// Returns where the text continues after its first `bytes`: a path, and the code points of it that were shown.
    fn next(&self, bytes: usize) -> Option<(&str, usize)> {
        if bytes == self.text.len() {
            return None;
        }
        // If only the line break before a text was shown, that text is the next one.
        let mut places = self.locations.iter().rev();
        let (from, path) = places.find(|(from, _)| *from <= bytes + 1)?;
        let shown = &self.text[(*from).min(bytes)..bytes];
        Some((path, shown.chars().count()))
    }
}

/// Returns the sentence that names the call for the whole result, and the one that continues after what is shown.
fn note(call: &Call, handle: &Handle, next: Option<(&str, usize)>) -> String {
    let read = call.name_style.apply(READ_TOOL);
    let next = next.map_or_else(String::new, |(path, offset_chars)| {
        format!(
            ", or continue with {{\"handle\":\"{handle}\",\"path\":{},\"offset_chars\":{offset_chars}}}",
            Value::from(path)
        )
    });
    format!(
        "Result truncated. The whole result is stored: read it with {read} {{\"handle\":\"{handle}\"}}{next}.\n"
    )
}
