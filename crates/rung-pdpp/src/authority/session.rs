//! How the owner is known: by a session, or where there is no password, by being on this machine.

use axum::http::{HeaderValue, header};
use axum::response::Response;
use rung_auth::{Access, Permit};
use rung_fault::Code;
use rung_records::authority::{SESSION_MS, Session};
use rung_records::{Bearer, Error};
use subtle::ConstantTimeEq as _;

use super::visit::Visit;
use crate::service::Service;

/// Cookies. Off this machine they are only sent over TLS, and no other host can set them.
const SESSION: &str = "pdpp_owner_session";
const CSRF: &str = "pdpp_owner_csrf";
const BROWSER: &str = "pdpp_owner_browser";
/// How long a browser is known that nobody signs in with.
const BROWSER_SECONDS: i64 = 365 * 24 * 60 * 60;
/// The field of a form that repeats the cookie.
pub(super) const CSRF_FIELD: &str = "_csrf";

fn cookie_name(visit: &Visit, name: &str) -> String {
    if visit.arrived.is_tls() {
        format!("__Host-{name}")
    } else {
        name.to_owned()
    }
}

fn set_cookie(visit: &Visit, response: &mut Response, name: &str, value: &str, seconds: i64) {
    let secure = if visit.arrived.is_tls() {
        "; Secure"
    } else {
        ""
    };
    let name = cookie_name(visit, name);
    let line = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
    if let Ok(line) = HeaderValue::from_str(&line) {
        response.headers_mut().append(header::SET_COOKIE, line);
    }
}

/// What the browser shows as its session.
pub(super) fn shown(visit: &Visit) -> Option<&str> {
    visit.cookie(&cookie_name(visit, SESSION))
}

/// By what a browser is known in which the owner signed in before.
pub(super) fn browser(visit: &Visit) -> Option<&str> {
    visit.cookie(&cookie_name(visit, BROWSER))
}

pub(super) fn begin(visit: &Visit, response: &mut Response, session: &Session) {
    let token = session.token.expose();
    set_cookie(visit, response, SESSION, token, SESSION_MS / 1_000);
    let browser = session.browser.expose();
    set_cookie(visit, response, BROWSER, browser, BROWSER_SECONDS);
}

pub(super) fn end(visit: &Visit, response: &mut Response) {
    set_cookie(visit, response, SESSION, "", 0);
}

/// The owner, whoever that is to this visit.
pub(super) fn owner(service: &Service, visit: &Visit) -> Result<Option<Bearer>, Error> {
    let records = service.records();
    if service.without_login {
        return Ok(Some(
            records.local_owner(Permit::local_user(Access::Write))?,
        ));
    }
    match shown(visit) {
        Some(session) => records.signed_in(session),
        None => Ok(None),
    }
}

/// The owner, who must be signed in, and whose page must have sent this.
pub(super) fn deciding(service: &Service, visit: &Visit) -> Result<Bearer, Error> {
    let owner = owner(service, visit)?.ok_or_else(required)?;
    if let Some(subject) = visit.text("subject_id")?
        && subject != owner.subject_id()
    {
        return Err(Error::NotFound("no such owner".to_owned()));
    }
    check_csrf(service, visit)?;
    Ok(owner)
}

pub(super) fn required() -> Error {
    Error::refused(
        Code::OwnerSessionRequired,
        "",
        "the owner has to sign in at /owner/login first",
    )
}

/// What a form repeats, so that no other site can send it: the browser's cookie, or a new one.
pub(super) fn csrf(visit: &Visit) -> Result<String, Error> {
    match visit.cookie(&cookie_name(visit, CSRF)) {
        Some(known) if known.len() >= 32 => Ok(known.to_owned()),
        _ => Ok(rung_auth::Token::generate()
            .map_err(|error| Error::Broken(error.to_string()))?
            .expose()
            .clone()),
    }
}

pub(super) fn set_csrf(visit: &Visit, response: &mut Response, csrf: &str) {
    set_cookie(visit, response, CSRF, csrf, SESSION_MS / 1_000);
}

/// Refuses a form that none of our pages sent. An object cannot be sent by a form of another site, and a request of
/// its scripts says where it comes from, which the door has checked.
pub(super) fn check_csrf(service: &Service, visit: &Visit) -> Result<(), Error> {
    let refused = || {
        Error::refused(
            Code::PermissionError,
            CSRF_FIELD,
            "this form was not sent by one of our pages: open the page again",
        )
    };
    // Programs on the same machine share its name and its cookies, but not our port.
    if let Some(origin) = visit.header("origin") {
        let host = visit.header("host").unwrap_or_default();
        let here = format!(
            "{}://{host}",
            if visit.arrived.is_tls() {
                "https"
            } else {
                "http"
            }
        );
        if !origin.eq_ignore_ascii_case(&visit.arrived.origin)
            && !origin.eq_ignore_ascii_case(&here)
        {
            return Err(refused());
        }
    }
    let repeated = visit.text(CSRF_FIELD)?;
    if visit.is_json
        || (service.without_login && repeated.is_none() && visit.header("origin").is_none())
    {
        return Ok(());
    }
    let known = visit.cookie(&cookie_name(visit, CSRF)).unwrap_or_default();
    let same = known
        .as_bytes()
        .ct_eq(repeated.unwrap_or_default().as_bytes());
    if known.len() >= 32 && bool::from(same) {
        return Ok(());
    }
    Err(refused())
}
