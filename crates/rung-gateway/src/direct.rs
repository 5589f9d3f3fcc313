//! The servers' tools as if they were ours: each in the list, under its own name where only one has it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use rung_auth::{Access, Permit};
use rung_fault::Fault;
use rung_tool::{Call, Card, Hints, Pending, Reply, TaskUse, ToolSource, unknown_tool};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::answer::{Limits, dressed};
use crate::gateway::Gateway;
use crate::heard::traced;
use crate::invoke::{Order, Outcome};
use crate::policy::Thing;
use crate::redact::Masks;
use crate::seen::{Known, Risk};
use crate::server::Server;

/// How servers are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Surface {
    /// By the tools that find, describe and call theirs.
    #[default]
    Meta,
    /// By their own tools.
    Direct,
}

/// The servers' own tools, as a source.
pub struct Direct(pub Gateway);

/// Bytes of a name that every client takes.
const MAX_NAME_BYTES: usize = 64;
/// Digits of what stands for the rest of a name that is longer.
const DIGITS: usize = 8;
/// How long a call may take.
const TIMEOUT: Duration = Duration::from_mins(5);

type Tool = (String, Arc<Server>, Arc<Known>);

impl Direct {
    /// The tools that somebody sees, by the names they have here.
    fn tools(&self, permit: &Permit) -> Vec<Tool> {
        let (state, known) = (self.0.state(), self.0.shelf());
        let seen = known.tools.iter().filter(|(server, known)| {
            let (server, tool) = (&**server.name(), &*known.tool.name);
            state.sees(permit, Thing::Tool { server, tool })
        });
        let seen: Vec<_> = seen.collect();
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for (_, known) in &seen {
            *counts.entry(&known.tool.name).or_default() += 1;
        }
        let named = seen.iter().map(|(server, known)| {
            let own = &*known.tool.name;
            let name = match counts.get(own) {
                Some(1) => short(own),
                _ => short(&format!("{}__{own}", server.name())),
            };
            (name, server.clone(), known.clone())
        });
        named.collect()
    }

    async fn answer(&self, call: &Call, name: &str, arguments: &RawValue) -> Result<Reply, Fault> {
        let known = |_: &_| self.find(&call.permit, name).ok();
        let found = self.0.find(&call.permit, known).await;
        let (_, server, tool) = found.map_or_else(|| self.find(&call.permit, name), Ok)?;
        let id = format!("{}::{}", server.name(), tool.tool.name);
        let order = Order {
            id: &id,
            arguments,
            meta: traced(None, call),
            timeout: TIMEOUT,
            counts_start: false,
            as_task: None,
        };
        let answer = match self.0.invoke(call, &order).await? {
            (_, Outcome::Done(answer)) => answer,
            (_, Outcome::Task(_)) => unreachable!("nobody asked for a task"),
        };
        let state = self.0.state();
        let limits = Limits::of(&self.0, call, None);
        let keep = self.0.0.keep.clone();
        dressed(answer, None, state.rules.masks(), limits, call, keep).await
    }

    fn find(&self, permit: &Permit, name: &str) -> Result<Tool, Fault> {
        let tools = self.tools(permit);
        let names: Vec<String> = tools.iter().map(|(name, ..)| name.clone()).collect();
        let mut found = tools.into_iter().filter(|(own, ..)| own == name);
        let found = found.next();
        found.ok_or_else(|| unknown_tool(name, names.iter().map(String::as_str)))
    }
}

/// A name that every client takes: what is too long ends with what tells it from others.
fn short(name: &str) -> String {
    if name.len() <= MAX_NAME_BYTES {
        return name.to_owned();
    }
    let digest = HEXLOWER.encode(&Sha256::digest(name));
    let begin = rung_ladder::head(name, MAX_NAME_BYTES - DIGITS - 1);
    format!("{begin}_{}", &digest[..DIGITS])
}

fn card((name, _, known): &Tool, masks: Masks<'_>) -> Card {
    Card {
        name: name.as_str().into(),
        title: masks.text(known.title.as_deref().unwrap_or(name)).into(),
        description: masks.text(&known.description).into(),
        icon: None,
        input_schema: known.tool.input_schema.clone(),
        output_schema: None,
        hints: Hints {
            read_only: known.risk == Risk::Low,
            destructive: known.risk == Risk::High,
            idempotent: known.repeatable,
            open_world: true,
        },
        access: Access::Read,
        // Followed here; to our own callers it is a call like any other.
        tasks: match known.tasks {
            Some(_) => TaskUse::Optional,
            None => TaskUse::Never,
        },
        listed: Some(masks.shared_json(&known.tool.listed)),
    }
}

impl ToolSource for Direct {
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<Card>, Fault>> {
        Box::pin(async move {
            // Whoever lists what nobody has seen waits for it: there is no other way to find it.
            self.0.see_all(permit).await;
            let (tools, state) = (self.tools(permit), self.0.state());
            let card = |tool| card(tool, state.rules.masks());
            Ok(tools.iter().map(card).collect())
        })
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> Pending<'a, Result<Card, Fault>> {
        let state = self.0.state();
        let found = self.find(permit, name);
        let found = found.map(|tool| card(&tool, state.rules.masks()));
        Box::pin(std::future::ready(found))
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> Pending<'a, Reply> {
        Box::pin(async move {
            match self.answer(call, name, arguments).await {
                Ok(reply) => reply,
                Err(fault) => self.0.failed(fault, call).await,
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
        assert_eq!(short(&one).len(), MAX_NAME_BYTES);
        assert_ne!(short(&one), short(&other));
        assert_eq!(short("echo"), "echo");
    }
}
