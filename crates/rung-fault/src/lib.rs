//! One table of error codes, and the [`Fault`] that carries one of them out.
//!
//! Owns: what a code is called, its class, its HTTP status, whether to try again, and how a fault looks
//! on each face. Refuses to know: everything else. No crate below or beside it is in its dependencies.
//!
//! The law it keeps: a code decided here is the contract; a sentence may change in any release. A code
//! is never renamed or reused, and what a fault says beyond its sentence passes an allow-list of
//! [`Detail`] keys, so that an internal can not slip out by accident.

mod codes;
mod fault;

pub use codes::{Class, Code, Face, Retry};
pub use fault::{Coded, Detail, Fault, nearest};
