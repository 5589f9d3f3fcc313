//! Authenticates the owner: by a session cookie, or without login on a server that only this machine reaches.

use axum::http::{HeaderValue, header};
use axum::response::Response;
use rung_auth::{Access, Permit};
use rung_fault::Code;
use rung_records::authority::{NewOwnerSession, SESSION_MS};
use rung_records::{Bearer, Error};
use subtle::ConstantTimeEq as _;

use super::form_request::FormRequest;
use crate::service::Service;

/// Cookie names. Over TLS they get the `__Host-` prefix, so that no other host can set them.
const SESSION_COOKIE: &str = "pdpp_owner_session";
const CSRF_COOKIE: &str = "pdpp_owner_csrf";
const BROWSER_COOKIE: &str = "pdpp_owner_browser";
/// Lifetime of the cookie that identifies a browser in which the owner has signed in.
const BROWSER_SECONDS: i64 = 365 * 24 * 60 * 60;
/// The form field that repeats the CSRF cookie.
pub(super) const CSRF_FIELD: &str = "_csrf";

fn cookie_name(visit: &FormRequest, name: &str) -> String {
    if visit.head.is_tls() {
        format!("__Host-{name}")
    } else {
        name.to_owned()
    }
}

fn set_cookie(visit: &FormRequest, response: &mut Response, name: &str, value: &str, seconds: i64) {
    let secure = if visit.head.is_tls() { "; Secure" } else { "" };
    let name = cookie_name(visit, name);
    let line = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
    if let Ok(line) = HeaderValue::from_str(&line) {
        response.headers_mut().append(header::SET_COOKIE, line);
    }
}

/// Returns the session cookie.
pub(super) fn session_cookie(visit: &FormRequest) -> Option<&str> {
    visit.cookie(&cookie_name(visit, SESSION_COOKIE))
}

/// Returns the cookie that identifies a browser in which the owner has signed in before.
pub(super) fn browser_cookie(visit: &FormRequest) -> Option<&str> {
    visit.cookie(&cookie_name(visit, BROWSER_COOKIE))
}

pub(super) fn start_session(
    visit: &FormRequest,
    response: &mut Response,
    session: &NewOwnerSession,
) {
    let token = session.token.expose();
    set_cookie(visit, response, SESSION_COOKIE, token, SESSION_MS / 1_000);
    let browser = session.browser.expose();
    set_cookie(visit, response, BROWSER_COOKIE, browser, BROWSER_SECONDS);
}

pub(super) fn clear_session(visit: &FormRequest, response: &mut Response) {
    set_cookie(visit, response, SESSION_COOKIE, "", 0);
}

/// Returns the owner: the local user without login, else the owner of the session.
pub(super) fn signed_in_owner(
    service: &Service,
    visit: &FormRequest,
) -> Result<Option<Bearer>, Error> {
    let records = service.records();
    if service.without_login {
        return Ok(Some(
            records.local_owner(Permit::local_user(Access::Write))?,
        ));
    }
    match session_cookie(visit) {
        Some(session) => records.session_owner(session),
        None => Ok(None),
    }
}

/// Returns the signed-in owner, or an error. Checks the CSRF token.
pub(super) fn require_owner(service: &Service, visit: &FormRequest) -> Result<Bearer, Error> {
    let owner = signed_in_owner(service, visit)?.ok_or_else(sign_in_required)?;
    if let Some(subject) = visit.text("subject_id")?
        && subject != owner.subject_id()
    {
        return Err(Error::NotFound("no such owner".to_owned()));
    }
    check_csrf(service, visit)?;
    Ok(owner)
}

pub(super) fn sign_in_required() -> Error {
    Error::invalid_with_code(
        Code::OwnerSessionRequired,
        "",
        "the owner has to sign in at /owner/login first",
    )
}

/// Returns the browser's CSRF token, or a new one.
pub(super) fn csrf_token(visit: &FormRequest) -> Result<String, Error> {
    match visit.cookie(&cookie_name(visit, CSRF_COOKIE)) {
        Some(known) if known.len() >= 32 => Ok(known.to_owned()),
        _ => Ok(rung_auth::Token::generate()
            .map_err(|error| Error::Broken(error.to_string()))?
            .expose()
            .clone()),
    }
}

pub(super) fn set_csrf_cookie(visit: &FormRequest, response: &mut Response, csrf: &str) {
    set_cookie(visit, response, CSRF_COOKIE, csrf, SESSION_MS / 1_000);
}

/// Rejects a form that none of our pages sent. A form of another site cannot send a JSON object, and a request of its scripts
/// has an `Origin` header, which the HTTP guard checks.
pub(super) fn check_csrf(service: &Service, visit: &FormRequest) -> Result<(), Error> {
    let refused = || {
        Error::invalid_with_code(
            Code::PermissionError,
            CSRF_FIELD,
            "this form was not sent by one of our pages: open the page again",
        )
    };
    // Other servers on the same host share its name and cookies, but not our port.
    if let Some(origin) = visit.header("origin") {
        let host = visit.header("host").unwrap_or_default();
        let here = format!(
            "{}://{host}",
            if visit.head.is_tls() { "https" } else { "http" }
        );
        if !origin.eq_ignore_ascii_case(&visit.head.origin) && !origin.eq_ignore_ascii_case(&here) {
            return Err(refused());
        }
    }
    let repeated = visit.text(CSRF_FIELD)?;
    if visit.is_json
        || (service.without_login && repeated.is_none() && visit.header("origin").is_none())
    {
        return Ok(());
    }
    let known = visit
        .cookie(&cookie_name(visit, CSRF_COOKIE))
        .unwrap_or_default();
    let same = known
        .as_bytes()
        .ct_eq(repeated.unwrap_or_default().as_bytes());
    if known.len() >= 32 && bool::from(same) {
        return Ok(());
    }
    Err(refused())
}
