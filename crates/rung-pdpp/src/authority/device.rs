//! Devices without a browser: they show a code, and the owner types it in here.

use axum::http::StatusCode;
use axum::response::Response;
use rung_fault::Code;
use rung_records::Error;
use rung_records::authority::{Choice, Filing, PRE_REGISTERED, Wanted, Way};
use serde_json::json;

use super::visit::{self, Visit, with_query};
use super::{authorize, consent, pages, par, session};
use crate::service::Service;

/// Seconds between two questions.
const INTERVAL_S: u32 = 1;

pub(super) fn authorization(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let client = par::client(service, visit.text("client_id")?)?;
    let resource = authorize::resource(service, visit, visit.text("resource")?)?;
    let wanted = match (visit.fields.get("authorization_details"), &resource) {
        (Some(given), _) => Wanted::Data(service.records().asks(&authorize::details(given)?)?),
        // For an agent, what the owner picks; without a resource, a token of the owner's own.
        (None, Some(_)) => Wanted::Pick { one_source: false },
        (None, None) if PRE_REGISTERED.iter().any(|(id, _)| *id == client.client_id) => {
            Wanted::OwnerToken
        }
        (None, None) => {
            let why = "name what is asked for: resource, or authorization_details";
            return Err(Error::refused(Code::UnauthorizedClient, "resource", why));
        }
    };
    let package = match &wanted {
        Wanted::Data(asks) => asks.len() > 1,
        Wanted::Pick { .. } => true,
        Wanted::OwnerToken => false,
    };
    let filed = service.records().file(Filing {
        client,
        wanted,
        way: Way::Device,
        resource,
        package,
        parent_package_id: None,
    })?;
    let issuer = service.issuer(&visit.arrived);
    let page = format!("{issuer}/device");
    let user_code = filed.user_code.unwrap_or_default();
    let secret = filed.secret.as_ref().map(|secret| secret.expose().clone());
    Ok(visit::json(
        StatusCode::OK,
        &json!({
            "device_code": secret,
            "user_code": user_code,
            "verification_uri": page,
            "verification_uri_complete": with_query(&page, &[("user_code", Some(&user_code))]),
            "expires_in": filed.expires_in_s,
            "interval": INTERVAL_S,
        }),
    ))
}

pub(super) fn get(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let asked = visit.asked();
    let typed = visit::text(&asked, "user_code")?.unwrap_or_default();
    if session::owner(service, visit)?.is_none() {
        let here = with_query(
            "/device",
            &[("user_code", Some(typed).filter(|code| !code.is_empty()))],
        );
        return visit::redirect(&with_query("/owner/login", &[("next", Some(&here))]));
    }
    if typed.is_empty() {
        return pages::device(service, visit, None);
    }
    match service.records().petition_of_device(typed) {
        Ok(petition) => consent::show(service, visit, &petition.id, None),
        Err(error) => pages::device(service, visit, Some(&error)),
    }
}

/// One step for programs: everything that the device asked for.
pub(super) fn approve(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let owner = session::deciding(service, visit)?;
    let records = service.records();
    let petition = records.petition_of_device(visit.need("user_code")?)?;
    let review = records.review(&owner, &petition.id, &Choice::default())?;
    let approved = records.approve(&owner, &petition.id, &review.revision, visit.wants_page())?;
    consent::answered(service, visit, approved)
}
