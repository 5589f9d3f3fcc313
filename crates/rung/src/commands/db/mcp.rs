//! `rung db mcp`: databases as tools for one MCP client on standard input and output.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Fault};
use rung_ladder::Budget;
use rung_mcp::{McpServer, SealKey, ServerConfig, stdio};
use rung_tool::ToolSources;

use crate::data_folder::DataFolder;
use crate::databases;
use crate::exit::Result;
use crate::settings::Settings;
use crate::tools::ReachableSources;

pub(super) fn run(allow_writes: bool, roots: &[PathBuf], settings: &Settings) -> Result {
    crate::commands::log_to_stderr(settings);
    let results = DataFolder::open(settings)?;
    let root = |root: &PathBuf| {
        let why = |error: io::Error| {
            Fault::new(
                Code::InvalidArguments,
                format!("{}: {error}", root.display()),
            )
        };
        root.canonicalize().map_err(why)
    };
    // `--root` replaces the roots of the settings.
    let roots = if roots.is_empty() {
        settings.roots()
    } else {
        roots
    };
    let roots = roots.iter().map(root);
    let roots = roots.collect::<std::result::Result<_, _>>()?;
    let databases = databases::folder_database_tools(allow_writes, roots, settings, &results)?;
    let databases = Arc::new(databases);
    let reachable = ReachableSources {
        databases: Some(databases.clone()),
        ..ReachableSources::default()
    };
    let own = results.toolbox(settings, reachable)?;
    let server = McpServer::new(ServerConfig {
        name: "rung-db".to_owned(),
        title: "Databases".to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        face: rung_fault::Face::Datalevin,
        icon: crate::server_config::ICON.to_owned(),
        instructions: Box::new(|_| {
            Box::pin(std::future::ready(databases::INSTRUCTIONS.to_owned()))
        }),
        tools: Arc::new(ToolSources(vec![databases, Arc::new(own)])),
        resources: Arc::new(results.resources()),
        prompts: None,
        changes: None,
        budget: Budget::bytes(settings.db_limits().max_bytes),
        page_bytes: settings.db_limits().max_bytes,
        deadlines: settings.call_deadlines(),
        key: SealKey::new(results.request_key()?),
        tasks: None,
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
    let permit = Permit::local_user(Access::Write);
    let input = io::BufReader::with_capacity(64 << 10, io::stdin());
    let stop = crate::commands::stop_signal();
    rung_memory::release_text_pages();
    runtime.block_on(stdio::serve(server, permit, input, io::stdout(), stop));
    // The thread that reads standard input must not delay the exit.
    runtime.shutdown_background();
    Ok(())
}
