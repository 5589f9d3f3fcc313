//! What a server wants before it lets anybody in, as far as it is known.
//!
//! Owns: how that is told. Refuses to know: how one signs in. Nothing is asked of anybody from here, and no credential passes.

use rung_auth::Secret;
use rung_mcp::connect::{Error, Refused};
use serde::{Deserialize, Serialize};

/// What is told of a server that wants something. Nothing is told of the others.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Auth {
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_state: Option<&'static str>,
    /// Variables that its entry names and that have no value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_env_vars: Vec<String>,
    /// Ways in: `api_key`, `oauth`, `url_elicitation`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    auth_methods: Vec<&'static str>,
    #[serde(skip_serializing_if = "SignIn::is_empty")]
    auth_metadata: SignIn,
    /// How it asked, as it said it.
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_challenge: Option<String>,
    /// Pages that the user has to visit first. They are the caller's, and told to nobody else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    url_elicitations: Vec<Page>,
}

/// Where it is said how one signs in at a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SignIn {
    /// What the server says of itself, as RFC 9728 has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protected_resource_metadata_url: Option<String>,
    /// What its authorization server says of itself, as RFC 8414 has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization_server_metadata_url: Option<String>,
    /// Who says who somebody is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_issuer_url: Option<String>,
    /// What that one says of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_discovery_url: Option<String>,
    /// What a client says of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id_metadata_document_url: Option<String>,
    /// What may be asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub declared_scopes: Vec<String>,
    /// What it wants and was not given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_scopes: Vec<String>,
    /// Whether it sends the user to pages of its own.
    #[serde(skip)]
    pub by_page: bool,
}

/// A page that the user has to visit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Page {
    elicitation_id: String,
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// The state of a server that sends the user to pages first.
const VISIT: &str = "elicitation_required";
/// The number of a refusal that sends the user to pages.
const VISIT_FIRST: i64 = -32_042;
/// Pages that are told at most.
const MAX_PAGES: usize = 8;
/// Bytes of an address.
const MAX_URL_BYTES: usize = 2_000;

impl Auth {
    /// Of a server that the operator's policy denies.
    pub(crate) fn denied() -> Self {
        Self {
            auth_state: Some("policy_denied"),
            ..Self::default()
        }
    }

    /// Of a server whose entry names variables that have no value, and says this of how one signs in.
    pub(crate) fn missing(variables: &[String], said: &SignIn) -> Self {
        Self {
            auth_state: Some("missing_auth"),
            missing_env_vars: variables.to_vec(),
            auth_methods: said.methods("api_key"),
            auth_metadata: said.clone(),
            ..Self::default()
        }
    }

    /// Of a server that answered with an error, where that is because it wants something. What it was given in confidence is not
    /// taken apart, where it says that.
    pub(crate) fn wanted(error: &Error, said: &SignIn, secrets: &[Secret<String>]) -> Option<Self> {
        match error {
            Error::Unauthorized { challenge, .. } => {
                Some(Self::refused(challenge.as_deref(), said, secrets))
            }
            Error::Refused { refusal, .. } => Self::sent_elsewhere(refusal),
            _ => None,
        }
    }

    fn refused(challenge: Option<&str>, said: &SignIn, secrets: &[Secret<String>]) -> Self {
        let tells = |asked: &&str| secrets.iter().any(|secret| asked.contains(secret.expose()));
        let harmless = challenge.filter(|asked| !tells(asked));
        let asked = |name: &str| parameter(harmless?, name);
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
            // As a whole, in which a secret is found: a part of it might be a part of one.
            auth_challenge: challenge.map(str::to_owned),
            ..Self::default()
        }
    }

    fn sent_elsewhere(refusal: &Refused) -> Option<Self> {
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
        if refusal.code != VISIT_FIRST {
            return None;
        }
        let data: Data = serde_json::from_str(refusal.data.as_ref()?.get()).ok()?;
        let sound = data
            .elicitations
            .into_iter()
            .filter(|page| is_url(&page.url));
        let pages = sound.take(MAX_PAGES).map(|page| Page {
            elicitation_id: page.elicitation_id,
            url: page.url,
            message: page.message,
        });
        Some(Self {
            auth_state: Some(VISIT),
            auth_methods: vec!["url_elicitation"],
            url_elicitations: pages.collect(),
            ..Self::default()
        })
    }

    /// Whether it sends whoever called to a page of their own.
    pub(crate) fn is_callers(&self) -> bool {
        self.auth_state == Some(VISIT)
    }
}

impl SignIn {
    fn is_empty(&self) -> bool {
        let Self { by_page, .. } = *self;
        let nothing = Self {
            by_page,
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
        let page = self.by_page.then_some("url_elicitation");
        std::iter::once(first).chain(page).collect()
    }
}

/// Whether it is an address on the web in which nobody is named and no password stands.
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

/// The same, with nothing behind its path, where a secret could stand. It is told whole or not at all.
pub(crate) fn is_plain_url(text: &str) -> bool {
    is_url(text) && !text.contains(['?', '#'])
}

/// Whether it can be the name of something that is asked for, as RFC 6749 has it.
pub(crate) fn is_scope(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\".contains(&byte);
    !text.is_empty() && text.len() <= 256 && text.bytes().all(plain)
}

/// A parameter of a challenge, as RFC 9110 writes them.
fn parameter<'c>(challenge: &'c str, name: &str) -> Option<&'c str> {
    let mut rest = challenge;
    loop {
        // Before the next sign of equality stands a name, perhaps behind a scheme or a comma.
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
            // What is written with escapes is none of what is looked for here.
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

    fn told(challenge: &str, said: &SignIn) -> Value {
        json!(Auth::refused(Some(challenge), said, &[]))
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
            assert_eq!(parameter(plain, name), expected, "{name}");
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
            assert_eq!(parameter(odd, "scope"), None, "{odd}");
        }
    }

    proptest::proptest! {
        /// Whatever a server sends, what is taken from it stands in it.
        #[test]
        fn no_challenge_is_too_odd(challenge in "[a-c =,\"\\\\\t\u{e9}]{0,40}") {
            if let Some(value) = parameter(&challenge, "a") {
                proptest::prop_assert!(challenge.contains(value));
            }
        }
    }

    #[test]
    fn what_a_server_asks_for_is_told_in_parts_that_are_sound() {
        let said = SignIn {
            declared_scopes: vec!["all".to_owned()],
            by_page: true,
            ..SignIn::default()
        };
        let asked = r#"Bearer error="insufficient_scope", scope="read write", resource_metadata="https://a.example/.well-known/x""#;
        assert_eq!(
            told(asked, &said),
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
                told(odd, &SignIn::default()),
                json!({"auth_state": "missing_auth", "auth_methods": ["api_key"], "auth_challenge": odd}),
            );
        }
    }

    #[test]
    fn a_refusal_that_sends_the_user_to_pages_names_those_that_are_sound() {
        let refusal = |code, data: &Value| Refused {
            code,
            message: String::new(),
            data: Some(Arc::from(to_raw_value(data).unwrap())),
        };
        let data = json!({"elicitations": [
            {"mode": "url", "elicitationId": "e1", "url": "https://a.example/in?id=1", "message": "Sign in"},
            {"mode": "url", "elicitationId": "e2", "url": "file:///etc/passwd", "message": "Open"},
        ]});
        let auth = Auth::sent_elsewhere(&refusal(VISIT_FIRST, &data)).unwrap();
        assert_eq!(
            json!(auth),
            json!({
                "auth_state": "elicitation_required",
                "auth_methods": ["url_elicitation"],
                "url_elicitations": [{"elicitation_id": "e1", "url": "https://a.example/in?id=1", "message": "Sign in"}],
            })
        );
        assert!(Auth::sent_elsewhere(&refusal(-32_602, &data)).is_none());
        assert!(Auth::sent_elsewhere(&refusal(VISIT_FIRST, &json!({"elicitations": 1}))).is_none());
    }
}
