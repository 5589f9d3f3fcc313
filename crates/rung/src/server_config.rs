//! Wires tools, resources and prompts into the MCP server.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rung_auth::Permit;
use rung_fault::Fault;
use rung_gateway::{Gateway, Surface};
use rung_kv::{Presence, RecordTable};
use rung_ladder::Budget;
use rung_mcp::{SealKey, ServerConfig, TaskStore};
use rung_pdpp::tools::Tools as Data;
use rung_tool::{
    BoxFuture, Call, Card, NameStyle, PlainNames, PromptSource, PromptSources, Reply,
    ResourceSources, ToolSource, ToolSources, unknown_tool,
};
use serde_json::value::RawValue;

use crate::conformance::Fixtures;
use crate::data_folder::DataFolder;
use crate::databases;
use crate::instructions::build_instructions;
use crate::settings::Settings;
use crate::tokens::is_grant_client;
use crate::tools::ReachableSources;

/// Icon: a ladder.
pub(crate) const ICON: &str = "data:image/svg+xml;base64,PHN2ZyB4bWxucz0naHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmcnIHZpZXdCb3g9JzAgMCAxNiAxNic+PHBhdGggZD0nTTUgMXYxNE0xMSAxdjE0TTUgNGg2TTUgOGg2TTUgMTJoNicgc3Ryb2tlPScjMzY1JyBzdHJva2Utd2lkdGg9JzInIGZpbGw9J25vbmUnLz48L3N2Zz4=";

/// Builds the server configuration: all sources, with names in the given style.
pub(crate) fn build_server_config(
    settings: &Settings,
    results: &DataFolder,
    names: NameStyle,
    fixtures: Option<&Fixtures>,
    data: Option<Arc<Data>>,
    others: Option<(Gateway, Surface)>,
) -> Result<ServerConfig, Fault> {
    let databases = databases::named_database_tools(settings, results)?.map(Arc::new);
    let reachable = ReachableSources {
        data: data.clone(),
        databases: databases.clone(),
        servers: others.as_ref().map(|(gateway, _)| gateway.clone()),
    };
    let own: Arc<dyn ToolSource> = Arc::new(results.toolbox(settings, reachable.clone())?);
    let mut tools: Vec<Arc<dyn ToolSource>> = Vec::new();
    let mut resources: Vec<Arc<dyn rung_tool::ResourceSource>> =
        vec![Arc::new(results.resources())];
    if let Some(data) = data {
        resources.push(data.clone());
        tools.push(data);
        tools.push(Arc::new(NonGrantOnly(own)));
    } else {
        tools.push(own);
    }
    if let Some(databases) = databases {
        tools.push(Arc::new(NonGrantOnly(databases)));
    }
    let mut prompts: Vec<Arc<dyn PromptSource>> = Vec::new();
    let mut changes = None;
    if let Some((gateway, surface)) = others {
        changes = Some(gateway.changes());
        let theirs: Arc<dyn ToolSource> = match surface {
            Surface::Meta => Arc::new(rung_gateway::Tools::new(gateway.clone())?),
            Surface::Direct => Arc::new(rung_gateway::DirectTools(gateway.clone())),
        };
        tools.push(Arc::new(NonGrantOnly(theirs)));
        resources.push(Arc::new(rung_gateway::DownstreamResources {
            gateway: gateway.clone(),
            names,
        }));
        prompts.push(Arc::new(rung_gateway::DownstreamPrompts {
            gateway,
            surface,
        }));
    }
    if let Some(fixtures) = fixtures {
        prompts.push(Arc::new(fixtures.clone()));
        changes = Some(fixtures.changes.clone());
        tools.push(Arc::new(fixtures.clone()));
        resources.push(Arc::new(fixtures.clone()));
    }
    // A single source needs no dispatch.
    let tools: Arc<dyn ToolSource> = match <[_; 1]>::try_from(tools) {
        Ok([only]) => only,
        Err(several) => Arc::new(ToolSources(several)),
    };
    let tools: Arc<dyn ToolSource> = match names {
        NameStyle::Dotted => tools,
        NameStyle::Plain => Arc::new(PlainNames(tools)),
    };
    Ok(ServerConfig {
        name: "rung".to_owned(),
        title: "Rung".to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        face: rung_fault::Face::Rung,
        icon: ICON.to_owned(),
        // What a caller reaches can change while serving.
        instructions: Box::new(move |permit| {
            let reachable = reachable.clone();
            Box::pin(async move { build_instructions(&reachable, permit, names).await })
        }),
        tools,
        resources: Arc::new(ResourceSources(resources)),
        prompts: (!prompts.is_empty()).then(|| Arc::new(PromptSources(prompts)) as _),
        changes,
        budget: Budget::bytes(settings.reply_max_bytes()),
        page_bytes: settings.page_max_bytes(),
        deadlines: settings.call_deadlines(),
        key: SealKey::new(results.request_key()?),
        tasks: Some(Arc::new(StoredTasks {
            records: results.tasks(),
            presence: results.presence()?,
        })),
    })
}

/// Tools for callers that hold a token of this server or none. A client under a personal-data grant does not see them: it gets
/// the personal-data tools alone, on every server alike.
struct NonGrantOnly(Arc<dyn ToolSource>);

impl ToolSource for NonGrantOnly {
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<Card>, Fault>> {
        if is_grant_client(permit) {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        self.0.list(permit)
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Card, Fault>> {
        if is_grant_client(permit) {
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
    ) -> BoxFuture<'a, Reply> {
        if is_grant_client(&call.permit) {
            let fault = unknown_tool(name, std::iter::empty());
            let reply = Reply::failed(&fault, rung_fault::Face::Rung, call);
            return Box::pin(std::future::ready(reply));
        }
        self.0.call(call, name, arguments)
    }
}

/// Tasks on disk, with the processes that own them.
struct StoredTasks {
    records: RecordTable,
    presence: Presence,
}

impl TaskStore for StoredTasks {
    fn put(&self, id: &str, record: &[u8], expires_ms: u64) -> Result<(), Fault> {
        Ok(self.records.put(id, record, Some(expires_ms))?)
    }

    fn get(&self, id: &str) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.records.get(id, now_ms())?)
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8])) -> Result<(), Fault> {
        Ok(self.records.for_each(now_ms(), |_, record| visit(record))?)
    }

    fn sweep(&self) -> Result<(), Fault> {
        Ok(self.records.sweep(now_ms())?)
    }

    fn process_name(&self) -> &str {
        self.presence.name()
    }

    fn is_alive(&self, process: &str) -> bool {
        self.presence.is_running(process)
    }
}

/// Returns the current time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
