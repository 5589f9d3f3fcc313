//! `rung serve`

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use rung_auth::Secret;
use rung_fault::{Code, Fault};
use rung_gateway::Gateway;
use rung_mcp::http::{self, Config, Door};
use rung_mcp::{Offer, Server};
use rung_pdpp::tools::Tools;
use rung_pdpp::{Authority, Foreign};
use rung_records::Records;
use tokio::net::TcpListener;

use crate::cli::ServeArgs;
use crate::conformance::Fixtures;
use crate::exit::Result;
use crate::gateway::gateway;
use crate::offer::offer;
use crate::results::Results;
use crate::settings::Settings;
use crate::tokens::{Guests, Open, Tokens};

/// Where the picture of this server is.
const ICON: &str = "/icon.svg";
/// What a token for personal data is for.
const SCOPE: &str = "pdpp:read";

pub(super) fn run(args: &ServeArgs, settings: &Settings) -> Result {
    super::log_to_stderr(settings);
    let results = Results::open(settings)?;
    let records = match &results.shared {
        Some(shared) => shared.clone(),
        None => crate::records::open(settings)?,
    };
    let main = Place::at(&settings.listen().to_string(), "--listen")?;
    let own = args
        .as_listen
        .map(|at| Place::at(&at.to_string(), "--as-listen"));
    let own = own.transpose()?;
    let open = open(args, main.address, &results.tokens())?;
    let without_login = args.dev && is_private(args, &main, own.as_ref());
    if without_login {
        eprintln!(
            "warning[open_owner]: anybody on this machine is the owner of the data at {}: \
             they may register sources and approve access",
            main.address
        );
    } else if args.as_url.is_none() {
        sign_in(&records, args.owner_password_file.as_deref())?;
    }
    let authority = authority(args, own.as_ref())?;
    for url in args.public_url.iter().chain(&args.as_public_url) {
        check_public(url)?;
    }
    let told = args.public_url.as_deref().map(bare);
    let here = told
        .clone()
        .unwrap_or_else(|| format!("http://{}", main.address));
    // Whoever is asked elsewhere has to be told where the data is.
    let public_url = match &own {
        Some(_) => Some(here.clone()),
        None => told,
    };
    let given = crate::tokens::exported()?;
    // Grants that others give are asked about there, request by request; the door lets none of them in.
    let gives_grants = args.as_url.is_none();
    let config = |place: &Place, public_url: Option<&String>| {
        let agents = gives_grants.then(|| records.clone());
        let guests = Guests::new(results.tokens(), agents, open);
        let guests = guests.or_token(given.clone());
        let (hosts, origins) = (args.allow_host.clone(), args.allow_origin.clone());
        let door = Door::new(place.address, hosts, origins, guests);
        let door = door.behind(args.trusted_proxy.clone());
        let door = door.with_icon(ICON).asking_for(SCOPE);
        Config::new(match public_url {
            Some(url) => door.known_as(url),
            None => door,
        })
    };
    let mut first = config(&main, public_url.as_ref());
    first.sessions = !args.stateless;
    first.rate = args.rate_limit;
    let asked_at = match &authority {
        Authority::At(url) => Some(url.clone()),
        _ => None,
    };
    let gives_access = matches!(authority, Authority::Here);
    let data = rung_pdpp::Config {
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
    let others = gateway(&args.gateway, settings, &results)?;
    others.count_in(&mut first.registry);
    let offer = offered(args, settings, &results, &data, &here, &others)?;
    first.beside = rung_pdpp::router(data.clone());
    if gives_access {
        first.beside = first.beside.merge(rung_pdpp::authority(data.clone()));
    }
    let second = own.map(|place| {
        let mut config = config(&place, asked_at.as_ref());
        config.protocol = false;
        config.beside = rung_pdpp::authority(data.clone());
        eprintln!("access is asked for at http://{}", place.address);
        (place, config)
    });
    if args.as_url.is_none() {
        let told = asked_at.or_else(|| args.public_url.as_deref().map(bare));
        let at = told.unwrap_or_else(|| format!("http://{}", main.address));
        eprintln!("the owner's page is {at}/owner/grants");
    }
    eprintln!("listening at http://{}{}", main.address, http::PATH);
    let upkeep = Upkeep::start(&data);
    rung_memory::give_back();
    let served = serve(offer, (main, first), second, &others);
    upkeep.end();
    served
}

/// What is offered at `here`.
fn offered(
    args: &ServeArgs,
    settings: &Settings,
    results: &Results,
    data: &Arc<rung_pdpp::Service>,
    here: &str,
    others: &Gateway,
) -> std::result::Result<Offer, Fault> {
    let fixtures = args.conformance.then(Fixtures::new);
    let options =
        super::pdpp::tool_options(&args.data, settings.reply_max_bytes(), results.cursor_key());
    let mut offer = offer(
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
    )?;
    offer.icon = format!("{here}{ICON}");
    Ok(offer)
}

/// Serves until the process is asked to stop, and looks after other servers meanwhile.
fn serve(
    offer: Offer,
    first: (Place, Config),
    second: Option<(Place, Config)>,
    others: &Gateway,
) -> Result {
    // It lets connections in and waits to be stopped; they are served in lanes of their own.
    let runtime = super::runtime()?;
    let ended = runtime.block_on(async {
        let tended = others.clone();
        tokio::spawn(async move { tended.tend().await });
        let ended = until_stopped(offer, first, second).await;
        others.shut_down().await;
        ended
    });
    // What a thread is still reading for nobody must not keep us.
    runtime.shutdown_background();
    ended.map_err(|error| Fault::new(Code::Internal, error.to_string()).into())
}

/// Serves at one place or two, until the process is asked to stop.
async fn until_stopped(
    offer: Offer,
    first: (Place, Config),
    second: Option<(Place, Config)>,
) -> std::io::Result<()> {
    let server = Server::new(offer);
    let (stop, stopped) = tokio::sync::watch::channel(());
    let serve = |(place, config): (Place, Config)| {
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
        super::asked_to_stop().await;
        drop(stop);
    };
    let (main, other, ()) = tokio::join!(serve(first), beside, stopping);
    main.and(other)
}

/// Whether only this machine reaches us, by no name that it shares with others.
fn is_private(args: &ServeArgs, main: &Place, own: Option<&Place>) -> bool {
    let loopback = |place: &Place| place.address.ip().is_loopback();
    loopback(main)
        && own.is_none_or(loopback)
        && args.allow_host.is_empty()
        && args.public_url.is_none()
        && args.as_public_url.is_none()
        && args.trusted_proxy.is_empty()
}

/// Somewhere to listen.
struct Place {
    listener: std::net::TcpListener,
    address: SocketAddr,
}

impl Place {
    fn at(wanted: &str, flag: &str) -> std::result::Result<Self, Fault> {
        let failed = |error: std::io::Error| {
            let why = format!("cannot listen at {wanted}: {error}");
            Fault::new(Code::InvalidSetting, why)
                .with_hint(format!("choose another address with {flag} ADDR:PORT"))
        };
        let listener = std::net::TcpListener::bind(wanted).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }
}

/// Where access is asked for.
fn authority(args: &ServeArgs, own: Option<&Place>) -> std::result::Result<Authority, Fault> {
    Ok(match (own, &args.as_url) {
        (Some(place), _) => {
            let told = args.as_public_url.as_deref().map(bare);
            Authority::At(told.unwrap_or_else(|| format!("http://{}", place.address)))
        }
        (None, Some(url)) => Authority::Foreign(Arc::new(foreign(url, args)?)),
        (None, None) => Authority::Here,
    })
}

/// When somebody without a token is let in, which is said where it is unusual.
fn open(
    args: &ServeArgs,
    address: SocketAddr,
    tokens: &Tokens,
) -> std::result::Result<Open, Fault> {
    // A further name means that somebody stands in between, and brings others along.
    let alone = args.allow_host.is_empty() && args.public_url.is_none();
    let open = if args.dev || args.conformance {
        Open::Always
    } else if address.ip().is_loopback() && alone {
        Open::WhileNoToken
    } else {
        Open::Never
    };
    // Where somebody could come from elsewhere without being asked who they are, say so.
    let reached = !address.ip().is_loopback() || !alone || !args.trusted_proxy.is_empty();
    if open == Open::Always && reached {
        eprintln!(
            "warning[open_door]: anybody who reaches {address} is let in at /mcp without a token; the owner signs in"
        );
    }
    if open == Open::Never && tokens.list()?.is_empty() {
        eprintln!(
            "warning[no_token]: nobody has a token yet\n  next: agents ask the owner; for everything else `rung token new NAME`"
        );
    }
    Ok(open)
}

/// Sees to it that the owner can sign in.
fn sign_in(records: &Records, file: Option<&Path>) -> std::result::Result<(), Fault> {
    let owner = crate::records::owner(records)?;
    if let Some(file) = file {
        let password = crate::password::read(file)?;
        // The same password again signs nobody out.
        if !records.is_password(&owner, &password)? {
            records.set_password(&owner, &password)?;
        }
        return Ok(());
    }
    if records.has_password(owner.subject_id())? {
        return Ok(());
    }
    let password = crate::password::generate()?;
    records.set_password(&owner, &password)?;
    eprintln!(
        "the owner signs in with the password {password}\n  shown once; `rung pdpp password` sets another"
    );
    Ok(())
}

/// Refuses what others cannot go to.
fn check_public(url: &str) -> std::result::Result<(), Fault> {
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
    let why = format!("{url:?} is not where others reach this server");
    Err(Fault::new(Code::InvalidSetting, why)
        .with_hint("write it as https://data.example, without a path"))
}

/// An address without the slash at its end.
fn bare(url: &str) -> String {
    url.trim_end_matches('/').to_owned()
}

fn foreign(url: &str, args: &ServeArgs) -> std::result::Result<Foreign, Fault> {
    let file = args.as_credentials_file.as_deref().unwrap_or(Path::new(""));
    let wrong = |why: String| {
        Fault::new(Code::InvalidSetting, format!("{}: {why}", file.display())).with_hint(
            "the file holds NAME:SECRET, as `rung pdpp resource-server NAME` printed it there",
        )
    };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let (name, secret) = text
        .trim()
        .split_once(':')
        .ok_or_else(|| wrong("there is no colon in it".to_owned()))?;
    let secret = Secret::new(secret.to_owned());
    Ok(Foreign::new(url, name.to_owned(), secret)?)
}

/// How often what was shown goes from the journal into the store.
const SETTLE_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether something is to be built, let go or cleaned.
const TEND_EVERY: Duration = Duration::from_secs(5);

/// Threads that see to the data for as long as it is served.
struct Upkeep {
    end: Vec<mpsc::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Upkeep {
    fn start(data: &Arc<rung_pdpp::Service>) -> Self {
        let mut upkeep = Self {
            end: Vec::new(),
            threads: Vec::new(),
        };
        let settled = data.clone();
        upkeep.every(SETTLE_EVERY, move || settled.settle());
        let tended = data.clone();
        upkeep.every(TEND_EVERY, move || tended.tend());
        upkeep
    }

    fn every(&mut self, pause: Duration, work: impl Fn() + Send + 'static) {
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
        self.end.push(end);
        self.threads.extend(thread.ok());
    }

    fn end(self) {
        drop(self.end);
        for thread in self.threads {
            let _ended_or_panicked = thread.join();
        }
    }
}
