//! A session with a server: one that behaves, one that does not, and a real one where there is one.

#![allow(clippy::unwrap_used)]

mod asked;
mod bulk;
mod fake;
mod login;
mod mischief;
mod package;
