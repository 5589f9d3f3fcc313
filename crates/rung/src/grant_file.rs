//! A file that says what the bearer of a token may see.

use std::path::Path;

use rung_fault::{Code, Fault};
use rung_records::GrantRequest;
use rung_records::grant::Selection;
use serde::Deserialize;

/// What is granted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantFile {
    /// Of each source of personal data.
    #[serde(default)]
    personal_data: Vec<OfSource>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfSource {
    source: String,
    /// All that are active, if none is named.
    #[serde(default)]
    connections: Vec<String>,
    /// All of them, if none is named.
    #[serde(default)]
    streams: Vec<OfStream>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfStream {
    name: String,
    #[serde(default)]
    fields: Vec<String>,
    since: Option<String>,
    until: Option<String>,
}

impl GrantFile {
    pub(crate) fn read(path: &Path) -> Result<Self, Fault> {
        let wrong = |why: String| {
            Fault::new(Code::InvalidArguments, format!("{}: {why}", path.display())).with_hint(
                "write [[personal_data]] with source = \"mail\", and [[personal_data.streams]] with a name and fields",
            )
        };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let file: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if file.personal_data.is_empty() {
            return Err(wrong("it grants nothing".to_owned()));
        }
        Ok(file)
    }

    /// What is asked of the owner's data, for the bearer of this name.
    pub(crate) fn requests(&self, name: &str, expires_ms: Option<i64>) -> Vec<GrantRequest> {
        let selection = |stream: &OfStream| Selection {
            stream: stream.name.clone(),
            fields: stream.fields.clone(),
            since: stream.since.clone(),
            until: stream.until.clone(),
            ..Selection::default()
        };
        let request = |of: &OfSource| {
            let mut selections: Vec<Selection> = of.streams.iter().map(selection).collect();
            if selections.is_empty() {
                selections.push(Selection {
                    stream: "*".to_owned(),
                    ..Selection::default()
                });
            }
            GrantRequest {
                client: name.to_owned(),
                source: of.source.clone(),
                connections: of.connections.clone(),
                selections,
                purpose_code: None,
                expires_ms,
            }
        };
        self.personal_data.iter().map(request).collect()
    }
}
