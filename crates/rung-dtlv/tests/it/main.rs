//! A session with a fake server, a faulty server, and a real one if configured.

#![allow(clippy::unwrap_used)]

mod bulk;
mod fake;
mod faulty_server;
mod login;
mod package;
mod requests;
