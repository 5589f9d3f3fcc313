//! `POST /oauth/token`: exchanges codes and refresh tokens for access tokens.

use axum::http::StatusCode;
use axum::response::Response;
use rung_fault::{Code, Coded as _};
use rung_records::Error;
use rung_records::authority::{ClientMetadata, IssuedToken, PollResult, Redemption, TokenKind};
use serde_json::{Value, json};

use super::form_request::{self, FormRequest, oauth_error};
use super::metadata::DEVICE_CODE;
use super::par;
use crate::service::Service;

pub(super) fn post(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let records = service.records();
    match visit.required_text("grant_type")? {
        "authorization_code" => {
            let redeemed = records.redeem_authorization_code(
                visit.required_text("code")?,
                visit.required_text("client_id")?,
                visit.required_text("redirect_uri")?,
                visit.required_text("code_verifier")?,
            )?;
            Ok(match redeemed {
                Redemption::Issued(issued) => {
                    form_request::json_response(StatusCode::OK, &token_response(&issued))
                }
                Redemption::Replayed => {
                    oauth_error(Code::InvalidGrant, "the code has already been used", &[])
                }
            })
        }
        "refresh_token" => {
            let client = match visit.text("client_id")? {
                Some(id) if id.starts_with("https://") => {
                    ClientMetadata::for_refresh(id.to_owned())
                }
                id => par::find_client(service, id)?,
            };
            let again = [("fresh_authorization_required", json!(true))];
            let refused = |why: &str| oauth_error(Code::InvalidGrant, why, &again);
            Ok(
                match records.redeem_refresh_token(visit.required_text("refresh_token")?, &client) {
                    Ok(Redemption::Issued(issued)) => {
                        form_request::json_response(StatusCode::OK, &token_response(&issued))
                    }
                    Ok(Redemption::Replayed) => refused(
                        "the refresh token has already been used: all tokens issued from it are revoked",
                    ),
                    Err(error) if error.code() == Code::InvalidGrant => refused(&error.to_string()),
                    Err(error) => return Err(error),
                },
            )
        }
        DEVICE_CODE => {
            let client = visit.required_text("client_id")?;
            let collected = records.poll_authorization(
                visit.required_text("device_code")?,
                Some(client),
                None,
            )?;
            // At this endpoint every error is a 400.
            let refused = |code: Code, why: &str| {
                let mut response = oauth_error(code, why, &[]);
                *response.status_mut() = StatusCode::BAD_REQUEST;
                response
            };
            Ok(match collected {
                PollResult::Issued(issued) => {
                    form_request::json_response(StatusCode::OK, &token_response(&issued))
                }
                PollResult::Pending => {
                    refused(Code::AuthorizationPending, "the owner has not decided yet")
                }
                PollResult::SlowDown => refused(Code::SlowDown, "poll at most once a second"),
                PollResult::Denied => refused(Code::AccessDenied, "the owner denied the request"),
                PollResult::Expired => refused(
                    Code::ExpiredToken,
                    "the request expired before the owner decided",
                ),
            })
        }
        _ => Err(Error::invalid_with_code(
            Code::UnsupportedGrantType,
            "grant_type",
            "grant_type must be authorization_code, refresh_token or urn:ietf:params:oauth:grant-type:device_code",
        )),
    }
}

/// Builds an OAuth token response.
pub(super) fn token_response(issued: &IssuedToken) -> Value {
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
    match &issued.token_kind {
        TokenKind::Owner => told["scope"] = json!("pdpp:owner"),
        TokenKind::Grant(id) => told["grant_id"] = json!(id),
        TokenKind::Package(id) => told["grant_package_id"] = json!(id),
    }
    if !issued.grants.is_empty() {
        told["authorization_details"] = json!(issued.authorization_details());
    }
    told
}
