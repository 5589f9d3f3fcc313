//! Grants, packages and tokens as they are given out.

use rung_auth::Token;
use rung_fault::Code;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::clients::ClientCard;
use crate::grant::Grant;
use crate::records::fresh_id;
use crate::store::{Tx, params};
use crate::tokens::token_hash;
use crate::{Error, Result};

/// How long an access token lives where it can be refreshed.
const REFRESHED_MS: i64 = 600 * 1_000;
/// How long a token of the owner's lives.
const OWNER_MS: i64 = 365 * 24 * 60 * 60 * 1_000;

/// What a token is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// Everything of the owner's.
    Owner,
    /// One grant.
    Grant(String),
    /// Several grants that were given together.
    Package(String),
}

/// A token on its way to whoever asked.
#[derive(Debug)]
pub struct Issued {
    /// The token.
    pub access_token: Token,
    /// Seconds it lives; until it is revoked, if nothing is said.
    pub expires_in_s: Option<i64>,
    /// What gets the next one.
    pub refresh_token: Option<Token>,
    /// What it is for.
    pub holder: Holder,
    /// The grants that it reads under.
    pub grants: Vec<Grant>,
}

impl Issued {
    /// What was given, as RFC 9396 has it written.
    pub fn details(&self) -> Vec<Value> {
        self.grants.iter().map(details).collect()
    }
}

/// A grant as RFC 9396 has it written.
pub(crate) fn details(grant: &Grant) -> Value {
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
    client: &ClientCard,
    grants: &[Grant],
    parent: Option<&str>,
    now_ms: i64,
) -> Result<String> {
    let id = fresh_id("gpkg")?;
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

/// The grants that hold, of what a token is for.
fn holding(tx: &mut dyn Tx, subject: i64, holder: &Holder, now_ms: i64) -> Result<Vec<Grant>> {
    let (condition, id) = match holder {
        Holder::Owner => return Ok(Vec::new()),
        Holder::Grant(id) => ("id", id),
        Holder::Package(id) => ("package_id", id),
    };
    let sql = format!(
        "SELECT body FROM grant_fact WHERE subject = ?1 AND {condition} = ?2 AND revoked_ms IS NULL
         AND (expires_ms IS NULL OR expires_ms > ?3) ORDER BY issued_ms, id"
    );
    tx.all(&sql, params![subject, id, now_ms], |row| {
        Ok(serde_json::from_str(row.text(0)?)?)
    })
}

/// Makes a token for what was granted. `family` has those it comes from.
pub(super) fn issue_to(
    tx: &mut dyn Tx,
    client: &ClientCard,
    subject: i64,
    holder: &Holder,
    family: Option<&str>,
    now_ms: i64,
) -> Result<Issued> {
    let grants = holding(tx, subject, holder, now_ms)?;
    if grants.is_empty() && *holder != Holder::Owner {
        return Err(Error::refused(
            Code::InvalidGrant,
            "",
            "what was granted does not hold any more",
        ));
    }
    let single_use = grants.iter().any(|grant| grant.access_mode == "single_use");
    if single_use {
        consume(tx, subject, holder, now_ms)?;
    }
    let refreshes = client.refreshes() && !single_use && *holder != Holder::Owner;
    let ends = grants.iter().filter_map(|grant| {
        let end = grant
            .expires_at
            .as_deref()
            .and_then(crate::key::Moment::parse);
        end.map(crate::key::Moment::as_millisecond)
    });
    let lives_ms = match holder {
        Holder::Owner => Some(OWNER_MS),
        _ if refreshes => Some(REFRESHED_MS),
        // The last of them; each is checked by itself when something is read.
        _ if grants.iter().all(|grant| grant.expires_at.is_some()) => {
            ends.max().map(|end| end - now_ms)
        }
        _ => None,
    };
    let family = match family {
        Some(family) => family.to_owned(),
        None => new_family(tx)?,
    };
    let fresh = Fresh {
        client: &client.client_id,
        subject,
        holder,
        family: Some(&family),
        expires_ms: lives_ms.map(|lives| now_ms + lives),
    };
    let access_token = insert_token(tx, &fresh, now_ms)?;
    let refresh_token = if refreshes {
        let token = generate()?;
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
    Ok(Issued {
        access_token,
        expires_in_s: lives_ms.map(|lives| lives / 1_000),
        refresh_token,
        holder: holder.clone(),
        grants,
    })
}

/// A token to be made.
pub(crate) struct Fresh<'a> {
    pub(crate) client: &'a str,
    pub(crate) subject: i64,
    pub(crate) holder: &'a Holder,
    pub(crate) family: Option<&'a str>,
    pub(crate) expires_ms: Option<i64>,
}

pub(crate) fn insert_token(tx: &mut dyn Tx, fresh: &Fresh<'_>, now_ms: i64) -> Result<Token> {
    let token = generate()?;
    let kind = match fresh.holder {
        Holder::Owner => "owner",
        Holder::Grant(_) => "client",
        Holder::Package(_) => "mcp_package",
    };
    let (grant_id, package_id) = fresh.holder.columns();
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

impl Holder {
    /// The grant's and the package's id.
    fn columns(&self) -> (Option<&String>, Option<&String>) {
        match self {
            Self::Owner => (None, None),
            Self::Grant(id) => (Some(id), None),
            Self::Package(id) => (None, Some(id)),
        }
    }
}

fn generate() -> Result<Token> {
    Token::generate().map_err(|error| Error::corrupt("token", error))
}

pub(super) fn new_family(tx: &mut dyn Tx) -> Result<String> {
    let id = fresh_id("fam")?;
    tx.execute(
        "INSERT INTO family (id, revoked_ms) VALUES (?1, NULL)",
        params![&id],
    )?;
    Ok(id)
}

/// Uses a grant that is for one use. There is no second time.
fn consume(tx: &mut dyn Tx, subject: i64, holder: &Holder, now_ms: i64) -> Result<()> {
    let (table, id) = match holder {
        Holder::Owner => return Ok(()),
        Holder::Grant(id) => ("grant_fact", id),
        Holder::Package(id) => ("package", id),
    };
    let sql = format!(
        "UPDATE {table} SET consumed_ms = ?3 WHERE subject = ?1 AND id = ?2 AND consumed_ms IS NULL"
    );
    match tx.execute(&sql, params![subject, id, now_ms])? {
        1 => Ok(()),
        _ => Err(Error::refused(
            Code::GrantConsumed,
            "",
            "the grant was for one use, and that was made",
        )),
    }
}
