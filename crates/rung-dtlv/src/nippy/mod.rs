//! Nippy, the encoding of values on the wire: headerless, big-endian, a type byte followed by the content.
//!
//! The input may be hostile. A length is accepted only if that many bytes are present, nesting is limited to [`MAX_DEPTH`], and a
//! message has at most [`MAX_VALUES`] values, including repetitions by reference.

mod error;
mod ids;
mod reader;
mod writer;

pub use error::{Error, ErrorKind, Result};
pub use reader::read;
pub use writer::write;
pub(crate) use writer::write_to;

/// Nesting depth.
pub const MAX_DEPTH: usize = 128;
/// Values in one message; each reference counts as all the values it refers to.
pub const MAX_VALUES: usize = 4_000_000;
/// Bytes of an integer: as long as EDN's longest.
pub const MAX_NUMBER_BYTES: usize = 1_700;
/// Digits after the decimal point, or zeros before it.
pub const MAX_SCALE: u32 = 4_096;

/// The tag of a datom: `#datalevin/Datom [e a v tx]`.
pub const DATOM: &str = "datalevin/Datom";
/// The tag of an entity, whose content is a map.
pub const ENTITY: &str = "datalevin/Entity";
/// The tag of a function that the server interprets; its content is the source.
pub const FUNCTION: &str = "datalevin/inter-fn";
