//! `GET /v1/schema`

use rung_records::{Bearer, Error, SchemaQuery};

use crate::answer::Answer;
use crate::service::{Asked, Service};

pub(super) fn get(service: &Service, bearer: &Bearer, asked: &Asked) -> Result<Answer, Error> {
    let params = &asked.params;
    params.only(&["view", "detail", "stream", "connection_id"])?;
    let is = |name, word: &str| -> Result<bool, Error> {
        Ok(params
            .one(name)?
            .is_some_and(|value| value.eq_ignore_ascii_case(word)))
    };
    let query = SchemaQuery {
        compact: is("view", "compact")?,
        detail_full: is("detail", "full")?,
        stream: params.one("stream")?.map(str::to_owned),
        connection_id: params.one("connection_id")?.map(str::to_owned),
    };
    Answer::of(&service.records().schema(bearer, &query)?)
}
