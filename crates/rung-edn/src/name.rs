//! Names of keywords and symbols.

use std::fmt;
use std::sync::Arc;

/// A name with an optional namespace. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Creates a name from its text, without the colon of a keyword.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Creates a name in a namespace.
    pub fn with_namespace(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// Returns true if the printed name parses back to the same name.
    pub fn is_readable(&self) -> bool {
        crate::reader::is_keyword(&self.0)
    }

    /// Returns the whole name with its namespace.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn split(&self) -> Option<(&str, &str)> {
        // A slash at the beginning belongs to the name.
        let at = self.0.get(1..)?.find('/')? + 1;
        Some((&self.0[..at], &self.0[at + 1..]))
    }

    /// Returns the namespace, if there is one.
    pub fn namespace(&self) -> Option<&str> {
        self.split().map(|(namespace, _)| namespace)
    }

    /// Returns the name without its namespace.
    pub fn name(&self) -> &str {
        self.split().map_or(self.as_str(), |(_, name)| name)
    }
}

/// Names without a namespace come first; then by namespace and by name.
impl Ord for Name {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let parts = (self.namespace(), self.name());
        parts.cmp(&(other.namespace(), other.name()))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_knows_its_namespace() {
        let parts = |text: &str| {
            let name = Name::from(text);
            (name.namespace().map(str::to_owned), name.name().to_owned())
        };
        assert_eq!(parts("a/b"), (Some("a".into()), "b".into()));
        assert_eq!(parts("b"), (None, "b".into()));
        assert_eq!(parts("/"), (None, "/".into()));
        assert_eq!(parts("a//"), (Some("a".into()), "/".into()));
        assert!(Name::from("z") < Name::from("a/a") && Name::from("a/b") < Name::from("b/a"));
    }
}
