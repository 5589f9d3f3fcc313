//! The authorization server: who asks for access, and the pages on which the owner decides.
//!
//! One file for each thing that is asked for. How a visit is read and answered is in `visit`, how the owner is known by in
//! `session`, and what people see in `pages`; what is decided and given is `rung_records::authority`'s alone.

mod agent_connect;
mod authorize;
mod consent;
mod device;
mod documents;
mod grants;
mod introspect;
mod login;
mod metadata;
mod pages;
mod par;
mod register;
mod session;
mod token;
mod visit;

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::{Redirect, Response};
use axum::routing::{MethodRouter, get, patch, post};
use rung_records::Error;

use crate::service::Service;
pub(crate) use documents::Documents;
use visit::Visit;

/// Parts of a path, by name.
type Names = Path<Vec<(String, String)>>;
/// An answer that is being made.
type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;
/// What is done with a visit.
type Work = fn(&Service, &Visit) -> Result<Response, Error>;

/// Everything by which access is asked for and given.
pub fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route(
            "/.well-known/oauth-authorization-server",
            shows("as_metadata", metadata::get),
        )
        .route("/oauth/register", takes("register_client", register::post))
        .route(
            "/oauth/register/{client}",
            patch(named("change_client", register::change))
                .delete(named("remove_client", register::remove)),
        )
        .route("/oauth/par", takes("par", par::post))
        .route("/oauth/authorize", shows("authorize", authorize::get))
        .route(
            "/oauth/authorize/mcp-package",
            takes("mcp_package", authorize::package),
        )
        .route("/oauth/token", takes("token", token::post))
        .route(
            "/oauth/device_authorization",
            takes("device_authorization", device::authorization),
        )
        .route("/device", shows("device", device::get))
        .route("/device/approve", takes("device_approve", device::approve))
        .route("/introspect", takes("introspect", introspect::post))
        .route(
            "/agent-connect",
            takes("agent_connect", agent_connect::post),
        )
        .route(
            "/agent-connect/{attempt}/token",
            takes("agent_connect_token", agent_connect::token),
        )
        .route("/consent", shows("consent", consent::get))
        .route("/consent/change", takes("consent_change", consent::change))
        .route("/consent/review", takes("consent_review", consent::review))
        .route(
            "/consent/approve",
            takes("consent_approve", consent::approve),
        )
        .route("/consent/deny", takes("consent_deny", consent::deny))
        .route(
            "/consent/exchange",
            takes("consent_exchange", consent::exchange),
        )
        .route(
            "/owner/login",
            shows("login_page", login::get).merge(takes("login", login::post)),
        )
        .route("/owner/logout", takes("logout", login::logout))
        .route("/owner", get(|| async { Redirect::to("/owner/grants") }))
        .route("/owner/grants", shows("grants_page", grants::list))
        .route("/owner/grants/{grant}", shows("grant_page", grants::one))
        .route(
            "/owner/grants/{grant}/revoke",
            takes("grant_page_revoke", grants::revoke_by_page),
        )
        .route(
            "/owner/tokens/{token}/end",
            takes("owner_token_end", grants::end_token),
        )
        .route("/grants/{grant}/revoke", takes("revoke", grants::revoke))
        .route("/assets/style.css", get(pages::style))
        .route("/icon.svg", get(pages::icon))
        .with_state(service)
}

fn shows(name: &'static str, work: Work) -> MethodRouter<Arc<Service>> {
    get(named(name, work))
}

fn takes(name: &'static str, work: Work) -> MethodRouter<Arc<Service>> {
    post(named(name, work))
}

/// A handler that knows the parts of its path.
fn named(
    name: &'static str,
    work: Work,
) -> impl Fn(State<Arc<Service>>, Names, Request) -> Answering + Clone {
    move |State(service): State<_>, Path(names): Names, request| {
        let names = names.into_iter().map(|(_, value)| value).collect();
        Box::pin(visit::answer(service, name, work, names, request))
    }
}
