//! The servers' resources, each under its own address.
//!
//! An address that several servers have is the first one's; each of the others is listed with its server before it, and both ways
//! of writing it are understood.

use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::Fault;
use rung_mcp::connect::How;
use rung_tool::{
    Call, Contents, Given, Names, Partial, Pending, ResourceCard, ResourceSource, Served,
    TemplateCard, Watcher, written,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::answer::{Limits, given, served};
use crate::gateway::{Gateway, State};
use crate::guidance::{PAGE, PAGE_URI};
use crate::heard::Masked;
use crate::policy::Thing;
use crate::server::Server;
use crate::template;

/// What stands before an address that is not the first one's.
const SCHEME: &str = "gateway://";
const MARKDOWN: &str = "text/markdown";

/// An address with its server before it.
pub(crate) fn with_server(server: &str, uri: &str) -> String {
    let server = server.replace('%', "%25").replace('/', "%2F");
    format!("{SCHEME}{server}/{uri}")
}

/// What was read, by the address by which it was asked for.
fn addressed(read: Given, own: &str, asked: &str) -> Given {
    let Given::Here(raw) = &read else {
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
    Given::Here(written(&result))
}

/// The servers' resources, as a source.
pub struct Resources {
    /// The servers.
    pub gateway: Gateway,
    /// The names by which its readers know our tools.
    pub names: Names,
}

/// A member of something that was listed, as text.
pub(crate) fn listed<'a>(item: &'a RawValue, name: &str) -> Option<std::borrow::Cow<'a, str>> {
    let value = rung_mcp::splice::member(item.get(), name)?;
    serde_json::from_str(value.get()).ok()
}

impl State {
    /// The servers that somebody sees.
    pub(crate) fn seen_by<'a>(
        &'a self,
        permit: &'a Permit,
    ) -> impl Iterator<Item = &'a Arc<Server>> {
        let servers = self.servers.values();
        servers.filter(|server| self.sees(permit, Thing::Server(server.name())))
    }

    fn sees_resource(&self, permit: &Permit, server: &Server, uri: &str) -> bool {
        let server = &**server.name();
        self.sees(permit, Thing::Resource { server, uri })
    }

    /// The server that has what stands at an address, and the address there.
    fn place(&self, permit: &Permit, uri: &str) -> Option<(Arc<Server>, String)> {
        if let Some((server, own)) = uri
            .strip_prefix(SCHEME)
            .and_then(|rest| rest.split_once('/'))
        {
            let server = server.replace("%2F", "/").replace("%25", "%");
            let server = self.servers.get(&*server)?;
            let seen = self.sees_resource(permit, server, own);
            return seen.then(|| (server.clone(), own.to_owned()));
        }
        let has = |server: &&Arc<Server>| {
            let seen = server.seen();
            let listed_there = seen.iter().flat_map(|seen| &seen.resources);
            let mut named = listed_there.filter_map(|item| listed(item, "uri"));
            named.any(|own| own == uri) && self.sees_resource(permit, server, uri)
        };
        let shaped = |server: &&Arc<Server>| {
            let seen = server.seen();
            let templates = seen.iter().flat_map(|seen| &seen.templates);
            let mut shapes = templates.filter_map(|item| listed(item, "uriTemplate"));
            shapes.any(|shape| template::fits(&shape, uri))
                && self.sees_resource(permit, server, uri)
        };
        let found = self.seen_by(permit).find(has);
        let found = found.or_else(|| self.seen_by(permit).find(shaped))?;
        Some((found.clone(), uri.to_owned()))
    }

    /// The first server that lists a template.
    fn template(&self, permit: &Permit, template: &str) -> Option<Arc<Server>> {
        let has = |server: &&Arc<Server>| {
            let seen = server.seen();
            let templates = seen.iter().flat_map(|seen| &seen.templates);
            let mut shapes = templates.filter_map(|item| listed(item, "uriTemplate"));
            shapes.any(|shape| shape == template) && self.sees_resource(permit, server, template)
        };
        self.seen_by(permit).find(has).cloned()
    }

    fn resources(&self, permit: &Permit) -> Vec<ResourceCard> {
        let mut cards: Vec<ResourceCard> = Vec::new();
        let mut taken = std::collections::HashSet::new();
        for server in self.seen_by(permit) {
            let Some(seen) = server.seen() else { continue };
            for item in &seen.resources {
                let Some(uri) = listed(item, "uri") else {
                    continue;
                };
                if !self.sees_resource(permit, server, &uri) {
                    continue;
                }
                let uri = if taken.insert(uri.to_string()) {
                    uri.into_owned()
                } else {
                    with_server(server.name(), &uri)
                };
                cards.push(ResourceCard {
                    name: listed(item, "name").unwrap_or_default().into_owned(),
                    uri,
                    listed: Some(self.rules.masks().shared_json(item)),
                    ..ResourceCard::default()
                });
            }
        }
        cards
    }

    fn templates(&self, permit: &Permit) -> Vec<TemplateCard> {
        let mut cards = Vec::new();
        for server in self.seen_by(permit) {
            let Some(seen) = server.seen() else { continue };
            for item in &seen.templates {
                let Some(shape) = listed(item, "uriTemplate") else {
                    continue;
                };
                if self.sees_resource(permit, server, &shape) {
                    cards.push(TemplateCard {
                        uri_template: shape.into_owned(),
                        name: listed(item, "name").unwrap_or_default().into_owned(),
                        listed: Some(self.rules.masks().shared_json(item)),
                        ..TemplateCard::default()
                    });
                }
            }
        }
        cards
    }
}

impl ResourceSource for Resources {
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<ResourceCard>, Fault>> {
        Box::pin(async move {
            self.gateway.see_to_list(permit).await;
            let mut cards = self.gateway.state().resources(permit);
            cards.extend(self.gateway.has_page(permit).then(page));
            Ok(cards)
        })
    }

    fn templates<'a>(
        &'a self,
        permit: &'a Permit,
    ) -> Pending<'a, Result<Vec<TemplateCard>, Fault>> {
        Box::pin(async move {
            self.gateway.see_to_list(permit).await;
            Ok(self.gateway.state().templates(permit))
        })
    }

    fn read<'a>(
        &'a self,
        call: &'a Call,
        uri: &'a str,
    ) -> Pending<'a, Result<Option<Served<Vec<Contents>>>, Fault>> {
        Box::pin(async move {
            let read = if uri == PAGE_URI && self.gateway.has_page(&call.permit) {
                Given::Here(written(&json!({"contents": [page_text(self.names)]})))
            } else {
                let Some((server, own)) = self.gateway.place(&call.permit, uri).await else {
                    return Ok(None);
                };
                let params = raw(&json!({"uri": own}));
                let read = self
                    .gateway
                    .ask(call, &server, "resources/read", &params)
                    .await?;
                if own == uri {
                    read
                } else {
                    addressed(read, &own, uri)
                }
            };
            let keep = self.gateway.0.keep.clone();
            let limits = Limits::of(&self.gateway, call, None);
            let relay = |read, call, keep| async move {
                Served::<Vec<Contents>>::relay(read, uri, &call, keep).await
            };
            served(read, limits, call, keep, relay).await.map(Some)
        })
    }

    fn complete<'a>(
        &'a self,
        permit: &'a Permit,
        template: &'a str,
        partial: Partial<'a>,
    ) -> Pending<'a, Result<Option<Served<Vec<String>>>, Fault>> {
        Box::pin(async move {
            let listed = |state: &State| state.template(permit, template);
            let Some(server) = self.gateway.find(permit, listed).await else {
                return Ok(None);
            };
            let of = json!({"type": "ref/resource", "uri": template});
            self.gateway
                .complete(permit, &server, &of, partial)
                .await
                .map(Some)
        })
    }

    fn tells_updates(&self) -> bool {
        true
    }

    fn watch<'a>(
        &'a self,
        listener: &'a Watcher,
        uri: &'a str,
        on: bool,
    ) -> Pending<'a, Result<(), Fault>> {
        Box::pin(async move {
            let Some((server, own)) = self.gateway.place(&listener.permit, uri).await else {
                return Ok(());
            };
            let watched = server.watch(listener, &own, on).await;
            watched.map_err(|fault| self.gateway.state().rules.masks().fault(fault))
        })
    }
}

/// The page of advice, as it is listed.
fn page() -> ResourceCard {
    ResourceCard {
        uri: PAGE_URI.to_owned(),
        name: "code-execution".to_owned(),
        title: Some("Many calls, few words".to_owned()),
        description: Some("How code makes many calls and shows only what matters.".to_owned()),
        mime_type: Some(MARKDOWN.to_owned()),
        size: Some(PAGE.len() as u64),
        listed: None,
    }
}

fn page_text(names: Names) -> Contents {
    let text = match names {
        Names::Dotted => PAGE.to_owned(),
        Names::Plain => PAGE
            .replace("gateway.", "gateway_")
            .replace("rung.read", "rung_read"),
    };
    Contents {
        uri: PAGE_URI.to_owned(),
        mime_type: Some(MARKDOWN.to_owned()),
        text: Some(text),
        ..Contents::default()
    }
}

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("an object of texts")
}

impl Gateway {
    /// Whether the page of advice is there for somebody: it is for those who call tools by ours.
    fn has_page(&self, permit: &Permit) -> bool {
        self.is_called_by(permit) && self.state().guidance.has_page()
    }

    /// The server that has what stands at an address, and the address there. It may be one that nobody has looked at.
    async fn place(&self, permit: &Permit, uri: &str) -> Option<(Arc<Server>, String)> {
        self.find(permit, |state| state.place(permit, uri)).await
    }

    /// Asks a server something that changes nothing, and gives what it said with what must be masked masked.
    pub(crate) async fn ask(
        &self,
        call: &Call,
        server: &Arc<Server>,
        method: &str,
        params: &RawValue,
    ) -> Result<Given, Fault> {
        let how = How {
            deadline: call.deadline.map(Into::into),
            delegate: Some(Arc::new(Masked::of(self, call))),
            ..How::default()
        };
        let asked = async {
            let instance = server.open(call).await?;
            let answer = instance.connection.converse(method, params, how).await;
            answer.map_err(|error| server.fault(error))
        };
        match asked.await {
            Ok(answer) => given(answer, self.state().rules.masks()).await,
            Err(fault) => Err(self.told(fault, call).await),
        }
    }

    /// Has a server complete an argument.
    pub(crate) async fn complete(
        &self,
        permit: &Permit,
        server: &Arc<Server>,
        of: &Value,
        partial: Partial<'_>,
    ) -> Result<Served<Vec<String>>, Fault> {
        let seen = server.seen();
        let can = seen.is_some_and(|seen| seen.about.capabilities.get("completions").is_some());
        if !can {
            return Ok(Served::Ours(Vec::new()));
        }
        let mut params =
            json!({"ref": of, "argument": {"name": partial.argument, "value": partial.value}});
        if !partial.context.is_empty() {
            params["context"] = json!({"arguments": partial.context});
        }
        let call = Call::new(permit.clone());
        let completed = self
            .ask(&call, server, "completion/complete", &raw(&params))
            .await?;
        match completed {
            Given::Here(result) => Ok(Served::Relayed(result)),
            Given::Long(_) => Ok(Served::Ours(Vec::new())),
        }
    }
}
