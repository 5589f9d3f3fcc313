//! Listing of what a server offers, and notifications that it changed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rung_fault::Fault;
use rung_mcp::connect::{Delegate, Error, Handshake, ListKind, RequestOptions, ServerConnection};
use rung_mcp::{Capabilities, SubscriptionFilter};
use rung_tool::{Change, ResourceSubscriber};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Server;
use super::instance::{InstanceLease, InstanceScope, ResourceSubscription, ServerInstance};
use crate::catalog::{Catalog, CatalogTool, ServerDescription};

impl Server {
    /// Lists what the server offers. Concurrent callers wait for one listing.
    pub(crate) async fn refresh_catalog(
        self: &Arc<Self>,
        instance: &InstanceLease,
    ) -> Result<Arc<Catalog>, Fault> {
        let _one_at_a_time = self.listing_lock.lock().await;
        let opened = instance.connection.open().await;
        let agreement = opened.map_err(|error| self.record_failure(&error))?;
        self.refresh_catalog_locked(instance, agreement).await
    }

    /// Lists in the background. Does not start an instance that has stopped.
    pub(super) fn refresh_catalog_in_background(self: &Arc<Self>, used: InstanceLease) {
        let (me, instance) = (self.clone(), used.instance.clone());
        let look = tokio::spawn(async move {
            let _one_at_a_time = me.listing_lock.lock().await;
            if let Some(agreement) = used.connection.handshake() {
                let _tried_again_with_the_next_call =
                    me.refresh_catalog_locked(&used, agreement).await;
            }
        });
        let mut looks = instance.background_listings.lock();
        looks.retain(|look| !look.is_finished());
        looks.push(look.abort_handle());
    }

    async fn refresh_catalog_locked(
        self: &Arc<Self>,
        instance: &InstanceLease,
        agreement: Handshake,
    ) -> Result<Arc<Catalog>, Fault> {
        let read = instance.listed_session.lock().clone();
        let same = read.is_some_and(|read| Arc::ptr_eq(&read, &agreement.raw));
        if same
            && !instance.stale.swap(false, Ordering::AcqRel)
            && let Some(seen) = self.catalog()
        {
            return Ok(seen);
        }
        instance.stale.store(false, Ordering::Release);
        let seen = {
            let _outstanding = ListingGuard::begin(instance);
            self.read_lists(&instance.connection, &agreement).await
        };
        let seen = Arc::new(seen.map_err(|error| {
            instance.listed_session.lock().take();
            self.record_listing_failure(&error)
        })?);
        if agreement.version.is_modern() && !same {
            subscribe_to_list_changes(&instance.connection);
        }
        *instance.listed_session.lock() = Some(agreement.raw);
        let before = self.catalog.write().replace(seen.clone());
        let changed = self
            .context
            .catalogs
            .put(&self.definition, &seen, before.as_deref())?;
        if changed || before.is_none() {
            self.context.generation.fetch_add(1, Ordering::Relaxed);
            self.context.announce_list_changes();
        }
        Ok(seen)
    }

    async fn read_lists(
        &self,
        connection: &ServerConnection,
        agreement: &Handshake,
    ) -> Result<Catalog, Error> {
        // A server that does not answer tools/list is as unusable as one that does not start: both have the start timeout.
        let how = RequestOptions {
            deadline: Some(Instant::now() + self.context.start_timeout),
            ..RequestOptions::default()
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
        let resources = list(ListKind::Resources, "resources").await?;
        let templates = list(ListKind::Templates, "resources")
            .await
            .unwrap_or_default();
        let prompts = list(ListKind::Prompts, "prompts").await?;
        let before = self.catalog();
        let known = |tool: rung_mcp::connect::DownstreamTool| {
            let old = before.as_ref().and_then(|seen| seen.tool(&tool.name));
            let same = old.filter(|old| old.tool.definition.get() == tool.definition.get());
            same.map_or_else(|| Arc::new(CatalogTool::new(tool, None)), Arc::clone)
        };
        let dropped = tools.rejected.into_iter();
        Ok(Catalog {
            tools: tools.tools.into_iter().map(known).collect(),
            resources,
            templates,
            prompts,
            dropped: dropped.map(|dropped| (dropped.name, dropped.why)).collect(),
            description: ServerDescription {
                version: agreement.version.name().to_owned(),
                capabilities: agreement.capabilities.clone(),
                server: agreement.server.clone(),
                instructions: agreement.instructions.clone(),
            },
        })
    }

    /// Adds or removes a listener of a resource. The server is subscribed to while there is at least one.
    pub(crate) async fn set_resource_listener(
        self: &Arc<Self>,
        listener: &ResourceSubscriber,
        uri: &str,
        on: bool,
    ) -> Result<(), Fault> {
        let conversation = listener.conversation.clone();
        let whose = InstanceScope::new(self.definition.sharing, &listener.permit, conversation);
        let can = Capabilities {
            roots: false,
            ..Capabilities::ALL
        };
        let instance = self.open_for(whose, can, &listener.permit).await?;
        let mut watched = instance.subscriptions.lock();
        if let Some(listening) = watched.get_mut(uri) {
            let listeners = listening.listeners;
            listening.listeners = if on { listeners + 1 } else { listeners - 1 };
            if listening.listeners == 0 {
                watched.remove(uri);
            }
        } else if on {
            let connection = instance.connection.clone();
            let wanted = SubscriptionFilter {
                resource_subscriptions: vec![uri.to_owned()],
                ..SubscriptionFilter::default()
            };
            let task = tokio::spawn(async move {
                let _until_it_cannot_be_heard = connection.listen(&wanted).await;
            });
            let task = task.abort_handle();
            let one = ResourceSubscription { listeners: 1, task };
            watched.insert(uri.to_owned(), one);
        }
        Ok(())
    }
}

/// Marks the lists of an instance as outstanding until dropped, because a listing may be aborted.
struct ListingGuard<'a>(&'a ServerInstance);

impl<'a> ListingGuard<'a> {
    fn begin(instance: &'a ServerInstance) -> Self {
        *instance.listing_since.lock() = Some(Instant::now());
        Self(instance)
    }
}

impl Drop for ListingGuard<'_> {
    fn drop(&mut self) {
        self.0.listing_since.lock().take();
    }
}

/// Subscribes to list changes of a modern server, for as long as it is connected. Legacy servers send them unasked.
fn subscribe_to_list_changes(connection: &ServerConnection) {
    let connection = connection.clone();
    let wanted = SubscriptionFilter {
        tools_list_changed: true,
        prompts_list_changed: true,
        resources_list_changed: true,
        ..SubscriptionFilter::default()
    };
    tokio::spawn(async move {
        let _until_it_cannot_be_heard = connection.listen(&wanted).await;
    });
}

/// Receives notifications that belong to no call.
pub(super) struct ListChangeListener {
    pub(super) server: Weak<Server>,
    pub(super) can: Capabilities,
}

impl Delegate for ListChangeListener {
    fn capabilities(&self) -> Capabilities {
        self.can
    }

    fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        let Some(server) = self.server.upgrade() else {
            return;
        };
        match method {
            "notifications/tools/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/prompts/list_changed" => server.on_list_changed(),
            "notifications/resources/updated" => {
                #[derive(serde::Deserialize)]
                struct Updated {
                    uri: String,
                }
                let params = params.map_or("{}", RawValue::get);
                if let Ok(updated) = serde_json::from_str::<Updated>(params) {
                    let with_server = crate::resources::qualified_uri(server.name(), &updated.uri);
                    server.context.changes.send(Change::Resource(with_server));
                    server.context.changes.send(Change::Resource(updated.uri));
                }
            }
            _ => {}
        }
    }
}

impl Server {
    /// Lists every open instance again after a list change. Further notifications before that listing add no other.
    fn on_list_changed(self: &Arc<Self>) {
        let instances: Vec<_> = self
            .instances
            .lock()
            .iter()
            .map(|(whose, instance)| (whose.clone(), instance.clone()))
            .collect();
        for (_, instance) in instances {
            if instance.connection.raw_handshake().is_none()
                || instance.stale.swap(true, Ordering::AcqRel)
            {
                continue;
            }
            instance.use_count.fetch_add(1, Ordering::AcqRel);
            let used = InstanceLease {
                server: self.clone(),
                instance,
            };
            self.refresh_catalog_in_background(used);
        }
    }
}
