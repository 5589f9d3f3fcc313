//! The command line as types. `commands` runs them.
#![allow(
    clippy::doc_markdown,
    rustdoc::bare_urls,
    rustdoc::broken_intra_doc_links,
    reason = "these comments are the help that people read"
)]

mod db;
mod examples;
mod gateway;
mod pdpp;
mod results;
mod serve;
mod server_target;

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

pub(crate) use db::{
    DbArgs, DbCommand, DbFormat, DbImportArgs, DbOutputFormat, DbPullArgs, DbQueryArgs,
    DbSchemaArgs, DbTransactArgs,
};
pub(crate) use gateway::{
    GatewayArgs, GatewayCommand, GatewayFiles, GatewayServeArgs, GatewayTransport, LogFormat,
};
pub(crate) use pdpp::{
    AdapterArgs, ConnectionsCommand, DemoArgs, GrantCommand, IngestArgs, OwnerCommand, PdppCommand,
    ProviderCommand,
};
pub(crate) use results::{ReadArgs, ReplyFormat, ResultCommand};
pub(crate) use serve::{PersonalDataArgs, PersonalDataTools, ServeArgs, ToolNames};
pub(crate) use server_target::{CallArgs, EraName, InspectArgs, ServerTargetArgs};

/// Text that the long help and the manual page add after the options.
const MORE: &str = "\
Settings come from flags, RUNG_* variables, the nearest rung.toml, the user's rung/config.toml, and defaults, in that \
order; `rung config show` prints where each value comes from.

Exit status: 0 success; 2 the command line does not parse; 64 the request is not valid; 66 not found; 69 a source failed; \
70 Rung or the disk failed; 73 a limit is exceeded; 74 output could not be written; 75 temporary failure, try again later; \
77 not permitted.";

/// Program names under which this binary can be started, each with the subcommand that it stands for.
const PROGRAM_ALIASES: [(&str, &[&str]); 4] = [
    ("pmcp", &["gateway"]),
    ("pdpp", &["pdpp"]),
    ("pdpp-mcp-server", &["pdpp", "mcp"]),
    ("dtlv", &["db"]),
];

/// Parses the command line. Prints help or an error and exits if there is no command to run.
pub(crate) fn parse() -> Cli {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    let said: Vec<_> = std::env::args_os().collect();
    let other = program_alias(&said);
    let mut meant = said.clone();
    if let Some((_, commands)) = other {
        meant.splice(1..1, commands.iter().map(std::ffi::OsString::from));
    }
    let adapter = meant.windows(2).any(|two| two == ["pdpp", "mcp"]);
    let told = match Cli::try_parse_from(&meant) {
        Ok(cli) => return cli,
        Err(told) => match other {
            Some((name, commands)) => error_for_program(name, commands, said).unwrap_or(told),
            None => command().try_get_matches_from(meant).err().unwrap_or(told),
        },
    };
    // The client of an adapter reads MCP messages from standard output, so help goes to standard error.
    if adapter && matches!(told.kind(), DisplayHelp | DisplayVersion) {
        crate::print::prompt!("{told}");
        std::process::exit(0);
    }
    told.exit()
}

/// The whole command line with its examples, which parsing does without.
pub(crate) fn command() -> clap::Command {
    examples::add(Cli::command(), "rung")
}

type ProgramAlias = (&'static str, &'static [&'static str]);

/// Returns the alternative program name that this process was started under, if any.
fn program_alias(said: &[std::ffi::OsString]) -> Option<ProgramAlias> {
    let name = std::path::Path::new(said.first()?).file_stem()?;
    let mut known = PROGRAM_ALIASES.into_iter();
    known.find(|(other, _)| name == *other)
}

/// Returns the help or the error for a command line, as a program of that name would print it.
fn error_for_program(
    name: &'static str,
    commands: &[&str],
    said: Vec<std::ffi::OsString>,
) -> Option<clap::Error> {
    let whole = Cli::command();
    let globals = whole.get_arguments().filter(|one| one.is_global_set());
    let meant = commands
        .iter()
        .try_fold(&whole, |command, name| command.find_subcommand(name))?;
    let program = meant.clone().name(name).bin_name(name).args(globals);
    let program = program.version(env!("CARGO_PKG_VERSION"));
    program.try_get_matches_from(said).err()
}

/// Give AI agents controlled access to personal data, databases and MCP servers.
#[derive(Debug, Parser)]
#[command(
    name = "rung",
    version,
    arg_required_else_help = true,
    after_long_help = MORE
)]
pub(crate) struct Cli {
    /// Data folder.
    #[arg(long, global = true, help_heading = "Global options", value_name = "DIR", env = None)]
    pub(crate) home: Option<PathBuf>,
    /// Override a setting, such as log=debug; repeatable. `rung config show` lists the settings.
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        value_name = "KEY=VALUE"
    )]
    pub(crate) set: Vec<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of them, once")]
pub(crate) enum Command {
    /// Show the settings and where they come from, and approve a project's settings file.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Serve one MCP client over standard input and output.
    ///
    /// The client reaches stored results, the databases of the settings and the downstream servers. For personal data see
    /// `rung pdpp mcp`.
    Mcp(McpArgs),
    /// Serve MCP clients and personal data over HTTP.
    ///
    /// The paths are /mcp for MCP, /v1 for personal data, and /health and /metrics for monitoring. Ctrl-C or SIGTERM stops the
    /// server.
    Serve(ServeArgs),
    /// Create, list and revoke bearer tokens.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Manage personal data and who may read it, and read what other providers grant.
    #[command(subcommand)]
    Pdpp(PdppCommand),
    /// Query, change, import and dump Datalog databases.
    Db(DbArgs),
    /// Serve downstream MCP servers as one server; the subcommands inspect and approve them.
    #[command(args_conflicts_with_subcommands = true, version)]
    Gateway(GatewayArgs),
    /// Create sample personal data, serve it, and print how an agent connects.
    ///
    /// The data is in --home, by default the folder rung-demo in the working folder. RUNG_HOME has no effect.
    Demo(DemoArgs),
    /// Copy the data folder as one consistent snapshot, even while it is in use.
    ///
    /// The copy holds personal data, stored results, tokens and tasks. Databases in other folders and approvals of servers are
    /// not part of it.
    Backup {
        /// New folder for the copy.
        to: PathBuf,
    },
    /// Create a data folder from a backup.
    Restore {
        /// Folder that `rung backup` created.
        from: PathBuf,
    },
    /// Call a tool of any MCP server.
    Call(CallArgs),
    /// List the tools, resources and prompts of any MCP server, and their size in bytes and tokens.
    Inspect(InspectArgs),
    /// Run a command and end it when the process that started it is gone.
    #[command(hide = true)]
    KeepChild {
        /// Process ID of the starter.
        parent: u32,
        /// Command to run.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Run one client scenario of the MCP conformance suite.
    #[command(hide = true)]
    ConformanceClient {
        /// URL of the suite's server.
        url: String,
    },
    /// Store results, and list, read, export and remove stored ones.
    #[command(subcommand)]
    Result(ResultCommand),
    /// Print the completion script for a shell.
    Completions {
        /// Shell to complete for.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write the pages of all commands into a folder.
    Man {
        /// Folder for one page per command.
        dir: Option<PathBuf>,
    },
}

impl Command {
    /// Returns true if the command only reads, ends or copies what a data folder already holds. A missing data folder is then
    /// an error of the caller and is not created.
    pub(crate) fn needs_data(&self) -> bool {
        match self {
            Self::Backup { .. } => true,
            Self::Result(command) => !matches!(command, ResultCommand::Store { .. }),
            Self::Token(command) => !matches!(command, TokenCommand::New { .. }),
            Self::Pdpp(PdppCommand::Owner(command)) => match command {
                OwnerCommand::Connections(command) => {
                    !matches!(command, ConnectionsCommand::Put { .. })
                }
                OwnerCommand::Grant(command) => !matches!(command, GrantCommand::Issue { .. }),
                OwnerCommand::Keep { .. }
                | OwnerCommand::Erase { .. }
                | OwnerCommand::Disclosures { .. } => true,
                OwnerCommand::Register { .. }
                | OwnerCommand::Ingest(_)
                | OwnerCommand::OwnerToken { .. }
                | OwnerCommand::Password { .. }
                | OwnerCommand::ResourceServer { .. } => false,
            },
            Self::Gateway(args) => matches!(
                args.command,
                Some(GatewayCommand::Status { .. } | GatewayCommand::Why { .. })
            ),
            Self::Config(_)
            | Self::Mcp(_)
            | Self::Serve(_)
            | Self::Pdpp(PdppCommand::Mcp(_) | PdppCommand::Provider(_))
            | Self::Db(_)
            | Self::Demo(_)
            | Self::Restore { .. }
            | Self::Call(_)
            | Self::Inspect(_)
            | Self::KeepChild { .. }
            | Self::ConformanceClient { .. }
            | Self::Completions { .. }
            | Self::Man { .. } => false,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting with its value and where it comes from.
    Show {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Approve this project's rung.toml with its current content.
    Trust {
        /// Approve without asking.
        #[arg(long)]
        yes: bool,
    },
    /// Revoke the approval of this project's rung.toml.
    Untrust,
    /// Print the reference of all settings as Markdown.
    #[command(hide = true)]
    Reference,
}

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// Style of tool names: dotted, or plain for clients that reject dots.
    #[arg(long, value_enum, default_value_t = ToolNames::Dotted, value_name = "NAMES")]
    pub(crate) tool_names: ToolNames,
    #[command(flatten)]
    pub(crate) gateway: GatewayFiles,
    /// Add the tools, resources and prompts that the MCP conformance suite calls.
    #[arg(long, hide = true)]
    pub(crate) conformance: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it once.
    ///
    /// Without a grant file, a token reaches the stored results of its bearer and, with --write, databases that are open to
    /// tokens and all downstream servers. A grant file lists what the token may reach:
    ///
    /// expires = 2027-12-31
    ///
    /// [[databases]]
    /// name = "people"                 # of the settings; mode = "write" lets the token change it
    ///
    /// [[servers]]
    /// name = "github"
    /// tools = ["get_*", "list_*"]
    ///
    /// [[personal_data]]
    /// source = "mail"
    ///
    /// [[personal_data.streams]]
    /// name = "messages"
    /// fields = ["from", "subject"]
    #[command(visible_alias = "create", verbatim_doc_comment)]
    #[expect(clippy::doc_link_with_quotes, reason = "the help shows TOML")]
    New {
        /// Name of the token.
        name: String,
        /// Let the token change what is writable. Without a grant file, it also reaches all downstream servers.
        #[arg(long)]
        write: bool,
        /// Days until the token expires; by default it is valid until revoked.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        days: Option<u32>,
        /// TOML file with the personal data, databases and servers that the token may reach; by default no personal data.
        #[arg(long, value_name = "FILE")]
        grant: Option<PathBuf>,
    },
    /// List the tokens with their access and expiry.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token immediately.
    Revoke {
        /// Name of the token.
        name: String,
    },
}
