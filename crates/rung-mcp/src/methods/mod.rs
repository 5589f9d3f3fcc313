//! The dispatch of methods, one file per family. Quick methods are answered at once, those that call a source later.

mod call;
mod complete;
mod listen;
mod lists;
mod tasks;

use std::pin::Pin;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client::{ClientContext, RequestMeta, invalid_field, read_object};
use crate::protocol_error::{ProtocolError, Result};
use crate::request_context::ResponseSink;
use crate::server::{McpServer, ResultBody, RpcRequest};
use crate::version::ProtocolVersion;

pub(crate) use lists::change_notification;

/// The result of a method, ready or not.
pub(crate) enum MethodResult {
    Ready(ResultBody),
    Deferred(Pin<Box<dyn Future<Output = Result<ResultBody>> + Send>>),
}

impl MethodResult {
    fn deferred(body: impl Future<Output = Result<ResultBody>> + Send + 'static) -> Self {
        Self::Deferred(Box::pin(body))
    }
}

/// Dispatches a request to its method.
pub(crate) fn dispatch(
    server: &McpServer,
    client: &Arc<ClientContext>,
    request: &RpcRequest<'_>,
    meta: &RequestMeta<'_>,
    outlet: Arc<dyn ResponseSink>,
) -> Result<MethodResult> {
    let (server, client) = (server.clone(), client.clone());
    let RpcRequest { id, method, params } = request;
    let start =
        |server, client| call::PreparedCall::new(server, client, request, meta, outlet.clone());
    match (*method, client.is_modern()) {
        ("tools/list", _) => lists::tools(server, client, id, *params),
        ("tools/call", _) => call::call_tool(start(server, client)?, *params),
        ("resources/list", _) => lists::resources(server, client, id, *params),
        ("resources/templates/list", _) => lists::templates(server, client, id, *params),
        ("resources/read", _) => call::read_resource(start(server, client)?, *params),
        ("prompts/list", _) if server.0.config.prompts.is_some() => {
            lists::prompts(server, client, id, *params)
        }
        ("prompts/get", _) if server.0.config.prompts.is_some() => {
            call::get_prompt(start(server, client)?, *params)
        }
        ("completion/complete", _) => complete::complete(server, client, *params),
        ("server/discover", true) => {
            let (server, client) = (server.clone(), client.clone());
            let discovered = async move { Ok(server.discover_result(&client.permit).await) };
            Ok(MethodResult::deferred(discovered))
        }
        ("subscriptions/listen", true) => listen::listen(server, client, id, *params, outlet),
        ("tasks/get", _) if has_tasks(&client) => tasks::get(server, client, *params),
        ("tasks/cancel", _) if has_tasks(&client) => tasks::cancel(server, client, *params),
        ("tasks/update", true) => tasks::update(server, client, *params),
        ("tasks/list", false) if has_tasks(&client) => lists::tasks(server, client, id, *params),
        ("tasks/result", false) if has_tasks(&client) => {
            tasks::result(start(server, client)?, *params)
        }
        ("ping", false) => Ok(empty_result()),
        ("logging/setLevel", false) => listen::set_level(&client, *params),
        ("resources/subscribe", false) if can_receive_updates(&server, &client) => {
            listen::subscribe(&server, &client, *params)
        }
        ("resources/unsubscribe", false) if can_receive_updates(&server, &client) => {
            listen::unsubscribe(&client, *params)
        }
        (method, _) => Err(ProtocolError::method_not_found(method)),
    }
}

/// Returns true if the client's version has tasks, as a core feature or as an extension.
fn has_tasks(client: &ClientContext) -> bool {
    client.version >= ProtocolVersion::V2025_11_25
}

/// Returns true if resource updates can reach this client, which needs a session.
fn can_receive_updates(server: &McpServer, client: &ClientContext) -> bool {
    client.session.is_some() && server.0.config.resources.tells_updates()
}

fn empty_result() -> MethodResult {
    MethodResult::Ready(ResultBody::Complete(b"{}".to_vec()))
}

/// Parses the parameters of a method. Absent parameters count as an empty object.
fn parse_params<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Result<T> {
    match params {
        Some(params) => read_object(params, "params").map_err(|refusal| refusal.with_status(200)),
        None => serde_json::from_str("{}").map_err(|error| invalid_field("params", &error)),
    }
}
