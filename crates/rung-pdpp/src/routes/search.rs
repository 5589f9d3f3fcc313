//! `GET /v1/search`

use rung_records::{Bearer, Error, SearchQuery};
use serde_json::json;

use crate::answer::{Answer, Warnings};
use crate::service::{Asked, Service};

const KNOWN: [&str; 7] = [
    "q",
    "limit",
    "cursor",
    "streams",
    "filter",
    "connection_id",
    "connector_instance_id",
];

pub(super) fn get(service: &Service, bearer: &Bearer, asked: &Asked) -> Result<Answer, Error> {
    let params = &asked.params;
    params.only(&KNOWN)?;
    asked.core_only(service, bearer, &["filter"])?;
    let (choice, alias) = params.choice()?;
    let mut warnings = Warnings::default();
    if alias {
        warnings.alias();
    }
    let query = SearchQuery {
        q: params.one("q")?.unwrap_or_default().to_owned(),
        limit: asked.limit(&mut warnings)?,
        cursor: params.one("cursor")?.map(str::to_owned),
        streams: params.list("streams")?.unwrap_or_default(),
        filters: params.filters()?,
        choice,
    };
    let found = service.records().search(bearer, &query)?;
    let mut answer = Answer::list(&asked.path, &found.hits, found.next_cursor.as_deref(), None)?;
    answer.warnings = warnings;
    answer.meta.push(("count_accuracy", json!("exact")));
    answer.meta.push((
        "recall",
        json!({
            "complete": true, "ranking_scope": "all_matches", "truncated": false,
            "ranked_candidate_count": found.total, "candidate_window_limit": found.total,
            "sources_searched_count": found.sources, "truncated_source_count": 0,
        }),
    ));
    Ok(answer.showing(None, found.hits.len()))
}
