//! Records of what was left out of a reply, and how to read it.

use serde::Serialize;

use crate::Path;
use crate::path::Segment;

/// The replacement of a value that did not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A shortened form of the value.
    Preview,
    /// Nothing.
    Omitted,
}

/// One truncation record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Cut {
    /// A collection lost its tail.
    Items {
        /// The collection.
        #[serde(serialize_with = "as_text")]
        path: Path,
        /// The cap that was applied.
        limit: u64,
        /// Items that are still in the reply.
        returned: u64,
        /// Items of the original.
        original: u64,
    },
    /// The reply as a whole was over its bytes.
    Bytes {
        /// The shortened value.
        #[serde(serialize_with = "as_text")]
        path: Path,
        /// The budget.
        limit: u64,
        /// The replacement.
        mode: Mode,
    },
    /// A text lost its tail.
    Chars {
        /// The text.
        #[serde(serialize_with = "as_text")]
        path: Path,
        /// The cap that was applied, in code points.
        limit: u64,
        /// Code points that are still in the reply.
        returned: u64,
        /// Code points of the original.
        original: u64,
    },
}

/// The position where reading continues after a cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continuation {
    /// The rest, as a path into the original. After a lost tail of items it ends in a slice.
    pub path: Path,
    /// Code points of the text at `path` that were already shown.
    pub offset_chars: u64,
}

impl Cut {
    /// Returns the path of the cut value.
    pub fn path(&self) -> &Path {
        match self {
            Self::Items { path, .. } | Self::Bytes { path, .. } | Self::Chars { path, .. } => path,
        }
    }

    /// Returns the position in the original where reading continues.
    pub fn continuation(&self) -> Continuation {
        let (path, offset_chars) = match self {
            Self::Items { path, returned, .. } => (path.then(Segment::Slice(*returned, None)), 0),
            Self::Chars { path, returned, .. } => (path.clone(), *returned),
            Self::Bytes { path, .. } => (path.clone(), 0),
        };
        Continuation { path, offset_chars }
    }
}

fn as_text<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn records_have_the_published_members() {
        let path: Path = "result".parse().unwrap();
        let items = Cut::Items {
            path: path.clone(),
            limit: 200,
            returned: 200,
            original: 684,
        };
        assert_eq!(
            serde_json::to_value(&items).unwrap(),
            json!({"kind": "items", "path": "result", "limit": 200, "returned": 200, "original": 684})
        );
        assert_eq!(items.continuation().path.to_string(), "result[200:]");
        let bytes = Cut::Bytes {
            path: path.clone(),
            limit: 524_288,
            mode: Mode::Omitted,
        };
        assert_eq!(
            serde_json::to_value(&bytes).unwrap(),
            json!({"kind": "bytes", "path": "result", "limit": 524_288, "mode": "omitted"})
        );
        let chars = Cut::Chars {
            path,
            limit: 64,
            returned: 64,
            original: 9000,
        };
        assert_eq!(
            serde_json::to_value(&chars).unwrap(),
            json!({"kind": "chars", "path": "result", "limit": 64, "returned": 64, "original": 9000})
        );
        assert_eq!(chars.continuation().offset_chars, 64);
    }
}
