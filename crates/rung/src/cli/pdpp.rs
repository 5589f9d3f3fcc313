//! Personal data: somebody else's as its reader, one's own as its owner.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::DataArgs;

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
    ///
    /// Lines that are wrong are named and left out, and the others are taken. Exits with status 64 if any line was rejected.
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
    /// Address and port to listen at.
    #[arg(
        long,
        env = "RUNG_LISTEN",
        default_value = "127.0.0.1:7663",
        value_name = "ADDR:PORT"
    )]
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
