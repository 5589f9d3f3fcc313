//! The direct surface: downstream tools listed one by one, under their own names where these are unique.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use rung_auth::{Access, Permit};
use rung_fault::Fault;
use rung_tool::{
    BoxFuture, Call, Card, Hints, Reply, TaskUse, ToolSource, flat_definition, unknown_tool,
    within_deadline,
};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::answer::redacted;
use crate::catalog::{CatalogTool, Risk};
use crate::delegate::with_trace_context;
use crate::gateway::Gateway;
use crate::invoke::{Invocation, InvokeOutcome};
use crate::policy::PolicySubject;
use crate::redact::CallerRedactor;
use crate::server::Server;

/// How downstream tools are shown to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Surface {
    /// Through the `gateway.*` tools that search, describe and call them.
    #[default]
    Meta,
    /// As tools of their own.
    Direct,
}

/// The downstream tools as a tool source.
pub struct DirectTools(pub Gateway);

/// Longest name that every client accepts.
const MAX_NAME_BYTES: usize = 64;
/// Digits of the digest that replaces the end of a longer name.
const DIGEST_DIGITS: usize = 8;
const CALL_TIMEOUT: Duration = Duration::from_mins(5);

/// The hints of a tool that is not listed yet.
const UNKNOWN_TOOL_HINTS: Hints = Hints {
    read_only: false,
    destructive: true,
    idempotent: false,
    open_world: true,
};

type NamedTool = (String, Arc<Server>, Arc<CatalogTool>);

impl DirectTools {
    /// Returns the visible tools with the names they are listed under.
    fn visible_tools(&self, permit: &Permit) -> Vec<NamedTool> {
        let (state, known) = (self.0.state(), self.0.tool_index());
        let seen = known.tools.iter().filter(|(server, known)| {
            let (server, tool) = (&**server.name(), &*known.tool.name);
            state.is_visible(permit, PolicySubject::Tool { server, tool })
        });
        let seen: Vec<_> = seen.collect();
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for (_, known) in &seen {
            *counts.entry(&known.tool.name).or_default() += 1;
        }
        let named = seen.iter().map(|(server, known)| {
            let own = &*known.tool.name;
            let name = match counts.get(own) {
                Some(1) => shorten_name(own),
                _ => shorten_name(&format!("{}__{own}", server.name())),
            };
            (name, server.clone(), known.clone())
        });
        named.collect()
    }

    async fn call_tool(
        &self,
        call: &Call,
        name: &str,
        arguments: &RawValue,
    ) -> Result<Reply, Fault> {
        let known = |_: &_| self.find(&call.permit, name).ok();
        let found = self.0.find_or_wait(&call.permit, known).await;
        let (_, server, tool) = found.map_or_else(|| self.find(&call.permit, name), Ok)?;
        let id = format!("{}::{}", server.name(), tool.tool.name);
        let order = Invocation {
            tool_id: &id,
            arguments,
            meta: with_trace_context(None, call),
            timeout: CALL_TIMEOUT,
            timeout_includes_start: false,
            task_options: None,
        };
        let answer = match self.0.invoke(call, &order).await? {
            (_, InvokeOutcome::Done(answer)) => answer,
            (_, InvokeOutcome::Task(_)) => unreachable!("nobody asked for a task"),
        };
        let state = self.0.state();
        let result = redacted(answer, state.access.caller_redactor()).await?;
        Reply::relay(result.into(), call, self.0.0.result_sink.clone()).await
    }

    fn find(&self, permit: &Permit, name: &str) -> Result<NamedTool, Fault> {
        let tools = self.visible_tools(permit);
        let names: Vec<String> = tools.iter().map(|(name, ..)| name.clone()).collect();
        let mut found = tools.into_iter().filter(|(own, ..)| own == name);
        let found = found.next();
        found.ok_or_else(|| unknown_tool(name, names.iter().map(String::as_str)))
    }
}

/// Shortens a name that is too long; a digest at its end keeps it unique.
fn shorten_name(name: &str) -> String {
    if name.len() <= MAX_NAME_BYTES {
        return name.to_owned();
    }
    let digest = HEXLOWER.encode(&Sha256::digest(name));
    let begin = rung_ladder::head(name, MAX_NAME_BYTES - DIGEST_DIGITS - 1);
    format!("{begin}_{}", &digest[..DIGEST_DIGITS])
}

fn hints(known: &CatalogTool) -> Hints {
    Hints {
        read_only: known.risk == Risk::Low,
        destructive: known.risk == Risk::High,
        idempotent: known.idempotent,
        open_world: true,
    }
}

fn card((name, _, known): &NamedTool, masks: CallerRedactor<'_>) -> Card {
    let definition = &known.tool.definition;
    let listed = flat_definition(definition).map_or_else(|| definition.clone(), Arc::from);
    Card {
        name: name.as_str().into(),
        title: masks
            .redact_text(known.title.as_deref().unwrap_or(name))
            .into(),
        description: masks.redact_text(&known.description).into(),
        icon: None,
        input_schema: known.tool.input_schema.clone(),
        output_schema: None,
        hints: hints(known),
        access: Access::Read,
        // The gateway follows the downstream task itself; for the caller it is an ordinary call.
        tasks: match known.task_support {
            Some(_) => TaskUse::Optional,
            None => TaskUse::Never,
        },
        is_entry: false,
        search_hint: "",
        listed: Some(masks.redact_shared_json(&listed)),
    }
}

impl ToolSource for DirectTools {
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<Card>, Fault>> {
        Box::pin(async move {
            // A client of this surface cannot find tools except in this list, so it waits for unlisted servers.
            self.0.wait_until_listed(permit).await;
            let (tools, state) = (self.visible_tools(permit), self.0.state());
            let card = |tool| card(tool, state.access.caller_redactor());
            Ok(tools.iter().map(card).collect())
        })
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Card, Fault>> {
        Box::pin(async move {
            let known = |_: &_| self.find(permit, name).ok();
            let found = self.0.find_or_wait(permit, known).await;
            let found = found.map_or_else(|| self.find(permit, name), Ok);
            let state = self.0.state();
            found.map(|tool| card(&tool, state.access.caller_redactor()))
        })
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            let call = self.0.within_policy(call);
            let known = self.find(&call.permit, name);
            let hints = known.map_or(UNKNOWN_TOOL_HINTS, |(_, _, known)| hints(&known));
            let called = within_deadline(&call, hints, self.call_tool(&call, name, arguments));
            match called.await.flatten() {
                Ok(reply) => reply,
                Err(fault) => self.0.failed(fault, &call).await,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_shortened_to_one_that_is_its_own() {
        let (one, other) = ("x".repeat(70) + "1", "x".repeat(70) + "2");
        assert_eq!(shorten_name(&one).len(), MAX_NAME_BYTES);
        assert_ne!(shorten_name(&one), shorten_name(&other));
        assert_eq!(shorten_name("echo"), "echo");
    }
}
