//! Bearer tokens, stored by name as hashes, and the authentication of HTTP clients.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rung_auth::{
    Access, Permit, SHARED_TOKEN_GRANT, Scope, TOKEN_GRANT, Token, TokenRecord, admit,
};
use rung_fault::{Code, Coded as _, Fault};
use rung_mcp::http::{AuthError, Authenticator};
use rung_tool::BoxFuture;
use tokio::task::JoinHandle;

use crate::server_config::now_ms;

/// Names of callers without a token.
const RESERVED: [&str; 2] = ["local", "anonymous"];

/// Returns true if the caller holds a token of a personal-data grant: such a caller is offered personal data alone.
pub(crate) fn is_grant_client(permit: &Permit) -> bool {
    let grant = permit.grant().as_str();
    !grant.starts_with(TOKEN_GRANT) && !RESERVED.contains(&grant)
}

/// Maximum bytes of a token name.
const MAX_NAME_BYTES: usize = 200;

/// Token store: of one data folder, or of the database that several processes share.
#[derive(Clone)]
pub(crate) enum TokenStore {
    Local(rung_kv::RecordTable),
    Shared(Arc<rung_records::Records>),
}

impl TokenStore {
    fn add(&self, name: &str, record: &str) -> Result<bool, Fault> {
        Ok(match self {
            // An expired token stays on record until it is revoked: expiry alone must not reopen anonymous access.
            Self::Local(records) => records.add(name, record.as_bytes(), now_ms(), None)?,
            Self::Shared(records) => records.add_bearer_token(name, record)?,
        })
    }

    /// Creates a token for `name`. `give` issues its grants, under the grant ID that it receives, before the token exists.
    pub(crate) fn new_token(
        &self,
        name: &str,
        access: Access,
        expires_ms: Option<u64>,
        scope: Option<Scope>,
        give: impl FnOnce(&str) -> Result<(), Fault>,
    ) -> Result<Token, Fault> {
        if RESERVED.contains(&name) {
            let why = format!("{name} is the name of clients without a token");
            return Err(Fault::new(Code::InvalidArguments, why).with_hint("choose another name"));
        }
        if name.len() > MAX_NAME_BYTES {
            let why = format!("the name is longer than {MAX_NAME_BYTES} bytes");
            return Err(Fault::new(Code::InvalidArguments, why).with_hint("choose a shorter name"));
        }
        let token = Token::generate()?;
        let hash = serde_json::to_value(token.hash()).map_err(internal_fault)?;
        // A new token with a reused name is a new grant: it cannot see results of the old one.
        let grant = format!("{TOKEN_GRANT}{}", &hash.as_str().unwrap_or_default()[..16]);
        if self
            .list()?
            .iter()
            .any(|record| record.caller.as_str() == name)
        {
            return Err(name_taken_fault(name));
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
        let record = serde_json::to_string(&record).map_err(internal_fault)?;
        if !self.add(name, &record)? {
            return Err(name_taken_fault(name));
        }
        Ok(token)
    }

    pub(crate) fn list(&self) -> Result<Vec<TokenRecord>, Fault> {
        match self {
            Self::Local(records) => parse_rows(&records.list(now_ms())?),
            Self::Shared(records) => {
                let all = records.bearer_tokens()?;
                let read = |record: &String| serde_json::from_str(record).map_err(internal_fault);
                all.iter().map(read).collect()
            }
        }
    }

    pub(crate) fn revoke(&self, name: &str) -> Result<(), Fault> {
        let removed = match self {
            Self::Local(records) => records.remove(name)?,
            Self::Shared(records) => records.remove_bearer_token(name)?,
        };
        if removed {
            return Ok(());
        }
        Err(
            Fault::new(Code::NotFound, format!("no token is named {name:?}"))
                .with_hint("list the tokens with `rung token list`"),
        )
    }
}

impl rung_records::TokenRegistry for TokenStore {
    fn list(&self) -> rung_records::Result<Vec<TokenRecord>> {
        Self::list(self).map_err(|fault| store_error(&fault))
    }

    fn remove(&self, grant: &str) -> rung_records::Result<bool> {
        let all = Self::list(self).map_err(|fault| store_error(&fault))?;
        let token = all.iter().find(|record| record.grant.as_str() == grant);
        match token {
            Some(token) => self
                .revoke(token.caller.as_str())
                .map_err(|fault| store_error(&fault))?,
            None => return Ok(false),
        }
        Ok(true)
    }
}

fn store_error(fault: &Fault) -> rung_records::Error {
    rung_records::Error::Broken(fault.to_string())
}

fn parse_rows(rows: &[(String, Vec<u8>)]) -> Result<Vec<TokenRecord>, Fault> {
    let read =
        |(_, record): &(String, Vec<u8>)| serde_json::from_slice(record).map_err(internal_fault);
    rows.iter().map(read).collect()
}

fn name_taken_fault(name: &str) -> Fault {
    let why = format!("a token named {name:?} exists already");
    Fault::new(Code::InvalidArguments, why).with_hint(format!(
        "choose another name, or `rung token revoke {name}` first"
    ))
}

fn internal_fault(error: impl std::fmt::Display) -> Fault {
    Fault::new(Code::Internal, error.to_string())
}

/// Returns the record, with write access, of a token that is given by flag or environment and not stored.
pub(crate) fn unstored_token(token: String) -> Result<TokenRecord, Fault> {
    Ok(TokenRecord {
        hash: Token::from_text(token).hash(),
        caller: "given".to_owned().try_into()?,
        grant: SHARED_TOKEN_GRANT.to_owned().try_into()?,
        access: Access::Write,
        expires_ms: None,
        scope: None,
    })
}

/// Returns the token in `PMCP_AUTH_TOKEN`, if it is set.
pub(crate) fn env_token() -> Result<Option<TokenRecord>, Fault> {
    let token = std::env::var("PMCP_AUTH_TOKEN").ok();
    let token = token.filter(|token| !token.is_empty());
    token.map(unstored_token).transpose()
}

/// Authenticates HTTP clients by stored tokens and by grant tokens, and admits anonymous clients as `open` allows.
pub(crate) struct TokenAuthenticator {
    tokens: TokenStore,
    /// Store of personal-data grants, if this server issues them.
    records: Option<Arc<rung_records::Records>>,
    open: AnonymousAccess,
    token_cache: Arc<Mutex<TokenCache>>,
    admitted_clients: Arc<Mutex<AdmittedClients>>,
    /// True once personal data was found.
    has_data: AtomicBool,
    /// Token that is given by flag or environment and not stored.
    unstored_token: Option<TokenRecord>,
}

/// Clients with grant tokens, by caller and grant.
type AdmittedClients = HashMap<(String, String), AdmittedClient>;

struct AdmittedClient {
    token: Token,
    checked_at: Instant,
    is_valid: bool,
    /// Number of valid grants in the package, if several were issued together.
    package_members: Option<usize>,
}

/// Maximum number of remembered clients.
const MAX_ADMITTED_CLIENTS: usize = 4_096;

/// Tokens as last read.
#[derive(Default)]
struct TokenCache {
    records: Vec<TokenRecord>,
    /// Version of the data folder's store at that time. The tokens are current while it is unchanged.
    version: Option<usize>,
    /// Time of the last query of the shared database.
    queried_at: Option<Instant>,
}

/// Maximum time that an open stream continues after another process on the database revoked its token.
const MAX_CHECK_AGE: Duration = Duration::from_secs(1);

/// When clients without a token are admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnonymousAccess {
    /// Always, by explicit choice of the operator.
    Always,
    /// While no token exists, on a loopback listener.
    WhileNoToken,
    Never,
}

impl TokenAuthenticator {
    pub(crate) fn new(
        tokens: TokenStore,
        records: Option<Arc<rung_records::Records>>,
        open: AnonymousAccess,
    ) -> Self {
        Self {
            tokens,
            records,
            open,
            token_cache: Arc::default(),
            admitted_clients: Arc::default(),
            has_data: AtomicBool::new(false),
            unstored_token: None,
        }
    }

    /// Also accepts this token, which is not stored.
    pub(crate) fn with_token(mut self, given: Option<TokenRecord>) -> Self {
        self.unstored_token = given;
        self
    }

    /// Returns true if there is personal data. A positive result is cached for good.
    async fn has_personal_data(&self) -> Result<bool, AuthError> {
        let Some(records) = self.records.clone() else {
            return Ok(false);
        };
        if self.has_data.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let asked = tokio::task::spawn_blocking(move || records.has_connections()).await;
        let asked = asked.map_err(|error| AuthError::Unavailable(error.to_string()))?;
        let used = asked.map_err(|error| AuthError::Unavailable(error.to_string()))?;
        self.has_data.store(used, Ordering::Relaxed);
        Ok(used)
    }

    /// Authenticates a client by the token of a grant.
    async fn admit_grant_client(&self, shown: &str) -> Result<Permit, AuthError> {
        let records = self.records.clone().ok_or(AuthError::InvalidToken)?;
        let token = shown.to_owned();
        let asked = tokio::task::spawn_blocking(move || records.authenticate_agent(&token)).await;
        let asked = asked.map_err(|error| AuthError::Unavailable(error.to_string()))?;
        let agent = asked.map_err(|error| match error.code() {
            Code::PermissionError => AuthError::WrongEndpoint,
            Code::PackageRevoked => AuthError::GrantRevoked,
            code if code.class() == rung_fault::Class::Auth => AuthError::InvalidToken,
            _ => AuthError::Unavailable(error.to_string()),
        })?;
        let mut agents = self.admitted_clients.lock();
        if agents.len() >= MAX_ADMITTED_CLIENTS {
            agents.retain(|_, agent| agent.checked_at.elapsed() < Duration::from_mins(10));
        }
        // A removed client is authenticated anew at its next request.
        if agents.len() >= MAX_ADMITTED_CLIENTS
            && let Some(longest) = agents
                .iter()
                .max_by_key(|(_, agent)| agent.checked_at.elapsed())
        {
            let longest = longest.0.clone();
            agents.remove(&longest);
        }
        agents.insert(
            caller_and_grant(&agent.permit),
            AdmittedClient {
                token: Token::from_text(shown.to_owned()),
                checked_at: Instant::now(),
                is_valid: true,
                package_members: agent.active_package_grants,
            },
        );
        Ok(agent.permit)
    }

    /// Returns true if the grant of a client was valid at the last check. Starts a new check in the background if that is old.
    fn is_grant_valid(&self, permit: &Permit) -> bool {
        let mut agents = self.admitted_clients.lock();
        let Some(agent) = agents.get_mut(&caller_and_grant(permit)) else {
            return false;
        };
        if agent.checked_at.elapsed() > MAX_CHECK_AGE
            && let Some(records) = self.records.clone()
        {
            agent.checked_at = Instant::now();
            let agents = self.admitted_clients.clone();
            let (shown, name) = (agent.token.expose().clone(), caller_and_grant(permit));
            // The result counts from the next check on.
            drop(tokio::task::spawn_blocking(move || {
                let holds = records.authenticate_agent(&shown).is_ok();
                if let Some(agent) = agents.lock().get_mut(&name) {
                    agent.is_valid = holds;
                }
            }));
        }
        agent.is_valid
    }

    /// Calls `f` with the current tokens.
    async fn with_tokens<T>(&self, f: impl FnOnce(&[TokenRecord]) -> T) -> Result<T, AuthError> {
        match &self.tokens {
            TokenStore::Local(records) => self.with_folder_tokens(records, f),
            TokenStore::Shared(_) => {
                self.refresh_tokens()
                    .await
                    .map_err(|error| AuthError::Unavailable(error.to_string()))?
                    .map_err(|fault| AuthError::Unavailable(fault.to_string()))?;
                Ok(f(&self.token_cache.lock().records))
            }
        }
    }

    /// Calls `f` with the tokens of the data folder, which are read again if the store has changed.
    fn with_folder_tokens<T>(
        &self,
        records: &rung_kv::RecordTable,
        f: impl FnOnce(&[TokenRecord]) -> T,
    ) -> Result<T, AuthError> {
        let mut known = self.token_cache.lock();
        if known.version != Some(records.version()) {
            let broken = |why: String| AuthError::Unavailable(why);
            let listed = records.list_at_version(now_ms());
            // Keep the version that was read. If it is outdated already, the next call reads again.
            let (version, rows) = listed.map_err(|error| broken(error.to_string()))?;
            known.records = parse_rows(&rows).map_err(|fault| broken(fault.to_string()))?;
            known.version = Some(version);
        }
        Ok(f(&known.records))
    }

    /// Reads the tokens again, on a blocking thread.
    fn refresh_tokens(&self) -> JoinHandle<Result<(), Fault>> {
        let (tokens, known) = (self.tokens.clone(), self.token_cache.clone());
        tokio::task::spawn_blocking(move || {
            let records = tokens.list()?;
            let mut known = known.lock();
            known.records = records;
            known.queried_at = Some(Instant::now());
            Ok(())
        })
    }

    fn check_token(
        &self,
        bearer: Option<&str>,
        records: &[TokenRecord],
    ) -> Result<Permit, AuthError> {
        match (bearer, self.open) {
            (Some(token), _) => {
                let token = Token::from_text(token.to_owned());
                let records = records.iter().chain(&self.unstored_token);
                admit(&token, records, now_ms()).map_err(|_| AuthError::InvalidToken)
            }
            (None, AnonymousAccess::Always) => Ok(Permit::anonymous()),
            (None, AnonymousAccess::WhileNoToken)
                if records.is_empty() && self.unstored_token.is_none() =>
            {
                Ok(Permit::anonymous())
            }
            (None, AnonymousAccess::WhileNoToken | AnonymousAccess::Never) => {
                Err(AuthError::MissingToken)
            }
        }
    }

    fn is_admitted(&self, permit: &Permit, records: &[TokenRecord]) -> bool {
        if *permit == Permit::anonymous() {
            return self.check_token(None, records).is_ok();
        }
        let now_ms = now_ms();
        records.iter().chain(&self.unstored_token).any(|record| {
            let mine = (&record.caller, &record.grant) == (permit.caller(), permit.grant());
            mine && record.expires_ms.is_none_or(|end| end > now_ms)
        })
    }
}

/// Returns the caller and grant of a permit.
fn caller_and_grant(permit: &Permit) -> (String, String) {
    (permit.caller().to_string(), permit.grant().to_string())
}

impl Authenticator for TokenAuthenticator {
    fn authenticate<'a>(
        &'a self,
        bearer: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Permit, AuthError>> {
        Box::pin(async move {
            let judged = self
                .with_tokens(|records| self.check_token(bearer, records))
                .await?;
            match (judged, bearer) {
                (Err(AuthError::InvalidToken), Some(shown)) => self.admit_grant_client(shown).await,
                // Once there is personal data, anonymous clients are rejected.
                (Ok(_), None)
                    if self.open == AnonymousAccess::WhileNoToken
                        && self.has_personal_data().await? =>
                {
                    Err(AuthError::MissingToken)
                }
                (judged, _) => judged,
            }
        })
    }

    /// Returns true for tokens without a scope. Callers under a grant must not see the metrics of all.
    fn may_read_metrics(&self, permit: &Permit) -> bool {
        !is_grant_client(permit) && permit.scope().is_none()
    }

    /// Clients of personal data have no sessions.
    fn is_stateless(&self, permit: &Permit) -> bool {
        is_grant_client(permit)
    }

    fn response_headers(&self, permit: &Permit) -> Vec<(&'static str, String)> {
        let agents = self.admitted_clients.lock();
        let members = agents
            .get(&caller_and_grant(permit))
            .and_then(|agent| agent.package_members);
        let Some(members) = members else {
            return Vec::new();
        };
        vec![
            ("x-pdpp-grant-package-id", permit.grant().to_string()),
            ("x-pdpp-grant-package-member-count", members.to_string()),
        ]
    }

    fn is_still_valid(&self, permit: &Permit) -> bool {
        if self
            .admitted_clients
            .lock()
            .contains_key(&caller_and_grant(permit))
        {
            return self.is_grant_valid(permit);
        }
        match &self.tokens {
            TokenStore::Local(records) => self
                .with_folder_tokens(records, |records| self.is_admitted(permit, records))
                .unwrap_or(false),
            TokenStore::Shared(_) => {
                let mut known = self.token_cache.lock();
                if known
                    .queried_at
                    .is_none_or(|asked| asked.elapsed() > MAX_CHECK_AGE)
                {
                    known.queried_at = Some(Instant::now());
                    // The result counts from the next check on.
                    drop(self.refresh_tokens());
                }
                self.is_admitted(permit, &known.records)
            }
        }
    }
}
