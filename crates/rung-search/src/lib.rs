//! What is found by its likeness to a question, in tables of the store.
//!
//! Owns: texts that are found by their words ([`text`]), and [`vectors`] that are found by what is near. Refuses to know: what a
//! reference refers to, where vectors come from, Datalog, tools.
//!
//! The laws it keeps: an index is changed within the transaction of whoever changes the data, whole or not at all, and read at the
//! moment of whoever reads; the same question has the same answer however an index of texts came to be what it is; and nothing that
//! was removed is ever found.

mod error;
pub mod text;
pub mod vectors;

pub use error::{Error, Result};
