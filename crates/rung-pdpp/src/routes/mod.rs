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

use crate::service::{Route, Service, answer};

/// Everything under `/v1`, and the registration of sources.
pub fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/", get(discovery::get))
        .route(
            "/.well-known/oauth-protected-resource",
            get(protected_resource::data),
        )
        .route(
            "/.well-known/oauth-protected-resource/mcp",
            get(protected_resource::mcp),
        )
        .route(
            "/mcp/.well-known/oauth-protected-resource",
            get(protected_resource::mcp),
        )
        .route("/v1/schema", reads("schema", schema::get))
        .route("/v1/streams", reads("streams", streams::list))
        .route("/v1/streams/{stream}", reads("stream", streams::one))
        .route("/v1/connectors", reads("connectors", connectors::list))
        .route(
            "/v1/streams/{stream}/records",
            reads("records", records::list).merge(deletes("delete_records", records::delete)),
        )
        .route(
            "/v1/streams/{stream}/records/{id}",
            reads("record", record::get).merge(deletes("delete_record", record::delete)),
        )
        .route(
            "/v1/streams/{stream}/records/{id}/field-window",
            reads("field_window", field_window::get),
        )
        .route(
            "/v1/streams/{stream}/aggregate",
            reads("aggregate", aggregate::get),
        )
        .route("/v1/search", reads("search", search::get))
        .route("/v1/blobs/{blob}", get(blobs::get))
        .route("/v1/blobs", post(blobs::upload))
        .route("/v1/ingest/{stream}", post(ingest::post))
        .route(
            "/v1/state/{connector}",
            reads("state", state::get).put(state::put),
        )
        .route("/v1/connections", reads("connections", connections::list))
        .route(
            "/v1/connections/{connection}",
            put(connections::put)
                .merge(patch(connections::patch))
                .merge(deletes("revoke_connection", connections::delete)),
        )
        .route("/connectors", post(connectors::register))
        .route("/connectors/{connector}", get(connectors::get))
        .with_state(service)
}

fn reads(name: &'static str, route: Route) -> MethodRouter<Arc<Service>> {
    get(move |state, names, request| named(state, names, request, name, route))
}

fn deletes(name: &'static str, route: Route) -> MethodRouter<Arc<Service>> {
    delete(move |state, names, request| named(state, names, request, name, route))
}

async fn named(
    State(service): State<Arc<Service>>,
    Path(names): Path<Vec<(String, String)>>,
    request: Request,
    name: &'static str,
    route: Route,
) -> Response {
    let names = names.into_iter().map(|(_, value)| value).collect();
    answer(service, name, route, names, request).await
}
