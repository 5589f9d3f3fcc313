//! The prompts of downstream servers, as `server::name`, or by the bare name if only one server has it.

use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::Fault;
use rung_tool::{BoxFuture, Call, CompletionQuery, Prompt, PromptCard, PromptSource, SourceResult};
use serde_json::{Map, Value, json};

use crate::direct::Surface;
use crate::gateway::{Gateway, GatewayState};
use crate::policy::PolicySubject;
use crate::resources::text_member;
use crate::server::Server;

/// The downstream prompts as a prompt source.
pub struct DownstreamPrompts {
    pub gateway: Gateway,
    pub surface: Surface,
}

impl GatewayState {
    fn visible_prompts<'a>(
        &'a self,
        permit: &'a Permit,
    ) -> Vec<(Arc<Server>, String, Arc<serde_json::value::RawValue>)> {
        let mut all = Vec::new();
        for server in self.visible_servers(permit) {
            let Some(seen) = server.catalog() else {
                continue;
            };
            for item in &seen.prompts {
                let Some(name) = text_member(item, "name") else {
                    continue;
                };
                let thing = PolicySubject::Prompt {
                    server: server.name(),
                    name: &name,
                };
                if self.is_visible(permit, thing) {
                    all.push((server.clone(), name.into_owned(), item.clone()));
                }
            }
        }
        all
    }

    /// Resolves a prompt's name to a server and the name there.
    fn find_prompt(&self, permit: &Permit, name: &str) -> Option<(Arc<Server>, String)> {
        let all = self.visible_prompts(permit);
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
    /// Resolves a prompt's name to a server and the name there. Lists unlisted servers if necessary.
    async fn find_prompt(&self, permit: &Permit, name: &str) -> Option<(Arc<Server>, String)> {
        self.find_or_wait(permit, |state| state.find_prompt(permit, name))
            .await
    }
}

impl PromptSource for DownstreamPrompts {
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<PromptCard>, Fault>> {
        Box::pin(async move {
            self.gateway.wait_for_complete_list(permit).await;
            let state = self.gateway.state();
            let all = state.visible_prompts(permit);
            let only_one = |name: &str| all.iter().filter(|(_, own, _)| own == name).count() == 1;
            let card = |(server, name, item): &(Arc<Server>, String, _)| PromptCard {
                name: match self.surface {
                    Surface::Direct if only_one(name) => name.clone(),
                    _ => format!("{}::{name}", server.name()),
                },
                listed: Some(state.access.caller_redactor().redact_shared_json(item)),
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
    ) -> BoxFuture<'a, Result<Option<SourceResult<Prompt>>, Fault>> {
        Box::pin(async move {
            let gateway = &self.gateway;
            let Some((server, own)) = gateway.find_prompt(&call.permit, name).await else {
                return Ok(None);
            };
            let mut params = json!({"name": own});
            if !arguments.is_empty() {
                params["arguments"] = json!(arguments);
            }
            let params = serde_json::value::to_raw_value(&params).expect("an object of strings");
            let given = gateway
                .send_read_request(call, &server, "prompts/get", &params)
                .await?;
            let call = gateway.within_policy(call);
            let sink = gateway.0.result_sink.clone();
            let prompt = SourceResult::<Prompt>::relay(given, &call, sink);
            prompt.await.map(Some)
        })
    }

    fn complete<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
        partial: CompletionQuery<'a>,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<String>>>, Fault>> {
        Box::pin(async move {
            let Some((server, own)) = self.gateway.find_prompt(permit, name).await else {
                return Ok(None);
            };
            let of = json!({"type": "ref/prompt", "name": own});
            self.gateway
                .complete_argument(permit, &server, &of, partial)
                .await
                .map(Some)
        })
    }
}
