//! `POST /oauth/token`: what was approved becomes a token.

use axum::http::StatusCode;
use axum::response::Response;
use rung_fault::{Code, Coded as _};
use rung_records::Error;
use rung_records::authority::{ClientCard, Collected, Holder, Issued, Redeemed};
use serde_json::{Value, json};

use super::metadata::DEVICE_CODE;
use super::par;
use super::visit::{self, Visit, oauth_refusal};
use crate::service::Service;

pub(super) fn post(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let records = service.records();
    match visit.need("grant_type")? {
        "authorization_code" => {
            let redeemed = records.redeem(
                visit.need("code")?,
                visit.need("client_id")?,
                visit.need("redirect_uri")?,
                visit.need("code_verifier")?,
            )?;
            Ok(match redeemed {
                Redeemed::Issued(issued) => visit::json(StatusCode::OK, &told(&issued)),
                Redeemed::Replayed => {
                    oauth_refusal(Code::InvalidGrant, "the code was used before", &[])
                }
            })
        }
        "refresh_token" => {
            let client = match visit.text("client_id")? {
                Some(id) if id.starts_with("https://") => ClientCard::refreshing(id.to_owned()),
                id => par::client(service, id)?,
            };
            let again = [("fresh_authorization_required", json!(true))];
            let refused = |why: &str| oauth_refusal(Code::InvalidGrant, why, &again);
            Ok(
                match records.refresh(visit.need("refresh_token")?, &client) {
                    Ok(Redeemed::Issued(issued)) => visit::json(StatusCode::OK, &told(&issued)),
                    Ok(Redeemed::Replayed) => refused(
                        "the refresh token was used before: all that came of it has been ended",
                    ),
                    Err(error) if error.code() == Code::InvalidGrant => refused(&error.to_string()),
                    Err(error) => return Err(error),
                },
            )
        }
        DEVICE_CODE => {
            let client = visit.need("client_id")?;
            let collected = records.collect(visit.need("device_code")?, Some(client), None)?;
            // At this endpoint every refusal is a 400.
            let refused = |code: Code, why: &str| {
                let mut response = oauth_refusal(code, why, &[]);
                *response.status_mut() = StatusCode::BAD_REQUEST;
                response
            };
            Ok(match collected {
                Collected::Issued(issued) => visit::json(StatusCode::OK, &told(&issued)),
                Collected::Pending => {
                    refused(Code::AuthorizationPending, "the owner has not decided yet")
                }
                Collected::TooSoon => refused(Code::SlowDown, "ask once a second"),
                Collected::Denied => refused(Code::AccessDenied, "the owner said no"),
                Collected::Expired => {
                    refused(Code::ExpiredToken, "the owner did not decide in time")
                }
            })
        }
        _ => Err(Error::refused(
            Code::UnsupportedGrantType,
            "grant_type",
            "grant_type is authorization_code, refresh_token or that of a device code",
        )),
    }
}

/// A token, as OAuth has it told.
pub(super) fn told(issued: &Issued) -> Value {
    let mut told = json!({
        "access_token": issued.access_token.expose(),
        "token_type": "Bearer",
        "scope": "pdpp:read",
    });
    if let Some(seconds) = issued.expires_in_s {
        told["expires_in"] = json!(seconds);
    }
    if let Some(refresh) = &issued.refresh_token {
        told["refresh_token"] = json!(refresh.expose());
    }
    match &issued.holder {
        Holder::Owner => told["scope"] = json!("pdpp:owner"),
        Holder::Grant(id) => told["grant_id"] = json!(id),
        Holder::Package(id) => told["grant_package_id"] = json!(id),
    }
    if !issued.grants.is_empty() {
        told["authorization_details"] = json!(issued.details());
    }
    told
}
