//! Who may come through the door: tokens by name, kept as hashes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rung_auth::{Access, GIVEN, Permit, Scope, TOKEN_GRANT, Token, TokenRecord, admit};
use rung_fault::{Code, Coded as _, Fault};
use rung_mcp::http::{Admission, Denied};
use rung_tool::Pending;
use tokio::task::JoinHandle;

use crate::offer::now_ms;

/// Names of callers that have no token.
const RESERVED: [&str; 2] = ["local", "anonymous"];

/// Whether somebody came with a token of a grant of personal data: what they are offered is that data, and nothing else.
pub(crate) fn is_agent(permit: &Permit) -> bool {
    let grant = permit.grant().as_str();
    !grant.starts_with(TOKEN_GRANT) && !RESERVED.contains(&grant)
}

/// Bytes of a name.
const MAX_NAME_BYTES: usize = 200;

/// The tokens on record: of one machine, or of all processes on a database.
#[derive(Clone)]
pub(crate) enum Tokens {
    Folder(rung_kv::Records),
    Database(Arc<rung_records::Records>),
}

impl Tokens {
    fn add(&self, name: &str, record: &str) -> Result<bool, Fault> {
        Ok(match self {
            // A token that has ended stays on record until it is revoked: time alone must not open the door.
            Self::Folder(records) => records.add(name, record.as_bytes(), now_ms(), None)?,
            Self::Database(records) => records.add_guest(name, record)?,
        })
    }

    /// Makes a token for `name`. It is shown once. What is granted with it is given before anybody has it: `give` is told
    /// under which name.
    pub(crate) fn new_token(
        &self,
        name: &str,
        access: Access,
        expires_ms: Option<u64>,
        scope: Option<Scope>,
        give: impl FnOnce(&str) -> Result<(), Fault>,
    ) -> Result<Token, Fault> {
        if RESERVED.contains(&name) {
            let why = format!("{name} is the name of whoever comes without a token");
            return Err(Fault::new(Code::InvalidArguments, why).with_hint("choose another name"));
        }
        if name.len() > MAX_NAME_BYTES {
            let why = format!("a name has {MAX_NAME_BYTES} bytes at most");
            return Err(Fault::new(Code::InvalidArguments, why).with_hint("choose a shorter name"));
        }
        let token = Token::generate()?;
        let hash = serde_json::to_value(token.hash()).map_err(internal)?;
        // A new token of an old name is another grant: what the old one kept, it does not see.
        let grant = format!("{TOKEN_GRANT}{}", &hash.as_str().unwrap_or_default()[..16]);
        if self
            .list()?
            .iter()
            .any(|record| record.caller.as_str() == name)
        {
            return Err(taken(name));
        }
        give(&grant)?;
        let record = TokenRecord {
            hash: token.hash(),
            caller: name.to_owned().try_into()?,
            grant: grant.try_into()?,
            access,
            expires_ms,
            scope: scope.map(Arc::new),
        };
        let record = serde_json::to_string(&record).map_err(internal)?;
        if !self.add(name, &record)? {
            return Err(taken(name));
        }
        Ok(token)
    }

    pub(crate) fn list(&self) -> Result<Vec<TokenRecord>, Fault> {
        match self {
            Self::Folder(records) => read_rows(&records.list(now_ms())?),
            Self::Database(records) => {
                let all = records.guests()?;
                let read = |record: &String| serde_json::from_str(record).map_err(internal);
                all.iter().map(read).collect()
            }
        }
    }

    pub(crate) fn revoke(&self, name: &str) -> Result<(), Fault> {
        let removed = match self {
            Self::Folder(records) => records.remove(name)?,
            Self::Database(records) => records.remove_guest(name)?,
        };
        if removed {
            return Ok(());
        }
        Err(
            Fault::new(Code::NotFound, format!("no token is named {name:?}"))
                .with_hint("`rung token list` names them"),
        )
    }
}

impl rung_records::TokenRegistry for Tokens {
    fn list(&self) -> rung_records::Result<Vec<TokenRecord>> {
        Self::list(self).map_err(|fault| broken(&fault))
    }

    fn remove(&self, grant: &str) -> rung_records::Result<bool> {
        let all = Self::list(self).map_err(|fault| broken(&fault))?;
        let token = all.iter().find(|record| record.grant.as_str() == grant);
        match token {
            Some(token) => self
                .revoke(token.caller.as_str())
                .map_err(|fault| broken(&fault))?,
            None => return Ok(false),
        }
        Ok(true)
    }
}

fn broken(fault: &Fault) -> rung_records::Error {
    rung_records::Error::Broken(fault.to_string())
}

fn read_rows(rows: &[(String, Vec<u8>)]) -> Result<Vec<TokenRecord>, Fault> {
    let read = |(_, record): &(String, Vec<u8>)| serde_json::from_slice(record).map_err(internal);
    rows.iter().map(read).collect()
}

fn taken(name: &str) -> Fault {
    let why = format!("there is a token named {name:?} already");
    Fault::new(Code::InvalidArguments, why).with_hint(format!(
        "choose another name, or `rung token revoke {name}` first"
    ))
}

fn internal(error: impl std::fmt::Display) -> Fault {
    Fault::new(Code::Internal, error.to_string())
}

/// What admits whoever shows a token that is on no record, to read and to write.
pub(crate) fn given(token: String) -> Result<TokenRecord, Fault> {
    Ok(TokenRecord {
        hash: Token::shown(token).hash(),
        caller: "given".to_owned().try_into()?,
        grant: GIVEN.to_owned().try_into()?,
        access: Access::Write,
        expires_ms: None,
        scope: None,
    })
}

/// The token that the environment gives, if it does.
pub(crate) fn exported() -> Result<Option<TokenRecord>, Fault> {
    let token = std::env::var("PMCP_AUTH_TOKEN").ok();
    let token = token.filter(|token| !token.is_empty());
    token.map(given).transpose()
}

/// Lets in whoever has a token, of ours or of a grant; and anybody, where that is safe or was asked for.
pub(crate) struct Guests {
    tokens: Tokens,
    /// Where grants are kept, if they are given here.
    records: Option<Arc<rung_records::Records>>,
    open: Open,
    known: Arc<Mutex<Known>>,
    agents: Arc<Mutex<Agents>>,
    /// Whether there is personal data, as far as is known.
    guarding: AtomicBool,
    /// Who is let in by a token that is on no record.
    given: Option<TokenRecord>,
}

/// Agents that came with the token of a grant, and when it was last looked whether it holds.
type Agents = HashMap<(String, String), Agent>;

struct Agent {
    token: Token,
    asked: Instant,
    holds: bool,
    /// How many grants hold that were given together, if several were.
    package_members: Option<usize>,
}

/// Agents that are remembered.
const MAX_AGENTS: usize = 4_096;

/// The tokens as they were last read.
#[derive(Default)]
struct Known {
    records: Vec<TokenRecord>,
    /// The version of the data folder's store then. While it is the same, nothing need be read.
    version: Option<usize>,
    /// When a database was last asked.
    asked: Option<Instant>,
}

/// A stream that is open goes on for so long at most when its token was revoked by another process on the database.
const MAX_AGE: Duration = Duration::from_secs(1);

/// When somebody without a token is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    /// Always: somebody who knows what they do said so.
    Always,
    /// While no token exists, on a listener that only this machine reaches.
    WhileNoToken,
    /// Never.
    Never,
}

impl Guests {
    pub(crate) fn new(
        tokens: Tokens,
        records: Option<Arc<rung_records::Records>>,
        open: Open,
    ) -> Self {
        Self {
            tokens,
            records,
            open,
            known: Arc::default(),
            agents: Arc::default(),
            guarding: AtomicBool::new(false),
            given: None,
        }
    }

    /// Lets in whoever shows this token as well.
    pub(crate) fn or_token(mut self, given: Option<TokenRecord>) -> Self {
        self.given = given;
        self
    }

    /// Whether there is personal data here, which once it is there is taken to stay.
    async fn guards_data(&self) -> Result<bool, Denied> {
        let Some(records) = self.records.clone() else {
            return Ok(false);
        };
        if self.guarding.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let asked = tokio::task::spawn_blocking(move || records.is_used()).await;
        let asked = asked.map_err(|error| Denied::Broken(error.to_string()))?;
        let used = asked.map_err(|error| Denied::Broken(error.to_string()))?;
        self.guarding.store(used, Ordering::Relaxed);
        Ok(used)
    }

    /// Lets in an agent that comes with the token of a grant.
    async fn agent(&self, shown: &str) -> Result<Permit, Denied> {
        let records = self.records.clone().ok_or(Denied::BadToken)?;
        let token = shown.to_owned();
        let asked = tokio::task::spawn_blocking(move || records.agent(&token)).await;
        let asked = asked.map_err(|error| Denied::Broken(error.to_string()))?;
        let agent = asked.map_err(|error| match error.code() {
            Code::PermissionError => Denied::NotHere,
            Code::PackageRevoked => Denied::Over,
            code if code.class() == rung_fault::Class::Auth => Denied::BadToken,
            _ => Denied::Broken(error.to_string()),
        })?;
        let mut agents = self.agents.lock();
        if agents.len() >= MAX_AGENTS {
            agents.retain(|_, agent| agent.asked.elapsed() < Duration::from_mins(10));
        }
        // Whoever is forgotten is let in anew when they come again.
        if agents.len() >= MAX_AGENTS
            && let Some(longest) = agents.iter().max_by_key(|(_, agent)| agent.asked.elapsed())
        {
            let longest = longest.0.clone();
            agents.remove(&longest);
        }
        agents.insert(
            name(&agent.permit),
            Agent {
                token: Token::shown(shown.to_owned()),
                asked: Instant::now(),
                holds: true,
                package_members: agent.package_members,
            },
        );
        Ok(agent.permit)
    }

    /// Whether the grant of an agent holds, as far as is known without waiting.
    fn still_holds(&self, permit: &Permit) -> bool {
        let mut agents = self.agents.lock();
        let Some(agent) = agents.get_mut(&name(permit)) else {
            return false;
        };
        if agent.asked.elapsed() > MAX_AGE
            && let Some(records) = self.records.clone()
        {
            agent.asked = Instant::now();
            let agents = self.agents.clone();
            let (shown, name) = (agent.token.expose().clone(), name(permit));
            // Whoever is shown something next is judged by what it finds.
            drop(tokio::task::spawn_blocking(move || {
                let holds = records.agent(&shown).is_ok();
                if let Some(agent) = agents.lock().get_mut(&name) {
                    agent.holds = holds;
                }
            }));
        }
        agent.holds
    }

    /// Looks at the tokens as they are now.
    async fn with_current<T>(&self, f: impl FnOnce(&[TokenRecord]) -> T) -> Result<T, Denied> {
        match &self.tokens {
            Tokens::Folder(records) => self.with_own(records, f),
            Tokens::Database(_) => {
                self.ask()
                    .await
                    .map_err(|error| Denied::Broken(error.to_string()))?
                    .map_err(|fault| Denied::Broken(fault.to_string()))?;
                Ok(f(&self.known.lock().records))
            }
        }
    }

    /// Looks at the tokens of the data folder, which are read again when something was written.
    fn with_own<T>(
        &self,
        records: &rung_kv::Records,
        f: impl FnOnce(&[TokenRecord]) -> T,
    ) -> Result<T, Denied> {
        let mut known = self.known.lock();
        if known.version != Some(records.version()) {
            let broken = |why: String| Denied::Broken(why);
            let listed = records.list_at_version(now_ms());
            // Of the version that was read, which may be the one before: then it is read again the next time.
            let (version, rows) = listed.map_err(|error| broken(error.to_string()))?;
            known.records = read_rows(&rows).map_err(|fault| broken(fault.to_string()))?;
            known.version = Some(version);
        }
        Ok(f(&known.records))
    }

    /// Reads the tokens anew, on a thread that may wait.
    fn ask(&self) -> JoinHandle<Result<(), Fault>> {
        let (tokens, known) = (self.tokens.clone(), self.known.clone());
        tokio::task::spawn_blocking(move || {
            let records = tokens.list()?;
            let mut known = known.lock();
            known.records = records;
            known.asked = Some(Instant::now());
            Ok(())
        })
    }

    fn judge(&self, bearer: Option<&str>, records: &[TokenRecord]) -> Result<Permit, Denied> {
        match (bearer, self.open) {
            (Some(token), _) => {
                let token = Token::shown(token.to_owned());
                let records = records.iter().chain(&self.given);
                admit(&token, records, now_ms()).map_err(|_| Denied::BadToken)
            }
            (None, Open::Always) => Ok(Permit::anonymous()),
            (None, Open::WhileNoToken) if records.is_empty() && self.given.is_none() => {
                Ok(Permit::anonymous())
            }
            (None, Open::WhileNoToken | Open::Never) => Err(Denied::NoToken),
        }
    }

    fn holds(&self, permit: &Permit, records: &[TokenRecord]) -> bool {
        if *permit == Permit::anonymous() {
            return self.judge(None, records).is_ok();
        }
        let now_ms = now_ms();
        records.iter().chain(&self.given).any(|record| {
            let mine = (&record.caller, &record.grant) == (permit.caller(), permit.grant());
            mine && record.expires_ms.is_none_or(|end| end > now_ms)
        })
    }
}

/// Who, under which grant.
fn name(permit: &Permit) -> (String, String) {
    (permit.caller().to_string(), permit.grant().to_string())
}

impl Admission for Guests {
    fn admit<'a>(&'a self, bearer: Option<&'a str>) -> Pending<'a, Result<Permit, Denied>> {
        Box::pin(async move {
            let judged = self
                .with_current(|records| self.judge(bearer, records))
                .await?;
            match (judged, bearer) {
                (Err(Denied::BadToken), Some(shown)) => self.agent(shown).await,
                // Where there is somebody's data, nobody comes in without saying who they are.
                (Ok(_), None) if self.open == Open::WhileNoToken && self.guards_data().await? => {
                    Err(Denied::NoToken)
                }
                (judged, _) => judged,
            }
        })
    }

    /// Whoever has a grant is told of that grant alone.
    fn may_watch(&self, permit: &Permit) -> bool {
        !is_agent(permit) && permit.scope().is_none()
    }

    /// Personal data is read without anything being remembered of it here.
    fn is_stateless(&self, permit: &Permit) -> bool {
        is_agent(permit)
    }

    fn says(&self, permit: &Permit) -> Vec<(&'static str, String)> {
        let agents = self.agents.lock();
        let members = agents
            .get(&name(permit))
            .and_then(|agent| agent.package_members);
        let Some(members) = members else {
            return Vec::new();
        };
        vec![
            ("x-pdpp-grant-package-id", permit.grant().to_string()),
            ("x-pdpp-grant-package-member-count", members.to_string()),
        ]
    }

    fn still_admits(&self, permit: &Permit) -> bool {
        if self.agents.lock().contains_key(&name(permit)) {
            return self.still_holds(permit);
        }
        match &self.tokens {
            Tokens::Folder(records) => self
                .with_own(records, |records| self.holds(permit, records))
                .unwrap_or(false),
            Tokens::Database(_) => {
                let mut known = self.known.lock();
                if known.asked.is_none_or(|asked| asked.elapsed() > MAX_AGE) {
                    known.asked = Some(Instant::now());
                    // Whoever is shown something next is judged by what it finds.
                    drop(self.ask());
                }
                self.holds(permit, &known.records)
            }
        }
    }
}
