//! Windows of text, in code points.

use crate::budget::limits;
use crate::document::{Document, find_char, find_line, take_chars};
use crate::search::DocumentSearch;
use crate::text::{prefix, suffix};
use crate::{Error, Result};

/// A window of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The text of the window.
    pub text: String,
    /// Code points before the window.
    pub start_chars: u64,
    /// Code points up to the end of the window.
    pub end_chars: u64,
    /// The most code points that the window may hold.
    pub limit_chars: u64,
    /// Code points of the whole text.
    pub size_chars: u64,
    /// The start and end of the searched text in code points, if the window was made around a match.
    pub found: Option<(u64, u64)>,
}

impl Window {
    /// Returns true if the window is the whole text, not merely its last part.
    pub fn is_complete(&self) -> bool {
        self.start_chars == 0 && self.end_chars == self.size_chars
    }

    /// Returns the offset where the next window begins; `None` at the end.
    pub fn next_offset(&self) -> Option<u64> {
        (self.end_chars < self.size_chars).then_some(self.end_chars)
    }

    /// Returns the size of the windows before and after this one: the limit of this one, or the default
    /// around a match, where the context set the size.
    pub(crate) fn step_chars(&self) -> u64 {
        match self.found {
            None => self.limit_chars,
            Some(_) => limits::WINDOW_CHARS,
        }
    }
}

/// The limits of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) limit_chars: u64,
    /// Bytes of the window's text inside a JSON string.
    pub(crate) max_bytes: usize,
}

impl Extent {
    pub(crate) fn new(limit_chars: u64, max_bytes: usize) -> Result<Self> {
        if !(1..=limits::WINDOW_CHARS_MAX).contains(&limit_chars) {
            return Err(Error::WindowInvalid("limit_chars is out of range"));
        }
        Ok(Self {
            limit_chars,
            max_bytes,
        })
    }
}

/// Returns the window that begins at `offset_chars`. Past the end it is empty.
pub(crate) fn window_at_offset<D: Document + ?Sized>(
    doc: &D,
    offset_chars: u64,
    extent: Extent,
) -> Result<Window, D::Error> {
    let size_chars = doc.len_chars().ok_or(Error::NotText)?;
    let start_chars = offset_chars.min(size_chars);
    let mark = find_char(doc, start_chars)?;
    let mut text = take_chars(doc, mark, extent.limit_chars)?;
    let mut shown_chars = text.chars().count();
    let fitting = prefix(&text, extent.max_bytes);
    if fitting.len() < text.len() {
        shown_chars = fitting.chars().count();
        text.truncate(fitting.len());
        if shown_chars == 0 {
            return Err(Error::BudgetTooSmall {
                max_bytes: extent.max_bytes,
            }
            .into());
        }
    }
    Ok(Window {
        end_chars: start_chars + shown_chars as u64,
        text,
        start_chars,
        limit_chars: extent.limit_chars,
        size_chars,
        found: None,
    })
}

/// Returns the window that ends at `end_chars`. If it does not fit, its beginning is left out.
pub(crate) fn window_up_to<D: Document + ?Sized>(
    doc: &D,
    end_chars: u64,
    extent: Extent,
) -> Result<Window, D::Error> {
    let size_chars = doc.len_chars().ok_or(Error::NotText)?;
    let end_chars = end_chars.min(size_chars);
    let from = end_chars.saturating_sub(extent.limit_chars);
    let text = take_chars(doc, find_char(doc, from)?, end_chars - from)?;
    let text = suffix(&text, extent.max_bytes);
    if text.is_empty() && end_chars > 0 {
        return Err(Error::BudgetTooSmall {
            max_bytes: extent.max_bytes,
        }
        .into());
    }
    Ok(Window {
        start_chars: end_chars - text.chars().count() as u64,
        end_chars,
        text: text.to_owned(),
        limit_chars: extent.limit_chars,
        size_chars,
        found: None,
    })
}

/// Returns the window of the lines from `first` to `last`, counted from 1, inclusive.
pub(crate) fn window_of_lines<D: Document + ?Sized>(
    doc: &D,
    first: u64,
    last: u64,
    extent: Extent,
) -> Result<Window, D::Error> {
    if first == 0 || last < first {
        return Err(Error::WindowInvalid(
            "lines must be FIRST-LAST, with FIRST at least 1 and at most LAST",
        )
        .into());
    }
    doc.len_chars().ok_or(Error::NotText)?;
    let from = find_line(doc, first - 1)?;
    let to = find_line(doc, last)?;
    let wanted = (to.chars - from.chars).min(extent.limit_chars);
    let mut window = window_at_offset(
        doc,
        from.chars,
        Extent {
            limit_chars: wanted.max(1),
            ..extent
        },
    )?;
    if wanted == 0 {
        window.text.clear();
        window.end_chars = window.start_chars;
    }
    window.limit_chars = extent.limit_chars;
    Ok(window)
}

/// Returns the window around the first match of `search`.
pub(crate) fn window_around_match<D: Document + ?Sized>(
    doc: &D,
    search: &DocumentSearch,
    before_chars: u64,
    after_chars: u64,
    max_bytes: usize,
) -> Result<Window, D::Error> {
    if before_chars.max(after_chars) > limits::CONTEXT_CHARS_MAX {
        return Err(Error::WindowInvalid("before_chars or after_chars is out of range").into());
    }
    doc.len_chars().ok_or(Error::NotText)?;
    let (hit_start, hit_end) = search.first_match(doc)?.ok_or(Error::MatchAbsent)?;
    let start = hit_start.saturating_sub(before_chars);
    let length = (hit_end - start)
        .saturating_add(after_chars)
        .min(limits::WINDOW_CHARS_MAX);
    let mut window = window_at_offset(doc, start, Extent::new(length.max(1), max_bytes)?)?;
    // If the bytes do not suffice up to the match, the window begins with the match.
    if window.end_chars < hit_end && hit_start > start {
        window = window_at_offset(doc, hit_start, Extent::new(length.max(1), max_bytes)?)?;
    }
    window.found = Some((hit_start, hit_end));
    Ok(window)
}
