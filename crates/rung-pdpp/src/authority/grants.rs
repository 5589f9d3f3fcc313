//! What was given: the owner's list of it, and the end of it.

use axum::http::StatusCode;
use axum::response::Response;
use rung_auth::TokenRecord;
use rung_records::{Error, GivenGrant};
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
        let told: Result<Vec<_>, Error> = grants.iter().map(GivenGrant::told).collect();
        return Ok(visit::json(
            StatusCode::OK,
            &json!({"object": "list", "data": told?}),
        ));
    }
    let own = service.records().owner_tokens(&owner)?;
    let tokens = service.tokens().list()?;
    pages::grants(service, visit, &rows(&grants, &tokens), &own)
}

pub(super) fn one(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let Some(owner) = session::owner(service, visit)? else {
        return sign_in(visit);
    };
    service.settle();
    let id = visit.names[0].as_str();
    let records = service.records();
    let (grants, tokens) = (records.grants(&owner)?, service.tokens().list()?);
    let rows = rows(&grants, &tokens);
    let row = rows.iter().find(|row| row.has_id(id));
    let row = row.ok_or_else(|| Error::NotFound(format!("no grant has the id {id}")))?;
    let mut shown = Vec::new();
    for given in &row.grants {
        let id = &given.grant.grant_id;
        shown.extend(records.disclosures_of(&owner, id, DISCLOSURES)?);
    }
    shown.sort_by_key(|one| std::cmp::Reverse(one.at_ms));
    shown.truncate(usize::try_from(DISCLOSURES).unwrap_or(usize::MAX));
    let accounts = records.connections(&owner)?;
    pages::grant(service, visit, row, &shown, &accounts)
}

/// What the owner revokes at once: one grant, or a bearer token with all that it reaches.
pub(super) struct GrantRow<'a> {
    /// The grants of personal data. A token may have none.
    pub(super) grants: Vec<&'a GivenGrant>,
    /// The token that they were issued with, unless it is revoked.
    pub(super) token: Option<&'a TokenRecord>,
}

impl GrantRow<'_> {
    fn has_id(&self, id: &str) -> bool {
        let token = self.token.is_some_and(|token| token.grant.as_str() == id);
        token || self.grants.iter().any(|given| given.grant.grant_id == id)
    }
}

/// The rows of the owner's list, in the order of the grants; then tokens that reach no personal data.
fn rows<'a>(grants: &'a [GivenGrant], tokens: &'a [TokenRecord]) -> Vec<GrantRow<'a>> {
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

fn sign_in(visit: &Visit) -> Result<Response, Error> {
    if !visit.wants_page() {
        return Err(session::required());
    }
    visit::redirect(&with_query("/owner/login", &[("next", Some(&visit.path))]))
}

pub(super) fn revoke_by_page(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let owner = session::deciding(service, visit)?;
    let (records, tokens) = (service.records(), service.tokens());
    records.revoke(&owner, &visit.names[0], tokens)?;
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
    let (records, tokens) = (service.records(), service.tokens());
    records.revoke(&bearer, &visit.names[0], tokens)?;
    Ok(visit::json(StatusCode::OK, &json!({"revoked": true})))
}
