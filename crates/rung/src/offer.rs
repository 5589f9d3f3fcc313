//! Wires everything that is behind the door to the protocol.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rung_auth::Permit;
use rung_fault::Fault;
use rung_gateway::{Gateway, Surface};
use rung_kv::{Presence, Records};
use rung_ladder::Budget;
use rung_mcp::{Offer, SealKey, TaskStore};
use rung_pdpp::tools::Tools as Data;
use rung_tool::{
    Call, Card, Names, Pending, Plain, PromptSource, Prompts, Reply, Resources, Sources,
    ToolSource, unknown_tool,
};
use serde_json::value::RawValue;

use crate::conformance::Fixtures;
use crate::databases;
use crate::results::Results;
use crate::settings::Settings;
use crate::tokens::is_agent;
use crate::tools::Reachable;

/// A ladder in a door.
pub(crate) const ICON: &str = "data:image/svg+xml;base64,PHN2ZyB4bWxucz0naHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmcnIHZpZXdCb3g9JzAgMCAxNiAxNic+PHBhdGggZD0nTTUgMXYxNE0xMSAxdjE0TTUgNGg2TTUgOGg2TTUgMTJoNicgc3Ryb2tlPScjMzY1JyBzdHJva2Utd2lkdGg9JzInIGZpbGw9J25vbmUnLz48L3N2Zz4=";

/// What is offered, from this data folder.
pub(crate) fn offer(
    settings: &Settings,
    results: &Results,
    names: Names,
    fixtures: Option<&Fixtures>,
    data: Option<Arc<Data>>,
    others: Option<(Gateway, Surface)>,
) -> Result<Offer, Fault> {
    let databases = databases::named(settings, results)?.map(Arc::new);
    let reachable = Reachable {
        data: data.clone().map(|data| data as Arc<dyn ToolSource>),
        databases: databases.clone(),
        servers: others.as_ref().map(|(gateway, _)| gateway.clone()),
    };
    let own: Arc<dyn ToolSource> = Arc::new(results.toolbox(settings, reachable)?);
    let mut tools: Vec<Arc<dyn ToolSource>> = Vec::new();
    let mut resources: Vec<Arc<dyn rung_tool::ResourceSource>> =
        vec![Arc::new(results.resources())];
    let mut instructions = String::new();
    if let Some(data) = data {
        instructions.push_str(rung_pdpp::tools::INSTRUCTIONS);
        instructions.push('\n');
        resources.push(data.clone());
        tools.push(data);
        tools.push(Arc::new(ForGuests(own)));
    } else {
        tools.push(own);
    }
    if let Some(databases) = databases {
        instructions.push_str(databases::INSTRUCTIONS);
        let list = names.show("rung.db_list");
        instructions.extend([" ", &*list, " names those that you may open.\n"]);
        tools.push(Arc::new(ForGuests(databases)));
    }
    let mut prompts: Vec<Arc<dyn PromptSource>> = Vec::new();
    let mut changes = None;
    let told = others.as_ref().map(|(gateway, _)| gateway.clone());
    if let Some((gateway, surface)) = others {
        changes = Some(gateway.changes());
        let theirs: Arc<dyn ToolSource> = match surface {
            Surface::Meta => Arc::new(rung_gateway::Tools::new(gateway.clone())?),
            Surface::Direct => Arc::new(rung_gateway::Direct(gateway.clone())),
        };
        tools.push(Arc::new(ForGuests(theirs)));
        resources.push(Arc::new(rung_gateway::Resources {
            gateway: gateway.clone(),
            names,
        }));
        prompts.push(Arc::new(rung_gateway::Prompts { gateway, surface }));
    }
    if let Some(fixtures) = fixtures {
        prompts.push(Arc::new(fixtures.clone()));
        changes = Some(fixtures.changes.clone());
        tools.push(Arc::new(fixtures.clone()));
        resources.push(Arc::new(fixtures.clone()));
    }
    // One source needs nobody to choose between several.
    let tools: Arc<dyn ToolSource> = match <[_; 1]>::try_from(tools) {
        Ok([only]) => only,
        Err(several) => Arc::new(Sources(several)),
    };
    let tools: Arc<dyn ToolSource> = match names {
        Names::Dotted => tools,
        Names::Plain => Arc::new(Plain(tools)),
    };
    let (about, read) = (names.show("rung.about"), names.show("rung.read"));
    let ladder = format!(
        "Answers are bounded, and nothing is lost: where meta.truncated is true, the whole answer is kept under \
         meta.handle. Call {read} with the handle for any part of it, by cursor, lines, path, pattern or match. \
         {about} says what is behind this door for you."
    );
    Ok(Offer {
        name: "rung".to_owned(),
        title: "Rung".to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        face: rung_fault::Face::Rung,
        icon: ICON.to_owned(),
        // Other servers may come and go.
        instructions: Box::new(move |permit| {
            let told = told.as_ref().filter(|_| !is_agent(permit));
            let others = told.map(|gateway| gateway.instructions(permit, names));
            format!("{instructions}{}{ladder}", others.unwrap_or_default())
        }),
        tools,
        resources: Arc::new(Resources(resources)),
        prompts: (!prompts.is_empty()).then(|| Arc::new(Prompts(prompts)) as _),
        changes,
        budget: Budget::bytes(settings.reply_max_bytes()),
        key: SealKey::new(results.request_key()?),
        tasks: Some(Arc::new(KeptTasks {
            records: results.tasks(),
            presence: results.presence()?,
        })),
    })
}

/// What is for those who came with a token of our own, or with none. Whoever reads personal data under a grant is offered that
/// data, by the same tools wherever they read it.
struct ForGuests(Arc<dyn ToolSource>);

impl ToolSource for ForGuests {
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<Card>, Fault>> {
        if is_agent(permit) {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        self.0.list(permit)
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> Pending<'a, Result<Card, Fault>> {
        if is_agent(permit) {
            let fault = unknown_tool(name, std::iter::empty());
            return Box::pin(std::future::ready(Err(fault)));
        }
        self.0.describe(permit, name)
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> Pending<'a, Reply> {
        if is_agent(&call.permit) {
            let fault = unknown_tool(name, std::iter::empty());
            let reply = Reply::failed(&fault, rung_fault::Face::Rung, call);
            return Box::pin(std::future::ready(reply));
        }
        self.0.call(call, name, arguments)
    }
}

/// Tasks, on disk.
struct KeptTasks {
    records: Records,
    presence: Presence,
}

impl TaskStore for KeptTasks {
    fn put(&self, id: &str, record: &[u8], expires_ms: u64) -> Result<(), Fault> {
        Ok(self.records.put(id, record, Some(expires_ms))?)
    }

    fn get(&self, id: &str) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.records.get(id, now_ms())?)
    }

    fn each(&self, visit: &mut dyn FnMut(&[u8])) -> Result<(), Fault> {
        Ok(self.records.each(now_ms(), |_, record| visit(record))?)
    }

    fn sweep(&self) -> Result<(), Fault> {
        Ok(self.records.sweep(now_ms())?)
    }

    fn process(&self) -> &str {
        self.presence.name()
    }

    fn is_alive(&self, process: &str) -> bool {
        self.presence.is_here(process)
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
