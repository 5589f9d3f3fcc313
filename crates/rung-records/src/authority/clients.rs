//! OAuth clients: registration and metadata.

use rung_fault::Code;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::records::generate_id;
use crate::scope::Bearer;
use crate::store::params;
use crate::{Error, Records, Result};

/// The registered metadata of a client (RFC 7591).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientMetadata {
    pub client_id: String,
    /// Time of registration, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id_issued_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// Always `none`: every client is public.
    #[serde(default = "none")]
    pub token_endpoint_auth_method: String,
    /// The URIs to which the owner may be redirected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirect_uris: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grant_types: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub response_types: Vec<String>,
    /// `web` or `native`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_uri: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logo_uri: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_uri: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tos_uri: Option<String>,
}

fn none() -> String {
    "none".to_owned()
}

/// The accepted metadata fields.
const METADATA_FIELDS: [&str; 10] = [
    "application_type",
    "client_name",
    "client_uri",
    "grant_types",
    "logo_uri",
    "policy_uri",
    "redirect_uris",
    "response_types",
    "token_endpoint_auth_method",
    "tos_uri",
];

/// Metadata fields that clients commonly send and that have no effect.
const IGNORED_FIELDS: [&str; 4] = ["contacts", "scope", "software_id", "software_version"];

/// The ids and names of clients that need no registration.
pub const PRE_REGISTERED: [(&str, &str); 7] = [
    ("longview", "Longview"),
    ("longview_planning_v1", "Longview Planning"),
    ("cli_longview", "Longview CLI"),
    ("pdpp_cli", "PDPP CLI"),
    ("concert_recommendation_app", "Concert Recommendations"),
    ("pdpp-web-dashboard", "PDPP Web Dashboard"),
    ("pdpp-polyfill-owner-bootstrap", "PDPP Owner Bootstrap"),
];

/// The supported grant types.
const GRANT_TYPES: [&str; 3] = [
    "authorization_code",
    "refresh_token",
    "urn:ietf:params:oauth:grant-type:device_code",
];

/// Maximum number of registrations within [`REGISTERED_WITHIN_MS`].
const MAX_REGISTRATIONS: i64 = 120;
const REGISTERED_WITHIN_MS: i64 = 10 * 60 * 1_000;
const MAX_REDIRECTS: usize = 20;
/// Maximum size of the stored metadata.
const MAX_CARD_BYTES: usize = 8 * 1024;
const MAX_NAME_CHARS: usize = 120;
const MAX_URI_BYTES: usize = 2_048;

impl ClientMetadata {
    fn pre_registered(id: &str) -> Option<Self> {
        let (id, name) = PRE_REGISTERED.into_iter().find(|(own, _)| *own == id)?;
        Some(Self {
            client_id: id.to_owned(),
            client_id_issued_at: None,
            client_name: Some(name.to_owned()),
            token_endpoint_auth_method: none(),
            redirect_uris: Vec::new(),
            grant_types: Vec::new(),
            response_types: Vec::new(),
            application_type: None,
            client_uri: None,
            logo_uri: None,
            policy_uri: None,
            tos_uri: None,
        })
    }

    /// Parses and checks client metadata, from a registration or a metadata document.
    pub fn parse(client_id: String, told: &Value) -> Result<Self> {
        let mut told = told
            .as_object()
            .ok_or_else(|| invalid_metadata("the client metadata must be an object"))?
            .clone();
        told.retain(|name, value| METADATA_FIELDS.contains(&name.as_str()) && !value.is_null());
        told.insert("client_id".to_owned(), Value::String(client_id));
        let card: Self = serde_json::from_value(Value::Object(told))
            .map_err(|error| invalid_metadata(error.to_string()))?;
        card.check()?;
        Ok(card)
    }

    fn check(&self) -> Result<()> {
        if self.token_endpoint_auth_method != "none" {
            return Err(invalid_metadata("token_endpoint_auth_method must be none"));
        }
        if let Some(name) = &self.client_name
            && (name.chars().count() > MAX_NAME_CHARS || name.chars().any(is_invisible))
        {
            return Err(invalid_metadata(format!(
                "client_name must have at most {MAX_NAME_CHARS} characters, none of them invisible"
            )));
        }
        let unknown = self
            .grant_types
            .iter()
            .find(|own| !GRANT_TYPES.contains(&own.as_str()));
        if let Some(unknown) = unknown {
            let unknown = rung_ladder::head(unknown, 60);
            return Err(invalid_metadata(format!(
                "grant_types: {unknown} is not supported"
            )));
        }
        if self.response_types.iter().any(|own| own != "code") {
            return Err(invalid_metadata("response_types must be [\"code\"]"));
        }
        if !matches!(
            self.application_type.as_deref(),
            None | Some("web" | "native")
        ) {
            return Err(invalid_metadata("application_type must be web or native"));
        }
        if self.redirect_uris.len() > MAX_REDIRECTS {
            return Err(invalid_metadata(format!(
                "at most {MAX_REDIRECTS} redirect_uris"
            )));
        }
        for uri in &self.redirect_uris {
            if !is_safe_redirect(uri) {
                let why = "a redirect_uri must be https, http to this machine, or an app's own scheme, without a fragment";
                return Err(Error::invalid_with_code(
                    Code::InvalidRedirectUri,
                    "redirect_uris",
                    why,
                ));
            }
        }
        let shown = [
            &self.client_uri,
            &self.logo_uri,
            &self.policy_uri,
            &self.tos_uri,
        ];
        for uri in shown.into_iter().flatten() {
            let sound = (uri.starts_with("https://") || is_loopback(uri))
                && uri.len() <= MAX_URI_BYTES
                && !uri.chars().any(|c| c.is_control() || c.is_whitespace());
            if !sound {
                return Err(invalid_metadata("the URLs of a client must be https"));
            }
        }
        Ok(())
    }

    /// Returns metadata that suffice to refresh a token, without fetching the client's metadata document.
    pub fn for_refresh(client_id: String) -> Self {
        Self {
            client_id,
            client_id_issued_at: None,
            client_name: None,
            token_endpoint_auth_method: none(),
            redirect_uris: Vec::new(),
            grant_types: vec!["refresh_token".to_owned()],
            response_types: Vec::new(),
            application_type: None,
            client_uri: None,
            logo_uri: None,
            policy_uri: None,
            tos_uri: None,
        }
    }

    /// Returns the display name: the client's name, or its id.
    pub fn name(&self) -> &str {
        self.client_name.as_deref().unwrap_or(&self.client_id)
    }

    pub fn may_refresh(&self) -> bool {
        self.grant_types.iter().any(|own| own == "refresh_token")
    }

    /// Returns true if `uri` is safe and exactly one of the registered redirect URIs.
    pub fn is_registered_redirect(&self, uri: &str) -> bool {
        is_safe_redirect(uri) && self.redirect_uris.iter().any(|own| own == uri)
    }
}

fn reject_unknown_fields(told: &serde_json::Map<String, Value>) -> Result<()> {
    let known = |name: &str| METADATA_FIELDS.contains(&name) || IGNORED_FIELDS.contains(&name);
    match told.keys().find(|name| !known(name.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            let unknown = rung_ladder::head(unknown, 60);
            Err(invalid_metadata(format!(
                "{unknown:?} is not a supported member"
            )))
        }
    }
}

fn invalid_metadata(why: impl Into<String>) -> Error {
    Error::invalid_with_code(Code::InvalidClientMetadata, "", why)
}

/// Returns true for characters that are invisible or change how others are displayed.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{ad}' | '\u{61c}')
}

/// Splits a URI into its scheme and the rest.
fn split_scheme(uri: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = uri.split_once(':')?;
    let sound = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    sound.then_some((scheme, rest))
}

fn is_loopback(uri: &str) -> bool {
    let Some(rest) = uri.strip_prefix("http://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split_once(']').map(|(host, _)| host),
        None => authority.split(':').next(),
    };
    matches!(host, Some("127.0.0.1" | "localhost" | "::1"))
}

fn is_safe_redirect(uri: &str) -> bool {
    let plain = uri.len() <= MAX_URI_BYTES
        && uri.is_ascii()
        && !uri.contains('#')
        && !uri
            .bytes()
            .any(|b| b.is_ascii_control() || b == b' ' || b == b'"' || b == b'\\');
    let Some((scheme, rest)) = split_scheme(uri) else {
        return false;
    };
    let scheme = scheme.to_ascii_lowercase();
    let authority = || {
        let rest = rest.strip_prefix("//").unwrap_or_default();
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let plain = |b: u8| b.is_ascii_alphanumeric() || b".-:[]".contains(&b);
        Some(authority).filter(|authority| !authority.is_empty() && authority.bytes().all(plain))
    };
    plain
        && match scheme.as_str() {
            "https" => authority().is_some(),
            "http" => is_loopback(uri) && authority().is_some(),
            // Schemes that a browser executes or opens itself.
            "javascript" | "data" | "vbscript" | "file" | "blob" | "about" | "ws" | "wss"
            | "ftp" | "view-source" => false,
            _ => rest.len() > 1,
        }
}

impl Records {
    /// Registers a client (RFC 7591).
    pub fn register_client(&self, told: &Value) -> Result<ClientMetadata> {
        let members = told
            .as_object()
            .ok_or_else(|| invalid_metadata("the client metadata must be an object"))?;
        reject_unknown_fields(members)?;
        let now_ms = self.now_ms();
        let mut card = ClientMetadata::parse(generate_id("client")?, told)?;
        card.client_id_issued_at = Some(now_ms / 1_000);
        let body = serde_json::to_string(&card)?;
        if body.len() > MAX_CARD_BYTES {
            return Err(invalid_metadata(format!(
                "the client metadata must have at most {MAX_CARD_BYTES} bytes"
            )));
        }
        self.store.write_tx(|tx| {
            let lately = tx.query_one(
                "SELECT count(*) FROM client WHERE registered_ms > ?1",
                params![now_ms - REGISTERED_WITHIN_MS],
                |row| row.int(0),
            )?;
            if lately.unwrap_or(0) >= MAX_REGISTRATIONS {
                return Err(Error::invalid_with_code(
                    Code::SlowDown,
                    "",
                    "too many clients were registered in the last ten minutes: try again later",
                ));
            }
            tx.execute(
                "INSERT INTO client (id, body, registered_ms) VALUES (?1, ?2, ?3)",
                params![&card.client_id, &body, now_ms],
            )
        })?;
        Ok(card)
    }

    /// Returns the metadata of a registered or preregistered client.
    pub fn client(&self, id: &str) -> Result<Option<ClientMetadata>> {
        if let Some(card) = ClientMetadata::pre_registered(id) {
            return Ok(Some(card));
        }
        let body = self.store.read_tx(|tx| {
            tx.query_one(
                "SELECT body FROM client WHERE id = ?1",
                params![id],
                |row| Ok(row.text(0)?.to_owned()),
            )
        })?;
        body.map(|body| Ok(serde_json::from_str(&body)?))
            .transpose()
    }

    /// Replaces the given metadata fields of a client.
    pub fn update_client(&self, owner: &Bearer, id: &str, told: &Value) -> Result<ClientMetadata> {
        owner.require_owner()?;
        let absent = || Error::NotFound("no client has this client_id".to_owned());
        let known = self.client(id)?.ok_or_else(absent)?;
        let mut merged = serde_json::to_value(&known)?;
        let told = told
            .as_object()
            .ok_or_else(|| invalid_metadata("the client metadata must be an object"))?;
        reject_unknown_fields(told)?;
        for (name, value) in told {
            merged[name] = value.clone();
        }
        let mut card = ClientMetadata::parse(id.to_owned(), &merged)?;
        card.client_id_issued_at = known.client_id_issued_at;
        let body = serde_json::to_string(&card)?;
        let changed = self.store.write_tx(|tx| {
            tx.execute(
                "UPDATE client SET body = ?2 WHERE id = ?1",
                params![id, &body],
            )
        })?;
        if changed == 0 {
            return Err(absent());
        }
        Ok(card)
    }

    /// Deletes a client. Its grants remain valid until revoked.
    pub fn remove_client(&self, owner: &Bearer, id: &str) -> Result<()> {
        owner.require_owner()?;
        let removed = self
            .store
            .write_tx(|tx| tx.execute("DELETE FROM client WHERE id = ?1", params![id]))?;
        match removed {
            0 => Err(Error::NotFound("no client has this client_id".to_owned())),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_sent_back_only_where_it_is_safe() {
        for good in [
            "https://app.example/cb",
            "https://app.example/cb?x=1",
            "http://127.0.0.1:3000/cb",
            "http://localhost/cb",
            "http://[::1]:9/cb",
            "cursor://anysphere.cursor-retrieval/oauth",
            "com.example.app:/cb",
        ] {
            assert!(is_safe_redirect(good), "{good}");
        }
        for bad in [
            "",
            "https://",
            "https://user@app.example/cb",
            "https://app.example/cb#frag",
            "http://app.example/cb",
            "http://127.0.0.1.evil.example/cb",
            "http://localhost@evil.example/",
            "javascript:alert(1)",
            "data:text/html,x",
            "/cb",
            "https://app.example/ a",
            "https://app.example;sandbox/cb",
            "https://app.example/\\x",
        ] {
            assert!(!is_safe_redirect(bad), "{bad}");
        }
    }

    #[test]
    fn a_redirect_is_exact() {
        let told = serde_json::json!({"redirect_uris": ["https://app.example/cb", "http://127.0.0.1:1/cb"]});
        let card = ClientMetadata::parse("c".to_owned(), &told).unwrap();
        assert!(card.is_registered_redirect("https://app.example/cb"));
        for other in [
            "https://app.example/cb/",
            "https://app.example/cb?x=1",
            "https://app.example:443/cb",
            "http://127.0.0.1:2/cb",
        ] {
            assert!(!card.is_registered_redirect(other), "{other}");
        }
    }
}
