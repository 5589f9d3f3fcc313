//! What a server offers: how it is read, and how it is heard that it changed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rung_fault::Fault;
use rung_mcp::connect::{Agreement, Connection, Delegate, Error, How, Kind};
use rung_mcp::{Capabilities, Wanted};
use rung_tool::{Change, Watcher};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Server;
use super::instance::{InUse, Instance, Listening, Whose};
use crate::seen::{About, Known, Seen};

impl Server {
    /// Reads what one offers. Whoever comes meanwhile waits, and finds it read.
    pub(crate) async fn look(self: &Arc<Self>, instance: &InUse) -> Result<Arc<Seen>, Fault> {
        let _one_at_a_time = self.looking.lock().await;
        let opened = instance.connection.open().await;
        let agreement = opened.map_err(|error| self.failed(&error))?;
        self.look_at(instance, agreement).await
    }

    /// The same behind everybody's back. One that is stopped meanwhile is not started for it.
    pub(super) fn look_behind(self: &Arc<Self>, used: InUse) {
        let (me, instance) = (self.clone(), used.instance.clone());
        let look = tokio::spawn(async move {
            let _one_at_a_time = me.looking.lock().await;
            if let Some(agreement) = used.connection.agreement() {
                let _tried_again_with_the_next_call = me.look_at(&used, agreement).await;
            }
        });
        let mut looks = instance.looks.lock();
        looks.retain(|look| !look.is_finished());
        looks.push(look.abort_handle());
    }

    async fn look_at(
        self: &Arc<Self>,
        instance: &InUse,
        agreement: Agreement,
    ) -> Result<Arc<Seen>, Fault> {
        let read = instance.looked.lock().clone();
        let same = read.is_some_and(|read| Arc::ptr_eq(&read, &agreement.said));
        if same
            && !instance.stale.swap(false, Ordering::AcqRel)
            && let Some(seen) = self.seen()
        {
            return Ok(seen);
        }
        instance.stale.store(false, Ordering::Release);
        let seen = {
            let _outstanding = Outstanding::begin(instance);
            self.read_lists(&instance.connection, &agreement).await
        };
        let seen = Arc::new(seen.map_err(|error| {
            instance.looked.lock().take();
            self.not_listed(&error)
        })?);
        if agreement.version.is_modern() && !same {
            hear_of_lists(&instance.connection);
        }
        *instance.looked.lock() = Some(agreement.said);
        let before = self.seen.write().replace(seen.clone());
        let changed = self
            .common
            .catalogue
            .put(&self.definition, &seen, before.as_deref())?;
        if changed || before.is_none() {
            self.common.generation.fetch_add(1, Ordering::Relaxed);
            self.common.tell_all();
        }
        Ok(seen)
    }

    async fn read_lists(
        &self,
        connection: &Connection,
        agreement: &Agreement,
    ) -> Result<Seen, Error> {
        // A server that does not list what it has is of no more use than one that does not start.
        let how = How {
            deadline: Some(Instant::now() + self.common.opening),
            ..How::default()
        };
        let has = |capability: &str| agreement.capabilities.get(capability).is_some();
        let list = async |kind, capability: &str| {
            if !has(capability) {
                return Ok(Vec::new());
            }
            let listed = connection.list(kind, &how).await?;
            Ok(listed.items.into_iter().map(Arc::from).collect())
        };
        let tools = connection.tools(&how).await?;
        let resources = list(Kind::Resources, "resources").await?;
        let templates = list(Kind::Templates, "resources").await.unwrap_or_default();
        let prompts = list(Kind::Prompts, "prompts").await?;
        let before = self.seen();
        let known = |tool: rung_mcp::connect::Tool| {
            let old = before.as_ref().and_then(|seen| seen.tool(&tool.name));
            let same = old.filter(|old| old.tool.listed.get() == tool.listed.get());
            same.map_or_else(|| Arc::new(Known::new(tool, None)), Arc::clone)
        };
        let dropped = tools.dropped.into_iter();
        Ok(Seen {
            tools: tools.tools.into_iter().map(known).collect(),
            resources,
            templates,
            prompts,
            dropped: dropped.map(|dropped| (dropped.name, dropped.why)).collect(),
            about: About {
                version: agreement.version.name().to_owned(),
                capabilities: agreement.capabilities.clone(),
                server: agreement.server.clone(),
                instructions: agreement.instructions.clone(),
            },
        })
    }

    /// Somebody listens to a resource from now on, or no longer.
    pub(crate) async fn watch(
        self: &Arc<Self>,
        listener: &Watcher,
        uri: &str,
        on: bool,
    ) -> Result<(), Fault> {
        let conversation = listener.conversation.clone();
        let whose = Whose::of(self.definition.sharing, &listener.permit, conversation);
        let can = Capabilities {
            roots: false,
            ..Capabilities::ALL
        };
        let instance = self.open_for(whose, can, &listener.permit).await?;
        let mut watched = instance.watched.lock();
        if let Some(listening) = watched.get_mut(uri) {
            let listeners = listening.listeners;
            listening.listeners = if on { listeners + 1 } else { listeners - 1 };
            if listening.listeners == 0 {
                watched.remove(uri);
            }
        } else if on {
            let connection = instance.connection.clone();
            let wanted = Wanted {
                resource_subscriptions: vec![uri.to_owned()],
                ..Wanted::default()
            };
            let task = tokio::spawn(async move {
                let _until_it_cannot_be_heard = connection.listen(&wanted).await;
            });
            let task = task.abort_handle();
            let one = Listening { listeners: 1, task };
            watched.insert(uri.to_owned(), one);
        }
        Ok(())
    }
}

/// That the lists of an instance are outstanding, until it is dropped: a reader may be aborted.
struct Outstanding<'a>(&'a Instance);

impl<'a> Outstanding<'a> {
    fn begin(instance: &'a Instance) -> Self {
        *instance.lists_since.lock() = Some(Instant::now());
        Self(instance)
    }
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        self.0.lists_since.lock().take();
    }
}

/// Has a server of the modern era tell of its lists, for as long as it can be heard. Others do so unasked.
fn hear_of_lists(connection: &Connection) {
    let connection = connection.clone();
    let wanted = Wanted {
        tools_list_changed: true,
        prompts_list_changed: true,
        resources_list_changed: true,
        ..Wanted::default()
    };
    tokio::spawn(async move {
        let _until_it_cannot_be_heard = connection.listen(&wanted).await;
    });
}

/// Hears what belongs to no call.
pub(super) struct Ear {
    pub(super) server: Weak<Server>,
    pub(super) can: Capabilities,
}

impl Delegate for Ear {
    fn can(&self) -> Capabilities {
        self.can
    }

    fn told(&self, method: &str, params: Option<&RawValue>) {
        let Some(server) = self.server.upgrade() else {
            return;
        };
        match method {
            "notifications/tools/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/prompts/list_changed" => server.heard_of_change(),
            "notifications/resources/updated" => {
                #[derive(serde::Deserialize)]
                struct Updated {
                    uri: String,
                }
                let params = params.map_or("{}", RawValue::get);
                if let Ok(updated) = serde_json::from_str::<Updated>(params) {
                    let with_server = crate::resources::with_server(server.name(), &updated.uri);
                    server.common.changes.tell(Change::Resource(with_server));
                    server.common.changes.tell(Change::Resource(updated.uri));
                }
            }
            _ => {}
        }
    }
}

impl Server {
    /// Its lists are others now: they are read again, once, however often it says so meanwhile.
    fn heard_of_change(self: &Arc<Self>) {
        let instances: Vec<_> = self
            .instances
            .lock()
            .iter()
            .map(|(whose, instance)| (whose.clone(), instance.clone()))
            .collect();
        for (_, instance) in instances {
            if instance.connection.opened_with().is_none()
                || instance.stale.swap(true, Ordering::AcqRel)
            {
                continue;
            }
            instance.busy.fetch_add(1, Ordering::AcqRel);
            let used = InUse {
                server: self.clone(),
                instance,
            };
            self.look_behind(used);
        }
    }
}
