//! `POST /agent-connect`: a command requests access, the owner decides in a browser, the command polls for the token.

use axum::http::StatusCode;
use axum::response::Response;
use rung_fault::{Code, Coded as _};
use rung_records::Error;
use rung_records::authority::{
    ClientMetadata, Delivery, NewAuthorizationRequest, PollResult, RequestedAccess,
};
use serde_json::{Value, json};

use super::form_request::{self, FormRequest, oauth_error, with_query};
use super::{authorize, par, token};
use crate::service::Service;

/// The polling interval in seconds.
const INTERVAL_S: u32 = 2;
/// The `client_id` of a request that names none.
const DEFAULT_CLIENT_ID: &str = "pdpp_cli";

pub(super) fn post(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let mut client = par::find_client(
        service,
        Some(visit.text("client_id")?.unwrap_or(DEFAULT_CLIENT_ID)),
    )?;
    if let Some(name) = visit.text("client_name")? {
        let told = json!({"client_name": name});
        client.client_name = ClientMetadata::parse(client.client_id.clone(), &told)?.client_name;
    }
    let resource = authorize::check_resource(service, visit, visit.text("resource")?)?;
    let wanted = match (
        visit.fields.get("authorization_details"),
        visit.text("request_uri")?,
    ) {
        (Some(given), _) => {
            let asks = service
                .records()
                .parse_authorization_details(&authorize::parse_details(given)?)?;
            if asks.len() > 1 {
                // A command uses one grant.
                let why = "request one source at a time";
                return Err(Error::invalid_with_code(
                    Code::InvalidAuthorizationDetails,
                    "authorization_details",
                    why,
                ));
            }
            RequestedAccess::Data(asks)
        }
        (None, Some(pushed)) => {
            let petition = service
                .records()
                .authorization_request(par::request_uri_id(pushed))?;
            if petition.client.client_id != client.client_id {
                let why = "the request belongs to another client";
                return Err(Error::invalid_with_code(
                    Code::InvalidClient,
                    "client_id",
                    why,
                ));
            }
            if matches!(&petition.wanted, RequestedAccess::Data(asks) if asks.len() > 1) {
                return Err(Error::invalid_request(
                    "request_uri",
                    "request one source at a time",
                ));
            }
            petition.wanted
        }
        (None, None) => RequestedAccess::Pick { one_source: true },
    };
    let filed = service
        .records()
        .create_authorization_request(NewAuthorizationRequest {
            client,
            wanted,
            way: Delivery::Poll,
            resource,
            package: false,
            parent_package_id: None,
        })?;
    let issuer = service.issuer(&visit.head);
    let poll_url = format!("{issuer}/agent-connect/{}/token", filed.id);
    let approval = with_query(
        &format!("{issuer}/consent"),
        &[("request_uri", Some(&par::request_uri(&filed.id)))],
    );
    let secret = filed.secret.as_ref().map(|secret| secret.expose().clone());
    Ok(form_request::json_response(
        StatusCode::CREATED,
        &json!({
            "object": "agent_connect_attempt",
            "id": filed.id,
            "status": "pending",
            "approval_url": approval,
            "poll_url": poll_url,
            "token_url": poll_url,
            "polling_code": secret,
            "expires_in": filed.expires_in_s,
            "interval": INTERVAL_S,
            // Some clients read `interval` as milliseconds.
            "interval_ms": INTERVAL_S * 1_000,
        }),
    ))
}

pub(super) fn token(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let code = visit.text("polling_code")?.unwrap_or_default();
    let collected =
        match service
            .records()
            .poll_authorization(code, None, Some(&visit.path_params[0]))
        {
            Ok(collected) => collected,
            Err(error) if error.code() == Code::InvalidGrant => {
                let mut response = oauth_error(Code::InvalidGrant, &error.to_string(), &[]);
                *response.status_mut() = StatusCode::UNAUTHORIZED;
                return Ok(response);
            }
            Err(error) => return Err(error),
        };
    Ok(match collected {
        PollResult::Issued(issued) => {
            let mut told = token::token_response(&issued);
            told["status"] = json!("approved");
            told["grant"] = json!(issued.grants.first());
            form_request::json_response(StatusCode::OK, &told)
        }
        PollResult::Pending | PollResult::SlowDown => form_request::json_response(
            StatusCode::ACCEPTED,
            &json!({"status": "pending", "error": "authorization_pending", "interval": INTERVAL_S, "interval_ms": INTERVAL_S * 1_000}),
        ),
        PollResult::Denied => failed_attempt(Code::AccessDenied, "the owner denied the request"),
        PollResult::Expired => failed_attempt(
            Code::ExpiredToken,
            "the request expired before the owner decided",
        ),
    })
}

fn failed_attempt(code: Code, why: &str) -> Response {
    oauth_error(
        code,
        why,
        &[("status", Value::String(code.name().to_owned()))],
    )
}
