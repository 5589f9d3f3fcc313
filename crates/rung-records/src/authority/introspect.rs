//! Token introspection (RFC 7662), for remote resource servers and for this process.

use std::sync::Arc;

use rung_auth::Token;
use serde_json::{Value, json};

use super::issue::{TokenKind, authorization_details};
use crate::grant::Grant;
use crate::records::subject_no;
use crate::scope::Bearer;
use crate::store::{Tx, params};
use crate::tokens::{build_bearer, token_hash};
use crate::{Error, Records, Result};

/// The state of a token.
#[derive(Debug, Clone)]
pub enum Introspection {
    /// The token is not valid. Carries the reason, if it may be disclosed.
    Inactive(Option<&'static str>),
    Active {
        /// Row number of the subject whose data the token reaches.
        subject: i64,
        subject_id: String,
        client_id: String,
        token_kind: TokenKind,
        /// The active grants. Empty for an owner token.
        grants: Vec<Grant>,
        /// When the token expires, in milliseconds since 1970.
        expires_ms: Option<i64>,
    },
}

/// A row of the `token` table.
struct TokenRow {
    kind: String,
    subject: i64,
    subject_id: String,
    client: String,
    grant_id: Option<String>,
    package_id: Option<String>,
    expires_ms: Option<i64>,
    revoked: bool,
    family_revoked: bool,
}

impl Introspection {
    /// Reads the state of the token with this hash at `now_ms`.
    pub(crate) fn find(tx: &mut dyn Tx, hash: &str, now_ms: i64) -> Result<Self> {
        let known = tx.query_one(
            "SELECT t.kind, t.subject, s.id, t.client, t.grant_id, t.package_id, t.expires_ms, t.revoked_ms, f.revoked_ms
             FROM token t JOIN subject s ON s.no = t.subject LEFT JOIN family f ON f.id = t.family WHERE t.hash = ?1",
            params![hash],
            |row| {
                Ok(TokenRow {
                    kind: row.text(0)?.to_owned(),
                    subject: row.int(1)?,
                    subject_id: row.text(2)?.to_owned(),
                    client: row.text(3)?.to_owned(),
                    grant_id: row.maybe_text(4)?.map(str::to_owned),
                    package_id: row.maybe_text(5)?.map(str::to_owned),
                    expires_ms: row.maybe_int(6)?,
                    revoked: row.maybe_int(7)?.is_some(),
                    family_revoked: row.maybe_int(8)?.is_some(),
                })
            },
        )?;
        let Some(known) = known else {
            return Ok(Self::Inactive(None));
        };
        if known.revoked {
            return Ok(Self::Inactive(Some("token_revoked")));
        }
        if known.family_revoked {
            return Ok(Self::Inactive(Some("refresh_family_revoked")));
        }
        let holder = match (known.kind.as_str(), known.grant_id, known.package_id) {
            ("owner", _, _) => TokenKind::Owner,
            ("client", Some(id), _) => TokenKind::Grant(id),
            ("mcp_package", _, Some(id)) => TokenKind::Package(id),
            _ => return Ok(Self::Inactive(Some("grant_invalid"))),
        };
        let grants = match &holder {
            TokenKind::Owner => Vec::new(),
            TokenKind::Grant(id) => match find_active_grant(tx, known.subject, id, now_ms)? {
                Ok(grant) => vec![grant],
                Err(why) => return Ok(Self::Inactive(Some(why))),
            },
            TokenKind::Package(id) => {
                let children = tx.query_all(
                    "SELECT id FROM grant_fact WHERE subject = ?1 AND package_id = ?2 ORDER BY issued_ms, id",
                    params![known.subject, id],
                    |row| Ok(row.text(0)?.to_owned()),
                )?;
                let mut grants = Vec::new();
                for child in children {
                    grants.extend(find_active_grant(tx, known.subject, &child, now_ms)?.ok());
                }
                if grants.is_empty() {
                    return Ok(Self::Inactive(Some("package_revoked")));
                }
                grants
            }
        };
        if known.expires_ms.is_some_and(|end| end <= now_ms) {
            return Ok(Self::Inactive(Some("token_expired")));
        }
        Ok(Self::Active {
            subject: known.subject,
            subject_id: known.subject_id,
            client_id: known.client,
            token_kind: holder,
            grants,
            expires_ms: known.expires_ms,
        })
    }

    /// Renders the introspection response.
    pub fn to_response(&self, issuer: &str, audience: &str) -> Value {
        let (subject_id, client_id, holder, grants, expires_ms) = match self {
            Self::Inactive(None) => return json!({"active": false}),
            Self::Inactive(Some(why)) => return json!({"active": false, "inactive_reason": why}),
            Self::Active {
                subject_id,
                client_id,
                token_kind: holder,
                grants,
                expires_ms,
                ..
            } => (subject_id, client_id, holder, grants, expires_ms),
        };
        let mut told = json!({
            "active": true,
            "pdpp_token_kind": match holder {
                TokenKind::Owner => "owner",
                TokenKind::Grant(_) => "client",
                TokenKind::Package(_) => "mcp_package",
            },
            "token_type": "Bearer",
            "subject_id": subject_id,
            "sub": subject_id,
            "client_id": client_id,
            "iss": issuer,
            "aud": audience,
        });
        if let Some(end) = expires_ms {
            told["exp"] = json!(end / 1_000);
        }
        match (holder, grants.first()) {
            (TokenKind::Grant(id), Some(grant)) => {
                told["grant_id"] = json!(id);
                told["authorization_details"] = json!([authorization_details(grant)]);
                told["pdpp"] = json!({
                    "context_kind": "oauth_rar_0_1",
                    "client_id": client_id,
                    "grant_id": id,
                    "issued_at": grant.issued_at,
                    "expires_at": grant.expires_at,
                    "source": grant.source,
                    "source_declaration": grant.source_declaration,
                    "subject_id": subject_id,
                });
                told["grant_storage_binding"] = json!({});
            }
            (TokenKind::Package(id), _) => told["grant_package_id"] = json!(id),
            _ => {}
        }
        told
    }
}

/// Extracts the one grant from a remote authorization server's introspection response.
fn grant_from_introspection(told: &Value) -> Result<Grant> {
    let invalid = |why: &str| Error::GrantInvalid(why.to_owned());
    let details = told["authorization_details"].as_array();
    let [details] = details.map(Vec::as_slice).unwrap_or_default() else {
        return Err(invalid(
            "the introspection response must have exactly one authorization_details item",
        ));
    };
    if details["type"] != super::DETAILS_TYPE {
        return Err(invalid(
            "the type of its authorization_details is not supported",
        ));
    }
    let context = &told["pdpp"];
    if context["grant_id"] != told["grant_id"] || context["subject_id"] != told["subject_id"] {
        return Err(invalid("its ids contradict each other"));
    }
    let grant = json!({
        "version": "0.1.0",
        "grant_id": told["grant_id"],
        "issued_at": context["issued_at"],
        "subject": {"id": told["subject_id"]},
        "client": {"client_id": told["client_id"]},
        "source": details["source"],
        "source_declaration": context["source_declaration"],
        "purpose_code": details["purpose_code"],
        "access_mode": details["access_mode"],
        "streams": details["streams"],
        "expires_at": context["expires_at"],
    });
    let grant: Grant =
        serde_json::from_value(grant).map_err(|error| invalid(&error.to_string()))?;
    if grant.grant_id.is_empty() || grant.streams.is_empty() {
        return Err(invalid("it grants nothing"));
    }
    Ok(grant)
}

/// Returns the active grant with this id, or the reason why it is inactive.
fn find_active_grant(
    tx: &mut dyn Tx,
    subject: i64,
    id: &str,
    now_ms: i64,
) -> Result<std::result::Result<Grant, &'static str>> {
    let found = tx.query_one(
        "SELECT body, expires_ms, revoked_ms FROM grant_fact WHERE subject = ?1 AND id = ?2",
        params![subject, id],
        |row| {
            Ok((
                row.text(0)?.to_owned(),
                row.maybe_int(1)?,
                row.maybe_int(2)?,
            ))
        },
    )?;
    let Some((body, expires_ms, revoked)) = found else {
        return Ok(Err("grant_revoked"));
    };
    if revoked.is_some() {
        return Ok(Err("grant_revoked"));
    }
    if expires_ms.is_some_and(|end| end <= now_ms) {
        return Ok(Err("grant_expired"));
    }
    Ok(serde_json::from_str(&body).map_err(|_| "grant_invalid"))
}

impl Records {
    /// Returns the caller for a remote introspection response. Any inconsistency in the response is rejected.
    pub fn authenticate_introspected(&self, shown: &str, told: &Value) -> Result<Bearer> {
        let text = |value: &Value| value.as_str().map(str::to_owned).ok_or(Error::TokenUnknown);
        if told["active"] != true {
            return Err(match told["inactive_reason"].as_str() {
                Some("grant_revoked") => Error::GrantRevoked,
                Some("grant_expired") => Error::GrantExpired,
                _ => Error::TokenUnknown,
            });
        }
        let now_s = self.now_ms() / 1_000;
        let ends = &told["exp"];
        if !ends.is_null() && ends.as_i64().is_none_or(|end| end <= now_s) {
            return Err(Error::TokenUnknown);
        }
        let subject_id = text(&told["subject_id"])?;
        let subject = self.store.read_tx(|tx| subject_no(tx, &subject_id))?;
        let subject = subject.ok_or(Error::TokenUnknown)?;
        let grant = match told["pdpp_token_kind"].as_str() {
            Some("owner") => None,
            Some("client") => Some(Arc::new(grant_from_introspection(told)?)),
            _ => return Err(Error::TokenUnknown),
        };
        build_bearer(
            &Token::from_text(shown.to_owned()),
            subject,
            subject_id,
            &text(&told["client_id"])?,
            grant,
        )
    }

    /// Returns the state of a token.
    pub fn introspect(&self, shown: &str) -> Result<Introspection> {
        let hash = token_hash(&Token::from_text(shown.to_owned()))?;
        let now_ms = self.now_ms();
        self.store
            .read_tx(|tx| Introspection::find(tx, &hash, now_ms))
    }
}
