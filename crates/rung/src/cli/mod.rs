//! The command line: what was said, before what it means.
#![allow(
    clippy::doc_markdown,
    rustdoc::bare_urls,
    rustdoc::broken_intra_doc_links,
    reason = "these comments are the help that people read"
)]

mod db;
mod gateway;
mod pdpp;
mod reach;
mod results;
mod serve;

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

pub(crate) use db::{
    DbArgs, DbCommand, DbForm, DbFormat, DbImportArgs, DbPullArgs, DbQueryArgs, DbSchemaArgs,
    DbTransactArgs,
};
pub(crate) use gateway::{
    GatewayArgs, GatewayCommand, GatewayFiles, GatewayServeArgs, LogFormat, Transport,
};
pub(crate) use pdpp::{
    AdapterArgs, ConnectionsCommand, DemoArgs, GrantCommand, IngestArgs, OwnCommand, PdppCommand,
    TheirsCommand,
};
pub(crate) use reach::{CallArgs, EraName, InspectArgs, ReachArgs};
pub(crate) use results::{Form, ReadArgs, ResultCommand};
pub(crate) use serve::{DataArgs, DataTools, ServeArgs, ToolNames};

/// What the manual page has beyond the options.
const MORE: &str = "\
Settings come from flags, RUNG_* variables, the nearest rung.toml, the user's rung/config.toml, and defaults, in that \
order; `rung config show` says which.

Exit status: 0 done; 2 the command line does not parse; 64 the request is wrong; 66 not found; 69 a source failed; 70 our \
fault or the disk's; 73 a limit; 74 output could not be written; 75 try again later; 77 not permitted.";

/// Names of programs whose place this one takes when it is started under them, and what that means here.
const OTHER_NAMES: [(&str, &[&str]); 4] = [
    ("pmcp", &["gateway"]),
    ("pdpp", &["pdpp"]),
    ("pdpp-mcp-server", &["pdpp", "mcp"]),
    ("dtlv", &["db"]),
];

/// What was said; whoever said nothing that can be done is told so.
pub(crate) fn parsed() -> Cli {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    let said: Vec<_> = std::env::args_os().collect();
    let other = other_name(&said);
    let mut meant = said.clone();
    if let Some((_, commands)) = other {
        meant.splice(1..1, commands.iter().map(std::ffi::OsString::from));
    }
    let adapter = meant.windows(2).any(|two| two == ["pdpp", "mcp"]);
    let told = match Cli::try_parse_from(meant) {
        Ok(cli) => return cli,
        Err(told) => match other {
            Some((name, commands)) => told_under(name, commands, said).unwrap_or(told),
            None => told,
        },
    };
    // Whoever starts an adapter reads messages from its output, and nothing else.
    if adapter && matches!(told.kind(), DisplayHelp | DisplayVersion) {
        eprint!("{told}");
        std::process::exit(0);
    }
    told.exit()
}

type OtherName = (&'static str, &'static [&'static str]);

/// The other name that we were started under, if it is one.
fn other_name(said: &[std::ffi::OsString]) -> Option<OtherName> {
    let name = std::path::Path::new(said.first()?).file_stem()?;
    let mut known = OTHER_NAMES.into_iter();
    known.find(|(other, _)| name == *other)
}

/// What there is to say to a command line, in the words of a program of that name, which knows nothing of us.
fn told_under(
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

/// One door between AI agents and everything they may reach.
#[derive(Debug, Parser)]
#[command(
    name = "rung",
    version,
    arg_required_else_help = true,
    after_long_help = MORE
)]
pub(crate) struct Cli {
    /// The data folder.
    #[arg(long, global = true, value_name = "DIR", env = None)]
    pub(crate) home: Option<PathBuf>,
    /// Sets any setting, as reply.max_bytes=20000.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of them, once")]
pub(crate) enum Command {
    /// Settings: what holds, where it comes from, and which project file may say more.
    #[command(subcommand)]
    Config(Config),
    /// Serves one MCP client on standard input and output.
    Mcp(McpArgs),
    /// Serves MCP clients and personal data over HTTP.
    Serve(ServeArgs),
    /// Who may come through the door over HTTP.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Personal data: sources, connections, records, and who may see what of them.
    #[command(subcommand)]
    Pdpp(PdppCommand),
    /// A database of facts in a folder: ask it, change it, take it in and out.
    Db(DbArgs),
    /// Other MCP servers behind one door. Without a command: serves them, and nothing else.
    #[command(args_conflicts_with_subcommands = true, version)]
    Gateway(GatewayArgs),
    /// Makes up one person's data, serves it, and shows how an agent comes to it.
    Demo(DemoArgs),
    /// Copies the data folder as it is at one moment, also while it is in use.
    Backup {
        /// A new folder for the copy.
        to: PathBuf,
    },
    /// Makes a data folder of a copy.
    Restore {
        /// The copy.
        from: PathBuf,
    },
    /// Calls a tool of any MCP server.
    Call(CallArgs),
    /// Shows what any MCP server has, and what it costs to be told of it.
    Inspect(InspectArgs),
    /// Stays with a child, and ends it when its starter has gone.
    #[command(hide = true)]
    KeepChild {
        /// The process that started it.
        parent: u32,
        /// The command.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Does what the protocol's own test suite asks of a client.
    #[command(hide = true)]
    ConformanceClient {
        /// The suite's server.
        url: String,
    },
    /// Results that are kept: store one, read any part of it.
    #[command(subcommand)]
    Result(ResultCommand),
    /// Completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// The manual page; with a folder, the pages of all commands.
    Man {
        /// Where to write one page for each command.
        dir: Option<PathBuf>,
    },
}

impl Command {
    /// Whether it only reads, ends or copies what a data folder already holds. A folder that is not there is then a
    /// mistake of the caller's, and not one to make.
    pub(crate) fn needs_data(&self) -> bool {
        match self {
            Self::Backup { .. } => true,
            Self::Result(command) => !matches!(command, ResultCommand::Store { .. }),
            Self::Token(command) => !matches!(command, TokenCommand::New { .. }),
            Self::Pdpp(PdppCommand::Own(command)) => match command {
                OwnCommand::Connections(command) => {
                    !matches!(command, ConnectionsCommand::Put { .. })
                }
                OwnCommand::Grant(command) => !matches!(command, GrantCommand::Issue { .. }),
                OwnCommand::Keep { .. }
                | OwnCommand::Erase { .. }
                | OwnCommand::Disclosures { .. } => true,
                OwnCommand::Register { .. }
                | OwnCommand::Ingest(_)
                | OwnCommand::OwnerToken { .. }
                | OwnCommand::Password { .. }
                | OwnCommand::ResourceServer { .. } => false,
            },
            Self::Gateway(args) => matches!(
                args.command,
                Some(GatewayCommand::Status { .. } | GatewayCommand::Why { .. })
            ),
            Self::Config(_)
            | Self::Mcp(_)
            | Self::Serve(_)
            | Self::Pdpp(PdppCommand::Mcp(_) | PdppCommand::Theirs(_))
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
pub(crate) enum Config {
    /// Every setting with its value and where it comes from.
    Show {
        /// For programs.
        #[arg(long)]
        json: bool,
    },
    /// Approves this project's rung.toml, as it is now.
    Trust {
        /// Without asking.
        #[arg(long)]
        yes: bool,
    },
    /// Takes the approval back.
    Untrust,
    /// The reference of all settings, as Markdown.
    #[command(hide = true)]
    Reference,
}

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// How tools are named: dotted, or plain for clients that refuse dots.
    #[arg(long, value_enum, default_value_t = ToolNames::Dotted, value_name = "NAMES")]
    pub(crate) tool_names: ToolNames,
    #[command(flatten)]
    pub(crate) gateway: GatewayFiles,
    /// Adds what the protocol's own test suite calls.
    #[arg(long, hide = true)]
    pub(crate) conformance: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Makes a token, and shows it once.
    New {
        /// Whose it is.
        name: String,
        /// Lets its bearer write, where something can be written.
        #[arg(long)]
        write: bool,
        /// Days after which it ends; without it, it ends when it is revoked.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        days: Option<u32>,
        /// What of the personal data here its bearer may read: a file that says so. Nothing without it.
        #[arg(long, value_name = "FILE")]
        grant: Option<PathBuf>,
    },
    /// Names the tokens there are.
    List {
        /// For programs.
        #[arg(long)]
        json: bool,
    },
    /// Ends a token, at once.
    Revoke {
        /// Whose it is.
        name: String,
    },
}
