//! A server as the configuration has it: how it is reached, for whom one is started, and why it is not started where it is not.

use std::path::PathBuf;
use std::sync::Arc;

use rung_auth::Secret;
use rung_mcp::connect::{Era, Target};

use crate::auth::SignIn;
use crate::config::Sharing;

/// Why a server is listed and not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Withheld {
    /// A project's file names it, and nobody approved that.
    Untrusted,
    /// It asks for variables that have no value.
    Missing(Vec<String>),
    /// It cannot be reached as it is written.
    Unusable(String),
}

/// A server as the configuration has it.
#[derive(Debug, Clone)]
pub struct Definition {
    /// What it is called.
    pub name: Arc<str>,
    /// How it is reached.
    pub target: Target,
    /// For whom one is started.
    pub sharing: Sharing,
    /// In which era it is spoken to; by asking it, where nothing is said.
    pub era: Option<Era>,
    /// Whether it is started with the gateway.
    pub eager: bool,
    /// Who says so: the project, the user, a file that was given, or the settings.
    pub origin: &'static str,
    /// Where it is written.
    pub file: Option<PathBuf>,
    /// Why it is not started, where it is not.
    pub withheld: Option<Withheld>,
    /// Whether an edit of it waits for approval, and what runs is what was approved.
    pub edit_waits: bool,
    /// Where it is said how one signs in there.
    pub sign_in: SignIn,
    /// What it is given that must not come back.
    pub secrets: Vec<Secret<String>>,
    /// Changes with everything that makes it another server, its credentials among it. To compare, never to be kept.
    pub digest: String,
    /// How it is written, without what its variables hold: by this it is known in the catalogue.
    pub shown: String,
}
