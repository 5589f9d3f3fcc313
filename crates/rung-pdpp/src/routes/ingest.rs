//! `POST /v1/ingest/{stream}`: record lines, ingested while the body is received.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use rung_fault::Code;
use rung_records::{Error, StreamTarget};
use serde_json::json;
use tokio::sync::mpsc;

use crate::envelope;
use crate::params::QueryParams;
use crate::service::{RequestHead, Service, forward_body};

/// Body chunks that wait to be ingested, at most.
const CHANNEL_CAPACITY: usize = 8;

pub(super) async fn post(
    State(service): State<Arc<Service>>,
    Path(stream): Path<String>,
    request: Request,
) -> Response {
    let began = Instant::now();
    let arrived = service.request_head(request.headers());
    let (id, origin) = (arrived.request_id.clone(), arrived.origin.clone());
    let limit = service.max_body_bytes;
    let said = request.headers().get(header::CONTENT_LENGTH);
    let said = said.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let checked = RequestHead::check_version(request.headers());
    let query = request.uri().query().unwrap_or_default().to_owned();
    let done = if said.is_some_and(|said| said > limit) {
        Err(too_large(limit))
    } else if let Err(error) = checked {
        Err(error)
    } else {
        let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
        let worker = service.clone();
        let taking = tokio::task::spawn_blocking(move || {
            ingest_body(&worker, &arrived, &query, stream, receiver)
        });
        let sent = forward_body(request.into_body(), limit, sender).await;
        let taken = taking
            .await
            .unwrap_or_else(|error| Err(Error::Broken(error.to_string())));
        // An ingest error takes precedence over an aborted body.
        match (taken, sent) {
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            (Ok(told), Ok(())) => Ok(told),
        }
    };
    let response = match done {
        Ok(told) => {
            let mut response = envelope::json_response(StatusCode::OK, told);
            envelope::add_common_headers(&mut response, &id);
            response
        }
        Err(error) => envelope::error_response(&into_batch_error(error), &id, &origin),
    };
    service.metrics.record_request(
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

/// Turns a transient store error into one that asks the client to send the whole batch again.
fn into_batch_error(error: Error) -> Error {
    if error.is_transient() {
        return Error::invalid_with_code(
            Code::IngestBatchStorageError,
            "",
            format!("{error}; send the whole batch again"),
        );
    }
    error
}

fn ingest_body(
    service: &Service,
    arrived: &RequestHead,
    query: &str,
    stream: String,
    mut pieces: mpsc::Receiver<Result<Bytes, Error>>,
) -> Result<String, Error> {
    let bearer = service.authenticate(arrived)?;
    bearer.require_owner()?;
    let params = QueryParams::parse(query)?;
    params.reject_unknown(&[
        "connector_id",
        "connector_instance_id",
        "connection_id",
        "run_id",
    ])?;
    let (choice, _) = params.choice()?;
    let connector_id = choice.connector_id;
    let target = StreamTarget {
        connector_id: connector_id
            .ok_or_else(|| Error::invalid_request("connector_id", "connector_id is required"))?,
        connection_id: choice.connection_id,
        stream,
    };
    let mut ingest = service.records().ingest(&bearer, &target)?;
    while let Some(piece) = pieces.blocking_recv() {
        ingest.push(&piece?)?;
    }
    let done = ingest.finish()?;
    service.metrics.records_taken.inc_by(done.records_accepted);
    Ok(json!(done).to_string())
}
