//! Which servers there are, and how each of them is reached.
//!
//! Owns: the files that name servers, what their entries mean, the variables in them, and what of a project's files the
//! user has approved. Refuses to know: how a server is spoken to, and who may use it.
//!
//! The laws it keeps: every entry that is not taken is named with its reason; nothing that came with a checkout is started
//! before the user approved it; no secret is printed.

mod files;

use std::path::PathBuf;

pub(crate) use files::read;
pub use files::{Problem, Seen, Watch};

/// Where to look.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// The file of servers that was asked for.
    pub config: Option<PathBuf>,
    /// The policy that was asked for.
    pub policy: Option<PathBuf>,
    /// The root of the project.
    pub project: Option<PathBuf>,
    /// The user's own folder.
    pub home: Option<PathBuf>,
}

/// Whose word a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It was asked for.
    Given,
    /// It came with the project.
    Project,
    /// It is the user's own.
    User,
}
