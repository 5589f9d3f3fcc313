//! What clients subscribe to: log levels and resources in legacy versions, notification streams in modern ones.

use std::sync::Arc;

use rung_tool::{Change, LogLevel};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::{MethodResult, change_notification, empty_result, parse_params};
use crate::client::{ClientContext, SubscriptionFilter, TASKS_EXTENSION, required_capability};
use crate::envelope::{RequestId, to_json, write_notification};
use crate::protocol_error::{ProtocolError, Result};
use crate::request_context::ResponseSink;
use crate::server::{McpServer, ResultBody};
use crate::session::ResourceSubscription;

pub(super) fn set_level(client: &ClientContext, params: Option<&RawValue>) -> Result<MethodResult> {
    #[derive(Deserialize)]
    struct Params {
        level: LogLevel,
    }
    let Params { level } = parse_params(params)?;
    if let Some(session) = &client.session {
        session.set_log_level(level);
    }
    Ok(empty_result())
}

#[derive(Deserialize)]
struct ResourceParams {
    uri: String,
}

pub(super) fn subscribe(
    server: &McpServer,
    client: &ClientContext,
    params: Option<&RawValue>,
) -> Result<MethodResult> {
    let ResourceParams { uri } = parse_params(params)?;
    if uri.len() > MAX_URI_BYTES {
        return Err(ProtocolError::invalid_params(format!(
            "a URI has at most {MAX_URI_BYTES} bytes"
        )));
    }
    let Some(session) = client.session.clone() else {
        return Ok(empty_result());
    };
    let watch = ResourceSubscription::new(server, client, uri.clone());
    let Some(beginning) = session.subscribe(watch)? else {
        return Ok(empty_result());
    };
    Ok(MethodResult::deferred(async move {
        if let Err(fault) = beginning.await {
            session.unsubscribe(&uri);
            return Err(fault.into());
        }
        Ok(ResultBody::Complete(b"{}".to_vec()))
    }))
}

pub(super) fn unsubscribe(
    client: &ClientContext,
    params: Option<&RawValue>,
) -> Result<MethodResult> {
    let ResourceParams { uri } = parse_params(params)?;
    if let Some(session) = &client.session {
        session.unsubscribe(&uri);
    }
    Ok(empty_result())
}

/// Maximum length of a URI or task id in a subscription.
const MAX_URI_BYTES: usize = 2_048;
/// URIs and task ids that one stream may name.
const MAX_NAMED: usize = 1_000;

impl SubscriptionFilter {
    /// Returns the part of the filter that the server supports.
    fn supported_by(mut self, server: &McpServer) -> Self {
        let offer = &server.0.config;
        let tells = offer.changes.is_some();
        self.tools_list_changed &= tells;
        self.resources_list_changed &= tells;
        self.prompts_list_changed &= tells && offer.prompts.is_some();
        if !(tells && offer.resources.tells_updates()) {
            self.resource_subscriptions.clear();
        }
        self
    }

    fn matches(&self, change: &Change) -> bool {
        match change {
            Change::Tools => self.tools_list_changed,
            Change::Prompts => self.prompts_list_changed,
            Change::Resources => self.resources_list_changed,
            Change::Resource(uri) => self.resource_subscriptions.contains(uri),
            Change::Missed => false,
        }
    }
}

/// Opens a notification stream, which lasts until the client is gone or the server shuts down.
pub(super) fn listen(
    server: McpServer,
    client: Arc<ClientContext>,
    id: &RequestId,
    params: Option<&RawValue>,
    outlet: Arc<dyn ResponseSink>,
) -> Result<MethodResult> {
    #[derive(Deserialize)]
    struct Params {
        notifications: SubscriptionFilter,
    }
    let wanted = parse_params::<Params>(params)?.notifications;
    if wanted.resource_subscriptions.len() + wanted.task_ids.len() > MAX_NAMED {
        return Err(ProtocolError::invalid_params(format!(
            "a stream names at most {MAX_NAMED} resources and tasks"
        )));
    }
    let named = wanted.resource_subscriptions.iter().chain(&wanted.task_ids);
    if named.into_iter().any(|name| name.len() > MAX_URI_BYTES) {
        let why = format!("a URI has at most {MAX_URI_BYTES} bytes");
        return Err(ProtocolError::invalid_params(why));
    }
    if !wanted.task_ids.is_empty() && !client.capabilities.tasks {
        let why = "tasks require a client that declares the extension";
        return Err(ProtocolError::missing_capability(
            why,
            &required_capability(TASKS_EXTENSION),
        ));
    }
    let wanted = wanted.supported_by(&server);
    let id: Value = serde_json::from_str(id.as_json()).unwrap_or_default();
    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    // Subscribed before the acknowledgement, so that no change is missed.
    let changes = server
        .0
        .config
        .changes
        .as_ref()
        .map(rung_tool::ChangeSender::subscribe);
    let mut tasks = server.0.tasks.listen();
    outlet.send_lossy(write_notification(
        "notifications/subscriptions/acknowledged",
        &json!({"_meta": meta, "notifications": wanted}),
    ));
    Ok(MethodResult::deferred(async move {
        let lists = async {
            let Some(mut changes) = changes else {
                return std::future::pending::<()>().await;
            };
            loop {
                let change = changes.next().await;
                for change in change.for_subscriptions(wanted.resource_subscriptions.iter()) {
                    if wanted.matches(&change) {
                        outlet.send_lossy(change_notification(&change, Some(&meta)));
                    }
                }
            }
        };
        let moved = async {
            let tell = async |id: &String| {
                // Another caller's task is not reported.
                if let Ok(task) = server.0.tasks.get(&client, id).await {
                    outlet.send_lossy(task_notification(&task, &meta));
                }
            };
            // The current states: a task that has ended already changes no more.
            for id in &wanted.task_ids {
                tell(id).await;
            }
            loop {
                match tasks.recv().await {
                    Ok(id) if wanted.task_ids.contains(&id) => tell(&id).await,
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => {
                        for id in &wanted.task_ids {
                            tell(id).await;
                        }
                    }
                    Err(RecvError::Closed) => return std::future::pending::<()>().await,
                }
            }
        };
        // Dropped when the stream ends, which ends the subscriptions.
        let mut watched = Vec::new();
        let watching = async {
            for uri in &wanted.resource_subscriptions {
                let mut watch = ResourceSubscription::new(&server, &client, uri.clone());
                let begun = watch.start();
                watched.push(watch);
                if let Err(fault) = begun.await {
                    tracing::debug!(%fault, ?uri, "cannot listen for changes");
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = lists => {}
            () = moved => {}
            () = watching => {}
            () = server.0.shutdown.cancelled() => {}
        }
        // The server shuts down; `_meta` names the stream that ends.
        Ok(ResultBody::Complete(
            to_json(&json!({"_meta": meta})).into_bytes(),
        ))
    }))
}

fn task_notification(task: &[u8], meta: &Value) -> Vec<u8> {
    let task: &RawValue = serde_json::from_slice(task).expect("we wrote it");
    // The task's own members follow `_meta`.
    let params = format!("{{\"_meta\":{meta},{}", &task.get()[1..]);
    let params = RawValue::from_string(params).expect("two objects joined are one");
    write_notification("notifications/tasks", &params)
}
