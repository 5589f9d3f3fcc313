//! Tokens and grants, as stored facts.

use std::sync::Arc;

use rung_auth::{Access, Permit, TOKEN_GRANT, Token, TokenRecord};
use rung_fault::Code;
use serde_json::{Value, json};

use crate::authority::{Fresh, Holder, Introspected, insert_grant, insert_token};
use crate::grant::{Grant, Request, Selection};
use crate::key::Moment;
use crate::records::{fresh_id, moment, subject};
use crate::scope::{Bearer, connections};
use crate::store::{Row, Tx, params};
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

/// The bearer tokens that the operator issued. They are stored outside the records, and reach databases and downstream
/// servers as well as personal data.
pub trait TokenRegistry: Send + Sync {
    /// The tokens that are not revoked.
    fn list(&self) -> Result<Vec<TokenRecord>>;

    /// Revokes the token of a grant. Whether there was one.
    fn remove(&self, grant: &str) -> Result<bool>;
}

/// The grant that owners' tokens are on record with.
const OWNER_GRANT: &str = "owner";
/// Digits of a token's hash by which it is named.
const OWN_ID_CHARS: usize = 16;
/// Bytes of a caller's name.
const MAX_CALLER_BYTES: usize = 128;

/// What is kept of a token.
pub(crate) fn token_hash(token: &Token) -> Result<String> {
    let hash = serde_json::to_value(token.hash())?;
    Ok(hash.as_str().unwrap_or_default().to_owned())
}

/// Who a client is to the rest of the program. An id that is an address may be too long for a name.
fn caller(client_id: &str) -> String {
    if client_id.len() <= MAX_CALLER_BYTES {
        return client_id.to_owned();
    }
    format!(
        "client:{}",
        crate::document::digest_bytes(client_id.as_bytes())
    )
}

/// The permit of whoever carries a token that is good.
fn permit(token: &Token, client_id: &str, under: &str, access: Access) -> Result<Permit> {
    let record = TokenRecord {
        hash: token.hash(),
        caller: caller(client_id)
            .try_into()
            .map_err(|_| Error::TokenUnknown)?,
        grant: under
            .to_owned()
            .try_into()
            .map_err(|_| Error::TokenUnknown)?,
        access,
        expires_ms: None,
        scope: None,
    };
    rung_auth::admit(token, [&record], 0).map_err(|_| Error::TokenUnknown)
}

/// Whoever carries a token that is good.
pub(crate) fn bearer(
    token: &Token,
    subject: i64,
    subject_id: String,
    client_id: &str,
    grant: Option<Arc<Grant>>,
) -> Result<Bearer> {
    let permit = match &grant {
        None => permit(token, client_id, OWNER_GRANT, Access::Write),
        Some(grant) => permit(token, client_id, &grant.grant_id, Access::Read),
    }?;
    Ok(Bearer {
        permit,
        subject,
        subject_id,
        grant,
    })
}

impl Records {
    /// Whoever carries this token.
    pub fn admit(&self, shown: &str) -> Result<Bearer> {
        let token = Token::shown(shown.to_owned());
        let now_ms = self.now_ms();
        let hash = token_hash(&token)?;
        let known = self
            .store
            .reading(|tx| Introspected::of(tx, &hash, now_ms))?;
        let (subject, subject_id, client_id, holder, grants) = match known {
            Introspected::Active {
                subject,
                subject_id,
                client_id,
                holder,
                grants,
                ..
            } => (subject, subject_id, client_id, holder, grants),
            Introspected::Inactive(why) => {
                return Err(match why {
                    Some("grant_revoked") => Error::GrantRevoked,
                    Some("grant_expired") => Error::GrantExpired,
                    Some(why @ "grant_invalid") => Error::GrantInvalid(why.to_owned()),
                    _ => Error::TokenUnknown,
                });
            }
        };
        let grant = match holder {
            Holder::Owner => None,
            Holder::Grant(_) => grants.into_iter().next().map(Arc::new),
            Holder::Package(_) => {
                return Err(Error::Forbidden(
                    "a package's token is for /mcp; /v1 is read under one grant",
                ));
            }
        };
        bearer(&token, subject, subject_id, &client_id, grant)
    }

    /// The agent that comes with this token. The owner's own token is not for agents.
    pub fn agent(&self, shown: &str) -> Result<Agent> {
        let token = Token::shown(shown.to_owned());
        match self.introspect(shown)? {
            Introspected::Inactive(Some("package_revoked")) => Err(Error::refused(
                Code::PackageRevoked,
                "",
                "none of the grants that were given together holds any more",
            )),
            Introspected::Inactive(_) => Err(Error::TokenUnknown),
            Introspected::Active {
                holder,
                client_id,
                grants,
                ..
            } => {
                let (id, package_members) = match holder {
                    Holder::Owner => {
                        return Err(Error::Forbidden("the owner's token is not for agents"));
                    }
                    Holder::Grant(id) => (id, None),
                    Holder::Package(id) => (id, Some(grants.len())),
                };
                Ok(Agent {
                    permit: permit(&token, &client_id, &id, Access::Read)?,
                    package_members,
                })
            }
        }
    }

    /// The grants that somebody reads under: one, or all that were given together, whether they hold or not.
    pub fn members(&self, permit: &Permit) -> Result<Vec<Member>> {
        let now_ms = self.now_ms();
        let under = permit.grant().as_str();
        self.store.reading(|tx| {
            let given = tx.all(
                "SELECT g.body, g.expires_ms, g.revoked_ms, g.subject, s.id FROM grant_fact g JOIN subject s ON s.no = g.subject
                 WHERE g.id = ?1 OR g.package_id = ?1 ORDER BY g.issued_ms, g.id",
                params![under],
                |row| {
                    let grant: Grant = serde_json::from_str(row.text(0)?)?;
                    let ended = row.maybe_int(1)?.is_some_and(|end| end <= now_ms);
                    let revoked = row.maybe_int(2)?.is_some();
                    Ok((Arc::new(grant), ended, revoked, row.int(3)?, row.text(4)?.to_owned()))
                },
            )?;
            let mut members = Vec::new();
            for (grant, ended, revoked, subject, subject_id) in given {
                if caller(&grant.client.client_id) != permit.caller().as_str() {
                    continue;
                }
                let named = |one: &crate::Connection| {
                    grant.streams.iter().any(|stream| stream.instance_ids.contains(&one.id))
                };
                // What is over says nothing of today.
                let mut connections = if revoked || ended {
                    Vec::new()
                } else {
                    connections(tx, subject)?
                };
                connections.retain(|one| named(one) && one.is_readable());
                let standing = match (revoked, ended) {
                    (true, _) => Err(Error::GrantRevoked),
                    (false, true) => Err(Error::GrantExpired),
                    (false, false) => Ok(Bearer {
                        permit: permit.clone().at_most(Access::Read),
                        subject,
                        subject_id,
                        grant: Some(grant.clone()),
                    }),
                };
                members.push(Member { grant, connections, standing });
            }
            Ok(members)
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
            let fresh = Fresh {
                client: name,
                subject,
                holder: &Holder::Owner,
                family: None,
                expires_ms,
            };
            insert_token(tx, &fresh, now_ms)
        })
    }

    /// The tokens of the owner's own that hold.
    pub fn owner_tokens(&self, owner: &Bearer) -> Result<Vec<OwnToken>> {
        owner.require_owner()?;
        let now_ms = self.now_ms();
        self.store.reading(|tx| {
            tx.all(
                "SELECT hash, client, issued_ms, expires_ms FROM token WHERE subject = ?1 AND kind = 'owner'
                 AND revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > ?2) ORDER BY issued_ms DESC, hash",
                params![owner.subject, now_ms],
                |row| {
                    Ok(OwnToken {
                        id: row.text(0)?.chars().take(OWN_ID_CHARS).collect(),
                        name: row.text(1)?.to_owned(),
                        issued_ms: row.int(2)?,
                        expires_ms: row.maybe_int(3)?,
                    })
                },
            )
        })
    }

    /// Ends a token of the owner's own.
    pub fn end_owner_token(&self, owner: &Bearer, id: &str) -> Result<()> {
        owner.require_owner()?;
        let now_ms = self.now_ms();
        let known = self.owner_tokens(owner)?.iter().any(|own| own.id == id);
        if !known {
            return Err(Error::NotFound("no such token".to_owned()));
        }
        self.store.writing(|tx| {
            tx.execute(
                "UPDATE token SET revoked_ms = ?3 WHERE subject = ?1 AND kind = 'owner' AND substr(hash, 1, 16) = ?2 AND revoked_ms IS NULL",
                params![owner.subject, id, now_ms],
            )
        })?;
        Ok(())
    }

    /// Credentials for a resource server elsewhere, which may ask what tokens are. They are shown once.
    pub fn resource_server(&self, owner: &Bearer, name: &str) -> Result<Token> {
        owner.require_owner()?;
        let now_ms = self.now_ms();
        self.store.writing(|tx| {
            let token = Token::generate().map_err(|error| Error::corrupt("token", error))?;
            tx.execute(
                "INSERT INTO token (hash, kind, subject, client, issued_ms) VALUES (?1, 'resource_server', ?2, ?3, ?4)",
                params![&token_hash(&token)?, owner.subject, name, now_ms],
            )?;
            Ok(token)
        })
    }

    /// Whether these are the credentials of a resource server.
    pub fn is_resource_server(&self, name: &str, secret: &str) -> Result<bool> {
        let hash = token_hash(&Token::shown(secret.to_owned()))?;
        let found = self.store.reading(|tx| {
            tx.one(
                "SELECT 1 FROM token WHERE hash = ?1 AND kind = 'resource_server' AND client = ?2 AND revoked_ms IS NULL",
                params![&hash, name],
                |_| Ok(()),
            )
        })?;
        Ok(found.is_some())
    }

    /// Gives a grant, and a token for it that is shown once.
    pub fn issue(&self, bearer: &Bearer, request: &GrantRequest) -> Result<(Grant, Token)> {
        bearer.require_owner()?;
        let now_ms = self.now_ms();
        self.store.writing(|tx| {
            let grant = self.resolved(tx, bearer, request, now_ms)?;
            insert_grant(tx, bearer.subject, &grant, None, now_ms, request.expires_ms)?;
            let holder = Holder::Grant(grant.grant_id.clone());
            let fresh = Fresh {
                client: &request.client,
                subject: bearer.subject,
                holder: &holder,
                family: None,
                expires_ms: request.expires_ms,
            };
            let token = insert_token(tx, &fresh, now_ms)?;
            Ok((grant, token))
        })
    }

    /// Gives several grants at once, to whoever comes with a permit for `package`.
    pub fn issue_together(
        &self,
        bearer: &Bearer,
        package: &str,
        requests: &[GrantRequest],
    ) -> Result<Vec<Grant>> {
        bearer.require_owner()?;
        let now_ms = self.now_ms();
        self.store.writing(|tx| {
            let mut grants = Vec::new();
            for request in requests {
                let grant = self.resolved(tx, bearer, request, now_ms)?;
                let (subject, ends) = (bearer.subject, request.expires_ms);
                insert_grant(tx, subject, &grant, Some(package), now_ms, ends)?;
                grants.push(grant);
            }
            Ok(grants)
        })
    }

    /// Revokes every grant of the token whose permits are for `package`, and returns how many there were.
    pub fn revoke_together(&self, bearer: &Bearer, package: &str) -> Result<u64> {
        bearer.require_owner()?;
        let now_ms = self.now_ms();
        self.store.writing(|tx| {
            tx.execute(
                "UPDATE grant_fact SET revoked_ms = ?3 WHERE subject = ?1 AND package_id = ?2 AND revoked_ms IS NULL",
                params![bearer.subject, package, now_ms],
            )
        })
    }

    /// A request as a grant: every name in it is there.
    fn resolved(
        &self,
        tx: &mut dyn Tx,
        bearer: &Bearer,
        request: &GrantRequest,
        now_ms: i64,
    ) -> Result<Grant> {
        let connector = crate::declaration::slug(&request.source);
        let declaration = self.declaration(tx, &connector)?;
        let declaration = declaration
            .ok_or_else(|| Error::NotFound(format!("no source is named {connector}")))?;
        let all = connections(tx, bearer.subject)?;
        let mut own = all
            .into_iter()
            .filter(|one| one.connector == connector && one.status != "revoked");
        let chosen: Vec<String> = if request.connections.is_empty() {
            own.filter(super::scope::Connection::is_active)
                .map(|one| one.id)
                .collect()
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
            return Err(Error::NotFound(format!(
                "{connector} has no connection yet: send records, or make one"
            )));
        }
        let iso = |ms: i64| Moment::from_millisecond(ms).to_utc_string();
        Grant::resolve(
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
                expires_at: request.expires_ms.map(iso),
                selections: &request.selections,
                connections: chosen,
            },
        )
    }

    /// Takes a grant back. Whoever reads under it reads no more. The owner does this, or whoever has it.
    ///
    /// A grant that was issued with a bearer token ends with that token and all else that it reaches: other sources,
    /// databases and servers. `grant_id` may also be the token's own.
    pub fn revoke(
        &self,
        bearer: &Bearer,
        grant_id: &str,
        tokens: &dyn TokenRegistry,
    ) -> Result<()> {
        if bearer.grant().is_none_or(|own| own.grant_id != grant_id) {
            bearer.require_owner()?;
        }
        if let Some(token) = self.token_grant(bearer, grant_id)? {
            bearer.require_owner()?;
            // The token first: without it nothing is reached, even if the grants cannot be marked.
            let ended = tokens.remove(&token)?;
            let grants = self.revoke_together(bearer, &token)?;
            if !ended && grants == 0 {
                return Err(Error::NotFound(format!("no grant has the id {grant_id}")));
            }
            return Ok(());
        }
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

    /// The bearer token that a grant was issued with, by the token's own grant.
    fn token_grant(&self, bearer: &Bearer, grant_id: &str) -> Result<Option<String>> {
        if grant_id.starts_with(TOKEN_GRANT) {
            // Tokens are the operator's, and no other subject's.
            let own = bearer.subject_id == self.owner_id();
            return Ok(own.then(|| grant_id.to_owned()));
        }
        let package = self.store.reading(|tx| {
            tx.one(
                "SELECT package_id FROM grant_fact WHERE subject = ?1 AND id = ?2 AND revoked_ms IS NULL",
                params![bearer.subject, grant_id],
                |row| Ok(row.maybe_text(0)?.map(str::to_owned)),
            )
        })?;
        let package = package.flatten();
        Ok(package.filter(|package| package.starts_with(TOKEN_GRANT)))
    }

    /// The grants that were given, the latest first.
    pub fn grants(&self, bearer: &Bearer) -> Result<Vec<GivenGrant>> {
        bearer.require_owner()?;
        self.store.reading(|tx| {
            tx.all(
                "SELECT g.body, g.issued_ms, g.expires_ms, g.revoked_ms, g.package_id,
                    (SELECT max(d.at_ms) FROM disclosure d WHERE d.subject = g.subject AND d.grant_id = g.id)
                 FROM grant_fact g WHERE g.subject = ?1 ORDER BY g.issued_ms DESC, g.id",
                params![bearer.subject],
                GivenGrant::read,
            )
        })
    }

    /// A grant that was given.
    pub fn grant(&self, bearer: &Bearer, id: &str) -> Result<GivenGrant> {
        let found = self.grants(bearer)?;
        let found = found.into_iter().find(|given| given.grant.grant_id == id);
        found.ok_or_else(|| Error::NotFound(format!("no grant has the id {id}")))
    }
}

/// Somebody who reads under a grant, or under several that were given together.
#[derive(Debug)]
pub struct Agent {
    /// Who, and under what.
    pub permit: Permit,
    /// Of several, how many hold.
    pub package_members: Option<usize>,
}

/// A grant that somebody reads under, alone or with others.
#[derive(Debug)]
pub struct Member {
    /// What was granted.
    pub grant: Arc<Grant>,
    /// The connections it is of, as far as they can be read.
    pub connections: Vec<crate::Connection>,
    /// Who reads under it, or why nobody does any more.
    pub standing: Result<Bearer>,
}

impl Member {
    /// The connector, by its short name.
    pub fn connector_key(&self) -> String {
        crate::declaration::slug(&self.grant.source.id)
    }
}

/// A token of the owner's own.
#[derive(Debug, Clone)]
pub struct OwnToken {
    /// By which it is ended.
    pub id: String,
    /// What it is for.
    pub name: String,
    /// When it was made.
    pub issued_ms: i64,
    /// When it ends by itself.
    pub expires_ms: Option<i64>,
}

/// A grant that was given, and what became of it.
#[derive(Debug, Clone)]
pub struct GivenGrant {
    /// The grant.
    pub grant: Grant,
    /// When it was given.
    pub issued_ms: i64,
    /// When it ends by itself.
    pub expires_ms: Option<i64>,
    /// When it was taken back.
    pub revoked_ms: Option<i64>,
    /// The package it was given in.
    pub package_id: Option<String>,
    /// When something was last shown under it.
    pub used_ms: Option<i64>,
}

impl GivenGrant {
    fn read(row: &dyn Row) -> Result<Self> {
        Ok(Self {
            grant: serde_json::from_str(row.text(0)?)?,
            issued_ms: row.int(1)?,
            expires_ms: row.maybe_int(2)?,
            revoked_ms: row.maybe_int(3)?,
            package_id: row.maybe_text(4)?.map(str::to_owned),
            used_ms: row.maybe_int(5)?,
        })
    }

    /// The bearer token that it was issued with, by the token's own grant.
    pub fn token_grant(&self) -> Option<&str> {
        let package = self.package_id.as_deref();
        package.filter(|package| package.starts_with(TOKEN_GRANT))
    }

    /// The grant, and when it was taken back.
    pub fn told(&self) -> Result<Value> {
        let mut told = serde_json::to_value(&self.grant)?;
        told["revoked_at"] = self.revoked_ms.map_or(Value::Null, |ms| json!(moment(ms)));
        Ok(told)
    }
}
