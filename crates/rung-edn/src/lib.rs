//! EDN: the notation of queries, transactions and dumps, and its values.
//!
//! Owns: [`Value`] with its equality, order and hash, the parser ([`read`] and [`Reader`]), and the printer (the `Display` of
//! [`Value`]). Refuses to know: what a form means, and where values are stored.
//!
//! The laws it keeps: a printed value parses back to the same value; equal values have equal hashes and compare as equal;
//! and no input makes the parser panic, recurse without bound, or take time out of proportion to its length.

mod error;
mod instant;
mod name;
mod number;
mod order;
mod reader;
mod value;
mod write;

pub use error::{Error, Position, Result, shorten};
pub use name::Name;
pub use reader::{Reader, read};
pub use value::{Map, Set, Value};

/// Decimal numbers of any length.
pub use bigdecimal::BigDecimal;
/// Integers of any length.
pub use num_bigint::{BigInt, Sign};
/// Ratios of integers.
pub use num_rational::BigRational;
