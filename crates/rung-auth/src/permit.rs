//! The proof that a caller may read or write under a grant.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Error, Result, Scope, TokenRecord};

/// The access that a permit allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    Read,
    Write,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(name: String) -> Result<Self> {
                let fits = (1..=128).contains(&name.chars().count());
                if fits && !name.chars().any(char::is_control) {
                    Ok(Self(name.into()))
                } else {
                    Err(Error::NameInvalid)
                }
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// The name of a caller.
    Caller
}
name! {
    /// The grant of a call.
    GrantId
}

/// The prefix of the grants of bearer tokens. Grants of personal data that such a token reaches name it as their package.
pub const TOKEN_GRANT: &str = "token:";

/// The grant of the one token that all clients share: it admits a client, but does not identify it.
pub const SHARED_TOKEN_GRANT: &str = "token:given";

/// The proof that a caller was admitted: who, under which grant, to read or to write.
///
/// Services take `&Permit`, so code without one cannot call them. A permit cannot be made elsewhere:
///
/// ```compile_fail,E0451
/// use rung_auth::{Access, Caller, GrantId, Permit};
/// fn forge(caller: Caller, grant: GrantId) -> Permit {
///     Permit { caller, grant, access: Access::Write, scope: None }
/// }
/// ```
///
/// and a reader's permit does not become a writer's:
///
/// ```
/// use rung_auth::{Access, Permit};
/// let reader = Permit::local_user(Access::Read);
/// assert_eq!(reader.clone().at_most(Access::Write).access(), Access::Read);
/// assert!(reader.require_write().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    caller: Caller,
    grant: GrantId,
    access: Access,
    scope: Option<Arc<Scope>>,
}

impl Permit {
    /// Returns the permit of the local user, who can read the data files anyway.
    pub fn local_user(access: Access) -> Self {
        Self {
            caller: Caller("local".into()),
            grant: GrantId("local".into()),
            access,
            scope: None,
        }
    }

    /// Returns the permit of an unauthenticated client: it only reads.
    pub fn anonymous() -> Self {
        Self {
            caller: Caller("anonymous".into()),
            grant: GrantId("anonymous".into()),
            access: Access::Read,
            scope: None,
        }
    }

    /// Creates the permit of a token. Only [`crate::admit`] calls this, after it has checked the token.
    pub(crate) fn from_record(record: &TokenRecord) -> Self {
        Self {
            caller: record.caller.clone(),
            grant: record.grant.clone(),
            access: record.access,
            scope: record.scope.clone(),
        }
    }

    /// Returns true if the permit is the local user's.
    pub fn is_local(&self) -> bool {
        self.grant.as_str() == "local"
    }

    /// Returns true if the client is not authenticated.
    pub fn is_anonymous(&self) -> bool {
        self.grant.as_str() == "anonymous"
    }

    /// Returns true if several clients may share the permit: only their conversations distinguish them.
    pub fn is_shared(&self) -> bool {
        self.is_local() || self.is_anonymous() || self.grant.as_str() == SHARED_TOKEN_GRANT
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    pub fn grant(&self) -> &GrantId {
        &self.grant
    }

    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns the databases and servers that the grant names; `None` if it is not limited to any.
    pub fn scope(&self) -> Option<&Scope> {
        self.scope.as_deref()
    }

    /// Reduces the permit to `access` if it allows more.
    #[must_use]
    pub fn at_most(mut self, access: Access) -> Self {
        self.access = self.access.min(access);
        self
    }

    /// Fails if the permit only reads.
    pub fn require_write(&self) -> Result<()> {
        match self.access {
            Access::Write => Ok(()),
            Access::Read => Err(Error::ReadOnly),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_wherever_they_come_from() {
        for bad in ["", "a\nb", "a\u{0}", &"x".repeat(129)] {
            assert!(Caller::try_from(bad.to_owned()).is_err(), "{bad:?}");
            let json = serde_json::to_string(bad).unwrap();
            assert!(serde_json::from_str::<Caller>(&json).is_err());
        }
        let good: Caller = serde_json::from_str("\"laptop \u{1F980}\"").unwrap();
        assert_eq!(good.as_str(), "laptop \u{1F980}");
    }
}
