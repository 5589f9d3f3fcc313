//! `GET /v1/search`

use rung_records::{Bearer, Error, SearchQuery};
use serde_json::json;

use crate::envelope::{RouteResponse, Warnings};
use crate::service::{RouteRequest, Service};

const PARAMS: [&str; 7] = [
    "q",
    "limit",
    "cursor",
    "streams",
    "filter",
    "connection_id",
    "connector_instance_id",
];

pub(super) fn get(
    service: &Service,
    bearer: &Bearer,
    asked: &RouteRequest,
) -> Result<RouteResponse, Error> {
    let params = &asked.params;
    params.reject_unknown(&PARAMS)?;
    asked.check_strict_mode(service, bearer, &["filter"])?;
    let (choice, alias) = params.choice()?;
    let mut warnings = Warnings::default();
    if alias {
        warnings.add_deprecated_alias();
    }
    let query = SearchQuery {
        q: params.single("q")?.unwrap_or_default().to_owned(),
        limit: asked.page_limit(&mut warnings)?,
        cursor: params.single("cursor")?.map(str::to_owned),
        streams: params.list("streams")?.unwrap_or_default(),
        filters: params.filters()?,
        choice,
    };
    let found = service.records().search(bearer, &query)?;
    let mut answer =
        RouteResponse::list(&asked.path, &found.hits, found.next_cursor.as_deref(), None)?;
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
    Ok(answer.with_disclosure(None, found.hits.len()))
}
