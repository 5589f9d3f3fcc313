//! Wires databases to the tools for them.

use std::path::PathBuf;
use std::sync::Arc;

use rung_auth::Access;
use rung_db::{Options, Tools};
use rung_fault::Fault;

use crate::embeddings::Models;
use crate::results::Results;
use crate::settings::Settings;

/// What an agent is told of databases.
pub(crate) const INSTRUCTIONS: &str = "\
Databases of facts, asked by Datalog. Open one with datalevin_open_database {\"dir\": \"...\"} and pass its id as database. datalevin_query takes \
EDN text: [:find ?e ?n :where [?e :name ?n]]. A string that begins with a colon is a keyword; {\"~str\": \":x\"} is the text. Long results are \
cut: meta.next is the call that reads on.";

/// Databases wherever they are, and those that the settings name.
pub(crate) fn anywhere(
    allow_writes: bool,
    roots: Vec<PathBuf>,
    settings: &Settings,
    results: &Results,
) -> Result<Tools, Fault> {
    let options = Options {
        allow_writes,
        anywhere: true,
        roots,
        created_below: working_folder(),
        servers: Some(Vec::new()),
        ..options(settings)?
    };
    Tools::new(options, Arc::new(results.shelf.clone()))
}

/// The working folder, unless it is one below which everything lies: the root or the home folder.
fn working_folder() -> Option<PathBuf> {
    let working = std::env::current_dir().ok()?.canonicalize().ok()?;
    let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
    (working.parent().is_some() && home.as_ref() != Some(&working)).then_some(working)
}

/// The databases that the settings name, where they name some.
pub(crate) fn named(settings: &Settings, results: &Results) -> Result<Option<Tools>, Fault> {
    let options = options(settings)?;
    if options.known.is_empty() {
        return Ok(None);
    }
    Tools::new(options, Arc::new(results.shelf.clone())).map(Some)
}

fn options(settings: &Settings) -> Result<Options, Fault> {
    let known = settings.databases()?;
    Ok(Options {
        allow_writes: known.iter().any(|known| known.mode == Access::Write),
        limits: settings.db_limits(),
        known,
        anywhere: false,
        roots: Vec::new(),
        created_below: None,
        servers: None,
        embed: Some(Arc::new(Models::new(settings.embeddings()?))),
        version: env!("CARGO_PKG_VERSION"),
        count_tokens: |text| bpe_openai::o200k_base().count(text),
    })
}
