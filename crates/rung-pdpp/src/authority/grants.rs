//! The owner's list of grants, and revocation.

use axum::http::StatusCode;
use axum::response::Response;
use rung_auth::TokenRecord;
use rung_records::{Error, IssuedGrant};
use serde_json::json;

use super::form_request::{self, FormRequest, with_query};
use super::{pages, session};
use crate::service::Service;

/// Disclosures that are listed for one grant, at most.
const MAX_DISCLOSURES: i64 = 200;

pub(super) fn list(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let Some(owner) = session::signed_in_owner(service, visit)? else {
        return redirect_to_login(visit);
    };
    // The page lists the latest disclosures too.
    service.flush_journal();
    let grants = service.records().grants(&owner)?;
    if !visit.wants_html() {
        let told: Result<Vec<_>, Error> = grants.iter().map(IssuedGrant::to_json).collect();
        return Ok(form_request::json_response(
            StatusCode::OK,
            &json!({"object": "list", "data": told?}),
        ));
    }
    let own = service.records().owner_tokens(&owner)?;
    let tokens = service.tokens().list()?;
    pages::grants_page(service, visit, &grant_rows(&grants, &tokens), &own)
}

pub(super) fn get(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let Some(owner) = session::signed_in_owner(service, visit)? else {
        return redirect_to_login(visit);
    };
    service.flush_journal();
    let id = visit.path_params[0].as_str();
    let records = service.records();
    let (grants, tokens) = (records.grants(&owner)?, service.tokens().list()?);
    let rows = grant_rows(&grants, &tokens);
    let row = find_row(&rows, id)?;
    let mut shown = Vec::new();
    for given in &row.grants {
        let id = &given.grant.grant_id;
        shown.extend(records.disclosures_of_grant(&owner, id, MAX_DISCLOSURES)?);
    }
    shown.sort_by_key(|one| std::cmp::Reverse(one.at_ms));
    shown.truncate(usize::try_from(MAX_DISCLOSURES).unwrap_or(usize::MAX));
    let accounts = records.connections(&owner)?;
    pages::grant_page(service, visit, row, &shown, &accounts)
}

/// A row of the owner's list, revoked as a whole: one grant, or a bearer token with all its grants.
pub(super) struct GrantRow<'a> {
    /// The grants of personal data. A token may have none.
    pub(super) grants: Vec<&'a IssuedGrant>,
    /// The token that the grants were issued with, unless it is revoked.
    pub(super) token: Option<&'a TokenRecord>,
}

impl GrantRow<'_> {
    fn has_id(&self, id: &str) -> bool {
        let token = self.token.is_some_and(|token| token.grant.as_str() == id);
        token || self.grants.iter().any(|given| given.grant.grant_id == id)
    }
}

/// The rows of the owner's list, in the order of the grants; then tokens that reach no personal data.
fn grant_rows<'a>(grants: &'a [IssuedGrant], tokens: &'a [TokenRecord]) -> Vec<GrantRow<'a>> {
    let mut rows: Vec<GrantRow<'a>> = Vec::new();
    for given in grants {
        let together = |row: &&mut GrantRow<'_>| {
            row.grants.iter().any(|other| {
                other.token_grant().is_some()
                    && other.token_grant() == given.token_grant()
                    && other.revoked_ms.is_some() == given.revoked_ms.is_some()
            })
        };
        if let Some(row) = rows.iter_mut().find(together) {
            row.grants.push(given);
            continue;
        }
        let token = given.token_grant().filter(|_| given.revoked_ms.is_none());
        let token = token.and_then(|id| tokens.iter().find(|own| own.grant.as_str() == id));
        rows.push(GrantRow {
            grants: vec![given],
            token,
        });
    }
    for token in tokens.iter().filter(|token| token.scope.is_some()) {
        let id = token.grant.as_str();
        if !rows.iter().any(|row| row.has_id(id)) {
            rows.push(GrantRow {
                grants: Vec::new(),
                token: Some(token),
            });
        }
    }
    rows
}

fn find_row<'r, 'g>(rows: &'r [GrantRow<'g>], id: &str) -> Result<&'r GrantRow<'g>, Error> {
    let row = rows.iter().find(|row| row.has_id(id));
    row.ok_or_else(|| Error::NotFound(format!("no grant has the id {id}")))
}

/// Shows what a revocation ends, and asks the owner to confirm it.
pub(super) fn confirm_revocation(
    service: &Service,
    visit: &FormRequest,
) -> Result<Response, Error> {
    let Some(owner) = session::signed_in_owner(service, visit)? else {
        return redirect_to_login(visit);
    };
    let (grants, tokens) = (service.records().grants(&owner)?, service.tokens().list()?);
    let rows = grant_rows(&grants, &tokens);
    pages::revoke_grant_page(service, visit, find_row(&rows, &visit.path_params[0])?)
}

/// Asks the owner to confirm that a token of their own ends.
pub(super) fn confirm_end_of_owner_token(
    service: &Service,
    visit: &FormRequest,
) -> Result<Response, Error> {
    let Some(owner) = session::signed_in_owner(service, visit)? else {
        return redirect_to_login(visit);
    };
    let own = service.records().owner_tokens(&owner)?;
    let token = own.iter().find(|own| own.id == visit.path_params[0]);
    let token = token.ok_or_else(|| Error::NotFound("no such token".to_owned()))?;
    pages::revoke_owner_token_page(service, visit, token)
}

fn redirect_to_login(visit: &FormRequest) -> Result<Response, Error> {
    if !visit.wants_html() {
        return Err(session::sign_in_required());
    }
    form_request::redirect(&with_query("/owner/login", &[("next", Some(&visit.path))]))
}

pub(super) fn revoke_from_page(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let owner = session::require_owner(service, visit)?;
    let (records, tokens) = (service.records(), service.tokens());
    records.revoke_grant(&owner, &visit.path_params[0], tokens)?;
    form_request::redirect("/owner/grants")
}

pub(super) fn end_owner_token(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let owner = session::require_owner(service, visit)?;
    service
        .records()
        .revoke_owner_token(&owner, &visit.path_params[0])?;
    form_request::redirect("/owner/grants")
}

/// Revokes a grant, authenticated by the owner's token or by the grant's own token.
pub(super) fn revoke(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let bearer = service.authenticate(&visit.head)?;
    let (records, tokens) = (service.records(), service.tokens());
    records.revoke_grant(&bearer, &visit.path_params[0], tokens)?;
    Ok(form_request::json_response(
        StatusCode::OK,
        &json!({"revoked": true}),
    ))
}
