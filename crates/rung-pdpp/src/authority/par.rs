//! `POST /oauth/par`: pushed authorization requests (RFC 9126).

use axum::http::StatusCode;
use axum::response::Response;
use rung_fault::Code;
use rung_records::Error;
use rung_records::authority::{ClientMetadata, Delivery, NewAuthorizationRequest, RequestedAccess};
use serde_json::json;

use super::authorize::{self, CodeFlowParams};
use super::form_request::{self, FormRequest, with_query};
use crate::service::Service;

/// The prefix of every `request_uri`.
const REQUEST_URI_PREFIX: &str = "urn:pdpp:pending-consent:";

pub(super) fn post(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let mut client = find_client(service, visit.text("client_id")?)?;
    if let Some(name) = visit
        .fields
        .get("client_display")
        .and_then(|shown| shown["name"].as_str())
    {
        // The name for this request, validated as at registration.
        let told = json!({"client_name": name});
        client.client_name = ClientMetadata::parse(client.client_id.clone(), &told)?.client_name;
    }
    let details = visit.fields.get("authorization_details");
    let details = details.map(authorize::parse_details).transpose()?;
    let asks = details.as_ref().ok_or_else(|| {
        Error::invalid_with_code(
            Code::InvalidAuthorizationDetails,
            "authorization_details",
            "authorization_details is required",
        )
    })?;
    let asks = service.records().parse_authorization_details(asks)?;
    let way = match visit.text("redirect_uri")? {
        None => Delivery::Pushed,
        Some(_) => CodeFlowParams::parse(&visit.fields)?.into_delivery(&client)?,
    };
    let filed = service
        .records()
        .create_authorization_request(NewAuthorizationRequest {
            client,
            package: asks.len() > 1,
            wanted: RequestedAccess::Data(asks),
            way,
            resource: visit.text("resource")?.map(str::to_owned),
            parent_package_id: visit.text("parent_package_id")?.map(str::to_owned),
        })?;
    let request_uri = request_uri(&filed.id);
    let issuer = service.issuer(&visit.head);
    Ok(form_request::json_response(
        StatusCode::CREATED,
        &json!({
            "request_uri": request_uri,
            "authorization_url": with_query(&format!("{issuer}/consent"), &[("request_uri", Some(&request_uri))]),
            "expires_in": filed.expires_in_s,
        }),
    ))
}

/// Returns the `request_uri` of a pending request.
pub(super) fn request_uri(id: &str) -> String {
    format!("{REQUEST_URI_PREFIX}{id}")
}

/// Returns the id in a `request_uri`, or the text itself if it is a bare id.
pub(super) fn request_uri_id(named: &str) -> &str {
    named.strip_prefix(REQUEST_URI_PREFIX).unwrap_or(named)
}

/// Returns a client by its id: registered, pre-registered, or described by the document at an https `client_id`.
pub(super) fn find_client(service: &Service, id: Option<&str>) -> Result<ClientMetadata, Error> {
    let unknown = |why: &str| Error::invalid_with_code(Code::InvalidClient, "client_id", why);
    let id = id.ok_or_else(|| unknown("client_id is required"))?;
    if let Some(card) = service.records().client(id)? {
        return Ok(card);
    }
    if id.starts_with("https://") {
        return service.documents.find_client(id);
    }
    Err(unknown("the client_id is unknown"))
}
