//! One file a family of methods. What is quick is answered at once; what calls a tool is answered later.

mod call;
mod complete;
mod listen;
mod lists;
mod tasks;

use std::pin::Pin;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client::{Client, Meta, invalid, read_object};
use crate::exchange::Outlet;
use crate::refusal::{Refusal, Result};
use crate::server::{Body, Request, Server};
use crate::version::Version;

pub(crate) use lists::change_message;

/// A request that has been taken.
pub(crate) enum Begun {
    /// It is answered.
    Now(Body),
    /// It will be.
    Later(Pin<Box<dyn Future<Output = Result<Body>> + Send>>),
}

impl Begun {
    fn later(body: impl Future<Output = Result<Body>> + Send + 'static) -> Self {
        Self::Later(Box::pin(body))
    }
}

/// Takes a request.
pub(crate) fn begin(
    server: &Server,
    client: &Arc<Client>,
    request: &Request<'_>,
    meta: &Meta<'_>,
    outlet: Arc<dyn Outlet>,
) -> Result<Begun> {
    let (server, client) = (server.clone(), client.clone());
    let Request { id, method, params } = request;
    let start = |server, client| call::Start::new(server, client, request, meta, outlet.clone());
    match (*method, client.is_modern()) {
        ("tools/list", _) => lists::tools(server, client, id, *params),
        ("tools/call", _) => call::tool(start(server, client)?, *params),
        ("resources/list", _) => lists::resources(server, client, id, *params),
        ("resources/templates/list", _) => lists::templates(server, client, id, *params),
        ("resources/read", _) => call::resource(start(server, client)?, *params),
        ("prompts/list", _) if server.0.offer.prompts.is_some() => {
            lists::prompts(server, client, id, *params)
        }
        ("prompts/get", _) if server.0.offer.prompts.is_some() => {
            call::prompt(start(server, client)?, *params)
        }
        ("completion/complete", _) => complete::complete(server, client, *params),
        ("server/discover", true) => Ok(Begun::Now(server.discovered(&client.permit))),
        ("subscriptions/listen", true) => listen::listen(server, client, id, *params, outlet),
        ("tasks/get", _) if has_tasks(&client) => tasks::get(server, client, *params),
        ("tasks/cancel", _) if has_tasks(&client) => tasks::cancel(server, client, *params),
        ("tasks/update", true) => tasks::update(server, client, *params),
        ("tasks/list", false) if has_tasks(&client) => lists::tasks(server, client, id, *params),
        ("tasks/result", false) if has_tasks(&client) => {
            tasks::result(start(server, client)?, *params)
        }
        ("ping", false) => Ok(empty()),
        ("logging/setLevel", false) => listen::set_level(&client, *params),
        ("resources/subscribe", false) if tells_updates(&server, &client) => {
            listen::subscribe(&server, &client, *params)
        }
        ("resources/unsubscribe", false) if tells_updates(&server, &client) => {
            listen::unsubscribe(&client, *params)
        }
        (method, _) => Err(Refusal::method(method)),
    }
}

/// Whether the client's version knows tasks, in one form or the other.
fn has_tasks(client: &Client) -> bool {
    client.version >= Version::V2025_11_25
}

/// Whether a change of a resource can reach this client: outside a session nothing can.
fn tells_updates(server: &Server, client: &Client) -> bool {
    client.session.is_some() && server.0.offer.resources.tells_updates()
}

fn empty() -> Begun {
    Begun::Now(Body::Complete(b"{}".to_vec()))
}

/// The parameters of a method, where it needs some.
fn read<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Result<T> {
    match params {
        Some(params) => read_object(params, "params").map_err(|refusal| refusal.with_status(200)),
        None => serde_json::from_str("{}").map_err(|error| invalid("params", &error)),
    }
}
