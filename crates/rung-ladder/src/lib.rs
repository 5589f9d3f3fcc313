//! The ladder: a small reply first, and a way to read the rest, byte for byte.
//!
//! Owns: [`Budget`]s, [`Window`]s, [`Cursor`]s, [`Handle`]s, previews and [`Cut`]s, all as pure
//! functions. Refuses to know: I/O, clocks, randomness, and callers. Their products
//! (a key, a handle's bits, a stored document) are arguments.
//!
//! The laws it keeps are the properties of `tests/prop.rs`, by name: a reply never exceeds its budget,
//! every cut has a continuation, and following the continuations rebuilds the original.
//!
//! | to do this | call |
//! | --- | --- |
//! | make a JSON value fit a budget | [`fit()`] |
//! | make prose fit a budget | [`head`] |
//! | read a part of any document | [`read()`] with a [`Selector`] |
//! | continue where a reading stopped | [`continue_reading`] with a [`Position`] |
//! | let a caller continue in a later call | [`CursorKey::seal`], [`CursorKey::open`] |

#![warn(missing_docs)]

mod budget;
mod cursor;
mod cut;
mod document;
mod error;
mod fit;
mod handle;
mod items;
mod path;
mod read;
mod results;
mod scan;
mod search;
mod text;
mod window;

pub use budget::{Budget, Measure, limits};
pub use cursor::{Binding, Cursor, CursorKey, CursorTarget, Position, Shortcut, UncheckedCursor};
pub use cut::{Continuation, Cut, Mode};
pub use document::{Document, Mark, Piece};
pub use error::{Error, Result};
pub use fit::{Fitted, fit, json_bytes};
pub use handle::{Handle, HandleProblem};
pub use path::{Path, Segment};
pub use read::{
    ItemPosition, PatternMatch, Range, Reading, Selector, continue_reading, read, value_kind,
};
pub use results::{ResultChunker, ResultEntry, ResultSummary, RetentionLimits};
pub use scan::JsonKind;
pub use text::{
    head, json_char_bytes, json_escapes, json_plain_bytes, json_string_bytes, push_json_string,
};
pub use window::Window;
