//! How much may go out. Every literal limit of the ladder is here, and nowhere else.

/// The bound of one reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of the whole serialised reply.
    pub max_bytes: usize,
    /// Items of each collection at the top of the reply, where its face has such a cap.
    pub max_items: Option<usize>,
    /// Where the bytes are counted.
    pub measure: Measure,
}

/// Where JSON will stand, which decides what it costs there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Measure {
    /// As itself.
    #[default]
    Bare,
    /// Inside a JSON string, as the text of a content block, where every quote costs another byte.
    Quoted,
}

impl Budget {
    /// A budget of bytes alone.
    pub const fn bytes(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            max_items: None,
            measure: Measure::Bare,
        }
    }

    /// Whether `value` has no collection at its top that is larger than the cap.
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

    /// The same budget with `bytes` of it already spent, as on an envelope.
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

/// The numbers and what they bound.
pub mod limits {
    /// Bytes of a reply where nobody said otherwise.
    pub const REPLY_BYTES: usize = 50_000;

    /// Bytes of what an error says happened; it can repeat what the caller sent, which can be anything.
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
    /// With [`SEARCH_BYTES`] it bounds what one step of a search costs, and so how late a search can
    /// notice that nobody waits for it.
    pub const PATTERN_BYTES: usize = 256 << 10;
    /// The longest match that is sure to be found whole, and the overlap of the sliding search.
    pub const MATCH_BYTES: usize = 16 << 10;
    /// What the sliding search holds at once.
    pub const SEARCH_BYTES: usize = 64 << 10;
    /// How much of a JSON string is decoded at once.
    pub const DECODE_BYTES: usize = 16 << 10;

    /// Bytes of a JSON path's text. Every path of a record is shorter: [`PREVIEW_DEPTH`] steps of at most
    /// [`STEP_BYTES`] each.
    pub const PATH_BYTES: usize = 16 << 10;
    /// Bytes of a step in a record's path. A member whose name is longer is named by its position.
    pub const STEP_BYTES: usize = 64;
    /// Bytes of a member's name that a path can pass by.
    pub const NAME_BYTES: usize = 64 << 10;
    /// Steps of a JSON path.
    pub const PATH_SEGMENTS: usize = 256;

    /// A string up to this many code points is shown whole or not at all.
    pub const ATOM_CHARS: usize = 64;
    /// Entries of an object that are shown or hidden together.
    pub const OBJECT_ENTRIES: usize = 32;
    /// Levels of nesting that a preview descends; what lies deeper is shown empty.
    pub const PREVIEW_DEPTH: usize = 128;
    /// Bytes of a handle or resource address; what is longer is a text like any other.
    pub const HANDLE_BYTES: usize = 2_048;
}
