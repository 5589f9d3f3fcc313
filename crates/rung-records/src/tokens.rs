//! Tokens and grants, as stored facts.

use std::sync::Arc;

use jiff::Timestamp;
use rung_auth::{Access, Permit, Token, TokenHash, TokenRecord};
use serde_json::{Value, json};

use crate::grant::{Grant, Request, Selection};
use crate::records::{fresh_id, moment, subject};
use crate::scope::{Bearer, connections};
use crate::store::params;
use crate::{Error, Records, Result};

/// A grant to be given, and a token for it.
#[derive(Debug, Clone, Default)]
pub struct GrantRequest {
    /// For whom.
    pub client: String,
    /// Of which connector.
    pub source: String,
    /// Of which connections. All that are active, if none is named.
    pub connections: Vec<String>,
    /// What of it.
    pub selections: Vec<Selection>,
    /// For what.
    pub purpose_code: Option<String>,
    /// When it ends, in milliseconds since 1970.
    pub expires_ms: Option<i64>,
}

/// The grant that owners' tokens are on record with.
const OWNER_GRANT: &str = "owner";

fn hash_text(hash: &TokenHash) -> Result<String> {
    let hash = serde_json::to_value(hash)?;
    Ok(hash.as_str().unwrap_or_default().to_owned())
}

impl Records {
    /// Whoever carries this token.
    pub fn admit(&self, shown: &str) -> Result<Bearer> {
        let token = Token::shown(shown.to_owned());
        let hash = hash_text(&token.hash())?;
        let now_ms = self.now_ms();
        self.store.reading(|tx| {
            let row = tx.one(
                "SELECT t.kind, t.subject, t.client, t.grant_id, t.expires_ms, t.revoked_ms, s.id
                 FROM token t JOIN subject s ON s.no = t.subject WHERE t.hash = ?1",
                params![&hash],
                |row| {
                    let owner = row.text(0)? == "owner";
                    let record = TokenRecord {
                        hash: token.hash(),
                        caller: row.text(2)?.to_owned().try_into().map_err(|_| Error::TokenUnknown)?,
                        grant: row.maybe_text(3)?.unwrap_or(OWNER_GRANT).to_owned().try_into()
                            .map_err(|_| Error::TokenUnknown)?,
                        access: if owner { Access::Write } else { Access::Read },
                        expires_ms: row.maybe_int(4)?.and_then(|end| u64::try_from(end).ok()),
                    };
                    if row.maybe_int(5)?.is_some() {
                        return Err(Error::TokenUnknown);
                    }
                    Ok((owner, row.int(1)?, row.text(6)?.to_owned(), record))
                },
            )?;
            let (owner, subject, subject_id, record) = row.ok_or(Error::TokenUnknown)?;
            let permit = rung_auth::admit(&token, [&record], u64::try_from(now_ms).unwrap_or(0));
            let permit: Permit = permit.map_err(|error| match error {
                rung_auth::Error::TokenExpired => Error::GrantExpired,
                _ => Error::TokenUnknown,
            })?;
            let mut grant = None;
            if !owner {
                let found = tx.one(
                    "SELECT body, expires_ms, revoked_ms FROM grant_fact WHERE subject = ?1 AND id = ?2",
                    params![subject, permit.grant().as_str()],
                    |row| Ok((row.text(0)?.to_owned(), row.maybe_int(1)?, row.maybe_int(2)?)),
                )?;
                let (body, expires, revoked) = found.ok_or(Error::GrantRevoked)?;
                if revoked.is_some() {
                    return Err(Error::GrantRevoked);
                }
                if expires.is_some_and(|end| end <= now_ms) {
                    return Err(Error::GrantExpired);
                }
                let body: Grant = serde_json::from_str(&body).map_err(|error| Error::GrantInvalid(error.to_string()))?;
                grant = Some(Arc::new(body));
            }
            Ok(Bearer {
                permit,
                subject,
                subject_id,
                grant,
            })
        })
    }

    /// A token for the owner. It is shown once.
    pub fn owner_token(
        &self,
        subject_id: &str,
        name: &str,
        expires_ms: Option<i64>,
    ) -> Result<Token> {
        let now_ms = self.now_ms();
        self.store.writing(|tx| {
            let subject = subject(tx, subject_id)?;
            let token = Token::generate().map_err(|error| Error::corrupt("token", error))?;
            let hash = hash_text(&token.hash())?;
            tx.execute(
                "INSERT INTO token (hash, kind, subject, client, grant_id, issued_ms, expires_ms, revoked_ms)
                 VALUES (?1, 'owner', ?2, ?3, NULL, ?4, ?5, NULL)",
                params![&hash, subject, name, now_ms, expires_ms],
            )?;
            Ok(token)
        })
    }

    /// Gives a grant, and a token for it that is shown once.
    pub fn issue(&self, bearer: &Bearer, request: &GrantRequest) -> Result<(Grant, Token)> {
        bearer.require_owner()?;
        let now_ms = self.now_ms();
        let connector = crate::declaration::slug(&request.source);
        self.store.writing(|tx| {
            let declaration = self.declaration(tx, &connector)?;
            let declaration = declaration.ok_or_else(|| Error::NotFound(format!("no source is named {connector}")))?;
            let all = connections(tx, bearer.subject)?;
            let mut own = all.into_iter().filter(|one| one.connector == connector && one.status != "revoked");
            let chosen: Vec<String> = if request.connections.is_empty() {
                own.filter(super::scope::Connection::is_active).map(|one| one.id).collect()
            } else {
                let known: Vec<String> = own.by_ref().map(|one| one.id).collect();
                for id in &request.connections {
                    if !known.contains(id) {
                        return Err(Error::ConnectionNotFound);
                    }
                }
                request.connections.clone()
            };
            if chosen.is_empty() {
                return Err(Error::NotFound(format!("{connector} has no connection yet: send records, or make one")));
            }
            let iso = |ms: i64| Timestamp::from_millisecond(ms).map(|at| at.to_string()).ok();
            let grant = Grant::resolve(
                &declaration,
                Request {
                    grant_id: fresh_id("grt")?,
                    issued_at: moment(now_ms),
                    subject: &bearer.subject_id,
                    client: &request.client,
                    purpose_code: request
                        .purpose_code
                        .clone()
                        .unwrap_or_else(|| "https://pdpp.dev/purpose/agent_context".to_owned()),
                    single_use: false,
                    expires_at: request.expires_ms.and_then(iso),
                    selections: &request.selections,
                    connections: chosen,
                },
            )?;
            let body = serde_json::to_string(&grant)?;
            tx.execute(
                "INSERT INTO grant_fact (subject, id, client, body, issued_ms, expires_ms, revoked_ms, consumed_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL, NULL)",
                params![bearer.subject, &grant.grant_id, &request.client, &body, now_ms, request.expires_ms],
            )?;
            let token = Token::generate().map_err(|error| Error::corrupt("token", error))?;
            let hash = hash_text(&token.hash())?;
            tx.execute(
                "INSERT INTO token (hash, kind, subject, client, grant_id, issued_ms, expires_ms, revoked_ms)
                 VALUES (?1, 'client', ?2, ?3, ?4, ?5, ?6, NULL)",
                params![&hash, bearer.subject, &request.client, &grant.grant_id, now_ms, request.expires_ms],
            )?;
            Ok((grant, token))
        })
    }

    /// Takes a grant back. Whoever reads under it reads no more.
    pub fn revoke(&self, bearer: &Bearer, grant_id: &str) -> Result<()> {
        bearer.require_owner()?;
        let now_ms = self.now_ms();
        self.store.writing(|tx| {
            let done = tx.execute(
                "UPDATE grant_fact SET revoked_ms = ?3 WHERE subject = ?1 AND id = ?2 AND revoked_ms IS NULL",
                params![bearer.subject, grant_id, now_ms],
            )?;
            if done == 0 {
                return Err(Error::NotFound(format!("no grant has the id {grant_id}")));
            }
            Ok(())
        })
    }

    /// The grants that were given.
    pub fn grants(&self, bearer: &Bearer) -> Result<Vec<Value>> {
        bearer.require_owner()?;
        self.store.reading(|tx| {
            tx.all(
                "SELECT body, revoked_ms, expires_ms FROM grant_fact WHERE subject = ?1 ORDER BY issued_ms",
                params![bearer.subject],
                |row| {
                    let mut body: Value = serde_json::from_str(row.text(0)?)?;
                    body["revoked_at"] = row.maybe_int(1)?.map_or(Value::Null, |ms| json!(moment(ms)));
                    Ok(body)
                },
            )
        })
    }
}
