//! Databases that are configured by name, and who may open them.

use std::path::{Path, PathBuf};

use rung_auth::{Access, Pattern, Permit};
use rung_datalog::AttributeFilter;

/// A configured database.
#[derive(Debug, Clone)]
pub struct NamedDatabase {
    pub name: String,
    pub dir: PathBuf,
    pub kind: StoreKind,
    /// The maximum access of any caller.
    pub mode: Access,
    /// The callers that may open it without a grant that names it.
    pub audience: DatabaseAudience,
}

/// The kind of data in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// A Datalog database.
    Facts,
    /// A key-value store.
    Tables,
}

/// The callers that may open a database. The local process always may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DatabaseAudience {
    /// Only callers whose grant names it.
    Granted,
    /// Also callers with a token that has no grant scope.
    Tokens,
    /// Also anonymous callers.
    Anonymous,
}

/// A caller's access to a database.
#[derive(Debug, Clone)]
pub(crate) struct DatabaseAccess {
    pub(crate) access: Access,
    /// The visible attributes; all if empty.
    pub(crate) attributes: Vec<Pattern>,
}

impl DatabaseAccess {
    /// Creates access to all attributes.
    pub(crate) const fn unfiltered(access: Access) -> Self {
        Self {
            access,
            attributes: Vec::new(),
        }
    }

    /// Returns the filter of visible attributes; `None` if all are visible.
    pub(crate) fn attribute_filter(&self) -> Option<AttributeFilter> {
        if self.attributes.is_empty() {
            return None;
        }
        let patterns = self.attributes.clone();
        Some(AttributeFilter::new(move |name| {
            patterns.iter().any(|pattern| pattern.fits(name.as_str()))
        }))
    }
}

impl NamedDatabase {
    /// Returns a caller's access; `None` if the caller may not open the database.
    pub(crate) fn access_for(&self, permit: &Permit) -> Option<DatabaseAccess> {
        let own = permit.access().min(self.mode);
        if let Some(scope) = permit.scope() {
            let of = scope.databases.iter().find(|of| of.name == self.name)?;
            // A partially visible database is read-only: a change affects attributes that others see.
            let access = if of.attributes.is_empty() {
                of.mode.min(own)
            } else {
                Access::Read
            };
            return Some(DatabaseAccess {
                access,
                attributes: of.attributes.clone(),
            });
        }
        let is_open = permit.is_local()
            || match self.audience {
                DatabaseAudience::Granted => false,
                DatabaseAudience::Tokens => !permit.is_anonymous(),
                DatabaseAudience::Anonymous => true,
            };
        is_open.then(|| DatabaseAccess::unfiltered(own))
    }

    /// Returns true if this is the database's name or folder.
    pub(crate) fn has_name_or_dir(&self, called: &str) -> bool {
        let same = |one: &Path, other: &Path| match (one.canonicalize(), other.canonicalize()) {
            (Ok(one), Ok(other)) => one == other,
            _ => one == other,
        };
        self.name == called || same(Path::new(called), &self.dir)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use rung_auth::{DatabaseGrant, Scope, Token, TokenRecord, admit};

    use super::*;

    fn permit(access: Access, scope: Option<Scope>) -> Permit {
        let token = Token::generate().unwrap();
        let record = TokenRecord {
            hash: token.hash(),
            caller: "someone".to_owned().try_into().unwrap(),
            grant: "token:1".to_owned().try_into().unwrap(),
            access,
            expires_ms: None,
            scope: scope.map(Arc::new),
        };
        admit(&token, [&record], 0).unwrap()
    }

    fn access() -> impl Strategy<Value = Access> {
        prop::sample::select(&[Access::Read, Access::Write])
    }

    proptest! {
        #[test]
        fn nobody_is_given_more_than_each_of_those_who_decide_gives(
            mode in access(), own in access(), granted in access(),
            open_to in prop::sample::select(&[DatabaseAudience::Granted, DatabaseAudience::Tokens, DatabaseAudience::Anonymous]),
            named in any::<bool>(), some in any::<bool>(), scoped in any::<bool>(),
        ) {
            let known = NamedDatabase { name: "people".into(), dir: "people.db".into(), kind: StoreKind::Facts, mode, audience: open_to };
            let of = DatabaseGrant {
                name: if named { "people" } else { "others" }.into(),
                mode: granted,
                attributes: if some { vec![Pattern::new("open/*")] } else { Vec::new() },
            };
            let scope = scoped.then(|| Scope { databases: vec![of], ..Scope::default() });
            let leave = known.access_for(&permit(own, scope));
            prop_assert_eq!(leave.is_some(), if scoped { named } else { open_to >= DatabaseAudience::Tokens });
            if let Some(leave) = leave {
                prop_assert!(leave.access <= mode && leave.access <= own);
                prop_assert!(!scoped || leave.access <= granted);
                prop_assert_eq!(leave.attribute_filter().is_some(), scoped && some);
                prop_assert!(leave.attribute_filter().is_none() || leave.access == Access::Read);
            }
            prop_assert_eq!(known.access_for(&Permit::anonymous()).is_some(), open_to == DatabaseAudience::Anonymous);
            prop_assert!(known.access_for(&Permit::local_user(Access::Write)).is_some());
        }
    }
}
