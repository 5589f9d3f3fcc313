//! A request to a provider, built from path segments and parameters, so that no value can change the path or add a parameter.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// A read request to a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProviderRequest {
    pub(super) segments: Vec<String>,
    pub(super) pairs: Vec<(String, String)>,
}

impl ProviderRequest {
    pub(super) fn new(segments: &[&str]) -> Self {
        Self {
            segments: segments.iter().map(|part| (*part).to_owned()).collect(),
            pairs: Vec::new(),
        }
    }

    /// Adds a parameter, if there is a value.
    pub(super) fn with_param(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            self.pairs.push((name.to_owned(), value.to_string()));
        }
        self
    }

    /// Adds a parameter for each value.
    pub(super) fn with_values(mut self, name: &str, values: &[String]) -> Self {
        let pairs = values.iter().map(|value| (name.to_owned(), value.clone()));
        self.pairs.extend(pairs);
        self
    }

    pub(super) fn with_pairs(mut self, pairs: Vec<(String, String)>) -> Self {
        self.pairs.extend(pairs);
        self
    }

    /// Returns the first value of a parameter.
    pub(super) fn first_value(&self, name: &str) -> Option<&str> {
        let mut pairs = self.pairs.iter();
        pairs
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the request without a parameter.
    pub(super) fn without_param(&self, name: &str) -> Self {
        let mut ask = self.clone();
        ask.pairs.retain(|(known, _)| known != name);
        ask
    }

    /// Returns the path segments, for matching.
    pub(super) fn path_segments(&self) -> Vec<&str> {
        self.segments.iter().map(String::as_str).collect()
    }

    /// Returns the encoded path and query.
    pub(super) fn target(&self) -> String {
        let mut target = String::new();
        for part in &self.segments {
            target.push('/');
            target.push_str(&encode_segment(part));
        }
        if !self.pairs.is_empty() {
            target.push('?');
            let start = target.len();
            form_urlencoded::Serializer::for_suffix(&mut target, start).extend_pairs(&self.pairs);
        }
        target
    }
}

/// Characters of a path segment that are percent-encoded: all but the unreserved ones of RFC 3986.
const ESCAPED_BYTES: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Encodes a path segment.
pub(super) fn encode_segment(part: &str) -> Cow<'_, str> {
    utf8_percent_encode(part, &ESCAPED_BYTES).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_values() {
        let ask = ProviderRequest::new(&["v1", "streams", "a b", "records", "x/../y?z#%"])
            .with_param("connection_id", Some("c&fields=secret"))
            .with_param("cursor", None::<&str>)
            .with_values("fields", &["a=b".to_owned(), "c".to_owned()]);
        assert_eq!(
            ask.target(),
            "/v1/streams/a%20b/records/x%2F..%2Fy%3Fz%23%25?connection_id=c%26fields%3Dsecret&fields=a%3Db&fields=c"
        );
        assert_eq!(
            ProviderRequest::new(&["v1", "schema"]).target(),
            "/v1/schema"
        );
    }
}
