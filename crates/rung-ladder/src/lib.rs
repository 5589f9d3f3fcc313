//! The ladder: a small answer first, and a way to the rest, byte for byte.
//!
//! Owns: [`Budget`]s, [`Window`]s, [`Cursor`]s, [`Handle`]s, previews and [`Cut`]s, all as pure
//! functions. Refuses to know: I/O, clocks, randomness, and who is asking. What comes from those
//! (a key, a handle's bits, a stored document) is an argument.
//!
//! The laws it keeps are the properties of `tests/prop.rs`, by name: a reply never exceeds its budget,
//! every cut has a continuation, and following the continuations rebuilds the original.
//!
//! | to do this | call |
//! | --- | --- |
//! | make a JSON value fit a budget | [`fit()`] |
//! | make prose fit a budget | [`head`] |
//! | read a part of any document | [`read()`] with a [`Selector`] |
//! | go on where a reading stopped | [`go_on`] with a [`Position`] |
//! | let a caller come back for more | [`CursorKey::seal`], [`CursorKey::open`] |

mod budget;
mod cursor;
mod cut;
mod document;
mod error;
mod fit;
mod handle;
mod items;
mod kept;
mod path;
mod read;
mod scan;
mod search;
mod text;
mod window;

pub use budget::{Budget, Measure, limits};
pub use cursor::{Binding, Cursor, CursorKey, Place, Position, Shortcut, Unread};
pub use cut::{Continuation, Cut, Mode};
pub use document::{Document, Mark, Piece};
pub use error::{Error, Result};
pub use fit::{Fitted, fit, json_bytes};
pub use handle::Handle;
pub use kept::{Intake, Keeping, Kept, Summary};
pub use path::{Path, Segment};
pub use read::{Among, Found, Range, Reading, Selector, go_on, read};
pub use scan::Kind;
pub use text::{
    head, json_char_bytes, json_escapes, json_plain_bytes, json_string_bytes, push_json_string,
};
pub use window::Window;
