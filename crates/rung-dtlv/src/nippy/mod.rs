//! Nippy: values as the bytes in which they travel. Headerless, big-endian; a byte says what a value is, its content follows.
//!
//! What is read may be hostile. A length is believed only where as many bytes are there, nothing is nested deeper than
//! [`MAX_DEPTH`], and no message denotes more than [`MAX_VALUES`] values, however few bytes it does so in.

mod error;
mod ids;
mod reader;
mod writer;

pub use error::{Error, Result, Why};
pub use reader::read;
pub use writer::write;
pub(crate) use writer::write_to;

/// Values within values.
pub const MAX_DEPTH: usize = 128;
/// Values in one message, those that are referred to counted as often as they are.
pub const MAX_VALUES: usize = 4_000_000;
/// Bytes of a whole number: as long as one that EDN can say.
pub const MAX_NUMBER_BYTES: usize = 1_700;
/// Digits after the point of a decimal number, or zeros before it.
pub const MAX_SCALE: u32 = 4_096;

/// The tag of a fact: `#datalevin/Datom [e a v tx]`.
pub const DATOM: &str = "datalevin/Datom";
/// The tag of an entity: what is known of it, as a map.
pub const ENTITY: &str = "datalevin/Entity";
/// The tag of a function that the server interprets: its source.
pub const FUNCTION: &str = "datalevin/inter-fn";
