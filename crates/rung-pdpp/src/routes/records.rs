//! `GET` and `DELETE /v1/streams/{stream}/records`

use axum::http::StatusCode;
use rung_fault::Code;
use rung_records::{
    Bearer, ChangesQuery, CountMode, Error, ExpandQuery, ListQuery, SortOrder, StreamTarget,
};

use crate::envelope::{RouteResponse, Warnings};
use crate::params::QueryParams;
use crate::service::{RouteRequest, Service};

const PARAMS: [&str; 16] = [
    "changes_since",
    "connection_id",
    "connector_id",
    "connector_instance_id",
    "count",
    "cursor",
    "expand",
    "expand_limit",
    "fields",
    "filter",
    "limit",
    "order",
    "sort",
    "subject_id",
    "view",
    "window",
];

#[allow(clippy::too_many_lines, reason = "one parameter after another")]
pub(super) fn list(
    service: &Service,
    bearer: &Bearer,
    asked: &RouteRequest,
) -> Result<RouteResponse, Error> {
    let params = &asked.params;
    params.reject_unknown(&PARAMS)?;
    asked.check_strict_mode(
        service,
        bearer,
        &["filter", "expand", "expand_limit", "view"],
    )?;
    let (choice, alias) = asked.required_source(bearer)?;
    let mut warnings = Warnings::default();
    if alias {
        warnings.add_deprecated_alias();
    }
    let limit = asked.page_limit(&mut warnings)?;
    let cursor = params.single("cursor")?.map(str::to_owned);
    let (fields, view) = (
        params.list("fields")?,
        params.single("view")?.map(str::to_owned),
    );
    let stream = asked.path_param(0).to_owned();
    if let Some(since) = params.single("changes_since")? {
        for other in ["sort", "count", "order", "window"] {
            if params.has(other) {
                return Err(Error::invalid_request(
                    other,
                    format!("{other} cannot be combined with changes_since"),
                ));
            }
        }
        if params.has("expand") || params.has("expand_limit") {
            return Err(Error::invalid_with_code(
                Code::InvalidExpand,
                "expand",
                "expand cannot be combined with changes_since",
            ));
        }
        let query = ChangesQuery {
            stream: stream.clone(),
            choice,
            since: since.to_owned(),
            cursor,
            limit,
            fields,
            view,
            filters: params.filters()?,
        };
        let changes = service.records().changes(bearer, &query)?;
        let next = Some(changes.next_changes_since.as_str());
        let mut answer = RouteResponse::list(
            &asked.path,
            &changes.records,
            changes.next_cursor.as_deref(),
            next,
        )?;
        answer.warnings = warnings;
        return Ok(answer.with_disclosure(Some(&stream), changes.records.len()));
    }
    let query = ListQuery {
        stream: stream.clone(),
        choice,
        limit,
        cursor,
        order: parse_order(params)?,
        sort: params.single("sort")?.map(str::to_owned),
        count: match params.single("count")? {
            None | Some("none") => CountMode::None,
            // The store always counts exactly.
            Some("estimated" | "exact") => CountMode::Exact,
            Some(_) => {
                return Err(Error::invalid_request(
                    "count",
                    "count must be none, estimated or exact",
                ));
            }
        },
        window: match params.single("window")? {
            None | Some("none") => false,
            Some("exact") => true,
            Some(_) => {
                return Err(Error::invalid_request(
                    "window",
                    "window must be none or exact",
                ));
            }
        },
        fields,
        view,
        filters: params.filters()?,
        expand: parse_expand(params)?,
    };
    let page = service.records().list(bearer, &query)?;
    let mut answer = RouteResponse::list(
        &asked.path,
        &page.records,
        page.next_cursor.as_deref(),
        None,
    )?;
    answer.warnings = warnings;
    answer.count = page.count;
    answer
        .meta
        .extend(page.window.map(|window| ("window", window)));
    Ok(answer.with_disclosure(Some(&stream), page.records.len()))
}

fn parse_order(params: &QueryParams) -> Result<Option<SortOrder>, Error> {
    match params.single("order")? {
        None => Ok(None),
        Some("asc") => Ok(Some(SortOrder::Asc)),
        Some("desc") => Ok(Some(SortOrder::Desc)),
        Some(_) => Err(Error::invalid_request("order", "order must be asc or desc")),
    }
}

/// Reads the relations to expand and their limits.
pub(super) fn parse_expand(params: &QueryParams) -> Result<ExpandQuery, Error> {
    Ok(ExpandQuery {
        names: params.list("expand")?.unwrap_or_default(),
        limits: params.numbers_by_key("expand_limit")?,
    })
}

/// Reads the stream to delete from.
pub(super) fn parse_target(asked: &RouteRequest) -> Result<StreamTarget, Error> {
    asked
        .params
        .reject_unknown(&["connector_id", "connection_id", "connector_instance_id"])?;
    let (choice, _) = asked.params.choice()?;
    let connector_id = choice.connector_id;
    Ok(StreamTarget {
        connector_id: connector_id
            .ok_or_else(|| Error::invalid_request("connector_id", "connector_id is required"))?,
        connection_id: choice.connection_id,
        stream: asked.path_param(0).to_owned(),
    })
}

pub(super) fn delete(
    service: &Service,
    bearer: &Bearer,
    asked: &RouteRequest,
) -> Result<RouteResponse, Error> {
    bearer.require_owner()?;
    service
        .records()
        .delete_records(bearer, &parse_target(asked)?, None)?;
    Ok(RouteResponse {
        status: StatusCode::NO_CONTENT,
        ..RouteResponse::default()
    })
}
