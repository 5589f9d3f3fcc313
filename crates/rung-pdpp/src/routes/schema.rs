//! `GET /v1/schema`

use rung_records::{Bearer, Error, SchemaQuery};

use crate::envelope::RouteResponse;
use crate::service::{RouteRequest, Service};

pub(super) fn get(
    service: &Service,
    bearer: &Bearer,
    asked: &RouteRequest,
) -> Result<RouteResponse, Error> {
    let params = &asked.params;
    params.reject_unknown(&["view", "detail", "stream", "connection_id"])?;
    let is = |name, word: &str| -> Result<bool, Error> {
        Ok(params
            .single(name)?
            .is_some_and(|value| value.eq_ignore_ascii_case(word)))
    };
    let query = SchemaQuery {
        compact: is("view", "compact")?,
        detail_full: is("detail", "full")?,
        stream: params.single("stream")?.map(str::to_owned),
        connection_id: params.single("connection_id")?.map(str::to_owned),
    };
    RouteResponse::object(&service.records().schema(bearer, &query)?)
}
