//! A petition: what somebody asks the owner for, how the answer goes back, and what was decided.

use rung_auth::Token;
use rung_fault::Code;
use serde::{Deserialize, Serialize};

use super::ask::Ask;
use super::clients::ClientCard;
use super::decide::{Review, ends_at, wrong};
use super::exchange::{authorization_code, exchange_code};
use super::issue::{Holder, Issued, insert_grant, insert_package, issue_to};
use crate::grant::Grant;
use crate::records::{fresh_id, moment};
use crate::scope::Bearer;
use crate::store::{Row, Tx, params};
use crate::tokens::token_hash;
use crate::{Error, Records, Result};

/// How long the owner has to decide.
const PENDING_MS: i64 = 300 * 1_000;
/// Requests that wait for the owner at once.
const MAX_PENDING: i64 = 500;
/// Bytes of one of them.
const MAX_BODY_BYTES: usize = 32 * 1024;
/// How often may be asked for the answer.
const INTERVAL_MS: i64 = 1_000;
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
/// What the owner types, without letters that make words or look like others.
const USER_CODE: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// A token of the owner's own.
    OwnerToken,
    /// This, of these sources.
    Data(Vec<Ask>),
    /// Whatever the owner picks.
    Pick {
        /// Of one source only.
        one_source: bool,
    },
}

/// How the answer goes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// To whoever approves.
    Pushed,
    /// By the owner's browser, as a code.
    Redirect {
        /// Where to.
        redirect_uri: String,
        /// What the application wants to hear again.
        state: Option<String>,
        /// What the code is bound to.
        code_challenge: String,
    },
    /// To a device that asks for it at the token endpoint.
    Device,
    /// To a command that asks for it at an address of its own.
    Poll,
}

/// A petition to be filed.
#[derive(Debug, Clone)]
pub struct Filing {
    /// By whom.
    pub client: ClientCard,
    /// For what.
    pub wanted: Wanted,
    /// How the answer goes back.
    pub way: Way,
    /// At which resource it will be used.
    pub resource: Option<String>,
    /// Whether it becomes a package, even of one grant.
    pub package: bool,
    /// The package to which it adds.
    pub parent_package_id: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Body {
    client: ClientCard,
    wanted: Wanted,
    way: Way,
    resource: Option<String>,
    package: bool,
    parent_package_id: Option<String>,
}

/// What somebody asks for.
#[derive(Debug, Clone)]
pub struct Petition {
    /// Its id.
    pub id: String,
    /// By whom.
    pub client: ClientCard,
    /// For what.
    pub wanted: Wanted,
    /// How the answer goes back.
    pub way: Way,
    /// At which resource it will be used.
    pub resource: Option<String>,
    /// Whether it becomes a package.
    pub package: bool,
    /// The package to which it adds.
    pub parent_package_id: Option<String>,
    /// What the owner types to find it.
    pub user_code: Option<String>,
    /// By when it is decided.
    pub expires_ms: i64,
    status: Status,
    review: Option<String>,
    outcome: Option<Outcome>,
}

/// A petition that was filed.
#[derive(Debug)]
pub struct Filed {
    /// Its id.
    pub id: String,
    /// What the owner types to find it.
    pub user_code: Option<String>,
    /// What is shown when asking for the answer.
    pub secret: Option<Token>,
    /// Seconds in which it has to be decided.
    pub expires_in_s: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Pending,
    Approved,
    Denied,
    Collected,
}

/// What became of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) subject: i64,
    pub(super) holder: Holder,
}

/// What was approved.
#[derive(Debug)]
pub struct Approved {
    /// The grants.
    pub grants: Vec<Grant>,
    /// The package that holds them.
    pub package_id: Option<String>,
    /// What goes back at once.
    pub handed: Handed,
}

/// What goes back when something is approved.
#[derive(Debug)]
pub enum Handed {
    /// A token.
    Token(Box<Issued>),
    /// A code, to be exchanged for a token by whoever asked.
    Exchange(String),
    /// A code, by the owner's browser.
    Redirect {
        /// Where to.
        redirect_uri: String,
        /// What the application wants to hear again.
        state: Option<String>,
        /// The code.
        code: String,
    },
    /// Nothing: whoever asked comes for it.
    Later,
}

/// What was denied.
#[derive(Debug)]
pub struct Denied {
    /// Where the owner's browser goes, and what the application wants to hear again.
    pub redirect: Option<(String, Option<String>)>,
}

/// The answer to whoever came for it.
#[derive(Debug)]
pub enum Collected {
    /// It is not decided.
    Pending,
    /// It was asked for a moment ago.
    TooSoon,
    /// The owner said no.
    Denied,
    /// It was not decided in time.
    Expired,
    /// Here.
    Issued(Box<Issued>),
}

impl Petition {
    const COLUMNS: &'static str = "id, body, status, user_code, review, outcome, expires_ms";

    fn read(row: &dyn Row) -> Result<Self> {
        let body: Body = serde_json::from_str(row.text(1)?)?;
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
                "pending" => Status::Pending,
                "approved" => Status::Approved,
                "denied" => Status::Denied,
                _ => Status::Collected,
            },
            review: row.maybe_text(4)?.map(str::to_owned),
            outcome: row.maybe_text(5)?.map(serde_json::from_str).transpose()?,
        })
    }

    fn find(tx: &mut dyn Tx, column: &str, value: &str) -> Result<Option<Self>> {
        let sql = format!("SELECT {} FROM petition WHERE {column} = ?1", Self::COLUMNS);
        tx.one(&sql, params![value], Self::read)
    }

    /// One that is still to be decided.
    pub(super) fn open(tx: &mut dyn Tx, id: &str, now_ms: i64) -> Result<Self> {
        let unknown = || Error::NotFound("no such request, or its time is over".to_owned());
        let petition = Self::find(tx, "id", id)?.ok_or_else(unknown)?;
        if petition.status != Status::Pending {
            return Err(Error::refused(
                Code::ApprovalConflict,
                "request_uri",
                "this was decided already",
            ));
        }
        if petition.expires_ms <= now_ms {
            return Err(unknown());
        }
        Ok(petition)
    }

    fn settle(&self, tx: &mut dyn Tx, from: &str, to: &str) -> Result<()> {
        let changed = tx.execute(
            "UPDATE petition SET status = ?2 WHERE id = ?1 AND status = ?3",
            params![&self.id, to, from],
        )?;
        match changed {
            1 => Ok(()),
            _ => Err(Error::refused(
                Code::ApprovalConflict,
                "request_uri",
                "this was decided already",
            )),
        }
    }
}

impl Records {
    /// Files a petition.
    pub fn file(&self, filing: Filing) -> Result<Filed> {
        let now_ms = self.now_ms();
        let id = fresh_id("ask")?;
        let comes_back = matches!(filing.way, Way::Device | Way::Poll);
        let secret = comes_back.then(Token::generate).transpose();
        let secret = secret.map_err(|error| Error::corrupt("token", error))?;
        let hash = secret.as_ref().map(token_hash).transpose()?;
        let user_code = (filing.way == Way::Device).then(user_code).transpose()?;
        let body = Body {
            client: filing.client,
            wanted: filing.wanted,
            way: filing.way,
            resource: filing.resource,
            package: filing.package,
            parent_package_id: filing.parent_package_id,
        };
        let body = serde_json::to_string(&body)?;
        if body.len() > MAX_BODY_BYTES {
            return Err(Error::refused(
                Code::InvalidAuthorizationDetails,
                "authorization_details",
                format!("what is asked for has {MAX_BODY_BYTES} bytes at most"),
            ));
        }
        self.store.writing(|tx| {
            let waiting = tx.one(
                "SELECT count(*) FROM petition WHERE status = 'pending' AND expires_ms > ?1",
                params![now_ms],
                |row| row.int(0),
            )?;
            if waiting.unwrap_or(0) >= MAX_PENDING {
                let why = "too many requests wait for the owner: try again in a few minutes";
                return Err(Error::refused(Code::SlowDown, "", why));
            }
            tx.execute(
                "INSERT INTO petition (id, body, status, user_code, secret, expires_ms) VALUES (?1, ?2, 'pending', ?3, ?4, ?5)",
                params![&id, &body, user_code.as_ref(), hash.as_ref(), now_ms + PENDING_MS],
            )
        })?;
        Ok(Filed {
            id,
            user_code,
            secret,
            expires_in_s: PENDING_MS / 1_000,
        })
    }

    /// A petition that is still to be decided.
    pub fn petition(&self, id: &str) -> Result<Petition> {
        let now_ms = self.now_ms();
        self.store.reading(|tx| Petition::open(tx, id, now_ms))
    }

    /// The same, by what the owner typed.
    pub fn petition_of_device(&self, typed: &str) -> Result<Petition> {
        let mut letters: String = typed
            .chars()
            .filter(char::is_ascii_alphabetic)
            .map(|letter| letter.to_ascii_uppercase())
            .collect();
        if letters.len() == 8 {
            letters.insert(4, '-');
        }
        let now_ms = self.now_ms();
        self.store.reading(|tx| {
            let unknown = || Error::NotFound("no device waits with this code".to_owned());
            let found = Petition::find(tx, "user_code", &letters)?.ok_or_else(unknown)?;
            Petition::open(tx, &found.id, now_ms)
        })
    }

    /// Gives what was reviewed, and nothing else. `by_page` says that a person sees the answer, who is shown no token.
    pub fn approve(
        &self,
        owner: &Bearer,
        id: &str,
        revision: &str,
        by_page: bool,
    ) -> Result<Approved> {
        owner.require_owner()?;
        let now_ms = self.now_ms();
        self.store.writing(|tx| {
            let petition = Petition::open(tx, id, now_ms)?;
            let review = petition
                .review
                .as_deref()
                .map(serde_json::from_str::<Review>);
            let review = review
                .transpose()?
                .filter(|review| review.revision == revision);
            let review = review.ok_or_else(|| {
                Error::refused(
                    Code::InvalidRequest,
                    "approval_review_revision",
                    "this is not what was reviewed last: look at it again",
                )
            })?;
            petition.settle(tx, "pending", "approved")?;
            let client = &petition.client;
            let mut grants = review.decision.grants;
            for (grant, end) in grants.iter_mut().zip(&review.decision.ends) {
                let ends_ms = ends_at(now_ms, *end);
                grant.grant_id = fresh_id("grt")?;
                grant.issued_at = moment(now_ms);
                grant.expires_at = ends_ms.map(moment);
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
                let ends_ms = ends_at(now_ms, *end);
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
                (Wanted::OwnerToken, _, _) => Holder::Owner,
                (_, Some(id), _) => Holder::Package(id.clone()),
                (_, None, Some(grant)) => Holder::Grant(grant.grant_id.clone()),
                (_, None, None) => return Err(wrong("choose at least one source, or say no")),
            };
            let outcome = Outcome {
                subject: owner.subject,
                holder: holder.clone(),
            };
            // Whoever asked has as long to come for it as a code would live.
            tx.execute(
                "UPDATE petition SET outcome = ?2, expires_ms = ?3 WHERE id = ?1",
                params![id, &serde_json::to_string(&outcome)?, now_ms + PENDING_MS],
            )?;
            let handed = match &petition.way {
                Way::Device | Way::Poll => Handed::Later,
                Way::Pushed if by_page => {
                    Handed::Exchange(exchange_code(tx, client, &outcome, now_ms)?)
                }
                Way::Pushed => {
                    let issued = issue_to(tx, client, owner.subject, &holder, None, now_ms)?;
                    Handed::Token(Box::new(issued))
                }
                Way::Redirect {
                    redirect_uri,
                    state,
                    code_challenge,
                } => Handed::Redirect {
                    redirect_uri: redirect_uri.clone(),
                    state: state.clone(),
                    code: authorization_code(
                        tx,
                        client,
                        &outcome,
                        (redirect_uri, code_challenge),
                        now_ms,
                    )?,
                },
            };
            Ok(Approved {
                grants,
                package_id,
                handed,
            })
        })
    }

    /// Says no.
    pub fn deny(&self, owner: &Bearer, id: &str) -> Result<Denied> {
        owner.require_owner()?;
        let now_ms = self.now_ms();
        self.store.writing(|tx| {
            let petition = Petition::open(tx, id, now_ms)?;
            petition.settle(tx, "pending", "denied")?;
            Ok(Denied {
                redirect: match petition.way {
                    Way::Redirect {
                        redirect_uri,
                        state,
                        ..
                    } => Some((redirect_uri, state)),
                    _ => None,
                },
            })
        })
    }

    /// Hands over the answer to whoever comes for it, once. `id` names the petition where the address does.
    pub fn collect(
        &self,
        secret: &str,
        client_id: Option<&str>,
        id: Option<&str>,
    ) -> Result<Collected> {
        let now_ms = self.now_ms();
        let hash = token_hash(&Token::shown(secret.to_owned()))?;
        self.store.writing(|tx| {
            let invalid =
                || Error::refused(Code::InvalidGrant, "", "this is not known, or was used");
            let petition = Petition::find(tx, "secret", &hash)?.ok_or_else(invalid)?;
            if client_id.is_some_and(|client| client != petition.client.client_id)
                || id.is_some_and(|id| id != petition.id)
            {
                return Err(invalid());
            }
            match petition.status {
                Status::Denied => Ok(Collected::Denied),
                Status::Collected => Err(invalid()),
                Status::Pending | Status::Approved if petition.expires_ms <= now_ms => {
                    Ok(Collected::Expired)
                }
                Status::Pending => {
                    let asked = tx.one(
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
                        .is_some_and(|asked| now_ms - asked < INTERVAL_MS / 2);
                    Ok(if soon {
                        Collected::TooSoon
                    } else {
                        Collected::Pending
                    })
                }
                Status::Approved => {
                    petition
                        .settle(tx, "approved", "collected")
                        .map_err(|_| invalid())?;
                    let outcome = petition.outcome.as_ref().ok_or_else(invalid)?;
                    let issued = issue_to(
                        tx,
                        &petition.client,
                        outcome.subject,
                        &outcome.holder,
                        None,
                        now_ms,
                    )?;
                    Ok(Collected::Issued(Box::new(issued)))
                }
            }
        })
    }

    /// Clears away what nobody will ask for any more.
    pub(crate) fn drop_petitions(&self) -> Result<()> {
        let now_ms = self.now_ms();
        let due = self.store.reading(|tx| {
            tx.one(
                "SELECT 1 FROM petition WHERE expires_ms < ?1 LIMIT 1",
                params![now_ms],
                |_| Ok(()),
            )
        })?;
        let hourly = self.swept(now_ms);
        if due.is_none() && !hourly {
            return Ok(());
        }
        let (day, month) = (now_ms - DAY_MS, now_ms - 30 * DAY_MS);
        self.store.writing(|tx| {
            // What was decided is remembered for a day, so that asking twice is told apart from asking in vain.
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

/// What a person types: eight letters, in two groups.
fn user_code() -> Result<String> {
    let mut code = String::new();
    while code.len() < 9 {
        let mut byte = [0];
        getrandom::fill(&mut byte).map_err(|error| Error::corrupt("randomness", error))?;
        // Those that would make some letters likelier are left out.
        if byte[0] < 240 {
            code.push(char::from(
                USER_CODE[usize::from(byte[0]) % USER_CODE.len()],
            ));
        }
        if code.len() == 4 {
            code.push('-');
        }
    }
    Ok(code)
}
