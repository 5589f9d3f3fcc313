//! What a server wants before it lets anybody in, as far as it is known.

use serde::Serialize;

/// What is told of a server that wants a credential. Nothing else is told of the others.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Auth {
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_state: Option<&'static str>,
    /// Variables that its entry names and that have no value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_env_vars: Vec<String>,
    /// How it asked, as it said it.
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_challenge: Option<String>,
}

impl Auth {
    /// Of a server whose entry names variables that have no value.
    pub(crate) fn missing(variables: &[String]) -> Self {
        Self {
            auth_state: Some("missing_auth"),
            missing_env_vars: variables.to_vec(),
            ..Self::default()
        }
    }

    /// Of a server that refused, and how it asked for more.
    pub(crate) fn refused(challenge: Option<&str>) -> Self {
        // What else it says is told as a whole: a part of it might be a part of a secret.
        let lacks_scope = challenge.is_some_and(|asked| asked.contains("insufficient_scope"));
        Self {
            auth_state: Some(if lacks_scope {
                "insufficient_scope"
            } else {
                "missing_auth"
            }),
            auth_challenge: challenge.map(str::to_owned),
            ..Self::default()
        }
    }
}
