//! `rung serve`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use rung_auth::Secret;
use rung_fault::{Code, Fault};
use rung_gateway::Gateway;
use rung_mcp::http::{self, HttpConfig, HttpGuard};
use rung_mcp::{McpServer, ServerConfig};
use rung_pdpp::tools::Tools;
use rung_pdpp::{AuthorizationServer, RemoteIntrospection};
use rung_records::Records;
use tokio::net::TcpListener;

use crate::cli::ServeArgs;
use crate::conformance::Fixtures;
use crate::data_folder::DataFolder;
use crate::exit::Result;
use crate::gateway::build_default_gateway;
use crate::listen_address::ListenAddress;
use crate::print::note;
use crate::server_config::build_server_config;
use crate::settings::Settings;
use crate::tokens::{AnonymousAccess, TokenAuthenticator, TokenStore};

/// Path of this server's icon.
const ICON: &str = "/icon.svg";
/// OAuth scope of tokens for personal data.
const SCOPE: &str = "pdpp:read";

#[allow(
    clippy::too_many_lines,
    reason = "the wiring of every part of the server"
)]
pub(super) fn run(args: &ServeArgs, settings: &Settings) -> Result {
    super::log_to_stderr(settings);
    let results = DataFolder::open(settings)?;
    let records = match &results.shared_records {
        Some(shared) => shared.clone(),
        None => crate::records::open(settings)?,
    };
    let main = BoundListener::bind(settings.listen(), "--listen")?;
    let own = args
        .as_listen
        .as_ref()
        .map(|at| BoundListener::bind(at, "--as-listen"));
    let own = own.transpose()?;
    let open = anonymous_access(args, main.address, &results.tokens())?;
    let without_login = args.dev && is_local_only(args, &main, own.as_ref());
    if without_login {
        note!(
            "warning[open_owner]: every client on this machine acts as the owner of the data at {}: \
             it may register sources and approve access",
            main.address
        );
    } else if args.as_url.is_none() {
        ensure_owner_password(&records, args.owner_password_file.as_deref())?;
    }
    let authority = authorization_server(args, own.as_ref())?;
    for url in args.public_url.iter().chain(&args.as_public_url) {
        check_public_url(url)?;
    }
    let told = args.public_url.as_deref().map(trim_trailing_slash);
    let here = told
        .clone()
        .unwrap_or_else(|| format!("http://{}", main.address));
    // A separate authorization server must know the URL of the resource server.
    let public_url = match &own {
        Some(_) => Some(here.clone()),
        None => told,
    };
    let given = crate::tokens::env_token()?;
    // Tokens of a remote authorization server are introspected per request and never admitted at `/mcp`.
    let gives_grants = args.as_url.is_none();
    let gives_access = matches!(authority, AuthorizationServer::Local);
    let config = |place: &BoundListener, public_url: Option<&String>| {
        let agents = gives_grants.then(|| records.clone());
        let guests = TokenAuthenticator::new(results.tokens(), agents, open);
        let guests = guests.with_token(given.clone());
        let (hosts, origins) = (args.allow_host.clone(), args.allow_origin.clone());
        let door = HttpGuard::new(place.address, hosts, origins, guests);
        let door = door.with_trusted_proxies(args.trusted_proxy.clone());
        let door = door.with_scope(SCOPE);
        // The icon is served next to the owner's pages.
        let door = if gives_access {
            door.with_icon(ICON)
        } else {
            door
        };
        HttpConfig::new(match public_url {
            Some(url) => door.with_public_url(url),
            None => door,
        })
    };
    let mut first = config(&main, public_url.as_ref());
    first.sessions = !args.stateless;
    first.rate = args.rate_limit;
    let asked_at = match &authority {
        AuthorizationServer::LocalAt(url) => Some(url.clone()),
        _ => None,
    };
    let data = rung_pdpp::ServiceConfig {
        records: records.clone(),
        tokens: Arc::new(results.tokens()),
        journal: crate::records::journal(settings)?,
        strict_0_1: args.strict_0_1,
        without_login,
        max_body_bytes: settings.records_max_body_bytes(),
        public_url,
        authority,
    };
    let data = Arc::new(rung_pdpp::Service::new(data, &mut first.registry));
    let others = build_default_gateway(&args.gateway, settings, &results)?;
    others.register_metrics(&mut first.registry);
    let mut offer = http_server_config(args, settings, &results, &data, &here, &others)?;
    if gives_access {
        offer.icon = format!("{here}{ICON}");
    }
    first.other_routes = rung_pdpp::router(data.clone());
    if gives_access {
        first.other_routes = first.other_routes.merge(rung_pdpp::authority(data.clone()));
    }
    let second = own.map(|place| {
        let mut config = config(&place, asked_at.as_ref());
        config.serve_mcp = false;
        config.other_routes = rung_pdpp::authority(data.clone());
        note!("the authorization server is at http://{}", place.address);
        (place, config)
    });
    if args.as_url.is_none() {
        let told = asked_at.or_else(|| args.public_url.as_deref().map(trim_trailing_slash));
        let at = told.unwrap_or_else(|| format!("http://{}", main.address));
        note!("the owner's page is {at}/owner/grants");
    }
    note!("listening at http://{}{}", main.address, http::PATH);
    let upkeep = MaintenanceThreads::start(&data);
    rung_memory::release_text_pages();
    let served = serve(offer, (main, first), second, &others);
    upkeep.stop();
    served
}

/// Builds what MCP clients are offered at `here`, the URL of this server.
fn http_server_config(
    args: &ServeArgs,
    settings: &Settings,
    results: &DataFolder,
    data: &Arc<rung_pdpp::Service>,
    here: &str,
    others: &Gateway,
) -> std::result::Result<ServerConfig, Fault> {
    let fixtures = args.conformance.then(Fixtures::new);
    let options = super::pdpp::tool_options(&args.data, results.cursor_key());
    build_server_config(
        settings,
        results,
        args.tool_names.into(),
        fixtures.as_ref(),
        Some(Arc::new(Tools::of_service(
            data.clone(),
            here.to_owned(),
            options,
        )?)),
        Some((others.clone(), args.gateway.surface.into())),
    )
}

/// Serves until the process is asked to stop, and maintains the downstream servers meanwhile.
fn serve(
    offer: ServerConfig,
    first: (BoundListener, HttpConfig),
    second: Option<(BoundListener, HttpConfig)>,
    others: &Gateway,
) -> Result {
    // This runtime accepts connections and waits for the stop signal; worker lanes serve them.
    let runtime = super::build_runtime()?;
    let ended = runtime.block_on(async {
        let tended = others.clone();
        tokio::spawn(async move { tended.run_maintenance().await });
        let ended = serve_until_stopped(offer, first, second).await;
        others.shut_down().await;
        ended
    });
    // A thread that is still reading must not delay the exit.
    runtime.shutdown_background();
    ended.map_err(|error| Fault::new(Code::Internal, error.to_string()).into())
}

/// Serves on one or two listeners until the process is asked to stop.
async fn serve_until_stopped(
    offer: ServerConfig,
    first: (BoundListener, HttpConfig),
    second: Option<(BoundListener, HttpConfig)>,
) -> std::io::Result<()> {
    let server = McpServer::new(offer);
    let (stop, stopped) = tokio::sync::watch::channel(());
    let serve = |(place, config): (BoundListener, HttpConfig)| {
        let (server, mut stopped) = (server.clone(), stopped.clone());
        async move {
            let listener = TcpListener::from_std(place.listener)?;
            let stop = async move {
                let _sent_or_gone = stopped.changed().await;
            };
            http::serve(server, config, listener, stop).await
        }
    };
    let beside = async {
        match second {
            Some(second) => serve(second).await,
            None => Ok(()),
        }
    };
    let stopping = async {
        super::stop_signal().await;
        drop(stop);
    };
    let (main, other, ()) = tokio::join!(serve(first), beside, stopping);
    main.and(other)
}

/// Returns true if only this machine can connect, and by no public name or proxy.
fn is_local_only(args: &ServeArgs, main: &BoundListener, own: Option<&BoundListener>) -> bool {
    let loopback = |place: &BoundListener| place.address.ip().is_loopback();
    loopback(main)
        && own.is_none_or(loopback)
        && args.allow_host.is_empty()
        && args.public_url.is_none()
        && args.as_public_url.is_none()
        && args.trusted_proxy.is_empty()
}

/// A bound listener with its address.
struct BoundListener {
    listener: std::net::TcpListener,
    address: SocketAddr,
}

impl BoundListener {
    fn bind(wanted: &ListenAddress, flag: &str) -> std::result::Result<Self, Fault> {
        let failed = |error: std::io::Error| {
            let why = format!("cannot listen at {wanted}: {error}");
            Fault::new(Code::InvalidSetting, why)
                .with_hint(format!("choose another address with {flag} HOST:PORT"))
        };
        let listener = std::net::TcpListener::bind(&*wanted.resolve()?).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }
}

/// Returns the authorization server that clients are referred to.
fn authorization_server(
    args: &ServeArgs,
    own: Option<&BoundListener>,
) -> std::result::Result<AuthorizationServer, Fault> {
    Ok(match (own, &args.as_url) {
        (Some(place), _) => {
            let told = args.as_public_url.as_deref().map(trim_trailing_slash);
            AuthorizationServer::LocalAt(
                told.unwrap_or_else(|| format!("http://{}", place.address)),
            )
        }
        (None, Some(url)) => {
            AuthorizationServer::Remote(Arc::new(remote_introspection(url, args)?))
        }
        (None, None) => AuthorizationServer::Local,
    })
}

/// Decides when clients without a token are admitted, and warns of unusual cases.
fn anonymous_access(
    args: &ServeArgs,
    address: SocketAddr,
    tokens: &TokenStore,
) -> std::result::Result<AnonymousAccess, Fault> {
    // An additional name implies a proxy, which forwards remote clients.
    let alone = args.allow_host.is_empty() && args.public_url.is_none();
    let open = if args.dev || args.conformance {
        AnonymousAccess::Always
    } else if address.ip().is_loopback() && alone {
        AnonymousAccess::WhileNoToken
    } else {
        AnonymousAccess::Never
    };
    // Warn if clients of other machines are admitted without a token.
    let reached = !address.ip().is_loopback() || !alone || !args.trusted_proxy.is_empty();
    if open == AnonymousAccess::Always && reached {
        note!(
            "warning[open_door]: every client that reaches {address} is admitted at /mcp without a token; the owner signs in"
        );
    }
    if open == AnonymousAccess::Never && tokens.list()?.is_empty() {
        note!(
            "warning[no_token]: no token exists yet\n  {} let agents request access from the owner, or create a token with `rung token new NAME`",
            crate::style::next_label()
        );
    }
    Ok(open)
}

/// Ensures that the owner has a password to sign in with.
fn ensure_owner_password(records: &Records, file: Option<&Path>) -> std::result::Result<(), Fault> {
    let owner = crate::records::local_owner(records)?;
    if let Some(file) = file {
        let password = crate::password::read(file)?;
        // Setting an unchanged password would end the sessions.
        if !records.verify_password(&owner, &password)? {
            records.set_password(&owner, &password)?;
        }
        return Ok(());
    }
    if records.has_password(owner.subject_id())? {
        return Ok(());
    }
    let password = crate::password::generate()?;
    records.set_password(&owner, &password)?;
    note!(
        "the owner signs in with the password {password}\n  shown once; `rung pdpp password` sets a new one"
    );
    Ok(())
}

/// Rejects a URL that clients cannot use: it must be https, or http on this machine, and without a path.
fn check_public_url(url: &str) -> std::result::Result<(), Fault> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let host = rest.map(|rest| rest.trim_end_matches('/'));
    let plain = |b: u8| b.is_ascii_alphanumeric() || b".-:[]".contains(&b);
    let sound = host.is_some_and(|host| !host.is_empty() && host.bytes().all(plain));
    let own = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
    if sound && (url.starts_with("https://") || own.iter().any(|own| url.starts_with(own))) {
        return Ok(());
    }
    let why =
        format!("{url:?} is not a valid public URL: it must be https, or http on this machine");
    Err(Fault::new(Code::InvalidSetting, why)
        .with_hint("write it as https://data.example, without a path"))
}

/// Removes trailing slashes of a URL.
fn trim_trailing_slash(url: &str) -> String {
    url.trim_end_matches('/').to_owned()
}

fn remote_introspection(
    url: &str,
    args: &ServeArgs,
) -> std::result::Result<RemoteIntrospection, Fault> {
    let file = args.as_credentials_file.as_deref().unwrap_or(Path::new(""));
    let wrong = |why: String| {
        Fault::new(Code::InvalidSetting, format!("{}: {why}", file.display())).with_hint(
            "the file must hold NAME:SECRET as `rung pdpp resource-server NAME` prints it on the authorization server",
        )
    };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let (name, secret) = text
        .trim()
        .split_once(':')
        .ok_or_else(|| wrong("the file has no colon".to_owned()))?;
    let secret = Secret::new(secret.to_owned());
    Ok(RemoteIntrospection::new(url, name.to_owned(), secret)?)
}

/// Interval at which the disclosure journal is flushed to the store.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of maintenance: building indexes, deleting expired records and cleaning up.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(5);

/// Threads that maintain the store while it is served.
struct MaintenanceThreads {
    stop_senders: Vec<mpsc::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl MaintenanceThreads {
    fn start(data: &Arc<rung_pdpp::Service>) -> Self {
        let mut upkeep = Self {
            stop_senders: Vec::new(),
            threads: Vec::new(),
        };
        let settled = data.clone();
        upkeep.spawn_every(FLUSH_INTERVAL, move || settled.flush_journal());
        let tended = data.clone();
        upkeep.spawn_every(MAINTENANCE_INTERVAL, move || tended.maintenance());
        upkeep
    }

    fn spawn_every(&mut self, pause: Duration, work: impl Fn() + Send + 'static) {
        let (end, ended) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("upkeep".to_owned())
            .spawn(move || {
                loop {
                    work();
                    if !matches!(ended.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
                        return work();
                    }
                }
            });
        self.stop_senders.push(end);
        self.threads.extend(thread.ok());
    }

    fn stop(self) {
        drop(self.stop_senders);
        for thread in self.threads {
            let _ended_or_panicked = thread.join();
        }
    }
}
