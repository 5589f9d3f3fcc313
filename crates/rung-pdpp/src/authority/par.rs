//! `POST /oauth/par`: a request is pushed, and the owner is sent to decide on it.

use axum::http::StatusCode;
use axum::response::Response;
use rung_fault::Code;
use rung_records::Error;
use rung_records::authority::{ClientCard, Filing, Wanted, Way};
use serde_json::json;

use super::authorize::{self, Challenge};
use super::visit::{self, Visit, with_query};
use crate::service::Service;

/// What the names of pushed requests begin with.
const URN: &str = "urn:pdpp:pending-consent:";

pub(super) fn post(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let mut client = client(service, visit.text("client_id")?)?;
    if let Some(name) = visit
        .fields
        .get("client_display")
        .and_then(|shown| shown["name"].as_str())
    {
        // What it calls itself today, within what a name may be.
        let told = json!({"client_name": name});
        client.client_name = ClientCard::read(client.client_id.clone(), &told)?.client_name;
    }
    let details = visit.fields.get("authorization_details");
    let details = details.map(authorize::details).transpose()?;
    let asks = details.as_ref().ok_or_else(|| {
        Error::refused(
            Code::InvalidAuthorizationDetails,
            "authorization_details",
            "authorization_details is needed",
        )
    })?;
    let asks = service.records().asks(asks)?;
    let way = match visit.text("redirect_uri")? {
        None => Way::Pushed,
        Some(_) => Challenge::read(&visit.fields)?.way(&client)?,
    };
    let filed = service.records().file(Filing {
        client,
        package: asks.len() > 1,
        wanted: Wanted::Data(asks),
        way,
        resource: visit.text("resource")?.map(str::to_owned),
        parent_package_id: visit.text("parent_package_id")?.map(str::to_owned),
    })?;
    let request_uri = request_uri(&filed.id);
    let issuer = service.issuer(&visit.arrived);
    Ok(visit::json(
        StatusCode::CREATED,
        &json!({
            "request_uri": request_uri,
            "authorization_url": with_query(&format!("{issuer}/consent"), &[("request_uri", Some(&request_uri))]),
            "expires_in": filed.expires_in_s,
        }),
    ))
}

/// The name of a request that was filed.
pub(super) fn request_uri(id: &str) -> String {
    format!("{URN}{id}")
}

/// The request that is named.
pub(super) fn petition_id(named: &str) -> &str {
    named.strip_prefix(URN).unwrap_or(named)
}

/// An application that is known, by whichever way.
pub(super) fn client(service: &Service, id: Option<&str>) -> Result<ClientCard, Error> {
    let unknown = |why: &str| Error::refused(Code::InvalidClient, "client_id", why);
    let id = id.ok_or_else(|| unknown("client_id is needed"))?;
    if let Some(card) = service.records().client(id)? {
        return Ok(card);
    }
    if id.starts_with("https://") {
        return service.documents.client(id);
    }
    Err(unknown("no application is known by this client_id"))
}
