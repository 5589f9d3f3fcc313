//! The device flow (RFC 8628): the device shows a code, and the owner enters it on this server's page.

use axum::http::StatusCode;
use axum::response::Response;
use rung_fault::Code;
use rung_records::Error;
use rung_records::authority::{
    ConsentChoice, Delivery, NewAuthorizationRequest, PRE_REGISTERED, RequestedAccess,
};
use serde_json::json;

use super::form_request::{self, FormRequest, with_query};
use super::{authorize, consent, pages, par, session};
use crate::service::Service;

/// The polling interval in seconds.
const INTERVAL_S: u32 = 1;

pub(super) fn authorization(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let client = par::find_client(service, visit.text("client_id")?)?;
    let resource = authorize::check_resource(service, visit, visit.text("resource")?)?;
    let wanted = match (visit.fields.get("authorization_details"), &resource) {
        (Some(given), _) => RequestedAccess::Data(
            service
                .records()
                .parse_authorization_details(&authorize::parse_details(given)?)?,
        ),
        // With a resource, an agent's grant that the owner picks; without one, an owner token.
        (None, Some(_)) => RequestedAccess::Pick { one_source: false },
        (None, None) if PRE_REGISTERED.iter().any(|(id, _)| *id == client.client_id) => {
            RequestedAccess::OwnerToken
        }
        (None, None) => {
            let why = "send resource or authorization_details";
            return Err(Error::invalid_with_code(
                Code::UnauthorizedClient,
                "resource",
                why,
            ));
        }
    };
    let package = match &wanted {
        RequestedAccess::Data(asks) => asks.len() > 1,
        RequestedAccess::Pick { .. } => true,
        RequestedAccess::OwnerToken => false,
    };
    let filed = service
        .records()
        .create_authorization_request(NewAuthorizationRequest {
            client,
            wanted,
            way: Delivery::Device,
            resource,
            package,
            parent_package_id: None,
        })?;
    let issuer = service.issuer(&visit.head);
    let page = format!("{issuer}/device");
    let user_code = filed.user_code.unwrap_or_default();
    let secret = filed.secret.as_ref().map(|secret| secret.expose().clone());
    Ok(form_request::json_response(
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

pub(super) fn get(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let asked = visit.query_fields();
    let typed = form_request::text(&asked, "user_code")?.unwrap_or_default();
    if session::signed_in_owner(service, visit)?.is_none() {
        let here = with_query(
            "/device",
            &[("user_code", Some(typed).filter(|code| !code.is_empty()))],
        );
        return form_request::redirect(&with_query("/owner/login", &[("next", Some(&here))]));
    }
    if typed.is_empty() {
        return pages::device_page(service, visit, None);
    }
    match service.records().authorization_request_by_user_code(typed) {
        Ok(petition) => consent::show_consent(service, visit, &petition.id, None),
        Err(error) => pages::device_page(service, visit, Some(&error)),
    }
}

/// Approves the whole device request in one step, for programs.
pub(super) fn approve(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let owner = session::require_owner(service, visit)?;
    let records = service.records();
    let petition = records.authorization_request_by_user_code(visit.required_text("user_code")?)?;
    let review = records.review(&owner, &petition.id, &ConsentChoice::default())?;
    let approved = records.approve(&owner, &petition.id, &review.revision, visit.wants_html())?;
    consent::approval_response(service, visit, approved)
}
