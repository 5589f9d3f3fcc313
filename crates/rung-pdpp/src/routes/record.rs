//! `GET` and `DELETE /v1/streams/{stream}/records/{id}`

use axum::http::StatusCode;
use rung_records::{Bearer, Error, RecordQuery};

use super::records::{expand, target};
use crate::answer::Answer;
use crate::service::{Asked, Service};

pub(super) fn get(service: &Service, bearer: &Bearer, asked: &Asked) -> Result<Answer, Error> {
    let params = &asked.params;
    params.only(&[
        "fields",
        "expand",
        "expand_limit",
        "connection_id",
        "connector_instance_id",
        "connector_id",
        "subject_id",
    ])?;
    asked.core_only(service, bearer, &["expand", "expand_limit"])?;
    let (choice, alias) = asked.one_source(bearer)?;
    let stream = asked.name(0).to_owned();
    let query = RecordQuery {
        stream: stream.clone(),
        id: asked.name(1).to_owned(),
        choice,
        fields: params.list("fields")?,
        expand: expand(params)?,
    };
    let record = service.records().record(bearer, &query)?;
    let mut answer = Answer::of(&record)?;
    if alias {
        answer.warnings.alias();
    }
    Ok(answer.showing(Some(&stream), 1))
}

pub(super) fn delete(service: &Service, bearer: &Bearer, asked: &Asked) -> Result<Answer, Error> {
    bearer.require_owner()?;
    service
        .records()
        .delete(bearer, &target(asked)?, Some(asked.name(1)))?;
    Ok(Answer {
        status: StatusCode::NO_CONTENT,
        ..Answer::default()
    })
}
