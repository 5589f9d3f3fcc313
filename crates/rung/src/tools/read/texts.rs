//! Selections without a path in the stored result of a server.
//!
//! Lines, a text and a pattern mean the texts of such a result and not its JSON, in which every line break is escaped and a text
//! may occur again as structured content. The JSON is searched if no text has a match.

use rung_ladder::{
    CursorTarget, Error, JsonKind, Path, Position, Range, Reading, Selector, continue_reading,
    limits, read, value_kind,
};
use rung_tool::ResultTexts;

use super::{CancellableDocument, DocumentReadError};
use crate::result_store::StoredResult;

type Stored<'c> = CancellableDocument<'c, StoredResult>;

/// Texts of a result that are searched at most.
const MAX_TEXTS: u64 = 32;

/// Reads what a selector selects.
pub(super) fn read_selected(
    stored: &Stored<'_>,
    selector: &Selector,
    max_bytes: usize,
) -> Result<Reading, DocumentReadError> {
    let means_text = matches!(
        selector.range,
        Range::Lines { .. } | Range::Match { .. } | Range::Pattern { .. }
    );
    if !means_text || !selector.path.segments().is_empty() {
        return read(stored, selector, max_bytes);
    }
    for path in text_paths(stored)? {
        let selector = Selector {
            path,
            range: selector.range.clone(),
        };
        match read(stored, &selector, max_bytes) {
            Err(DocumentReadError::Ladder(Error::MatchAbsent)) => {}
            reading => return with_next_text(stored, reading?),
        }
    }
    read(stored, selector, max_bytes)
}

/// Continues an earlier read.
pub(super) fn read_on(
    stored: &Stored<'_>,
    position: &Position,
    max_bytes: usize,
) -> Result<Reading, DocumentReadError> {
    let reading = continue_reading(stored, position, max_bytes)?;
    with_next_text(stored, reading)
}

/// Lets the matches in one text be followed by those in the next one that has any.
fn with_next_text(stored: &Stored<'_>, mut reading: Reading) -> Result<Reading, DocumentReadError> {
    if let Reading::Hits {
        path,
        pattern,
        next: next @ None,
        ..
    } = &mut reading
    {
        let mut paths = text_paths(stored)?.into_iter();
        if paths.any(|text| text == *path) {
            for path in paths {
                let range = Range::Pattern {
                    pattern: pattern.clone(),
                    offset_chars: 0,
                };
                let selector = Selector { path, range };
                match read(stored, &selector, usize::MAX) {
                    Err(DocumentReadError::Ladder(Error::MatchAbsent)) => {}
                    Err(error) => return Err(error),
                    Ok(_) => {
                        *next = Some(Position {
                            target: CursorTarget::Hits(selector.path, pattern.clone()),
                            offset: 0,
                            limit_chars: limits::WINDOW_CHARS,
                            shortcut: None,
                        });
                        break;
                    }
                }
            }
        }
    }
    Ok(reading)
}

/// Returns the paths of the texts of a server's result. There are none if the document is something else.
fn text_paths(stored: &Stored<'_>) -> Result<Vec<Path>, DocumentReadError> {
    let mut paths = Vec::new();
    for kind in [
        ResultTexts::TOOL,
        ResultTexts::RESOURCE,
        ResultTexts::PROMPT,
    ] {
        for index in 0..MAX_TEXTS {
            let item = format!("{}[{index}]", kind.list);
            if kind_at(stored, &item)?.is_none() {
                break;
            }
            for names in kind.texts {
                let path = format!("{item}.{}", names.join("."));
                if kind_at(stored, &path)? == Some(JsonKind::String) {
                    paths.push(path.parse()?);
                    break;
                }
            }
        }
    }
    Ok(paths)
}

/// Returns the kind of the value at a path, if the document is JSON and has one there.
fn kind_at(stored: &Stored<'_>, path: &str) -> Result<Option<JsonKind>, DocumentReadError> {
    match value_kind(stored, &path.parse()?) {
        Err(DocumentReadError::Ladder(Error::NotJson { .. })) => Ok(None),
        kind => kind,
    }
}
