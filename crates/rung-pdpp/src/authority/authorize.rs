//! `GET /oauth/authorize`: the authorization code flow with PKCE.

use axum::response::Response;
use data_encoding::{BASE64URL, BASE64URL_NOPAD};
use rung_fault::Code;
use rung_records::Error;
use rung_records::authority::{
    ApprovalResponse, ClientMetadata, ConsentChoice, DETAILS_TYPE, Delivery,
    NewAuthorizationRequest, RequestedAccess, SourceSelection,
};
use serde_json::{Map, Value, json};

use super::form_request::{self, FormRequest, with_query};
use super::{consent, pages, par, session};
use crate::service::Service;

/// The parameters of an authorization code request that bind the code to its client.
pub(super) struct CodeFlowParams {
    redirect_uri: String,
    state: Option<String>,
    code_challenge: String,
}

impl CodeFlowParams {
    /// Parses the parameters. Errors are shown here and not redirected: the `redirect_uri` is not verified yet.
    pub(super) fn parse(fields: &Map<String, Value>) -> Result<Self, Error> {
        let need = |name: &'static str| -> Result<&str, Error> {
            let given = form_request::text(fields, name)?.filter(|text| !text.is_empty());
            given.ok_or_else(|| Error::invalid_request(name, format!("{name} is required")))
        };
        if need("response_type")? != "code" {
            let why = "response_type must be code";
            return Err(Error::invalid_with_code(
                Code::UnsupportedResponseType,
                "response_type",
                why,
            ));
        }
        if form_request::text(fields, "code_challenge_method")? != Some("S256") {
            let why = "code_challenge_method must be S256";
            return Err(Error::invalid_request("code_challenge_method", why));
        }
        let code_challenge = need("code_challenge")?;
        let hashed = BASE64URL_NOPAD.decode(code_challenge.as_bytes());
        if !hashed.is_ok_and(|bytes| bytes.len() == 32) {
            let why = "code_challenge must be the SHA-256 of the code verifier, as base64url";
            return Err(Error::invalid_request("code_challenge", why));
        }
        let state = form_request::text(fields, "state")?;
        if state.is_some_and(|state| state.len() > 4_096) {
            return Err(Error::invalid_request(
                "state",
                "state is too long: at most 4,096 bytes",
            ));
        }
        Ok(Self {
            redirect_uri: need("redirect_uri")?.to_owned(),
            state: state.map(str::to_owned),
            code_challenge: code_challenge.to_owned(),
        })
    }

    /// Returns the redirect delivery, if the client registered this `redirect_uri`.
    pub(super) fn into_delivery(self, client: &ClientMetadata) -> Result<Delivery, Error> {
        if !client.is_registered_redirect(&self.redirect_uri) {
            return Err(Error::invalid_with_code(
                Code::InvalidRedirectUri,
                "redirect_uri",
                "the client has not registered exactly this redirect_uri",
            ));
        }
        Ok(Delivery::Redirect {
            redirect_uri: self.redirect_uri,
            state: self.state,
            code_challenge: self.code_challenge,
        })
    }
}

/// Parses `authorization_details`; in a query string it is JSON in a string.
pub(super) fn parse_details(given: &Value) -> Result<Value, Error> {
    match given {
        Value::String(text) => serde_json::from_str(text).map_err(|error| {
            let why = format!("authorization_details is not valid JSON: {error}");
            Error::invalid_with_code(
                Code::InvalidAuthorizationDetails,
                "authorization_details",
                why,
            )
        }),
        other => Ok(other.clone()),
    }
}

pub(super) fn get(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let asked = visit.query_fields();
    // A pushed request is complete.
    if let Some(request_uri) = form_request::text(&asked, "request_uri")? {
        let petition = service
            .records()
            .authorization_request(par::request_uri_id(request_uri))?;
        if form_request::text(&asked, "client_id")?
            .is_some_and(|id| id != petition.client.client_id)
        {
            let why = "the request belongs to another client";
            return Err(Error::invalid_with_code(
                Code::InvalidClient,
                "client_id",
                why,
            ));
        }
        return form_request::redirect(&with_query(
            "/consent",
            &[("request_uri", Some(request_uri))],
        ));
    }
    let client = par::find_client(service, form_request::text(&asked, "client_id")?)?;
    let way = CodeFlowParams::parse(&asked)?.into_delivery(&client)?;
    let resource = check_resource(service, visit, form_request::text(&asked, "resource")?)?;
    let wanted = match (
        asked.get("authorization_details"),
        form_request::text(&asked, "connector_id")?,
    ) {
        (Some(given), _) => RequestedAccess::Data(
            service
                .records()
                .parse_authorization_details(&parse_details(given)?)?,
        ),
        (None, Some(connector)) => {
            RequestedAccess::Data(service.records().parse_authorization_details(&json!([{
                "type": DETAILS_TYPE, "source": {"id": connector},
                "purpose_code": "https://pdpp.dev/purpose/personal_ai_assistant",
                "access_mode": "continuous", "streams": [{"name": "*"}],
            }]))?)
        }
        (None, None) => RequestedAccess::Pick { one_source: false },
    };
    let picks = matches!(wanted, RequestedAccess::Pick { .. });
    let filed = service
        .records()
        .create_authorization_request(NewAuthorizationRequest {
            client,
            package: picks || matches!(&wanted, RequestedAccess::Data(asks) if asks.len() > 1),
            wanted,
            way,
            resource,
            parent_package_id: None,
        })?;
    let request_uri = par::request_uri(&filed.id);
    if picks && session::signed_in_owner(service, visit)?.is_some() {
        return consent::show_consent(service, visit, &filed.id, None);
    }
    form_request::redirect(&with_query(
        "/consent",
        &[("request_uri", Some(&request_uri))],
    ))
}

/// Checks that the requested resource (RFC 8707) is this server.
pub(super) fn check_resource(
    service: &Service,
    visit: &FormRequest,
    asked: Option<&str>,
) -> Result<Option<String>, Error> {
    let Some(asked) = asked.map(|asked| asked.trim_end_matches('/')) else {
        return Ok(None);
    };
    let here = service.resource_url(&visit.head);
    if asked == here || asked == format!("{here}/mcp") || asked == format!("{here}/v1") {
        return Ok(Some(asked.to_owned()));
    }
    Err(Error::invalid_with_code(
        Code::InvalidTarget,
        "resource",
        format!("resource must be {here} or {here}/mcp"),
    ))
}

/// Approves the owner's selection in one step and returns the code, for programs.
pub(super) fn approve_package(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let owner = session::require_owner(service, visit)?;
    let client = par::find_client(service, visit.text("client_id")?)?;
    let way = CodeFlowParams::parse(&visit.fields)?.into_delivery(&client)?;
    let resource = check_resource(service, visit, visit.text("resource")?)?;
    let single_use = match visit.text("access_mode")? {
        None | Some("continuous") => false,
        Some("single_use") => true,
        Some(_) => {
            let why = "access_mode must be continuous or single_use";
            return Err(Error::invalid_request("access_mode", why));
        }
    };
    let sources = selected_sources(visit)?;
    let records = service.records();
    let filed = records.create_authorization_request(NewAuthorizationRequest {
        client,
        wanted: RequestedAccess::Pick { one_source: false },
        way,
        resource,
        package: true,
        parent_package_id: None,
    })?;
    let choice = ConsentChoice {
        sources: Some(sources),
        single_use: Some(single_use),
        ai_training: false,
    };
    let review = match records.review(&owner, &filed.id, &choice) {
        Ok(review) => review,
        Err(error) if visit.wants_html() => {
            return consent::show_consent(service, visit, &filed.id, Some(&error));
        }
        Err(error) => return Err(error),
    };
    let approved = records.approve(&owner, &filed.id, &review.revision, true)?;
    match approved.response {
        ApprovalResponse::Redirect {
            redirect_uri,
            state,
            code,
        } => redirect_back(service, visit, &redirect_uri, state.as_deref(), Ok(&code)),
        _ => pages::approved_page(service, visit, None),
    }
}

/// Redirects the owner to the client, with a code or with an error.
pub(super) fn redirect_back(
    service: &Service,
    visit: &FormRequest,
    redirect_uri: &str,
    state: Option<&str>,
    outcome: Result<&str, Code>,
) -> Result<Response, Error> {
    let issuer = service.issuer(&visit.head);
    let (code, error) = match outcome {
        Ok(code) => (Some(code), None),
        Err(error) => (None, Some(error.name())),
    };
    form_request::redirect(&with_query(
        redirect_uri,
        &[
            ("code", code),
            ("error", error),
            ("state", state),
            ("iss", Some(&issuer)),
        ],
    ))
}

/// Reads the selected sources and their streams.
fn selected_sources(visit: &FormRequest) -> Result<Vec<SourceSelection>, Error> {
    let mut sources: Vec<(SourceSelection, Vec<String>)> = Vec::new();
    for selection in visit.texts("selection") {
        let (connector, connection, _) = decode_selection(selection)?;
        sources.push((
            SourceSelection {
                connector,
                connections: connection.into_iter().collect(),
                ..SourceSelection::default()
            },
            Vec::new(),
        ));
    }
    if sources.is_empty() {
        return Err(Error::invalid_request(
            "selection",
            "choose at least one source",
        ));
    }
    for stream in visit.texts("stream") {
        let (connector, connection, stream) = decode_selection(stream)?;
        let stream = stream
            .ok_or_else(|| Error::invalid_request("stream", "the selection names no stream"))?;
        let connections: Vec<String> = connection.into_iter().collect();
        // Streams of sources that were not selected are ignored.
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
            return Err(Error::invalid_request("stream", why));
        }
        source.streams = Some(streams.into_iter().map(|stream| (stream, None)).collect());
        chosen.push(source);
    }
    Ok(chosen)
}

/// Decodes a selection: a connector, and optionally a connection and a stream, as JSON in base64url.
fn decode_selection(packed: &str) -> Result<(String, Option<String>, Option<String>), Error> {
    let wrong = || {
        Error::invalid_request(
            "selection",
            "the selection does not come from this page: open the page again",
        )
    };
    let bytes = BASE64URL_NOPAD
        .decode(packed.as_bytes())
        .or_else(|_| BASE64URL.decode(packed.as_bytes()))
        .map_err(|_| wrong())?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    let connector = text("connector_id").ok_or_else(wrong)?;
    Ok((
        rung_records::declaration::connector_slug(&connector),
        text("connection_id"),
        text("stream"),
    ))
}
