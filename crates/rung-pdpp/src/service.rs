//! How a request becomes an answer: who asks, in which version, and on which thread.

use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use prometheus_client::registry::Registry;
use rung_fault::{Code, Coded as _};
use rung_records::{Bearer, Choice, Error, Journal, Records};

use crate::answer::{self, Answer, VERSION, Warnings};
use crate::metrics::Metrics;
use crate::params::Params;
use tokio::sync::mpsc::Sender;

/// How it is served.
pub struct Config {
    /// The records, or how to open them.
    pub records: Source,
    /// Where it is written down what was shown.
    pub journal: Arc<Journal>,
    /// Whether clients may only ask what version 0.1 of the core lets them.
    pub strict_0_1: bool,
    /// Whether anybody may register a source.
    pub open_registration: bool,
    /// Bytes of a body of records.
    pub max_body_bytes: u64,
}

/// Records that are opened when they are first needed: what nobody uses costs nothing.
pub struct Source {
    opened: OnceLock<Arc<Records>>,
    open: Mutex<Box<Open>>,
}

/// Opens a store.
type Open = dyn Fn() -> Result<Arc<Records>, Error> + Send;

impl Source {
    /// Records that are open.
    pub fn opened(records: Arc<Records>) -> Self {
        let again = records.clone();
        let source = Self::later(move || Ok(again.clone()));
        let _first = source.opened.set(records);
        source
    }

    /// Records that are opened by `open`.
    pub fn later(open: impl Fn() -> Result<Arc<Records>, Error> + Send + 'static) -> Self {
        Self {
            opened: OnceLock::new(),
            open: Mutex::new(Box::new(open)),
        }
    }

    fn get(&self) -> Result<&Records, Error> {
        if let Some(records) = self.opened.get() {
            return Ok(records);
        }
        // One opens it, others wait.
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if self.opened.get().is_none() {
            let _first = self.opened.set(open()?);
        }
        Ok(self
            .opened
            .get()
            .expect("it was opened above, or is an error"))
    }
}

/// Everything a route needs.
pub struct Service {
    source: Source,
    journal: Arc<Journal>,
    pub(crate) strict_0_1: bool,
    pub(crate) open_registration: bool,
    pub(crate) max_body_bytes: u64,
    pub(crate) metrics: Metrics,
}

impl Service {
    /// The service, counted in `registry`.
    pub fn new(config: Config, registry: &mut Registry) -> Self {
        Self {
            source: config.records,
            journal: config.journal,
            strict_0_1: config.strict_0_1,
            open_registration: config.open_registration,
            max_body_bytes: config.max_body_bytes,
            metrics: Metrics::register(registry),
        }
    }

    /// The records.
    pub(crate) fn records(&self) -> Result<&Records, Error> {
        self.source.get()
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
        let Some(records) = self.source.opened.get() else {
            return;
        };
        if let Err(error) = records.tend(&told) {
            tracing::warn!(%error, "upkeep has to wait");
        }
    }

    /// Brings what was shown from the journal into the store.
    pub fn settle(&self) {
        let Some(records) = self.source.opened.get() else {
            return;
        };
        if let Err(error) = self.journal.settle(records) {
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
            origin: format!("http://{host}"),
            token: bearer,
        }
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
    request: Request,
) -> Response {
    let began = Instant::now();
    let arrived = Arrived::of(request.headers());
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
        let token = arrived.token.as_deref().ok_or(Error::TokenUnknown)?;
        self.records()?.admit(token)
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
            .note(self.records()?, bearer, path, stream, records, body)
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
    let arrived = Arrived::of(request.headers());
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
