//! Wires databases to the tools that query them.

use std::path::PathBuf;
use std::sync::Arc;

use rung_auth::Access;
use rung_db::{Options, Tools};
use rung_fault::Fault;

use crate::data_folder::DataFolder;
use crate::embeddings::EmbeddingModels;
use crate::settings::Settings;

/// Server instructions for databases.
pub(crate) const INSTRUCTIONS: &str = "\
Databases of facts, queried with Datalog. Open one with datalevin_open_database {\"dir\": \"...\"} and pass its id as database. datalevin_query takes \
EDN text: [:find ?e ?n :where [?e :name ?n]]. A string that begins with a colon is a keyword; {\"~str\": \":x\"} is the text. Long results are \
cut: meta.next is the call that continues.";

/// Returns the tools of `rung db mcp`: they open databases by folder, within `roots`, and those that the settings name.
pub(crate) fn folder_database_tools(
    allow_writes: bool,
    roots: Vec<PathBuf>,
    settings: &Settings,
    results: &DataFolder,
) -> Result<Tools, Fault> {
    let options = Options {
        allow_writes,
        any_folder: true,
        roots,
        created_below: working_folder(),
        servers: Some(Vec::new()),
        ..tool_options(settings)?
    };
    Tools::new(options, Arc::new(results.result_store.clone()))
}

/// Returns the working folder, or `None` if it is the root or the home folder, which contain too much.
fn working_folder() -> Option<PathBuf> {
    let working = std::env::current_dir().ok()?.canonicalize().ok()?;
    let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
    (working.parent().is_some() && home.as_ref() != Some(&working)).then_some(working)
}

/// Returns the tools for the databases that the settings name, or `None` if they name none.
pub(crate) fn named_database_tools(
    settings: &Settings,
    results: &DataFolder,
) -> Result<Option<Tools>, Fault> {
    let options = tool_options(settings)?;
    if options.databases.is_empty() {
        return Ok(None);
    }
    Tools::new(options, Arc::new(results.result_store.clone())).map(Some)
}

fn tool_options(settings: &Settings) -> Result<Options, Fault> {
    let known = settings.databases()?;
    Ok(Options {
        allow_writes: known.iter().any(|known| known.mode == Access::Write),
        limits: settings.db_limits(),
        databases: known,
        any_folder: false,
        roots: Vec::new(),
        created_below: None,
        servers: None,
        embed: Some(Arc::new(EmbeddingModels::new(settings.embeddings()?))),
        version: env!("CARGO_PKG_VERSION"),
    })
}
