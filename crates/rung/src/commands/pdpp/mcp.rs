//! `rung pdpp mcp`: what a provider gave us, as tools for one agent on standard input and output.

use std::sync::Arc;
use std::time::Duration;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Fault};
use rung_kv::Home;
use rung_ladder::{Budget, CursorKey};
use rung_mcp::{Offer, SealKey, Server, stdio};
use rung_pdpp::connect::{Cache, kept, provider_url};
use rung_pdpp::tools::{INSTRUCTIONS, Options, Tools};

use crate::cli::{AdapterArgs, DataArgs, DataTools};
use crate::exit::{Result, Stop};
use crate::settings::Settings;

/// Where owners' credentials may lie about. They are not for agents, and are never read.
const OWNERS: [&str; 2] = ["PDPP_OWNER_TOKEN", "PDPP_OWNER_SESSION_COOKIE"];
/// The most that a reply takes, also where it was asked for by number.
const MAX_REPLY_BYTES: usize = 256 << 10;

pub(super) fn run(args: &AdapterArgs, settings: impl FnOnce() -> Result<Settings>) -> Result {
    let Some(provider) = args.provider_url.as_deref().filter(|url| !url.is_empty()) else {
        return Err(Stop::Known(
            64,
            "Missing --provider-url: name the provider, as --provider-url https://pdpp.example.com"
                .to_owned(),
        ));
    };
    let invalid = |why: String| Stop::Known(64, format!("Invalid --provider-url: {why}"));
    // One word is nobody's address: it would be looked for as one, and not be found.
    let host = provider.split('/').next().unwrap_or_default();
    if !host.contains(['.', ':']) && host != "localhost" {
        let why = format!("{provider:?} is no address: write it as https://pdpp.example.com");
        return Err(invalid(why));
    }
    let provider = provider_url(provider).map_err(|fault| invalid(fault.to_string()))?;
    let set = |name: &&&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if let Some(name) = OWNERS.iter().find(set) {
        return Err(Stop::Known(
            77,
            format!(
                "Refusing to start: {name} is set, and an owner's credential is not for agents. Unset it, and run `pdpp connect {provider}`."
            ),
        ));
    }
    let cache = Cache::at(args.cache_root.clone());
    let cached = kept(&cache, &provider).map_err(|fault| unusable(&fault, &provider))?;
    if let Some(wanted) = &args.grant_id
        && cached.credential.grant_id.as_ref() != Some(wanted)
    {
        return Err(Stop::Known(
            78,
            format!(
                "credential_invalid: what is kept is not grant {wanted}. Run `pdpp connect {provider}`."
            ),
        ));
    }
    serve(args, &provider, cache, settings).map_err(|stop| match stop {
        Stop::Fault(fault) => Stop::Known(1, format!("it could not be started: {fault}")),
        stop => stop,
    })
}

fn serve(
    args: &AdapterArgs,
    provider: &str,
    cache: Cache,
    settings: impl FnOnce() -> Result<Settings>,
) -> Result {
    let settings = settings()?;
    super::super::log_to_stderr(&settings);
    let home = Home::open(settings.home()?)?;
    let most = MAX_REPLY_BYTES.max(args.data.max_reply_bytes);
    let options = tool_options(&args.data, most, home.cursor_key()?);
    let tools = Arc::new(Tools::of_provider(
        provider.to_owned(),
        cache,
        Duration::from_secs(args.timeout),
        // The first request needs much that no other does.
        rung_memory::give_back,
        options,
    )?);
    let server = Server::new(Offer {
        name: args.server_name.clone(),
        title: "Personal data".to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        face: rung_fault::Face::Rung,
        icon: crate::offer::ICON.to_owned(),
        instructions: Box::new(|_| INSTRUCTIONS.to_owned()),
        tools: tools.clone(),
        resources: tools,
        prompts: None,
        changes: None,
        budget: Budget::bytes(most),
        key: SealKey::new(home.request_key()?),
        tasks: None,
    });
    let runtime = super::super::runtime()?;
    let own = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
    if !provider.starts_with("https://") && !own.iter().any(|own| provider.starts_with(own)) {
        eprintln!("warning[plain_http]: the token goes to {provider} in clear");
    }
    eprintln!("{}: connected to {provider}", args.server_name);
    let permit = Permit::local_user(Access::Read);
    let stop = super::super::asked_to_stop();
    rung_memory::give_back();
    runtime.block_on(stdio::serve_own(server, permit, stop));
    // A reader that still waits for input must not keep us.
    runtime.shutdown_background();
    Ok(())
}

/// How the tools answer, as the command line says.
pub(in crate::commands) fn tool_options(
    args: &DataArgs,
    max_message_bytes: usize,
    key: CursorKey,
) -> Options {
    Options {
        full: args.tools == DataTools::Full,
        links: !args.no_resource_links,
        fetch_data: args.fetch_data,
        max_reply_bytes: args.max_reply_bytes,
        max_message_bytes,
        key,
    }
}

/// Why there is nothing to start with, in the words and the statuses that supervisors know.
fn unusable(fault: &Fault, provider: &str) -> Stop {
    let message = fault.message();
    let next = format!("Run `pdpp connect {provider}` first.");
    match fault.code() {
        Code::NotFound => Stop::Known(
            78,
            format!("not_connected: No scoped PDPP credential for {provider}: {message}. {next}"),
        ),
        Code::GrantExpired => Stop::Known(78, format!("{message}. {next}")),
        Code::PermissionError if message.starts_with("owner_token_refused") => {
            Stop::Known(77, format!("Refusing to start: {message}. {next}"))
        }
        _ => Stop::Known(78, format!("credential_invalid: {message}. {next}")),
    }
}
