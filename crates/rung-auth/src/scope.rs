//! The databases and servers that a grant names.

use serde::{Deserialize, Serialize};

use crate::Access;

/// The databases and servers that a token reaches. Personal data is granted separately by its owner, and stored with it.
///
/// For the bearer, everything that is not named does not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// Databases, each with its mode and attributes.
    #[serde(default)]
    pub databases: Vec<DatabaseGrant>,
    /// Downstream servers, each with its tools.
    #[serde(default)]
    pub servers: Vec<ServerGrant>,
    /// Bytes of a reply, at most, if fewer than the default.
    pub max_reply_bytes: Option<usize>,
}

/// The part of a database that a grant names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseGrant {
    /// The name in the settings.
    pub name: String,
    /// The access that the grant gives, if the database itself allows it.
    #[serde(default = "reading")]
    pub mode: Access,
    /// Patterns of the visible attributes; all if there are none.
    #[serde(default)]
    pub attributes: Vec<Pattern>,
}

/// The part of a downstream server that a grant names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerGrant {
    /// The name in the settings.
    pub name: String,
    /// Patterns of the visible tools; all if there are none.
    #[serde(default)]
    pub tools: Vec<Pattern>,
}

const fn reading() -> Access {
    Access::Read
}

impl Scope {
    /// Returns true if the scope names no database and no server.
    pub fn is_empty(&self) -> bool {
        self.databases.is_empty() && self.servers.is_empty()
    }
}

/// A pattern for names, in which `*` matches any text.
///
/// ```
/// use rung_auth::Pattern;
/// let pattern = Pattern::new("person/*");
/// assert!(pattern.fits("person/name") && !pattern.fits("persons/name"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the pattern matches a name.
    pub fn fits(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else {
            return false;
        };
        let Some(last) = parts.next_back() else {
            return rest.is_empty();
        };
        // The earliest match of each part leaves the most text for the next ones.
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tries every length for every star.
    fn naive(pattern: &[char], name: &[char]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            (['*', rest @ ..], _) => (0..=name.len()).any(|taken| naive(rest, &name[taken..])),
            ([one, rest @ ..], [other, after @ ..]) => one == other && naive(rest, after),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn a_pattern_fits_what_its_stars_can_stand_for(pattern in "[ab*é]{0,8}", name in "[abé]{0,8}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let expected = naive(&chars(&pattern), &chars(&name));
            prop_assert_eq!(Pattern::new(pattern).fits(&name), expected);
        }
    }

    #[test]
    fn a_grant_survives_json_and_what_it_does_not_know_is_refused() {
        let text =
            r#"{"databases":[{"name":"people","attributes":["person/*"]}],"max_reply_bytes":null}"#;
        let scope: Scope = serde_json::from_str(text).unwrap();
        assert_eq!(scope.databases[0].mode, Access::Read);
        let written = serde_json::to_string(&scope).unwrap();
        assert_eq!(serde_json::from_str::<Scope>(&written).unwrap(), scope);
        assert!(serde_json::from_str::<Scope>(r#"{"database":[]}"#).is_err());
    }
}
