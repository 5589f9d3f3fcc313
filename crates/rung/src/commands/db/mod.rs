//! `rung db`: a database in a folder.

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

use rung_datalog::{Bounds, Db, Embed, Options};
use rung_edn::{Reader, Value};
use rung_fault::{Code, Fault};

use crate::cli::{DbArgs, DbCommand};
use crate::embeddings::Models;
use crate::exit::Result;
use crate::settings::Settings;

/// `settings` are asked for by what has to do with the data folder, which is no database's, and by what embeds texts.
pub(super) fn run(
    args: DbArgs,
    settings: impl Fn() -> Result<Settings> + Clone + Send + Sync + 'static,
) -> Result {
    let databases = &Databases {
        embed: Arc::new(Models::of(settings.clone())),
    };
    match args.command {
        DbCommand::Query { args, first } => query::run(&args, first, databases, settings),
        DbCommand::Transact(args) => transact::run(&args, databases),
        DbCommand::Pull(args) => pull::run(&args, databases),
        DbCommand::Schema(args) => schema::run(&args, databases),
        DbCommand::Stat { folder } => stat::run(&folder, databases),
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

/// Databases, opened with the models that the settings name.
struct Databases {
    embed: Arc<dyn Embed>,
}

impl Databases {
    /// A database to be read, which must be there.
    fn to_read(&self, folder: &Path) -> Result<Db> {
        let options = Options {
            create: false,
            writable: false,
            embed: Some(self.embed.clone()),
        };
        opened(folder, &options)
    }

    /// A database to be changed, which is made where it is not there.
    fn to_write(&self, folder: &Path) -> Result<Db> {
        let options = Options {
            embed: Some(self.embed.clone()),
            ..Options::default()
        };
        opened(folder, &options)
    }
}

fn opened(folder: &Path, options: &Options) -> Result<Db> {
    if !options.create && !folder.join("data.mdb").is_file() {
        let why = format!("there is no database in {}", folder.display());
        let hint =
            "name the folder of one, or make one with `rung db transact` or `rung db import`";
        return Err(Fault::new(Code::UnknownDatabase, why)
            .with_hint(hint)
            .into());
    }
    Ok(Db::open(folder, options).map_err(Fault::from)?)
}

/// A text that was said, or read: from standard input for `-`, from a file for `@FILE`.
fn text(said: &str) -> Result<String> {
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

/// The values of a text.
fn values(text: &str) -> Result<Vec<Value>> {
    let mut reader = Reader::new(text);
    let mut all = Vec::new();
    while let Some(value) = reader.next_value().map_err(Fault::from)? {
        all.push(value);
    }
    Ok(all)
}

/// The one value of a text.
fn value(said: &str) -> Result<Value> {
    Ok(rung_edn::read(&text(said)?).map_err(Fault::from)?)
}

fn bounds(timeout_ms: Option<u64>) -> Bounds {
    Bounds {
        max_ms: timeout_ms,
        ..Bounds::default()
    }
}
