//! The definition of a server in the configuration: how it is reached, how instances are shared, and why it is withheld.

use std::path::PathBuf;
use std::sync::Arc;

use rung_auth::Secret;
use rung_mcp::connect::{Era, ServerTarget};

use crate::auth::SignIn;
use crate::config::Sharing;

/// Why a server is listed and not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WithheldReason {
    /// A project's file defines it and that is not approved.
    Untrusted,
    /// The project's `rung.toml` defines it and that is not approved.
    UntrustedSettings,
    /// Variables that have no value.
    MissingVariables(Vec<String>),
    /// The entry cannot be used, for this reason.
    Unusable(String),
}

/// The definition of a server in the configuration.
#[derive(Debug, Clone)]
pub struct ServerDefinition {
    pub name: Arc<str>,
    pub target: ServerTarget,
    /// Which callers share an instance.
    pub sharing: Sharing,
    /// Legacy or modern protocol; `None`: negotiated with the server.
    pub era: Option<Era>,
    /// True if the server starts with the gateway.
    pub eager: bool,
    /// Origin of the entry: the project, the user, a given file, or the settings.
    pub origin: &'static str,
    pub file: Option<PathBuf>,
    /// Why the server is not started; `None` if it may be.
    pub withheld: Option<WithheldReason>,
    /// True if an edit waits for approval; until then the approved version runs.
    pub has_pending_edit: bool,
    pub sign_in: SignIn,
    /// Variables that its entry takes its credentials from.
    pub variables: Vec<String>,
    /// Secrets passed to the server; masked in everything that is returned.
    pub secrets: Vec<Secret<String>>,
    /// Changes with everything that makes it another server, including credentials. Only for comparison; must not be stored.
    pub digest: String,
    /// The command or URL with variables not expanded. Part of the key in the catalog store.
    pub summary: String,
}
