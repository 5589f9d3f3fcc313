//! Streamable HTTP: both eras on one address.
//!
//! A modern request stands for itself: closing its reply cancels it. A legacy one belongs to a session and goes on
//! when the connection breaks; what its stream had to say can be fetched again. Either way the reply is plain JSON
//! if the answer is all there is to say, and a stream if something comes before it or it takes long.

mod door;
mod idle;
mod lanes;
mod post;
mod rate;
mod sessions;
mod stream;

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use prometheus_client::registry::Registry;
use rung_auth::Permit;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::server::Server;
pub use door::{Admission, Denied, Door};
use idle::{Busy, Watch};
use lanes::Lanes;
use sessions::Sessions;

/// Where the protocol is spoken.
pub const PATH: &str = "/mcp";
/// A slash too many is a common slip in settings.
const PATH_SLASH: &str = "/mcp/";
/// Milliseconds for which a client may leave unread what was sent.
#[cfg(target_os = "linux")]
const STALL_MS: u32 = 60_000;
/// Connections at once.
const MAX_CONNECTIONS: usize = 4_096;
/// How long calls under way may take when we are to stop.
const GRACE: Duration = Duration::from_secs(30);

/// How it is served.
pub struct Config {
    /// Who is let in.
    pub door: Door,
    /// Whether legacy clients get sessions. Without them every request stands for itself.
    pub sessions: bool,
    /// What else is served here. It lets its own callers in, and says at the address that RFC 9728 has for it how others
    /// are let in.
    pub beside: Router,
    /// Whether the protocol is spoken here at all.
    pub protocol: bool,
    /// What is counted there.
    pub registry: Registry,
    /// Requests that one caller may make in a minute; 0 for any number.
    pub rate: u32,
    /// Whether what is counted is told to whoever asks.
    pub watched_by_anybody: bool,
}

impl Config {
    /// A door, sessions, and nothing beside.
    pub fn new(door: Door) -> Self {
        Self {
            door,
            sessions: true,
            beside: Router::new(),
            protocol: true,
            registry: Registry::default(),
            rate: 0,
            watched_by_anybody: false,
        }
    }
}

/// A request as it comes in.
type Arrival = hyper::Request<Incoming>;

pub(crate) struct App {
    pub(crate) server: Server,
    pub(crate) door: Door,
    /// `None` where there are none.
    pub(crate) sessions: Option<Sessions>,
    registry: Registry,
    protocol: bool,
    rate: Option<rate::Rate>,
    watched_by_anybody: bool,
}

impl App {
    /// The sessions that somebody may have.
    pub(crate) fn sessions_of(&self, permit: &Permit) -> Option<&Sessions> {
        let sessions = self.sessions.as_ref()?;
        (!self.door.is_stateless(permit)).then_some(sessions)
    }
}

/// Serves until `stop` ends. Then nobody new is let in, and calls that somebody waits for finish.
pub async fn serve(
    server: Server,
    config: Config,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let lanes = Lanes::open()?;
    let app = Arc::new(App {
        sessions: config.sessions.then(|| Sessions::new(server.clone())),
        door: config.door,
        server: server.clone(),
        registry: config.registry,
        protocol: config.protocol,
        rate: rate::Rate::new(config.rate),
        watched_by_anybody: config.watched_by_anybody,
    });
    let router = router(app.clone()).merge(config.beside);
    let tracker = TaskTracker::new();
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let watch = Arc::new(Watch::default());
    let watching = tokio::spawn({
        let watch = watch.clone();
        async move { watch.tend().await }
    });
    let tending = tokio::spawn({
        let app = app.clone();
        async move {
            if let Some(sessions) = &app.sessions {
                sessions.tend().await;
            }
        }
    });
    tokio::pin!(stop);
    loop {
        // Whoever is not let in yet waits in the system's own queue.
        let accepted = async {
            let permit = room.clone().acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                // Let go here, to be taken up by the lane's own reactor.
                let stream = match stream.into_std() {
                    Ok(stream) => stream,
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be taken up");
                        continue;
                    }
                };
                let (app, router, watched) = (app.clone(), router.clone(), watch.connection());
                lanes.run(tracker.track_future(async move {
                    match TcpStream::from_std(stream) {
                        Ok(stream) => connection(app, router, stream, peer.ip(), watched).await,
                        Err(error) => tracing::warn!(%error, "a connection could not be taken up"),
                    }
                    drop(permit);
                }));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                // Out of files, most likely: others must end first.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    server.shut_down();
    tracker.close();
    if tokio::time::timeout(GRACE, tracker.wait()).await.is_err() {
        tracing::warn!("some calls did not finish in time and are given up");
    }
    tending.abort();
    watching.abort();
    Ok(())
}

async fn connection(
    app: Arc<App>,
    router: Router,
    stream: TcpStream,
    peer: IpAddr,
    watched: Arc<idle::Connection>,
) {
    // Without it a small answer waits for the other side to acknowledge the one before: 40 ms a call.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    // A client that takes nothing for this long has gone, whatever its system says.
    #[cfg(target_os = "linux")]
    let _best_effort = rustix::net::sockopt::set_tcp_user_timeout(&stream, STALL_MS);
    let server = app.server.clone();
    let _counted = Counted::new(&server);
    let service = service_fn(|request: Arrival| {
        let busy = Busy::new(&watched);
        let (app, router) = (&app, &router);
        async move {
            let response = guarded(app, router, peer, request).await;
            let answer = |body| idle::Answer { body, _busy: busy };
            Ok::<_, Infallible>(response.map(answer))
        }
    });
    let connection = http1::Builder::new()
        // A reply is small: one buffer is less work than two.
        .writev(false)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = watched.let_go.cancelled() => return,
        () = server.0.shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

/// A connection that is counted for as long as it lasts.
struct Counted(Server);

impl Counted {
    fn new(server: &Server) -> Self {
        server.0.metrics.connections.inc();
        Self(server.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.metrics.connections.dec();
    }
}

/// What is beside the protocol.
fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .with_state(app)
}

/// Nobody gets further whose Host or Origin is not ours to serve.
async fn guarded(app: &Arc<App>, router: &Router, peer: IpAddr, mut request: Arrival) -> Response {
    app.door.believe(peer, request.headers_mut());
    let headers = request.headers();
    let named = request
        .uri()
        .authority()
        .map(axum::http::uri::Authority::as_str);
    if let Err(turned) = app.door.check(headers, named) {
        app.server.0.metrics.turn_away(turned.why());
        return turned.into_response();
    }
    let origin = headers.get(header::ORIGIN).cloned();
    let asks_first = request.method() == Method::OPTIONS
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if asks_first {
        StatusCode::NO_CONTENT.into_response()
    } else if app.protocol && matches!(request.uri().path(), PATH | PATH_SLASH) {
        // Not through the router, which costs as much as the call.
        protocol(app, peer, request).await
    } else {
        let Ok(response) = router.clone().oneshot(request).await;
        response
    };
    let vary = HeaderValue::from_static("Origin");
    response.headers_mut().insert(header::VARY, vary);
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        let mut put =
            |name, value: &'static str| headers.insert(name, HeaderValue::from_static(value));
        put(
            header::ACCESS_CONTROL_ALLOW_METHODS,
            "GET, POST, PUT, PATCH, DELETE",
        );
        put(header::ACCESS_CONTROL_ALLOW_HEADERS, "*, Authorization");
        put(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            "Mcp-Session-Id, WWW-Authenticate, Request-Id, PDPP-Version",
        );
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    response
}

async fn protocol(app: &Arc<App>, peer: IpAddr, request: Arrival) -> Response {
    let origin = app.door.origin(request.headers());
    let mut response = match app.door.admit(request.headers()).await {
        Ok(permit) => {
            let said = app.door.says(&permit);
            let taken = app
                .rate
                .as_ref()
                .map_or(Ok(()), |rate| rate.take(&permit, peer));
            let mut response = match taken {
                Ok(()) => admitted(app, permit, request).await,
                Err(wait) => too_often(app, wait),
            };
            response.headers_mut().extend(said);
            response
        }
        Err(denied) => {
            app.server.0.metrics.turn_away("token");
            door::challenge(&app.door, &origin, &denied)
        }
    };
    if let Some(icon) = app.door.icon(&origin) {
        response.headers_mut().insert(header::LINK, icon);
    }
    response
}

async fn admitted(app: &Arc<App>, permit: Permit, request: Arrival) -> Response {
    match *request.method() {
        Method::POST => post::post(app, permit, request).await,
        Method::GET => sessions::get(app, permit, request.headers()),
        Method::DELETE => sessions::delete(app, &permit, request.headers()),
        _ if app.sessions_of(&permit).is_none() => not_allowed("POST"),
        _ => not_allowed("POST, GET, DELETE"),
    }
}

fn too_often(app: &App, wait: Duration) -> Response {
    app.server.0.metrics.turn_away("rate");
    let seconds = wait.as_secs() + 1;
    let hint = format!("come again in {seconds} s");
    let body = json!({"error": {"type": "rate_limit_error", "code": "slow_down", "message": "too many requests", "hint": hint}});
    let mut response = json_response(StatusCode::TOO_MANY_REQUESTS, body.to_string());
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

fn not_allowed(allowed: &'static str) -> Response {
    let allow = [(header::ALLOW, allowed)];
    (StatusCode::METHOD_NOT_ALLOWED, allow).into_response()
}

async fn health(State(app): State<Arc<App>>) -> Response {
    let offer = &app.server.0.offer;
    json_response(
        StatusCode::OK,
        json!({"ok": true, "status": "ok", "name": offer.name, "version": offer.version})
            .to_string(),
    )
}

async fn metrics(State(app): State<Arc<App>>, request: Request) -> Response {
    let denied = match app.door.admit(request.headers()).await {
        Ok(permit) if app.door.may_watch(&permit) => None,
        Ok(_) => Some(Denied::NotHere),
        Err(denied) => Some(denied),
    };
    // What is behind the door has names, which are not for anybody.
    let beside = denied.is_none().then_some(&app.registry);
    if let Some(denied) = denied.filter(|_| !app.watched_by_anybody) {
        let origin = app.door.origin(request.headers());
        return door::challenge(&app.door, &origin, &denied);
    }
    let made = app.server.0.tasks.made();
    let page = app.server.0.metrics.page(made, beside);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], page).into_response()
}

fn json_response(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
