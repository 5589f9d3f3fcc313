//! The reply of a call, in the three forms that clients read: text, structured content, links.
//!
//! A text-only client reads the text block, a structured one `structuredContent`, a third follows resource
//! links. Each form alone must lead to the whole result, so if a result does not fit, each form says
//! what was cut and where the rest is. No other module builds these shapes.

use std::io::Read;

use rung_auth::Permit;
use rung_fault::Fault;
use rung_ladder::{Handle, Measure, json_bytes, json_string_bytes};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::resource::ResourceContents;

/// The output of a tool.
#[derive(Debug, Clone)]
pub struct ToolOutput<T> {
    /// The structured content.
    pub data: T,
    /// The text block, if it is not the compact JSON of `data`.
    pub text: Option<String>,
    /// Resources with more data.
    pub links: Vec<ResourceLink>,
}

impl<T> From<T> for ToolOutput<T> {
    fn from(data: T) -> Self {
        Self {
            data,
            text: None,
            links: Vec::new(),
        }
    }
}

impl<T: Serialize> ToolOutput<T> {
    /// Returns the bytes of the larger form of a reply that contains this whole output.
    pub(crate) fn form_bytes(&self, rendering: Rendering) -> usize {
        let around = content_blocks(String::new(), &self.links, rendering);
        let text_bytes = match &self.text {
            Some(text) => json_string_bytes(text) - 2,
            None => json_bytes(&self.data, Measure::Quoted),
        };
        let content_bytes = Reply::from_blocks(around).bytes() + text_bytes;
        if !rendering.structured {
            return content_bytes;
        }
        content_bytes.max(STRUCTURED_FRAME.len() + json_bytes(&self.data, Measure::Bare))
    }
}

/// The structured form of a reply, without its value.
pub(crate) const STRUCTURED_FRAME: &str = r#"{"content":[],"structuredContent":}"#;

/// A link to a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResourceLink {
    /// The URI.
    pub uri: String,
    /// The name to show.
    pub name: String,
    /// The media type.
    #[serde(rename = "mimeType")]
    pub mime_type: String,
}

/// The forms that a caller can read. Text is always sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rendering {
    /// True if `structuredContent` is sent.
    pub structured: bool,
    /// True if resource links are sent.
    pub links: bool,
}

impl Default for Rendering {
    fn default() -> Self {
        Self {
            structured: true,
            links: true,
        }
    }
}

/// A content block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// Text for the model.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    #[serde(rename_all = "camelCase")]
    Image {
        /// The bytes in base64.
        data: String,
        /// The media type.
        mime_type: String,
    },
    /// Audio.
    #[serde(rename_all = "camelCase")]
    Audio {
        /// The bytes in base64.
        data: String,
        /// The media type.
        mime_type: String,
    },
    /// A link to a resource.
    ResourceLink(ResourceLink),
    /// An embedded resource.
    Resource {
        /// The contents of the resource.
        resource: ResourceContents,
    },
}

/// A reply, ready to be sent. It serialises to the result of a tool call.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The content blocks.
    pub content: Vec<ContentBlock>,
    /// The structured content, serialised once: measuring and sending it does not serialise it again.
    pub structured_content: Option<Box<RawValue>>,
    /// True if the call failed.
    pub is_error: bool,
    /// The fault of a failed call, for callers within this process.
    pub fault: Option<Fault>,
    /// The whole result as another server sent it, passed on byte for byte. If set, `content` and `structured_content` are empty.
    pub relayed: Option<Box<RawValue>>,
}

impl Serialize for Reply {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(relayed) = &self.relayed {
            return relayed.serialize(serializer);
        }
        let mut reply = serializer.serialize_struct("Reply", 3)?;
        reply.serialize_field("content", &self.content)?;
        if let Some(structured) = &self.structured_content {
            reply.serialize_field("structuredContent", structured)?;
        }
        if self.is_error {
            reply.serialize_field("isError", &true)?;
        }
        reply.end()
    }
}

/// Serialises a value for a reply.
pub fn to_raw_json(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("what a tool gives is JSON")
}

/// Stores results that are too large for a reply.
pub trait ResultSink: Send + Sync + 'static {
    /// Stores `body` for the bearer of `permit`, in constant memory. When this returns, the result can
    /// be read under the handle.
    fn store(
        &self,
        permit: &Permit,
        content_type: &str,
        body: &mut dyn Read,
    ) -> Result<Handle, Fault>;
}

/// Returns the content of a text and its links.
pub(crate) fn content_blocks(
    text: String,
    links: &[ResourceLink],
    rendering: Rendering,
) -> Vec<ContentBlock> {
    let links = if rendering.links { links } else { &[] };
    let links = links.iter().cloned().map(ContentBlock::ResourceLink);
    std::iter::once(ContentBlock::Text { text })
        .chain(links)
        .collect()
}

impl Reply {
    /// Returns the text of the first block, or an empty string.
    pub fn text(&self) -> &str {
        match self.content.first() {
            Some(ContentBlock::Text { text }) => text,
            _ => "",
        }
    }

    /// Creates a reply of one text block.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self::from_blocks(vec![ContentBlock::Text { text: text.into() }])
    }

    /// Creates a reply of content blocks.
    pub fn from_blocks(content: Vec<ContentBlock>) -> Self {
        Self {
            content,
            structured_content: None,
            is_error: false,
            fault: None,
            relayed: None,
        }
    }

    /// Returns the bytes of the larger form of the reply.
    pub(crate) fn form_bytes(&self) -> usize {
        let structured = self.structured_content.as_ref();
        let structured_bytes = structured.map_or(0, |structured| {
            STRUCTURED_FRAME.len() + structured.get().len()
        });
        let beside = structured.map_or(0, |structured| {
            r#","structuredContent":"#.len() + structured.get().len()
        });
        structured_bytes.max(self.bytes() - beside)
    }

    /// Returns the bytes of the serialised reply.
    ///
    /// Computed without serialising, since a reply is measured more often than it is sent.
    pub fn bytes(&self) -> usize {
        if let Some(relayed) = &self.relayed {
            return relayed.get().len();
        }
        let block = |block: &ContentBlock| match block {
            ContentBlock::Text { text } => {
                r#"{"type":"text","text":}"#.len() + json_string_bytes(text)
            }
            other => json_bytes(other, Measure::Bare),
        };
        let commas = self.content.len().saturating_sub(1);
        let content = self.content.iter().map(block).sum::<usize>() + commas;
        let structured = self.structured_content.as_ref().map_or(0, |written| {
            r#","structuredContent":"#.len() + written.get().len()
        });
        let failed = if self.is_error {
            r#","isError":true"#.len()
        } else {
            0
        };
        r#"{"content":[]}"#.len() + content + structured + failed
    }
}
