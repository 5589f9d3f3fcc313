//! Streamable HTTP: all protocol versions on one path.
//!
//! A modern request is self-contained: closing its response cancels it. A legacy request belongs to a session and
//! continues when the connection breaks; its stream can be resumed. In both cases the response is plain JSON if the
//! answer is its only message, and an event stream if other messages precede the answer or it takes long.

mod guard;
mod idle;
mod post;
mod rate_limit;
mod sessions;
mod stream;
mod workers;

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

use crate::server::McpServer;
pub use guard::{AuthError, Authenticator, HttpGuard};
use idle::{BusyGuard, IdleMonitor};
use sessions::SessionTable;
use workers::Workers;

/// Path of the MCP endpoint.
pub const PATH: &str = "/mcp";
/// A trailing slash is a common mistake in client settings.
const PATH_SLASH: &str = "/mcp/";
/// Milliseconds for which sent bytes may stay unacknowledged by the client.
#[cfg(target_os = "linux")]
const STALL_MS: u32 = 60_000;
const MAX_CONNECTIONS: usize = 4_096;
/// Time for running calls to finish after the shutdown began.
const GRACE: Duration = Duration::from_secs(30);

pub struct HttpConfig {
    pub guard: HttpGuard,
    /// Whether legacy clients get sessions. Without sessions every request is self-contained.
    pub sessions: bool,
    /// Further routes. They authenticate their own callers, and serve the protected resource metadata of RFC 9728.
    pub other_routes: Router,
    /// Whether the MCP endpoint is served.
    pub serve_mcp: bool,
    /// Metrics of the further routes.
    pub registry: Registry,
    /// Requests per minute that one caller may send; 0 for any number.
    pub rate: u32,
    /// Whether `/metrics` is open to all clients, except for the metrics of the further routes.
    pub public_metrics: bool,
}

impl HttpConfig {
    /// Creates a configuration with sessions, without further routes and without a rate limit.
    pub fn new(guard: HttpGuard) -> Self {
        Self {
            guard,
            sessions: true,
            other_routes: Router::new(),
            serve_mcp: true,
            registry: Registry::default(),
            rate: 0,
            public_metrics: false,
        }
    }
}

type IncomingRequest = hyper::Request<Incoming>;

pub(crate) struct HttpApp {
    pub(crate) server: McpServer,
    pub(crate) guard: HttpGuard,
    /// `None` if sessions are disabled.
    pub(crate) sessions: Option<SessionTable>,
    registry: Registry,
    serve_mcp: bool,
    rate: Option<rate_limit::RateLimiter>,
    public_metrics: bool,
}

impl HttpApp {
    /// Returns the sessions, if the caller may have one.
    pub(crate) fn sessions_for(&self, permit: &Permit) -> Option<&SessionTable> {
        let sessions = self.sessions.as_ref()?;
        (!self.guard.is_stateless(permit)).then_some(sessions)
    }
}

/// Serves until `stop` completes. Then no more connections are accepted, and running calls finish within 30 s.
pub async fn serve(
    server: McpServer,
    config: HttpConfig,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let lanes = Workers::start()?;
    let app = Arc::new(HttpApp {
        sessions: config.sessions.then(|| SessionTable::new(server.clone())),
        guard: config.guard,
        server: server.clone(),
        registry: config.registry,
        serve_mcp: config.serve_mcp,
        rate: rate_limit::RateLimiter::new(config.rate),
        public_metrics: config.public_metrics,
    });
    let router = router(app.clone()).merge(config.other_routes);
    let tracker = TaskTracker::new();
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let watch = Arc::new(IdleMonitor::default());
    let watching = tokio::spawn({
        let watch = watch.clone();
        async move { watch.run().await }
    });
    let tending = tokio::spawn({
        let app = app.clone();
        async move {
            if let Some(sessions) = &app.sessions {
                sessions.maintain().await;
            }
        }
    });
    tokio::pin!(stop);
    loop {
        // Connections above the limit wait in the system's accept queue.
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
                // Deregistered here, to be registered with the worker's own reactor.
                let stream = match stream.into_std() {
                    Ok(stream) => stream,
                    Err(error) => {
                        tracing::warn!(%error, "cannot hand over a connection");
                        continue;
                    }
                };
                let (app, router, watched) = (app.clone(), router.clone(), watch.add_connection());
                lanes.run(tracker.track_future(async move {
                    match TcpStream::from_std(stream) {
                        Ok(stream) => {
                            serve_connection(app, router, stream, peer.ip(), watched).await;
                        }
                        Err(error) => tracing::warn!(%error, "cannot hand over a connection"),
                    }
                    drop(permit);
                }));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                // Out of file descriptors, most likely: other connections must end first.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    server.shut_down();
    tracker.close();
    if tokio::time::timeout(GRACE, tracker.wait()).await.is_err() {
        tracing::warn!("some calls did not finish in time and are abandoned");
    }
    tending.abort();
    watching.abort();
    Ok(())
}

async fn serve_connection(
    app: Arc<HttpApp>,
    router: Router,
    stream: TcpStream,
    peer: IpAddr,
    watched: Arc<idle::MonitoredConnection>,
) {
    // Without it a small response waits for the client to acknowledge the previous one: 40 ms per call.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    // A client that acknowledges nothing for this long is gone.
    #[cfg(target_os = "linux")]
    let _best_effort = rustix::net::sockopt::set_tcp_user_timeout(&stream, STALL_MS);
    let server = app.server.clone();
    let _counted = ConnectionCount::new(&server);
    let service = service_fn(|request: IncomingRequest| {
        let busy = BusyGuard::new(&watched);
        let (app, router) = (&app, &router);
        async move {
            let response = handle_request(app, router, peer, request).await;
            let answer = |body| idle::GuardedBody { body, _busy: busy };
            Ok::<_, Infallible>(response.map(answer))
        }
    });
    let connection = http1::Builder::new()
        // A response is small: one buffer is less work than two.
        .writev(false)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = watched.close.cancelled() => return,
        () = server.0.shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

/// Counts a connection in the metrics for as long as it lasts.
struct ConnectionCount(McpServer);

impl ConnectionCount {
    fn new(server: &McpServer) -> Self {
        server.0.metrics.connections.inc();
        Self(server.clone())
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.0.metrics.connections.dec();
    }
}

/// Returns the routes of health and metrics.
fn router(app: Arc<HttpApp>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .with_state(app)
}

/// Serves a request, after the check of its Host and Origin.
async fn handle_request(
    app: &Arc<HttpApp>,
    router: &Router,
    peer: IpAddr,
    mut request: IncomingRequest,
) -> Response {
    app.guard.apply_forwarded(peer, request.headers_mut());
    let headers = request.headers();
    let named = request
        .uri()
        .authority()
        .map(axum::http::uri::Authority::as_str);
    if let Err(turned) = app.guard.check_host_and_origin(headers, named) {
        app.server.0.metrics.count_rejected(turned.label());
        return turned.into_response();
    }
    let origin = headers.get(header::ORIGIN).cloned();
    let asks_first = request.method() == Method::OPTIONS
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if asks_first {
        StatusCode::NO_CONTENT.into_response()
    } else if app.serve_mcp && matches!(request.uri().path(), PATH | PATH_SLASH) {
        // Bypasses the router, which costs as much as the call.
        handle_mcp(app, peer, request).await
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

async fn handle_mcp(app: &Arc<HttpApp>, peer: IpAddr, request: IncomingRequest) -> Response {
    let origin = app.guard.public_origin(request.headers());
    let mut response = match app.guard.authenticate(request.headers()).await {
        Ok(permit) => {
            let said = app.guard.response_headers(&permit);
            let taken = app
                .rate
                .as_ref()
                .map_or(Ok(()), |rate| rate.take(&permit, peer));
            let mut response = match taken {
                Ok(()) => handle_authenticated(app, permit, request).await,
                Err(wait) => rate_limited(app, wait),
            };
            response.headers_mut().extend(said);
            response
        }
        Err(denied) => {
            app.server.0.metrics.count_rejected("token");
            guard::auth_error_response(&app.guard, &origin, &denied)
        }
    };
    if let Some(icon) = app.guard.icon_link(&origin) {
        response.headers_mut().insert(header::LINK, icon);
    }
    response
}

async fn handle_authenticated(
    app: &Arc<HttpApp>,
    permit: Permit,
    request: IncomingRequest,
) -> Response {
    match *request.method() {
        Method::POST => post::post(app, permit, request).await,
        Method::GET => sessions::open_stream(app, permit, request.headers()),
        Method::DELETE => sessions::delete_session(app, &permit, request.headers()),
        _ if app.sessions_for(&permit).is_none() => method_not_allowed("POST"),
        _ => method_not_allowed("POST, GET, DELETE"),
    }
}

fn rate_limited(app: &HttpApp, wait: Duration) -> Response {
    app.server.0.metrics.count_rejected("rate");
    let seconds = wait.as_secs() + 1;
    let hint = format!("try again in {seconds} s");
    let body = json!({"error": {"type": "rate_limit_error", "code": "slow_down", "message": "too many requests", "hint": hint}});
    let mut response = json_response(StatusCode::TOO_MANY_REQUESTS, body.to_string());
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

fn method_not_allowed(allowed: &'static str) -> Response {
    let allow = [(header::ALLOW, allowed)];
    (StatusCode::METHOD_NOT_ALLOWED, allow).into_response()
}

async fn health(State(app): State<Arc<HttpApp>>) -> Response {
    let offer = &app.server.0.config;
    json_response(
        StatusCode::OK,
        json!({"ok": true, "status": "ok", "name": offer.name, "version": offer.version})
            .to_string(),
    )
}

async fn metrics(State(app): State<Arc<HttpApp>>, request: Request) -> Response {
    let denied = match app.guard.authenticate(request.headers()).await {
        Ok(permit) if app.guard.may_read_metrics(&permit) => None,
        Ok(_) => Some(AuthError::WrongEndpoint),
        Err(denied) => Some(denied),
    };
    // The metrics of the further routes contain names, which only authenticated callers may see.
    let beside = denied.is_none().then_some(&app.registry);
    if let Some(denied) = denied.filter(|_| !app.public_metrics) {
        let origin = app.guard.public_origin(request.headers());
        return guard::auth_error_response(&app.guard, &origin, &denied);
    }
    let made = app.server.0.tasks.created_count();
    let page = app.server.0.metrics.render(made, beside);
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
