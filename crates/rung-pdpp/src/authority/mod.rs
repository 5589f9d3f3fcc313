//! The authorization server: its endpoints for clients, and the pages on which the owner decides.
//!
//! One file per endpoint. `form_request` parses requests and writes responses, `session` authenticates the owner, and `pages`
//! renders HTML. Consent and grants are decided in `rung_records::authority` alone.

mod agent_connect;
mod authorize;
mod consent;
mod device;
mod documents;
mod form_request;
mod grants;
mod introspect;
mod login;
mod metadata;
mod pages;
mod par;
mod register;
mod session;
mod token;

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::{Redirect, Response};
use axum::routing::{MethodRouter, any, get, patch, post};
use rung_records::Error;

use crate::service::Service;
pub(crate) use documents::ClientMetadataDocuments;
use form_request::FormRequest;

/// Path parameters, by name.
type PathParams = Path<Vec<(String, String)>>;
type ResponseFuture = Pin<Box<dyn Future<Output = Response> + Send>>;
/// The handler of a request, run on a blocking thread.
type FormHandler = fn(&Service, &FormRequest) -> Result<Response, Error>;

/// All routes of the authorization server.
pub fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route(
            "/.well-known/oauth-authorization-server",
            get_route("as_metadata", metadata::get),
        )
        .route(
            "/oauth/register",
            post_route("register_client", register::post),
        )
        .route(
            "/oauth/register/{client}",
            patch(handler("change_client", register::update))
                .delete(handler("remove_client", register::remove)),
        )
        .route("/oauth/par", post_route("par", par::post))
        .route("/oauth/authorize", get_route("authorize", authorize::get))
        .route(
            "/oauth/authorize/mcp-package",
            post_route("mcp_package", authorize::approve_package),
        )
        .route("/oauth/token", post_route("token", token::post))
        .route(
            "/oauth/device_authorization",
            post_route("device_authorization", device::authorization),
        )
        .route("/device", get_route("device", device::get))
        .route(
            "/device/approve",
            post_route("device_approve", device::approve),
        )
        .route("/introspect", post_route("introspect", introspect::post))
        .route(
            "/agent-connect",
            post_route("agent_connect", agent_connect::post),
        )
        .route(
            "/agent-connect/{attempt}/token",
            post_route("agent_connect_token", agent_connect::token),
        )
        .route("/consent", get_route("consent", consent::get))
        .route(
            "/consent/change",
            post_route("consent_change", consent::show_form_again),
        )
        .route(
            "/consent/review",
            post_route("consent_review", consent::review),
        )
        .route(
            "/consent/approve",
            post_route("consent_approve", consent::approve),
        )
        .route("/consent/deny", post_route("consent_deny", consent::deny))
        .route(
            "/consent/exchange",
            post_route("consent_exchange", consent::exchange),
        )
        .route(
            "/owner/login",
            get_route("login_page", login::get).merge(post_route("login", login::post)),
        )
        .route("/owner/logout", post_route("logout", login::logout))
        .route("/owner", get(|| async { Redirect::to("/owner/grants") }))
        .route("/owner/grants", get_route("grants_page", grants::list))
        .route(
            "/owner/grants/{grant}",
            get_route("grant_page", grants::get),
        )
        .route(
            "/owner/grants/{grant}/revoke",
            get_route("grant_page_confirm", grants::confirm_revocation)
                .merge(post_route("grant_page_revoke", grants::revoke_from_page)),
        )
        .route(
            "/owner/tokens/{token}/end",
            get_route("owner_token_confirm", grants::confirm_end_of_owner_token)
                .merge(post_route("owner_token_end", grants::end_owner_token)),
        )
        .route(
            "/grants/{grant}/revoke",
            post_route("revoke", grants::revoke),
        )
        .route("/owner/{*rest}", any(handler("not_found", not_found)))
        .route("/consent/{*rest}", any(handler("not_found", not_found)))
        .route("/device/{*rest}", any(handler("not_found", not_found)))
        .route("/assets/style.css", get(pages::style))
        .route("/icon.svg", get(pages::icon))
        .with_state(service)
}

/// Responds to an unknown path below a page: with a page to browsers, with JSON to other clients.
fn not_found(_: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let path = rung_ladder::head(&visit.path, 200);
    let error = Error::NotFound(format!("there is no page at {path}"));
    if visit.wants_html() {
        return Err(error);
    }
    let head = &visit.head;
    Ok(crate::envelope::error_response(
        &error,
        &head.request_id,
        &head.origin,
    ))
}

fn get_route(name: &'static str, work: FormHandler) -> MethodRouter<Arc<Service>> {
    get(handler(name, work))
}

fn post_route(name: &'static str, work: FormHandler) -> MethodRouter<Arc<Service>> {
    post(handler(name, work))
}

/// Wraps a handler as an axum handler.
fn handler(
    name: &'static str,
    work: FormHandler,
) -> impl Fn(State<Arc<Service>>, PathParams, Request) -> ResponseFuture + Clone {
    move |State(service): State<_>, Path(names): PathParams, request| {
        let names = names.into_iter().map(|(_, value)| value).collect();
        Box::pin(form_request::handle(service, name, work, names, request))
    }
}
