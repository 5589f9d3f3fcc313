//! What a token is, for a resource server elsewhere, and for ourselves.

use std::sync::Arc;

use rung_auth::Token;
use serde_json::{Value, json};

use super::issue::{Holder, details};
use crate::grant::Grant;
use crate::records::subject_no;
use crate::scope::Bearer;
use crate::store::{Tx, params};
use crate::tokens::{bearer, token_hash};
use crate::{Error, Records, Result};

/// What is known of a token.
#[derive(Debug, Clone)]
pub enum Introspected {
    /// It is not good, and why, where that may be said.
    Inactive(Option<&'static str>),
    /// It is good.
    Active {
        /// Whose data.
        subject: i64,
        /// The same for others.
        subject_id: String,
        /// Who carries it.
        client_id: String,
        /// What it is for.
        holder: Holder,
        /// The grants that hold.
        grants: Vec<Grant>,
        /// When it ends, in milliseconds since 1970.
        expires_ms: Option<i64>,
    },
}

/// A token as it is on record.
struct Known {
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

impl Introspected {
    /// What is known of a token at a moment.
    pub(crate) fn of(tx: &mut dyn Tx, hash: &str, now_ms: i64) -> Result<Self> {
        let known = tx.one(
            "SELECT t.kind, t.subject, s.id, t.client, t.grant_id, t.package_id, t.expires_ms, t.revoked_ms, f.revoked_ms
             FROM token t JOIN subject s ON s.no = t.subject LEFT JOIN family f ON f.id = t.family WHERE t.hash = ?1",
            params![hash],
            |row| {
                Ok(Known {
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
            ("owner", _, _) => Holder::Owner,
            ("client", Some(id), _) => Holder::Grant(id),
            ("mcp_package", _, Some(id)) => Holder::Package(id),
            _ => return Ok(Self::Inactive(Some("grant_invalid"))),
        };
        let grants = match &holder {
            Holder::Owner => Vec::new(),
            Holder::Grant(id) => match grant(tx, known.subject, id, now_ms)? {
                Ok(grant) => vec![grant],
                Err(why) => return Ok(Self::Inactive(Some(why))),
            },
            Holder::Package(id) => {
                let children = tx.all(
                    "SELECT id FROM grant_fact WHERE subject = ?1 AND package_id = ?2 ORDER BY issued_ms, id",
                    params![known.subject, id],
                    |row| Ok(row.text(0)?.to_owned()),
                )?;
                let mut grants = Vec::new();
                for child in children {
                    grants.extend(grant(tx, known.subject, &child, now_ms)?.ok());
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
            holder,
            grants,
            expires_ms: known.expires_ms,
        })
    }

    /// As a resource server elsewhere is told.
    pub fn told(&self, issuer: &str, audience: &str) -> Value {
        let (subject_id, client_id, holder, grants, expires_ms) = match self {
            Self::Inactive(None) => return json!({"active": false}),
            Self::Inactive(Some(why)) => return json!({"active": false, "inactive_reason": why}),
            Self::Active {
                subject_id,
                client_id,
                holder,
                grants,
                expires_ms,
                ..
            } => (subject_id, client_id, holder, grants, expires_ms),
        };
        let mut told = json!({
            "active": true,
            "pdpp_token_kind": match holder {
                Holder::Owner => "owner",
                Holder::Grant(_) => "client",
                Holder::Package(_) => "mcp_package",
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
            (Holder::Grant(id), Some(grant)) => {
                told["grant_id"] = json!(id);
                told["authorization_details"] = json!([details(grant)]);
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
            (Holder::Package(id), _) => told["grant_package_id"] = json!(id),
            _ => {}
        }
        told
    }
}

/// The one grant that an authorization server elsewhere tells of.
fn foreign_grant(told: &Value) -> Result<Grant> {
    let invalid = |why: &str| Error::GrantInvalid(why.to_owned());
    let details = told["authorization_details"].as_array();
    let [details] = details.map(Vec::as_slice).unwrap_or_default() else {
        return Err(invalid("exactly one of authorization_details is needed"));
    };
    if details["type"] != super::DETAILS_TYPE {
        return Err(invalid("it is of another type"));
    }
    let context = &told["pdpp"];
    if context["grant_id"] != told["grant_id"] || context["subject_id"] != told["subject_id"] {
        return Err(invalid("it contradicts itself"));
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

/// A grant that holds, or why it does not.
fn grant(
    tx: &mut dyn Tx,
    subject: i64,
    id: &str,
    now_ms: i64,
) -> Result<std::result::Result<Grant, &'static str>> {
    let found = tx.one(
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
    /// Whoever carries a token of which an authorization server elsewhere says this. What is odd about it is a no.
    pub fn admit_introspected(&self, shown: &str, told: &Value) -> Result<Bearer> {
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
        let subject = self.store.reading(|tx| subject_no(tx, &subject_id))?;
        let subject = subject.ok_or(Error::TokenUnknown)?;
        let grant = match told["pdpp_token_kind"].as_str() {
            Some("owner") => None,
            Some("client") => Some(Arc::new(foreign_grant(told)?)),
            _ => return Err(Error::TokenUnknown),
        };
        bearer(
            &Token::shown(shown.to_owned()),
            subject,
            subject_id,
            &text(&told["client_id"])?,
            grant,
        )
    }

    /// What is known of a token.
    pub fn introspect(&self, shown: &str) -> Result<Introspected> {
        let hash = token_hash(&Token::shown(shown.to_owned()))?;
        let now_ms = self.now_ms();
        self.store.reading(|tx| Introspected::of(tx, &hash, now_ms))
    }
}
