//! Issuing of grants, grant packages and tokens.

use rung_auth::Token;
use rung_fault::Code;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::clients::ClientMetadata;
use crate::grant::Grant;
use crate::records::generate_id;
use crate::store::{Tx, params};
use crate::tokens::token_hash;
use crate::{Error, Result};

/// Lifetime of an access token that can be refreshed.
const ACCESS_TOKEN_MS: i64 = 600 * 1_000;
/// Lifetime of an owner token.
const OWNER_TOKEN_MS: i64 = 365 * 24 * 60 * 60 * 1_000;

/// The kind of a token: what it gives access to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenKind {
    /// All data of the owner.
    Owner,
    /// One grant, by its id.
    Grant(String),
    /// Several grants issued together, by the id of the package.
    Package(String),
}

/// An issued access token and its grants.
#[derive(Debug)]
pub struct IssuedToken {
    pub access_token: Token,
    /// Lifetime in seconds. `None`: valid until revoked.
    pub expires_in_s: Option<i64>,
    pub refresh_token: Option<Token>,
    pub token_kind: TokenKind,
    /// The grants under which the token reads.
    pub grants: Vec<Grant>,
}

impl IssuedToken {
    /// Returns the grants as authorization details (RFC 9396).
    pub fn authorization_details(&self) -> Vec<Value> {
        self.grants.iter().map(authorization_details).collect()
    }
}

/// Renders a grant as an authorization detail (RFC 9396).
pub(crate) fn authorization_details(grant: &Grant) -> Value {
    let mut told = json!({
        "type": super::DETAILS_TYPE,
        "source": grant.source,
        "purpose_code": grant.purpose_code,
        "access_mode": grant.access_mode,
        "streams": grant.streams,
    });
    for name in ["purpose_description", "retention"] {
        if let Some(value) = grant.rest.get(name) {
            told[name] = value.clone();
        }
    }
    told
}

pub(crate) fn insert_grant(
    tx: &mut dyn Tx,
    subject: i64,
    grant: &Grant,
    package_id: Option<&str>,
    now_ms: i64,
    expires_ms: Option<i64>,
) -> Result<()> {
    let body = serde_json::to_string(grant)?;
    tx.execute(
        "INSERT INTO grant_fact (subject, id, client, body, issued_ms, expires_ms, revoked_ms, consumed_ms, package_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL, NULL, ?7)",
        params![subject, &grant.grant_id, &grant.client.client_id, &body, now_ms, expires_ms, package_id],
    )?;
    Ok(())
}

pub(super) fn insert_package(
    tx: &mut dyn Tx,
    subject: i64,
    client: &ClientMetadata,
    grants: &[Grant],
    parent: Option<&str>,
    now_ms: i64,
) -> Result<String> {
    let id = generate_id("gpkg")?;
    let single_use = grants.iter().any(|grant| grant.access_mode == "single_use");
    let body = json!({
        "grant_package_id": id,
        "parent_package_id": parent,
        "access_mode": if single_use { "single_use" } else { "continuous" },
        "client": {"client_id": client.client_id, "client_display": {"name": client.name()}},
    });
    tx.execute(
        "INSERT INTO package (subject, id, client, body, issued_ms, consumed_ms) VALUES (?1, ?2, ?3, ?4, ?5, NULL)",
        params![subject, &id, &client.client_id, &body.to_string(), now_ms],
    )?;
    Ok(id)
}

/// Returns the active grants of a token kind.
fn active_grants(
    tx: &mut dyn Tx,
    subject: i64,
    holder: &TokenKind,
    now_ms: i64,
) -> Result<Vec<Grant>> {
    let (condition, id) = match holder {
        TokenKind::Owner => return Ok(Vec::new()),
        TokenKind::Grant(id) => ("id", id),
        TokenKind::Package(id) => ("package_id", id),
    };
    let sql = format!(
        "SELECT body FROM grant_fact WHERE subject = ?1 AND {condition} = ?2 AND revoked_ms IS NULL
         AND (expires_ms IS NULL OR expires_ms > ?3) ORDER BY issued_ms, id"
    );
    tx.query_all(&sql, params![subject, id, now_ms], |row| {
        Ok(serde_json::from_str(row.text(0)?)?)
    })
}

/// Issues tokens for active grants. `family` is the token family they descend from, or `None` for a new one.
pub(super) fn issue_token(
    tx: &mut dyn Tx,
    client: &ClientMetadata,
    subject: i64,
    holder: &TokenKind,
    family: Option<&str>,
    now_ms: i64,
) -> Result<IssuedToken> {
    let grants = active_grants(tx, subject, holder, now_ms)?;
    if grants.is_empty() && *holder != TokenKind::Owner {
        return Err(Error::invalid_with_code(
            Code::InvalidGrant,
            "",
            "the grant is revoked or has expired",
        ));
    }
    let single_use = grants.iter().any(|grant| grant.access_mode == "single_use");
    if single_use {
        consume_single_use(tx, subject, holder, now_ms)?;
    }
    let refreshes = client.may_refresh() && !single_use && *holder != TokenKind::Owner;
    let ends = grants.iter().filter_map(|grant| {
        let end = grant
            .expires_at
            .as_deref()
            .and_then(crate::key::CalendarTime::parse);
        end.map(crate::key::CalendarTime::as_millisecond)
    });
    let lives_ms = match holder {
        TokenKind::Owner => Some(OWNER_TOKEN_MS),
        _ if refreshes => Some(ACCESS_TOKEN_MS),
        // The token lives as long as the last grant; reads check the expiry of each grant.
        _ if grants.iter().all(|grant| grant.expires_at.is_some()) => {
            ends.max().map(|end| end - now_ms)
        }
        _ => None,
    };
    let family = match family {
        Some(family) => family.to_owned(),
        None => new_family(tx)?,
    };
    let fresh = NewToken {
        client: &client.client_id,
        subject,
        token_kind: holder,
        family: Some(&family),
        expires_ms: lives_ms.map(|lives| now_ms + lives),
    };
    let access_token = insert_token(tx, &fresh, now_ms)?;
    let refresh_token = if refreshes {
        let token = generate_token()?;
        let (grant_id, package_id) = holder.columns();
        tx.execute(
            "INSERT INTO refresh (hash, family, client, subject, grant_id, package_id, issued_ms, used_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL)",
            params![&token_hash(&token)?, &family, &client.client_id, subject, grant_id, package_id, now_ms],
        )?;
        Some(token)
    } else {
        None
    };
    Ok(IssuedToken {
        access_token,
        expires_in_s: lives_ms.map(|lives| lives / 1_000),
        refresh_token,
        token_kind: holder.clone(),
        grants,
    })
}

/// A token to be inserted.
pub(crate) struct NewToken<'a> {
    pub(crate) client: &'a str,
    pub(crate) subject: i64,
    pub(crate) token_kind: &'a TokenKind,
    pub(crate) family: Option<&'a str>,
    pub(crate) expires_ms: Option<i64>,
}

pub(crate) fn insert_token(tx: &mut dyn Tx, fresh: &NewToken<'_>, now_ms: i64) -> Result<Token> {
    let token = generate_token()?;
    let kind = match fresh.token_kind {
        TokenKind::Owner => "owner",
        TokenKind::Grant(_) => "client",
        TokenKind::Package(_) => "mcp_package",
    };
    let (grant_id, package_id) = fresh.token_kind.columns();
    tx.execute(
        "INSERT INTO token (hash, kind, subject, client, grant_id, issued_ms, expires_ms, revoked_ms, package_id, family)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL, ?8, ?9)",
        params![
            &token_hash(&token)?,
            kind,
            fresh.subject,
            fresh.client,
            grant_id,
            now_ms,
            fresh.expires_ms,
            package_id,
            fresh.family
        ],
    )?;
    Ok(token)
}

impl TokenKind {
    /// Returns the values of the columns `grant_id` and `package_id`.
    fn columns(&self) -> (Option<&String>, Option<&String>) {
        match self {
            Self::Owner => (None, None),
            Self::Grant(id) => (Some(id), None),
            Self::Package(id) => (None, Some(id)),
        }
    }
}

fn generate_token() -> Result<Token> {
    Token::generate().map_err(|error| Error::corrupt("token", error))
}

pub(super) fn new_family(tx: &mut dyn Tx) -> Result<String> {
    let id = generate_id("fam")?;
    tx.execute(
        "INSERT INTO family (id, revoked_ms) VALUES (?1, NULL)",
        params![&id],
    )?;
    Ok(id)
}

/// Marks a single-use grant as used. Fails if it was used before.
fn consume_single_use(
    tx: &mut dyn Tx,
    subject: i64,
    holder: &TokenKind,
    now_ms: i64,
) -> Result<()> {
    let (table, id) = match holder {
        TokenKind::Owner => return Ok(()),
        TokenKind::Grant(id) => ("grant_fact", id),
        TokenKind::Package(id) => ("package", id),
    };
    let sql = format!(
        "UPDATE {table} SET consumed_ms = ?3 WHERE subject = ?1 AND id = ?2 AND consumed_ms IS NULL"
    );
    match tx.execute(&sql, params![subject, id, now_ms])? {
        1 => Ok(()),
        _ => Err(Error::invalid_with_code(
            Code::GrantConsumed,
            "",
            "the grant was for one use and has been used",
        )),
    }
}
