//! Authorization codes and refresh tokens. Each is redeemed once; a replay revokes the whole token family.

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use rung_auth::Token;
use rung_fault::Code;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::authorization_request::ApprovalOutcome;
use super::clients::ClientMetadata;
use super::issue::{IssuedToken, TokenKind, issue_token, new_family};
use crate::store::{Tx, params};
use crate::tokens::token_hash;
use crate::{Error, Records, Result};

/// Lifetime of a code.
const CODE_MS: i64 = 300 * 1_000;

/// What a code is issued for.
#[derive(Debug, Serialize, Deserialize)]
struct CodeSubject {
    client: ClientMetadata,
    outcome: ApprovalOutcome,
    /// The redirect URI and the PKCE challenge. `None` for a code that the owner copies by hand.
    bound: Option<(String, String)>,
}

/// The result of redeeming a code or a refresh token.
#[derive(Debug)]
pub enum Redemption {
    Issued(Box<IssuedToken>),
    /// The code or token was used before. Its token family is now revoked.
    Replayed,
}

/// Issues a code that is returned through the owner's browser.
pub(super) fn issue_authorization_code(
    tx: &mut dyn Tx,
    client: &ClientMetadata,
    outcome: &ApprovalOutcome,
    (redirect_uri, challenge): (&str, &str),
    now_ms: i64,
) -> Result<String> {
    let bound = Some((redirect_uri.to_owned(), challenge.to_owned()));
    insert_code(tx, "oacode", client, outcome, bound, now_ms)
}

/// Issues a code that is displayed to the owner and copied by hand.
pub(super) fn issue_displayed_code(
    tx: &mut dyn Tx,
    client: &ClientMetadata,
    outcome: &ApprovalOutcome,
    now_ms: i64,
) -> Result<String> {
    insert_code(tx, "cex", client, outcome, None, now_ms)
}

fn insert_code(
    tx: &mut dyn Tx,
    prefix: &str,
    client: &ClientMetadata,
    outcome: &ApprovalOutcome,
    bound: Option<(String, String)>,
    now_ms: i64,
) -> Result<String> {
    let mut bits = [0; 32];
    getrandom::fill(&mut bits).map_err(|error| Error::corrupt("randomness", error))?;
    let code = format!("{prefix}_{}", HEXLOWER.encode(&bits));
    let stands = CodeSubject {
        client: client.clone(),
        outcome: outcome.clone(),
        bound,
    };
    let family = new_family(tx)?;
    tx.execute(
        "INSERT INTO code (hash, body, family, expires_ms, used_ms) VALUES (?1, ?2, ?3, ?4, NULL)",
        params![
            &token_hash(&Token::from_text(code.clone()))?,
            &serde_json::to_string(&stands)?,
            &family,
            now_ms + CODE_MS
        ],
    )?;
    Ok(code)
}

fn invalid_grant(why: &str) -> Error {
    Error::invalid_with_code(Code::InvalidGrant, "", why)
}

impl Records {
    /// Redeems an authorization code (RFC 6749, with PKCE).
    pub fn redeem_authorization_code(
        &self,
        code: &str,
        client_id: &str,
        redirect_uri: &str,
        verifier: &str,
    ) -> Result<Redemption> {
        self.redeem_code(code, |stands| {
            let (sent_to, challenge) = stands
                .bound
                .as_ref()
                .ok_or_else(|| invalid_grant("the code is unknown"))?;
            let hashed = BASE64URL_NOPAD.encode(&Sha256::digest(verifier.as_bytes()));
            let sound = (43..=128).contains(&verifier.len());
            if stands.client.client_id != client_id {
                return Err(invalid_grant("the code belongs to another client"));
            }
            if sent_to != redirect_uri {
                return Err(invalid_grant("the code was sent to another redirect_uri"));
            }
            if !sound || hashed != *challenge {
                return Err(invalid_grant("code_verifier does not match the challenge"));
            }
            Ok(())
        })
    }

    /// Redeems a code that the owner copied by hand.
    pub fn redeem_displayed_code(&self, code: &str) -> Result<Redemption> {
        self.redeem_code(code, |stands| match stands.bound {
            None => Ok(()),
            Some(_) => Err(invalid_grant("the code is unknown")),
        })
    }

    fn redeem_code(
        &self,
        code: &str,
        check: impl Fn(&CodeSubject) -> Result<()>,
    ) -> Result<Redemption> {
        let now_ms = self.now_ms();
        let hash = token_hash(&Token::from_text(code.to_owned()))?;
        self.store.write_tx(|tx| {
            let found = tx.query_one(
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
                found.ok_or_else(|| invalid_grant("the code is unknown"))?;
            let stands: CodeSubject = serde_json::from_str(&body)?;
            check(&stands)?;
            if used.is_some() {
                revoke_family(tx, &family, now_ms)?;
                return Ok(Redemption::Replayed);
            }
            if expires_ms <= now_ms {
                return Err(invalid_grant("the code has expired"));
            }
            let taken = tx.execute(
                "UPDATE code SET used_ms = ?2 WHERE hash = ?1 AND used_ms IS NULL",
                params![&hash, now_ms],
            )?;
            if taken != 1 {
                revoke_family(tx, &family, now_ms)?;
                return Ok(Redemption::Replayed);
            }
            let issued = issue_token(
                tx,
                &stands.client,
                stands.outcome.subject,
                &stands.outcome.holder,
                Some(&family),
                now_ms,
            )?;
            Ok(Redemption::Issued(Box::new(issued)))
        })
    }

    /// Rotates a refresh token. A replayed one revokes its token family.
    pub fn redeem_refresh_token(&self, shown: &str, client: &ClientMetadata) -> Result<Redemption> {
        let now_ms = self.now_ms();
        let hash = token_hash(&Token::from_text(shown.to_owned()))?;
        self.store.write_tx(|tx| {
            let found = tx.query_one(
                "SELECT r.family, r.client, r.subject, r.grant_id, r.package_id, r.used_ms, f.revoked_ms
                 FROM refresh r JOIN family f ON f.id = r.family WHERE r.hash = ?1",
                params![&hash],
                |row| {
                    let holder = match (row.maybe_text(3)?, row.maybe_text(4)?) {
                        (Some(grant), _) => TokenKind::Grant(grant.to_owned()),
                        (None, Some(package)) => TokenKind::Package(package.to_owned()),
                        (None, None) => return Err(invalid_grant("the refresh token is unknown")),
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
                found.ok_or_else(|| invalid_grant("the refresh token is unknown"))?;
            if owner != client.client_id {
                return Err(invalid_grant("the refresh token belongs to another client"));
            }
            if revoked.is_some() || !client.may_refresh() {
                return Err(invalid_grant("the refresh token has been revoked"));
            }
            let taken = match used {
                Some(_) => 0,
                None => tx.execute(
                    "UPDATE refresh SET used_ms = ?2 WHERE hash = ?1 AND used_ms IS NULL",
                    params![&hash, now_ms],
                )?,
            };
            if taken != 1 {
                revoke_family(tx, &family, now_ms)?;
                return Ok(Redemption::Replayed);
            }
            let issued = issue_token(tx, client, subject, &holder, Some(&family), now_ms)?;
            Ok(Redemption::Issued(Box::new(issued)))
        })
    }
}

fn revoke_family(tx: &mut dyn Tx, family: &str, now_ms: i64) -> Result<()> {
    tx.execute(
        "UPDATE family SET revoked_ms = ?2 WHERE id = ?1 AND revoked_ms IS NULL",
        params![family, now_ms],
    )?;
    Ok(())
}
