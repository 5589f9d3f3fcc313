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
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_metadata: Option<Metadata>,
}

/// What a challenge says of where credentials come from.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Metadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_metadata: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
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
        let said = |name: &str| challenge.and_then(|challenge| parameter(challenge, name));
        let metadata = Metadata {
            resource_metadata: said("resource_metadata"),
            scope: said("scope"),
        };
        let state = match said("error").as_deref() {
            Some("insufficient_scope") => "insufficient_scope",
            _ => "missing_auth",
        };
        Self {
            auth_state: Some(state),
            auth_challenge: challenge.map(str::to_owned),
            auth_metadata: Some(metadata).filter(|metadata| {
                metadata.resource_metadata.is_some() || metadata.scope.is_some()
            }),
            ..Self::default()
        }
    }
}

/// A parameter of a challenge, with or without quotes.
fn parameter(challenge: &str, name: &str) -> Option<String> {
    let mut rest = challenge;
    loop {
        let at = rest.find(name)?;
        let before = rest[..at].chars().next_back();
        rest = &rest[at + name.len()..];
        let whole = before.is_none_or(|c| c == ' ' || c == ',');
        let Some(value) = rest.strip_prefix('=').filter(|_| whole) else {
            continue;
        };
        let value = match value.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next(),
            None => value.split([',', ' ']).next(),
        };
        return value.map(str::to_owned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_says_where_credentials_come_from() {
        let challenge = r#"Bearer error="insufficient_scope", scope="a b", resource_metadata="https://x.example/.well-known/oauth-protected-resource", x_scope="no""#;
        let auth = Auth::refused(Some(challenge));
        assert_eq!(auth.auth_state, Some("insufficient_scope"));
        let metadata = auth.auth_metadata.unwrap();
        assert_eq!(metadata.scope.as_deref(), Some("a b"));
        let place = "https://x.example/.well-known/oauth-protected-resource";
        assert_eq!(metadata.resource_metadata.as_deref(), Some(place));
        assert_eq!(
            parameter(r"Bearer realm=x,scope=y", "scope").as_deref(),
            Some("y")
        );
        for odd in ["", "Bearer", "Basic scope", "Bearer scopes=\"a\"", "scope"] {
            let auth = Auth::refused(Some(odd));
            assert_eq!(auth.auth_state, Some("missing_auth"), "{odd}");
            assert_eq!(auth.auth_metadata, None, "{odd}");
        }
        assert_eq!(parameter("scope=\"", "scope").as_deref(), Some(""));
    }
}
