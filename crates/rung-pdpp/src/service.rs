//! Request handling: authentication, version check, running a route on a blocking thread, and the disclosure journal.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use prometheus_client::registry::Registry;
use rung_fault::{Code, Coded as _};
use rung_records::{Bearer, ConnectionFilter, DisclosureJournal, Error, Records, TokenRegistry};

use crate::authority::ClientMetadataDocuments;
use crate::envelope::{self, PDPP_VERSION, RouteResponse, Warnings};
use crate::introspection::RemoteIntrospection;
use crate::metrics::RouteMetrics;
use crate::params::QueryParams;
use tokio::sync::mpsc::Sender;

/// The parts and settings of a [`Service`].
pub struct ServiceConfig {
    pub records: Arc<Records>,
    /// The bearer tokens of the server, which may reach more than records.
    pub tokens: Arc<dyn TokenRegistry>,
    /// The disclosure journal.
    pub journal: Arc<DisclosureJournal>,
    /// True if clients may only use the query parameters of PDPP core 0.1.
    pub strict_0_1: bool,
    /// True if every caller is treated as the owner and may register a connector. Only for a server on loopback.
    pub without_login: bool,
    /// Bytes of a request body of records or of a blob, at most.
    pub max_body_bytes: u64,
    /// The public base URL of this server. Without it, the origin of each request.
    pub public_url: Option<String>,
    /// The authorization server.
    pub authority: AuthorizationServer,
}

/// The authorization server that issues tokens for these records.
pub enum AuthorizationServer {
    /// In this process, at the resource server's own URL.
    Local,
    /// In this process, at a URL of its own.
    LocalAt(String),
    /// A remote one: tokens are introspected there.
    Remote(Arc<RemoteIntrospection>),
}

/// The state that all routes share.
pub struct Service {
    records: Arc<Records>,
    tokens: Arc<dyn TokenRegistry>,
    journal: Arc<DisclosureJournal>,
    pub(crate) strict_0_1: bool,
    pub(crate) without_login: bool,
    pub(crate) max_body_bytes: u64,
    pub(crate) metrics: RouteMetrics,
    pub(crate) documents: ClientMetadataDocuments,
    public_url: Option<String>,
    authority: AuthorizationServer,
}

impl Service {
    /// Returns the service. Its metrics are registered in `registry`.
    pub fn new(config: ServiceConfig, registry: &mut Registry) -> Self {
        Self {
            records: config.records,
            tokens: config.tokens,
            journal: config.journal,
            strict_0_1: config.strict_0_1,
            without_login: config.without_login,
            max_body_bytes: config.max_body_bytes,
            metrics: RouteMetrics::register(registry),
            documents: ClientMetadataDocuments::default(),
            public_url: config.public_url,
            authority: config.authority,
        }
    }

    pub(crate) fn records(&self) -> &Records {
        &self.records
    }

    pub(crate) fn tokens(&self) -> &dyn TokenRegistry {
        &*self.tokens
    }

    /// True on a local server with login that has no connection yet: there is nothing to grant.
    pub(crate) fn has_nothing_to_grant(&self) -> Result<bool, Error> {
        let own = self.public_url.is_none() && matches!(self.authority, AuthorizationServer::Local);
        Ok(own && !self.without_login && !self.records.has_connections()?)
    }

    /// Returns the URL of the resource server, as the client sees it.
    pub(crate) fn resource_url(&self, arrived: &RequestHead) -> String {
        match (&self.public_url, &self.authority) {
            // The request came to the authorization server, which has another URL.
            (Some(url), AuthorizationServer::LocalAt(_)) => url.clone(),
            _ => arrived.origin.clone(),
        }
    }

    /// Reads a request's headers.
    pub(crate) fn request_head(&self, headers: &HeaderMap) -> RequestHead {
        let mut arrived = RequestHead::from_headers(headers);
        if let Some(url) = &self.public_url {
            arrived.origin.clone_from(url);
        }
        arrived
    }

    /// Reads the headers of a request to the authorization server, which may have a URL of its own.
    pub(crate) fn authority_request_head(&self, headers: &HeaderMap) -> RequestHead {
        let mut arrived = self.request_head(headers);
        if let AuthorizationServer::LocalAt(url) = &self.authority {
            arrived.origin.clone_from(url);
        }
        arrived
    }

    /// Returns the URL of the authorization server.
    pub(crate) fn issuer(&self, arrived: &RequestHead) -> String {
        match &self.authority {
            AuthorizationServer::Local => self.resource_url(arrived),
            AuthorizationServer::LocalAt(url) => url.clone(),
            AuthorizationServer::Remote(foreign) => foreign.issuer().to_owned(),
        }
    }

    /// Runs the store's background maintenance. A failure is logged.
    pub fn maintenance(&self) {
        let told = |progress: &rung_records::BuildProgress| {
            tracing::info!(
                connection = progress.connection,
                stream = progress.stream,
                done = progress.done,
                of = progress.total,
                "building"
            );
        };
        if let Err(error) = self.records.maintenance(&told) {
            tracing::warn!(%error, "maintenance failed and is tried again later");
        }
    }

    /// Moves the journal's disclosures into the store. After a failure they stay in the journal.
    pub fn flush_journal(&self) {
        if let Err(error) = self.journal.flush(&self.records) {
            tracing::warn!(%error, "disclosures could not be stored; they stay in the journal");
        }
    }
}

/// The parts of a request that routes read.
pub(crate) struct RouteRequest {
    /// The path parameters, percent-decoded.
    pub(crate) path_params: Vec<String>,
    pub(crate) params: QueryParams,
    pub(crate) path: String,
    pub(crate) query: String,
}

impl RouteRequest {
    pub(crate) fn path_param(&self, at: usize) -> &str {
        self.path_params.get(at).map_or("", String::as_str)
    }

    /// Returns the chosen connections, and true if a deprecated parameter name was used.
    pub(crate) fn choice(&self, bearer: &Bearer) -> Result<(ConnectionFilter, bool), Error> {
        if let Some(subject) = self.params.single("subject_id")?
            && subject != bearer.subject_id()
        {
            return Err(Error::NotFound("no such subject".to_owned()));
        }
        self.params.choice()
    }

    /// Returns the same as `choice`, but requires the owner to name a source.
    pub(crate) fn required_source(
        &self,
        bearer: &Bearer,
    ) -> Result<(ConnectionFilter, bool), Error> {
        let (choice, alias) = self.choice(bearer)?;
        if bearer.is_owner() && choice.connection_id.is_none() && choice.connector_id.is_none() {
            let why = "the owner must name the source with connector_id or connection_id";
            return Err(Error::invalid_request("connector_id", why));
        }
        Ok((choice, alias))
    }

    /// In strict mode, returns an error if a client uses one of the parameters that PDPP core 0.1 does not allow.
    pub(crate) fn check_strict_mode(
        &self,
        service: &Service,
        bearer: &Bearer,
        refused: &[&'static str],
    ) -> Result<(), Error> {
        if !service.strict_0_1 || bearer.is_owner() {
            return Ok(());
        }
        match refused.iter().find(|name| self.params.has(name)) {
            None => Ok(()),
            Some(name) => Err(Error::invalid_request(
                *name,
                format!("{name} is for the owner only"),
            )),
        }
    }

    /// Returns the page size: 25 by default, 100 at most.
    pub(crate) fn page_limit(&self, warnings: &mut Warnings) -> Result<usize, Error> {
        const MAX_PAGE_SIZE: u64 = 100;
        let asked = self
            .params
            .single("limit")?
            .and_then(|text| text.parse::<i64>().ok());
        match asked.and_then(|asked| u64::try_from(asked).ok()) {
            None | Some(0) => Ok(25),
            Some(asked) => {
                if asked > MAX_PAGE_SIZE {
                    warnings.add_limit_clamped("limit", asked, MAX_PAGE_SIZE);
                }
                Ok(usize::try_from(asked.min(MAX_PAGE_SIZE)).unwrap_or(100))
            }
        }
    }
}

pub(crate) type RouteHandler = fn(&Service, &Bearer, &RouteRequest) -> Result<RouteResponse, Error>;

/// The headers of a request that every route needs.
pub(crate) struct RequestHead {
    pub(crate) request_id: String,
    pub(crate) origin: String,
    pub(crate) token: Option<String>,
    /// The bearer of a request from within this process, already authenticated.
    pub(crate) bearer: Option<Bearer>,
}

impl RequestHead {
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let plain =
            |id: &&str| (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
        let given = text("request-id")
            .or_else(|| text("x-request-id"))
            .filter(plain);
        let host = text("host").unwrap_or("localhost");
        let bearer = text(header::AUTHORIZATION.as_str()).and_then(|shown| {
            let (scheme, token) = shown.split_once(' ')?;
            scheme
                .eq_ignore_ascii_case("bearer")
                .then(|| token.trim().to_owned())
        });
        Self {
            request_id: given.map_or_else(new_request_id, str::to_owned),
            // The HTTP guard removes this header unless a trusted proxy sent it.
            origin: match text("x-forwarded-proto") {
                Some("https") => format!("https://{host}"),
                _ => format!("http://{host}"),
            },
            token: bearer,
            bearer: None,
        }
    }

    /// Takes the bearer from the extensions of a request from within this process.
    pub(crate) fn with_bearer_from(mut self, extensions: &mut Extensions) -> Self {
        self.bearer = extensions.remove();
        self
    }

    /// True if the client connected over TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.origin.starts_with("https://")
    }

    /// True if a secret may be sent over this connection: over TLS or to loopback.
    pub(crate) fn is_tls_or_loopback(&self) -> bool {
        let host = self.origin.strip_prefix("http://").unwrap_or_default();
        let own = |name: &&str| {
            let port = host.strip_prefix(*name);
            port.is_some_and(|port| port.is_empty() || port.starts_with(':'))
        };
        self.is_tls() || ["127.0.0.1", "localhost", "[::1]"].iter().any(own)
    }

    /// Returns an error for a `PDPP-Version` that is not supported.
    pub(crate) fn check_version(headers: &HeaderMap) -> Result<(), Error> {
        match headers.get("pdpp-version") {
            None => Ok(()),
            Some(version) if version.as_bytes() == PDPP_VERSION.as_bytes() => Ok(()),
            Some(_) => Err(Error::invalid_with_code(
                Code::UnsupportedVersion,
                "",
                format!("this server supports only PDPP-Version {PDPP_VERSION}"),
            )),
        }
    }
}

fn new_request_id() -> String {
    Records::generate_request_id()
}

/// Runs a route on a blocking thread and returns its response.
pub(crate) async fn handle_request(
    service: Arc<Service>,
    name: &'static str,
    route: RouteHandler,
    names: Vec<String>,
    mut request: Request,
) -> Response {
    let began = Instant::now();
    let arrived = service.request_head(request.headers());
    let arrived = arrived.with_bearer_from(request.extensions_mut());
    let checked = RequestHead::check_version(request.headers());
    let (path, query) = (
        request.uri().path().to_owned(),
        request.uri().query().unwrap_or_default().to_owned(),
    );
    let worker = service.clone();
    let done = tokio::task::spawn_blocking(move || {
        let span = tracing::info_span!("pdpp", route = name, request_id = %arrived.request_id);
        let _entered = span.enter();
        let response = checked.and_then(|()| worker.run_route(route, names, &arrived, path, query));
        match response {
            Ok(mut response) => {
                envelope::add_common_headers(&mut response, &arrived.request_id);
                response
            }
            Err(error) => {
                tracing::debug!(code = error.code().name(), %error, "refused");
                envelope::error_response(&error, &arrived.request_id, &arrived.origin)
            }
        }
    });
    let response = done.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a request handler panicked");
        let error = Error::Broken("the request failed".to_owned());
        envelope::error_response(&error, "", "")
    });
    service.metrics.record_request(
        name,
        response.status().as_u16(),
        began.elapsed().as_secs_f64(),
    );
    response
}

impl Service {
    /// Authenticates the bearer of a request.
    pub(crate) fn authenticate(&self, arrived: &RequestHead) -> Result<Bearer, Error> {
        if let Some(bearer) = &arrived.bearer {
            return Ok(bearer.clone());
        }
        let token = arrived.token.as_deref().ok_or(Error::TokenMissing)?;
        match &self.authority {
            AuthorizationServer::Remote(foreign) => {
                foreign.authenticate(&self.records, token, &self.resource_url(arrived))
            }
            _ => self.records.authenticate(token),
        }
    }

    fn run_route(
        &self,
        route: RouteHandler,
        names: Vec<String>,
        arrived: &RequestHead,
        path: String,
        query: String,
    ) -> Result<Response, Error> {
        let bearer = self.authenticate(arrived)?;
        let asked = RouteRequest {
            path_params: names,
            params: QueryParams::parse(&query)?,
            path,
            query,
        };
        let answer = route(self, &bearer, &asked)?;
        let body = answer.to_body(&asked.path, &asked.query);
        if let Some((stream, records)) = &answer.disclosed {
            self.metrics.records_shown.inc_by(*records as u64);
            // Recorded before the response is sent: a disclosure cannot be undone.
            self.record_disclosure(
                &bearer,
                &asked.path,
                stream.as_deref(),
                *records,
                body.as_bytes(),
            )?;
        }
        if answer.status == StatusCode::NO_CONTENT {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(response);
        }
        Ok(envelope::json_response(answer.status, body))
    }

    pub(crate) fn record_disclosure(
        &self,
        bearer: &Bearer,
        path: &str,
        stream: Option<&str>,
        records: usize,
        body: &[u8],
    ) -> Result<(), Error> {
        self.journal
            .append(&self.records, bearer, path, stream, records, body)
    }
}

/// Reads the whole body of a request and handles it on a blocking thread.
pub(crate) async fn handle_buffered(
    service: Arc<Service>,
    name: &'static str,
    max_bytes: usize,
    request: Request,
    work: impl FnOnce(&Service, &RequestHead, &[u8]) -> Result<Response, Error> + Send + 'static,
) -> Response {
    let began = Instant::now();
    let arrived = service.request_head(request.headers());
    let (id, origin) = (arrived.request_id.clone(), arrived.origin.clone());
    let checked = RequestHead::check_version(request.headers());
    let body = axum::body::to_bytes(request.into_body(), max_bytes).await;
    let done = match (checked, body) {
        (Err(error), _) => Err(error),
        (Ok(()), Err(_)) => Err(Error::TooLarge {
            what: "the body",
            limit: max_bytes as u64,
        }),
        (Ok(()), Ok(body)) => {
            let worker = service.clone();
            let done = tokio::task::spawn_blocking(move || work(&worker, &arrived, &body)).await;
            done.unwrap_or_else(|error| Err(Error::Broken(error.to_string())))
        }
    };
    let mut response = done.unwrap_or_else(|error| envelope::error_response(&error, &id, &origin));
    envelope::add_common_headers(&mut response, &id);
    service.metrics.record_request(
        name,
        response.status().as_u16(),
        began.elapsed().as_secs_f64(),
    );
    response
}

/// Forwards a body chunk by chunk, up to `limit` bytes. The receiver applies backpressure.
pub(crate) async fn forward_body(
    mut body: Body,
    limit: u64,
    to: Sender<Result<Bytes, Error>>,
) -> Result<(), Error> {
    let mut came = 0;
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let piece = match frame {
            None => return Ok(()),
            Some(Err(error)) => Err(Error::invalid_request(
                "",
                format!("the body is incomplete: {error}"),
            )),
            Some(Ok(frame)) => match frame.into_data() {
                Err(_trailers) => continue,
                Ok(data) => {
                    came += data.len() as u64;
                    if came > limit {
                        Err(Error::TooLarge {
                            what: "the body",
                            limit,
                        })
                    } else {
                        Ok(data)
                    }
                }
            },
        };
        let ended = piece.is_err();
        // A receiver that closed the channel reports its own error.
        if to.send(piece).await.is_err() || ended {
            return Ok(());
        }
    }
}
