//! `/owner/login` and `/owner/logout`.

use axum::http::StatusCode;
use axum::response::Response;
use rung_fault::Code;
use rung_records::Error;
use serde_json::json;

use super::form_request::{self, FormRequest};
use super::{pages, session};
use crate::service::Service;

pub(super) fn get(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let asked = visit.query_fields();
    let next = local_path_after_login(form_request::text(&asked, "next")?);
    if session::signed_in_owner(service, visit)?.is_some() {
        return form_request::redirect(&next);
    }
    require_private_connection(visit)?;
    pages::login_page(visit, &next, None)
}

pub(super) fn post(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    require_private_connection(visit)?;
    session::check_csrf(service, visit)?;
    let next = local_path_after_login(visit.text("next")?);
    let subject = service.records().owner_id();
    let (password, browser) = (
        visit.required_text("password")?,
        session::browser_cookie(visit),
    );
    let session = match service.records().sign_in(subject, password, browser) {
        Ok(session) => session,
        Err(error) if visit.wants_html() => return pages::login_page(visit, &next, Some(&error)),
        Err(error) => return Err(error),
    };
    // The previous session ends.
    if let Some(before) = session::session_cookie(visit) {
        service.records().sign_out(before)?;
    }
    let mut response = if visit.wants_html() {
        form_request::redirect(&next)?
    } else {
        form_request::json_response(StatusCode::OK, &json!({"signed_in": true}))
    };
    session::start_session(visit, &mut response, &session);
    Ok(response)
}

pub(super) fn logout(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    session::check_csrf(service, visit)?;
    if let Some(shown) = session::session_cookie(visit) {
        service.records().sign_out(shown)?;
    }
    let mut response = form_request::redirect("/owner/login")?;
    session::clear_session(visit, &mut response);
    Ok(response)
}

/// Rejects a connection on which a password could be intercepted.
fn require_private_connection(visit: &FormRequest) -> Result<(), Error> {
    if visit.head.is_tls_or_loopback() {
        return Ok(());
    }
    Err(Error::invalid_with_code(
        Code::PermissionError,
        "",
        "sign-in requires TLS: put this server behind a TLS proxy and start it with --public-url https://…",
    ))
}

/// Returns the path to open after signing in. A URL of another host is replaced.
fn local_path_after_login(asked: Option<&str>) -> String {
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
    use super::local_path_after_login;

    #[test]
    fn login_redirects_only_to_local_paths() {
        assert_eq!(
            local_path_after_login(Some("/consent?request_uri=x")),
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
            assert_eq!(
                local_path_after_login(Some(bad)),
                "/owner/grants",
                "{bad:?}"
            );
        }
    }
}
