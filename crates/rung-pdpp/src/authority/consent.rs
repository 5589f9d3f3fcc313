//! `/consent`: the owner reviews an authorization request, narrows it, and approves or denies it.

use axum::http::StatusCode;
use axum::response::Response;
use rung_fault::{Code, Coded as _};
use rung_records::authority::{
    ApprovalResponse, ApprovedRequest, AuthorizationRequest, ConsentChoice, IssuedToken,
    Redemption, RequestedAccess, Review, SourceSelection, TokenKind,
};
use rung_records::{Bearer, Error};
use serde::Deserialize;
use serde_json::{Value, json};

use super::form_request::{self, FormRequest, with_query};
use super::{authorize, pages, par, session, token};
use crate::service::Service;

pub(super) fn get(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let asked = visit.query_fields();
    let named =
        form_request::text(&asked, "request_uri")?.or(form_request::text(&asked, "approval_id")?);
    let named =
        named.ok_or_else(|| Error::invalid_request("request_uri", "request_uri is required"))?;
    show_consent(service, visit, par::request_uri_id(named), None)
}

/// Shows the consent page, with the error of the owner's previous choice, if any.
pub(super) fn show_consent(
    service: &Service,
    visit: &FormRequest,
    id: &str,
    wrong: Option<&Error>,
) -> Result<Response, Error> {
    let Some(owner) = session::signed_in_owner(service, visit)? else {
        let here = with_query("/consent", &[("request_uri", Some(&par::request_uri(id)))]);
        return form_request::redirect(&with_query("/owner/login", &[("next", Some(&here))]));
    };
    let petition = service.records().authorization_request(id)?;
    match service.records().consent_options(&owner, &petition) {
        Ok(offered) => pages::consent_page(service, visit, &petition, offered, wrong),
        // A request that cannot be granted can still be denied.
        Err(error) => pages::consent_page(service, visit, &petition, Vec::new(), Some(&error)),
    }
}

/// Reads the id of the authorization request from a form or a JSON object.
fn requested_id(visit: &FormRequest) -> Result<&str, Error> {
    let named = match visit.text("request_uri")? {
        Some(named) => Some(named),
        None => visit.text("approval_id")?,
    };
    let named = named.filter(|named| !named.is_empty());
    named
        .map(par::request_uri_id)
        .ok_or_else(|| Error::invalid_request("request_uri", "request_uri is required"))
}

/// Shows the consent form again, with the submitted values.
pub(super) fn show_form_again(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    session::require_owner(service, visit)?;
    show_consent(service, visit, requested_id(visit)?, None)
}

pub(super) fn review(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let owner = session::require_owner(service, visit)?;
    let id = requested_id(visit)?;
    let petition = service.records().authorization_request(id)?;
    let choice = if visit.is_json {
        choice_from_json(&petition, visit)?
    } else {
        choice_from_form(&petition, visit)
    };
    let review = match service.records().review(&owner, id, &choice) {
        Ok(review) => review,
        Err(error) if visit.wants_html() => return show_consent(service, visit, id, Some(&error)),
        Err(error) => return Err(error),
    };
    if visit.wants_html() {
        return show_review(service, visit, &owner, &petition, &review);
    }
    let grants = review.decision.grants.iter().map(|grant| {
        let preview = service.records().preview(&owner, grant)?;
        let streams: Vec<Value> = preview
            .iter()
            .map(|stream| {
                json!({
                    "stream": stream.stream, "record_count": stream.records,
                    "earliest_at": stream.earliest, "latest_at": stream.latest,
                })
            })
            .collect();
        Ok(json!({"grant": grant, "preview": streams}))
    });
    let grants = grants.collect::<Result<Vec<Value>, Error>>()?;
    Ok(form_request::json_response(
        StatusCode::OK,
        &json!({
            "approval_review": {"client_id": petition.client.client_id, "sources": grants},
            "approval_review_revision": review.revision,
            "batch": grants.len() > 1,
            "request_uri": par::request_uri(id),
        }),
    ))
}

/// Shows the review page before the approval.
pub(super) fn show_review(
    service: &Service,
    visit: &FormRequest,
    owner: &Bearer,
    petition: &AuthorizationRequest,
    review: &Review,
) -> Result<Response, Error> {
    let mut previews = Vec::new();
    for grant in &review.decision.grants {
        previews.push(service.records().preview(owner, grant)?);
    }
    let accounts = service.records().connections(owner)?;
    pages::review_page(visit, petition, review, &previews, &accounts)
}

pub(super) fn approve(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let owner = session::require_owner(service, visit)?;
    let id = requested_id(visit)?;
    let revision = visit.text("approval_review_revision")?.unwrap_or_default();
    let by_page = visit.wants_html();
    let approved = service.records().approve(&owner, id, revision, by_page)?;
    approval_response(service, visit, approved)
}

/// Returns the response to an approval.
pub(super) fn approval_response(
    service: &Service,
    visit: &FormRequest,
    approved: ApprovedRequest,
) -> Result<Response, Error> {
    match approved.response {
        ApprovalResponse::Redirect {
            redirect_uri,
            state,
            code,
        } => authorize::redirect_back(service, visit, &redirect_uri, state.as_deref(), Ok(&code)),
        ApprovalResponse::DisplayedCode(code) => pages::approved_page(service, visit, Some(&code)),
        ApprovalResponse::Token(issued) => Ok(form_request::json_response(
            StatusCode::OK,
            &issued_token_body(&issued),
        )),
        ApprovalResponse::Polled if visit.wants_html() => {
            pages::approved_page(service, visit, None)
        }
        ApprovalResponse::Polled => Ok(form_request::json_response(
            StatusCode::OK,
            &json!({"status": "approved"}),
        )),
    }
}

/// Builds the body of an issued token and its grants.
pub(super) fn issued_token_body(issued: &IssuedToken) -> Value {
    let mut told = json!({"token": issued.access_token.expose(), "grant": issued.grants.first()});
    match &issued.token_kind {
        TokenKind::Grant(id) => told["grant_id"] = json!(id),
        TokenKind::Package(id) => {
            told["package_id"] = json!(id);
            told["grants"] = json!(issued.grants);
        }
        TokenKind::Owner => {}
    }
    told
}

pub(super) fn deny(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let owner = session::require_owner(service, visit)?;
    let denied = service.records().deny(&owner, requested_id(visit)?)?;
    match denied.redirect {
        Some((redirect_uri, state)) => authorize::redirect_back(
            service,
            visit,
            &redirect_uri,
            state.as_deref(),
            Err(Code::AccessDenied),
        ),
        None if visit.wants_html() => pages::denied_page(service, visit),
        None => Ok(form_request::json_response(
            StatusCode::OK,
            &json!({"status": "denied"}),
        )),
    }
}

pub(super) fn exchange(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let gone = |status, why: &str| {
        Ok(form_request::json_response(
            status,
            &json!({"error": {"code": "invalid_grant", "message": why}}),
        ))
    };
    match service
        .records()
        .redeem_displayed_code(visit.required_text("code")?)
    {
        Ok(Redemption::Issued(issued)) => {
            let mut told = token::token_response(&issued);
            told["token"] = json!(issued.access_token.expose());
            told["grant"] = json!(issued.grants.first());
            Ok(form_request::json_response(StatusCode::OK, &told))
        }
        Ok(Redemption::Replayed) => gone(StatusCode::GONE, "the code has already been used"),
        Err(error) if error.to_string().contains("the code has expired") => {
            gone(StatusCode::GONE, "the code has expired")
        }
        Err(error) if error.code() == Code::InvalidGrant => {
            gone(StatusCode::NOT_FOUND, "the code is unknown")
        }
        Err(error) => Err(error),
    }
}

/// Reads the choice that a program sent as JSON.
fn choice_from_json(
    petition: &AuthorizationRequest,
    visit: &FormRequest,
) -> Result<ConsentChoice, Error> {
    let flag = |name: &str| visit.fields.get(name).is_some_and(|value| *value == true);
    let wrong = |why: &str| Error::invalid_request("source_narrowing", why);
    let approved = match visit.fields.get("approved_source_indexes") {
        None | Some(Value::Null) => None,
        Some(list) => Some(
            serde_json::from_value::<Vec<usize>>(list.clone()).map_err(|_| {
                Error::invalid_request(
                    "approved_source_indexes",
                    "approved_source_indexes must be a list of indexes",
                )
            })?,
        ),
    };
    let narrowing = visit.fields.get("source_narrowing").cloned();
    let narrowing = narrowing.unwrap_or(Value::Null);
    if !matches!(narrowing, Value::Null | Value::Array(_) | Value::Object(_)) {
        return Err(wrong("source_narrowing must be an object or a list"));
    }
    let all: Vec<usize> = match &petition.wanted {
        RequestedAccess::Data(asks) => (0..asks.len()).collect(),
        _ => Vec::new(),
    };
    let mut sources: Vec<SourceSelection> = Vec::new();
    for at in approved.unwrap_or(all) {
        let told = match &narrowing {
            Value::Array(list) => list
                .iter()
                .find(|one| one["index"].as_u64() == Some(at as u64))
                .cloned(),
            object => object.get(at.to_string()).cloned(),
        };
        sources.push(parse_narrowing(Some(at), &told.unwrap_or(Value::Null))?);
    }
    // A request without details: the program sends the sources that the owner picked.
    if let (RequestedAccess::Pick { .. }, Some(Value::Array(picked))) =
        (&petition.wanted, visit.fields.get("sources"))
    {
        for one in picked {
            sources.push(parse_narrowing(None, one)?);
        }
    }
    let single_use = match visit.text("access_mode")? {
        None => None,
        Some("single_use") => Some(true),
        Some("continuous") => Some(false),
        Some(_) => {
            let why = "access_mode must be single_use or continuous";
            return Err(Error::invalid_request("access_mode", why));
        }
    };
    Ok(ConsentChoice {
        sources: Some(sources),
        single_use,
        ai_training: flag("ai_training_consented"),
    })
}

/// How a program narrows one source. Unknown members are rejected: one might have been meant to narrow it.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SourceNarrowing {
    index: Option<u64>,
    connector_id: Option<String>,
    connection_ids: Vec<String>,
    instance_ids: Vec<String>,
    streams: Option<Vec<StreamNarrowing>>,
    since: Option<String>,
    until: Option<String>,
    days: Option<u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum StreamNarrowing {
    Whole(String),
    Part(FieldNarrowing),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldNarrowing {
    name: String,
    fields: Option<Vec<String>>,
}

fn parse_narrowing(ask: Option<usize>, told: &Value) -> Result<SourceSelection, Error> {
    let wrong =
        |error: serde_json::Error| Error::invalid_request("source_narrowing", error.to_string());
    let told = match told {
        Value::Null => SourceNarrowing::default(),
        told => SourceNarrowing::deserialize(told).map_err(wrong)?,
    };
    let streams = told.streams.map(|streams| {
        let part = |stream| match stream {
            StreamNarrowing::Whole(name) => (name, None),
            StreamNarrowing::Part(part) => (part.name, part.fields),
        };
        streams.into_iter().map(part).collect()
    });
    Ok(SourceSelection {
        detail_index: ask,
        connector: told
            .connector_id
            .map(|id| rung_records::declaration::connector_slug(&id))
            .unwrap_or_default(),
        connections: [told.connection_ids, told.instance_ids].concat(),
        streams,
        since: told.since,
        until: told.until,
        days: told.days,
    })
}

/// Reads the choice from the consent form. A box that is not ticked is not granted.
fn choice_from_form(petition: &AuthorizationRequest, visit: &FormRequest) -> ConsentChoice {
    let sources = visit.texts("source").into_iter().map(|place| {
        let own = |name: &str| visit.texts(&format!("{name}.{place}"));
        let first = |name: &str| {
            let found = own(name).first().copied().filter(|text| !text.is_empty());
            found.map(str::to_owned)
        };
        let streams = own("stream").into_iter().map(|stream| {
            let fields = visit.texts(&format!("field.{place}.{stream}"));
            let fields = fields.into_iter().map(str::to_owned).collect();
            (stream.to_owned(), Some(fields))
        });
        let asked = matches!(petition.wanted, RequestedAccess::Data(_));
        SourceSelection {
            detail_index: place.parse().ok().filter(|_| asked),
            connector: first("connector").unwrap_or_default(),
            connections: own("connection").into_iter().map(str::to_owned).collect(),
            streams: Some(streams.collect()),
            since: first("since"),
            until: first("until"),
            days: first("days").and_then(|days| days.parse().ok()),
        }
    });
    let sources: Vec<SourceSelection> = sources.collect();
    ConsentChoice {
        sources: Some(sources),
        single_use: visit
            .texts("access_mode")
            .first()
            .map(|mode| *mode == "single_use"),
        ai_training: !visit.texts("ai_training_consented").is_empty(),
    }
}
