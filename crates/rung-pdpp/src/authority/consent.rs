//! `/consent`: the owner looks at what is asked for, narrows it, and says yes or no.

use axum::http::StatusCode;
use axum::response::Response;
use rung_fault::{Code, Coded as _};
use rung_records::authority::{
    Approved, Choice, Handed, Holder, Issued, Narrowed, Petition, Redeemed, Review, Wanted,
};
use rung_records::{Bearer, Error};
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
    let offered = service.records().offer(&owner, &petition)?;
    pages::consent(service, visit, &petition, offered, wrong)
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
    pages::review(visit, petition, review, &previews)
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
    let narrowing = visit
        .fields
        .get("source_narrowing")
        .cloned()
        .unwrap_or(Value::Null);
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
        sources.push(narrowed(Some(at), &told.unwrap_or(Value::Null)).map_err(wrong)?);
    }
    // Where nothing was asked, the program says what the owner picked.
    if let (Wanted::Pick { .. }, Some(Value::Array(picked))) =
        (&petition.wanted, visit.fields.get("sources"))
    {
        for one in picked {
            sources.push(narrowed(None, one).map_err(wrong)?);
        }
    }
    let mode = visit.text("access_mode")?;
    Ok(Choice {
        sources: Some(sources),
        single_use: mode.map(|mode| mode == "single_use"),
        ai_training: flag("ai_training_consented"),
    })
}

fn narrowed(ask: Option<usize>, told: &Value) -> Result<Narrowed, &'static str> {
    let texts = |value: &Value| -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.filter_map(|one| one.as_str().map(str::to_owned))
            .collect()
    };
    let text = |name: &str| told[name].as_str().map(str::to_owned);
    let streams = match &told["streams"] {
        Value::Null => None,
        Value::Array(streams) => {
            let mut all = Vec::new();
            for stream in streams {
                all.push(match stream {
                    Value::String(name) => (name.clone(), None),
                    Value::Object(members) => {
                        let name = members.get("name").and_then(Value::as_str);
                        let name = name.ok_or("a stream has a name")?;
                        (name.to_owned(), members.get("fields").map(texts))
                    }
                    _ => return Err("streams is a list of names or objects"),
                });
            }
            Some(all)
        }
        _ => return Err("streams is a list"),
    };
    let mut connections = texts(&told["connection_ids"]);
    connections.extend(texts(&told["instance_ids"]));
    Ok(Narrowed {
        ask,
        connector: text("connector_id")
            .map(|id| rung_records::declaration::slug(&id))
            .unwrap_or_default(),
        connections,
        streams,
        since: text("since"),
        until: text("until"),
        days: told["days"]
            .as_u64()
            .and_then(|days| u32::try_from(days).ok()),
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
