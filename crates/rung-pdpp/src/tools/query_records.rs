//! `query_records`: a page of a stream's records.

use std::cell::OnceCell;

use rung_fault::Code;
use rung_tool::{
    Body, InputSchema, Reply, Rows as _, TooManyRows, Tool, fit_rows, fit_rows_in_part,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::filter::{expand_limit_pairs, filter_pairs};
use super::id::check_name;
use super::json::Json;
use super::ladder::ImpliedIdentity;
use super::list_body::{most_that_fit, records_at, remove_cursor};
use super::page::Page;
use super::provider_error::ProviderError;
use super::provider_request::ProviderRequest;
use super::{PersonalData, RecordContext, usual};

pub(super) const TOOL: Tool<PersonalData, Input> = Tool::new(
    "query_records",
    "One page of a stream's records, 25 by default; continue with next_cursor. Filter with typed \
                  objects on fields that schema(stream) allows. For counts and sums call aggregate. Long texts become previews; \
                  content_ladder says how to read the rest.",
    InputSchema::Built(input),
    Body::Async(|context, input| Box::pin(usual(run(context, input)))),
)
.titled("Query records")
.with_output(|| super::wrapped_output(json!({})))
.without_json_text(&["filter", "expand_limit"]);

fn input() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    json!({
        "type": "object",
        "properties": {
            "stream": super::stream_input(),
            "limit": super::limit_input("Records on the page"),
            "cursor": text("next_cursor of the previous page"),
            "order": text("asc or desc by the stream's cursor field"),
            "sort": text("[-]cursor_field"),
            "view": text("View of the stream, instead of fields"),
            "changes_since": text("next_changes_since of an earlier page, or \"beginning\""),
            "count": {"enum": ["none", "estimated", "exact"], "description": "Count all matches"},
            "filter": super::filter_input(),
            "fields": super::names_input("Only these fields"),
            "expand": super::names_input("Relations to include, from expand_capabilities"),
            "expand_limit": super::expand_limit_input(),
            "connection_id": super::connection_input(),
        },
        "required": ["stream"],
        "additionalProperties": false,
    })
}

#[derive(Deserialize)]
pub(super) struct Input {
    stream: String,
    limit: Option<usize>,
    cursor: Option<String>,
    order: Option<String>,
    sort: Option<String>,
    view: Option<String>,
    changes_since: Option<String>,
    count: Option<String>,
    filter: Option<Map<String, Value>>,
    #[serde(default)]
    fields: Vec<String>,
    #[serde(default)]
    expand: Vec<String>,
    expand_limit: Option<Map<String, Value>>,
    connection_id: Option<String>,
}

async fn run(context: &RecordContext<'_>, input: Input) -> Result<Reply, ProviderError> {
    let stream = check_name("stream", &input.stream)?;
    if let Some(connection) = &input.connection_id {
        check_name("connection_id", connection)?;
    }
    let filter = filter_pairs(input.filter.as_ref())?;
    let expand_limit = expand_limit_pairs(input.expand_limit.as_ref())?;
    let connection = input.connection_id.as_deref();
    if !input.expand.is_empty() {
        check_expand(context, stream, connection, &input.expand).await?;
    }
    let ask = ProviderRequest::new(&["v1", "streams", stream, "records"])
        .with_param("limit", input.limit)
        .with_param("cursor", input.cursor)
        .with_param("order", input.order)
        .with_param("sort", input.sort)
        .with_param("view", input.view)
        .with_param("changes_since", input.changes_since)
        .with_param("count", input.count)
        .with_pairs(filter)
        .with_values("fields", &input.fields)
        .with_values("expand", &input.expand)
        .with_pairs(expand_limit)
        .with_param("connection_id", connection);
    let known = ImpliedIdentity {
        stream: Some(stream),
        connection,
    };
    let row_limit = context.row_limit();
    let mut limit: Option<usize> = None;
    for tries in 0.. {
        let ask = match limit {
            None => ask.clone(),
            Some(limit) => ask.without_param("limit").with_param("limit", Some(limit)),
        };
        let answer = context.provider.get_json(&ask).await?;
        let page_of = |body, shortened| Page {
            context,
            rows_at: records_at(&body),
            body,
            known,
            stream,
            shortened,
            request_id: answer.request_id.as_deref(),
            lean_body: OnceCell::new(),
        };
        let page = page_of(answer.body()?, limit);
        let count = page.count();
        // A provider that ignores the limit will ignore a smaller one.
        let requested = limit.or(input.limit).unwrap_or(MAX_LIMIT);
        if count > requested || tries == MAX_TRIES {
            let first = |rows| page.content_of_first(rows);
            return Ok(fit_rows_in_part(&page, first, row_limit, context.call));
        }
        let TooManyRows { fitting } = match fit_rows(&page, row_limit, context.call) {
            Ok(reply) => return Ok(reply),
            Err(too_many) => too_many,
        };
        // The omitted records follow at the provider's own cursor, whose length is not known yet.
        let fits = |first: usize| {
            let body = answer.body().map(|body| first_rows(body, first));
            body.is_ok_and(|body| fit_rows(&page_of(body, None), row_limit, context.call).is_ok())
        };
        limit = Some(match limit {
            None => most_that_fit(count, fitting, fits),
            // Rendered as for a client that requested this limit.
            Some(last) => match fit_rows(&page_of(answer.body()?, None), row_limit, context.call) {
                Ok(reply) => return Ok(reply),
                Err(_) => (last - 1).max(1),
            },
        });
    }
    unreachable!("the last attempt returns")
}

/// Returns a body with the first records only, and without a cursor.
fn first_rows(mut body: Json<'_>, first: usize) -> Json<'_> {
    let rows = records_at(&body);
    if let Some(Json::Array(rows)) = body.pointer_mut(rows) {
        rows.truncate(first);
    }
    remove_cursor(&mut body);
    body
}

/// Records on a page, at most.
const MAX_LIMIT: usize = 100;
/// Further requests, at most: one for as many records as fit without a cursor, then each for one less.
const MAX_TRIES: usize = 12;

/// Rejects `expand` on a stream that advertises no relations, before the records are requested.
async fn check_expand(
    context: &RecordContext<'_>,
    stream: &str,
    connection: Option<&str>,
    expand: &[String],
) -> Result<(), ProviderError> {
    let ask = ProviderRequest::new(&["v1", "schema"])
        .with_param("view", Some("compact"))
        .with_param("stream", Some(stream))
        .with_param("connection_id", connection);
    // Without a schema the provider decides.
    let Ok(answer) = context.provider.get_json(&ask).await else {
        return Ok(());
    };
    let mut listed = false;
    let Ok(body) = answer.body() else {
        return Ok(());
    };
    for (_, row) in super::schema::schema_streams(super::schema::schema_document(&body)) {
        if row["name"] != stream {
            continue;
        }
        listed = true;
        let able = &row["expand_capabilities"];
        if able.as_array().is_some_and(|able| !able.is_empty())
            || able.as_object().is_some_and(|able| !able.is_empty())
        {
            return Ok(());
        }
    }
    if !listed {
        return Ok(());
    }
    let why = format!(
        "stream {stream:?} has no advertised expand_capabilities, so {} cannot be expanded",
        expand.join(", ")
    );
    Err(ProviderError::new(Code::InvalidExpand, why))
}
