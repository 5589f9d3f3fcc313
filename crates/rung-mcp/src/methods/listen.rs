//! Who wants to be told what: log levels and subscriptions of the legacy era, streams of the modern one.

use std::sync::Arc;

use rung_tool::{Change, Level};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::{Begun, change_message, empty, read};
use crate::client::{Client, TASKS, Wanted, required};
use crate::envelope::{Id, json, write_notification};
use crate::exchange::Outlet;
use crate::refusal::{Refusal, Result};
use crate::server::{Body, Server};
use crate::session::Watch;

pub(super) fn set_level(client: &Client, params: Option<&RawValue>) -> Result<Begun> {
    #[derive(Deserialize)]
    struct Params {
        level: Level,
    }
    let Params { level } = read(params)?;
    if let Some(session) = &client.session {
        session.set_log_level(level);
    }
    Ok(empty())
}

#[derive(Deserialize)]
struct OfResource {
    uri: String,
}

pub(super) fn subscribe(
    server: &Server,
    client: &Client,
    params: Option<&RawValue>,
) -> Result<Begun> {
    let OfResource { uri } = read(params)?;
    if uri.len() > MAX_URI_BYTES {
        return Err(Refusal::params(format!(
            "an address has {MAX_URI_BYTES} bytes at most"
        )));
    }
    let Some(session) = client.session.clone() else {
        return Ok(empty());
    };
    let watch = Watch::new(server, client, uri.clone());
    let Some(beginning) = session.subscribe(watch)? else {
        return Ok(empty());
    };
    Ok(Begun::later(async move {
        if let Err(fault) = beginning.await {
            session.unsubscribe(&uri);
            return Err(fault.into());
        }
        Ok(Body::Complete(b"{}".to_vec()))
    }))
}

pub(super) fn unsubscribe(client: &Client, params: Option<&RawValue>) -> Result<Begun> {
    let OfResource { uri } = read(params)?;
    if let Some(session) = &client.session {
        session.unsubscribe(&uri);
    }
    Ok(empty())
}

/// Bytes of an address, or of a task's id, that can be listened to.
const MAX_URI_BYTES: usize = 2_048;
/// Addresses and tasks that one stream may name.
const MAX_NAMED: usize = 1_000;

impl Wanted {
    /// What of it we can tell.
    fn honoured(mut self, server: &Server) -> Self {
        let offer = &server.0.offer;
        let tells = offer.changes.is_some();
        self.tools_list_changed &= tells;
        self.resources_list_changed &= tells;
        self.prompts_list_changed &= tells && offer.prompts.is_some();
        if !(tells && offer.resources.tells_updates()) {
            self.resource_subscriptions.clear();
        }
        self
    }

    fn wants(&self, change: &Change) -> bool {
        match change {
            Change::Tools => self.tools_list_changed,
            Change::Prompts => self.prompts_list_changed,
            Change::Resources => self.resources_list_changed,
            Change::Resource(uri) => self.resource_subscriptions.contains(uri),
            Change::Missed => false,
        }
    }
}

/// A stream that lasts until the client goes, or we do.
pub(super) fn listen(
    server: Server,
    client: Arc<Client>,
    id: &Id,
    params: Option<&RawValue>,
    outlet: Arc<dyn Outlet>,
) -> Result<Begun> {
    #[derive(Deserialize)]
    struct Params {
        notifications: Wanted,
    }
    let wanted = read::<Params>(params)?.notifications;
    if wanted.resource_subscriptions.len() + wanted.task_ids.len() > MAX_NAMED {
        return Err(Refusal::params(format!(
            "a stream names {MAX_NAMED} resources and tasks at most"
        )));
    }
    let named = wanted.resource_subscriptions.iter().chain(&wanted.task_ids);
    if named.into_iter().any(|name| name.len() > MAX_URI_BYTES) {
        let why = format!("an address has {MAX_URI_BYTES} bytes at most");
        return Err(Refusal::params(why));
    }
    if !wanted.task_ids.is_empty() && !client.capabilities.tasks {
        let why = "tasks are for clients that declare the extension";
        return Err(Refusal::capability(why, &required(TASKS)));
    }
    let wanted = wanted.honoured(&server);
    let id: Value = serde_json::from_str(id.as_json()).unwrap_or_default();
    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    // Listening begins before it is acknowledged, so nothing falls between.
    let changes = server
        .0
        .offer
        .changes
        .as_ref()
        .map(rung_tool::Changes::listen);
    let mut tasks = server.0.tasks.listen();
    outlet.say(write_notification(
        "notifications/subscriptions/acknowledged",
        &json!({"_meta": meta, "notifications": wanted}),
    ));
    Ok(Begun::later(async move {
        let lists = async {
            let Some(mut changes) = changes else {
                return std::future::pending::<()>().await;
            };
            loop {
                let change = changes.next().await;
                for change in change.told_of(wanted.resource_subscriptions.iter()) {
                    if wanted.wants(&change) {
                        outlet.say(change_message(&change, Some(&meta)));
                    }
                }
            }
        };
        let moved = async {
            let tell = async |id: &String| {
                // Another's task is not told of, whatever its id.
                if let Ok(task) = server.0.tasks.get(&client, id).await {
                    outlet.say(task_message(&task, &meta));
                }
            };
            // Where they stand now; one that ended before would never be told of again.
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
        // Let go of when the stream ends, in whatever way.
        let mut watched = Vec::new();
        let watching = async {
            for uri in &wanted.resource_subscriptions {
                let mut watch = Watch::new(&server, &client, uri.clone());
                let begun = watch.begin();
                watched.push(watch);
                if let Err(fault) = begun.await {
                    tracing::debug!(%fault, ?uri, "cannot be listened to");
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
        // It ended because we do; its meta says which stream this was.
        Ok(Body::Complete(json(&json!({"_meta": meta})).into_bytes()))
    }))
}

fn task_message(task: &[u8], meta: &Value) -> Vec<u8> {
    let task: &RawValue = serde_json::from_slice(task).expect("we wrote it");
    // The task's own members, behind the meta.
    let params = format!("{{\"_meta\":{meta},{}", &task.get()[1..]);
    let params = RawValue::from_string(params).expect("two objects joined are one");
    write_notification("notifications/tasks", &params)
}
