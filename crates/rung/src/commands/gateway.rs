//! `rung gateway`: other servers, and nothing else; and the operator's side of them.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rung_auth::{Access, Permit, Token, TokenRecord, admit};
use rung_fault::{Code, Fault};
use rung_gateway::OpenTo;
use rung_gateway::config::{self, Approvals, Places, Which};
use rung_gateway::policy::Thing;
use rung_kv::Home;
use rung_mcp::Server;
use rung_mcp::http::{self, Config, Door};
use serde_json::json;
use tokio::net::TcpListener;

use crate::cli::{GatewayArgs, GatewayCommand, GatewayFiles, GatewayServeArgs, Transport};
use crate::exit::Result;
use crate::gateway::{Manner, approvals, gateway, gateway_that, places};
use crate::log;
use crate::offer::{now_ms, offer};
use crate::results::Results;
use crate::settings::{Settings, visible};
use crate::table::table;
use crate::tokens::{Guests, Open, exported, given};
use crate::windows::{self, Meeting, Serving};

/// Where the program whose place this takes listens.
const PORT: u16 = 3344;

pub(super) fn run(args: GatewayArgs, settings: Settings) -> Result {
    match args.command {
        None => serve(&args.serve, settings),
        Some(GatewayCommand::Status {
            files,
            server,
            json,
        }) => status(&files, server.as_deref(), json, &settings),
        Some(GatewayCommand::Trust {
            files,
            names,
            list,
            revoke,
            yes,
        }) => {
            let action = match (list, revoke) {
                (true, _) => TrustAction::List,
                (_, true) => TrustAction::Revoke,
                _ => TrustAction::Approve { yes },
            };
            trust(&files, &names, action, &settings)
        }
        Some(GatewayCommand::Why {
            files,
            tool,
            resource,
            prompt,
            token,
            json,
        }) => {
            let thing = thing(&tool, resource, prompt)?;
            why(&files, &tool, thing, token.as_deref(), json, &settings)
        }
    }
}

fn serve(args: &GatewayServeArgs, settings: Settings) -> Result {
    log::start(&log_level(args, &settings), args.log_format);
    let transport = match exported_word("PMCP_TRANSPORT").as_deref() {
        Some("http") => Transport::Http,
        Some("stdio") => Transport::Stdio,
        Some(other) => {
            let why = format!("PMCP_TRANSPORT: {other:?} is neither stdio nor http");
            return Err(Fault::new(Code::InvalidSetting, why).into());
        }
        None => args.transport.unwrap_or(Transport::Stdio),
    };
    match transport {
        Transport::Stdio => over_stdio(args, settings),
        Transport::Http => over_http(args, &settings),
    }
}

/// What is exported. As the program whose place this takes has it, it counts before what is said.
fn exported_word(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    value.filter(|value| !value.is_empty())
}

fn exported_number<T: FromStr>(name: &str) -> std::result::Result<Option<T>, Fault> {
    let Some(value) = exported_word(name) else {
        return Ok(None);
    };
    let wrong = |_| {
        let why = format!("{name}: {value:?} is not a number that it can be");
        Fault::new(Code::InvalidSetting, why)
    };
    value.trim().parse().map(Some).map_err(wrong)
}

fn log_level(args: &GatewayServeArgs, settings: &Settings) -> String {
    let said = match (args.debug, args.quiet) {
        (true, _) => Some("debug".to_owned()),
        (_, true) => Some("error".to_owned()),
        _ => args.log_level.clone(),
    };
    let level = exported_word("PMCP_LOG_LEVEL").or(said);
    level.unwrap_or_else(|| settings.log().to_owned())
}

/// How the gateway behaves by what is exported and said.
fn manner(args: &GatewayServeArgs, settings: &Settings) -> std::result::Result<Manner, Fault> {
    let usual = Manner::usual(settings);
    let starts = exported_number("PMCP_MAX_SPAWNS")?.or(args.max_concurrent_spawns);
    let longest = exported_number("PMCP_REQUEST_TIMEOUT")?.or(args.request_timeout);
    Ok(Manner {
        shown_empty: true,
        starts: starts.unwrap_or(usual.starts),
        longest: longest
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs),
        ..usual
    })
}

fn over_stdio(args: &GatewayServeArgs, settings: Settings) -> Result {
    let results = Results::open(&settings)?;
    let others = gateway_that(manner(args, &settings)?, &args.files, &settings, &results)?;
    let (names, surface) = (args.tool_names.into(), args.files.surface.into());
    let digest = others.digest(&format!("{args:?} {settings:?}"));
    let meeting = Meeting::at(&settings.home()?, &digest);
    let served = others.clone();
    let serving: Serving = Arc::new(move || {
        let others = Some((served.clone(), surface));
        offer(&settings, &results, names, None, None, others)
    });
    Ok(windows::serve(meeting.as_ref(), &others, &serving)?)
}

fn over_http(args: &GatewayServeArgs, settings: &Settings) -> Result {
    let results = Results::open(settings)?;
    let address = address(args)?;
    let token = token(args)?;
    let open = match (&token, address.ip().is_loopback()) {
        (Some(_), _) => Open::Never,
        (None, true) => Open::WhileNoToken,
        (None, false) if !results.tokens().list()?.is_empty() => Open::Never,
        (None, false) => {
            let why = format!("{} can be reached from other machines", address.ip());
            return Err(Fault::new(Code::InvalidSetting, why)
                .with_hint("set PMCP_AUTH_TOKEN, or make a token with `rung token new NAME`")
                .into());
        }
    };
    // As the program whose place this takes has it. No page gets here, whose Host and Origin are looked at.
    let mut manner = manner(args, settings)?;
    if open == Open::WhileNoToken && !settings.says_gateway_open_to() {
        manner.open_to = OpenTo::Anybody;
    }
    let others = gateway_that(manner, &args.files, settings, &results)?;
    let rate = exported_number("PMCP_RATE_LIMIT")?.or(args.rate_limit);
    let origins = exported_word("PMCP_ALLOWED_ORIGINS").unwrap_or_default();
    let origins = origins.split(',').map(str::trim).map(str::to_owned);
    let origins = origins.filter(|origin| !origin.is_empty());
    let origins = origins.chain(args.allowed_origin.clone()).collect();
    let offer = offer(
        settings,
        &results,
        args.tool_names.into(),
        None,
        None,
        Some((others.clone(), args.files.surface.into())),
    )?;
    let guests = Guests::new(results.tokens(), None, open).or_token(token);
    let door = Door::new(address, args.allow_host.clone(), origins, guests);
    let mut config = Config::new(door);
    config.watched_by_anybody = true;
    others.count_in(&mut config.registry);
    config.rate = rate.unwrap_or(0);
    rung_memory::give_back();
    let runtime = super::runtime()?;
    let internal = |error: std::io::Error| Fault::new(Code::Internal, error.to_string());
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            let why = format!("cannot listen at {address}: {error}");
            Fault::new(Code::InvalidSetting, why).with_hint("choose another --port")
        })?;
        let address = listener.local_addr().map_err(internal)?;
        if open == Open::WhileNoToken && results.tokens().list()?.is_empty() {
            eprintln!("{}", without_token(manner.open_to));
        }
        eprintln!("listening at http://{address}{}", http::PATH);
        let tended = others.clone();
        tokio::spawn(async move { tended.tend().await });
        let served = http::serve(Server::new(offer), config, listener, super::asked_to_stop());
        served.await.map_err(internal)?;
        others.shut_down().await;
        Ok::<(), Fault>(())
    })?;
    runtime.shutdown_background();
    Ok(())
}

/// What whoever has no token can do while there is none.
fn without_token(open_to: OpenTo) -> &'static str {
    match open_to {
        OpenTo::Anybody => {
            "anybody on this machine reaches the servers, until there is a token: PMCP_AUTH_TOKEN, or `rung token new NAME`"
        }
        OpenTo::Tokens | OpenTo::Granted => {
            "nobody reaches the servers without a token: `rung token new NAME --write` makes one"
        }
    }
}

fn address(args: &GatewayServeArgs) -> Result<SocketAddr, Fault> {
    let wrong = |why: String| Fault::new(Code::InvalidSetting, why);
    let host = exported_word("PMCP_HOST").or_else(|| args.host.clone());
    let host = host.unwrap_or_else(|| "127.0.0.1".to_owned());
    let host = match host.as_str() {
        "localhost" => "127.0.0.1",
        host => host,
    };
    let host: IpAddr = host
        .parse()
        .map_err(|_| wrong(format!("{host:?} is no address to listen at")))?;
    let port = exported_number("PMCP_PORT")?.or(args.port);
    Ok(SocketAddr::new(host, port.unwrap_or(PORT)))
}

/// The token that callers must show, if one was given.
fn token(args: &GatewayServeArgs) -> Result<Option<TokenRecord>, Fault> {
    if let Some(file) = &args.auth_token_file {
        return given(first_line(file)?).map(Some);
    }
    match (exported()?, &args.auth_token) {
        (None, Some(token)) => given(token.clone()).map(Some),
        (exported, _) => Ok(exported),
    }
}

fn first_line(file: &Path) -> Result<String, Fault> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Fault::new(Code::InvalidSetting, format!("{}: {error}", file.display()))
    })?;
    let first = text.lines().next().unwrap_or_default().trim();
    if first.is_empty() {
        let why = format!("{}: there is no token in its first line", file.display());
        return Err(Fault::new(Code::InvalidSetting, why));
    }
    Ok(first.to_owned())
}

fn status(
    files: &GatewayFiles,
    server: Option<&str>,
    as_json: bool,
    settings: &Settings,
) -> Result {
    let results = Results::open(settings)?;
    let report = gateway(files, settings, &results)?.report();
    let known: Vec<&str> = report.servers.iter().map(|row| row.name.as_str()).collect();
    if let Some(name) = server
        && !known.contains(&name)
    {
        let fault = Fault::new(Code::UnknownServer, format!("no server is named {name:?}"));
        return super::told(
            fault.with_hint(format!("there are {}", known.join(", "))),
            as_json,
        );
    }
    let rows = report.servers.iter();
    let rows: Vec<_> = rows
        .filter(|row| server.is_none_or(|name| row.name == name))
        .collect();
    if as_json {
        println!(
            "{:#}",
            json!({"servers": rows, "problems": report.problems})
        );
        return Ok(());
    }
    let heading = ["SERVER", "FROM", "START", "TOOLS", "STATE"];
    let shown: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let tools = row
                .tools
                .map_or_else(|| "?".to_owned(), |tools| tools.to_string());
            vec![
                row.name.clone(),
                row.from.clone(),
                row.start.to_owned(),
                tools,
                row.state.clone(),
            ]
        })
        .collect();
    print!("{}", table(&heading, &shown));
    for problem in &report.problems {
        eprintln!("warning: {problem}");
    }
    Ok(())
}

/// What is done about approvals.
#[derive(Clone, Copy)]
enum TrustAction {
    List,
    Revoke,
    Approve { yes: bool },
}

fn trust(
    files: &GatewayFiles,
    names: &[String],
    action: TrustAction,
    settings: &Settings,
) -> Result {
    // A file that was asked for would hide the project's entries of the same names, which are what is approved here.
    let places = Places {
        config: None,
        ..places(files)?
    };
    let Some(file) = places.project.as_ref().map(|root| root.join(".mcp.json")) else {
        let why = "there is no project here whose .mcp.json could be approved";
        return Err(Fault::new(Code::NotFound, why)
            .with_hint("name the project with --project DIR")
            .into());
    };
    // Approvals count only where no other user could have written them. To list them makes no folder.
    let home = settings.home()?;
    if !matches!(action, TrustAction::List) || home.exists() {
        Home::open(home)?;
    }
    let mut known = Approvals::read(approvals(settings)?);
    let variable = |name: &str| std::env::var(name).ok();
    let loaded = config::load(&places, &variable, &known);
    match action {
        TrustAction::List => {
            let rows = loaded.specs.iter().filter(|spec| spec.file == file);
            let waits = |name: &str| loaded.waiting.iter().any(|wait| wait.name == name);
            for spec in rows.filter(|spec| !waits(&spec.name)) {
                println!("{}\tapproved\t{}", spec.name, spec.shown());
            }
            for wait in &loaded.waiting {
                println!("{}\twaits\t{}", wait.name, wait.shown);
            }
        }
        TrustAction::Revoke => {
            let which = match names {
                [] => Which::All,
                names => Which::Named(names),
            };
            for name in known.revoke(&file, which).map_err(Fault::from)? {
                println!("{name}: no longer approved");
            }
        }
        TrustAction::Approve { yes } => {
            let proposals = loaded.proposals(&file, names).map_err(Fault::from)?;
            let waits = |name: &String| proposals.iter().any(|wait| wait.name == *name);
            for name in names.iter().filter(|name| !waits(name)) {
                println!("{name}: approved already");
            }
            if proposals.is_empty() {
                if names.is_empty() {
                    println!("nothing waits for approval");
                }
                return Ok(());
            }
            let place = visible(&file.to_string_lossy());
            for wait in &proposals {
                print!("{} in {place}\n{}", wait.name, wait.review);
            }
            let again = ["rung gateway trust --yes"].into_iter();
            let again = again.chain(names.iter().map(String::as_str));
            let again: Vec<&str> = again.collect();
            if !yes && !super::confirmed(&again.join(" "))? {
                let refused = Fault::new(Code::UntrustedProject, "nothing was approved");
                return Err(refused.into());
            }
            known.approve(&file, &proposals).map_err(Fault::from)?;
            for wait in &proposals {
                println!("{}: approved", wait.name);
            }
        }
    }
    Ok(())
}

/// What an id means.
fn thing(id: &str, resource: bool, prompt: bool) -> std::result::Result<Thing<'_>, Fault> {
    match id.split_once("::") {
        Some((server, uri)) if resource => Ok(Thing::Resource { server, uri }),
        Some((server, name)) if prompt => Ok(Thing::Prompt { server, name }),
        Some((server, tool)) => Ok(Thing::Tool { server, tool }),
        None if resource || prompt => {
            let why = format!("{id:?} names no server");
            let hint = "write server::uri for a resource, server::name for a prompt";
            Err(Fault::new(Code::InvalidArguments, why).with_hint(hint))
        }
        None if rung_gateway::names().any(|own| own == id) => Ok(Thing::GatewayTool(id)),
        None => Ok(Thing::Server(id)),
    }
}

fn why(
    files: &GatewayFiles,
    tool: &str,
    thing: Thing<'_>,
    token: Option<&str>,
    as_json: bool,
    settings: &Settings,
) -> Result {
    let results = Results::open(settings)?;
    let gateway = gateway(files, settings, &results)?;
    let permit = match token {
        None => Permit::local_user(Access::Write),
        Some(name) => {
            let records = results.tokens().list()?;
            let record = records
                .into_iter()
                .find(|record| record.caller.as_str() == name);
            let mut record = record.ok_or_else(|| {
                Fault::new(Code::NotFound, format!("no token is named {name:?}"))
                    .with_hint("`rung token list` names them")
            })?;
            // Seen as its bearer would, with a token that nobody else will ever have.
            let stand_in = Token::generate()?;
            record.hash = stand_in.hash();
            admit(&stand_in, [&record], now_ms())?
        }
    };
    let (allowed, reason) = gateway.why(&permit, thing);
    let state = gateway.how(thing);
    if as_json {
        println!(
            "{:#}",
            json!({"tool": tool, "allowed": allowed, "why": reason, "state": state})
        );
    } else {
        println!("{tool}: {reason}");
        if let Some(state) = state {
            println!("{tool}: {state}");
        }
    }
    Ok(())
}
