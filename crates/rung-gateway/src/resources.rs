//! The resources of downstream servers, under their own URIs.
//!
//! A URI that several servers list belongs to the first. The others are listed as `gateway://server/uri`. Both forms can be read
//! for every resource.

use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::Fault;
use rung_mcp::connect::RequestOptions;
use rung_tool::{
    BoxFuture, Call, CompletionQuery, NameStyle, RelayedResult, ResourceCard, ResourceContents,
    ResourceSource, ResourceSubscriber, SourceResult, TemplateCard, to_raw_json,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::answer::redacted;
use crate::delegate::RedactingDelegate;
use crate::gateway::{Gateway, GatewayState};
use crate::guidance::{PAGE_TEXT, PAGE_URI};
use crate::policy::PolicySubject;
use crate::server::Server;
use crate::uri_template;

/// Prefix of a URI that is qualified with its server.
const GATEWAY_SCHEME: &str = "gateway://";
const MARKDOWN: &str = "text/markdown";

/// Returns a URI qualified with its server.
pub(crate) fn qualified_uri(server: &str, uri: &str) -> String {
    let server = server.replace('%', "%25").replace('/', "%2F");
    format!("{GATEWAY_SCHEME}{server}/{uri}")
}

/// Replaces the server's own URI in the contents by the URI that the client requested.
fn with_requested_uri(read: RelayedResult, own: &str, asked: &str) -> RelayedResult {
    let RelayedResult::InMemory(raw) = &read else {
        return read;
    };
    let Ok(mut result) = serde_json::from_str::<Value>(raw.get()) else {
        return read;
    };
    for one in result["contents"].as_array_mut().into_iter().flatten() {
        if one["uri"] == own {
            one["uri"] = asked.into();
        }
    }
    RelayedResult::InMemory(to_raw_json(&result))
}

/// The downstream resources as a resource source.
pub struct DownstreamResources {
    pub gateway: Gateway,
    /// Style of tool names in the guidance page.
    pub names: NameStyle,
}

/// Returns a text member of a listed item.
pub(crate) fn text_member<'a>(item: &'a RawValue, name: &str) -> Option<std::borrow::Cow<'a, str>> {
    let value = rung_tool::splice::member(item.get(), name)?;
    serde_json::from_str(value.get()).ok()
}

impl GatewayState {
    /// Returns the servers that are visible to the permit.
    pub(crate) fn visible_servers<'a>(
        &'a self,
        permit: &'a Permit,
    ) -> impl Iterator<Item = &'a Arc<Server>> {
        let servers = self.servers.values();
        servers.filter(|server| self.is_visible(permit, PolicySubject::Server(server.name())))
    }

    fn is_resource_visible(&self, permit: &Permit, server: &Server, uri: &str) -> bool {
        let server = &**server.name();
        self.is_visible(permit, PolicySubject::Resource { server, uri })
    }

    /// Resolves a URI to a server and the URI there.
    fn find_resource(&self, permit: &Permit, uri: &str) -> Option<(Arc<Server>, String)> {
        if let Some((server, own)) = uri
            .strip_prefix(GATEWAY_SCHEME)
            .and_then(|rest| rest.split_once('/'))
        {
            let server = server.replace("%2F", "/").replace("%25", "%");
            let server = self.servers.get(&*server)?;
            let seen = self.is_resource_visible(permit, server, own);
            return seen.then(|| (server.clone(), own.to_owned()));
        }
        let has = |server: &&Arc<Server>| {
            let seen = server.catalog();
            let listed_there = seen.iter().flat_map(|seen| &seen.resources);
            let mut named = listed_there.filter_map(|item| text_member(item, "uri"));
            named.any(|own| own == uri) && self.is_resource_visible(permit, server, uri)
        };
        let shaped = |server: &&Arc<Server>| {
            let seen = server.catalog();
            let templates = seen.iter().flat_map(|seen| &seen.templates);
            let mut shapes = templates.filter_map(|item| text_member(item, "uriTemplate"));
            shapes.any(|shape| uri_template::matches_template(&shape, uri))
                && self.is_resource_visible(permit, server, uri)
        };
        let found = self.visible_servers(permit).find(has);
        let found = found.or_else(|| self.visible_servers(permit).find(shaped))?;
        Some((found.clone(), uri.to_owned()))
    }

    /// Returns the first visible server that lists a template.
    fn find_template(&self, permit: &Permit, template: &str) -> Option<Arc<Server>> {
        let has = |server: &&Arc<Server>| {
            let seen = server.catalog();
            let templates = seen.iter().flat_map(|seen| &seen.templates);
            let mut shapes = templates.filter_map(|item| text_member(item, "uriTemplate"));
            shapes.any(|shape| shape == template)
                && self.is_resource_visible(permit, server, template)
        };
        self.visible_servers(permit).find(has).cloned()
    }

    fn visible_resources(&self, permit: &Permit) -> Vec<ResourceCard> {
        let mut cards: Vec<ResourceCard> = Vec::new();
        let mut taken = std::collections::HashSet::new();
        for server in self.visible_servers(permit) {
            let Some(seen) = server.catalog() else {
                continue;
            };
            for item in &seen.resources {
                let Some(uri) = text_member(item, "uri") else {
                    continue;
                };
                if !self.is_resource_visible(permit, server, &uri) {
                    continue;
                }
                let uri = if taken.insert(uri.to_string()) {
                    uri.into_owned()
                } else {
                    qualified_uri(server.name(), &uri)
                };
                cards.push(ResourceCard {
                    name: text_member(item, "name").unwrap_or_default().into_owned(),
                    uri,
                    listed: Some(self.access.caller_redactor().redact_shared_json(item)),
                    ..ResourceCard::default()
                });
            }
        }
        cards
    }

    fn visible_templates(&self, permit: &Permit) -> Vec<TemplateCard> {
        let mut cards = Vec::new();
        for server in self.visible_servers(permit) {
            let Some(seen) = server.catalog() else {
                continue;
            };
            for item in &seen.templates {
                let Some(shape) = text_member(item, "uriTemplate") else {
                    continue;
                };
                if self.is_resource_visible(permit, server, &shape) {
                    cards.push(TemplateCard {
                        uri_template: shape.into_owned(),
                        name: text_member(item, "name").unwrap_or_default().into_owned(),
                        listed: Some(self.access.caller_redactor().redact_shared_json(item)),
                        ..TemplateCard::default()
                    });
                }
            }
        }
        cards
    }
}

impl ResourceSource for DownstreamResources {
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<ResourceCard>, Fault>> {
        Box::pin(async move {
            self.gateway.wait_for_complete_list(permit).await;
            let mut cards = self.gateway.state().visible_resources(permit);
            cards.extend(
                self.gateway
                    .has_guidance_page(permit)
                    .then(guidance_page_card),
            );
            Ok(cards)
        })
    }

    fn templates<'a>(
        &'a self,
        permit: &'a Permit,
    ) -> BoxFuture<'a, Result<Vec<TemplateCard>, Fault>> {
        Box::pin(async move {
            self.gateway.wait_for_complete_list(permit).await;
            Ok(self.gateway.state().visible_templates(permit))
        })
    }

    fn read<'a>(
        &'a self,
        call: &'a Call,
        uri: &'a str,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<ResourceContents>>>, Fault>> {
        Box::pin(async move {
            let read = if uri == PAGE_URI && self.gateway.has_guidance_page(&call.permit) {
                RelayedResult::InMemory(to_raw_json(
                    &json!({"contents": [guidance_page_contents(self.names)]}),
                ))
            } else {
                let Some((server, own)) = self.gateway.find_resource(&call.permit, uri).await
                else {
                    return Ok(None);
                };
                let params = to_raw(&json!({"uri": own}));
                let read = self
                    .gateway
                    .send_read_request(call, &server, "resources/read", &params)
                    .await?;
                if own == uri {
                    read
                } else {
                    with_requested_uri(read, &own, uri)
                }
            };
            let sink = self.gateway.0.result_sink.clone();
            let call = self.gateway.within_policy(call);
            let contents = SourceResult::<Vec<ResourceContents>>::relay(read, uri, &call, sink);
            contents.await.map(Some)
        })
    }

    fn complete<'a>(
        &'a self,
        permit: &'a Permit,
        template: &'a str,
        partial: CompletionQuery<'a>,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<String>>>, Fault>> {
        Box::pin(async move {
            let listed = |state: &GatewayState| state.find_template(permit, template);
            let Some(server) = self.gateway.find_or_wait(permit, listed).await else {
                return Ok(None);
            };
            let of = json!({"type": "ref/resource", "uri": template});
            self.gateway
                .complete_argument(permit, &server, &of, partial)
                .await
                .map(Some)
        })
    }

    fn tells_updates(&self) -> bool {
        true
    }

    fn watch<'a>(
        &'a self,
        listener: &'a ResourceSubscriber,
        uri: &'a str,
        on: bool,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let Some((server, own)) = self.gateway.find_resource(&listener.permit, uri).await
            else {
                return Ok(());
            };
            let watched = server.set_resource_listener(listener, &own, on).await;
            watched.map_err(|fault| {
                self.gateway
                    .state()
                    .access
                    .caller_redactor()
                    .redact_fault(fault)
            })
        })
    }
}

fn guidance_page_card() -> ResourceCard {
    ResourceCard {
        uri: PAGE_URI.to_owned(),
        name: "code-execution".to_owned(),
        title: Some("Many calls, few words".to_owned()),
        description: Some("How code makes many calls and prints only what matters.".to_owned()),
        mime_type: Some(MARKDOWN.to_owned()),
        size: Some(PAGE_TEXT.len() as u64),
        listed: None,
    }
}

fn guidance_page_contents(names: NameStyle) -> ResourceContents {
    let text = match names {
        NameStyle::Dotted => PAGE_TEXT.to_owned(),
        NameStyle::Plain => PAGE_TEXT
            .replace("gateway.", "gateway_")
            .replace("rung.read", "rung_read"),
    };
    ResourceContents {
        uri: PAGE_URI.to_owned(),
        mime_type: Some(MARKDOWN.to_owned()),
        text: Some(text),
        ..ResourceContents::default()
    }
}

fn to_raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("an object of strings")
}

impl Gateway {
    /// Returns true if the guidance page is listed: only for permits that can call `gateway.invoke`.
    fn has_guidance_page(&self, permit: &Permit) -> bool {
        self.can_invoke(permit) && self.state().guidance.has_page()
    }

    /// Resolves a URI to a server and the URI there. Lists unlisted servers if necessary.
    async fn find_resource(&self, permit: &Permit, uri: &str) -> Option<(Arc<Server>, String)> {
        self.find_or_wait(permit, |state| state.find_resource(permit, uri))
            .await
    }

    /// Sends a request that changes nothing to a server and returns its result with secrets masked.
    pub(crate) async fn send_read_request(
        &self,
        call: &Call,
        server: &Arc<Server>,
        method: &str,
        params: &RawValue,
    ) -> Result<RelayedResult, Fault> {
        let how = RequestOptions {
            // The request timeout of the connection, which questions pause, ends it.
            delegate: Some(Arc::new(RedactingDelegate::new(self, call))),
            ..RequestOptions::default()
        };
        let asked = async {
            let instance = server.open(call).await?;
            let answer = instance
                .connection
                .request_to_end(method, params, how)
                .await;
            answer.map_err(|error| server.fault(error))
        };
        match asked.await {
            Ok(answer) => redacted(answer, self.state().access.caller_redactor()).await,
            Err(fault) => Err(self.prepare_fault(fault, call).await),
        }
    }

    /// Requests completions for an argument from a server. Empty if the server does not support them.
    pub(crate) async fn complete_argument(
        &self,
        permit: &Permit,
        server: &Arc<Server>,
        of: &Value,
        partial: CompletionQuery<'_>,
    ) -> Result<SourceResult<Vec<String>>, Fault> {
        let seen = server.catalog();
        let can =
            seen.is_some_and(|seen| seen.description.capabilities.get("completions").is_some());
        if !can {
            return Ok(SourceResult::Local(Vec::new()));
        }
        let mut params =
            json!({"ref": of, "argument": {"name": partial.argument, "value": partial.value}});
        if !partial.context.is_empty() {
            params["context"] = json!({"arguments": partial.context});
        }
        let call = Call::new(permit.clone());
        let completed = self
            .send_read_request(&call, server, "completion/complete", &to_raw(&params))
            .await?;
        match completed {
            RelayedResult::InMemory(result) => Ok(SourceResult::Relayed(result)),
            RelayedResult::Long(_) => Ok(SourceResult::Local(Vec::new())),
        }
    }
}
