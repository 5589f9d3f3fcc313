//! Pages of rows: how much of each row is shown.
//!
//! A client gets the rows that it asked for. Where they are too large, long texts get shorter, then lists and objects, then the
//! reply is larger than usual; rows are left out last. Each form is fitted by itself.

use serde_json::value::RawValue;

use crate::form::FormLimit;
use crate::reply::{ContentBlock, Reply, STRUCTURED_FRAME, to_raw_json};
use crate::source::Call;

/// Rows for which a reply has its usual size, and bytes by which it grows for each further row.
const USUAL_ROWS: usize = 25;
const ROW_BYTES: usize = 480;

/// Code points of a long text: the most that are tried, the fewest, and the difference between two tries.
const TEXT_CHARS: usize = 1_024;
const LEAST_TEXT_CHARS: usize = 16;
const STEP_CHARS: usize = 16;
/// Code points of a long text in a form that is larger than usual anyway.
const GROWN_TEXT_CHARS: usize = 48;

/// How many bytes each form of a page may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowLimit {
    /// These bytes for a page of usual length and more for a longer one; more still where rows would be left out otherwise.
    Growing(usize),
    /// These bytes, with as many rows as fit.
    Fixed(usize),
}

impl RowLimit {
    /// Returns the bytes that a form of so many rows has as a rule, and at most.
    pub fn bytes(self, rows: usize, call: &Call) -> (usize, usize) {
        match self {
            Self::Growing(bytes) => {
                let more = rows.saturating_sub(USUAL_ROWS) * ROW_BYTES;
                ((bytes + more).min(call.page_bytes), call.page_bytes)
            }
            Self::Fixed(bytes) => {
                let bytes = bytes.min(call.budget.max_bytes);
                (bytes, bytes)
            }
        }
    }
}

/// How much of each row the structured content shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowDetail {
    /// Everything.
    Whole,
    /// So many code points of each long text, with everything that is known of what is cut.
    Described(usize),
    /// So many code points of each long text, with the size of what is cut.
    Texts(usize),
    /// The same, with long lists and objects cut as well.
    TextsAndLists(usize),
}

/// A page of rows, as its source renders it.
pub trait Rows {
    /// Returns the number of rows.
    fn count(&self) -> usize;

    /// Renders the content of all rows in about `max_bytes`. The ID, the title and the first words of each row are always part of it.
    fn content(&self, max_bytes: usize) -> Vec<ContentBlock>;

    /// Renders the structured content of all rows; `None` if it has more than `max_bytes`.
    fn structured(&self, detail: RowDetail, max_bytes: usize) -> Option<Box<RawValue>>;

    /// Renders the structured content of rows of which no fewer can be requested: what does not fit is named.
    fn structured_in_part(&self, max_bytes: usize) -> Box<RawValue>;
}

/// The rows do not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyRows {
    /// An estimate of the number of rows that fit.
    pub fitting: usize,
}

/// Returns the reply to a call that requested these rows. A single row always fits: what is too long in it is named.
pub fn fit_rows(rows: &impl Rows, limit: RowLimit, call: &Call) -> Result<Reply, TooManyRows> {
    let (usual, most) = limits(rows, limit, call);
    let is_single = rows.count() < 2;
    let content = match fit_content(rows, usual, most) {
        Some(content) => content,
        None if is_single => Reply::from_blocks(rows.content(0)),
        None => return Err(too_many(rows, most, call)),
    };
    if !call.rendering.structured {
        return Ok(content);
    }
    let structured = match fit_structured(rows, usual, most) {
        Some(structured) => structured,
        None if is_single => rows.structured_in_part(structured_bytes(usual)),
        None => return Err(too_many(rows, most, call)),
    };
    Ok(Reply {
        structured_content: Some(structured),
        ..content
    })
}

/// Returns the reply with rows of which no fewer can be requested: those that do not fit are counted. `content_of_first` renders
/// the content of so many of the first rows, with the least of each.
pub fn fit_rows_in_part(
    rows: &impl Rows,
    content_of_first: impl Fn(usize) -> Vec<ContentBlock>,
    limit: RowLimit,
    call: &Call,
) -> Reply {
    let (usual, most) = limits(rows, limit, call);
    let content = fit_content(rows, usual, most);
    let content =
        content.unwrap_or_else(|| content_in_part(rows.count(), content_of_first, most.max_bytes));
    let structured = call.rendering.structured.then(|| {
        let fitting = fit_structured(rows, usual, most);
        fitting.unwrap_or_else(|| rows.structured_in_part(structured_bytes(most)))
    });
    Reply {
        structured_content: structured,
        ..content
    }
}

/// Returns the limits of a form: the usual one, and the one beyond which rows are left out.
fn limits(rows: &impl Rows, limit: RowLimit, call: &Call) -> (FormLimit, FormLimit) {
    let (usual, most) = limit.bytes(rows.count(), call);
    let form = |max_bytes| FormLimit {
        max_bytes,
        max_tokens: call.max_tokens,
    };
    (form(usual), form(most))
}

/// Renderings of the content that are tried before the least.
const CONTENT_TRIES: usize = 6;

/// Returns the content within the usual limit; with the least of each row within the other one, if it has to be.
fn fit_content(rows: &impl Rows, usual: FormLimit, most: FormLimit) -> Option<Reply> {
    let mut room = usual.max_bytes;
    for _ in 0..CONTENT_TRIES {
        let content = Reply::from_blocks(rows.content(room));
        let bytes = content.bytes();
        if allows(usual, &content) {
            return Some(content);
        }
        // Some letters take several bytes, and what is never left out takes more than its share.
        room = (room * usual.max_bytes / bytes.max(usual.max_bytes)) * 97 / 100;
    }
    let least = Reply::from_blocks(rows.content(0));
    allows(most, &least).then_some(least)
}

/// Returns the content of as many of the first rows as fit, and of one in any case.
fn content_in_part(
    mut count: usize,
    content_of_first: impl Fn(usize) -> Vec<ContentBlock>,
    max_bytes: usize,
) -> Reply {
    loop {
        let content = Reply::from_blocks(content_of_first(count));
        let bytes = content.bytes();
        if bytes <= max_bytes || count <= 1 {
            return content;
        }
        count = (count * max_bytes / bytes).clamp(1, count - 1);
    }
}

fn fit_structured(rows: &impl Rows, usual: FormLimit, most: FormLimit) -> Option<Box<RawValue>> {
    let render = |detail, limit: FormLimit| {
        let shown = rows.structured(detail, structured_bytes(limit))?;
        let allowed = limit.allows(shown.get().len() + STRUCTURED_FRAME.len(), shown.get());
        allowed.then_some(shown)
    };
    if let Some(whole) = render(RowDetail::Whole, usual) {
        return Some(whole);
    }
    let details = [
        RowDetail::Described,
        RowDetail::Texts,
        RowDetail::TextsAndLists,
    ];
    let longest = details
        .into_iter()
        .find_map(|detail| longest_texts(|chars| render(detail(chars), usual)));
    let grown = [GROWN_TEXT_CHARS, LEAST_TEXT_CHARS].into_iter();
    longest.or_else(|| {
        let mut grown = grown.map(RowDetail::TextsAndLists);
        grown.find_map(|detail| render(detail, most))
    })
}

/// Returns the rendering that fits with the longest texts.
fn longest_texts(render: impl Fn(usize) -> Option<Box<RawValue>>) -> Option<Box<RawValue>> {
    let mut longest = render(LEAST_TEXT_CHARS)?;
    if let Some(most) = render(TEXT_CHARS) {
        return Some(most);
    }
    let (mut fits, mut too_long) = (LEAST_TEXT_CHARS / STEP_CHARS, TEXT_CHARS / STEP_CHARS);
    while too_long - fits > 1 {
        let middle = fits.midpoint(too_long);
        match render(middle * STEP_CHARS) {
            Some(shown) => (longest, fits) = (shown, middle),
            None => too_long = middle,
        }
    }
    Some(longest)
}

fn allows(limit: FormLimit, form: &Reply) -> bool {
    let bytes = form.bytes();
    bytes <= limit.max_bytes
        && (bytes <= limit.max_tokens || limit.allows(bytes, to_raw_json(form).get()))
}

/// Returns the bytes that structured content may have.
fn structured_bytes(limit: FormLimit) -> usize {
    limit.max_bytes.saturating_sub(STRUCTURED_FRAME.len())
}

fn too_many(rows: &impl Rows, limit: FormLimit, call: &Call) -> TooManyRows {
    let content_bytes = Reply::from_blocks(rows.content(0)).bytes();
    let structured_bytes = if call.rendering.structured {
        let least = RowDetail::TextsAndLists(LEAST_TEXT_CHARS);
        let whole = rows.structured(least, usize::MAX);
        whole.map_or(0, |whole| whole.get().len())
    } else {
        0
    };
    let row_bytes = content_bytes.max(structured_bytes) / rows.count().max(1);
    let fitting = limit.max_bytes / row_bytes.max(1);
    TooManyRows {
        fitting: fitting.clamp(1, (rows.count() - 1).max(1)),
    }
}
