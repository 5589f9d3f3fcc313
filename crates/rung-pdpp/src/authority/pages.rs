//! The owner's HTML pages: no scripts, nothing loaded from other hosts.

use askama::Template;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rung_auth::{Access, DatabaseGrant, Pattern, ServerGrant};
use rung_fault::Coded as _;
use rung_records::authority::{
    AuthorizationDetail, AuthorizationRequest, ConsentSource, Delivery, RequestedAccess, Review,
    StreamPreview,
};
use rung_records::grant::{Grant, GrantedStream};
use rung_records::key::CalendarTime;
use rung_records::{Disclosure, Error, IssuedGrant, SourceConnection, StoredOwnerToken};
use serde_json::Value;

use super::form_request::FormRequest;
use super::grants::GrantRow;
use super::{par, session};
use crate::service::Service;

/// Characters of a value in a sample, at most.
const SAMPLE_CHARS: usize = 160;

#[derive(Template)]
#[template(path = "message.html")]
struct MessagePage<'a> {
    title: &'a str,
    lines: &'a [String],
    code: Option<&'a str>,
}

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage<'a> {
    csrf: &'a str,
    next: &'a str,
    wrong: Option<String>,
}

#[derive(Template)]
#[template(path = "device.html")]
struct DevicePage<'a> {
    csrf: &'a str,
    signed_in: bool,
    wrong: Option<String>,
}

#[allow(
    clippy::struct_excessive_bools,
    reason = "what a page shows or leaves out"
)]
#[derive(Template)]
#[template(path = "consent.html")]
struct ConsentPage<'a> {
    csrf: &'a str,
    signed_in: bool,
    wrong: Option<String>,
    client: ClientView<'a>,
    heading: &'static str,
    user_code: Option<&'a str>,
    request_uri: String,
    owner_token: bool,
    picks: bool,
    one_source: bool,
    once: bool,
    trains: bool,
    sources: Vec<SourceView>,
}

/// The client that requests access.
struct ClientView<'a> {
    name: &'a str,
    site: Option<&'a str>,
    answer: String,
}

/// A source that may be granted.
#[allow(
    clippy::struct_excessive_bools,
    reason = "what a page shows or leaves out"
)]
struct SourceView {
    place: usize,
    connector: String,
    title: String,
    chosen: bool,
    words: Vec<String>,
    training: bool,
    once: bool,
    timed: bool,
    since: String,
    until: String,
    days: String,
    /// True if its choices are expanded.
    open: bool,
    connections: Vec<(String, String, bool)>,
    /// Its streams and their record counts, in one line.
    summary: String,
    streams: Vec<StreamView>,
}

struct StreamView {
    name: String,
    description: Option<String>,
    needed: bool,
    limits: Option<String>,
    ticked: bool,
    open: bool,
    fields: Vec<(String, bool, bool)>,
    preview: Option<PreviewView>,
}

struct PreviewView {
    records: i64,
    counted: String,
    span: Option<String>,
    samples: Vec<Vec<(String, String)>>,
}

#[derive(Template)]
#[template(path = "review.html")]
struct ReviewPage<'a> {
    csrf: &'a str,
    signed_in: bool,
    client: ClientView<'a>,
    owner_token: bool,
    sources: Vec<ReviewedSource>,
    request_uri: String,
    revision: &'a str,
    /// The submitted fields, so that the choice can be changed.
    chosen: Vec<(String, String)>,
    /// Streams that were chosen and cannot be granted with these dates.
    left_out: Vec<String>,
}

struct ReviewedSource {
    title: String,
    words: Vec<String>,
    streams: Vec<ReviewedStream>,
}

struct ReviewedStream {
    name: String,
    limits: Option<String>,
    fields: String,
    preview: Option<PreviewView>,
}

#[derive(Template)]
#[template(path = "grants.html")]
struct GrantsPage<'a> {
    csrf: &'a str,
    signed_in: bool,
    grants: Vec<GrantView>,
    tools: Vec<OwnerTokenView>,
}

/// An owner token, issued to one of the owner's own tools.
struct OwnerTokenView {
    id: String,
    name: String,
    since: String,
    until: String,
}

struct GrantView {
    id: String,
    client: String,
    what: String,
    since: String,
    used: String,
    state: String,
    holds: bool,
}

/// The page that asks the owner to confirm a revocation.
#[derive(Template)]
#[template(path = "revoke.html")]
struct RevokePage<'a> {
    csrf: &'a str,
    signed_in: bool,
    client: &'a str,
    ends: &'a [String],
    action: &'a str,
}

/// A database that a grant reaches.
struct DatabaseView {
    name: String,
    mode: &'static str,
    attributes: String,
}

/// A downstream server that a grant reaches.
struct DownstreamServerView {
    name: String,
    tools: String,
}

#[derive(Template)]
#[template(path = "grant.html")]
struct GrantPage<'a> {
    csrf: &'a str,
    signed_in: bool,
    grant: GrantView,
    sources: Vec<ReviewedSource>,
    databases: Vec<DatabaseView>,
    servers: Vec<DownstreamServerView>,
    /// Bytes of a reply, where the grant limits them.
    reply_limit: Option<usize>,
    /// True if one token reaches all of it, so that all of it is revoked together.
    together: bool,
    shown: Vec<(String, String, String, String)>,
}

/// Renders a page, with the security headers that forbid framing and scripts.
fn render_page(
    visit: &FormRequest,
    status: StatusCode,
    template: &impl Template,
    csrf: Option<&str>,
    leads_to: Option<&str>,
) -> Result<Response, Error> {
    let html = template
        .render()
        .map_err(|error| Error::Broken(error.to_string()))?;
    let mut response = Response::new(Body::from(html));
    *response.status_mut() = status;
    let more = leads_to.map(|to| format!(" {to}")).unwrap_or_default();
    let policy = format!(
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'{more}; frame-ancestors 'none'; base-uri 'none'"
    );
    let headers = response.headers_mut();
    let mut put = |name, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    put(header::CONTENT_TYPE, "text/html; charset=utf-8");
    put(header::CONTENT_SECURITY_POLICY, &policy);
    put(header::X_FRAME_OPTIONS, "DENY");
    put(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    // Under `no-referrer` a browser would send forms with a null `Origin`.
    put(header::REFERRER_POLICY, "same-origin");
    if let Some(csrf) = csrf {
        session::set_csrf_cookie(visit, &mut response, csrf);
    }
    Ok(response)
}

/// Returns the redirect target of a request's forms, as a `form-action` source.
fn form_target(petition: &AuthorizationRequest) -> Option<String> {
    let Delivery::Redirect { redirect_uri, .. } = &petition.way else {
        return None;
    };
    let (scheme, rest) = redirect_uri.split_once(':')?;
    match rest.strip_prefix("//") {
        Some(rest) if matches!(scheme, "http" | "https") => {
            let authority = rest.split(['/', '?']).next().unwrap_or_default();
            Some(format!("{scheme}://{authority}"))
        }
        _ => Some(format!("{scheme}:")),
    }
}

pub(super) fn error_page(service: &Service, visit: &FormRequest, error: &Error) -> Response {
    let status =
        StatusCode::from_u16(error.code().http_status()).unwrap_or(StatusCode::BAD_REQUEST);
    let hint = error.hint().filter(|_| !service.without_login);
    let mut lines = vec![sentence(&error.to_string())];
    lines.extend(hint.map(|hint| sentence(&hint)));
    let message = MessagePage {
        title: if status == StatusCode::NOT_FOUND {
            "Not found"
        } else {
            "The request failed"
        },
        lines: &lines,
        code: None,
    };
    render_page(visit, status, &message, None, None)
        .unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

pub(super) fn login_page(
    visit: &FormRequest,
    next: &str,
    wrong: Option<&Error>,
) -> Result<Response, Error> {
    let csrf = session::csrf_token(visit)?;
    let status = match wrong {
        None => StatusCode::OK,
        Some(error) => StatusCode::from_u16(error.code().http_status()).unwrap_or(StatusCode::OK),
    };
    let template = LoginPage {
        csrf: &csrf,
        next,
        wrong: wrong.map(|error| sentence(&error.to_string())),
    };
    render_page(visit, status, &template, Some(&csrf), None)
}

pub(super) fn device_page(
    service: &Service,
    visit: &FormRequest,
    wrong: Option<&Error>,
) -> Result<Response, Error> {
    let csrf = session::csrf_token(visit)?;
    let template = DevicePage {
        csrf: &csrf,
        signed_in: !service.without_login,
        wrong: wrong.map(|error| sentence(&error.to_string())),
    };
    render_page(visit, StatusCode::OK, &template, Some(&csrf), None)
}

pub(super) fn approved_page(
    _service: &Service,
    visit: &FormRequest,
    code: Option<&str>,
) -> Result<Response, Error> {
    let lines = match code {
        Some(_) => vec![],
        None => vec!["The client now has access. You can close this page.".to_owned()],
    };
    let message = MessagePage {
        title: "Approved",
        lines: &lines,
        code,
    };
    render_page(visit, StatusCode::OK, &message, None, None)
}

pub(super) fn denied_page(_service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let message = MessagePage {
        title: "Denied",
        lines: &["The client has no access. You can close this page.".to_owned()],
        code: None,
    };
    render_page(visit, StatusCode::OK, &message, None, None)
}

pub(super) fn consent_page(
    service: &Service,
    visit: &FormRequest,
    petition: &AuthorizationRequest,
    offered: Vec<ConsentSource>,
    wrong: Option<&Error>,
) -> Result<Response, Error> {
    let csrf = session::csrf_token(visit)?;
    let (picks, one_source) = match petition.wanted {
        RequestedAccess::Pick { one_source } => (true, one_source),
        _ => (false, false),
    };
    let only = offered.len() == 1;
    // A form that is shown again keeps the submitted values.
    let filled = SubmittedForm((!visit.fields.is_empty() && !visit.is_json).then_some(visit));
    let sources: Vec<SourceView> = offered
        .into_iter()
        .enumerate()
        .map(|(place, source)| source_view(place, source, &filled, !picks || only))
        .collect();
    let owner_token = petition.wanted == RequestedAccess::OwnerToken;
    let nothing = picks && sources.is_empty();
    let template = ConsentPage {
        csrf: &csrf,
        signed_in: !service.without_login,
        wrong: wrong.map(|error| sentence(&error.to_string())).or_else(|| {
            nothing.then(|| "This server has no data yet, so there is nothing to share.".to_owned())
        }),
        client: client_view(petition),
        heading: if owner_token {
            "for full access"
        } else if picks {
            "to read what you choose"
        } else {
            "to read your data"
        },
        user_code: petition.user_code.as_deref(),
        request_uri: par::request_uri(&petition.id),
        owner_token,
        picks,
        one_source,
        once: filled.is_ticked("access_mode", "single_use", false),
        trains: filled.is_ticked("ai_training_consented", "true", false),
        sources,
    };
    let status = match wrong {
        None => StatusCode::OK,
        Some(error) => StatusCode::from_u16(error.code().http_status()).unwrap_or(StatusCode::OK),
    };
    let to = form_target(petition);
    render_page(visit, status, &template, Some(&csrf), to.as_deref())
}

fn client_view(petition: &AuthorizationRequest) -> ClientView<'_> {
    ClientView {
        name: petition.client.name(),
        site: petition.client.client_uri.as_deref().or_else(|| {
            let id = petition.client.client_id.as_str();
            Some(id).filter(|id| id.starts_with("https://"))
        }),
        answer: match &petition.way {
            Delivery::Redirect { redirect_uri, .. } if redirect_uri.starts_with("http://") => {
                format!("a program on your own computer, at {redirect_uri}")
            }
            Delivery::Redirect { redirect_uri, .. } => redirect_uri.clone(),
            Delivery::Device => "the device that shows the code".to_owned(),
            Delivery::Poll => "the command that waits for your decision".to_owned(),
            Delivery::Pushed => {
                "you: this server shows a code that you enter in the client".to_owned()
            }
        },
    }
}

/// The submitted form, if there is one.
struct SubmittedForm<'a>(Option<&'a FormRequest>);

impl SubmittedForm<'_> {
    fn is_ticked(&self, name: &str, value: &str, at_first: bool) -> bool {
        let ticked = |visit: &&FormRequest| visit.texts(name).contains(&value);
        self.0.as_ref().map_or(at_first, ticked)
    }

    fn text(&self, name: &str) -> String {
        let texts = self.0.map(|visit| visit.texts(name));
        texts
            .and_then(|texts| texts.first().map(ToString::to_string))
            .unwrap_or_default()
    }
}

fn source_view(
    place: usize,
    source: ConsentSource,
    filled: &SubmittedForm<'_>,
    chosen: bool,
) -> SourceView {
    let title = source
        .display_name
        .clone()
        .unwrap_or_else(|| source.connector.clone());
    let streams = source.streams.iter().map(|stream| {
        let records = stream.preview.as_ref().map_or(0, |preview| preview.records);
        format!("{}, {}", stream.name, format_record_count(records))
    });
    let own = |name: &str| filled.text(&format!("{name}.{place}"));
    let chosen = filled.is_ticked("source", &place.to_string(), chosen);
    SourceView {
        place,
        chosen,
        since: own("since"),
        until: own("until"),
        days: own("days"),
        open: filled.0.is_some() && chosen,
        summary: streams.collect::<Vec<_>>().join("; "),
        words: source
            .detail
            .as_ref()
            .map(request_lines)
            .unwrap_or_default(),
        training: source
            .detail
            .as_ref()
            .is_some_and(AuthorizationDetail::is_training),
        once: source.detail.as_ref().is_some_and(|ask| ask.single_use),
        timed: source.streams.iter().any(|stream| stream.has_time),
        connections: source
            .connections
            .iter()
            .map(|one| {
                let ticked = filled.is_ticked(&format!("connection.{place}"), &one.id, false);
                (
                    one.id.clone(),
                    account_label(&one.id, one.display_name.as_ref()),
                    ticked,
                )
            })
            .collect(),
        connector: source.connector,
        title,
        streams: source
            .streams
            .into_iter()
            .map(|stream| StreamView {
                ticked: filled.is_ticked(&format!("stream.{place}"), &stream.name, true),
                open: filled.0.is_some(),
                fields: stream
                    .fields
                    .into_iter()
                    .map(|(field, always)| {
                        let name = format!("field.{place}.{}", stream.name);
                        let ticked = always || filled.is_ticked(&name, &field, true);
                        (field, always, ticked)
                    })
                    .collect(),
                limits: limits_text(
                    stream.since.as_deref(),
                    stream.until.as_deref(),
                    stream.resources,
                ),
                preview: stream.preview.as_ref().map(preview_view),
                name: stream.name,
                description: stream.description,
                needed: stream.required,
            })
            .collect(),
    }
}

/// Returns an account's display name and id.
fn account_label(id: &str, name: Option<&String>) -> String {
    match name {
        Some(name) if name != id => format!("{name} ({id})"),
        _ => id.to_owned(),
    }
}

/// Describes a request for a source: purpose, duration and retention.
fn request_lines(ask: &AuthorizationDetail) -> Vec<String> {
    let mut words = vec![format!("For: {}.", purpose_text(&ask.purpose_code))];
    if let Some(own) = &ask.purpose_description {
        words.push(format!("The client's description: “{own}”"));
    }
    words.push(if ask.single_use {
        "For one use, within a day.".to_owned()
    } else {
        "Until you revoke it.".to_owned()
    });
    words.extend(ask.retention.as_ref().map(retention_line));
    words
}

fn retention_line(told: &Value) -> String {
    let how = match told["on_expiry"].as_str() {
        Some("anonymize") => "then anonymizes it",
        _ => "then deletes it",
    };
    match told["max_duration"].as_str() {
        Some(told) => format!(
            "The client states that it keeps the data for {}, {how}.",
            format_duration(told)
        ),
        None => format!("The client states that it keeps the data for a while, {how}."),
    }
}

/// Formats an ISO 8601 duration as `2 months and 1 day`.
fn format_duration(told: &str) -> String {
    let Ok(span) = told.parse::<jiff::Span>() else {
        return told.to_owned();
    };
    let parts = [
        (i64::from(span.get_years()), "year"),
        (i64::from(span.get_months()), "month"),
        (i64::from(span.get_weeks()), "week"),
        (i64::from(span.get_days()), "day"),
        (i64::from(span.get_hours()), "hour"),
        (span.get_minutes(), "minute"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count != 0);
    let parts = parts.map(|(count, unit)| {
        let s = if count == 1 { "" } else { "s" };
        format!("{count} {unit}{s}")
    });
    let words: Vec<String> = parts.collect();
    if words.is_empty() {
        told.to_owned()
    } else {
        words.join(" and ")
    }
}

/// Describes a purpose code.
fn purpose_text(code: &str) -> String {
    let own = code.strip_prefix("https://pdpp.dev/purpose/");
    let known = match own.unwrap_or_default() {
        "personalization" => "personalization",
        "analytics" => "statistics",
        "export" => "export of your data",
        "agent_context" => "context for an AI agent",
        "personal_assistant" | "personal_ai_assistant" => "your personal assistant",
        "ai_training" => "training AI models",
        "research" => "research",
        _ => return code.to_owned(),
    };
    known.to_owned()
}

/// Describes the time range and the named records that a stream is limited to.
fn limits_text(since: Option<&str>, until: Option<&str>, resources: usize) -> Option<String> {
    let span = match (since, until) {
        (None, None) => None,
        (Some(since), None) => Some(format!("from {} on", format_day(since))),
        (None, Some(until)) => Some(format!("before {}", format_day(until))),
        (Some(since), Some(until)) => Some(format!(
            "from {} on, before {}",
            format_day(since),
            format_day(until)
        )),
    };
    let named = (resources > 0).then(|| {
        let s = if resources == 1 { "" } else { "s" };
        format!("{resources} named record{s}")
    });
    match (span, named) {
        (None, None) => None,
        (Some(one), None) | (None, Some(one)) => Some(format!("Only {one}.")),
        (Some(span), Some(named)) => Some(format!("Only {named}, {span}.")),
    }
}

/// Formats a date as `2 January 2026`.
fn format_day(text: &str) -> String {
    let date = text
        .get(..10)
        .and_then(|date| date.parse::<jiff::civil::Date>().ok());
    match date {
        Some(date) => date.strftime("%-d %B %Y").to_string(),
        None => text.to_owned(),
    }
}

fn format_time(ms: i64) -> String {
    let at = CalendarTime::from_millisecond(ms).to_civil(&TimeZone::UTC);
    at.strftime("%-d %B %Y, %H:%M UTC").to_string()
}

/// Formats a number of records as `1,234 records`.
fn format_record_count(records: i64) -> String {
    let digits = records.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out.push_str(if records == 1 { " record" } else { " records" });
    out
}

fn preview_view(stream: &StreamPreview) -> PreviewView {
    let span = match (&stream.earliest, &stream.latest) {
        (Some(a), Some(b)) if format_day(a) == format_day(b) => {
            Some(format!("of {}", format_day(a)))
        }
        (Some(a), Some(b)) => Some(format!("from {} to {}", format_day(a), format_day(b))),
        _ => None,
    };
    let samples = stream.samples.iter().map(|sample| {
        let fields = sample.fields.iter();
        fields
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), sample_text(value)))
            .collect()
    });
    PreviewView {
        records: stream.records,
        counted: format_record_count(stream.records),
        span,
        samples: samples.collect(),
    }
}

/// Returns the beginning of a value, for a sample.
fn sample_text(value: &Value) -> String {
    let whole = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let head: String = whole.chars().take(SAMPLE_CHARS).collect();
    if head.len() < whole.len() {
        format!("{head}…")
    } else {
        head
    }
}

fn granted_stream(stream: &GrantedStream) -> ReviewedStream {
    let (since, until) = match &stream.time_constraint {
        Some(time) => (time.since.as_deref(), time.until.as_deref()),
        None => (None, None),
    };
    ReviewedStream {
        name: stream.name.clone(),
        limits: limits_text(since, until, stream.resources.as_ref().map_or(0, Vec::len)),
        fields: stream.fields.join(", "),
        preview: None,
    }
}

/// Names the accounts of a grant.
fn accounts_line(grant: &Grant, all: &[SourceConnection]) -> String {
    let mut accounts: Vec<&str> = grant
        .streams
        .iter()
        .flat_map(|stream| &stream.instance_ids)
        .map(String::as_str)
        .collect();
    accounts.sort_unstable();
    accounts.dedup();
    let s = if accounts.len() == 1 { "" } else { "s" };
    let accounts: Vec<String> = accounts
        .into_iter()
        .map(|id| {
            let known = all.iter().find(|one| one.id == id);
            account_label(id, known.and_then(|one| one.display_name.as_ref()))
        })
        .collect();
    format!("From your account{s} {}.", accounts.join(", "))
}

/// Describes a grant's purpose, accounts and expiry.
fn grant_lines(grant: &Grant, all: &[SourceConnection]) -> Vec<String> {
    let mut words = vec![
        format!("For: {}.", purpose_text(&grant.purpose_code)),
        accounts_line(grant, all),
    ];
    words.push(match (&grant.expires_at, grant.access_mode.as_str()) {
        (Some(end), "single_use") => format!("For one use, until {}.", format_day(end)),
        (Some(end), _) => format!("Until {}.", format_day(end)),
        (None, _) => "Until you revoke it.".to_owned(),
    });
    words
}

pub(super) fn review_page(
    visit: &FormRequest,
    petition: &AuthorizationRequest,
    review: &Review,
    previews: &[Vec<StreamPreview>],
    accounts: &[SourceConnection],
) -> Result<Response, Error> {
    let csrf = session::csrf_token(visit)?;
    let sources = review
        .decision
        .grants
        .iter()
        .zip(previews)
        .map(|(grant, previews)| {
            let streams = grant.streams.iter().map(|stream| ReviewedStream {
                preview: previews
                    .iter()
                    .find(|own| own.stream == stream.name)
                    .map(preview_view),
                ..granted_stream(stream)
            });
            ReviewedSource {
                title: source_name(grant),
                words: grant_lines(grant, accounts),
                streams: streams.collect(),
            }
        });
    let request_uri = par::request_uri(&petition.id);
    let template = ReviewPage {
        csrf: &csrf,
        signed_in: true,
        client: client_view(petition),
        owner_token: petition.wanted == RequestedAccess::OwnerToken,
        sources: sources.collect(),
        chosen: submitted_fields(visit),
        left_out: omitted_streams(visit, review),
        request_uri,
        revision: &review.revision,
    };
    let to = form_target(petition);
    render_page(visit, StatusCode::OK, &template, Some(&csrf), to.as_deref())
}

/// Returns the submitted fields of the choice.
fn submitted_fields(visit: &FormRequest) -> Vec<(String, String)> {
    let own = |name: &&String| {
        !matches!(
            name.as_str(),
            "_csrf" | "request_uri" | "approval_review_revision"
        )
    };
    let mut all = Vec::new();
    for name in visit.fields.keys().filter(own) {
        all.extend(
            visit
                .texts(name)
                .into_iter()
                .map(|value| (name.clone(), value.to_owned())),
        );
    }
    all
}

/// Returns the ticked streams that the review does not grant.
fn omitted_streams(visit: &FormRequest, review: &Review) -> Vec<String> {
    let given = |name: &str| {
        let mut grants = review.decision.grants.iter();
        grants.any(|grant| grant.stream(name).is_some())
    };
    let places = visit.texts("source");
    let ticked = places
        .iter()
        .flat_map(|place| visit.texts(&format!("stream.{place}")));
    ticked
        .filter(|name| !given(name))
        .map(str::to_owned)
        .collect()
}

fn source_name(grant: &Grant) -> String {
    rung_records::declaration::connector_slug(&grant.source.id)
}

/// Joins the patterns of a grant; an empty list means all.
fn join_patterns(named: &[Pattern], all: &str) -> String {
    if named.is_empty() {
        return all.to_owned();
    }
    let named: Vec<&str> = named.iter().map(Pattern::as_str).collect();
    named.join(", ")
}

fn database_view(of: &DatabaseGrant) -> DatabaseView {
    DatabaseView {
        name: of.name.clone(),
        mode: match of.mode {
            Access::Read => "read",
            Access::Write => "read and write",
        },
        attributes: join_patterns(&of.attributes, "every attribute"),
    }
}

fn downstream_server_view(of: &ServerGrant) -> DownstreamServerView {
    DownstreamServerView {
        name: of.name.clone(),
        tools: join_patterns(&of.tools, "every tool"),
    }
}

/// Lists all that a row of grants reaches, in one line.
fn reach_line(row: &GrantRow<'_>) -> String {
    reach_parts(row).join("; ")
}

fn reach_parts(row: &GrantRow<'_>) -> Vec<String> {
    let sources = row.grants.iter().map(|given| {
        let streams = given.grant.streams.iter();
        let streams: Vec<&str> = streams.map(|stream| stream.name.as_str()).collect();
        format!("{}: {}", source_name(&given.grant), streams.join(", "))
    });
    let scope = row.token.and_then(|token| token.scope.as_deref());
    let databases = scope.map_or(&[][..], |scope| &scope.databases);
    let servers = scope.map_or(&[][..], |scope| &scope.servers);
    let databases = databases.iter().map(|of| format!("database {}", of.name));
    let servers = servers.iter().map(|of| format!("server {}", of.name));
    sources.chain(databases).chain(servers).collect()
}

fn grant_view(row: &GrantRow<'_>) -> GrantView {
    let first = row.grants.first();
    let client = first.map(|given| &given.grant.client);
    let token = row.token.map(|token| token.caller.as_str());
    let name = client.and_then(|client| client.client_display["name"].as_str());
    let name = name.or(client.map(|client| client.client_id.as_str()));
    let id = first.map(|given| given.grant.grant_id.as_str());
    let id = id.or(row.token.map(|token| token.grant.as_str()));
    let expires_ms = match (first, row.token) {
        (Some(given), _) => given.expires_ms,
        (None, Some(token)) => token.expires_ms.and_then(|end| i64::try_from(end).ok()),
        (None, None) => None,
    };
    let now_ms = Timestamp::now().as_millisecond();
    let over = expires_ms.filter(|end| *end <= now_ms);
    let revoked_ms = first.and_then(|given| given.revoked_ms);
    let state = match (revoked_ms, over, expires_ms) {
        (Some(at), _, _) => format!("revoked {}", format_time(at)),
        (None, Some(at), _) => format!("ended {}", format_time(at)),
        (None, None, Some(end)) => format!("until {}", format_time(end)),
        (None, None, None) => "until you revoke it".to_owned(),
    };
    // Neither time is recorded for tokens without personal data.
    let recorded = |ms: Option<i64>, none: &str| match first {
        None => "not recorded".to_owned(),
        Some(_) => ms.map_or_else(|| none.to_owned(), format_time),
    };
    let used_ms = row.grants.iter().filter_map(|given| given.used_ms).max();
    GrantView {
        id: id.unwrap_or_default().to_owned(),
        client: name.or(token).unwrap_or_default().to_owned(),
        what: reach_line(row),
        since: recorded(first.map(|given| given.issued_ms), ""),
        used: recorded(used_ms, "never"),
        state,
        holds: revoked_ms.is_none() && over.is_none(),
    }
}

pub(super) fn grants_page(
    service: &Service,
    visit: &FormRequest,
    all: &[GrantRow<'_>],
    own: &[StoredOwnerToken],
) -> Result<Response, Error> {
    let csrf = session::csrf_token(visit)?;
    let template = GrantsPage {
        csrf: &csrf,
        signed_in: !service.without_login,
        grants: all.iter().map(grant_view).collect(),
        tools: own
            .iter()
            .map(|own| OwnerTokenView {
                id: own.id.clone(),
                name: own.name.clone(),
                since: format_time(own.issued_ms),
                until: match own.expires_ms {
                    Some(end) => format!("until {}", format_time(end)),
                    None => "until you revoke it".to_owned(),
                },
            })
            .collect(),
    };
    render_page(visit, StatusCode::OK, &template, Some(&csrf), None)
}

pub(super) fn grant_page(
    service: &Service,
    visit: &FormRequest,
    row: &GrantRow<'_>,
    shown: &[Disclosure],
    accounts: &[SourceConnection],
) -> Result<Response, Error> {
    let csrf = session::csrf_token(visit)?;
    let shown = shown.iter().map(|one| {
        (
            format_time(one.at_ms),
            one.request.clone(),
            one.stream.clone().unwrap_or_else(|| "several".to_owned()),
            if one.request.ends_with("/aggregate") {
                "a count".to_owned()
            } else {
                one.records.to_string()
            },
        )
    });
    let sources = row
        .grants
        .iter()
        .map(|IssuedGrant { grant, .. }| ReviewedSource {
            title: source_name(grant),
            words: vec![
                format!("For: {}.", purpose_text(&grant.purpose_code)),
                accounts_line(grant, accounts),
            ],
            streams: grant.streams.iter().map(granted_stream).collect(),
        });
    let scope = row.token.and_then(|token| token.scope.as_deref());
    let databases = scope.iter().flat_map(|scope| &scope.databases);
    let servers = scope.iter().flat_map(|scope| &scope.servers);
    let template = GrantPage {
        csrf: &csrf,
        signed_in: !service.without_login,
        grant: grant_view(row),
        sources: sources.collect(),
        databases: databases.map(database_view).collect(),
        servers: servers.map(downstream_server_view).collect(),
        reply_limit: scope.and_then(|scope| scope.max_reply_bytes),
        together: row.token.is_some(),
        shown: shown.collect(),
    };
    render_page(visit, StatusCode::OK, &template, Some(&csrf), None)
}

/// Asks the owner to confirm the revocation of a row of grants.
pub(super) fn revoke_grant_page(
    service: &Service,
    visit: &FormRequest,
    row: &GrantRow<'_>,
) -> Result<Response, Error> {
    let grant = grant_view(row);
    let action = format!("/owner/grants/{}/revoke", grant.id);
    revoke_page(service, visit, &grant.client, &reach_parts(row), &action)
}

/// Asks the owner to confirm the revocation of an owner token.
pub(super) fn revoke_owner_token_page(
    service: &Service,
    visit: &FormRequest,
    token: &StoredOwnerToken,
) -> Result<Response, Error> {
    let action = format!("/owner/tokens/{}/end", token.id);
    let ends = ["Reading and changing everything on this server.".to_owned()];
    revoke_page(service, visit, &token.name, &ends, &action)
}

fn revoke_page(
    service: &Service,
    visit: &FormRequest,
    client: &str,
    ends: &[String],
    action: &str,
) -> Result<Response, Error> {
    let csrf = session::csrf_token(visit)?;
    let template = RevokePage {
        csrf: &csrf,
        signed_in: !service.without_login,
        client,
        ends,
        action,
    };
    render_page(visit, StatusCode::OK, &template, Some(&csrf), None)
}

/// Capitalizes a message and ends it with a full stop.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(char::to_uppercase);
    let mut out: String = first.into_iter().flatten().chain(chars).collect();
    if !out.ends_with(['.', '!', '?']) {
        out.push('.');
    }
    out
}

fn asset(kind: &'static str, body: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "public, max-age=3600"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, body).into_response()
}

pub(super) async fn style() -> Response {
    asset(
        "text/css; charset=utf-8",
        include_str!("../../templates/style.css"),
    )
}

pub(super) async fn icon() -> Response {
    asset("image/svg+xml", include_str!("../../templates/icon.svg"))
}
