//! `rung pdpp connect`, `whoami`, `grants` and `revoke`.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use rung_fault::{Code, Fault};
use rung_pdpp::connect::{
    CachedGrant, ConnectRequest, CredentialCache, connect, fetch_schema, fresh_grant,
    normalize_provider_url, revoke,
};
use serde_json::{Value, json};

use crate::cli::ProviderCommand;
use crate::exit::{Result, output_error};
use crate::print::note;
use crate::settings::escape_for_terminal;
use crate::table::format_table;

pub(super) fn run(command: ProviderCommand) -> Result {
    match command {
        ProviderCommand::Connect {
            provider_url: provider,
            source,
            streams,
            cache,
            no_browser,
        } => {
            let ask = ConnectRequest {
                provider: normalize_provider_url(&provider)?,
                source,
                streams,
                cache: CredentialCache::new(cache.cache_root),
            };
            request_access(&ask, !no_browser)
        }
        ProviderCommand::Whoami {
            provider_url,
            cache,
            json,
        } => whoami(&CredentialCache::new(cache.cache_root), &provider_url, json),
        ProviderCommand::Grants { cache, json } => {
            grants(&CredentialCache::new(cache.cache_root), json)
        }
        ProviderCommand::Revoke {
            provider_url,
            cache,
        } => revoke_grant(&CredentialCache::new(cache.cache_root), &provider_url),
    }
}

fn request_access(ask: &ConnectRequest, opens: bool) -> Result {
    let connected = super::super::build_runtime()?.block_on(connect(ask, |waiting| {
        note!(
            "approve the request at {}",
            escape_for_terminal(&waiting.approval_url)
        );
        if let Some(code) = &waiting.user_code {
            note!("the page shows the code {}", escape_for_terminal(code));
        }
        if opens {
            open_browser(&waiting.approval_url);
        }
        note!("waiting for the owner's decision, at most five minutes");
    }))?;
    let mut out = io::stdout().lock();
    let grant = connected.cached.credential.grant_id.unwrap_or_default();
    writeln!(out, "connected to {}", ask.provider).map_err(output_error)?;
    writeln!(out, "grant {}", escape_for_terminal(&grant)).map_err(output_error)?;
    for stream in stream_names(&connected.schema) {
        writeln!(out, "  {}", escape_for_terminal(&stream)).map_err(output_error)?;
    }
    writeln!(out, "credential cached in {}", connected.path.display()).map_err(output_error)
}

fn whoami(cache: &CredentialCache, provider: &str, for_programs: bool) -> Result {
    let provider = normalize_provider_url(provider)?;
    let (cached, told) = super::super::build_runtime()?.block_on(async {
        let cached = fresh_grant(cache, &provider).await?;
        let told = fetch_schema(&provider, &cached).await?;
        Ok::<_, Fault>((cached, told))
    })?;
    let streams = stream_names(&told);
    let mut out = io::stdout().lock();
    if for_programs {
        let mut told = credential_json(&cached);
        told["streams"] = json!(streams);
        return writeln!(out, "{told:#}").map_err(output_error);
    }
    let credential = &cached.credential;
    writeln!(out, "provider  {provider}").map_err(output_error)?;
    if let Some(client) = &cached.client {
        writeln!(out, "client    {}", escape_for_terminal(&client.client_id))
            .map_err(output_error)?;
    }
    if let Some(grant) = &credential.grant_id {
        writeln!(out, "grant     {}", escape_for_terminal(grant)).map_err(output_error)?;
    }
    let until = credential.expires_at.as_deref().unwrap_or("revoked");
    let renewed = match credential.refresh_token {
        Some(_) => ", renewed automatically",
        None => "",
    };
    writeln!(
        out,
        "token     until {}{renewed}",
        escape_for_terminal(until)
    )
    .map_err(output_error)?;
    for stream in streams {
        writeln!(out, "stream    {}", escape_for_terminal(&stream)).map_err(output_error)?;
    }
    Ok(())
}

fn grants(cache: &CredentialCache, for_programs: bool) -> Result {
    let all = cache.list()?;
    let mut out = io::stdout().lock();
    if for_programs {
        let rows: Vec<Value> = all
            .iter()
            .map(|(_, cached)| credential_json(cached))
            .collect();
        return writeln!(out, "{:#}", json!(rows)).map_err(output_error);
    }
    let text = |text: &Option<String>| escape_for_terminal(text.as_deref().unwrap_or_default());
    let row = |(path, cached): &(std::path::PathBuf, CachedGrant)| {
        vec![
            text(&cached.provider_url),
            text(&cached.credential.grant_id),
            text(&cached.credential.expires_at),
            path.display().to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let heading = ["PROVIDER", "GRANT", "TOKEN UNTIL", "FILE"];
    write!(out, "{}", format_table(&heading, &rows)).map_err(output_error)
}

fn revoke_grant(cache: &CredentialCache, provider: &str) -> Result {
    if provider.starts_with("grt_") {
        let why = format!("{provider} is the ID of a grant, not the URL of a provider");
        let hint =
            format!("to revoke a grant that you issued: `rung pdpp grant revoke {provider}`");
        return Err(Fault::new(Code::InvalidArguments, why)
            .with_hint(hint)
            .into());
    }
    let provider = normalize_provider_url(provider)?;
    super::super::build_runtime()?.block_on(async {
        let cached = fresh_grant(cache, &provider).await?;
        revoke(&cached).await
    })?;
    cache.remove(&provider)?;
    note!("the grant is revoked and its cached credential deleted");
    Ok(())
}

/// Returns a cached credential as JSON, without secrets.
fn credential_json(cached: &CachedGrant) -> Value {
    json!({
        "provider_url": cached.provider_url,
        "client_id": cached.client.as_ref().map(|client| &client.client_id),
        "grant_id": cached.credential.grant_id,
        "expires_at": cached.credential.expires_at,
        "refreshes": cached.credential.refresh_token.is_some(),
    })
}

/// Returns the streams in a provider's schema, which is the response body or its `data`.
fn stream_names(told: &Value) -> Vec<String> {
    let schema = if told["connectors"].is_array() {
        told
    } else {
        &told["data"]
    };
    let connectors = schema["connectors"].as_array().into_iter().flatten();
    let mut names: Vec<String> = Vec::new();
    for connector in connectors {
        let key = connector["connector_key"].as_str().unwrap_or_default();
        let streams = connector["streams"].as_array().into_iter().flatten();
        names.extend(
            streams.filter_map(|stream| Some(format!("{key}/{}", stream["name"].as_str()?))),
        );
    }
    names
}

/// Opens a page in the browser, if there is a display.
fn open_browser(url: &str) {
    let shown = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let program = if cfg!(target_os = "macos") {
        "open"
    } else if shown("DISPLAY") || shown("WAYLAND_DISPLAY") {
        "xdg-open"
    } else {
        return;
    };
    let _the_address_is_said_anyway = Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
}
