//! Arguments of `rung pdpp`: as a client that reads another owner's data, and as the owner of one's own.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::PersonalDataArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum PdppCommand {
    /// Serve the data that a provider granted to one MCP client over standard input and output.
    #[command(version)]
    Mcp(AdapterArgs),
    #[command(flatten)]
    Provider(ProviderCommand),
    #[command(flatten)]
    Owner(OwnerCommand),
}

/// Commands of a client that reads another owner's data.
#[derive(Debug, Subcommand)]
pub(crate) enum ProviderCommand {
    /// Request access from a provider: its owner approves in a browser, and the credential is cached here.
    Connect {
        /// Provider URL, such as https://pdpp.example.com.
        provider_url: String,
        /// Source to request, for providers that require one.
        #[arg(long, value_name = "KEY")]
        source: Option<String>,
        /// Streams of the source to request; by default all.
        #[arg(long, value_delimiter = ',', value_name = "NAMES", requires = "source")]
        streams: Vec<String>,
        #[command(flatten)]
        cache: CacheArgs,
        /// Do not open a browser.
        #[arg(long)]
        no_browser: bool,
    },
    /// Show a provider's grant and the streams that it opens.
    Whoami {
        /// Provider URL.
        provider_url: String,
        #[command(flatten)]
        cache: CacheArgs,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the cached grants of all providers.
    Grants {
        #[command(flatten)]
        cache: CacheArgs,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke the grant of a provider to you, and delete the cached credential. `rung pdpp grant revoke` ends one that you issued.
    Revoke {
        /// Provider URL.
        provider_url: String,
        #[command(flatten)]
        cache: CacheArgs,
    },
}

/// Arguments of `rung pdpp mcp`.
#[derive(Debug, Args)]
pub(crate) struct AdapterArgs {
    /// Provider URL, such as https://pdpp.example.com.
    #[arg(long, value_name = "URL", env = "PDPP_PROVIDER_URL")]
    pub(crate) provider_url: Option<String>,
    /// Folder of cached credentials; by default .pdpp in the working folder.
    #[arg(long, value_name = "DIR", env = "PDPP_CACHE_ROOT")]
    pub(crate) cache_root: Option<PathBuf>,
    /// Server name to report to the client.
    #[arg(
        long,
        value_name = "NAME",
        env = "PDPP_MCP_SERVER_NAME",
        default_value = "pdpp-mcp-server"
    )]
    pub(crate) server_name: String,
    /// Start only if the cached credential belongs to this grant.
    #[arg(long, value_name = "ID")]
    pub(crate) grant_id: Option<String>,
    /// Seconds to wait for a response of the provider.
    #[arg(long, default_value_t = 30, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=300))]
    pub(crate) timeout: u64,
    #[command(flatten)]
    pub(crate) data: PersonalDataArgs,
}

/// Commands of the owner on their own data.
#[derive(Debug, Subcommand)]
pub(crate) enum OwnerCommand {
    /// Register connector manifests: what a source has, with its streams and their fields.
    ///
    /// A connector is a kind of source. The smallest manifest:
    ///
    /// {"connector_id": "contacts", "connector_key": "contacts", "streams": [{"name": "people", "primary_key": ["id"],
    /// "schema": {"type": "object", "properties": {"id": {"type": "string"}, "email": {"type": "string"}}}}]}
    #[expect(clippy::doc_link_with_quotes, reason = "the help shows JSON")]
    Register {
        /// Files of manifests or source declarations, in JSON.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Manage connections, the accounts that records come from.
    #[command(subcommand)]
    Connections(ConnectionsCommand),
    /// Ingest records from JSON lines or a JSON list, after `rung pdpp register`.
    ///
    /// A line of JSON is one record: {"stream": "people", "key": "1", "data": {"id": "1", "email": "ada@example.com"}}
    ///
    /// Invalid lines are reported and skipped; the others are ingested. Exits with status 64 if any line was rejected.
    Ingest(IngestArgs),
    /// Issue, list and revoke grants.
    #[command(subcommand)]
    Grant(GrantCommand),
    /// Create an owner token and print it once.
    ///
    /// The token may do everything over /v1 that the owner may. Clients of MCP cannot use it.
    OwnerToken {
        /// Name of the token, such as its purpose.
        #[arg(long, default_value = "owner", value_name = "NAME")]
        name: String,
        /// Days until the token expires; by default it does not expire.
        #[arg(long, value_name = "N")]
        days: Option<u32>,
        /// ID of the owner whose data the token opens.
        #[arg(long, default_value = "owner_local", value_name = "ID")]
        subject: String,
    },
    /// Set the owner's password: read it from standard input, or generate one and print it once.
    Password {
        /// Read the password from standard input.
        #[arg(long)]
        stdin: bool,
    },
    /// Create credentials with which a remote resource server introspects tokens here, and print them once.
    ResourceServer {
        /// Name of the resource server.
        name: String,
    },
    /// Set how long records of a stream are kept.
    Keep {
        /// ID of the connection.
        connection: String,
        /// Name of the stream.
        stream: String,
        /// Days to keep records; by default forever.
        #[arg(long, value_name = "N")]
        days: Option<u32>,
    },
    /// Erase data permanently, so that no file retains any of it.
    #[command(group = clap::ArgGroup::new("what").required(true))]
    Erase {
        /// Connection to erase, with everything that came from it.
        #[arg(long, value_name = "ID", group = "what")]
        connection: Option<String>,
        /// Owner whose data is erased entirely.
        #[arg(long, value_name = "ID", group = "what")]
        subject: Option<String>,
        /// Confirm the erasure; without this flag nothing is erased.
        #[arg(long)]
        yes: bool,
    },
    /// List disclosures: which client read what and when, newest first.
    Disclosures {
        /// Maximum number of entries.
        #[arg(long, default_value_t = 50, value_name = "N")]
        limit: u32,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Host and port to listen on.
    #[arg(
        long,
        env = "RUNG_LISTEN",
        default_value = "127.0.0.1:7663",
        value_name = "HOST:PORT"
    )]
    pub(crate) listen: String,
    /// Create the data and print the instructions, but do not serve.
    #[arg(long)]
    pub(crate) prepare: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    /// Folder of cached credentials; by default .pdpp in the working folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) cache_root: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConnectionsCommand {
    /// List the connections.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Create a connection, or rename it.
    Put {
        /// ID of the connection.
        id: String,
        /// Key of the connector.
        #[arg(long, value_name = "KEY")]
        connector: String,
        /// Display name.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Reject records of a connection until it is resumed.
    Pause {
        /// ID of the connection.
        id: String,
    },
    /// Accept records of a paused connection again.
    Resume {
        /// ID of the connection.
        id: String,
    },
    /// Revoke a connection: it can no longer be read or written. Its records remain until they are erased.
    Revoke {
        /// ID of the connection.
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct IngestArgs {
    /// Files to ingest; - reads standard input.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Key of the connector, as registered.
    #[arg(long, alias = "source", value_name = "KEY")]
    pub(crate) connector: String,
    /// ID of the connection; by default the connector's default one.
    #[arg(long, value_name = "ID")]
    pub(crate) connection: Option<String>,
    /// Stream of all records; by default each record names its own.
    #[arg(long, value_name = "NAME")]
    pub(crate) stream: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantCommand {
    /// Issue a grant to a client, and print its token once.
    Issue {
        /// Name of the client.
        #[arg(long, value_name = "NAME")]
        client: String,
        /// Key of the connector whose data is granted.
        #[arg(long, alias = "connector", value_name = "KEY")]
        source: String,
        /// Streams to grant; by default all.
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        streams: Vec<String>,
        /// Fields to grant, as field or stream.field; by default all. The primary key is always included.
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        fields: Vec<String>,
        /// IDs of the connections to grant; by default all active ones.
        #[arg(long, value_delimiter = ',', value_name = "IDS")]
        connections: Vec<String>,
        /// Grant only records from this time on.
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Grant only records before this time.
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        /// Days until the grant expires; by default it is valid until revoked.
        #[arg(long, value_name = "N")]
        days: Option<u32>,
    },
    /// List the issued grants.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a grant immediately.
    Revoke {
        /// ID of the grant.
        id: String,
    },
}
