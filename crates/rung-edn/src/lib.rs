//! EDN: the notation that queries, transactions and dumps are written in, and the values that it denotes.
//!
//! Owns: [`Value`] with its equality, order and hash, [`read`] and [`Reader`], and how a value is written ([`Value`] shows itself
//! as EDN). Refuses to know: what a form means, and where values are kept.
//!
//! The laws it keeps: what is written is read back as the same value; equal values hash alike and are equal in order;
//! and nothing that can be read makes it panic, recurse without end or work longer than its length warrants.

mod error;
mod instant;
mod name;
mod number;
mod order;
mod reader;
mod value;
mod write;

pub use error::{Error, Position, Result};
pub use name::Name;
pub use reader::{Reader, read};
pub use value::{Map, Set, Value};

/// Decimal numbers of any length.
pub use bigdecimal::BigDecimal;
/// Whole numbers of any length.
pub use num_bigint::{BigInt, Sign};
/// Quotients of whole numbers.
pub use num_rational::BigRational;
