//! Codes and refresh tokens: exchanged once, and what is shown twice ends everything that came of it.

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use rung_auth::Token;
use rung_fault::Code;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::clients::ClientCard;
use super::issue::{Holder, Issued, issue_to, new_family};
use super::petition::Outcome;
use crate::store::{Tx, params};
use crate::tokens::token_hash;
use crate::{Error, Records, Result};

/// How long a code may be exchanged.
const CODE_MS: i64 = 300 * 1_000;

/// What a code stands for.
#[derive(Debug, Serialize, Deserialize)]
struct Stands {
    client: ClientCard,
    outcome: Outcome,
    /// Where it was sent, and what its verifier hashes to. A code that a person hands over has neither.
    bound: Option<(String, String)>,
}

/// What came of a code or a refresh token.
#[derive(Debug)]
pub enum Redeemed {
    /// A token.
    Issued(Box<Issued>),
    /// Nothing: it was used before, and what came of that has been ended.
    Replayed,
}

/// A code that goes back by the owner's browser.
pub(super) fn authorization_code(
    tx: &mut dyn Tx,
    client: &ClientCard,
    outcome: &Outcome,
    (redirect_uri, challenge): (&str, &str),
    now_ms: i64,
) -> Result<String> {
    let bound = Some((redirect_uri.to_owned(), challenge.to_owned()));
    put_code(tx, "oacode", client, outcome, bound, now_ms)
}

/// A code that is shown to the owner, to be handed over.
pub(super) fn exchange_code(
    tx: &mut dyn Tx,
    client: &ClientCard,
    outcome: &Outcome,
    now_ms: i64,
) -> Result<String> {
    put_code(tx, "cex", client, outcome, None, now_ms)
}

fn put_code(
    tx: &mut dyn Tx,
    prefix: &str,
    client: &ClientCard,
    outcome: &Outcome,
    bound: Option<(String, String)>,
    now_ms: i64,
) -> Result<String> {
    let mut bits = [0; 32];
    getrandom::fill(&mut bits).map_err(|error| Error::corrupt("randomness", error))?;
    let code = format!("{prefix}_{}", HEXLOWER.encode(&bits));
    let stands = Stands {
        client: client.clone(),
        outcome: outcome.clone(),
        bound,
    };
    let family = new_family(tx)?;
    tx.execute(
        "INSERT INTO code (hash, body, family, expires_ms, used_ms) VALUES (?1, ?2, ?3, ?4, NULL)",
        params![
            &token_hash(&Token::shown(code.clone()))?,
            &serde_json::to_string(&stands)?,
            &family,
            now_ms + CODE_MS
        ],
    )?;
    Ok(code)
}

fn invalid(why: &str) -> Error {
    Error::refused(Code::InvalidGrant, "", why)
}

impl Records {
    /// Exchanges a code that came by the owner's browser.
    pub fn redeem(
        &self,
        code: &str,
        client_id: &str,
        redirect_uri: &str,
        verifier: &str,
    ) -> Result<Redeemed> {
        self.take_code(code, |stands| {
            let (sent_to, challenge) = stands
                .bound
                .as_ref()
                .ok_or_else(|| invalid("the code is not known"))?;
            let hashed = BASE64URL_NOPAD.encode(&Sha256::digest(verifier.as_bytes()));
            let sound = (43..=128).contains(&verifier.len());
            if stands.client.client_id != client_id {
                return Err(invalid("the code is another application's"));
            }
            if sent_to != redirect_uri {
                return Err(invalid("the code was sent to another redirect_uri"));
            }
            if !sound || hashed != *challenge {
                return Err(invalid("code_verifier does not fit the challenge"));
            }
            Ok(())
        })
    }

    /// Exchanges a code that a person handed over.
    pub fn exchange(&self, code: &str) -> Result<Redeemed> {
        self.take_code(code, |stands| match stands.bound {
            None => Ok(()),
            Some(_) => Err(invalid("the code is not known")),
        })
    }

    fn take_code(&self, code: &str, check: impl Fn(&Stands) -> Result<()>) -> Result<Redeemed> {
        let now_ms = self.now_ms();
        let hash = token_hash(&Token::shown(code.to_owned()))?;
        self.store.writing(|tx| {
            let found = tx.one(
                "SELECT body, family, expires_ms, used_ms FROM code WHERE hash = ?1",
                params![&hash],
                |row| {
                    Ok((
                        row.text(0)?.to_owned(),
                        row.text(1)?.to_owned(),
                        row.int(2)?,
                        row.maybe_int(3)?,
                    ))
                },
            )?;
            let (body, family, expires_ms, used) =
                found.ok_or_else(|| invalid("the code is not known"))?;
            let stands: Stands = serde_json::from_str(&body)?;
            check(&stands)?;
            if used.is_some() {
                end_family(tx, &family, now_ms)?;
                return Ok(Redeemed::Replayed);
            }
            if expires_ms <= now_ms {
                return Err(invalid("the code's time is over"));
            }
            let taken = tx.execute(
                "UPDATE code SET used_ms = ?2 WHERE hash = ?1 AND used_ms IS NULL",
                params![&hash, now_ms],
            )?;
            if taken != 1 {
                end_family(tx, &family, now_ms)?;
                return Ok(Redeemed::Replayed);
            }
            let issued = issue_to(
                tx,
                &stands.client,
                stands.outcome.subject,
                &stands.outcome.holder,
                Some(&family),
                now_ms,
            )?;
            Ok(Redeemed::Issued(Box::new(issued)))
        })
    }

    /// Exchanges a refresh token for the next pair. One that was used before ends its whole family.
    pub fn refresh(&self, shown: &str, client: &ClientCard) -> Result<Redeemed> {
        let now_ms = self.now_ms();
        let hash = token_hash(&Token::shown(shown.to_owned()))?;
        self.store.writing(|tx| {
            let found = tx.one(
                "SELECT r.family, r.client, r.subject, r.grant_id, r.package_id, r.used_ms, f.revoked_ms
                 FROM refresh r JOIN family f ON f.id = r.family WHERE r.hash = ?1",
                params![&hash],
                |row| {
                    let holder = match (row.maybe_text(3)?, row.maybe_text(4)?) {
                        (Some(grant), _) => Holder::Grant(grant.to_owned()),
                        (None, Some(package)) => Holder::Package(package.to_owned()),
                        (None, None) => return Err(invalid("the refresh token is not known")),
                    };
                    Ok((
                        row.text(0)?.to_owned(),
                        row.text(1)?.to_owned(),
                        row.int(2)?,
                        holder,
                        row.maybe_int(5)?,
                        row.maybe_int(6)?,
                    ))
                },
            )?;
            let (family, owner, subject, holder, used, revoked) =
                found.ok_or_else(|| invalid("the refresh token is not known"))?;
            if owner != client.client_id {
                return Err(invalid("the refresh token is another application's"));
            }
            if revoked.is_some() || !client.refreshes() {
                return Err(invalid("the refresh token was ended"));
            }
            let taken = match used {
                Some(_) => 0,
                None => tx.execute(
                    "UPDATE refresh SET used_ms = ?2 WHERE hash = ?1 AND used_ms IS NULL",
                    params![&hash, now_ms],
                )?,
            };
            if taken != 1 {
                end_family(tx, &family, now_ms)?;
                return Ok(Redeemed::Replayed);
            }
            let issued = issue_to(tx, client, subject, &holder, Some(&family), now_ms)?;
            Ok(Redeemed::Issued(Box::new(issued)))
        })
    }
}

fn end_family(tx: &mut dyn Tx, family: &str, now_ms: i64) -> Result<()> {
    tx.execute(
        "UPDATE family SET revoked_ms = ?2 WHERE id = ?1 AND revoked_ms IS NULL",
        params![family, now_ms],
    )?;
    Ok(())
}
