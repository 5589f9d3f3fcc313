//! `/consent`: the owner looks at what is asked for, narrows it, and says yes or no.

use axum::http::StatusCode;
use axum::response::Response;
use rung_fault::{Code, Coded as _};
use rung_records::authority::{
    Approved, Choice, Handed, Holder, Issued, Narrowed, Petition, Redeemed, Review, Wanted,
};
use rung_records::{Bearer, Error};
use serde::Deserialize;
use serde_json::{Value, json};

use super::visit::{self, Visit, with_query};
use super::{authorize, pages, par, session, token};
use crate::service::Service;

pub(super) fn get(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let asked = visit.asked();
    let named = visit::text(&asked, "request_uri")?.or(visit::text(&asked, "approval_id")?);
    let named = named.ok_or_else(|| Error::invalid("request_uri", "request_uri is needed"))?;
    show(service, visit, par::petition_id(named), None)
}

/// Shows what is asked for, and what was wrong with what the owner chose.
pub(super) fn show(
    service: &Service,
    visit: &Visit,
    id: &str,
    wrong: Option<&Error>,
) -> Result<Response, Error> {
    let Some(owner) = session::owner(service, visit)? else {
        let here = with_query("/consent", &[("request_uri", Some(&par::request_uri(id)))]);
        return visit::redirect(&with_query("/owner/login", &[("next", Some(&here))]));
    };
    let petition = service.records().petition(id)?;
    match service.records().offer(&owner, &petition) {
        Ok(offered) => pages::consent(service, visit, &petition, offered, wrong),
        // What cannot be given can still be denied.
        Err(error) => pages::consent(service, visit, &petition, Vec::new(), Some(&error)),
    }
}

/// The request that a form or an object names.
fn named(visit: &Visit) -> Result<&str, Error> {
    let named = match visit.text("request_uri")? {
        Some(named) => Some(named),
        None => visit.text("approval_id")?,
    };
    let named = named.filter(|named| !named.is_empty());
    named
        .map(par::petition_id)
        .ok_or_else(|| Error::invalid("request_uri", "request_uri is needed"))
}

/// Shows the form again, as it was left.
pub(super) fn change(service: &Service, visit: &Visit) -> Result<Response, Error> {
    session::deciding(service, visit)?;
    show(service, visit, named(visit)?, None)
}

pub(super) fn review(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let owner = session::deciding(service, visit)?;
    let id = named(visit)?;
    let petition = service.records().petition(id)?;
    let choice = if visit.is_json {
        choice_of_object(&petition, visit)?
    } else {
        choice_of_form(&petition, visit)
    };
    let review = match service.records().review(&owner, id, &choice) {
        Ok(review) => review,
        Err(error) if visit.wants_page() => return show(service, visit, id, Some(&error)),
        Err(error) => return Err(error),
    };
    if visit.wants_page() {
        return reviewed(service, visit, &owner, &petition, &review);
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
    Ok(visit::json(
        StatusCode::OK,
        &json!({
            "approval_review": {"client_id": petition.client.client_id, "sources": grants},
            "approval_review_revision": review.revision,
            "batch": grants.len() > 1,
            "request_uri": par::request_uri(id),
        }),
    ))
}

/// The last look before it is given.
pub(super) fn reviewed(
    service: &Service,
    visit: &Visit,
    owner: &Bearer,
    petition: &Petition,
    review: &Review,
) -> Result<Response, Error> {
    let mut previews = Vec::new();
    for grant in &review.decision.grants {
        previews.push(service.records().preview(owner, grant)?);
    }
    let accounts = service.records().connections(owner)?;
    pages::review(visit, petition, review, &previews, &accounts)
}

pub(super) fn approve(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let owner = session::deciding(service, visit)?;
    let id = named(visit)?;
    let revision = visit.text("approval_review_revision")?.unwrap_or_default();
    let by_page = visit.wants_page();
    let approved = service.records().approve(&owner, id, revision, by_page)?;
    answered(service, visit, approved)
}

/// What goes back when something was approved.
pub(super) fn answered(
    service: &Service,
    visit: &Visit,
    approved: Approved,
) -> Result<Response, Error> {
    match approved.handed {
        Handed::Redirect {
            redirect_uri,
            state,
            code,
        } => authorize::back(service, visit, &redirect_uri, state.as_deref(), Ok(&code)),
        Handed::Exchange(code) => pages::done(service, visit, Some(&code)),
        Handed::Token(issued) => Ok(visit::json(StatusCode::OK, &given(&issued))),
        Handed::Later if visit.wants_page() => pages::done(service, visit, None),
        Handed::Later => Ok(visit::json(StatusCode::OK, &json!({"status": "approved"}))),
    }
}

/// A token, with what it is for.
pub(super) fn given(issued: &Issued) -> Value {
    let mut told = json!({"token": issued.access_token.expose(), "grant": issued.grants.first()});
    match &issued.holder {
        Holder::Grant(id) => told["grant_id"] = json!(id),
        Holder::Package(id) => {
            told["package_id"] = json!(id);
            told["grants"] = json!(issued.grants);
        }
        Holder::Owner => {}
    }
    told
}

pub(super) fn deny(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let owner = session::deciding(service, visit)?;
    let denied = service.records().deny(&owner, named(visit)?)?;
    match denied.redirect {
        Some((redirect_uri, state)) => authorize::back(
            service,
            visit,
            &redirect_uri,
            state.as_deref(),
            Err(Code::AccessDenied),
        ),
        None if visit.wants_page() => pages::denied(service, visit),
        None => Ok(visit::json(StatusCode::OK, &json!({"status": "denied"}))),
    }
}

pub(super) fn exchange(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let gone = |status, why: &str| {
        Ok(visit::json(
            status,
            &json!({"error": {"code": "invalid_grant", "message": why}}),
        ))
    };
    match service.records().exchange(visit.need("code")?) {
        Ok(Redeemed::Issued(issued)) => {
            let mut told = token::told(&issued);
            told["token"] = json!(issued.access_token.expose());
            told["grant"] = json!(issued.grants.first());
            Ok(visit::json(StatusCode::OK, &told))
        }
        Ok(Redeemed::Replayed) => gone(StatusCode::GONE, "the code was used"),
        Err(error) if error.to_string().contains("time is over") => {
            gone(StatusCode::GONE, "the code's time is over")
        }
        Err(error) if error.code() == Code::InvalidGrant => {
            gone(StatusCode::NOT_FOUND, "the code is not known")
        }
        Err(error) => Err(error),
    }
}

/// What a program chose for the owner.
fn choice_of_object(petition: &Petition, visit: &Visit) -> Result<Choice, Error> {
    let flag = |name: &str| visit.fields.get(name).is_some_and(|value| *value == true);
    let wrong = |why: &str| Error::invalid("source_narrowing", why);
    let approved =
        match visit.fields.get("approved_source_indexes") {
            None | Some(Value::Null) => None,
            Some(list) => Some(serde_json::from_value::<Vec<usize>>(list.clone()).map_err(
                |_| Error::invalid("approved_source_indexes", "a list of places is needed"),
            )?),
        };
    let narrowing = visit.fields.get("source_narrowing").cloned();
    let narrowing = narrowing.unwrap_or(Value::Null);
    if !matches!(narrowing, Value::Null | Value::Array(_) | Value::Object(_)) {
        return Err(wrong("it is an object, or a list"));
    }
    let all: Vec<usize> = match &petition.wanted {
        Wanted::Data(asks) => (0..asks.len()).collect(),
        _ => Vec::new(),
    };
    let mut sources: Vec<Narrowed> = Vec::new();
    for at in approved.unwrap_or(all) {
        let told = match &narrowing {
            Value::Array(list) => list
                .iter()
                .find(|one| one["index"].as_u64() == Some(at as u64))
                .cloned(),
            object => object.get(at.to_string()).cloned(),
        };
        sources.push(narrowed(Some(at), &told.unwrap_or(Value::Null))?);
    }
    // Where nothing was asked, the program says what the owner picked.
    if let (Wanted::Pick { .. }, Some(Value::Array(picked))) =
        (&petition.wanted, visit.fields.get("sources"))
    {
        for one in picked {
            sources.push(narrowed(None, one)?);
        }
    }
    let single_use = match visit.text("access_mode")? {
        None => None,
        Some("single_use") => Some(true),
        Some("continuous") => Some(false),
        Some(_) => {
            let why = "access_mode is single_use or continuous";
            return Err(Error::invalid("access_mode", why));
        }
    };
    Ok(Choice {
        sources: Some(sources),
        single_use,
        ai_training: flag("ai_training_consented"),
    })
}

/// What a program says that the owner gives of one source. A word that is not known might have been meant to narrow it.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Told {
    index: Option<u64>,
    connector_id: Option<String>,
    connection_ids: Vec<String>,
    instance_ids: Vec<String>,
    streams: Option<Vec<ToldStream>>,
    since: Option<String>,
    until: Option<String>,
    days: Option<u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ToldStream {
    Whole(String),
    Part(ToldFields),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToldFields {
    name: String,
    fields: Option<Vec<String>>,
}

fn narrowed(ask: Option<usize>, told: &Value) -> Result<Narrowed, Error> {
    let wrong = |error: serde_json::Error| Error::invalid("source_narrowing", error.to_string());
    let told = match told {
        Value::Null => Told::default(),
        told => Told::deserialize(told).map_err(wrong)?,
    };
    let streams = told.streams.map(|streams| {
        let part = |stream| match stream {
            ToldStream::Whole(name) => (name, None),
            ToldStream::Part(part) => (part.name, part.fields),
        };
        streams.into_iter().map(part).collect()
    });
    Ok(Narrowed {
        ask,
        connector: told
            .connector_id
            .map(|id| rung_records::declaration::slug(&id))
            .unwrap_or_default(),
        connections: [told.connection_ids, told.instance_ids].concat(),
        streams,
        since: told.since,
        until: told.until,
        days: told.days,
    })
}

/// What the owner chose on our page: what is not ticked is not given.
fn choice_of_form(petition: &Petition, visit: &Visit) -> Choice {
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
        let asked = matches!(petition.wanted, Wanted::Data(_));
        Narrowed {
            ask: place.parse().ok().filter(|_| asked),
            connector: first("connector").unwrap_or_default(),
            connections: own("connection").into_iter().map(str::to_owned).collect(),
            streams: Some(streams.collect()),
            since: first("since"),
            until: first("until"),
            days: first("days").and_then(|days| days.parse().ok()),
        }
    });
    let sources: Vec<Narrowed> = sources.collect();
    Choice {
        sources: Some(sources),
        single_use: visit
            .texts("access_mode")
            .first()
            .map(|mode| *mode == "single_use"),
        ai_training: !visit.texts("ai_training_consented").is_empty(),
    }
}
