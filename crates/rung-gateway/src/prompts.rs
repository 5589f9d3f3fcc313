//! The servers' prompts, as `server::name`; by the bare name where only one has it.

use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::Fault;
use rung_tool::{Call, Partial, Pending, Prompt, PromptCard, PromptSource, Served};
use serde_json::{Map, Value, json};

use crate::answer::{Limits, served};
use crate::direct::Surface;
use crate::gateway::{Gateway, State};
use crate::policy::Thing;
use crate::resources::listed;
use crate::server::Server;

/// The servers' prompts, as a source.
pub struct Prompts {
    /// The servers.
    pub gateway: Gateway,
    /// How they are shown.
    pub surface: Surface,
}

impl State {
    fn prompts<'a>(
        &'a self,
        permit: &'a Permit,
    ) -> Vec<(Arc<Server>, String, Arc<serde_json::value::RawValue>)> {
        let mut all = Vec::new();
        for server in self.seen_by(permit) {
            let Some(seen) = server.seen() else { continue };
            for item in &seen.prompts {
                let Some(name) = listed(item, "name") else {
                    continue;
                };
                let thing = Thing::Prompt {
                    server: server.name(),
                    name: &name,
                };
                if self.sees(permit, thing) {
                    all.push((server.clone(), name.into_owned(), item.clone()));
                }
            }
        }
        all
    }

    /// The server that a prompt's name means, and its name there.
    fn prompt(&self, permit: &Permit, name: &str) -> Option<(Arc<Server>, String)> {
        let all = self.prompts(permit);
        let is = |server: &Server, own: &str| format!("{}::{own}", server.name()) == name;
        let qualified = all.iter().find(|(server, own, _)| is(server, own));
        let found = qualified.or_else(|| {
            let mut bare = all.iter().filter(|(_, own, _)| own == name);
            let first = bare.next()?;
            bare.next().is_none().then_some(first)
        })?;
        Some((found.0.clone(), found.1.clone()))
    }
}

impl Gateway {
    /// The server that a prompt's name means, and its name there. It may be one that nobody has looked at.
    async fn prompt(&self, permit: &Permit, name: &str) -> Option<(Arc<Server>, String)> {
        self.find(permit, |state| state.prompt(permit, name)).await
    }
}

impl PromptSource for Prompts {
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<PromptCard>, Fault>> {
        Box::pin(async move {
            self.gateway.see_to_list(permit).await;
            let state = self.gateway.state();
            let all = state.prompts(permit);
            let only_one = |name: &str| all.iter().filter(|(_, own, _)| own == name).count() == 1;
            let card = |(server, name, item): &(Arc<Server>, String, _)| PromptCard {
                name: match self.surface {
                    Surface::Direct if only_one(name) => name.clone(),
                    _ => format!("{}::{name}", server.name()),
                },
                listed: Some(state.rules.masks().shared_json(item)),
                ..PromptCard::default()
            };
            Ok(all.iter().map(card).collect())
        })
    }

    fn get<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a Map<String, Value>,
    ) -> Pending<'a, Result<Option<Served<Prompt>>, Fault>> {
        Box::pin(async move {
            let gateway = &self.gateway;
            let Some((server, own)) = gateway.prompt(&call.permit, name).await else {
                return Ok(None);
            };
            let mut params = json!({"name": own});
            if !arguments.is_empty() {
                params["arguments"] = json!(arguments);
            }
            let params = serde_json::value::to_raw_value(&params).expect("an object of texts");
            let given = gateway.ask(call, &server, "prompts/get", &params).await?;
            let keep = gateway.0.keep.clone();
            let limits = Limits::of(gateway, call, None);
            let relay = |given, call, keep| async move {
                Served::<Prompt>::relay(given, &call, keep).await
            };
            served(given, limits, call, keep, relay).await.map(Some)
        })
    }

    fn complete<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
        partial: Partial<'a>,
    ) -> Pending<'a, Result<Option<Served<Vec<String>>>, Fault>> {
        Box::pin(async move {
            let Some((server, own)) = self.gateway.prompt(permit, name).await else {
                return Ok(None);
            };
            let of = json!({"type": "ref/prompt", "name": own});
            self.gateway
                .complete(permit, &server, &of, partial)
                .await
                .map(Some)
        })
    }
}
