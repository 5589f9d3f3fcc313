//! What was given: the owner's list of it, and the end of it.

use axum::http::StatusCode;
use axum::response::Response;
use rung_records::Error;
use serde_json::json;

use super::visit::{self, Visit, with_query};
use super::{pages, session};
use crate::service::Service;

/// Answers that are listed of one grant.
const DISCLOSURES: i64 = 200;

pub(super) fn list(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let Some(owner) = session::owner(service, visit)? else {
        return sign_in(visit);
    };
    // What was shown a moment ago belongs on the page, too.
    service.settle();
    let grants = service.records().grants(&owner)?;
    if !visit.wants_page() {
        let told: Result<Vec<_>, Error> =
            grants.iter().map(rung_records::GivenGrant::told).collect();
        return Ok(visit::json(
            StatusCode::OK,
            &json!({"object": "list", "data": told?}),
        ));
    }
    let own = service.records().owner_tokens(&owner)?;
    pages::grants(service, visit, &grants, &own)
}

pub(super) fn one(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let Some(owner) = session::owner(service, visit)? else {
        return sign_in(visit);
    };
    service.settle();
    let id = &visit.names[0];
    let given = service.records().grant(&owner, id)?;
    let shown = service.records().disclosures_of(&owner, id, DISCLOSURES)?;
    pages::grant(service, visit, &given, &shown)
}

fn sign_in(visit: &Visit) -> Result<Response, Error> {
    if !visit.wants_page() {
        return Err(session::required());
    }
    visit::redirect(&with_query("/owner/login", &[("next", Some(&visit.path))]))
}

pub(super) fn revoke_by_page(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let owner = session::deciding(service, visit)?;
    service.records().revoke(&owner, &visit.names[0])?;
    visit::redirect("/owner/grants")
}

pub(super) fn end_token(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let owner = session::deciding(service, visit)?;
    service.records().end_owner_token(&owner, &visit.names[0])?;
    visit::redirect("/owner/grants")
}

/// For programs: by the owner's token, or by the token of whoever has the grant.
pub(super) fn revoke(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let bearer = service.admit(&visit.arrived)?;
    service.records().revoke(&bearer, &visit.names[0])?;
    Ok(visit::json(StatusCode::OK, &json!({"revoked": true})))
}
