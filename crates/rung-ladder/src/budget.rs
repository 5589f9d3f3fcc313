//! The budget of a reply. Every literal limit of the ladder is defined here, and nowhere else.

/// The bound of one reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of the whole serialised reply.
    pub max_bytes: usize,
    /// Items of each collection at the top of the reply, if its face has such a cap.
    pub max_items: Option<usize>,
    /// The context in which bytes are counted.
    pub measure: Measure,
}

/// The context of the JSON, which decides how many bytes it takes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Measure {
    /// The JSON is not quoted.
    #[default]
    Bare,
    /// Inside a JSON string, as the text of a content block, where every quote costs another byte.
    Quoted,
}

impl Budget {
    /// Creates a budget without a cap on items.
    pub const fn bytes(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            max_items: None,
            measure: Measure::Bare,
        }
    }

    /// Returns true if no collection at the top of `value` is larger than the cap.
    pub fn allows_items(&self, value: &serde_json::Value) -> bool {
        use serde_json::Value;
        let few = |value: &Value| match (value, self.max_items) {
            (Value::Array(items), Some(most)) => items.len() <= most,
            _ => true,
        };
        match value {
            Value::Object(entries) => entries.values().all(few),
            other => few(other),
        }
    }

    /// Returns the budget that is left after `bytes` were spent, for example on an envelope.
    #[must_use]
    pub fn less(self, bytes: usize) -> Self {
        Self {
            max_bytes: self.max_bytes.saturating_sub(bytes),
            ..self
        }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::bytes(limits::REPLY_BYTES)
    }
}

/// The limits.
pub mod limits {
    /// Bytes of a reply by default.
    pub const REPLY_BYTES: usize = 50_000;

    /// Bytes of a page of rows: up to here, rows that were requested are not left out for the bytes of a reply.
    pub const PAGE_BYTES: usize = 256 << 10;

    /// Bytes of an error message; it can repeat the caller's input, which has no limit.
    pub const ERROR_BYTES: usize = 4_096;

    /// Code points of a window by default.
    pub const WINDOW_CHARS: u64 = 4_096;
    /// Code points of a window at most.
    pub const WINDOW_CHARS_MAX: u64 = 16_384;
    /// Code points of context on either side of a match by default.
    pub const CONTEXT_CHARS: u64 = 2_048;
    /// Code points of context on either side of a match at most.
    pub const CONTEXT_CHARS_MAX: u64 = 8_192;

    /// Hits listed for a regular expression in one reading.
    pub const HITS: usize = 20;
    /// Code points shown of the line around a hit, on either side.
    pub const HIT_CONTEXT_CHARS: usize = 80;
    /// Bytes set aside for each hit beyond its text: numbers, names and brackets, however it is rendered.
    pub const HIT_BYTES: usize = 128;
    /// Code points of a search text or a regular expression.
    pub const PATTERN_CHARS: usize = 1_024;
    /// Memory that a compiled regular expression may take.
    ///
    /// With [`SEARCH_BYTES`] it bounds the cost of one step of a search, and so how late a search
    /// notices that it was cancelled.
    pub const PATTERN_BYTES: usize = 256 << 10;
    /// The longest match that is sure to be found whole, and the overlap of the sliding search.
    pub const MATCH_BYTES: usize = 16 << 10;
    /// Bytes that the sliding search holds at once.
    pub const SEARCH_BYTES: usize = 64 << 10;
    /// Bytes of a JSON string that are decoded at once.
    pub const DECODE_BYTES: usize = 16 << 10;

    /// Bytes of a JSON path's text. Every path of a record is shorter: [`PREVIEW_DEPTH`] steps of at most
    /// [`STEP_BYTES`] each.
    pub const PATH_BYTES: usize = 16 << 10;
    /// Bytes of a step in a record's path. A member whose name is longer is named by its position.
    pub const STEP_BYTES: usize = 64;
    /// Bytes of a member's name that a path can pass.
    pub const NAME_BYTES: usize = 64 << 10;
    /// Steps of a JSON path.
    pub const PATH_SEGMENTS: usize = 256;

    /// A string up to this many code points is shown whole or not at all.
    pub const ATOM_CHARS: usize = 64;
    /// Entries of an object that are shown or hidden together.
    pub const OBJECT_ENTRIES: usize = 32;
    /// Levels of nesting that a preview descends; deeper values are shown empty.
    pub const PREVIEW_DEPTH: usize = 128;
    /// Bytes of a handle or resource address; a longer text is treated as any other.
    pub const HANDLE_BYTES: usize = 2_048;
}
