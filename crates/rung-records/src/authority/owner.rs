//! The owner's password and sessions.

use rung_auth::{Access, Password, Permit, Token};
use rung_fault::Code;

use crate::records::subject_no;
use crate::scope::Bearer;
use crate::store::{SqlRow, Tx, Value, params};
use crate::tokens::token_hash;
use crate::{Error, Records, Result};

/// Lifetime of a session.
pub const SESSION_MS: i64 = 7 * 24 * 60 * 60 * 1_000;
/// Number of wrong passwords before a delay applies.
const FREE_FAILURES: u32 = 5;
/// Longest delay after a wrong password. The delay doubles with each one.
const MAX_WAIT_MS: i64 = 15 * 60 * 1_000;

/// A new session of the owner.
#[derive(Debug)]
pub struct NewOwnerSession {
    /// The value of the session cookie.
    pub token: Token,
    /// Identifies the browser at the next sign-in.
    pub browser: Token,
}

/// Failed attempts, counted per known browser, and together for all unknown browsers.
struct LoginAttempts {
    table: &'static str,
    column: &'static str,
    subject: i64,
    browser: Option<String>,
    failures: i64,
    failed_ms: i64,
}

impl LoginAttempts {
    fn load(tx: &mut dyn Tx, subject: i64, browser: Option<&str>) -> Result<Self> {
        let counted = |row: &dyn SqlRow| Ok((row.int(0)?, row.int(1)?));
        let own = tx.query_one(
            "SELECT failures, failed_ms FROM browser WHERE hash = ?2 AND subject = ?1",
            params![subject, browser],
            counted,
        )?;
        let (table, column, browser, (failures, failed_ms)) = if let Some(own) = own {
            ("browser", "hash", browser.map(str::to_owned), own)
        } else {
            let sql = "SELECT failures, failed_ms FROM login WHERE subject = ?1";
            let all = tx.query_one(sql, params![subject], counted)?;
            ("login", "subject", None, all.unwrap_or_default())
        };
        Ok(Self {
            table,
            column,
            subject,
            browser,
            failures,
            failed_ms,
        })
    }

    fn key(&self) -> Value<'_> {
        match &self.browser {
            Some(browser) => Value::from(browser),
            None => Value::from(self.subject),
        }
    }

    /// Counts an attempt, or fails if it comes before the delay is over.
    fn count_attempt(&self, tx: &mut dyn Tx, now_ms: i64) -> Result<()> {
        let failures = u32::try_from(self.failures).unwrap_or(u32::MAX);
        let wait_ms = match failures.checked_sub(FREE_FAILURES) {
            None => 0,
            Some(more) => MAX_WAIT_MS.min(1_000i64 << more.min(20)),
        };
        let slow = |seconds: i64| {
            let why = format!("too many wrong passwords: try again in {seconds} s");
            Error::invalid_with_code(Code::SlowDown, "password", why)
        };
        let until_ms = self.failed_ms.saturating_add(wait_ms);
        if now_ms < until_ms {
            return Err(slow((until_ms - now_ms) / 1_000 + 1));
        }
        // Of several attempts that read the same count, exactly one proceeds.
        let sql = format!(
            "UPDATE {} SET failures = failures + 1, failed_ms = ?4 WHERE {} = ?1 AND failures = ?2 AND failed_ms = ?3",
            self.table, self.column
        );
        let params = [
            self.key(),
            Value::Int(self.failures),
            Value::Int(self.failed_ms),
            Value::Int(now_ms),
        ];
        match tx.execute(&sql, &params)? {
            1 => Ok(()),
            _ => Err(slow(1)),
        }
    }

    fn reset(&self, tx: &mut dyn Tx) -> Result<()> {
        let sql = format!(
            "UPDATE {} SET failures = 0, failed_ms = 0 WHERE {} = ?1",
            self.table, self.column
        );
        tx.execute(&sql, &[self.key()])?;
        Ok(())
    }

    /// Deletes the browser's token. Each sign-in issues a new one.
    fn forget_browser(&self, tx: &mut dyn Tx) -> Result<()> {
        tx.execute(
            "DELETE FROM browser WHERE subject = ?1 AND hash = ?2",
            params![self.subject, self.browser.as_ref()],
        )?;
        Ok(())
    }
}

impl Records {
    pub fn has_password(&self, subject_id: &str) -> Result<bool> {
        let found = self.store.read_tx(|tx| {
            let subject = subject_no(tx, subject_id)?;
            tx.query_one(
                "SELECT 1 FROM login WHERE subject = ?1",
                params![subject],
                |_| Ok(()),
            )
        })?;
        Ok(found.is_some())
    }

    pub fn verify_password(&self, owner: &Bearer, password: &str) -> Result<bool> {
        owner.require_owner()?;
        let hash = self.store.read_tx(|tx| {
            tx.query_one(
                "SELECT password FROM login WHERE subject = ?1",
                params![owner.subject],
                |row| Ok(row.text(0)?.to_owned()),
            )
        })?;
        Ok(hash.is_some_and(|hash| Password::from_hash(hash).verify(password)))
    }

    /// Sets the owner's password and ends all sessions.
    pub fn set_password(&self, owner: &Bearer, password: &str) -> Result<()> {
        owner.require_owner()?;
        let hash = Password::hash(password).map_err(|error| Error::corrupt("password", error))?;
        self.store.write_tx(|tx| {
            tx.execute(
                "INSERT INTO login (subject, password, failures, failed_ms) VALUES (?1, ?2, 0, 0)
                 ON CONFLICT (subject) DO UPDATE SET password = excluded.password, failures = 0, failed_ms = 0",
                params![owner.subject, hash.as_str()],
            )?;
            tx.execute("DELETE FROM session WHERE subject = ?1", params![owner.subject])?;
            Ok(())
        })
    }

    /// Signs the owner in. A known browser has its own count of failures, so attackers cannot lock it out.
    pub fn sign_in(
        &self,
        subject_id: &str,
        password: &str,
        browser: Option<&str>,
    ) -> Result<NewOwnerSession> {
        let now_ms = self.now_ms();
        let refused = || {
            Error::invalid_with_code(
                Code::AuthenticationError,
                "password",
                "the password is wrong",
            )
        };
        let browser = browser
            .map(|shown| token_hash(&Token::from_text(shown.to_owned())))
            .transpose()?;
        // Count the attempt as failed before verifying it, so that parallel attempts cannot exceed the limit.
        let known = self.store.write_tx(|tx| {
            let Some(subject) = subject_no(tx, subject_id)? else {
                return Ok(None);
            };
            let hash = tx.query_one(
                "SELECT password FROM login WHERE subject = ?1",
                params![subject],
                |row| Ok(row.text(0)?.to_owned()),
            )?;
            let Some(hash) = hash else {
                return Ok(None);
            };
            let from = LoginAttempts::load(tx, subject, browser.as_deref())?;
            from.count_attempt(tx, now_ms)?;
            Ok(Some((subject, hash, from)))
        })?;
        let (subject, hash, from) = known.ok_or_else(refused)?;
        if !Password::from_hash(hash.clone()).verify(password) {
            return Err(refused());
        }
        let generate = || Token::generate().map_err(|error| Error::corrupt("token", error));
        let (token, browser) = (generate()?, generate()?);
        let (session, known) = (token_hash(&token)?, token_hash(&browser)?);
        self.store.write_tx(|tx| {
            from.reset(tx)?;
            // No session if the password was changed in the meantime.
            let begun = tx.execute(
                "INSERT INTO session (hash, subject, expires_ms)
                 SELECT ?1, ?2, ?3 FROM login WHERE subject = ?2 AND password = ?4",
                params![&session, subject, now_ms + SESSION_MS, &hash],
            )?;
            if begun != 1 {
                return Err(refused());
            }
            from.forget_browser(tx)?;
            tx.execute(
                "INSERT INTO browser (hash, subject, failures, failed_ms) VALUES (?1, ?2, 0, 0)",
                params![&known, subject],
            )
        })?;
        Ok(NewOwnerSession { token, browser })
    }

    /// Returns the owner, if the cookie belongs to a live session.
    pub fn session_owner(&self, shown: &str) -> Result<Option<Bearer>> {
        let hash = token_hash(&Token::from_text(shown.to_owned()))?;
        let now_ms = self.now_ms();
        self.store.read_tx(|tx| {
            tx.query_one(
                "SELECT s.no, s.id FROM session e JOIN subject s ON s.no = e.subject WHERE e.hash = ?1 AND e.expires_ms > ?2",
                params![&hash, now_ms],
                |row| {
                    Ok(Bearer {
                        permit: Permit::local_user(Access::Write),
                        subject: row.int(0)?,
                        subject_id: row.text(1)?.to_owned(),
                        grant: None,
                    })
                },
            )
        })
    }

    pub fn sign_out(&self, shown: &str) -> Result<()> {
        let hash = token_hash(&Token::from_text(shown.to_owned()))?;
        self.store
            .write_tx(|tx| tx.execute("DELETE FROM session WHERE hash = ?1", params![&hash]))?;
        Ok(())
    }
}
