//! `rung gateway`: serves downstream servers alone, and reports on and approves them for the operator.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rung_auth::{Access, Permit, Token, TokenRecord, admit};
use rung_fault::{Code, Fault};
use rung_gateway::HttpAccess;
use rung_gateway::config::{self, Approvals, ConfigPaths, ServerSelection};
use rung_gateway::policy::PolicySubject;
use rung_kv::Home;
use rung_mcp::McpServer;
use rung_mcp::http::{self, HttpConfig, HttpGuard};
use serde_json::json;
use tokio::net::TcpListener;

use crate::cli::{GatewayArgs, GatewayCommand, GatewayFiles, GatewayServeArgs, GatewayTransport};
use crate::data_folder::DataFolder;
use crate::exit::Result;
use crate::gateway::{
    GatewayMode, approvals_file, build_default_gateway, build_gateway, config_places,
};
use crate::leader::{self, Rendezvous, ServerConfigFactory};
use crate::listen_address::ListenAddress;
use crate::log;
use crate::print::{self, line, note};
use crate::server_config::{build_server_config, now_ms};
use crate::settings::{Settings, escape_for_terminal};
use crate::table::format_table;
use crate::tokens::{AnonymousAccess, TokenAuthenticator, env_token, unstored_token};

/// Default port, that of the program that this command replaces (pmcp).
const DEFAULT_PORT: u16 = 3344;

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
            let thing = parse_access_target(&tool, resource, prompt)?;
            explain_access(&files, &tool, thing, token.as_deref(), json, &settings)
        }
    }
}

fn serve(args: &GatewayServeArgs, settings: Settings) -> Result {
    log::start(&log_level(args, &settings), args.log_format);
    let transport = match env_text("PMCP_TRANSPORT").as_deref() {
        Some("http") => GatewayTransport::Http,
        Some("stdio") => GatewayTransport::Stdio,
        Some(other) => {
            let why = format!("PMCP_TRANSPORT must be stdio or http, not {other:?}");
            return Err(Fault::new(Code::InvalidSetting, why).into());
        }
        None => args.transport.unwrap_or(GatewayTransport::Stdio),
    };
    match transport {
        GatewayTransport::Stdio => serve_stdio(args, settings),
        GatewayTransport::Http => serve_http(args, &settings),
    }
}

/// Reads a non-empty environment variable. As in pmcp, it takes precedence over the flag.
fn env_text(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    value.filter(|value| !value.is_empty())
}

fn env_number<T: FromStr>(name: &str) -> std::result::Result<Option<T>, Fault> {
    let Some(value) = env_text(name) else {
        return Ok(None);
    };
    let wrong = |_| {
        let why = format!("{name} must be a whole number in range, not {value:?}");
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
    let level = env_text("PMCP_LOG_LEVEL").or(said);
    level.unwrap_or_else(|| settings.log().to_owned())
}

/// Returns the mode of the gateway from environment variables and flags.
fn gateway_mode(
    args: &GatewayServeArgs,
    settings: &Settings,
) -> std::result::Result<GatewayMode, Fault> {
    let usual = GatewayMode::default_for(settings);
    let starts = env_number("PMCP_MAX_SPAWNS")?.or(args.max_concurrent_spawns);
    let longest = env_number("PMCP_REQUEST_TIMEOUT")?.or(args.request_timeout);
    Ok(GatewayMode {
        shown_empty: true,
        max_starts: starts.unwrap_or(usual.max_starts),
        max_call_duration: longest
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs),
        ..usual
    })
}

fn serve_stdio(args: &GatewayServeArgs, settings: Settings) -> Result {
    let results = DataFolder::open(&settings)?;
    let others = build_gateway(
        gateway_mode(args, &settings)?,
        &args.files,
        &settings,
        &results,
    )?;
    let (names, surface) = (args.tool_names.into(), args.files.surface.into());
    let digest = others.digest(&format!("{args:?} {settings:?}"));
    let meeting = Rendezvous::for_digest(&settings.home()?, &digest);
    let served = others.clone();
    let serving: ServerConfigFactory = Arc::new(move || {
        let others = Some((served.clone(), surface));
        build_server_config(&settings, &results, names, None, None, others)
    });
    Ok(leader::serve(meeting.as_ref(), &others, &serving)?)
}

fn serve_http(args: &GatewayServeArgs, settings: &Settings) -> Result {
    let results = DataFolder::open(settings)?;
    let address = listen_address(args)?;
    let token = required_token(args)?;
    let open = match (&token, address.ip().is_loopback()) {
        (Some(_), _) => AnonymousAccess::Never,
        (None, true) => AnonymousAccess::WhileNoToken,
        (None, false) if !results.tokens().list()?.is_empty() => AnonymousAccess::Never,
        (None, false) => {
            let why = format!(
                "{} is reachable from other machines, and no token is required",
                address.ip()
            );
            return Err(Fault::new(Code::InvalidSetting, why)
                .with_hint("set PMCP_AUTH_TOKEN, or create a token with `rung token new NAME`")
                .into());
        }
    };
    // As in pmcp, anonymous local clients may call. Web pages cannot: Host and Origin are checked.
    let mut manner = gateway_mode(args, settings)?;
    if open == AnonymousAccess::WhileNoToken && !settings.is_gateway_open_to_set() {
        manner.open_to = HttpAccess::Anyone;
    }
    let others = build_gateway(manner, &args.files, settings, &results)?;
    let rate = env_number("PMCP_RATE_LIMIT")?.or(args.rate_limit);
    let origins = env_text("PMCP_ALLOWED_ORIGINS").unwrap_or_default();
    let origins = origins.split(',').map(str::trim).map(str::to_owned);
    let origins = origins.filter(|origin| !origin.is_empty());
    let origins = origins.chain(args.allowed_origin.clone()).collect();
    let offer = build_server_config(
        settings,
        &results,
        args.tool_names.into(),
        None,
        None,
        Some((others.clone(), args.files.surface.into())),
    )?;
    let guests = TokenAuthenticator::new(results.tokens(), None, open).with_token(token);
    let door = HttpGuard::new(address, args.allow_host.clone(), origins, guests);
    let mut config = HttpConfig::new(door);
    config.public_metrics = true;
    others.register_metrics(&mut config.registry);
    config.rate = rate.unwrap_or(0);
    rung_memory::release_text_pages();
    let runtime = super::build_runtime()?;
    let internal = |error: std::io::Error| Fault::new(Code::Internal, error.to_string());
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            let why = format!("cannot listen at {address}: {error}");
            Fault::new(Code::InvalidSetting, why).with_hint("choose another --port")
        })?;
        let address = listener.local_addr().map_err(internal)?;
        if open == AnonymousAccess::WhileNoToken && results.tokens().list()?.is_empty() {
            note!("{}", anonymous_notice(manner.open_to));
        }
        note!("listening at http://{address}{}", http::PATH);
        let tended = others.clone();
        tokio::spawn(async move { tended.run_maintenance().await });
        let served = http::serve(
            McpServer::new(offer),
            config,
            listener,
            super::stop_signal(),
        );
        served.await.map_err(internal)?;
        others.shut_down().await;
        Ok::<(), Fault>(())
    })?;
    runtime.shutdown_background();
    Ok(())
}

/// Returns the notice on what clients can reach while no token exists.
fn anonymous_notice(open_to: HttpAccess) -> &'static str {
    match open_to {
        HttpAccess::Anyone => {
            "every client on this machine reaches the servers until a token exists: set PMCP_AUTH_TOKEN, or run `rung token new NAME`"
        }
        HttpAccess::Tokens | HttpAccess::ByGrant => {
            "clients need a token to reach the servers: create one with `rung token new NAME --write`"
        }
    }
}

fn listen_address(args: &GatewayServeArgs) -> Result<SocketAddr, Fault> {
    let wrong = |why: String| Fault::new(Code::InvalidSetting, why);
    let host = env_text("PMCP_HOST").or_else(|| args.host.clone());
    let host = host.unwrap_or_else(|| "127.0.0.1".to_owned());
    let port = env_number("PMCP_PORT")?.or(args.port);
    let port = port.unwrap_or(DEFAULT_PORT);
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    let named = format!("{host}:{port}").parse::<ListenAddress>();
    let named =
        named.map_err(|_| wrong(format!("{host:?} is not an IP address or a host name")))?;
    // At least one address is returned.
    Ok(named.resolve()?[0])
}

/// Returns the token that clients must send, if a flag or the environment names one.
fn required_token(args: &GatewayServeArgs) -> Result<Option<TokenRecord>, Fault> {
    if let Some(file) = &args.auth_token_file {
        return unstored_token(read_first_line(file)?).map(Some);
    }
    match (env_token()?, &args.auth_token) {
        (None, Some(token)) => unstored_token(token.clone()).map(Some),
        (exported, _) => Ok(exported),
    }
}

fn read_first_line(file: &Path) -> Result<String, Fault> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Fault::new(Code::InvalidSetting, format!("{}: {error}", file.display()))
    })?;
    let first = text.lines().next().unwrap_or_default().trim();
    if first.is_empty() {
        let why = format!(
            "{}: the first line is empty; it must be the token",
            file.display()
        );
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
    let results = DataFolder::open(settings)?;
    let report = build_default_gateway(files, settings, &results)?.report();
    let known: Vec<&str> = report.servers.iter().map(|row| row.name.as_str()).collect();
    if let Some(name) = server
        && !known.contains(&name)
    {
        let fault = Fault::new(Code::UnknownServer, format!("no server is named {name:?}"));
        return super::report_fault(
            match known.as_slice() {
                [] => fault.with_hint("configure a server in .mcp.json or in the settings"),
                known => fault.with_hint(format!("choose one of: {}", known.join(", "))),
            },
            as_json,
        );
    }
    let rows = report.servers.iter();
    let rows: Vec<_> = rows
        .filter(|row| server.is_none_or(|name| row.name == name))
        .collect();
    if as_json {
        line!(
            "{:#}",
            json!({"servers": rows, "problems": report.problems})
        )?;
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
    print::to_stdout(format_args!("{}", format_table(&heading, &shown)))?;
    for problem in &report.problems {
        note!("warning: {problem}");
    }
    Ok(())
}

/// Action of `rung gateway trust`.
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
    // Ignore --config: its entries would hide the project's entries of the same names, which are approved here.
    let places = ConfigPaths {
        config: None,
        ..config_places(files)?
    };
    let Some(file) = places.project.as_ref().map(|root| root.join(".mcp.json")) else {
        let why = "the working folder is in no project with a .mcp.json";
        return Err(Fault::new(Code::NotFound, why)
            .with_hint("name the project with --project DIR")
            .into());
    };
    // Approvals count only in a folder that no other user can write. Listing them does not create it.
    let home = settings.home()?;
    if !matches!(action, TrustAction::List) || home.exists() {
        Home::open(home)?;
    }
    let mut known = Approvals::read(approvals_file(settings)?);
    let variable = |name: &str| std::env::var(name).ok();
    let loaded = config::load(&places, &variable, &known);
    match action {
        TrustAction::List => {
            let rows = loaded.specs.iter().filter(|spec| spec.file == file);
            let waits = |name: &str| loaded.pending.iter().any(|wait| wait.name == name);
            // Not a table, which would shorten long commands.
            for spec in rows.filter(|spec| !waits(&spec.name)) {
                line!("{}\tapproved\t{}", spec.name, spec.summary())?;
            }
            for wait in &loaded.pending {
                line!("{}\twaits\t{}", wait.name, wait.summary)?;
            }
        }
        TrustAction::Revoke => {
            let which = match names {
                [] => ServerSelection::All,
                names => ServerSelection::Named(names),
            };
            for name in known.revoke(&file, which).map_err(Fault::from)? {
                line!("{name}: no longer approved")?;
            }
        }
        TrustAction::Approve { yes } => {
            let proposals = loaded.proposals(&file, names).map_err(Fault::from)?;
            let waits = |name: &String| proposals.iter().any(|wait| wait.name == *name);
            for name in names.iter().filter(|name| !waits(name)) {
                line!("{name}: already approved")?;
            }
            if proposals.is_empty() {
                if names.is_empty() {
                    line!("no server waits for approval")?;
                }
                return Ok(());
            }
            let place = escape_for_terminal(&file.to_string_lossy());
            for wait in &proposals {
                print::to_stdout(format_args!("{} in {place}\n{}", wait.name, wait.review))?;
            }
            let again = ["rung gateway trust --yes"].into_iter();
            let again = again.chain(names.iter().map(String::as_str));
            let again: Vec<&str> = again.collect();
            if !yes && !super::confirm(&again.join(" "))? {
                let refused = Fault::new(Code::UntrustedProject, "nothing was approved");
                return Err(refused.into());
            }
            known.approve(&file, &proposals).map_err(Fault::from)?;
            for wait in &proposals {
                line!("{}: approved", wait.name)?;
            }
        }
    }
    Ok(())
}

/// Parses an id as a tool, resource, prompt, server or gateway tool.
fn parse_access_target(
    id: &str,
    resource: bool,
    prompt: bool,
) -> std::result::Result<PolicySubject<'_>, Fault> {
    match id.split_once("::") {
        Some((server, uri)) if resource => Ok(PolicySubject::Resource { server, uri }),
        Some((server, name)) if prompt => Ok(PolicySubject::Prompt { server, name }),
        Some((server, tool)) => Ok(PolicySubject::Tool { server, tool }),
        None if resource || prompt => {
            let why = format!("{id:?} names no server");
            let hint = "write server::uri for a resource, server::name for a prompt";
            Err(Fault::new(Code::InvalidArguments, why).with_hint(hint))
        }
        None if rung_gateway::names().any(|own| own == id) => Ok(PolicySubject::GatewayTool(id)),
        None => Ok(PolicySubject::Server(id)),
    }
}

fn explain_access(
    files: &GatewayFiles,
    tool: &str,
    thing: PolicySubject<'_>,
    token: Option<&str>,
    as_json: bool,
    settings: &Settings,
) -> Result {
    let results = DataFolder::open(settings)?;
    let gateway = build_default_gateway(files, settings, &results)?;
    let permit = match token {
        None => Permit::local_user(Access::Write),
        Some(name) => {
            let records = results.tokens().list()?;
            let record = records
                .into_iter()
                .find(|record| record.caller.as_str() == name);
            let mut record = record.ok_or_else(|| {
                Fault::new(Code::NotFound, format!("no token is named {name:?}"))
                    .with_hint("list the tokens with `rung token list`")
            })?;
            // Build the permit of the bearer with a generated token, since only the hash of the real one is stored.
            let stand_in = Token::generate()?;
            record.hash = stand_in.hash();
            admit(&stand_in, [&record], now_ms())?
        }
    };
    let (allowed, reason) = gateway.explain_access(&permit, thing);
    let state = gateway.explain_absence(thing);
    if as_json {
        line!(
            "{:#}",
            json!({"tool": tool, "allowed": allowed, "why": reason, "state": state})
        )?;
    } else {
        line!("{tool}: {reason}")?;
        if let Some(state) = state {
            line!("{tool}: {state}")?;
        }
    }
    Ok(())
}
