//! `GET /v1/blobs/{blob}` and `POST /v1/blobs`

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, HttpBody};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use http_body::Frame;
use rung_records::{Bearer, Blob, BlobUpload, Error};
use serde_json::json;
use tokio::sync::mpsc;

use crate::envelope;
use crate::params::QueryParams;
use crate::service::{RequestHead, Service, forward_body};

/// Chunks that wait to be sent or stored, at most.
const CHANNEL_CAPACITY: usize = 2;
/// Media types that a browser may show inline.
const INLINE_TYPES: [&str; 5] = [
    "application/pdf",
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
];

pub(super) async fn get(
    State(service): State<Arc<Service>>,
    Path(id): Path<String>,
    mut request: Request,
) -> Response {
    let began = Instant::now();
    let arrived = service.request_head(request.headers());
    let arrived = arrived.with_bearer_from(request.extensions_mut());
    let (request_id, origin) = (arrived.request_id.clone(), arrived.origin.clone());
    let checked = RequestHead::check_version(request.headers());
    let range = parse_range(request.headers());
    let (method, query) = (
        request.method().clone(),
        request.uri().query().unwrap_or_default().to_owned(),
    );
    let worker = service.clone();
    let found = tokio::task::spawn_blocking(move || {
        checked?;
        let bearer = worker.authenticate(&arrived)?;
        let params = QueryParams::parse(&query)?;
        params.reject_unknown(&["connection_id", "connector_instance_id"])?;
        let (choice, alias) = params.choice()?;
        let blob = worker.records().blob(&bearer, &id, &choice)?;
        if method == Method::GET {
            worker.record_disclosure(
                &bearer,
                &format!("/v1/blobs/{id}"),
                None,
                1,
                blob.sha256.as_bytes(),
            )?;
        }
        Ok((bearer, blob, alias))
    });
    let found = found
        .await
        .unwrap_or_else(|error| Err(Error::Broken(error.to_string())));
    let mut response = match found {
        Ok((bearer, blob, alias)) => {
            blob_response(&service, &bearer, &blob, alias, range, request.method())
        }
        Err(error) => envelope::error_response(&error, &request_id, &origin),
    };
    envelope::add_common_headers(&mut response, &request_id);
    service.metrics.record_request(
        "blob",
        response.status().as_u16(),
        began.elapsed().as_secs_f64(),
    );
    response
}

/// The single byte range of a `Range` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ByteRange {
    From(u64, Option<u64>),
    Suffix(u64),
}

fn parse_range(headers: &HeaderMap) -> Option<ByteRange> {
    let text = headers.get(header::RANGE)?.to_str().ok()?;
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    if first.is_empty() {
        return last.parse().ok().map(ByteRange::Suffix);
    }
    let first = first.parse().ok()?;
    if last.is_empty() {
        return Some(ByteRange::From(first, None));
    }
    let last = last.parse().ok().filter(|last| *last >= first)?;
    Some(ByteRange::From(first, Some(last)))
}

fn blob_response(
    service: &Arc<Service>,
    bearer: &Bearer,
    blob: &Blob,
    alias: bool,
    asked: Option<ByteRange>,
    method: &Method,
) -> Response {
    let size = blob.size_bytes;
    let range = match asked {
        None => Some(0..size),
        Some(ByteRange::From(first, last)) if first < size => {
            Some(first..last.map_or(size, |last| last.saturating_add(1).min(size)))
        }
        Some(ByteRange::Suffix(count)) if count > 0 && size > 0 => {
            Some(size.saturating_sub(count)..size)
        }
        Some(_) => None,
    };
    let Some(range) = range else {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
        set_header(
            &mut response,
            header::CONTENT_RANGE,
            &format!("bytes */{size}"),
        );
        return response;
    };
    let (length, first, end) = (range.end - range.start, range.start, range.end);
    let body = if *method == Method::HEAD {
        Body::empty()
    } else {
        Body::new(BlobBody::new(
            service.clone(),
            bearer.clone(),
            blob.clone(),
            range,
        ))
    };
    let mut response = Response::new(body);
    if asked.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        set_header(
            &mut response,
            header::CONTENT_RANGE,
            &format!("bytes {first}-{}/{size}", end.saturating_sub(1)),
        );
    }
    set_header(&mut response, header::CONTENT_TYPE, &blob.mime_type);
    set_header(&mut response, header::CONTENT_LENGTH, &length.to_string());
    set_header(&mut response, header::ACCEPT_RANGES, "bytes");
    set_header(&mut response, header::ETAG, &format!("\"{}\"", blob.sha256));
    set_header(&mut response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    if !INLINE_TYPES.contains(&blob.mime_type.as_str()) {
        set_header(&mut response, header::CONTENT_DISPOSITION, "attachment");
    }
    if alias {
        set_header(
            &mut response,
            HeaderName::from_static("pdpp-warning"),
            "deprecated_alias_used",
        );
    }
    response
}

fn set_header(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// The body of a blob response, read from the store chunk by chunk.
struct BlobBody {
    receiver: mpsc::Receiver<Result<Bytes, Error>>,
    left: u64,
}

impl BlobBody {
    fn new(service: Arc<Service>, bearer: Bearer, blob: Blob, range: Range<u64>) -> Self {
        let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
        let left = range.end - range.start;
        tokio::task::spawn_blocking(move || {
            let mut at = range.start;
            while at < range.end {
                let piece = service.records().blob_bytes(&bearer, &blob, at..range.end);
                let piece = piece.and_then(|piece| {
                    if piece.is_empty() {
                        Err(Error::BlobNotFound)
                    } else {
                        Ok(Bytes::from(piece))
                    }
                });
                let got = piece.as_ref().map_or(0, Bytes::len) as u64;
                at += got;
                // The client is gone, or the blob has ended.
                if sender.blocking_send(piece).is_err() || got == 0 {
                    return;
                }
            }
        });
        Self { receiver, left }
    }
}

impl HttpBody for BlobBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let next = std::task::ready!(self.receiver.poll_recv(cx));
        if let Some(Ok(piece)) = &next {
            self.left -= piece.len() as u64;
        }
        Poll::Ready(next.map(|piece| piece.map(Frame::data)))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.left)
    }
}

pub(super) async fn upload(State(service): State<Arc<Service>>, request: Request) -> Response {
    let began = Instant::now();
    let arrived = service.request_head(request.headers());
    let (id, origin) = (arrived.request_id.clone(), arrived.origin.clone());
    let checked = RequestHead::check_version(request.headers());
    let query = request.uri().query().unwrap_or_default().to_owned();
    let declared = request.headers().get(header::CONTENT_TYPE);
    let declared = declared
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
    let worker = service.clone();
    let keeping = tokio::task::spawn_blocking(move || {
        checked?;
        store_upload(&worker, &arrived, &query, declared, receiver)
    });
    let sent = forward_body(request.into_body(), service.max_body_bytes, sender).await;
    let kept = keeping
        .await
        .unwrap_or_else(|error| Err(Error::Broken(error.to_string())));
    let done = match (kept, sent) {
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        (Ok(told), Ok(())) => Ok(told),
    };
    let response = match done {
        Ok(told) => {
            let mut response = envelope::json_response(StatusCode::CREATED, told);
            envelope::add_common_headers(&mut response, &id);
            response
        }
        Err(error) => envelope::error_response(&error, &id, &origin),
    };
    service.metrics.record_request(
        "upload",
        response.status().as_u16(),
        began.elapsed().as_secs_f64(),
    );
    response
}

fn store_upload(
    service: &Service,
    arrived: &RequestHead,
    query: &str,
    declared: Option<String>,
    pieces: mpsc::Receiver<Result<Bytes, Error>>,
) -> Result<String, Error> {
    let bearer = service.authenticate(arrived)?;
    bearer.require_owner()?;
    let params = QueryParams::parse(query)?;
    params.reject_unknown(&[
        "connector_id",
        "connector_instance_id",
        "connection_id",
        "stream",
        "record_key",
        "mime_type",
        "json_path",
    ])?;
    let (choice, _) = params.choice()?;
    let needed = |name: &'static str| -> Result<String, Error> {
        let value = params.single(name)?.filter(|value| !value.is_empty());
        value
            .map(str::to_owned)
            .ok_or_else(|| Error::invalid_request(name, format!("{name} is required")))
    };
    let upload = BlobUpload {
        connector_id: needed("connector_id")?,
        connection_id: choice.connection_id,
        stream: needed("stream")?,
        record_key: needed("record_key")?,
        mime_type: params.single("mime_type")?.map(str::to_owned).or(declared),
    };
    let mut reader = BodyReader {
        pieces,
        rest: Bytes::new(),
    };
    let blob = service
        .records()
        .upload_blob(&bearer, &upload, &mut reader)?;
    let mut told = json!(blob);
    told["object"] = json!("blob");
    Ok(told.to_string())
}

/// A request body as a blocking reader.
struct BodyReader {
    pieces: mpsc::Receiver<Result<Bytes, Error>>,
    rest: Bytes,
}

impl io::Read for BodyReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            match self.pieces.blocking_recv() {
                None => return Ok(0),
                Some(piece) => {
                    self.rest = piece.map_err(|error| io::Error::other(error.to_string()))?;
                }
            }
        }
        let some = self.rest.len().min(into.len());
        into[..some].copy_from_slice(&self.rest.split_to(some));
        Ok(some)
    }
}
