//! `GET /v1/streams` and `GET /v1/streams/{stream}`

use rung_records::{Bearer, Error};

use crate::answer::Answer;
use crate::service::{Asked, Service};

const KNOWN: [&str; 4] = [
    "connection_id",
    "connector_instance_id",
    "connector_id",
    "subject_id",
];

pub(super) fn list(service: &Service, bearer: &Bearer, asked: &Asked) -> Result<Answer, Error> {
    asked.params.only(&KNOWN)?;
    let (choice, alias) = asked.choice(bearer)?;
    let streams = service.records().streams(bearer, &choice)?;
    let mut answer = Answer::list(&asked.path, &streams, None, None)?;
    if alias {
        answer.warnings.alias();
    }
    Ok(answer)
}

pub(super) fn one(service: &Service, bearer: &Bearer, asked: &Asked) -> Result<Answer, Error> {
    asked.params.only(&KNOWN)?;
    let (choice, alias) = asked.choice(bearer)?;
    let mut answer = Answer::of(&service.records().stream(bearer, asked.name(0), &choice)?)?;
    if alias {
        answer.warnings.alias();
    }
    Ok(answer)
}
