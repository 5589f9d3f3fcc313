//! Response bodies, error bodies and the headers that every response has.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use rung_fault::{Coded as _, Face, Fault};
use rung_records::{Error, candidates_json};
use serde::Serialize;
use serde_json::{Value, json};

/// The supported `PDPP-Version`.
pub(crate) const PDPP_VERSION: &str = "2026-04-06";

/// The warnings of a response, written to `meta.warnings`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings(pub(crate) Vec<Value>);

impl Warnings {
    pub(crate) fn add_limit_clamped(&mut self, param: &str, asked: u64, max: u64) {
        self.0.push(json!({
            "code": "limit_clamped", "param": param,
            "message": format!("{param}={asked} is above the maximum of {max}"),
            "detail": {"requested_limit": asked, "max_limit": max},
        }));
    }

    pub(crate) fn add_deprecated_alias(&mut self) {
        self.0.push(json!({
            "code": "deprecated_alias_used", "param": "connector_instance_id",
            "message": "connector_instance_id is deprecated: use connection_id",
        }));
    }
}

/// A response whose `links` and `meta` members are not written yet.
#[derive(Debug, Default)]
pub(crate) struct RouteResponse {
    pub(crate) status: StatusCode,
    /// A JSON object.
    pub(crate) body: String,
    pub(crate) warnings: Warnings,
    pub(crate) count: Option<i64>,
    /// Further members of `meta`.
    pub(crate) meta: Vec<(&'static str, Value)>,
    pub(crate) next: NextLink,
    /// The stream and the number of records that the response discloses, for the disclosure journal.
    pub(crate) disclosed: Option<(Option<String>, usize)>,
}

/// The `next` member of a response's `links`.
#[derive(Debug, Default)]
pub(crate) enum NextLink {
    /// The response is not a list: `next` is left out.
    #[default]
    Omitted,
    /// The last page: `next` is null.
    Null,
    /// The request's own address with this parameter.
    Query(&'static str, String),
}

/// The body of a list response.
#[derive(Serialize)]
pub(crate) struct ListBody<'a, T> {
    pub(crate) object: &'static str,
    pub(crate) data: &'a [T],
    pub(crate) has_more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_changes_since: Option<&'a str>,
    pub(crate) url: &'a str,
}

impl RouteResponse {
    /// Builds a response from a value that serializes to an object.
    pub(crate) fn object(body: &impl Serialize) -> Result<Self, Error> {
        Ok(Self {
            body: serde_json::to_string(body)?,
            ..Self::default()
        })
    }

    /// Builds a list response.
    pub(crate) fn list<T: Serialize>(
        url: &str,
        data: &[T],
        next_cursor: Option<&str>,
        next_changes_since: Option<&str>,
    ) -> Result<Self, Error> {
        let list = ListBody {
            object: "list",
            data,
            has_more: next_cursor.is_some(),
            next_cursor,
            next_changes_since,
            url,
        };
        let mut answer = Self::object(&list)?;
        answer.next = next_cursor.map_or(NextLink::Null, |cursor| {
            NextLink::Query("cursor", cursor.to_owned())
        });
        Ok(answer)
    }

    pub(crate) fn with_disclosure(mut self, stream: Option<&str>, records: usize) -> Self {
        self.disclosed = Some((stream.map(str::to_owned), records));
        self
    }

    /// Returns the whole body of the response to a request for this path and query.
    pub(crate) fn to_body(&self, path: &str, query: &str) -> String {
        let own = if query.is_empty() {
            path.to_owned()
        } else {
            format!("{path}?{query}")
        };
        let mut links = json!({"self": own});
        match &self.next {
            NextLink::Omitted => {}
            NextLink::Null => links["next"] = Value::Null,
            NextLink::Query(param, value) => {
                let others = query.split('&').filter(|pair| {
                    let name = pair.split('=').next().unwrap_or_default();
                    !pair.is_empty() && name != *param
                });
                let mut next: Vec<String> = others.map(str::to_owned).collect();
                next.push(format!("{param}={value}"));
                links["next"] = json!(format!("{path}?{}", next.join("&")));
            }
        }
        let count = match self.count {
            Some(value) => json!({"kind": "exact", "value": value}),
            None => json!({"kind": "none"}),
        };
        let mut meta = json!({"count": count});
        for (name, value) in &self.meta {
            meta[*name] = value.clone();
        }
        meta["warnings"] = json!(self.warnings.0);
        let body = self.body.strip_suffix('}').unwrap_or("{");
        let comma = if body.len() > 1 { "," } else { "" };
        format!("{body}{comma}\"links\":{links},\"meta\":{meta}}}")
    }
}

/// Sets the headers that every response has.
pub(crate) fn add_common_headers(response: &mut Response, request_id: &str) {
    let headers = response.headers_mut();
    headers.insert(
        HeaderName::from_static("pdpp-version"),
        HeaderValue::from_static(PDPP_VERSION),
    );
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert(HeaderName::from_static("request-id"), id.clone());
        headers.insert(HeaderName::from_static("x-request-id"), id);
    }
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("private, no-store"),
    );
}

pub(crate) fn json_response(status: StatusCode, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Builds the response for an error.
pub(crate) fn error_response(error: &Error, request_id: &str, origin: &str) -> Response {
    if error.code().class() == rung_fault::Class::Broken {
        tracing::error!(%request_id, %error, "a request failed");
    }
    let param = error.param().map(str::to_owned);
    let candidates = error.candidates().map(candidates_json);
    let mut fault = Fault::new(error.code(), error.to_string());
    if let Some(hint) = error.http_hint() {
        fault = fault.with_hint(hint);
    }
    fault_response(&fault, param, candidates, request_id, origin)
}

fn fault_response(
    fault: &Fault,
    param: Option<String>,
    candidates: Option<Value>,
    request_id: &str,
    origin: &str,
) -> Response {
    let status = StatusCode::from_u16(fault.code().http_status())
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut body = fault.body(Face::Pdpp);
    let error = &mut body["error"];
    if let Some(param) = param {
        error["param"] = json!(param);
    }
    error["request_id"] = json!(request_id);
    if let Some(candidates) = candidates {
        error["available_connections"] = candidates;
        error["retry_with"] = json!("connection_id");
    }
    let metadata = format!("{origin}/.well-known/oauth-protected-resource");
    if status == StatusCode::UNAUTHORIZED {
        error["resource_metadata"] = json!(metadata);
        error["next_step"] = json!("run `rung pdpp connect` to ask the owner for access");
    }
    let mut response = json_response(status, body.to_string());
    if status == StatusCode::UNAUTHORIZED
        && let Ok(challenge) =
            HeaderValue::from_str(&format!("Bearer resource_metadata=\"{metadata}\""))
    {
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, challenge);
    }
    if matches!(
        status,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::INSUFFICIENT_STORAGE
    ) {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    add_common_headers(&mut response, request_id);
    response
}
