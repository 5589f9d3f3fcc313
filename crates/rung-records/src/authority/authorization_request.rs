//! Authorization requests: creation, decision and delivery of the result.

use rung_auth::Token;
use rung_fault::Code;
use serde::{Deserialize, Serialize};

use super::authorization_detail::AuthorizationDetail;
use super::clients::ClientMetadata;
use super::decision::{Review, expires_at_ms, invalid_request};
use super::issue::{IssuedToken, TokenKind, insert_grant, insert_package, issue_token};
use super::redemption::{issue_authorization_code, issue_displayed_code};
use crate::grant::Grant;
use crate::records::{format_moment, generate_id};
use crate::scope::Bearer;
use crate::store::{SqlRow, Tx, params};
use crate::tokens::token_hash;
use crate::{Error, Records, Result};

/// Time in which the owner must decide.
const PENDING_MS: i64 = 300 * 1_000;
/// Maximum number of requests waiting for the owner.
const MAX_PENDING: i64 = 500;
/// Maximum size of a stored request.
const MAX_BODY_BYTES: usize = 32 * 1024;
/// Interval at which a client may poll.
const POLL_INTERVAL_MS: i64 = 1_000;
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
/// Alphabet of user codes: no vowels, so that codes form no words, and no letters that look alike.
const USER_CODE_ALPHABET: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// What a client requests access to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestedAccess {
    /// An owner token.
    OwnerToken,
    /// These authorization details.
    Data(Vec<AuthorizationDetail>),
    /// Sources that the owner picks.
    Pick {
        /// True if the owner may pick only one source.
        one_source: bool,
    },
}

/// How the client gets the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// In the response to the approval.
    Pushed,
    /// As a code, by redirecting the owner's browser.
    Redirect {
        redirect_uri: String,
        /// The client's `state`, returned unchanged.
        state: Option<String>,
        /// The PKCE challenge (S256).
        code_challenge: String,
    },
    /// By polling the token endpoint (RFC 8628).
    Device,
    /// By polling the status address of the request.
    Poll,
}

/// An authorization request to be created.
#[derive(Debug, Clone)]
pub struct NewAuthorizationRequest {
    pub client: ClientMetadata,
    pub wanted: RequestedAccess,
    pub way: Delivery,
    /// The resource indicator (RFC 8707).
    pub resource: Option<String>,
    /// True to issue a package even for a single grant.
    pub package: bool,
    /// The package that the new one extends.
    pub parent_package_id: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredRequestBody {
    client: ClientMetadata,
    wanted: RequestedAccess,
    way: Delivery,
    resource: Option<String>,
    package: bool,
    parent_package_id: Option<String>,
}

/// A stored authorization request.
#[derive(Debug, Clone)]
pub struct AuthorizationRequest {
    pub id: String,
    pub client: ClientMetadata,
    pub wanted: RequestedAccess,
    pub way: Delivery,
    /// The resource indicator (RFC 8707).
    pub resource: Option<String>,
    /// True to issue a package even for a single grant.
    pub package: bool,
    /// The package that the new one extends.
    pub parent_package_id: Option<String>,
    /// The code that the owner types to find the request.
    pub user_code: Option<String>,
    /// Deadline of the decision, in milliseconds since 1970.
    pub expires_ms: i64,
    status: RequestStatus,
    review: Option<String>,
    outcome: Option<ApprovalOutcome>,
}

/// A created authorization request.
#[derive(Debug)]
pub struct PendingRequest {
    pub id: String,
    /// The code that the owner types to find the request.
    pub user_code: Option<String>,
    /// The secret with which the client polls for the result.
    pub secret: Option<Token>,
    /// Seconds until the request expires.
    pub expires_in_s: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestStatus {
    Pending,
    Approved,
    Denied,
    Collected,
}

/// The subject and the kind of token that an approval grants.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ApprovalOutcome {
    pub(super) subject: i64,
    pub(super) holder: TokenKind,
}

/// The result of an approval.
#[derive(Debug)]
pub struct ApprovedRequest {
    pub grants: Vec<Grant>,
    /// The package of the grants, if there is one.
    pub package_id: Option<String>,
    pub response: ApprovalResponse,
}

/// What an approval returns to its caller.
#[derive(Debug)]
pub enum ApprovalResponse {
    Token(Box<IssuedToken>),
    /// A code that the owner copies to the client.
    DisplayedCode(String),
    /// A code, returned by redirecting the owner's browser.
    Redirect {
        redirect_uri: String,
        /// The client's `state`, returned unchanged.
        state: Option<String>,
        code: String,
    },
    /// Nothing: the client polls.
    Polled,
}

/// The result of a denial.
#[derive(Debug)]
pub struct DeniedRequest {
    /// The redirect URI and the client's `state`, if the result is delivered by redirect.
    pub redirect: Option<(String, Option<String>)>,
}

/// The result of one poll.
#[derive(Debug)]
pub enum PollResult {
    /// The owner has not decided yet.
    Pending,
    /// The client polls faster than the interval.
    SlowDown,
    Denied,
    /// The deadline has passed.
    Expired,
    Issued(Box<IssuedToken>),
}

impl AuthorizationRequest {
    const COLUMNS: &'static str = "id, body, status, user_code, review, outcome, expires_ms";

    fn from_row(row: &dyn SqlRow) -> Result<Self> {
        let body: StoredRequestBody = serde_json::from_str(row.text(1)?)?;
        Ok(Self {
            id: row.text(0)?.to_owned(),
            client: body.client,
            wanted: body.wanted,
            way: body.way,
            resource: body.resource,
            package: body.package,
            parent_package_id: body.parent_package_id,
            user_code: row.maybe_text(3)?.map(str::to_owned),
            expires_ms: row.int(6)?,
            status: match row.text(2)? {
                "pending" => RequestStatus::Pending,
                "approved" => RequestStatus::Approved,
                "denied" => RequestStatus::Denied,
                _ => RequestStatus::Collected,
            },
            review: row.maybe_text(4)?.map(str::to_owned),
            outcome: row.maybe_text(5)?.map(serde_json::from_str).transpose()?,
        })
    }

    fn find(tx: &mut dyn Tx, column: &str, value: &str) -> Result<Option<Self>> {
        let sql = format!("SELECT {} FROM petition WHERE {column} = ?1", Self::COLUMNS);
        tx.query_one(&sql, params![value], Self::from_row)
    }

    /// Reads a request that is neither decided nor expired.
    pub(super) fn find_pending(tx: &mut dyn Tx, id: &str, now_ms: i64) -> Result<Self> {
        let unknown = || Error::NotFound("the request is unknown or has expired".to_owned());
        let petition = Self::find(tx, "id", id)?.ok_or_else(unknown)?;
        if petition.status != RequestStatus::Pending {
            return Err(Error::invalid_with_code(
                Code::ApprovalConflict,
                "request_uri",
                "the request has already been decided",
            ));
        }
        if petition.expires_ms <= now_ms {
            return Err(unknown());
        }
        Ok(petition)
    }

    fn change_status(&self, tx: &mut dyn Tx, from: &str, to: &str) -> Result<()> {
        let changed = tx.execute(
            "UPDATE petition SET status = ?2 WHERE id = ?1 AND status = ?3",
            params![&self.id, to, from],
        )?;
        match changed {
            1 => Ok(()),
            _ => Err(Error::invalid_with_code(
                Code::ApprovalConflict,
                "request_uri",
                "the request has already been decided",
            )),
        }
    }
}

impl Records {
    /// Stores an authorization request and returns its id and codes.
    pub fn create_authorization_request(
        &self,
        filing: NewAuthorizationRequest,
    ) -> Result<PendingRequest> {
        let now_ms = self.now_ms();
        let id = generate_id("ask")?;
        let comes_back = matches!(filing.way, Delivery::Device | Delivery::Poll);
        let secret = comes_back.then(Token::generate).transpose();
        let secret = secret.map_err(|error| Error::corrupt("token", error))?;
        let hash = secret.as_ref().map(token_hash).transpose()?;
        let user_code = (filing.way == Delivery::Device)
            .then(generate_user_code)
            .transpose()?;
        let body = StoredRequestBody {
            client: filing.client,
            wanted: filing.wanted,
            way: filing.way,
            resource: filing.resource,
            package: filing.package,
            parent_package_id: filing.parent_package_id,
        };
        let body = serde_json::to_string(&body)?;
        if body.len() > MAX_BODY_BYTES {
            return Err(Error::invalid_with_code(
                Code::InvalidAuthorizationDetails,
                "authorization_details",
                format!("the request is too long: at most {MAX_BODY_BYTES} bytes"),
            ));
        }
        self.store.write_tx(|tx| {
            let waiting = tx.query_one(
                "SELECT count(*) FROM petition WHERE status = 'pending' AND expires_ms > ?1",
                params![now_ms],
                |row| row.int(0),
            )?;
            if waiting.unwrap_or(0) >= MAX_PENDING {
                let why = "too many requests wait for the owner: try again in a few minutes";
                return Err(Error::invalid_with_code(Code::SlowDown, "", why));
            }
            tx.execute(
                "INSERT INTO petition (id, body, status, user_code, secret, expires_ms) VALUES (?1, ?2, 'pending', ?3, ?4, ?5)",
                params![&id, &body, user_code.as_ref(), hash.as_ref(), now_ms + PENDING_MS],
            )
        })?;
        Ok(PendingRequest {
            id,
            user_code,
            secret,
            expires_in_s: PENDING_MS / 1_000,
        })
    }

    /// Returns a request that is neither decided nor expired.
    pub fn authorization_request(&self, id: &str) -> Result<AuthorizationRequest> {
        let now_ms = self.now_ms();
        self.store
            .read_tx(|tx| AuthorizationRequest::find_pending(tx, id, now_ms))
    }

    /// Finds a pending request by its user code. Case and separators are ignored.
    pub fn authorization_request_by_user_code(&self, typed: &str) -> Result<AuthorizationRequest> {
        let mut letters: String = typed
            .chars()
            .filter(char::is_ascii_alphabetic)
            .map(|letter| letter.to_ascii_uppercase())
            .collect();
        if letters.len() == 8 {
            letters.insert(4, '-');
        }
        let now_ms = self.now_ms();
        self.store.read_tx(|tx| {
            let unknown = || Error::NotFound("no device waits with this code".to_owned());
            let found =
                AuthorizationRequest::find(tx, "user_code", &letters)?.ok_or_else(unknown)?;
            AuthorizationRequest::find_pending(tx, &found.id, now_ms)
        })
    }

    /// Approves exactly the reviewed revision. `by_page` is true if a person sees the response: it then carries a code
    /// instead of a token.
    pub fn approve(
        &self,
        owner: &Bearer,
        id: &str,
        revision: &str,
        by_page: bool,
    ) -> Result<ApprovedRequest> {
        owner.require_owner()?;
        let now_ms = self.now_ms();
        self.store.write_tx(|tx| {
            let petition = AuthorizationRequest::find_pending(tx, id, now_ms)?;
            let review = petition
                .review
                .as_deref()
                .map(serde_json::from_str::<Review>);
            let review = review
                .transpose()?
                .filter(|review| review.revision == revision);
            let review = review.ok_or_else(|| {
                Error::invalid_with_code(
                    Code::InvalidRequest,
                    "approval_review_revision",
                    "the approval does not match the last review: review the request again",
                )
            })?;
            petition.change_status(tx, "pending", "approved")?;
            let client = &petition.client;
            let mut grants = review.decision.grants;
            for (grant, end) in grants.iter_mut().zip(&review.decision.ends) {
                let ends_ms = expires_at_ms(now_ms, *end);
                grant.grant_id = generate_id("grt")?;
                grant.issued_at = format_moment(now_ms);
                grant.expires_at = ends_ms.map(format_moment);
            }
            let package_id = if petition.package || grants.len() > 1 {
                let parent = petition.parent_package_id.as_deref();
                Some(insert_package(
                    tx,
                    owner.subject,
                    client,
                    &grants,
                    parent,
                    now_ms,
                )?)
            } else {
                None
            };
            for (grant, end) in grants.iter().zip(&review.decision.ends) {
                let ends_ms = expires_at_ms(now_ms, *end);
                insert_grant(
                    tx,
                    owner.subject,
                    grant,
                    package_id.as_deref(),
                    now_ms,
                    ends_ms,
                )?;
            }
            let holder = match (&petition.wanted, &package_id, grants.first()) {
                (RequestedAccess::OwnerToken, _, _) => TokenKind::Owner,
                (_, Some(id), _) => TokenKind::Package(id.clone()),
                (_, None, Some(grant)) => TokenKind::Grant(grant.grant_id.clone()),
                (_, None, None) => {
                    return Err(invalid_request(
                        "choose at least one source, or deny the request",
                    ));
                }
            };
            let outcome = ApprovalOutcome {
                subject: owner.subject,
                holder: holder.clone(),
            };
            // The client may collect the result for as long as a code would live.
            tx.execute(
                "UPDATE petition SET outcome = ?2, expires_ms = ?3 WHERE id = ?1",
                params![id, &serde_json::to_string(&outcome)?, now_ms + PENDING_MS],
            )?;
            let handed = match &petition.way {
                Delivery::Device | Delivery::Poll => ApprovalResponse::Polled,
                Delivery::Pushed if by_page => ApprovalResponse::DisplayedCode(
                    issue_displayed_code(tx, client, &outcome, now_ms)?,
                ),
                Delivery::Pushed => {
                    let issued = issue_token(tx, client, owner.subject, &holder, None, now_ms)?;
                    ApprovalResponse::Token(Box::new(issued))
                }
                Delivery::Redirect {
                    redirect_uri,
                    state,
                    code_challenge,
                } => ApprovalResponse::Redirect {
                    redirect_uri: redirect_uri.clone(),
                    state: state.clone(),
                    code: issue_authorization_code(
                        tx,
                        client,
                        &outcome,
                        (redirect_uri, code_challenge),
                        now_ms,
                    )?,
                },
            };
            Ok(ApprovedRequest {
                grants,
                package_id,
                response: handed,
            })
        })
    }

    /// Denies a request.
    pub fn deny(&self, owner: &Bearer, id: &str) -> Result<DeniedRequest> {
        owner.require_owner()?;
        let now_ms = self.now_ms();
        self.store.write_tx(|tx| {
            let petition = AuthorizationRequest::find_pending(tx, id, now_ms)?;
            petition.change_status(tx, "pending", "denied")?;
            Ok(DeniedRequest {
                redirect: match petition.way {
                    Delivery::Redirect {
                        redirect_uri,
                        state,
                        ..
                    } => Some((redirect_uri, state)),
                    _ => None,
                },
            })
        })
    }

    /// Returns the result of a request to its polling client; a token is issued once. `id` restricts the secret to one
    /// request.
    pub fn poll_authorization(
        &self,
        secret: &str,
        client_id: Option<&str>,
        id: Option<&str>,
    ) -> Result<PollResult> {
        let now_ms = self.now_ms();
        let hash = token_hash(&Token::from_text(secret.to_owned()))?;
        self.store.write_tx(|tx| {
            let invalid = || {
                Error::invalid_with_code(
                    Code::InvalidGrant,
                    "",
                    "the code is unknown or has already been used",
                )
            };
            let petition = AuthorizationRequest::find(tx, "secret", &hash)?.ok_or_else(invalid)?;
            if client_id.is_some_and(|client| client != petition.client.client_id)
                || id.is_some_and(|id| id != petition.id)
            {
                return Err(invalid());
            }
            match petition.status {
                RequestStatus::Denied => Ok(PollResult::Denied),
                RequestStatus::Collected => Err(invalid()),
                RequestStatus::Pending | RequestStatus::Approved
                    if petition.expires_ms <= now_ms =>
                {
                    Ok(PollResult::Expired)
                }
                RequestStatus::Pending => {
                    let asked = tx.query_one(
                        "SELECT asked_ms FROM petition WHERE id = ?1",
                        params![&petition.id],
                        |row| row.maybe_int(0),
                    )?;
                    tx.execute(
                        "UPDATE petition SET asked_ms = ?2 WHERE id = ?1",
                        params![&petition.id, now_ms],
                    )?;
                    let soon = asked
                        .flatten()
                        .is_some_and(|asked| now_ms - asked < POLL_INTERVAL_MS / 2);
                    Ok(if soon {
                        PollResult::SlowDown
                    } else {
                        PollResult::Pending
                    })
                }
                RequestStatus::Approved => {
                    petition
                        .change_status(tx, "approved", "collected")
                        .map_err(|_| invalid())?;
                    let outcome = petition.outcome.as_ref().ok_or_else(invalid)?;
                    let issued = issue_token(
                        tx,
                        &petition.client,
                        outcome.subject,
                        &outcome.holder,
                        None,
                        now_ms,
                    )?;
                    Ok(PollResult::Issued(Box::new(issued)))
                }
            }
        })
    }

    /// Deletes expired requests; once an hour also expired codes, sessions, tokens and unused clients.
    pub(crate) fn delete_expired_authorizations(&self) -> Result<()> {
        let now_ms = self.now_ms();
        let due = self.store.read_tx(|tx| {
            tx.query_one(
                "SELECT 1 FROM petition WHERE expires_ms < ?1 LIMIT 1",
                params![now_ms],
                |_| Ok(()),
            )
        })?;
        let hourly = self.is_sweep_due(now_ms);
        if due.is_none() && !hourly {
            return Ok(());
        }
        let (day, month) = (now_ms - DAY_MS, now_ms - 30 * DAY_MS);
        self.store.write_tx(|tx| {
            // Decided requests are kept for a day, so that a repeated poll is distinguished from an unknown secret.
            tx.execute(
                "DELETE FROM petition WHERE expires_ms < ?1 AND (status = 'pending' OR expires_ms < ?2)",
                params![now_ms, day],
            )?;
            if !hourly {
                return Ok(());
            }
            for table in ["code", "session", "token"] {
                let sql = format!("DELETE FROM {table} WHERE expires_ms < ?1");
                tx.execute(&sql, params![day])?;
            }
            for sql in [
                "DELETE FROM refresh WHERE used_ms < ?1",
                "DELETE FROM client WHERE registered_ms < ?1 AND NOT EXISTS (SELECT 1 FROM token t WHERE t.client = client.id)
                 AND NOT EXISTS (SELECT 1 FROM refresh r WHERE r.client = client.id)",
            ] {
                tx.execute(sql, params![month])?;
            }
            tx.execute(
                "DELETE FROM family WHERE NOT EXISTS (SELECT 1 FROM token t WHERE t.family = family.id)
                 AND NOT EXISTS (SELECT 1 FROM refresh r WHERE r.family = family.id)
                 AND NOT EXISTS (SELECT 1 FROM code c WHERE c.family = family.id)",
                &[],
            )?;
            Ok(())
        })
    }
}

/// Generates a user code: eight letters in two groups.
fn generate_user_code() -> Result<String> {
    let mut code = String::new();
    while code.len() < 9 {
        let mut byte = [0];
        getrandom::fill(&mut byte).map_err(|error| Error::corrupt("randomness", error))?;
        // Rejection sampling: 240 is a multiple of the alphabet's length.
        if byte[0] < 240 {
            code.push(char::from(
                USER_CODE_ALPHABET[usize::from(byte[0]) % USER_CODE_ALPHABET.len()],
            ));
        }
        if code.len() == 4 {
            code.push('-');
        }
    }
    Ok(code)
}
