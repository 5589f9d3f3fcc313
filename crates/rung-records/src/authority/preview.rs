//! What a grant would show, seen before it is given: by the same reading, under the same rules.

use std::sync::Arc;

use serde_json::Value;

use crate::grant::Grant;
use crate::page::{Count, ListQuery};
use crate::scope::Bearer;
use crate::{Records, Result};

/// Records that are shown as examples.
const SAMPLES: usize = 3;

/// What a grant would show of one stream.
#[derive(Debug, Clone)]
pub struct StreamPreview {
    /// The stream.
    pub stream: String,
    /// How many records.
    pub records: i64,
    /// The time of the first one.
    pub earliest: Option<String>,
    /// The time of the last one.
    pub latest: Option<String>,
    /// A few of them.
    pub samples: Vec<Sample>,
}

/// A record as it would be shown.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Its id.
    pub id: String,
    /// Its fields.
    pub fields: Vec<(String, Value)>,
}

impl Records {
    /// What a grant would show.
    pub fn preview(&self, owner: &Bearer, grant: &Grant) -> Result<Vec<StreamPreview>> {
        owner.require_owner()?;
        let mut granted = grant.clone();
        // It has no id yet, and nothing that is made here is handed out.
        "preview".clone_into(&mut granted.grant_id);
        let reader = Bearer {
            grant: Some(Arc::new(granted)),
            ..owner.clone()
        };
        let mut previews = Vec::new();
        for stream in &grant.streams {
            let page = self.list(
                &reader,
                &ListQuery {
                    stream: stream.name.clone(),
                    limit: SAMPLES,
                    count: Count::Exact,
                    window: true,
                    ..ListQuery::default()
                },
            )?;
            let window = page.window.unwrap_or_default();
            let moment = |name: &str| window[name].as_str().map(str::to_owned);
            let samples = page.records.iter().map(|raw| {
                let record: Value = serde_json::from_str(raw.get())?;
                let fields = record["data"].as_object().into_iter().flatten();
                Ok(Sample {
                    id: record["id"].as_str().unwrap_or_default().to_owned(),
                    fields: fields
                        .map(|(name, value)| (name.clone(), value.clone()))
                        .collect(),
                })
            });
            previews.push(StreamPreview {
                stream: stream.name.clone(),
                records: page.count.unwrap_or(0),
                earliest: moment("earliest_at"),
                latest: moment("latest_at"),
                samples: samples.collect::<Result<_>>()?,
            });
        }
        Ok(previews)
    }
}
