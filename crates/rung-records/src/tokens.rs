//! Stored grants and tokens.

use std::sync::Arc;

use rung_auth::{Access, Permit, TOKEN_GRANT, Token, TokenRecord};
use rung_fault::Code;
use serde_json::{Value, json};

use crate::authority::{Introspection, NewToken, TokenKind, insert_grant, insert_token};
use crate::grant::{Grant, NewGrant, StreamSelection};
use crate::key::CalendarTime;
use crate::records::{ensure_subject, format_moment, generate_id};
use crate::scope::{Bearer, connections, registered_connectors};
use crate::store::{SqlRow, Tx, params};
use crate::{Error, Records, Result};

/// A grant to be issued, with a token.
#[derive(Debug, Clone, Default)]
pub struct GrantRequest {
    pub client: String,
    /// The connector.
    pub source: String,
    /// The granted connections. Empty: all active ones.
    pub connections: Vec<String>,
    pub selections: Vec<StreamSelection>,
    pub purpose_code: Option<String>,
    /// When the grant expires, in milliseconds since 1970.
    pub expires_ms: Option<i64>,
}

/// The bearer tokens that the operator issued. They are stored outside the records, and reach databases and downstream
/// servers as well as personal data.
pub trait TokenRegistry: Send + Sync {
    /// Returns the tokens that are not revoked.
    fn list(&self) -> Result<Vec<TokenRecord>>;

    /// Revokes the token of a grant. Returns true if it existed.
    fn remove(&self, grant: &str) -> Result<bool>;
}

/// The grant name in the permits of owner tokens.
const OWNER_GRANT: &str = "owner";
/// Length of a token's public id, a prefix of its hash.
const TOKEN_ID_CHARS: usize = 16;
/// Maximum length of a caller name.
const MAX_CALLER_BYTES: usize = 128;

/// Returns the stored form of a token.
pub(crate) fn token_hash(token: &Token) -> Result<String> {
    let hash = serde_json::to_value(token.hash())?;
    Ok(hash.as_str().unwrap_or_default().to_owned())
}

/// Returns the caller name of a client. A client id too long for a name is hashed.
fn caller_name(client_id: &str) -> String {
    if client_id.len() <= MAX_CALLER_BYTES {
        return client_id.to_owned();
    }
    format!(
        "client:{}",
        crate::document::digest_bytes(client_id.as_bytes())
    )
}

/// Builds the permit of a valid token.
fn build_permit(token: &Token, client_id: &str, under: &str, access: Access) -> Result<Permit> {
    let record = TokenRecord {
        hash: token.hash(),
        caller: caller_name(client_id)
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

/// Builds the caller of a valid token.
pub(crate) fn build_bearer(
    token: &Token,
    subject: i64,
    subject_id: String,
    client_id: &str,
    grant: Option<Arc<Grant>>,
) -> Result<Bearer> {
    let permit = match &grant {
        None => build_permit(token, client_id, OWNER_GRANT, Access::Write),
        Some(grant) => build_permit(token, client_id, &grant.grant_id, Access::Read),
    }?;
    Ok(Bearer {
        permit,
        subject,
        subject_id,
        grant,
    })
}

impl Records {
    /// Authenticates a token for the records API. Package tokens are rejected.
    pub fn authenticate(&self, shown: &str) -> Result<Bearer> {
        let token = Token::from_text(shown.to_owned());
        let now_ms = self.now_ms();
        let hash = token_hash(&token)?;
        let known = self
            .store
            .read_tx(|tx| Introspection::find(tx, &hash, now_ms))?;
        let (subject, subject_id, client_id, holder, grants) = match known {
            Introspection::Active {
                subject,
                subject_id,
                client_id,
                token_kind: holder,
                grants,
                ..
            } => (subject, subject_id, client_id, holder, grants),
            Introspection::Inactive(why) => {
                return Err(match why {
                    Some("grant_revoked") => Error::GrantRevoked,
                    Some("grant_expired") => Error::GrantExpired,
                    Some(why @ "grant_invalid") => Error::GrantInvalid(why.to_owned()),
                    _ => Error::TokenUnknown,
                });
            }
        };
        let grant = match holder {
            TokenKind::Owner => None,
            TokenKind::Grant(_) => grants.into_iter().next().map(Arc::new),
            TokenKind::Package(_) => {
                return Err(Error::Forbidden(
                    "the token of a package is for /mcp; /v1 needs the token of one grant",
                ));
            }
        };
        build_bearer(&token, subject, subject_id, &client_id, grant)
    }

    /// Authenticates a token for MCP. Owner tokens are rejected.
    pub fn authenticate_agent(&self, shown: &str) -> Result<AuthenticatedAgent> {
        let token = Token::from_text(shown.to_owned());
        match self.introspect(shown)? {
            Introspection::Inactive(Some("package_revoked")) => Err(Error::invalid_with_code(
                Code::PackageRevoked,
                "",
                "all grants of this package are revoked or have expired",
            )),
            Introspection::Inactive(_) => Err(Error::TokenUnknown),
            Introspection::Active {
                token_kind: holder,
                client_id,
                grants,
                ..
            } => {
                let (id, package_members) = match holder {
                    TokenKind::Owner => {
                        return Err(Error::Forbidden("an owner token cannot be used by agents"));
                    }
                    TokenKind::Grant(id) => (id, None),
                    TokenKind::Package(id) => (id, Some(grants.len())),
                };
                Ok(AuthenticatedAgent {
                    permit: build_permit(&token, &client_id, &id, Access::Read)?,
                    active_package_grants: package_members,
                })
            }
        }
    }

    /// Returns the grants under a permit: a single one, or all of a package, active or not.
    pub fn grants_of_permit(&self, permit: &Permit) -> Result<Vec<PermitGrant>> {
        let now_ms = self.now_ms();
        let under = permit.grant().as_str();
        self.store.read_tx(|tx| {
            let given = tx.query_all(
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
                if caller_name(&grant.client.client_id) != permit.caller().as_str() {
                    continue;
                }
                let named = |one: &crate::SourceConnection| {
                    grant.streams.iter().any(|stream| stream.instance_ids.contains(&one.id))
                };
                // The current connections of an inactive grant are not disclosed.
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
                members.push(PermitGrant { grant, connections, caller: standing });
            }
            Ok(members)
        })
    }

    /// Issues an owner token. It is returned once and stored as a hash.
    pub fn issue_owner_token(
        &self,
        subject_id: &str,
        name: &str,
        expires_ms: Option<i64>,
    ) -> Result<Token> {
        let now_ms = self.now_ms();
        self.store.write_tx(|tx| {
            let subject = ensure_subject(tx, subject_id)?;
            let fresh = NewToken {
                client: name,
                subject,
                token_kind: &TokenKind::Owner,
                family: None,
                expires_ms,
            };
            insert_token(tx, &fresh, now_ms)
        })
    }

    /// Returns the active owner tokens, newest first.
    pub fn owner_tokens(&self, owner: &Bearer) -> Result<Vec<StoredOwnerToken>> {
        owner.require_owner()?;
        let now_ms = self.now_ms();
        self.store.read_tx(|tx| {
            tx.query_all(
                "SELECT hash, client, issued_ms, expires_ms FROM token WHERE subject = ?1 AND kind = 'owner'
                 AND revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > ?2) ORDER BY issued_ms DESC, hash",
                params![owner.subject, now_ms],
                |row| {
                    Ok(StoredOwnerToken {
                        id: row.text(0)?.chars().take(TOKEN_ID_CHARS).collect(),
                        name: row.text(1)?.to_owned(),
                        issued_ms: row.int(2)?,
                        expires_ms: row.maybe_int(3)?,
                    })
                },
            )
        })
    }

    /// Revokes an owner token.
    pub fn revoke_owner_token(&self, owner: &Bearer, id: &str) -> Result<()> {
        owner.require_owner()?;
        let now_ms = self.now_ms();
        let known = self.owner_tokens(owner)?.iter().any(|own| own.id == id);
        if !known {
            return Err(Error::NotFound("no such token".to_owned()));
        }
        self.store.write_tx(|tx| {
            tx.execute(
                "UPDATE token SET revoked_ms = ?3 WHERE subject = ?1 AND kind = 'owner' AND substr(hash, 1, 16) = ?2 AND revoked_ms IS NULL",
                params![owner.subject, id, now_ms],
            )
        })?;
        Ok(())
    }

    /// Issues credentials for a remote resource server to introspect tokens. They are returned once and stored as a
    /// hash.
    pub fn issue_resource_server_secret(&self, owner: &Bearer, name: &str) -> Result<Token> {
        owner.require_owner()?;
        let now_ms = self.now_ms();
        self.store.write_tx(|tx| {
            let token = Token::generate().map_err(|error| Error::corrupt("token", error))?;
            tx.execute(
                "INSERT INTO token (hash, kind, subject, client, issued_ms) VALUES (?1, 'resource_server', ?2, ?3, ?4)",
                params![&token_hash(&token)?, owner.subject, name, now_ms],
            )?;
            Ok(token)
        })
    }

    pub fn is_resource_server(&self, name: &str, secret: &str) -> Result<bool> {
        let hash = token_hash(&Token::from_text(secret.to_owned()))?;
        let found = self.store.read_tx(|tx| {
            tx.query_one(
                "SELECT 1 FROM token WHERE hash = ?1 AND kind = 'resource_server' AND client = ?2 AND revoked_ms IS NULL",
                params![&hash, name],
                |_| Ok(()),
            )
        })?;
        Ok(found.is_some())
    }

    /// Issues a grant and a token for it. The token is returned once and stored as a hash.
    pub fn issue_grant(&self, bearer: &Bearer, request: &GrantRequest) -> Result<(Grant, Token)> {
        bearer.require_owner()?;
        let now_ms = self.now_ms();
        self.store.write_tx(|tx| {
            let grant = self.resolve_request(tx, bearer, request, now_ms)?;
            insert_grant(tx, bearer.subject, &grant, None, now_ms, request.expires_ms)?;
            let holder = TokenKind::Grant(grant.grant_id.clone());
            let fresh = NewToken {
                client: &request.client,
                subject: bearer.subject,
                token_kind: &holder,
                family: None,
                expires_ms: request.expires_ms,
            };
            let token = insert_token(tx, &fresh, now_ms)?;
            Ok((grant, token))
        })
    }

    /// Issues several grants in one transaction, for the token whose permits are for `package`.
    pub fn issue_package(
        &self,
        bearer: &Bearer,
        package: &str,
        requests: &[GrantRequest],
    ) -> Result<Vec<Grant>> {
        bearer.require_owner()?;
        let now_ms = self.now_ms();
        self.store.write_tx(|tx| {
            let mut grants = Vec::new();
            for request in requests {
                let grant = self.resolve_request(tx, bearer, request, now_ms)?;
                let (subject, ends) = (bearer.subject, request.expires_ms);
                insert_grant(tx, subject, &grant, Some(package), now_ms, ends)?;
                grants.push(grant);
            }
            Ok(grants)
        })
    }

    /// Revokes every grant of the token whose permits are for `package`, and returns how many there were.
    pub fn revoke_package(&self, bearer: &Bearer, package: &str) -> Result<u64> {
        bearer.require_owner()?;
        let now_ms = self.now_ms();
        self.store.write_tx(|tx| {
            tx.execute(
                "UPDATE grant_fact SET revoked_ms = ?3 WHERE subject = ?1 AND package_id = ?2 AND revoked_ms IS NULL",
                params![bearer.subject, package, now_ms],
            )
        })
    }

    /// Resolves a request into a grant. Fails if any name in it does not exist.
    fn resolve_request(
        &self,
        tx: &mut dyn Tx,
        bearer: &Bearer,
        request: &GrantRequest,
        now_ms: i64,
    ) -> Result<Grant> {
        let connector = crate::declaration::connector_slug(&request.source);
        let Some(declaration) = self.declaration(tx, &connector)? else {
            let error = Error::NotFound(format!("no source is named {connector}"));
            let known = registered_connectors(tx)?;
            return Err(error.with_similar_names(&connector, known.iter().map(String::as_str)));
        };
        let all = connections(tx, bearer.subject)?;
        let mut own = all
            .into_iter()
            .filter(|one| one.connector == connector && one.status != "revoked");
        let chosen: Vec<String> = if request.connections.is_empty() {
            own.filter(super::scope::SourceConnection::is_active)
                .map(|one| one.id)
                .collect()
        } else {
            let known: Vec<String> = own.by_ref().map(|one| one.id).collect();
            for id in &request.connections {
                if !known.contains(id) {
                    let known = known.iter().map(String::as_str);
                    return Err(Error::ConnectionNotFound.with_similar_names(id, known));
                }
            }
            request.connections.clone()
        };
        if chosen.is_empty() {
            return Err(Error::NotFound(format!(
                "{connector} has no connection yet: ingest records, or create a connection"
            )));
        }
        let iso = |ms: i64| CalendarTime::from_millisecond(ms).to_utc_string();
        Grant::resolve(
            &declaration,
            NewGrant {
                grant_id: generate_id("grt")?,
                issued_at: format_moment(now_ms),
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

    /// Revokes a grant. Allowed for the owner and for the client of the grant.
    ///
    /// A grant that was issued with a bearer token ends with that token and all else that it reaches: other sources,
    /// databases and servers. `grant_id` may also be the token's own.
    pub fn revoke_grant(
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
            // The token first: without it nothing is reached, even if marking the grants fails.
            let ended = tokens.remove(&token)?;
            let grants = self.revoke_package(bearer, &token)?;
            if !ended && grants == 0 {
                return Err(Error::NotFound(format!("no grant has the id {grant_id}")));
            }
            return Ok(());
        }
        let now_ms = self.now_ms();
        self.store.write_tx(|tx| {
            let done = tx.execute(
                "UPDATE grant_fact SET revoked_ms = ?3 WHERE subject = ?1 AND id = ?2 AND revoked_ms IS NULL",
                params![bearer.subject, grant_id, now_ms],
            )?;
            if done > 0 {
                return Ok(());
            }
            let revoked_ms = tx.query_one(
                "SELECT revoked_ms FROM grant_fact WHERE subject = ?1 AND id = ?2",
                params![bearer.subject, grant_id],
                |row| row.maybe_int(0),
            )?;
            Err(Error::NotFound(match revoked_ms {
                Some(_) => format!("the grant {grant_id} is already revoked"),
                None => format!("no grant has the id {grant_id}"),
            }))
        })
    }

    /// Returns the token grant of the bearer token that a grant was issued with.
    fn token_grant(&self, bearer: &Bearer, grant_id: &str) -> Result<Option<String>> {
        if grant_id.starts_with(TOKEN_GRANT) {
            // Tokens belong to the operator, not to other subjects.
            let own = bearer.subject_id == self.owner_id();
            return Ok(own.then(|| grant_id.to_owned()));
        }
        let package = self.store.read_tx(|tx| {
            tx.query_one(
                "SELECT package_id FROM grant_fact WHERE subject = ?1 AND id = ?2 AND revoked_ms IS NULL",
                params![bearer.subject, grant_id],
                |row| Ok(row.maybe_text(0)?.map(str::to_owned)),
            )
        })?;
        let package = package.flatten();
        Ok(package.filter(|package| package.starts_with(TOKEN_GRANT)))
    }

    /// Returns all issued grants, newest first.
    pub fn grants(&self, bearer: &Bearer) -> Result<Vec<IssuedGrant>> {
        bearer.require_owner()?;
        self.store.read_tx(|tx| {
            tx.query_all(
                "SELECT g.body, g.issued_ms, g.expires_ms, g.revoked_ms, g.package_id,
                    (SELECT max(d.at_ms) FROM disclosure d WHERE d.subject = g.subject AND d.grant_id = g.id)
                 FROM grant_fact g WHERE g.subject = ?1 ORDER BY g.issued_ms DESC, g.id",
                params![bearer.subject],
                IssuedGrant::from_row,
            )
        })
    }

    /// Returns one issued grant.
    pub fn grant(&self, bearer: &Bearer, id: &str) -> Result<IssuedGrant> {
        let found = self.grants(bearer)?;
        let found = found.into_iter().find(|given| given.grant.grant_id == id);
        found.ok_or_else(|| Error::NotFound(format!("no grant has the id {id}")))
    }
}

/// An authenticated MCP client.
#[derive(Debug)]
pub struct AuthenticatedAgent {
    pub permit: Permit,
    /// Number of active grants in the package. `None` for a single grant.
    pub active_package_grants: Option<usize>,
}

/// A grant under a permit.
#[derive(Debug)]
pub struct PermitGrant {
    pub grant: Arc<Grant>,
    /// The readable connections of the grant. Empty if the grant is inactive.
    pub connections: Vec<crate::SourceConnection>,
    /// The caller that reads under the grant, or the reason why the grant is inactive.
    pub caller: Result<Bearer>,
}

impl PermitGrant {
    /// Returns the short name of the connector.
    pub fn connector_key(&self) -> String {
        crate::declaration::connector_slug(&self.grant.source.id)
    }
}

/// An owner token, without its secret.
#[derive(Debug, Clone)]
pub struct StoredOwnerToken {
    /// The id to revoke it by.
    pub id: String,
    pub name: String,
    pub issued_ms: i64,
    pub expires_ms: Option<i64>,
}

/// An issued grant and its state.
#[derive(Debug, Clone)]
pub struct IssuedGrant {
    pub grant: Grant,
    pub issued_ms: i64,
    pub expires_ms: Option<i64>,
    pub revoked_ms: Option<i64>,
    pub package_id: Option<String>,
    /// The latest disclosure under the grant.
    pub used_ms: Option<i64>,
}

impl IssuedGrant {
    fn from_row(row: &dyn SqlRow) -> Result<Self> {
        Ok(Self {
            grant: serde_json::from_str(row.text(0)?)?,
            issued_ms: row.int(1)?,
            expires_ms: row.maybe_int(2)?,
            revoked_ms: row.maybe_int(3)?,
            package_id: row.maybe_text(4)?.map(str::to_owned),
            used_ms: row.maybe_int(5)?,
        })
    }

    /// Returns the token grant of the bearer token that this grant was issued with.
    pub fn token_grant(&self) -> Option<&str> {
        let package = self.package_id.as_deref();
        package.filter(|package| package.starts_with(TOKEN_GRANT))
    }

    /// Renders the grant, with the time of its revocation.
    pub fn to_json(&self) -> Result<Value> {
        let mut told = serde_json::to_value(&self.grant)?;
        told["revoked_at"] = self
            .revoked_ms
            .map_or(Value::Null, |ms| json!(format_moment(ms)));
        Ok(told)
    }
}
