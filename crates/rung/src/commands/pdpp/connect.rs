//! `rung pdpp connect`, and what is done with what was given.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use rung_fault::Fault;
use rung_pdpp::connect::{Ask, Cache, Cached, connect, fresh, provider_url, revoke, schema};
use serde_json::{Value, json};

use crate::cli::TheirsCommand;
use crate::exit::{Result, output};
use crate::settings::visible;
use crate::table::table;

pub(super) fn run(command: TheirsCommand) -> Result {
    match command {
        TheirsCommand::Connect {
            provider_url: provider,
            source,
            streams,
            cache,
            no_browser,
        } => {
            let ask = Ask {
                provider: provider_url(&provider)?,
                source,
                streams,
                cache: Cache::at(cache.cache_root),
            };
            ask_for(&ask, !no_browser)
        }
        TheirsCommand::Whoami {
            provider_url,
            cache,
            json,
        } => whoami(&Cache::at(cache.cache_root), &provider_url, json),
        TheirsCommand::Grants { cache, json } => grants(&Cache::at(cache.cache_root), json),
        TheirsCommand::Revoke {
            provider_url,
            cache,
        } => give_back(&Cache::at(cache.cache_root), &provider_url),
    }
}

fn ask_for(ask: &Ask, opens: bool) -> Result {
    let connected = super::super::runtime()?.block_on(connect(ask, |waiting| {
        eprintln!("approve it here: {}", visible(&waiting.approval_url));
        if let Some(code) = &waiting.user_code {
            eprintln!("the page shows the code {}", visible(code));
        }
        if opens {
            open_browser(&waiting.approval_url);
        }
        eprintln!("waiting for the owner, for five minutes at most");
    }))?;
    let mut out = io::stdout().lock();
    let grant = connected.cached.credential.grant_id.unwrap_or_default();
    writeln!(out, "connected to {}", ask.provider).map_err(output)?;
    writeln!(out, "grant {}", visible(&grant)).map_err(output)?;
    for stream in streams(&connected.schema) {
        writeln!(out, "  {}", visible(&stream)).map_err(output)?;
    }
    writeln!(out, "kept in {}", connected.path.display()).map_err(output)
}

fn whoami(cache: &Cache, provider: &str, for_programs: bool) -> Result {
    let provider = provider_url(provider)?;
    let (cached, told) = super::super::runtime()?.block_on(async {
        let cached = fresh(cache, &provider).await?;
        let told = schema(&provider, &cached).await?;
        Ok::<_, Fault>((cached, told))
    })?;
    let streams = streams(&told);
    let mut out = io::stdout().lock();
    if for_programs {
        let mut told = facts(&cached);
        told["streams"] = json!(streams);
        return writeln!(out, "{told:#}").map_err(output);
    }
    let credential = &cached.credential;
    writeln!(out, "provider  {provider}").map_err(output)?;
    if let Some(client) = &cached.client {
        writeln!(out, "client    {}", visible(&client.client_id)).map_err(output)?;
    }
    if let Some(grant) = &credential.grant_id {
        writeln!(out, "grant     {}", visible(grant)).map_err(output)?;
    }
    let until = credential.expires_at.as_deref().unwrap_or("it is revoked");
    let renewed = match credential.refresh_token {
        Some(_) => ", and is renewed before",
        None => "",
    };
    writeln!(out, "token     until {}{renewed}", visible(until)).map_err(output)?;
    for stream in streams {
        writeln!(out, "stream    {}", visible(&stream)).map_err(output)?;
    }
    Ok(())
}

fn grants(cache: &Cache, for_programs: bool) -> Result {
    let all = cache.all()?;
    let mut out = io::stdout().lock();
    if for_programs {
        let rows: Vec<Value> = all.iter().map(|(_, cached)| facts(cached)).collect();
        return writeln!(out, "{:#}", json!(rows)).map_err(output);
    }
    let text = |text: &Option<String>| visible(text.as_deref().unwrap_or_default());
    let row = |(path, cached): &(std::path::PathBuf, Cached)| {
        vec![
            text(&cached.provider_url),
            text(&cached.credential.grant_id),
            text(&cached.credential.expires_at),
            path.display().to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let heading = ["provider", "grant", "token until", "kept in"];
    write!(out, "{}", table(&heading, &rows)).map_err(output)
}

fn give_back(cache: &Cache, provider: &str) -> Result {
    let provider = provider_url(provider)?;
    super::super::runtime()?.block_on(async {
        let cached = fresh(cache, &provider).await?;
        revoke(&cached).await
    })?;
    cache.remove(&provider)?;
    eprintln!("given back, and forgotten");
    Ok(())
}

/// What is kept, without what is secret.
fn facts(cached: &Cached) -> Value {
    json!({
        "provider_url": cached.provider_url,
        "client_id": cached.client.as_ref().map(|client| &client.client_id),
        "grant_id": cached.credential.grant_id,
        "expires_at": cached.credential.expires_at,
        "refreshes": cached.credential.refresh_token.is_some(),
    })
}

/// The streams that a provider's schema names: its body is the schema, or has it in `data`.
fn streams(told: &Value) -> Vec<String> {
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

/// Opens a page where somebody looks on.
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
