//! What people see: plain words, no scripts, nothing from elsewhere.

use askama::Template;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rung_auth::{Access, OfDatabase, OfServer, Pattern};
use rung_fault::Coded as _;
use rung_records::authority::{Ask, OfferedSource, Petition, Review, StreamPreview, Wanted, Way};
use rung_records::grant::{Grant, GrantedStream};
use rung_records::key::Moment;
use rung_records::{Connection, Disclosure, Error, GivenGrant, OwnToken};
use serde_json::Value;

use super::grants::GrantRow;
use super::visit::Visit;
use super::{par, session};
use crate::service::Service;

/// Characters of a value in a sample.
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
    client: Client<'a>,
    heading: &'static str,
    user_code: Option<&'a str>,
    request_uri: String,
    owner_token: bool,
    picks: bool,
    one_source: bool,
    once: bool,
    trains: bool,
    sources: Vec<Source>,
}

/// Who asks.
struct Client<'a> {
    name: &'a str,
    site: Option<&'a str>,
    answer: String,
}

/// A source of which something may be given.
#[allow(
    clippy::struct_excessive_bools,
    reason = "what a page shows or leaves out"
)]
struct Source {
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
    /// Whether what is chosen of it is shown at once.
    open: bool,
    connections: Vec<(String, String, bool)>,
    /// Its streams, in a line.
    summary: String,
    streams: Vec<Stream>,
}

struct Stream {
    name: String,
    description: Option<String>,
    needed: bool,
    limits: Option<String>,
    ticked: bool,
    open: bool,
    fields: Vec<(String, bool, bool)>,
    preview: Option<Preview>,
}

struct Preview {
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
    client: Client<'a>,
    owner_token: bool,
    sources: Vec<Reviewed>,
    request_uri: String,
    revision: &'a str,
    /// What was chosen, for whoever wants to change it.
    chosen: Vec<(String, String)>,
    /// Streams that were chosen and cannot be given with these dates.
    left_out: Vec<String>,
}

struct Reviewed {
    title: String,
    words: Vec<String>,
    streams: Vec<ReviewedStream>,
}

struct ReviewedStream {
    name: String,
    limits: Option<String>,
    fields: String,
    preview: Option<Preview>,
}

#[derive(Template)]
#[template(path = "grants.html")]
struct GrantsPage<'a> {
    csrf: &'a str,
    signed_in: bool,
    grants: Vec<Given>,
    tools: Vec<Tool>,
}

/// A tool of the owner's own.
struct Tool {
    id: String,
    name: String,
    since: String,
    until: String,
}

struct Given {
    id: String,
    client: String,
    what: String,
    since: String,
    used: String,
    state: String,
    holds: bool,
}

/// A database that a grant reaches.
struct Database {
    name: String,
    mode: &'static str,
    attributes: String,
}

/// A downstream server that a grant reaches.
struct DownstreamServer {
    name: String,
    tools: String,
}

#[derive(Template)]
#[template(path = "grant.html")]
struct GrantPage<'a> {
    csrf: &'a str,
    signed_in: bool,
    grant: Given,
    sources: Vec<Reviewed>,
    databases: Vec<Database>,
    servers: Vec<DownstreamServer>,
    /// Bytes of a reply, where the grant limits them.
    reply_limit: Option<usize>,
    /// Whether one token reaches all of it, and all of it ends together.
    together: bool,
    shown: Vec<(String, String, String, String)>,
}

/// A page, with what keeps others from framing it or running anything in it.
fn page(
    visit: &Visit,
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
    // Without any referrer a browser would not say where a form comes from, either.
    put(header::REFERRER_POLICY, "same-origin");
    if let Some(csrf) = csrf {
        session::set_csrf(visit, &mut response, csrf);
    }
    Ok(response)
}

/// Where the browser goes when a form of this petition is sent, as a policy names it.
fn leads_to(petition: &Petition) -> Option<String> {
    let Way::Redirect { redirect_uri, .. } = &petition.way else {
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

pub(super) fn refusal(service: &Service, visit: &Visit, error: &Error) -> Response {
    let status =
        StatusCode::from_u16(error.code().http_status()).unwrap_or(StatusCode::BAD_REQUEST);
    let hint = error.hint().filter(|_| !service.without_login);
    let mut lines = vec![sentence(&error.to_string())];
    lines.extend(hint.map(|hint| sentence(&hint)));
    let message = MessagePage {
        title: "That did not work",
        lines: &lines,
        code: None,
    };
    page(visit, status, &message, None, None)
        .unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

pub(super) fn login(visit: &Visit, next: &str, wrong: Option<&Error>) -> Result<Response, Error> {
    let csrf = session::csrf(visit)?;
    let status = match wrong {
        None => StatusCode::OK,
        Some(error) => StatusCode::from_u16(error.code().http_status()).unwrap_or(StatusCode::OK),
    };
    let template = LoginPage {
        csrf: &csrf,
        next,
        wrong: wrong.map(|error| sentence(&error.to_string())),
    };
    page(visit, status, &template, Some(&csrf), None)
}

pub(super) fn device(
    service: &Service,
    visit: &Visit,
    wrong: Option<&Error>,
) -> Result<Response, Error> {
    let csrf = session::csrf(visit)?;
    let template = DevicePage {
        csrf: &csrf,
        signed_in: !service.without_login,
        wrong: wrong.map(|error| sentence(&error.to_string())),
    };
    page(visit, StatusCode::OK, &template, Some(&csrf), None)
}

pub(super) fn done(
    _service: &Service,
    visit: &Visit,
    code: Option<&str>,
) -> Result<Response, Error> {
    let lines = match code {
        Some(_) => vec![],
        None => vec!["Whoever asked is told now. You can close this page.".to_owned()],
    };
    let message = MessagePage {
        title: "It is allowed",
        lines: &lines,
        code,
    };
    page(visit, StatusCode::OK, &message, None, None)
}

pub(super) fn denied(_service: &Service, visit: &Visit) -> Result<Response, Error> {
    let message = MessagePage {
        title: "You said no",
        lines: &["Nothing was given. You can close this page.".to_owned()],
        code: None,
    };
    page(visit, StatusCode::OK, &message, None, None)
}

pub(super) fn consent(
    service: &Service,
    visit: &Visit,
    petition: &Petition,
    offered: Vec<OfferedSource>,
    wrong: Option<&Error>,
) -> Result<Response, Error> {
    let csrf = session::csrf(visit)?;
    let (picks, one_source) = match petition.wanted {
        Wanted::Pick { one_source } => (true, one_source),
        _ => (false, false),
    };
    let only = offered.len() == 1;
    // A form that is shown again is as it was left.
    let filled = Filled((!visit.fields.is_empty() && !visit.is_json).then_some(visit));
    let sources: Vec<Source> = offered
        .into_iter()
        .enumerate()
        .map(|(place, source)| offered_source(place, source, &filled, !picks || only))
        .collect();
    let owner_token = petition.wanted == Wanted::OwnerToken;
    let nothing = picks && sources.is_empty();
    let template = ConsentPage {
        csrf: &csrf,
        signed_in: !service.without_login,
        wrong: wrong.map(|error| sentence(&error.to_string())).or_else(|| {
            nothing.then(|| "There is no data here yet, so there is nothing to give.".to_owned())
        }),
        client: client(petition),
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
        once: filled.is("access_mode", "single_use", false),
        trains: filled.is("ai_training_consented", "true", false),
        sources,
    };
    let status = match wrong {
        None => StatusCode::OK,
        Some(error) => StatusCode::from_u16(error.code().http_status()).unwrap_or(StatusCode::OK),
    };
    let to = leads_to(petition);
    page(visit, status, &template, Some(&csrf), to.as_deref())
}

fn client(petition: &Petition) -> Client<'_> {
    Client {
        name: petition.client.name(),
        site: petition.client.client_uri.as_deref().or_else(|| {
            let id = petition.client.client_id.as_str();
            Some(id).filter(|id| id.starts_with("https://"))
        }),
        answer: match &petition.way {
            Way::Redirect { redirect_uri, .. } if redirect_uri.starts_with("http://") => {
                format!("a program on your own computer, at {redirect_uri}")
            }
            Way::Redirect { redirect_uri, .. } => redirect_uri.clone(),
            Way::Device => "the device that shows the code".to_owned(),
            Way::Poll => "the command that waits for it".to_owned(),
            Way::Pushed => "you: a code is shown that you hand over".to_owned(),
        },
    }
}

/// What was ticked and written, if the form was sent before.
struct Filled<'a>(Option<&'a Visit>);

impl Filled<'_> {
    fn is(&self, name: &str, value: &str, at_first: bool) -> bool {
        let ticked = |visit: &&Visit| visit.texts(name).contains(&value);
        self.0.as_ref().map_or(at_first, ticked)
    }

    fn text(&self, name: &str) -> String {
        let texts = self.0.map(|visit| visit.texts(name));
        texts
            .and_then(|texts| texts.first().map(ToString::to_string))
            .unwrap_or_default()
    }
}

fn offered_source(
    place: usize,
    source: OfferedSource,
    filled: &Filled<'_>,
    chosen: bool,
) -> Source {
    let title = source
        .display_name
        .clone()
        .unwrap_or_else(|| source.connector.clone());
    let streams = source.streams.iter().map(|stream| {
        let records = stream.preview.as_ref().map_or(0, |preview| preview.records);
        format!("{}, {}", stream.name, counted(records))
    });
    let own = |name: &str| filled.text(&format!("{name}.{place}"));
    let chosen = filled.is("source", &place.to_string(), chosen);
    Source {
        place,
        chosen,
        since: own("since"),
        until: own("until"),
        days: own("days"),
        open: filled.0.is_some() && chosen,
        summary: streams.collect::<Vec<_>>().join("; "),
        words: source.asked.as_ref().map(asked_words).unwrap_or_default(),
        training: source.asked.as_ref().is_some_and(Ask::is_training),
        once: source.asked.as_ref().is_some_and(|ask| ask.single_use),
        timed: source.streams.iter().any(|stream| stream.timed),
        connections: source
            .connections
            .iter()
            .map(|one| {
                let ticked = filled.is(&format!("connection.{place}"), &one.id, false);
                (
                    one.id.clone(),
                    account(&one.id, one.display_name.as_ref()),
                    ticked,
                )
            })
            .collect(),
        connector: source.connector,
        title,
        streams: source
            .streams
            .into_iter()
            .map(|stream| Stream {
                ticked: filled.is(&format!("stream.{place}"), &stream.name, true),
                open: filled.0.is_some(),
                fields: stream
                    .fields
                    .into_iter()
                    .map(|(field, always)| {
                        let name = format!("field.{place}.{}", stream.name);
                        let ticked = always || filled.is(&name, &field, true);
                        (field, always, ticked)
                    })
                    .collect(),
                limits: limits(
                    stream.since.as_deref(),
                    stream.until.as_deref(),
                    stream.resources,
                ),
                preview: stream.preview.as_ref().map(preview),
                name: stream.name,
                description: stream.description,
                needed: stream.needed,
            })
            .collect(),
    }
}

/// An account, by its name for people and the one for programs.
fn account(id: &str, name: Option<&String>) -> String {
    match name {
        Some(name) if name != id => format!("{name} ({id})"),
        _ => id.to_owned(),
    }
}

/// What is asked of a source, in words.
fn asked_words(ask: &Ask) -> Vec<String> {
    let mut words = vec![format!("For: {}.", purpose(&ask.purpose_code))];
    if let Some(own) = &ask.purpose_description {
        words.push(format!("In its own words: “{own}”"));
    }
    words.push(if ask.single_use {
        "Once: what it gets may be used within a day.".to_owned()
    } else {
        "Until you take it back.".to_owned()
    });
    words.extend(ask.retention.as_ref().map(retention));
    words
}

fn retention(told: &Value) -> String {
    let how = match told["on_expiry"].as_str() {
        Some("anonymize") => "then makes it anonymous",
        _ => "then deletes it",
    };
    match told["max_duration"].as_str() {
        Some(told) => format!(
            "It says that it keeps what it reads for {}, {how}.",
            duration(told)
        ),
        None => format!("It says that it keeps what it reads for a while, {how}."),
    }
}

/// A length of time, as people write it.
fn duration(told: &str) -> String {
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

/// A purpose, in words.
fn purpose(code: &str) -> String {
    let own = code.strip_prefix("https://pdpp.dev/purpose/");
    let known = match own.unwrap_or_default() {
        "personalization" => "fitting something to you",
        "analytics" => "statistics",
        "export" => "taking your data elsewhere",
        "agent_context" => "giving an AI agent what it needs to know",
        "personal_assistant" | "personal_ai_assistant" => "an assistant of yours",
        "ai_training" => "training AI models",
        "research" => "research",
        _ => return code.to_owned(),
    };
    known.to_owned()
}

/// By what a stream is limited.
fn limits(since: Option<&str>, until: Option<&str>, resources: usize) -> Option<String> {
    let span = match (since, until) {
        (None, None) => None,
        (Some(since), None) => Some(format!("from {} on", day(since))),
        (None, Some(until)) => Some(format!("before {}", day(until))),
        (Some(since), Some(until)) => {
            Some(format!("from {} on, before {}", day(since), day(until)))
        }
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

/// A day, as people write it.
fn day(text: &str) -> String {
    let date = text
        .get(..10)
        .and_then(|date| date.parse::<jiff::civil::Date>().ok());
    match date {
        Some(date) => date.strftime("%-d %B %Y").to_string(),
        None => text.to_owned(),
    }
}

fn moment(ms: i64) -> String {
    let at = Moment::from_millisecond(ms).to_civil(&TimeZone::UTC);
    at.strftime("%-d %B %Y, %H:%M UTC").to_string()
}

/// A number, as people write it.
fn counted(records: i64) -> String {
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

fn preview(stream: &StreamPreview) -> Preview {
    let span = match (&stream.earliest, &stream.latest) {
        (Some(a), Some(b)) if day(a) == day(b) => Some(format!("of {}", day(a))),
        (Some(a), Some(b)) => Some(format!("from {} to {}", day(a), day(b))),
        _ => None,
    };
    let samples = stream.samples.iter().map(|sample| {
        let fields = sample.fields.iter();
        fields
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), shown(value)))
            .collect()
    });
    Preview {
        records: stream.records,
        counted: counted(stream.records),
        span,
        samples: samples.collect(),
    }
}

/// A value, as much of it as a sample needs.
fn shown(value: &Value) -> String {
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

fn granted(stream: &GrantedStream) -> ReviewedStream {
    let (since, until) = match &stream.time_constraint {
        Some(time) => (time.since.as_deref(), time.until.as_deref()),
        None => (None, None),
    };
    ReviewedStream {
        name: stream.name.clone(),
        limits: limits(since, until, stream.resources.as_ref().map_or(0, Vec::len)),
        fields: stream.fields.join(", "),
        preview: None,
    }
}

/// Of which accounts a grant is.
fn from_accounts(grant: &Grant, all: &[Connection]) -> String {
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
            account(id, known.and_then(|one| one.display_name.as_ref()))
        })
        .collect();
    format!("From your account{s} {}.", accounts.join(", "))
}

/// What a grant is of, and how long it lasts.
fn grant_words(grant: &Grant, all: &[Connection]) -> Vec<String> {
    let mut words = vec![
        format!("For: {}.", purpose(&grant.purpose_code)),
        from_accounts(grant, all),
    ];
    words.push(match (&grant.expires_at, grant.access_mode.as_str()) {
        (Some(end), "single_use") => format!("Once, and not after {}.", day(end)),
        (Some(end), _) => format!("Until {}.", day(end)),
        (None, _) => "Until you take it back.".to_owned(),
    });
    words
}

pub(super) fn review(
    visit: &Visit,
    petition: &Petition,
    review: &Review,
    previews: &[Vec<StreamPreview>],
    accounts: &[Connection],
) -> Result<Response, Error> {
    let csrf = session::csrf(visit)?;
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
                    .map(preview),
                ..granted(stream)
            });
            Reviewed {
                title: source_name(grant),
                words: grant_words(grant, accounts),
                streams: streams.collect(),
            }
        });
    let request_uri = par::request_uri(&petition.id);
    let template = ReviewPage {
        csrf: &csrf,
        signed_in: true,
        client: client(petition),
        owner_token: petition.wanted == Wanted::OwnerToken,
        sources: sources.collect(),
        chosen: chosen(visit),
        left_out: left_out(visit, review),
        request_uri,
        revision: &review.revision,
    };
    let to = leads_to(petition);
    page(visit, StatusCode::OK, &template, Some(&csrf), to.as_deref())
}

/// Everything that was chosen, as it was sent.
fn chosen(visit: &Visit) -> Vec<(String, String)> {
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

/// Streams that were ticked and are not given.
fn left_out(visit: &Visit, review: &Review) -> Vec<String> {
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
    rung_records::declaration::slug(&grant.source.id)
}

/// Names in a grant; none stand for all.
fn patterns(named: &[Pattern], all: &str) -> String {
    if named.is_empty() {
        return all.to_owned();
    }
    let named: Vec<&str> = named.iter().map(Pattern::as_str).collect();
    named.join(", ")
}

fn database(of: &OfDatabase) -> Database {
    Database {
        name: of.name.clone(),
        mode: match of.mode {
            Access::Read => "read",
            Access::Write => "read and write",
        },
        attributes: patterns(&of.attributes, "every attribute"),
    }
}

fn downstream_server(of: &OfServer) -> DownstreamServer {
    DownstreamServer {
        name: of.name.clone(),
        tools: patterns(&of.tools, "every tool"),
    }
}

/// All that a grant reaches, in a line.
fn reach(row: &GrantRow<'_>) -> String {
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
    let all: Vec<String> = sources.chain(databases).chain(servers).collect();
    all.join("; ")
}

fn given(row: &GrantRow<'_>) -> Given {
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
        (Some(at), _, _) => format!("taken back {}", moment(at)),
        (None, Some(at), _) => format!("ended {}", moment(at)),
        (None, None, Some(end)) => format!("until {}", moment(end)),
        (None, None, None) => "until you take it back".to_owned(),
    };
    // Of tokens without personal data neither is recorded.
    let recorded = |ms: Option<i64>, none: &str| match first {
        None => "not recorded".to_owned(),
        Some(_) => ms.map_or_else(|| none.to_owned(), moment),
    };
    let used_ms = row.grants.iter().filter_map(|given| given.used_ms).max();
    Given {
        id: id.unwrap_or_default().to_owned(),
        client: name.or(token).unwrap_or_default().to_owned(),
        what: reach(row),
        since: recorded(first.map(|given| given.issued_ms), ""),
        used: recorded(used_ms, "never"),
        state,
        holds: revoked_ms.is_none() && over.is_none(),
    }
}

pub(super) fn grants(
    service: &Service,
    visit: &Visit,
    all: &[GrantRow<'_>],
    own: &[OwnToken],
) -> Result<Response, Error> {
    let csrf = session::csrf(visit)?;
    let template = GrantsPage {
        csrf: &csrf,
        signed_in: !service.without_login,
        grants: all.iter().map(given).collect(),
        tools: own
            .iter()
            .map(|own| Tool {
                id: own.id.clone(),
                name: own.name.clone(),
                since: moment(own.issued_ms),
                until: match own.expires_ms {
                    Some(end) => format!("until {}", moment(end)),
                    None => "until you end it".to_owned(),
                },
            })
            .collect(),
    };
    page(visit, StatusCode::OK, &template, Some(&csrf), None)
}

pub(super) fn grant(
    service: &Service,
    visit: &Visit,
    row: &GrantRow<'_>,
    shown: &[Disclosure],
    accounts: &[Connection],
) -> Result<Response, Error> {
    let csrf = session::csrf(visit)?;
    let shown = shown.iter().map(|one| {
        (
            moment(one.at_ms),
            one.request.clone(),
            one.stream.clone().unwrap_or_else(|| "several".to_owned()),
            if one.request.ends_with("/aggregate") {
                "a count".to_owned()
            } else {
                one.records.to_string()
            },
        )
    });
    let sources = row.grants.iter().map(|GivenGrant { grant, .. }| Reviewed {
        title: source_name(grant),
        words: vec![
            format!("For: {}.", purpose(&grant.purpose_code)),
            from_accounts(grant, accounts),
        ],
        streams: grant.streams.iter().map(granted).collect(),
    });
    let scope = row.token.and_then(|token| token.scope.as_deref());
    let databases = scope.iter().flat_map(|scope| &scope.databases);
    let servers = scope.iter().flat_map(|scope| &scope.servers);
    let template = GrantPage {
        csrf: &csrf,
        signed_in: !service.without_login,
        grant: given(row),
        sources: sources.collect(),
        databases: databases.map(database).collect(),
        servers: servers.map(downstream_server).collect(),
        reply_limit: scope.and_then(|scope| scope.max_reply_bytes),
        together: row.token.is_some(),
        shown: shown.collect(),
    };
    page(visit, StatusCode::OK, &template, Some(&csrf), None)
}

/// A message as a sentence.
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
