//! `/.well-known/oauth-authorization-server`: authorization server metadata (RFC 8414).

use axum::http::StatusCode;
use axum::response::Response;
use rung_records::Error;
use rung_records::authority::{DETAILS_TYPE, PRE_REGISTERED};
use serde_json::{Value, json};

use super::form_request::{self, FormRequest};
use crate::service::Service;

/// The device code grant type (RFC 8628).
pub(super) const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";

pub(super) fn get(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    // Clients that find this document start OAuth, which cannot succeed on an open server without data.
    if service.has_nothing_to_grant()? {
        return Err(Error::NotFound(
            "this server has no data to request yet".to_owned(),
        ));
    }
    Ok(form_request::json_response(
        StatusCode::OK,
        &document(&service.issuer(&visit.head)),
    ))
}

fn document(issuer: &str) -> Value {
    let known: Vec<Value> = PRE_REGISTERED
        .iter()
        .map(|(id, name)| {
            json!({"client_id": id, "client_name": name, "token_endpoint_auth_method": "none"})
        })
        .collect();
    json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/oauth/authorize"),
        "token_endpoint": format!("{issuer}/oauth/token"),
        "introspection_endpoint": format!("{issuer}/introspect"),
        "pushed_authorization_request_endpoint": format!("{issuer}/oauth/par"),
        "registration_endpoint": format!("{issuer}/oauth/register"),
        "device_authorization_endpoint": format!("{issuer}/oauth/device_authorization"),
        "agent_connect_endpoint": format!("{issuer}/agent-connect"),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "scopes_supported": ["pdpp:read"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none"],
        "introspection_endpoint_auth_methods_supported": ["client_secret_basic"],
        "grant_types_supported": [DEVICE_CODE, "authorization_code", "refresh_token"],
        "authorization_details_types_supported": [DETAILS_TYPE],
        "authorization_response_iss_parameter_supported": true,
        "client_id_metadata_document_supported": true,
        "pdpp_registration_modes_supported": ["dynamic", "pre_registered_public", "client_id_metadata_document"],
        "pdpp_pre_registered_public_clients": known,
        "pdpp_authorization_details_types_supported": [DETAILS_TYPE],
        "pdpp_provider_connect_capabilities": ["owner_self_export", "cli_device_connect", "third_party_client_connect"],
        "pdpp_device_authorization_profiles_supported": ["owner", "mcp"],
    })
}
