//! Who may come through the door: tokens by name, kept as hashes.

use parking_lot::Mutex;
use rung_auth::{Access, Permit, Token, TokenRecord, admit};
use rung_fault::{Code, Fault};
use rung_kv::Records;
use rung_mcp::http::{Admission, Denied};

use crate::offer::now_ms;

/// Names of callers that have no token.
const RESERVED: [&str; 2] = ["local", "anonymous"];

/// Bytes of a name.
const MAX_NAME_BYTES: usize = 200;

/// The tokens on record.
#[derive(Clone)]
pub(crate) struct Tokens(pub(crate) Records);

impl Tokens {
    /// Makes a token for `name`. It is shown once.
    pub(crate) fn new_token(
        &self,
        name: &str,
        access: Access,
        expires_ms: Option<u64>,
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
        let grant = format!("token:{}", &hash.as_str().unwrap_or_default()[..16]);
        let record = TokenRecord {
            hash: token.hash(),
            caller: name.to_owned().try_into()?,
            grant: grant.try_into()?,
            access,
            expires_ms,
        };
        let record = serde_json::to_vec(&record).map_err(internal)?;
        // A token that has ended stays on record until it is revoked: time alone must not open the door.
        if !self.0.add(name, &record, now_ms(), None)? {
            let why = format!("there is a token named {name:?} already");
            return Err(Fault::new(Code::InvalidArguments, why).with_hint(format!(
                "choose another name, or `rung token revoke {name}` first"
            )));
        }
        Ok(token)
    }

    pub(crate) fn list(&self) -> Result<Vec<TokenRecord>, Fault> {
        let all = self.0.list(now_ms())?;
        all.iter()
            .map(|(_, record)| serde_json::from_slice(record).map_err(internal))
            .collect()
    }

    pub(crate) fn revoke(&self, name: &str) -> Result<(), Fault> {
        if self.0.remove(name)? {
            return Ok(());
        }
        Err(
            Fault::new(Code::NotFound, format!("no token is named {name:?}"))
                .with_hint("`rung token list` names them"),
        )
    }
}

fn internal(error: impl std::fmt::Display) -> Fault {
    Fault::new(Code::Internal, error.to_string())
}

/// Lets in whoever has a token; and anybody, where that is safe or was asked for.
pub(crate) struct Guests {
    tokens: Tokens,
    open: Open,
    /// The tokens as they were at a version of the store, so that most requests read nothing.
    known: Mutex<Option<(usize, Vec<TokenRecord>)>>,
}

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
    pub(crate) fn new(tokens: Tokens, open: Open) -> Self {
        Self {
            tokens,
            open,
            known: Mutex::new(None),
        }
    }

    fn with_known<T>(&self, f: impl FnOnce(&[TokenRecord]) -> T) -> Result<T, Denied> {
        let mut known = self.known.lock();
        // Asked before reading: what is written meanwhile is read the next time.
        let version = self.tokens.0.version();
        match &*known {
            Some((at, records)) if *at == version => Ok(f(records)),
            _ => {
                let records = self
                    .tokens
                    .list()
                    .map_err(|fault| Denied::Broken(fault.to_string()))?;
                let result = f(&records);
                *known = Some((version, records));
                Ok(result)
            }
        }
    }
}

impl Admission for Guests {
    fn admit(&self, bearer: Option<&str>) -> Result<Permit, Denied> {
        match (bearer, self.open) {
            (Some(token), _) => {
                let token = Token::shown(token.to_owned());
                self.with_known(|records| admit(&token, records, now_ms()))?
                    .map_err(|_| Denied::BadToken)
            }
            (None, Open::Always) => Ok(Permit::anonymous()),
            (None, Open::WhileNoToken) if self.with_known(<[_]>::is_empty)? => {
                Ok(Permit::anonymous())
            }
            (None, Open::WhileNoToken | Open::Never) => Err(Denied::NoToken),
        }
    }

    fn still_admits(&self, permit: &Permit) -> bool {
        if *permit == Permit::anonymous() {
            return self.admit(None).is_ok();
        }
        let now_ms = now_ms();
        let holds = |record: &TokenRecord| {
            let mine = (&record.caller, &record.grant) == (permit.caller(), permit.grant());
            mine && record.expires_ms.is_none_or(|end| end > now_ms)
        };
        self.with_known(|records| records.iter().any(holds))
            .unwrap_or(false)
    }
}
