//! Applications that may ask for access.

use rung_fault::Code;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::records::fresh_id;
use crate::scope::Bearer;
use crate::store::params;
use crate::{Error, Records, Result};

/// What an application says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCard {
    /// By which it is known.
    pub client_id: String,
    /// When it was registered, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id_issued_at: Option<i64>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// How it proves who it is: not at all. It is a public client.
    #[serde(default = "none")]
    pub token_endpoint_auth_method: String,
    /// Where the owner may be sent back to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirect_uris: Vec<String>,
    /// How it gets tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grant_types: Vec<String>,
    /// What it wants back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub response_types: Vec<String>,
    /// `web` or `native`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application_type: Option<String>,
    /// Where to read about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_uri: Option<String>,
    /// Its picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logo_uri: Option<String>,
    /// What it does with what it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_uri: Option<String>,
    /// Its terms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tos_uri: Option<String>,
}

fn none() -> String {
    "none".to_owned()
}

/// What a registration may say.
const MEMBERS: [&str; 10] = [
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

/// What clients out there say as well, which changes nothing here.
const IGNORED: [&str; 4] = ["contacts", "scope", "software_id", "software_version"];

/// Applications that are known without a registration: their ids and names.
pub const PRE_REGISTERED: [(&str, &str); 7] = [
    ("longview", "Longview"),
    ("longview_planning_v1", "Longview Planning"),
    ("cli_longview", "Longview CLI"),
    ("pdpp_cli", "PDPP CLI"),
    ("concert_recommendation_app", "Concert Recommendations"),
    ("pdpp-web-dashboard", "PDPP Web Dashboard"),
    ("pdpp-polyfill-owner-bootstrap", "PDPP Owner Bootstrap"),
];

/// The ways to tokens.
const GRANT_TYPES: [&str; 3] = [
    "authorization_code",
    "refresh_token",
    "urn:ietf:params:oauth:grant-type:device_code",
];

/// Registrations in [`REGISTERED_WITHIN_MS`].
const MAX_REGISTRATIONS: i64 = 120;
const REGISTERED_WITHIN_MS: i64 = 10 * 60 * 1_000;
/// Addresses that the owner may be sent back to.
const MAX_REDIRECTS: usize = 20;
/// Bytes of all that an application says of itself.
const MAX_CARD_BYTES: usize = 8 * 1024;
/// Characters of a name.
const MAX_NAME_CHARS: usize = 120;
/// Bytes of an address.
const MAX_URI_BYTES: usize = 2_048;

impl ClientCard {
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

    /// Reads what an application says of itself, by whichever way it says so.
    pub fn read(client_id: String, told: &Value) -> Result<Self> {
        let mut told = told
            .as_object()
            .ok_or_else(|| wrong("an object is needed"))?
            .clone();
        told.retain(|name, value| MEMBERS.contains(&name.as_str()) && !value.is_null());
        told.insert("client_id".to_owned(), Value::String(client_id));
        let card: Self = serde_json::from_value(Value::Object(told))
            .map_err(|error| wrong(error.to_string()))?;
        card.check()?;
        Ok(card)
    }

    fn check(&self) -> Result<()> {
        if self.token_endpoint_auth_method != "none" {
            return Err(wrong("token_endpoint_auth_method is none here"));
        }
        if let Some(name) = &self.client_name
            && (name.chars().count() > MAX_NAME_CHARS || name.chars().any(is_unseen))
        {
            return Err(wrong(format!(
                "client_name has {MAX_NAME_CHARS} characters at most, and all of them can be seen"
            )));
        }
        let unknown = self
            .grant_types
            .iter()
            .find(|own| !GRANT_TYPES.contains(&own.as_str()));
        if let Some(unknown) = unknown {
            let unknown = rung_ladder::head(unknown, 60);
            return Err(wrong(format!("grant_types: {unknown} is not offered")));
        }
        if self.response_types.iter().any(|own| own != "code") {
            return Err(wrong("response_types is [\"code\"]"));
        }
        if !matches!(
            self.application_type.as_deref(),
            None | Some("web" | "native")
        ) {
            return Err(wrong("application_type is web or native"));
        }
        if self.redirect_uris.len() > MAX_REDIRECTS {
            return Err(wrong(format!("{MAX_REDIRECTS} redirect_uris at most")));
        }
        for uri in &self.redirect_uris {
            if !is_redirect(uri) {
                let why = "a redirect_uri is https, http to this machine, or an app's own scheme, without a fragment";
                return Err(Error::refused(
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
                return Err(wrong("addresses of an application are https"));
            }
        }
        Ok(())
    }

    /// An application that got a refresh token before, under an address that need not be read again for it.
    pub fn refreshing(client_id: String) -> Self {
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

    /// How it is called.
    pub fn name(&self) -> &str {
        self.client_name.as_deref().unwrap_or(&self.client_id)
    }

    /// Whether it may have refresh tokens.
    pub fn refreshes(&self) -> bool {
        self.grant_types.iter().any(|own| own == "refresh_token")
    }

    /// Whether the owner may be sent there: exactly what was registered, or nowhere.
    pub fn may_redirect(&self, uri: &str) -> bool {
        is_redirect(uri) && self.redirect_uris.iter().any(|own| own == uri)
    }
}

fn refuse_unknown(told: &serde_json::Map<String, Value>) -> Result<()> {
    let known = |name: &str| MEMBERS.contains(&name) || IGNORED.contains(&name);
    match told.keys().find(|name| !known(name.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            let unknown = rung_ladder::head(unknown, 60);
            Err(wrong(format!(
                "{unknown:?} is not a member that is taken in"
            )))
        }
    }
}

fn wrong(why: impl Into<String>) -> Error {
    Error::refused(Code::InvalidClientMetadata, "", why)
}

/// Characters that change how others look, or nothing at all.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{ad}' | '\u{61c}')
}

/// The scheme of an address, and what follows.
fn scheme(uri: &str) -> Option<(&str, &str)> {
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

fn is_redirect(uri: &str) -> bool {
    let plain = uri.len() <= MAX_URI_BYTES
        && uri.is_ascii()
        && !uri.contains('#')
        && !uri
            .bytes()
            .any(|b| b.is_ascii_control() || b == b' ' || b == b'"' || b == b'\\');
    let Some((scheme, rest)) = scheme(uri) else {
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
            // What a browser runs or reads itself.
            "javascript" | "data" | "vbscript" | "file" | "blob" | "about" | "ws" | "wss"
            | "ftp" | "view-source" => false,
            _ => rest.len() > 1,
        }
}

impl Records {
    /// Takes in an application that was not known.
    pub fn register_client(&self, told: &Value) -> Result<ClientCard> {
        let members = told
            .as_object()
            .ok_or_else(|| wrong("an object is needed"))?;
        refuse_unknown(members)?;
        let now_ms = self.now_ms();
        let mut card = ClientCard::read(fresh_id("client")?, told)?;
        card.client_id_issued_at = Some(now_ms / 1_000);
        let body = serde_json::to_string(&card)?;
        if body.len() > MAX_CARD_BYTES {
            return Err(wrong(format!(
                "all of it has {MAX_CARD_BYTES} bytes at most"
            )));
        }
        self.store.writing(|tx| {
            let lately = tx.one(
                "SELECT count(*) FROM client WHERE registered_ms > ?1",
                params![now_ms - REGISTERED_WITHIN_MS],
                |row| row.int(0),
            )?;
            if lately.unwrap_or(0) >= MAX_REGISTRATIONS {
                return Err(Error::refused(
                    Code::SlowDown,
                    "",
                    "too many applications were registered in the last ten minutes",
                ));
            }
            tx.execute(
                "INSERT INTO client (id, body, registered_ms) VALUES (?1, ?2, ?3)",
                params![&card.client_id, &body, now_ms],
            )
        })?;
        Ok(card)
    }

    /// An application that is known.
    pub fn client(&self, id: &str) -> Result<Option<ClientCard>> {
        if let Some(card) = ClientCard::pre_registered(id) {
            return Ok(Some(card));
        }
        let body = self.store.reading(|tx| {
            tx.one(
                "SELECT body FROM client WHERE id = ?1",
                params![id],
                |row| Ok(row.text(0)?.to_owned()),
            )
        })?;
        body.map(|body| Ok(serde_json::from_str(&body)?))
            .transpose()
    }

    /// Changes what is known of an application.
    pub fn change_client(&self, owner: &Bearer, id: &str, told: &Value) -> Result<ClientCard> {
        owner.require_owner()?;
        let absent = || Error::NotFound("no application has this client_id".to_owned());
        let known = self.client(id)?.ok_or_else(absent)?;
        let mut merged = serde_json::to_value(&known)?;
        let told = told
            .as_object()
            .ok_or_else(|| wrong("an object is needed"))?;
        refuse_unknown(told)?;
        for (name, value) in told {
            merged[name] = value.clone();
        }
        let mut card = ClientCard::read(id.to_owned(), &merged)?;
        card.client_id_issued_at = known.client_id_issued_at;
        let body = serde_json::to_string(&card)?;
        let changed = self.store.writing(|tx| {
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

    /// Forgets an application. What it was granted goes on until it is revoked.
    pub fn remove_client(&self, owner: &Bearer, id: &str) -> Result<()> {
        owner.require_owner()?;
        let removed = self
            .store
            .writing(|tx| tx.execute("DELETE FROM client WHERE id = ?1", params![id]))?;
        match removed {
            0 => Err(Error::NotFound(
                "no application has this client_id".to_owned(),
            )),
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
            assert!(is_redirect(good), "{good}");
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
            assert!(!is_redirect(bad), "{bad}");
        }
    }

    #[test]
    fn a_redirect_is_exact() {
        let told = serde_json::json!({"redirect_uris": ["https://app.example/cb", "http://127.0.0.1:1/cb"]});
        let card = ClientCard::read("c".to_owned(), &told).unwrap();
        assert!(card.may_redirect("https://app.example/cb"));
        for other in [
            "https://app.example/cb/",
            "https://app.example/cb?x=1",
            "https://app.example:443/cb",
            "http://127.0.0.1:2/cb",
        ] {
            assert!(!card.may_redirect(other), "{other}");
        }
    }
}
