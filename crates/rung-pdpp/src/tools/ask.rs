//! What is asked of a provider: a path part by part and parameters one by one, so that no value becomes another part.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// A request to read something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(super) segments: Vec<String>,
    pub(super) pairs: Vec<(String, String)>,
}

impl Ask {
    pub(super) fn at(segments: &[&str]) -> Self {
        Self {
            segments: segments.iter().map(|part| (*part).to_owned()).collect(),
            pairs: Vec::new(),
        }
    }

    /// With a parameter, if there is a value for it.
    pub(super) fn with(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            self.pairs.push((name.to_owned(), value.to_string()));
        }
        self
    }

    /// With a parameter for each of the values.
    pub(super) fn each(mut self, name: &str, values: &[String]) -> Self {
        let pairs = values.iter().map(|value| (name.to_owned(), value.clone()));
        self.pairs.extend(pairs);
        self
    }

    pub(super) fn and(mut self, pairs: Vec<(String, String)>) -> Self {
        self.pairs.extend(pairs);
        self
    }

    /// The first value of a parameter.
    pub(super) fn one(&self, name: &str) -> Option<&str> {
        let mut pairs = self.pairs.iter();
        pairs
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The same without a parameter.
    pub(super) fn without(&self, name: &str) -> Self {
        let mut ask = self.clone();
        ask.pairs.retain(|(known, _)| known != name);
        ask
    }

    /// The segments as they are matched.
    pub(super) fn parts(&self) -> Vec<&str> {
        self.segments.iter().map(String::as_str).collect()
    }

    /// As it is sent.
    pub(super) fn target(&self) -> String {
        let mut target = String::new();
        for part in &self.segments {
            target.push('/');
            target.push_str(&encoded(part));
        }
        if !self.pairs.is_empty() {
            target.push('?');
            let start = target.len();
            form_urlencoded::Serializer::for_suffix(&mut target, start).extend_pairs(&self.pairs);
        }
        target
    }
}

/// What needs no writing out in a part of an address.
const PLAIN: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// A text as one part of an address.
pub(super) fn encoded(part: &str) -> Cow<'_, str> {
    utf8_percent_encode(part, &PLAIN).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_values() {
        let ask = Ask::at(&["v1", "streams", "a b", "records", "x/../y?z#%"])
            .with("connection_id", Some("c&fields=secret"))
            .with("cursor", None::<&str>)
            .each("fields", &["a=b".to_owned(), "c".to_owned()]);
        assert_eq!(
            ask.target(),
            "/v1/streams/a%20b/records/x%2F..%2Fy%3Fz%23%25?connection_id=c%26fields%3Dsecret&fields=a%3Db&fields=c"
        );
        assert_eq!(Ask::at(&["v1", "schema"]).target(), "/v1/schema");
    }
}
