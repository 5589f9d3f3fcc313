//! What a grant names of everything that is behind the door.

use serde::{Deserialize, Serialize};

use crate::Access;

/// What a token reaches beside personal data, which is granted by its owner and kept with it.
///
/// What it does not name is not there for its bearer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// Databases, and what of them.
    #[serde(default)]
    pub databases: Vec<OfDatabase>,
    /// Other servers, and what of them.
    #[serde(default)]
    pub servers: Vec<OfServer>,
    /// Bytes of a reply, where fewer are sent than to others.
    pub max_reply_bytes: Option<usize>,
}

/// What of a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfDatabase {
    /// Its name in the settings.
    pub name: String,
    /// Whether it may be changed, where it can be.
    #[serde(default = "reading")]
    pub mode: Access,
    /// The attributes that are seen, as patterns; all where there are none.
    #[serde(default)]
    pub attributes: Vec<Pattern>,
}

/// What of another server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfServer {
    /// Its name in the settings.
    pub name: String,
    /// Its tools, as patterns; all where there are none.
    #[serde(default)]
    pub tools: Vec<Pattern>,
}

const fn reading() -> Access {
    Access::Read
}

impl Scope {
    /// Whether it names nothing.
    pub fn is_empty(&self) -> bool {
        self.databases.is_empty() && self.servers.is_empty()
    }
}

/// A name, in which `*` stands for anything.
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
    /// A pattern as it is written.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a name is of this form.
    pub fn fits(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else {
            return false;
        };
        let Some(last) = parts.next_back() else {
            return rest.is_empty();
        };
        // The earliest place for each part leaves the most for what follows.
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

    /// By trying every length for every star.
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
