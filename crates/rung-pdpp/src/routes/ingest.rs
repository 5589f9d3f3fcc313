//! `POST /v1/ingest/{stream}`: lines of records, taken in as they come.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use rung_fault::Code;
use rung_records::{Error, Target};
use serde_json::json;
use tokio::sync::mpsc;

use crate::answer;
use crate::params::Params;
use crate::service::{Arrived, Service, frames};

/// Pieces of a body that wait to be taken in.
const WAITING: usize = 8;

pub(super) async fn post(
    State(service): State<Arc<Service>>,
    Path(stream): Path<String>,
    request: Request,
) -> Response {
    let began = Instant::now();
    let arrived = service.arrived(request.headers());
    let (id, origin) = (arrived.request_id.clone(), arrived.origin.clone());
    let limit = service.max_body_bytes;
    let said = request.headers().get(header::CONTENT_LENGTH);
    let said = said.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let checked = Arrived::check_version(request.headers());
    let query = request.uri().query().unwrap_or_default().to_owned();
    let done = if said.is_some_and(|said| said > limit) {
        Err(too_large(limit))
    } else if let Err(error) = checked {
        Err(error)
    } else {
        let (sender, receiver) = mpsc::channel(WAITING);
        let worker = service.clone();
        let taking =
            tokio::task::spawn_blocking(move || take(&worker, &arrived, &query, stream, receiver));
        let sent = frames(request.into_body(), limit, sender).await;
        let taken = taking
            .await
            .unwrap_or_else(|error| Err(Error::Broken(error.to_string())));
        // What was refused is told first; a body that broke off is nobody's word.
        match (taken, sent) {
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            (Ok(told), Ok(())) => Ok(told),
        }
    };
    let response = match done {
        Ok(told) => {
            let mut response = answer::json_response(StatusCode::OK, told);
            answer::dress(&mut response, &id);
            response
        }
        Err(error) => answer::refusal(&as_batch(error), &id, &origin),
    };
    service.metrics.ended(
        "ingest",
        response.status().as_u16(),
        began.elapsed().as_secs_f64(),
    );
    response
}

fn too_large(limit: u64) -> Error {
    Error::TooLarge {
        what: "the body",
        limit,
    }
}

/// What the store could not take is to be sent again, all of it.
fn as_batch(error: Error) -> Error {
    if error.is_passing() {
        return Error::refused(
            Code::IngestBatchStorageError,
            "",
            format!("{error}; send the whole batch again"),
        );
    }
    error
}

fn take(
    service: &Service,
    arrived: &Arrived,
    query: &str,
    stream: String,
    mut pieces: mpsc::Receiver<Result<Bytes, Error>>,
) -> Result<String, Error> {
    let bearer = service.admit(arrived)?;
    bearer.require_owner()?;
    let params = Params::read(query)?;
    params.only(&[
        "connector_id",
        "connector_instance_id",
        "connection_id",
        "run_id",
    ])?;
    let (choice, _) = params.choice()?;
    let connector_id = choice.connector_id;
    let target = Target {
        connector_id: connector_id
            .ok_or_else(|| Error::invalid("connector_id", "connector_id is needed"))?,
        connection_id: choice.connection_id,
        stream,
    };
    let mut ingest = service.records().ingest(&bearer, &target)?;
    while let Some(piece) = pieces.blocking_recv() {
        ingest.push(&piece?)?;
    }
    let done = ingest.finish()?;
    service.metrics.taken.inc_by(done.records_accepted);
    Ok(json!(done).to_string())
}
