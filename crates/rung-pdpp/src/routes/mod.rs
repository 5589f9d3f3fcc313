//! The routes, one file each.

mod aggregate;
mod blobs;
mod connections;
mod connectors;
mod discovery;
mod field_window;
mod ingest;
mod protected_resource;
mod record;
mod records;
mod schema;
mod search;
mod state;
mod streams;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, patch, post, put};

use crate::service::{RouteHandler, Service, handle_request};

/// The routes under `/v1`, discovery and protected resource metadata, and the registration of connectors.
pub fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/", get(discovery::get))
        .route(
            "/.well-known/oauth-protected-resource",
            get(protected_resource::get),
        )
        .route(
            "/.well-known/oauth-protected-resource/mcp",
            get(protected_resource::get_for_mcp),
        )
        .route(
            "/mcp/.well-known/oauth-protected-resource",
            get(protected_resource::get_for_mcp),
        )
        .route("/v1/schema", get_route("schema", schema::get))
        .route("/v1/streams", get_route("streams", streams::list))
        .route("/v1/streams/{stream}", get_route("stream", streams::get))
        .route("/v1/connectors", get_route("connectors", connectors::list))
        .route(
            "/v1/streams/{stream}/records",
            get_route("records", records::list)
                .merge(delete_route("delete_records", records::delete)),
        )
        .route(
            "/v1/streams/{stream}/records/{id}",
            get_route("record", record::get).merge(delete_route("delete_record", record::delete)),
        )
        .route(
            "/v1/streams/{stream}/records/{id}/field-window",
            get_route("field_window", field_window::get),
        )
        .route(
            "/v1/streams/{stream}/aggregate",
            get_route("aggregate", aggregate::get),
        )
        .route("/v1/search", get_route("search", search::get))
        .route("/v1/blobs/{blob}", get(blobs::get))
        .route("/v1/blobs", post(blobs::upload))
        .route("/v1/ingest/{stream}", post(ingest::post))
        .route(
            "/v1/state/{connector}",
            get_route("state", state::get).put(state::put),
        )
        .route(
            "/v1/connections",
            get_route("connections", connections::list),
        )
        .route(
            "/v1/connections/{connection}",
            put(connections::put)
                .merge(patch(connections::patch))
                .merge(delete_route("revoke_connection", connections::delete)),
        )
        .route("/connectors", post(connectors::register))
        .route("/connectors/{connector}", get(connectors::get))
        .with_state(service)
}

fn get_route(name: &'static str, route: RouteHandler) -> MethodRouter<Arc<Service>> {
    get(move |state, names, request| handle_route(state, names, request, name, route))
}

fn delete_route(name: &'static str, route: RouteHandler) -> MethodRouter<Arc<Service>> {
    delete(move |state, names, request| handle_route(state, names, request, name, route))
}

async fn handle_route(
    State(service): State<Arc<Service>>,
    Path(names): Path<Vec<(String, String)>>,
    request: Request,
    name: &'static str,
    route: RouteHandler,
) -> Response {
    let names = names.into_iter().map(|(_, value)| value).collect();
    handle_request(service, name, route, names, request).await
}
