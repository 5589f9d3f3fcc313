//! A visit: what came, read once, and the shape of every answer.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use rung_fault::{Code, Coded as _};
use rung_records::Error;
use serde_json::{Map, Value, json};

use super::{Work, pages};
use crate::answer;
use crate::service::{Arrived, Service};

/// Bytes of a body.
const MAX_BYTES: usize = 256 * 1024;

/// What came.
pub(super) struct Visit {
    pub(super) arrived: Arrived,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) headers: HeaderMap,
    /// Parts of the path.
    pub(super) names: Vec<String>,
    /// What was sent, by name: of an object or of a form.
    pub(super) fields: Map<String, Value>,
    /// Whether an object was sent, as programs do.
    pub(super) is_json: bool,
}

/// Reads `a=1&b=2`. A name that stands several times has a list.
pub(super) fn form(text: &str) -> Map<String, Value> {
    let mut fields = Map::new();
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        let (name, value) = (name.into_owned(), Value::String(value.into_owned()));
        match fields.get_mut(&name) {
            None => {
                fields.insert(name, value);
            }
            Some(Value::Array(several)) => several.push(value),
            Some(one) => *one = Value::Array(vec![one.take(), value]),
        }
    }
    fields
}

/// A value as it may stand in an address.
pub(super) fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// An address with more to say.
pub(super) fn with_query(uri: &str, more: &[(&str, Option<&str>)]) -> String {
    let mut out = uri.to_owned();
    for (name, value) in more {
        if let Some(value) = value {
            out.push(if out.contains('?') { '&' } else { '?' });
            out.push_str(name);
            out.push('=');
            out.push_str(&encoded(value));
        }
    }
    out
}

impl Visit {
    async fn read(
        service: &Service,
        names: Vec<String>,
        request: Request,
    ) -> Result<Self, (Arrived, Error)> {
        let (parts, body) = request.into_parts();
        let arrived = service.arrived_at_authority(&parts.headers);
        let kind = parts.headers.get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_json = kind.split(';').next().is_some_and(|kind| {
            let kind = kind.trim();
            kind.eq_ignore_ascii_case("application/json") || kind.ends_with("+json")
        });
        let Ok(body) = axum::body::to_bytes(body, MAX_BYTES).await else {
            let error = Error::TooLarge {
                what: "the body",
                limit: MAX_BYTES as u64,
            };
            return Err((arrived, error));
        };
        let fields = if body.is_empty() {
            Ok(Map::new())
        } else if is_json {
            serde_json::from_slice(&body)
                .map_err(|error| Error::invalid("", format!("the body is no JSON object: {error}")))
        } else {
            match std::str::from_utf8(&body) {
                Ok(text) => Ok(form(text)),
                Err(_) => Err(Error::invalid("", "the body is not UTF-8")),
            }
        };
        let fields = match fields {
            Ok(fields) => fields,
            Err(error) => return Err((arrived, error)),
        };
        Ok(Self {
            arrived,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            headers: parts.headers,
            names,
            fields,
            is_json,
        })
    }

    /// A field that is a text.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, Error> {
        text(&self.fields, name)
    }

    /// A field that must be there.
    pub(super) fn need(&self, name: &'static str) -> Result<&str, Error> {
        self.text(name)?
            .filter(|text| !text.is_empty())
            .ok_or_else(|| Error::invalid(name, format!("{name} is needed")))
    }

    /// All texts of one name.
    pub(super) fn texts(&self, name: &str) -> Vec<&str> {
        match self.fields.get(name) {
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            Some(one) => one.as_str().into_iter().collect(),
            None => Vec::new(),
        }
    }

    pub(super) fn asked(&self) -> Map<String, Value> {
        form(&self.query)
    }

    /// Whether a person looks at the answer.
    pub(super) fn wants_page(&self) -> bool {
        let accept = self.headers.get(header::ACCEPT);
        let accept = accept
            .and_then(|accept| accept.to_str().ok())
            .unwrap_or_default();
        !self.is_json && accept.contains("text/html")
    }

    pub(super) fn header(&self, name: impl header::AsHeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// A cookie of the browser's.
    pub(super) fn cookie(&self, name: &str) -> Option<&str> {
        let all = self.headers.get_all(header::COOKIE).iter();
        let pairs = all
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'));
        let found = pairs.filter_map(|pair| pair.trim().split_once('='));
        found
            .filter(|(own, _)| *own == name)
            .map(|(_, value)| value)
            .next()
    }
}

/// A member that is a text.
pub(super) fn text<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
) -> Result<Option<&'a str>, Error> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Error::invalid(
            name.to_owned(),
            format!("{name} is one text"),
        )),
    }
}

/// Answers a visit, on a thread that may wait.
pub(super) async fn answer(
    service: Arc<Service>,
    name: &'static str,
    work: Work,
    names: Vec<String>,
    request: Request,
) -> Response {
    let began = Instant::now();
    let path = request.uri().path().to_owned();
    let response = match Visit::read(&service, names, request).await {
        Err((arrived, error)) => refusal(&path, &arrived, &error),
        Ok(visit) => {
            let worker = service.clone();
            let done = tokio::task::spawn_blocking(move || {
                let id = visit.arrived.request_id.clone();
                let _entered =
                    tracing::info_span!("authority", route = name, request_id = %id).entered();
                let answered = work(&worker, &visit);
                let mut response = answered.unwrap_or_else(|error| {
                    tracing::debug!(code = error.code().name(), %error, "refused");
                    if visit.wants_page() {
                        pages::refusal(&worker, &visit, &error)
                    } else {
                        refusal(&visit.path, &visit.arrived, &error)
                    }
                });
                answer::dress(&mut response, &id);
                response
                    .headers_mut()
                    .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
                response
                    .headers_mut()
                    .insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
                response
            });
            done.await.unwrap_or_else(|error| {
                tracing::error!(%error, "a visit ended in a panic");
                let error = Error::Broken("the request failed".to_owned());
                answer::refusal(&error, "", "")
            })
        }
    };
    let status = response.status().as_u16();
    service
        .metrics
        .ended(name, status, began.elapsed().as_secs_f64());
    response
}

/// A refusal: in the form of OAuth where OAuth is spoken, and else in our own.
fn refusal(path: &str, arrived: &Arrived, error: &Error) -> Response {
    let oauth = ["/oauth/", "/agent-connect", "/device"];
    if oauth.iter().any(|own| path.starts_with(own)) {
        let code = match error.code() {
            // OAuth has one word for whatever is not there or not well said.
            Code::NotFound | Code::AmbiguousConnection | Code::ConnectionNotFound => {
                Code::InvalidRequest
            }
            code => code,
        };
        let mut response = oauth_refusal(code, &error.to_string(), &[]);
        // Who proves nothing has nothing to prove wrongly, but where tokens are given.
        if code == Code::InvalidClient && path != "/oauth/token" {
            *response.status_mut() = StatusCode::BAD_REQUEST;
        }
        return response;
    }
    answer::refusal(error, &arrived.request_id, &arrived.origin)
}

/// A refusal in the form of OAuth.
pub(super) fn oauth_refusal(code: Code, why: &str, more: &[(&str, Value)]) -> Response {
    let mut body = json!({"error": code.name(), "error_description": why});
    for (name, value) in more {
        body[*name] = value.clone();
    }
    let status = StatusCode::from_u16(code.http_status());
    let mut response = json(status.unwrap_or(StatusCode::BAD_REQUEST), &body);
    if code == Code::SlowDown {
        let wait = HeaderValue::from_static("5");
        response.headers_mut().insert(header::RETRY_AFTER, wait);
    }
    response
}

pub(super) fn json(status: StatusCode, body: &Value) -> Response {
    answer::json_response(status, body.to_string())
}

/// Sends a browser elsewhere.
pub(super) fn redirect(to: &str) -> Result<Response, Error> {
    let to = HeaderValue::from_str(to).map_err(|_| {
        Error::refused(Code::InvalidRedirectUri, "redirect_uri", "it is no address")
    })?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::FOUND;
    response.headers_mut().insert(header::LOCATION, to);
    Ok(response)
}
