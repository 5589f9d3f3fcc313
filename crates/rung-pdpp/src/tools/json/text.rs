//! Texts that know what they take.

use std::borrow::Cow;
use std::ops::Deref;

use rung_ladder::{json_string_bytes, push_json_string};

/// A text, and what it takes as JSON: that is asked of a text more often than it is read.
#[derive(Debug, Clone)]
pub(in crate::tools) struct Text<'a> {
    text: Cow<'a, str>,
    json_bytes: usize,
}

impl<'a> Text<'a> {
    /// A text that stands in JSON as it is.
    pub(super) fn as_it_stands(text: &'a str) -> Self {
        Self {
            json_bytes: text.len() + "\"\"".len(),
            text: text.into(),
        }
    }

    /// Bytes that it takes, quotes included.
    pub(in crate::tools) fn json_bytes(&self) -> usize {
        self.json_bytes
    }

    /// Its code points.
    pub(in crate::tools) fn chars_count(&self) -> usize {
        // In ASCII, which is soon seen, there are as many as bytes.
        if self.is_ascii() {
            return self.len();
        }
        self.chars().count()
    }

    pub(super) fn write(&self, out: &mut String) {
        if self.json_bytes == self.len() + "\"\"".len() {
            out.push('"');
            out.push_str(self);
            out.push('"');
        } else {
            push_json_string(out, self);
        }
    }
}

impl<'a, T: Into<Cow<'a, str>>> From<T> for Text<'a> {
    fn from(text: T) -> Self {
        let text = text.into();
        Self {
            json_bytes: json_string_bytes(&text),
            text,
        }
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}
