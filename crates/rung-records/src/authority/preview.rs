//! Previews of a grant before it is issued, read through the same path and under the same rules.

use std::sync::Arc;

use serde_json::Value;

use crate::grant::Grant;
use crate::page::{CountMode, ListQuery};
use crate::scope::Bearer;
use crate::{Records, Result};

/// Number of sample records per stream.
const SAMPLES: usize = 3;

/// What a grant shows of one stream.
#[derive(Debug, Clone)]
pub struct StreamPreview {
    pub stream: String,
    /// Number of records.
    pub records: i64,
    pub earliest: Option<String>,
    pub latest: Option<String>,
    pub samples: Vec<SampleRecord>,
}

/// A record as the client would see it.
#[derive(Debug, Clone)]
pub struct SampleRecord {
    pub id: String,
    pub fields: Vec<(String, Value)>,
}

impl Records {
    /// Returns what a grant would show of each stream.
    pub fn preview(&self, owner: &Bearer, grant: &Grant) -> Result<Vec<StreamPreview>> {
        owner.require_owner()?;
        let mut granted = grant.clone();
        // The grant has no id yet. Nothing read here leaves this process.
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
                    count: CountMode::Exact,
                    window: true,
                    ..ListQuery::default()
                },
            )?;
            let window = page.window.unwrap_or_default();
            let moment = |name: &str| window[name].as_str().map(str::to_owned);
            let samples = page.records.iter().map(|raw| {
                let record: Value = serde_json::from_str(raw.get())?;
                let fields = record["data"].as_object().into_iter().flatten();
                Ok(SampleRecord {
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
