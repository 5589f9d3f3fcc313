//! `rung db`: commands on a database in a folder.

mod dump;
mod explain;
mod import;
mod mcp;
mod model;
mod pull;
mod query;
mod repl;
mod schema;
mod show;
mod stat;
mod transact;

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use rung_datalog::{Bounds, Db, DbOptions, Embed};
use rung_edn::{Reader, Value};
use rung_fault::{Code, Fault};

use crate::cli::{DbArgs, DbCommand};
use crate::embeddings::EmbeddingModels;
use crate::exit::Result;
use crate::settings::Settings;

/// Runs a command. `settings` are loaded only by commands that use the data folder or embed texts.
pub(super) fn run(
    args: DbArgs,
    settings: impl Fn() -> Result<Settings> + Clone + Send + Sync + 'static,
) -> Result {
    let databases = &DatabaseOpener {
        embed: Arc::new(EmbeddingModels::from_settings(settings.clone())),
    };
    match args.command {
        DbCommand::Query { args, first } => query::run(&args, first, databases, settings),
        DbCommand::Transact(args) => transact::run(&args, databases),
        DbCommand::Pull(args) => pull::run(&args, databases),
        DbCommand::Schema(args) => schema::run(&args, databases),
        DbCommand::Stat { folder, json } => stat::run(&folder, json, databases),
        DbCommand::Explain(args) => explain::run(&args, databases),
        DbCommand::Import(args) => import::run(&args, databases),
        DbCommand::Dump { folder } => dump::run(&folder, databases),
        DbCommand::Mcp { allow_writes, root } => {
            mcp::run(args.allow_writes || allow_writes, &root, &settings()?)
        }
        DbCommand::Model { from } => model::run(&from, &settings()?),
        DbCommand::Repl { folder } => repl::run(&folder, databases),
    }
}

/// Opens databases with the embedding models of the settings.
struct DatabaseOpener {
    embed: Arc<dyn Embed>,
}

impl DatabaseOpener {
    /// Opens an existing database for reading.
    fn open_for_reading(&self, folder: &Path) -> Result<Db> {
        let options = DbOptions {
            create: false,
            writable: false,
            embed: Some(self.embed.clone()),
        };
        open_database(folder, &options)
    }

    /// Opens a database for writing, and creates it if it does not exist.
    fn open_for_writing(&self, folder: &Path) -> Result<Db> {
        let options = DbOptions {
            embed: Some(self.embed.clone()),
            ..DbOptions::default()
        };
        open_database(folder, &options)
    }
}

fn open_database(folder: &Path, options: &DbOptions) -> Result<Db> {
    if !options.create && !folder.join("data.mdb").is_file() {
        let why = format!("no database in {}", folder.display());
        let hint = "name the folder of a database, or create one with `rung db transact` or `rung db import`";
        return Err(Fault::new(Code::UnknownDatabase, why)
            .with_hint(hint)
            .into());
    }
    Ok(Db::open(folder, options).map_err(Fault::from)?)
}

/// Returns the argument itself, or reads standard input for `-` and a file for `@FILE`.
fn read_argument(said: &str) -> Result<String> {
    let failed = |what: &str, error: std::io::Error| {
        Fault::new(
            Code::InvalidArguments,
            format!("{what} cannot be read: {error}"),
        )
    };
    if said == "-" {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        read.map_err(|error| failed("standard input", error))?;
        return Ok(text);
    }
    match said.strip_prefix('@') {
        Some(file) => Ok(std::fs::read_to_string(file).map_err(|error| failed(file, error))?),
        None => Ok(said.to_owned()),
    }
}

/// Parses all EDN values of a text.
fn parse_values(text: &str) -> Result<Vec<Value>> {
    let mut reader = Reader::new(text);
    let mut all = Vec::new();
    while let Some(value) = reader.next_value().map_err(Fault::from)? {
        all.push(value);
    }
    Ok(all)
}

/// Parses the one EDN value of an argument.
fn parse_argument(said: &str) -> Result<Value> {
    Ok(rung_edn::read(&read_argument(said)?).map_err(Fault::from)?)
}

/// Parses the query of an argument.
fn parse_query(said: &str) -> Result<Value> {
    Ok(rung_datalog::read_query(&read_argument(said)?).map_err(Fault::from)?)
}

fn query_bounds(timeout_ms: Option<u64>) -> Bounds {
    Bounds {
        max_ms: timeout_ms,
        ..Bounds::default()
    }
}
