//! What a server requires before it grants access, as far as it is known.
//!
//! Owns: how these requirements are reported. Refuses to know: how a client signs in. Nothing is requested from here, and no
//! credential passes through.

use rung_auth::Secret;
use rung_mcp::connect::{Error, RpcError};
use serde::{Deserialize, Serialize};

/// What a server requires before it grants access. Empty for servers that require nothing.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct AuthRequirement {
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_state: Option<&'static str>,
    /// Variables that its entry names but that have no value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_env_vars: Vec<String>,
    /// Accepted methods: `api_key`, `oauth`, `url_elicitation`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    auth_methods: Vec<&'static str>,
    #[serde(skip_serializing_if = "SignIn::is_empty")]
    auth_metadata: SignIn,
    /// The server's `WWW-Authenticate` challenge, unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_challenge: Option<String>,
    /// Pages that the user has to visit first. Only the caller that caused them receives them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    url_elicitations: Vec<UrlElicitation>,
}

/// Metadata about signing in at a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SignIn {
    /// Protected resource metadata (RFC 9728).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protected_resource_metadata_url: Option<String>,
    /// Authorization server metadata (RFC 8414).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization_server_metadata_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_issuer_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_discovery_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id_metadata_document_url: Option<String>,
    /// Scopes that its entry declares.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub declared_scopes: Vec<String>,
    /// Scopes that its challenge requires.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_scopes: Vec<String>,
    /// True if the server sends users to pages (URL elicitation).
    #[serde(skip)]
    pub uses_url_elicitation: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct UrlElicitation {
    elicitation_id: String,
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// `auth_state` of a server that sends the user to pages first.
const ELICITATION_REQUIRED: &str = "elicitation_required";
/// The MCP error code that sends the user to pages.
const URL_ELICITATION_REQUIRED_CODE: i64 = -32_042;
const MAX_URL_ELICITATIONS: usize = 8;
const MAX_URL_BYTES: usize = 2_000;

impl AuthRequirement {
    pub(crate) fn policy_denied() -> Self {
        Self {
            auth_state: Some("policy_denied"),
            ..Self::default()
        }
    }

    pub(crate) fn missing_variables(variables: &[String], said: &SignIn) -> Self {
        Self {
            auth_state: Some("missing_auth"),
            missing_env_vars: variables.to_vec(),
            auth_methods: said.methods("api_key"),
            auth_metadata: said.clone(),
            ..Self::default()
        }
    }

    /// Returns the requirement behind an error, if there is one. A challenge that repeats one of the secrets is not parsed.
    pub(crate) fn from_error(
        error: &Error,
        said: &SignIn,
        secrets: &[Secret<String>],
    ) -> Option<Self> {
        match error {
            Error::Unauthorized { challenge, .. } => {
                Some(Self::from_challenge(challenge.as_deref(), said, secrets))
            }
            Error::Refused { refusal, .. } => Self::from_url_elicitation(refusal),
            _ => None,
        }
    }

    fn from_challenge(challenge: Option<&str>, said: &SignIn, secrets: &[Secret<String>]) -> Self {
        let tells = |asked: &&str| secrets.iter().any(|secret| asked.contains(secret.expose()));
        let harmless = challenge.filter(|asked| !tells(asked));
        let asked = |name: &str| challenge_parameter(harmless?, name);
        let lacks_scope = asked("error") == Some("insufficient_scope");
        let metadata = asked("resource_metadata").filter(|url| is_plain_url(url));
        let scopes = asked("scope").unwrap_or_default().split(' ');
        let mut auth_metadata = said.clone();
        if let Some(url) = metadata {
            auth_metadata.protected_resource_metadata_url = Some(url.to_owned());
        }
        auth_metadata
            .missing_scopes
            .extend(scopes.filter(|scope| is_scope(scope)).map(str::to_owned));
        Self {
            auth_state: Some(if lacks_scope {
                "insufficient_scope"
            } else {
                "missing_auth"
            }),
            auth_methods: if auth_metadata.is_oauth() {
                auth_metadata.methods("oauth")
            } else {
                auth_metadata.methods("api_key")
            },
            auth_metadata,
            // Whole, so that redaction finds a secret in it: a part might hold half of one.
            auth_challenge: challenge.map(str::to_owned),
            ..Self::default()
        }
    }

    fn from_url_elicitation(refusal: &RpcError) -> Option<Self> {
        #[derive(Deserialize)]
        struct Data {
            elicitations: Vec<Elicitation>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Elicitation {
            elicitation_id: String,
            url: String,
            message: Option<String>,
        }
        if refusal.code != URL_ELICITATION_REQUIRED_CODE {
            return None;
        }
        let data: Data = serde_json::from_str(refusal.data.as_ref()?.get()).ok()?;
        let sound = data
            .elicitations
            .into_iter()
            .filter(|page| is_url(&page.url));
        let pages = sound.take(MAX_URL_ELICITATIONS).map(|page| UrlElicitation {
            elicitation_id: page.elicitation_id,
            url: page.url,
            message: page.message,
        });
        Some(Self {
            auth_state: Some(ELICITATION_REQUIRED),
            auth_methods: vec!["url_elicitation"],
            url_elicitations: pages.collect(),
            ..Self::default()
        })
    }

    /// Returns true if the requirement is only for the caller that caused it.
    pub(crate) fn is_for_caller_only(&self) -> bool {
        self.auth_state == Some(ELICITATION_REQUIRED)
    }
}

impl SignIn {
    fn is_empty(&self) -> bool {
        let Self {
            uses_url_elicitation: by_page,
            ..
        } = *self;
        let nothing = Self {
            uses_url_elicitation: by_page,
            ..Self::default()
        };
        *self == nothing
    }

    fn is_oauth(&self) -> bool {
        self.protected_resource_metadata_url.is_some()
            || self.authorization_server_metadata_url.is_some()
            || self.oidc_issuer_url.is_some()
            || self.oidc_discovery_url.is_some()
    }

    fn methods(&self, first: &'static str) -> Vec<&'static str> {
        let page = self.uses_url_elicitation.then_some("url_elicitation");
        std::iter::once(first).chain(page).collect()
    }
}

/// Returns true for an HTTP(S) URL without user name and password.
pub(crate) fn is_url(text: &str) -> bool {
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let Some(rest) = rest else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
    !host.is_empty()
        && !host.contains('@')
        && text.len() <= MAX_URL_BYTES
        && text.bytes().all(plain)
}

/// Returns true for such a URL without query and fragment, which could hold a secret.
pub(crate) fn is_plain_url(text: &str) -> bool {
    is_url(text) && !text.contains(['?', '#'])
}

/// Returns true for a valid scope token (RFC 6749).
pub(crate) fn is_scope(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\".contains(&byte);
    !text.is_empty() && text.len() <= 256 && text.bytes().all(plain)
}

/// Returns a parameter of a challenge (RFC 9110).
fn challenge_parameter<'c>(challenge: &'c str, name: &str) -> Option<&'c str> {
    let mut rest = challenge;
    loop {
        // The text before the next `=` ends with a name, after a scheme or a comma.
        let (before, after) = rest.split_once('=')?;
        let own = before.trim_end().rsplit([' ', ',', '\t']).next()?;
        let after = after.trim_start();
        let (value, behind) = if let Some(quoted) = after.strip_prefix('"') {
            let escaped = |at: usize| quoted[..at].ends_with('\\');
            let mut ends = quoted.match_indices('"');
            let (end, _) = ends.find(|(at, _)| !escaped(*at))?;
            (&quoted[..end], &quoted[end + 1..])
        } else {
            let end = after.find([',', ' ', '\t']).unwrap_or(after.len());
            after.split_at(end)
        };
        if own.eq_ignore_ascii_case(name) {
            // None of the parameters looked for here contains escapes.
            return (!value.contains('\\')).then_some(value);
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::value::to_raw_value;
    use serde_json::{Value, json};

    use super::*;

    fn challenge_json(challenge: &str, said: &SignIn) -> Value {
        json!(AuthRequirement::from_challenge(Some(challenge), said, &[]))
    }

    #[test]
    fn parameters_are_read_however_they_are_written() {
        let plain = r#"Bearer realm="a, b=c", error=insufficient_scope ,scope = "read  write", resource_metadata="https://a.example/x""#;
        for (name, expected) in [
            ("realm", Some("a, b=c")),
            ("error", Some("insufficient_scope")),
            ("ERROR", Some("insufficient_scope")),
            ("scope", Some("read  write")),
            ("resource_metadata", Some("https://a.example/x")),
            ("metadata", None),
        ] {
            assert_eq!(challenge_parameter(plain, name), expected, "{name}");
        }
        for odd in [
            "",
            "Bearer",
            "=",
            "a=\"",
            "a=\"x",
            "a=\"\\\"",
            "scope=\"a\\\"b\"",
        ] {
            assert_eq!(challenge_parameter(odd, "scope"), None, "{odd}");
        }
    }

    proptest::proptest! {
        /// A parsed value is always a part of the challenge.
        #[test]
        fn no_challenge_is_too_odd(challenge in "[a-c =,\"\\\\\t\u{e9}]{0,40}") {
            if let Some(value) = challenge_parameter(&challenge, "a") {
                proptest::prop_assert!(challenge.contains(value));
            }
        }
    }

    #[test]
    fn valid_parts_of_a_challenge_are_reported() {
        let said = SignIn {
            declared_scopes: vec!["all".to_owned()],
            uses_url_elicitation: true,
            ..SignIn::default()
        };
        let asked = r#"Bearer error="insufficient_scope", scope="read write", resource_metadata="https://a.example/.well-known/x""#;
        assert_eq!(
            challenge_json(asked, &said),
            json!({
                "auth_state": "insufficient_scope",
                "auth_methods": ["oauth", "url_elicitation"],
                "auth_metadata": {
                    "protected_resource_metadata_url": "https://a.example/.well-known/x",
                    "declared_scopes": ["all"],
                    "missing_scopes": ["read", "write"],
                },
                "auth_challenge": asked,
            })
        );
        for odd in [
            r#"Bearer resource_metadata="javascript:alert(1)""#,
            r#"Bearer resource_metadata="https://me:secret@a.example/""#,
            r#"Bearer resource_metadata="https://a.example/?token=secret""#,
            r#"Bearer resource_metadata="https:///""#,
        ] {
            assert_eq!(
                challenge_json(odd, &SignIn::default()),
                json!({"auth_state": "missing_auth", "auth_methods": ["api_key"], "auth_challenge": odd}),
            );
        }
    }

    #[test]
    fn a_refusal_that_sends_the_user_to_pages_names_those_that_are_sound() {
        let refusal = |code, data: &Value| RpcError {
            code,
            message: String::new(),
            data: Some(Arc::from(to_raw_value(data).unwrap())),
        };
        let data = json!({"elicitations": [
            {"mode": "url", "elicitationId": "e1", "url": "https://a.example/in?id=1", "message": "Sign in"},
            {"mode": "url", "elicitationId": "e2", "url": "file:///etc/passwd", "message": "Open"},
        ]});
        let auth =
            AuthRequirement::from_url_elicitation(&refusal(URL_ELICITATION_REQUIRED_CODE, &data))
                .unwrap();
        assert_eq!(
            json!(auth),
            json!({
                "auth_state": "elicitation_required",
                "auth_methods": ["url_elicitation"],
                "url_elicitations": [{"elicitation_id": "e1", "url": "https://a.example/in?id=1", "message": "Sign in"}],
            })
        );
        assert!(AuthRequirement::from_url_elicitation(&refusal(-32_602, &data)).is_none());
        assert!(
            AuthRequirement::from_url_elicitation(&refusal(
                URL_ELICITATION_REQUIRED_CODE,
                &json!({"elicitations": 1})
            ))
            .is_none()
        );
    }
}
