//! JSON strings with their encoded length.

use std::borrow::Cow;
use std::ops::Deref;

use rung_ladder::{json_string_bytes, push_json_string};

/// A string and its encoded length as JSON, which is needed more often than the string itself.
#[derive(Debug, Clone)]
pub(in crate::tools) struct JsonText<'a> {
    text: Cow<'a, str>,
    json_bytes: usize,
}

impl<'a> JsonText<'a> {
    /// Wraps a string that needs no escapes.
    pub(super) fn from_unescaped(text: &'a str) -> Self {
        Self {
            json_bytes: text.len() + "\"\"".len(),
            text: text.into(),
        }
    }

    /// Returns the bytes of the string as JSON, including its quotes.
    pub(in crate::tools) fn json_bytes(&self) -> usize {
        self.json_bytes
    }

    /// Returns the number of code points.
    pub(in crate::tools) fn chars_count(&self) -> usize {
        // In ASCII, which is quick to check, code points are bytes.
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

impl<'a, T: Into<Cow<'a, str>>> From<T> for JsonText<'a> {
    fn from(text: T) -> Self {
        let text = text.into();
        Self {
            json_bytes: json_string_bytes(&text),
            text,
        }
    }
}

impl Deref for JsonText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl PartialEq for JsonText<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}
