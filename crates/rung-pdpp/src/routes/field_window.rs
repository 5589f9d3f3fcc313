//! `GET /v1/streams/{stream}/records/{id}/field-window`

use rung_fault::Code;
use rung_records::{
    Bearer, Error, MAX_CONTEXT_CHARS, MAX_WINDOW_CHARS, WindowQuery, WindowSelector,
};
use serde_json::json;

use crate::envelope::{RouteResponse, Warnings};
use crate::service::{RouteRequest, Service};

const PARAMS: [&str; 11] = [
    "field",
    "offset_chars",
    "limit_chars",
    "q",
    "before_chars",
    "after_chars",
    "cursor",
    "connection_id",
    "connector_instance_id",
    "connector_id",
    "subject_id",
];

fn whole_number(asked: &RouteRequest, name: &'static str, most: u64) -> Result<Option<u64>, Error> {
    let Some(text) = asked.params.single(name)? else {
        return Ok(None);
    };
    let number = text.parse::<u64>().ok().filter(|number| *number <= most);
    let why = || {
        Error::invalid_with_code(
            Code::InvalidWindow,
            name,
            format!("{name} must be a whole number from 0 to {most}"),
        )
    };
    number.map(Some).ok_or_else(why)
}

pub(super) fn get(
    service: &Service,
    bearer: &Bearer,
    asked: &RouteRequest,
) -> Result<RouteResponse, Error> {
    let params = &asked.params;
    params.reject_unknown(&PARAMS)?;
    let field = params.single("field")?.unwrap_or_default().to_owned();
    if field.is_empty() {
        return Err(Error::invalid_with_code(
            Code::InvalidPath,
            "field",
            "field is required: the name of a field",
        ));
    }
    let (choice, alias) = asked.required_source(bearer)?;
    let mut warnings = Warnings::default();
    if alias {
        warnings.add_deprecated_alias();
    }
    let offset = whole_number(asked, "offset_chars", u64::MAX)?;
    let limit = whole_number(asked, "limit_chars", u64::MAX)?;
    let before = whole_number(asked, "before_chars", MAX_CONTEXT_CHARS)?;
    let after = whole_number(asked, "after_chars", MAX_CONTEXT_CHARS)?;
    let (q, cursor) = (params.single("q")?, params.single("cursor")?);
    let exclusive = |param, why: &str| {
        Err(Error::invalid_with_code(
            Code::InvalidWindow,
            param,
            why.to_owned(),
        ))
    };
    if limit == Some(0) {
        return exclusive("limit_chars", "limit_chars must be at least 1");
    }
    if cursor.is_some() && (offset.is_some() || q.is_some() || before.is_some() || after.is_some())
    {
        return exclusive("cursor", "cursor can be combined with limit_chars only");
    }
    if q.is_some() && offset.is_some() {
        return exclusive("q", "send q or offset_chars, not both");
    }
    if q.is_none() && (before.is_some() || after.is_some()) {
        return exclusive("before_chars", "before_chars and after_chars need q");
    }
    if let Some(limit) = limit.filter(|limit| *limit > MAX_WINDOW_CHARS) {
        warnings.add_limit_clamped("limit_chars", limit, MAX_WINDOW_CHARS);
    }
    let selector = match (cursor, q) {
        (Some(cursor), _) => WindowSelector::Cursor(cursor.to_owned()),
        (None, Some(q)) => WindowSelector::Match {
            q: q.to_owned(),
            before,
            after,
        },
        (None, None) => WindowSelector::Offset(offset.unwrap_or(0)),
    };
    let query = WindowQuery {
        stream: asked.path_param(0).to_owned(),
        id: asked.path_param(1).to_owned(),
        field: field.clone(),
        choice,
        selector,
        limit_chars: limit,
    };
    let window = service.records().field_window(bearer, &query)?;
    let mut answer = RouteResponse::object(&json!({
        "object": "field_window",
        "stream": query.stream,
        "record_id": query.id,
        "connection_id": window.connection_id,
        "url": asked.path,
        "field": {"path": field, "type": "string", "mime_type": window.mime_type, "digest": window.digest},
        "window": {
            "text": window.text,
            "start_chars": window.start,
            "end_chars": window.end,
            "limit_chars": window.limit,
            "total_chars": window.total,
            "complete": window.start == 0 && window.end == window.total,
            "has_more": window.end < window.total,
            "match_start_chars": window.match_range.map(|(start, _)| start),
            "match_end_chars": window.match_range.map(|(_, end)| end),
            "next_offset_chars": (window.end < window.total).then_some(window.end),
            "previous_offset_chars": (window.start > 0).then(|| window.start.saturating_sub(window.limit)),
            "next_cursor": window.next_cursor,
            "previous_cursor": window.previous_cursor,
        },
    }))?;
    answer.warnings = warnings;
    Ok(answer.with_disclosure(Some(&query.stream), 1))
}
