//! `POST /agent-connect`: a command asks for access, the owner decides in a browser, the command comes for the token.

use axum::http::StatusCode;
use axum::response::Response;
use rung_fault::{Code, Coded as _};
use rung_records::Error;
use rung_records::authority::{ClientCard, Collected, Filing, Wanted, Way};
use serde_json::{Value, json};

use super::visit::{self, Visit, oauth_refusal, with_query};
use super::{authorize, par, token};
use crate::service::Service;

/// Seconds between two questions.
const INTERVAL_S: u32 = 2;
/// Whoever names no client is this one.
const COMMAND: &str = "pdpp_cli";

pub(super) fn post(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let mut client = par::client(service, Some(visit.text("client_id")?.unwrap_or(COMMAND)))?;
    if let Some(name) = visit.text("client_name")? {
        let told = json!({"client_name": name});
        client.client_name = ClientCard::read(client.client_id.clone(), &told)?.client_name;
    }
    let resource = authorize::resource(service, visit, visit.text("resource")?)?;
    let wanted = match (
        visit.fields.get("authorization_details"),
        visit.text("request_uri")?,
    ) {
        (Some(given), _) => {
            let asks = service.records().asks(&authorize::details(given)?)?;
            if asks.len() > 1 {
                // A command reads under one grant.
                let why = "one source at a time can be asked for here";
                return Err(Error::refused(
                    Code::InvalidAuthorizationDetails,
                    "authorization_details",
                    why,
                ));
            }
            Wanted::Data(asks)
        }
        (None, Some(pushed)) => {
            let petition = service.records().petition(par::petition_id(pushed))?;
            if petition.client.client_id != client.client_id {
                let why = "the request is another application's";
                return Err(Error::refused(Code::InvalidClient, "client_id", why));
            }
            if matches!(&petition.wanted, Wanted::Data(asks) if asks.len() > 1) {
                return Err(Error::invalid(
                    "request_uri",
                    "one source at a time can be asked for here",
                ));
            }
            petition.wanted
        }
        (None, None) => Wanted::Pick { one_source: true },
    };
    let filed = service.records().file(Filing {
        client,
        wanted,
        way: Way::Poll,
        resource,
        package: false,
        parent_package_id: None,
    })?;
    let issuer = service.issuer(&visit.arrived);
    let poll_url = format!("{issuer}/agent-connect/{}/token", filed.id);
    let approval = with_query(
        &format!("{issuer}/consent"),
        &[("request_uri", Some(&par::request_uri(&filed.id)))],
    );
    let secret = filed.secret.as_ref().map(|secret| secret.expose().clone());
    Ok(visit::json(
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
            // Some clients take the other one for milliseconds.
            "interval_ms": INTERVAL_S * 1_000,
        }),
    ))
}

pub(super) fn token(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let code = visit.text("polling_code")?.unwrap_or_default();
    let collected = match service.records().collect(code, None, Some(&visit.names[0])) {
        Ok(collected) => collected,
        Err(error) if error.code() == Code::InvalidGrant => {
            let mut response = oauth_refusal(Code::InvalidGrant, &error.to_string(), &[]);
            *response.status_mut() = StatusCode::UNAUTHORIZED;
            return Ok(response);
        }
        Err(error) => return Err(error),
    };
    Ok(match collected {
        Collected::Issued(issued) => {
            let mut told = token::told(&issued);
            told["status"] = json!("approved");
            told["grant"] = json!(issued.grants.first());
            visit::json(StatusCode::OK, &told)
        }
        Collected::Pending | Collected::TooSoon => visit::json(
            StatusCode::ACCEPTED,
            &json!({"status": "pending", "error": "authorization_pending", "interval": INTERVAL_S, "interval_ms": INTERVAL_S * 1_000}),
        ),
        Collected::Denied => refused(Code::AccessDenied, "the owner said no"),
        Collected::Expired => refused(Code::ExpiredToken, "the owner did not decide in time"),
    })
}

fn refused(code: Code, why: &str) -> Response {
    oauth_refusal(
        code,
        why,
        &[("status", Value::String(code.name().to_owned()))],
    )
}
