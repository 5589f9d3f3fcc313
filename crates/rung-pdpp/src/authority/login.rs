//! `/owner/login` and `/owner/logout`.

use axum::http::StatusCode;
use axum::response::Response;
use rung_fault::Code;
use rung_records::Error;
use serde_json::json;

use super::visit::{self, Visit};
use super::{pages, session};
use crate::service::Service;

pub(super) fn get(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let asked = visit.asked();
    let next = next(visit::text(&asked, "next")?);
    if session::owner(service, visit)?.is_some() {
        return visit::redirect(&next);
    }
    private(visit)?;
    pages::login(visit, &next, None)
}

pub(super) fn post(service: &Service, visit: &Visit) -> Result<Response, Error> {
    private(visit)?;
    session::check_csrf(service, visit)?;
    let next = next(visit.text("next")?);
    let subject = service.records().owner_id();
    let (password, browser) = (visit.need("password")?, session::browser(visit));
    let session = match service.records().sign_in(subject, password, browser) {
        Ok(session) => session,
        Err(error) if visit.wants_page() => return pages::login(visit, &next, Some(&error)),
        Err(error) => return Err(error),
    };
    // What the browser showed before is no session any more.
    if let Some(before) = session::shown(visit) {
        service.records().sign_out(before)?;
    }
    let mut response = if visit.wants_page() {
        visit::redirect(&next)?
    } else {
        visit::json(StatusCode::OK, &json!({"signed_in": true}))
    };
    session::begin(visit, &mut response, &session);
    Ok(response)
}

pub(super) fn logout(service: &Service, visit: &Visit) -> Result<Response, Error> {
    session::check_csrf(service, visit)?;
    if let Some(shown) = session::shown(visit) {
        service.records().sign_out(shown)?;
    }
    let mut response = visit::redirect("/owner/login")?;
    session::end(visit, &mut response);
    Ok(response)
}

/// Refuses a password that others could read on its way.
fn private(visit: &Visit) -> Result<(), Error> {
    if visit.arrived.is_private() {
        return Ok(());
    }
    Err(Error::refused(
        Code::PermissionError,
        "",
        "the owner signs in over TLS: put this server behind one, and start it with --public-url https://…",
    ))
}

/// Where to go after signing in: somewhere here.
fn next(asked: Option<&str>) -> String {
    let here = |path: &&str| {
        path.starts_with('/')
            && !path.starts_with("//")
            && !path.contains('\\')
            && !path.chars().any(char::is_control)
    };
    asked.filter(here).unwrap_or("/owner/grants").to_owned()
}

#[cfg(test)]
mod tests {
    use super::next;

    #[test]
    fn nobody_is_sent_elsewhere_after_signing_in() {
        assert_eq!(
            next(Some("/consent?request_uri=x")),
            "/consent?request_uri=x"
        );
        for bad in [
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "/\n//evil",
            "evil",
            "",
        ] {
            assert_eq!(next(Some(bad)), "/owner/grants", "{bad:?}");
        }
    }
}
