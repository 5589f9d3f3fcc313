//! `rung pdpp mcp`: the data that a provider granted, as tools for one MCP client on standard input and output.

use std::sync::Arc;
use std::time::Duration;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Fault};
use rung_kv::Home;
use rung_ladder::{Budget, CursorKey, limits};
use rung_mcp::{McpServer, SealKey, ServerConfig, stdio};
use rung_pdpp::connect::{CredentialCache, cached_grant, normalize_provider_url};
use rung_pdpp::tools::{INSTRUCTIONS, Options, Tools};

use crate::cli::{AdapterArgs, PersonalDataArgs, PersonalDataTools};
use crate::exit::{CommandError, Result};
use crate::print::note;
use crate::settings::Settings;

/// Environment variables with owner credentials. They are not for agents: if one is set, the adapter refuses to start.
const OWNER_CREDENTIAL_VARIABLES: [&str; 2] = ["PDPP_OWNER_TOKEN", "PDPP_OWNER_SESSION_COOKIE"];
/// Upper limit of a reply, even if the call requests a larger size.
const MAX_REPLY_BYTES: usize = 256 << 10;

pub(super) fn run(args: &AdapterArgs, settings: impl FnOnce() -> Result<Settings>) -> Result {
    let Some(provider) = args.provider_url.as_deref().filter(|url| !url.is_empty()) else {
        return Err(CommandError::CustomStatus(
            64,
            "Missing --provider-url: name the provider, such as --provider-url https://pdpp.example.com"
                .to_owned(),
        ));
    };
    let invalid =
        |why: String| CommandError::CustomStatus(64, format!("Invalid --provider-url: {why}"));
    // Reject a single word early: it would be resolved as a host name and fail.
    let host = provider.split('/').next().unwrap_or_default();
    if !host.contains(['.', ':']) && host != "localhost" {
        let why = format!("{provider:?} is not a URL: write it as https://pdpp.example.com");
        return Err(invalid(why));
    }
    let provider = normalize_provider_url(provider).map_err(|fault| invalid(fault.to_string()))?;
    let set = |name: &&&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if let Some(name) = OWNER_CREDENTIAL_VARIABLES.iter().find(set) {
        return Err(CommandError::CustomStatus(
            77,
            format!(
                "Refusing to start: {name} is set, and an owner's credential must not be given to agents. Unset it, and run `pdpp connect {provider}`."
            ),
        ));
    }
    let cache = CredentialCache::new(args.cache_root.clone());
    let cached =
        cached_grant(&cache, &provider).map_err(|fault| credential_error(&fault, &provider))?;
    if let Some(wanted) = &args.grant_id
        && cached.credential.grant_id.as_ref() != Some(wanted)
    {
        return Err(CommandError::CustomStatus(
            78,
            format!(
                "credential_invalid: the cached credential does not belong to grant {wanted}. Run `pdpp connect {provider}`."
            ),
        ));
    }
    serve(args, &provider, cache, settings).map_err(|stop| match stop {
        CommandError::Fault(fault) => {
            CommandError::CustomStatus(1, format!("the server could not be started: {fault}"))
        }
        stop => stop,
    })
}

fn serve(
    args: &AdapterArgs,
    provider: &str,
    cache: CredentialCache,
    settings: impl FnOnce() -> Result<Settings>,
) -> Result {
    let settings = settings()?;
    super::super::log_to_stderr(&settings);
    let home = Home::open(settings.home()?)?;
    let most = MAX_REPLY_BYTES.max(args.data.max_reply_bytes.unwrap_or_default());
    let options = tool_options(&args.data, home.cursor_key()?);
    let tools = Arc::new(Tools::of_provider(
        provider.to_owned(),
        cache,
        Duration::from_secs(args.timeout),
        // Return the memory that only the first request needs.
        rung_memory::release_text_pages,
        options,
    )?);
    let server = McpServer::new(ServerConfig {
        name: args.server_name.clone(),
        title: "Personal data".to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        face: rung_fault::Face::Rung,
        icon: crate::server_config::ICON.to_owned(),
        instructions: Box::new(|_| Box::pin(std::future::ready(INSTRUCTIONS.to_owned()))),
        tools: tools.clone(),
        resources: tools,
        prompts: None,
        changes: None,
        budget: Budget::bytes(most),
        page_bytes: limits::PAGE_BYTES,
        deadlines: settings.call_deadlines(),
        key: SealKey::new(home.request_key()?),
        tasks: None,
    });
    let runtime = super::super::build_runtime()?;
    let own = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
    if !provider.starts_with("https://") && !own.iter().any(|own| provider.starts_with(own)) {
        note!("warning[plain_http]: the token is sent to {provider} unencrypted");
    }
    note!("{}: connected to {provider}", args.server_name);
    let permit = Permit::local_user(Access::Read);
    let stop = super::super::stop_signal();
    rung_memory::release_text_pages();
    runtime.block_on(stdio::serve_process_stdio(server, permit, stop));
    // The thread that reads standard input must not delay the exit.
    runtime.shutdown_background();
    Ok(())
}

/// Returns the options of the tools from the command line.
pub(in crate::commands) fn tool_options(args: &PersonalDataArgs, key: CursorKey) -> Options {
    Options {
        full: args.tools == PersonalDataTools::Full,
        links: !args.no_resource_links,
        fetch_data: args.fetch_data,
        max_reply_bytes: args.max_reply_bytes,
        key,
    }
}

/// Converts a credential fault to the messages and exit statuses that supervisors of the adapter rely on.
fn credential_error(fault: &Fault, provider: &str) -> CommandError {
    let message = fault.message();
    let next = format!("Run `pdpp connect {provider}` first.");
    match fault.code() {
        Code::NotFound => CommandError::CustomStatus(
            78,
            format!("not_connected: No scoped PDPP credential for {provider}: {message}. {next}"),
        ),
        Code::GrantExpired => CommandError::CustomStatus(78, format!("{message}. {next}")),
        Code::PermissionError if message.starts_with("owner_token_refused") => {
            CommandError::CustomStatus(77, format!("Refusing to start: {message}. {next}"))
        }
        _ => CommandError::CustomStatus(78, format!("credential_invalid: {message}. {next}")),
    }
}
