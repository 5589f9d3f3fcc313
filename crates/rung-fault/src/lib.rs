//! One table of error codes, and the [`Fault`] that carries one of them out.
//!
//! Owns: the name of a code, its class, its HTTP status, its retry advice, and the form of a fault
//! on each face. Refuses to know: everything else. It depends on no other crate of the workspace.
//!
//! The law it keeps: a code is part of the contract; a message may change in any release. A code
//! is never renamed or reused, and the facts of a fault pass an allow-list of
//! [`Detail`] keys, so that internals cannot leak by accident.

#![warn(missing_docs)]

mod codes;
mod fault;

pub use codes::{Class, Code, Face, Retry};
pub use fault::{Coded, Detail, Fault, nearest};
