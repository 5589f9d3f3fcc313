//! Databases that are known by name, and who may open them.

use std::path::{Path, PathBuf};

use rung_auth::{Access, Pattern, Permit};
use rung_datalog::Sight;

/// A database that is known by name.
#[derive(Debug, Clone)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub dir: PathBuf,
    /// What is in it.
    pub holds: Holds,
    /// Whether it may be changed at all.
    pub mode: Access,
    /// Who may open it beside those whose grant names it.
    pub open_to: OpenTo,
}

/// What is in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Facts.
    Facts,
    /// Tables of keys and values.
    Tables,
}

/// Who may open a database. Whoever runs this process may in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpenTo {
    /// Those whose grant names it.
    Granted,
    /// And those who came with a token that was given for nothing in particular.
    Tokens,
    /// And those who were let in without one.
    Anybody,
}

/// How somebody may open a database.
#[derive(Debug, Clone)]
pub(crate) struct Leave {
    pub(crate) access: Access,
    /// The attributes that they see; all where there are none.
    pub(crate) attributes: Vec<Pattern>,
}

impl Leave {
    /// To do everything that is done here.
    pub(crate) const fn whole(access: Access) -> Self {
        Self {
            access,
            attributes: Vec::new(),
        }
    }

    /// Which attributes there are, where not all are.
    pub(crate) fn sight(&self) -> Option<Sight> {
        if self.attributes.is_empty() {
            return None;
        }
        let patterns = self.attributes.clone();
        Some(Sight::new(move |name| {
            patterns.iter().any(|pattern| pattern.fits(name.as_str()))
        }))
    }
}

impl Known {
    /// How somebody may open it; `None` where it is not there for them.
    pub(crate) fn leave(&self, permit: &Permit) -> Option<Leave> {
        let own = permit.access().min(self.mode);
        if let Some(scope) = permit.scope() {
            let of = scope.databases.iter().find(|of| of.name == self.name)?;
            // What is seen in part is not changed: a change concerns what others see.
            let access = if of.attributes.is_empty() {
                of.mode.min(own)
            } else {
                Access::Read
            };
            return Some(Leave {
                access,
                attributes: of.attributes.clone(),
            });
        }
        let is_open = permit.is_local()
            || match self.open_to {
                OpenTo::Granted => false,
                OpenTo::Tokens => !permit.is_anonymous(),
                OpenTo::Anybody => true,
            };
        is_open.then(|| Leave::whole(own))
    }

    /// Whether it is called so, by its name or by its folder.
    pub(crate) fn is_called(&self, called: &str) -> bool {
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
    use rung_auth::{OfDatabase, Scope, Token, TokenRecord, admit};

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
            open_to in prop::sample::select(&[OpenTo::Granted, OpenTo::Tokens, OpenTo::Anybody]),
            named in any::<bool>(), some in any::<bool>(), scoped in any::<bool>(),
        ) {
            let known = Known { name: "people".into(), dir: "people.db".into(), holds: Holds::Facts, mode, open_to };
            let of = OfDatabase {
                name: if named { "people" } else { "others" }.into(),
                mode: granted,
                attributes: if some { vec![Pattern::new("open/*")] } else { Vec::new() },
            };
            let scope = scoped.then(|| Scope { databases: vec![of], ..Scope::default() });
            let leave = known.leave(&permit(own, scope));
            prop_assert_eq!(leave.is_some(), if scoped { named } else { open_to >= OpenTo::Tokens });
            if let Some(leave) = leave {
                prop_assert!(leave.access <= mode && leave.access <= own);
                prop_assert!(!scoped || leave.access <= granted);
                prop_assert_eq!(leave.sight().is_some(), scoped && some);
                prop_assert!(leave.sight().is_none() || leave.access == Access::Read);
            }
            prop_assert_eq!(known.leave(&Permit::anonymous()).is_some(), open_to == OpenTo::Anybody);
            prop_assert!(known.leave(&Permit::local_user(Access::Write)).is_some());
        }
    }
}
