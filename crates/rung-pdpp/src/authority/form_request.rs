//! Parses requests to the authorization server and builds its responses.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use rung_fault::{Code, Coded as _};
use rung_records::Error;
use serde_json::{Map, Value, json};

use super::{FormHandler, pages};
use crate::envelope;
use crate::service::{RequestHead, Service};

/// Bytes of a request body, at most.
const MAX_BYTES: usize = 256 * 1024;

/// A request with its form, JSON or query fields.
pub(super) struct FormRequest {
    pub(super) head: RequestHead,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) headers: HeaderMap,
    /// The path parameters.
    pub(super) path_params: Vec<String>,
    /// The members of the JSON object or the fields of the form that was sent.
    pub(super) fields: Map<String, Value>,
    /// True if the body is a JSON object, as programs send it.
    pub(super) is_json: bool,
}

/// Parses `a=1&b=2`. The values of a repeated name become an array.
pub(super) fn parse_form(text: &str) -> Map<String, Value> {
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

/// Encodes a value for a query string.
pub(super) fn url_encode(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Appends query parameters to a URL; those without a value are left out.
pub(super) fn with_query(uri: &str, more: &[(&str, Option<&str>)]) -> String {
    let mut out = uri.to_owned();
    for (name, value) in more {
        if let Some(value) = value {
            out.push(if out.contains('?') { '&' } else { '?' });
            out.push_str(name);
            out.push('=');
            out.push_str(&url_encode(value));
        }
    }
    out
}

impl FormRequest {
    async fn read(
        service: &Service,
        names: Vec<String>,
        request: Request,
    ) -> Result<Self, (RequestHead, Error)> {
        let (parts, body) = request.into_parts();
        let arrived = service.authority_request_head(&parts.headers);
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
            serde_json::from_slice(&body).map_err(|error| {
                Error::invalid_request("", format!("the body is not a JSON object: {error}"))
            })
        } else {
            match std::str::from_utf8(&body) {
                Ok(text) => Ok(parse_form(text)),
                Err(_) => Err(Error::invalid_request("", "the body is not UTF-8")),
            }
        };
        let fields = match fields {
            Ok(fields) => fields,
            Err(error) => return Err((arrived, error)),
        };
        Ok(Self {
            head: arrived,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            headers: parts.headers,
            path_params: names,
            fields,
            is_json,
        })
    }

    /// Returns a field. One that is not a string is an error.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, Error> {
        text(&self.fields, name)
    }

    /// Returns a required field.
    pub(super) fn required_text(&self, name: &'static str) -> Result<&str, Error> {
        self.text(name)?
            .filter(|text| !text.is_empty())
            .ok_or_else(|| Error::invalid_request(name, format!("{name} is required")))
    }

    /// Returns all string values of one name.
    pub(super) fn texts(&self, name: &str) -> Vec<&str> {
        match self.fields.get(name) {
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            Some(one) => one.as_str().into_iter().collect(),
            None => Vec::new(),
        }
    }

    pub(super) fn query_fields(&self) -> Map<String, Value> {
        parse_form(&self.query)
    }

    /// True if the response is for a browser.
    pub(super) fn wants_html(&self) -> bool {
        let accept = self.headers.get(header::ACCEPT);
        let accept = accept
            .and_then(|accept| accept.to_str().ok())
            .unwrap_or_default();
        !self.is_json && accept.contains("text/html")
    }

    pub(super) fn header(&self, name: impl header::AsHeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the value of a cookie.
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

/// Returns a member. One that is not a string is an error.
pub(super) fn text<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
) -> Result<Option<&'a str>, Error> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Error::invalid_request(
            name.to_owned(),
            format!("{name} must be one string"),
        )),
    }
}

/// Parses a request and handles it on a blocking thread.
pub(super) async fn handle(
    service: Arc<Service>,
    name: &'static str,
    work: FormHandler,
    names: Vec<String>,
    request: Request,
) -> Response {
    let began = Instant::now();
    let path = request.uri().path().to_owned();
    let response = match FormRequest::read(&service, names, request).await {
        Err((arrived, error)) => error_response(&path, &arrived, &error),
        Ok(visit) => {
            let worker = service.clone();
            let done = tokio::task::spawn_blocking(move || {
                let id = visit.head.request_id.clone();
                let _entered =
                    tracing::info_span!("authority", route = name, request_id = %id).entered();
                let answered = work(&worker, &visit);
                let mut response = answered.unwrap_or_else(|error| {
                    tracing::debug!(code = error.code().name(), %error, "refused");
                    if visit.wants_html() {
                        pages::error_page(&worker, &visit, &error)
                    } else {
                        error_response(&visit.path, &visit.head, &error)
                    }
                });
                envelope::add_common_headers(&mut response, &id);
                response
                    .headers_mut()
                    .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
                response
                    .headers_mut()
                    .insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
                response
            });
            done.await.unwrap_or_else(|error| {
                tracing::error!(%error, "a request handler panicked");
                let error = Error::Broken("the request failed".to_owned());
                envelope::error_response(&error, "", "")
            })
        }
    };
    let status = response.status().as_u16();
    service
        .metrics
        .record_request(name, status, began.elapsed().as_secs_f64());
    response
}

/// Builds an error response: an OAuth error for OAuth endpoints, else the PDPP error body.
fn error_response(path: &str, arrived: &RequestHead, error: &Error) -> Response {
    let oauth = ["/oauth/", "/agent-connect", "/device"];
    if oauth.iter().any(|own| path.starts_with(own)) {
        let code = match error.code() {
            // OAuth has one code for missing and malformed parameters.
            Code::NotFound | Code::AmbiguousConnection | Code::ConnectionNotFound => {
                Code::InvalidRequest
            }
            code => code,
        };
        let mut response = oauth_error(code, &error.to_string(), &[]);
        // Without client authentication an unknown client is a 400, except at the token endpoint.
        if code == Code::InvalidClient && path != "/oauth/token" {
            *response.status_mut() = StatusCode::BAD_REQUEST;
        }
        return response;
    }
    envelope::error_response(error, &arrived.request_id, &arrived.origin)
}

/// Builds an OAuth error response (RFC 6749).
pub(super) fn oauth_error(code: Code, why: &str, more: &[(&str, Value)]) -> Response {
    let mut body = json!({"error": code.name(), "error_description": why});
    for (name, value) in more {
        body[*name] = value.clone();
    }
    let status = StatusCode::from_u16(code.http_status());
    let mut response = json_response(status.unwrap_or(StatusCode::BAD_REQUEST), &body);
    if code == Code::SlowDown {
        let wait = HeaderValue::from_static("5");
        response.headers_mut().insert(header::RETRY_AFTER, wait);
    }
    response
}

pub(super) fn json_response(status: StatusCode, body: &Value) -> Response {
    envelope::json_response(status, body.to_string())
}

/// Redirects a browser.
pub(super) fn redirect(to: &str) -> Result<Response, Error> {
    let to = HeaderValue::from_str(to).map_err(|_| {
        Error::invalid_with_code(
            Code::InvalidRedirectUri,
            "redirect_uri",
            "redirect_uri is not a valid URL",
        )
    })?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::FOUND;
    response.headers_mut().insert(header::LOCATION, to);
    Ok(response)
}
