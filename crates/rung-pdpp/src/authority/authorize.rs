//! `GET /oauth/authorize`: an application sends the owner here, and gets a code back.

use axum::response::Response;
use data_encoding::{BASE64URL, BASE64URL_NOPAD};
use rung_fault::Code;
use rung_records::Error;
use rung_records::authority::{
    Choice, ClientCard, DETAILS_TYPE, Filing, Handed, Narrowed, Wanted, Way,
};
use serde_json::{Map, Value, json};

use super::visit::{self, Visit, with_query};
use super::{consent, pages, par, session};
use crate::service::Service;

/// What binds a code to whoever asked for it.
pub(super) struct Challenge {
    redirect_uri: String,
    state: Option<String>,
    code_challenge: String,
}

impl Challenge {
    /// Reads it. What is wrong is told here: nobody is sent to an address that is not known yet.
    pub(super) fn read(fields: &Map<String, Value>) -> Result<Self, Error> {
        let need = |name: &'static str| -> Result<&str, Error> {
            let given = visit::text(fields, name)?.filter(|text| !text.is_empty());
            given.ok_or_else(|| Error::invalid(name, format!("{name} is needed")))
        };
        if need("response_type")? != "code" {
            let why = "response_type is code";
            return Err(Error::refused(
                Code::UnsupportedResponseType,
                "response_type",
                why,
            ));
        }
        if visit::text(fields, "code_challenge_method")? != Some("S256") {
            let why = "code_challenge_method is S256";
            return Err(Error::invalid("code_challenge_method", why));
        }
        let code_challenge = need("code_challenge")?;
        let hashed = BASE64URL_NOPAD.decode(code_challenge.as_bytes());
        if !hashed.is_ok_and(|bytes| bytes.len() == 32) {
            let why = "code_challenge is the SHA-256 of a verifier, as base64url";
            return Err(Error::invalid("code_challenge", why));
        }
        let state = visit::text(fields, "state")?;
        if state.is_some_and(|state| state.len() > 4_096) {
            return Err(Error::invalid("state", "state has 4,096 bytes at most"));
        }
        Ok(Self {
            redirect_uri: need("redirect_uri")?.to_owned(),
            state: state.map(str::to_owned),
            code_challenge: code_challenge.to_owned(),
        })
    }

    /// The way back, if the application registered it.
    pub(super) fn way(self, client: &ClientCard) -> Result<Way, Error> {
        if !client.may_redirect(&self.redirect_uri) {
            return Err(Error::refused(
                Code::InvalidRedirectUri,
                "redirect_uri",
                "the application did not register exactly this redirect_uri",
            ));
        }
        Ok(Way::Redirect {
            redirect_uri: self.redirect_uri,
            state: self.state,
            code_challenge: self.code_challenge,
        })
    }
}

/// What is asked for, which in an address is JSON in a text.
pub(super) fn details(given: &Value) -> Result<Value, Error> {
    match given {
        Value::String(text) => serde_json::from_str(text).map_err(|error| {
            let why = format!("authorization_details is no JSON: {error}");
            Error::refused(
                Code::InvalidAuthorizationDetails,
                "authorization_details",
                why,
            )
        }),
        other => Ok(other.clone()),
    }
}

pub(super) fn get(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let asked = visit.asked();
    // A request that was pushed before has everything in it.
    if let Some(request_uri) = visit::text(&asked, "request_uri")? {
        let petition = service.records().petition(par::petition_id(request_uri))?;
        if visit::text(&asked, "client_id")?.is_some_and(|id| id != petition.client.client_id) {
            let why = "the request is another application's";
            return Err(Error::refused(Code::InvalidClient, "client_id", why));
        }
        return visit::redirect(&with_query(
            "/consent",
            &[("request_uri", Some(request_uri))],
        ));
    }
    let client = par::client(service, visit::text(&asked, "client_id")?)?;
    let way = Challenge::read(&asked)?.way(&client)?;
    let resource = resource(service, visit, visit::text(&asked, "resource")?)?;
    let wanted = match (
        asked.get("authorization_details"),
        visit::text(&asked, "connector_id")?,
    ) {
        (Some(given), _) => Wanted::Data(service.records().asks(&details(given)?)?),
        (None, Some(connector)) => Wanted::Data(service.records().asks(&json!([{
            "type": DETAILS_TYPE, "source": {"id": connector},
            "purpose_code": "https://pdpp.dev/purpose/personal_ai_assistant",
            "access_mode": "continuous", "streams": [{"name": "*"}],
        }]))?),
        (None, None) => Wanted::Pick { one_source: false },
    };
    let picks = matches!(wanted, Wanted::Pick { .. });
    let filed = service.records().file(Filing {
        client,
        package: picks || matches!(&wanted, Wanted::Data(asks) if asks.len() > 1),
        wanted,
        way,
        resource,
        parent_package_id: None,
    })?;
    let request_uri = par::request_uri(&filed.id);
    if picks && session::owner(service, visit)?.is_some() {
        return consent::show(service, visit, &filed.id, None);
    }
    visit::redirect(&with_query(
        "/consent",
        &[("request_uri", Some(&request_uri))],
    ))
}

/// The resource that a token is for, which is here.
pub(super) fn resource(
    service: &Service,
    visit: &Visit,
    asked: Option<&str>,
) -> Result<Option<String>, Error> {
    let Some(asked) = asked.map(|asked| asked.trim_end_matches('/')) else {
        return Ok(None);
    };
    let here = service.resource(&visit.arrived);
    if asked == here || asked == format!("{here}/mcp") || asked == format!("{here}/v1") {
        return Ok(Some(asked.to_owned()));
    }
    Err(Error::refused(
        Code::InvalidTarget,
        "resource",
        format!("resource is {here} or {here}/mcp"),
    ))
}

/// One step for programs: what the owner picked, and the code for it.
pub(super) fn package(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let owner = session::deciding(service, visit)?;
    let client = par::client(service, visit.text("client_id")?)?;
    let way = Challenge::read(&visit.fields)?.way(&client)?;
    let resource = resource(service, visit, visit.text("resource")?)?;
    let single_use = match visit.text("access_mode")? {
        None | Some("continuous") => false,
        Some("single_use") => true,
        Some(_) => {
            let why = "access_mode is continuous or single_use";
            return Err(Error::invalid("access_mode", why));
        }
    };
    let sources = picked(visit)?;
    let records = service.records();
    let filed = records.file(Filing {
        client,
        wanted: Wanted::Pick { one_source: false },
        way,
        resource,
        package: true,
        parent_package_id: None,
    })?;
    let choice = Choice {
        sources: Some(sources),
        single_use: Some(single_use),
        ai_training: false,
    };
    let review = match records.review(&owner, &filed.id, &choice) {
        Ok(review) => review,
        Err(error) if visit.wants_page() => {
            return consent::show(service, visit, &filed.id, Some(&error));
        }
        Err(error) => return Err(error),
    };
    let approved = records.approve(&owner, &filed.id, &review.revision, true)?;
    match approved.handed {
        Handed::Redirect {
            redirect_uri,
            state,
            code,
        } => back(service, visit, &redirect_uri, state.as_deref(), Ok(&code)),
        _ => pages::done(service, visit, None),
    }
}

/// Sends the owner back, with a code or with a no.
pub(super) fn back(
    service: &Service,
    visit: &Visit,
    redirect_uri: &str,
    state: Option<&str>,
    outcome: Result<&str, Code>,
) -> Result<Response, Error> {
    let issuer = service.issuer(&visit.arrived);
    let (code, error) = match outcome {
        Ok(code) => (Some(code), None),
        Err(error) => (None, Some(error.name())),
    };
    visit::redirect(&with_query(
        redirect_uri,
        &[
            ("code", code),
            ("error", error),
            ("state", state),
            ("iss", Some(&issuer)),
        ],
    ))
}

/// What was picked: sources, and streams of them.
fn picked(visit: &Visit) -> Result<Vec<Narrowed>, Error> {
    let mut sources: Vec<(Narrowed, Vec<String>)> = Vec::new();
    for selection in visit.texts("selection") {
        let (connector, connection, _) = unpacked(selection)?;
        sources.push((
            Narrowed {
                connector,
                connections: connection.into_iter().collect(),
                ..Narrowed::default()
            },
            Vec::new(),
        ));
    }
    if sources.is_empty() {
        return Err(Error::invalid("selection", "choose at least one source"));
    }
    for stream in visit.texts("stream") {
        let (connector, connection, stream) = unpacked(stream)?;
        let stream = stream.ok_or_else(|| Error::invalid("stream", "a stream is named"))?;
        let connections: Vec<String> = connection.into_iter().collect();
        // Streams of what was not chosen are of no use.
        for (source, streams) in &mut sources {
            if source.connector == connector && source.connections == connections {
                streams.push(stream.clone());
            }
        }
    }
    let mut chosen = Vec::new();
    for (mut source, streams) in sources {
        if streams.is_empty() {
            let why = format!("choose at least one stream of {}", source.connector);
            return Err(Error::invalid("stream", why));
        }
        source.streams = Some(streams.into_iter().map(|stream| (stream, None)).collect());
        chosen.push(source);
    }
    Ok(chosen)
}

/// A connector, a connection and a stream, as pages and programs send them.
fn unpacked(packed: &str) -> Result<(String, Option<String>, Option<String>), Error> {
    let wrong = || Error::invalid("selection", "this is not a selection of this page");
    let bytes = BASE64URL_NOPAD
        .decode(packed.as_bytes())
        .or_else(|_| BASE64URL.decode(packed.as_bytes()))
        .map_err(|_| wrong())?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    let connector = text("connector_id").ok_or_else(wrong)?;
    Ok((
        rung_records::declaration::slug(&connector),
        text("connection_id"),
        text("stream"),
    ))
}
