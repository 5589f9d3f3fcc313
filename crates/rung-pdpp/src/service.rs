//! How a request becomes an answer: who asks, in which version, and on which thread.

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
use rung_records::{Bearer, Choice, Error, Journal, Records, TokenRegistry};

use crate::answer::{self, Answer, VERSION, Warnings};
use crate::authority::Documents;
use crate::foreign::Foreign;
use crate::metrics::Metrics;
use crate::params::Params;
use tokio::sync::mpsc::Sender;

/// How it is served.
pub struct Config {
    /// The records.
    pub records: Arc<Records>,
    /// The bearer tokens of the server, which may reach more than records.
    pub tokens: Arc<dyn TokenRegistry>,
    /// Where it is written down what was shown.
    pub journal: Arc<Journal>,
    /// Whether clients may only ask what version 0.1 of the core lets them.
    pub strict_0_1: bool,
    /// Whether the owner is whoever comes, and anybody may register a source. For this machine alone.
    pub without_login: bool,
    /// Bytes of a body of records.
    pub max_body_bytes: u64,
    /// Where we are, as everybody else sees us. Without it, where the request was sent to.
    pub public_url: Option<String>,
    /// Where access is asked for.
    pub authority: Authority,
}

/// Where access is asked for.
pub enum Authority {
    /// Here.
    Here,
    /// Here, but at an address of its own.
    At(String),
    /// At somebody else's.
    Foreign(Arc<Foreign>),
}

/// Everything a route needs.
pub struct Service {
    records: Arc<Records>,
    tokens: Arc<dyn TokenRegistry>,
    journal: Arc<Journal>,
    pub(crate) strict_0_1: bool,
    pub(crate) without_login: bool,
    pub(crate) max_body_bytes: u64,
    pub(crate) metrics: Metrics,
    pub(crate) documents: Documents,
    public_url: Option<String>,
    authority: Authority,
}

impl Service {
    /// The service, counted in `registry`.
    pub fn new(config: Config, registry: &mut Registry) -> Self {
        Self {
            records: config.records,
            tokens: config.tokens,
            journal: config.journal,
            strict_0_1: config.strict_0_1,
            without_login: config.without_login,
            max_body_bytes: config.max_body_bytes,
            metrics: Metrics::register(registry),
            documents: Documents::default(),
            public_url: config.public_url,
            authority: config.authority,
        }
    }

    /// The records.
    pub(crate) fn records(&self) -> &Records {
        &self.records
    }

    /// The bearer tokens of the server.
    pub(crate) fn tokens(&self) -> &dyn TokenRegistry {
        &*self.tokens
    }

    /// Whether nobody could be given anything, on a server that only its own machine reaches.
    pub(crate) fn has_nothing_to_give(&self) -> Result<bool, Error> {
        let own = self.public_url.is_none() && matches!(self.authority, Authority::Here);
        Ok(own && !self.without_login && !self.records.is_used()?)
    }

    /// Where records are read, as whoever asks sees it.
    pub(crate) fn resource(&self, arrived: &Arrived) -> String {
        match (&self.public_url, &self.authority) {
            // Asked where access is given, which is elsewhere.
            (Some(url), Authority::At(_)) => url.clone(),
            _ => arrived.origin.clone(),
        }
    }

    /// What is known of a request before anybody looks into it.
    pub(crate) fn arrived(&self, headers: &HeaderMap) -> Arrived {
        let mut arrived = Arrived::of(headers);
        if let Some(url) = &self.public_url {
            arrived.origin.clone_from(url);
        }
        arrived
    }

    /// The same of a request for access, which may come to an address of its own.
    pub(crate) fn arrived_at_authority(&self, headers: &HeaderMap) -> Arrived {
        let mut arrived = self.arrived(headers);
        if let Authority::At(url) = &self.authority {
            arrived.origin.clone_from(url);
        }
        arrived
    }

    /// Where access is asked for.
    pub(crate) fn issuer(&self, arrived: &Arrived) -> String {
        match &self.authority {
            Authority::Here => self.resource(arrived),
            Authority::At(url) => url.clone(),
            Authority::Foreign(foreign) => foreign.issuer().to_owned(),
        }
    }

    /// Builds what later declarations need, lets go what is over, cleans what is left.
    pub fn tend(&self) {
        let told = |progress: &rung_records::Progress| {
            tracing::info!(
                connection = progress.connection,
                stream = progress.stream,
                done = progress.done,
                of = progress.of,
                "building"
            );
        };
        if let Err(error) = self.records.tend(&told) {
            tracing::warn!(%error, "upkeep has to wait");
        }
    }

    /// Brings what was shown from the journal into the store.
    pub fn settle(&self) {
        if let Err(error) = self.journal.settle(&self.records) {
            tracing::warn!(%error, "what was shown stays in the journal for now");
        }
    }
}

/// A request, as far as routes care.
pub(crate) struct Asked {
    /// Parts of the path, as they are meant.
    pub(crate) names: Vec<String>,
    pub(crate) params: Params,
    pub(crate) path: String,
    pub(crate) query: String,
}

impl Asked {
    pub(crate) fn name(&self, at: usize) -> &str {
        self.names.get(at).map_or("", String::as_str)
    }

    /// Which connections are meant, and whether an old name was used to say so.
    pub(crate) fn choice(&self, bearer: &Bearer) -> Result<(Choice, bool), Error> {
        if let Some(subject) = self.params.one("subject_id")?
            && subject != bearer.subject_id()
        {
            return Err(Error::NotFound("no such subject".to_owned()));
        }
        self.params.choice()
    }

    /// The same, where an owner has to say of which source.
    pub(crate) fn one_source(&self, bearer: &Bearer) -> Result<(Choice, bool), Error> {
        let (choice, alias) = self.choice(bearer)?;
        if bearer.is_owner() && choice.connection_id.is_none() && choice.connector_id.is_none() {
            let why = "the owner names the source: connector_id or connection_id";
            return Err(Error::invalid("connector_id", why));
        }
        Ok((choice, alias))
    }

    /// Refuses a client what version 0.1 of the core does not let it ask, if that is wanted.
    pub(crate) fn core_only(
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
            Some(name) => Err(Error::invalid(
                *name,
                format!("{name} is not a client's to use"),
            )),
        }
    }

    /// How many are wanted at once.
    pub(crate) fn limit(&self, warnings: &mut Warnings) -> Result<usize, Error> {
        const MOST: u64 = 100;
        let asked = self
            .params
            .one("limit")?
            .and_then(|text| text.parse::<i64>().ok());
        match asked.and_then(|asked| u64::try_from(asked).ok()) {
            None | Some(0) => Ok(25),
            Some(asked) => {
                if asked > MOST {
                    warnings.clamped("limit", asked, MOST);
                }
                Ok(usize::try_from(asked.min(MOST)).unwrap_or(100))
            }
        }
    }
}

/// A route: what it does with a request.
pub(crate) type Route = fn(&Service, &Bearer, &Asked) -> Result<Answer, Error>;

/// What is known of a request before anybody looks into it.
pub(crate) struct Arrived {
    pub(crate) request_id: String,
    pub(crate) origin: String,
    pub(crate) token: Option<String>,
    /// Whoever asks from within this process, who was let in elsewhere.
    pub(crate) bearer: Option<Bearer>,
}

impl Arrived {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
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
            request_id: given.map_or_else(fresh_id, str::to_owned),
            // The door lets nobody but a proxy that is trusted say this.
            origin: match text("x-forwarded-proto") {
                Some("https") => format!("https://{host}"),
                _ => format!("http://{host}"),
            },
            token: bearer,
            bearer: None,
        }
    }

    /// The same of a request that may come from within this process.
    pub(crate) fn with(mut self, extensions: &mut Extensions) -> Self {
        self.bearer = extensions.remove();
        self
    }

    /// Whether the browser came over TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.origin.starts_with("https://")
    }

    /// Whether a secret may be sent over this connection: over TLS, or within this machine.
    pub(crate) fn is_private(&self) -> bool {
        let host = self.origin.strip_prefix("http://").unwrap_or_default();
        let own = |name: &&str| {
            let port = host.strip_prefix(*name);
            port.is_some_and(|port| port.is_empty() || port.starts_with(':'))
        };
        self.is_tls() || ["127.0.0.1", "localhost", "[::1]"].iter().any(own)
    }

    /// Refuses a version that is not spoken.
    pub(crate) fn check_version(headers: &HeaderMap) -> Result<(), Error> {
        match headers.get("pdpp-version") {
            None => Ok(()),
            Some(version) if version.as_bytes() == VERSION.as_bytes() => Ok(()),
            Some(_) => Err(Error::refused(
                Code::UnsupportedVersion,
                "",
                format!("PDPP-Version is {VERSION} here"),
            )),
        }
    }
}

fn fresh_id() -> String {
    Records::request_id()
}

/// Answers a request by a route, on a thread that may wait.
pub(crate) async fn answer(
    service: Arc<Service>,
    name: &'static str,
    route: Route,
    names: Vec<String>,
    mut request: Request,
) -> Response {
    let began = Instant::now();
    let arrived = service.arrived(request.headers());
    let arrived = arrived.with(request.extensions_mut());
    let checked = Arrived::check_version(request.headers());
    let (path, query) = (
        request.uri().path().to_owned(),
        request.uri().query().unwrap_or_default().to_owned(),
    );
    let worker = service.clone();
    let done = tokio::task::spawn_blocking(move || {
        let span = tracing::info_span!("pdpp", route = name, request_id = %arrived.request_id);
        let _entered = span.enter();
        let response = checked.and_then(|()| worker.run(route, names, &arrived, path, query));
        match response {
            Ok(mut response) => {
                answer::dress(&mut response, &arrived.request_id);
                response
            }
            Err(error) => {
                tracing::debug!(code = error.code().name(), %error, "refused");
                answer::refusal(&error, &arrived.request_id, &arrived.origin)
            }
        }
    });
    let response = done.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a request ended in a panic");
        let error = Error::Broken("the request failed".to_owned());
        answer::refusal(&error, "", "")
    });
    service.metrics.ended(
        name,
        response.status().as_u16(),
        began.elapsed().as_secs_f64(),
    );
    response
}

impl Service {
    /// Whoever shows a token.
    pub(crate) fn admit(&self, arrived: &Arrived) -> Result<Bearer, Error> {
        if let Some(bearer) = &arrived.bearer {
            return Ok(bearer.clone());
        }
        let token = arrived.token.as_deref().ok_or(Error::TokenMissing)?;
        match &self.authority {
            Authority::Foreign(foreign) => {
                foreign.admit(&self.records, token, &self.resource(arrived))
            }
            _ => self.records.admit(token),
        }
    }

    fn run(
        &self,
        route: Route,
        names: Vec<String>,
        arrived: &Arrived,
        path: String,
        query: String,
    ) -> Result<Response, Error> {
        let bearer = self.admit(arrived)?;
        let asked = Asked {
            names,
            params: Params::read(&query)?,
            path,
            query,
        };
        let answer = route(self, &bearer, &asked)?;
        let body = answer.finish(&asked.path, &asked.query);
        if let Some((stream, records)) = &answer.shown {
            self.metrics.shown.inc_by(*records as u64);
            // Written down first: what is out cannot be taken back.
            self.note(
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
        Ok(answer::json_response(answer.status, body))
    }

    pub(crate) fn note(
        &self,
        bearer: &Bearer,
        path: &str,
        stream: Option<&str>,
        records: usize,
        body: &[u8],
    ) -> Result<(), Error> {
        self.journal
            .note(&self.records, bearer, path, stream, records, body)
    }
}

/// Answers a request whose body is read whole, on a thread that may wait.
pub(crate) async fn whole(
    service: Arc<Service>,
    name: &'static str,
    max_bytes: usize,
    request: Request,
    work: impl FnOnce(&Service, &Arrived, &[u8]) -> Result<Response, Error> + Send + 'static,
) -> Response {
    let began = Instant::now();
    let arrived = service.arrived(request.headers());
    let (id, origin) = (arrived.request_id.clone(), arrived.origin.clone());
    let checked = Arrived::check_version(request.headers());
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
    let mut response = done.unwrap_or_else(|error| answer::refusal(&error, &id, &origin));
    answer::dress(&mut response, &id);
    service.metrics.ended(
        name,
        response.status().as_u16(),
        began.elapsed().as_secs_f64(),
    );
    response
}

/// Hands on a body piece by piece, as fast as it is taken, up to a limit.
pub(crate) async fn frames(
    mut body: Body,
    limit: u64,
    to: Sender<Result<Bytes, Error>>,
) -> Result<(), Error> {
    let mut came = 0;
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let piece = match frame {
            None => return Ok(()),
            Some(Err(error)) => Err(Error::invalid(
                "",
                format!("the body did not come whole: {error}"),
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
        // Whoever takes no more has said why.
        if to.send(piece).await.is_err() || ended {
            return Ok(());
        }
    }
}
