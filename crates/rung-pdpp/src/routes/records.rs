//! `GET` and `DELETE /v1/streams/{stream}/records`

use axum::http::StatusCode;
use rung_fault::Code;
use rung_records::{Bearer, ChangesQuery, Count, Error, ExpandQuery, ListQuery, Order, Target};

use crate::answer::{Answer, Warnings};
use crate::params::Params;
use crate::service::{Asked, Service};

const KNOWN: [&str; 16] = [
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

pub(super) fn list(service: &Service, bearer: &Bearer, asked: &Asked) -> Result<Answer, Error> {
    let params = &asked.params;
    params.only(&KNOWN)?;
    asked.core_only(
        service,
        bearer,
        &["filter", "expand", "expand_limit", "view"],
    )?;
    let (choice, alias) = asked.one_source(bearer)?;
    let mut warnings = Warnings::default();
    if alias {
        warnings.alias();
    }
    let limit = asked.limit(&mut warnings)?;
    let cursor = params.one("cursor")?.map(str::to_owned);
    let (fields, view) = (
        params.list("fields")?,
        params.one("view")?.map(str::to_owned),
    );
    let stream = asked.name(0).to_owned();
    if let Some(since) = params.one("changes_since")? {
        for other in ["sort", "count", "order", "window"] {
            if params.has(other) {
                return Err(Error::invalid(
                    other,
                    format!("{other} does not go with changes_since"),
                ));
            }
        }
        if params.has("expand") || params.has("expand_limit") {
            return Err(Error::refused(
                Code::InvalidExpand,
                "expand",
                "expand does not go with changes_since",
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
        let mut answer = Answer::list(
            &asked.path,
            &changes.records,
            changes.next_cursor.as_deref(),
            next,
        )?;
        answer.warnings = warnings;
        return Ok(answer.showing(Some(&stream), changes.records.len()));
    }
    let query = ListQuery {
        stream: stream.clone(),
        choice,
        limit,
        cursor,
        order: order(params)?,
        sort: params.one("sort")?.map(str::to_owned),
        count: match params.one("count")? {
            None | Some("none") => Count::None,
            // What is known exactly is told exactly.
            Some("estimated" | "exact") => Count::Exact,
            Some(_) => return Err(Error::invalid("count", "count: none, estimated or exact")),
        },
        window: match params.one("window")? {
            None | Some("none") => false,
            Some("exact") => true,
            Some(_) => return Err(Error::invalid("window", "window: none or exact")),
        },
        fields,
        view,
        filters: params.filters()?,
        expand: expand(params)?,
    };
    let page = service.records().list(bearer, &query)?;
    let mut answer = Answer::list(
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
    Ok(answer.showing(Some(&stream), page.records.len()))
}

fn order(params: &Params) -> Result<Option<Order>, Error> {
    match params.one("order")? {
        None => Ok(None),
        Some("asc") => Ok(Some(Order::Asc)),
        Some("desc") => Ok(Some(Order::Desc)),
        Some(_) => Err(Error::invalid("order", "order: asc or desc")),
    }
}

/// What is to be read along.
pub(super) fn expand(params: &Params) -> Result<ExpandQuery, Error> {
    Ok(ExpandQuery {
        names: params.list("expand")?.unwrap_or_default(),
        limits: params.numbers("expand_limit")?,
    })
}

/// Where something is to be deleted.
pub(super) fn target(asked: &Asked) -> Result<Target, Error> {
    asked
        .params
        .only(&["connector_id", "connection_id", "connector_instance_id"])?;
    let (choice, _) = asked.params.choice()?;
    let connector_id = choice.connector_id;
    Ok(Target {
        connector_id: connector_id
            .ok_or_else(|| Error::invalid("connector_id", "connector_id is needed"))?,
        connection_id: choice.connection_id,
        stream: asked.name(0).to_owned(),
    })
}

pub(super) fn delete(service: &Service, bearer: &Bearer, asked: &Asked) -> Result<Answer, Error> {
    bearer.require_owner()?;
    service.records().delete(bearer, &target(asked)?, None)?;
    Ok(Answer {
        status: StatusCode::NO_CONTENT,
        ..Answer::default()
    })
}
