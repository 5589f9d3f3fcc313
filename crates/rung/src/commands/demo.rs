//! `rung demo`: creates sample data, grants an agent access and serves it.

use std::io::{self, Write as _};
use std::path::PathBuf;

use rung_fault::{Code, Fault};
use rung_pdpp::connect::{CachedGrant, Credential, CredentialCache};
use rung_records::grant::StreamSelection;
use rung_records::{Bearer, GrantRequest, Records, StreamTarget};
use serde_json::{Value, json};

use crate::cli::{Cli, Command, DemoArgs};
use crate::demo::{SOURCES, SampleGenerator};
use crate::exit::{Result, output_error};
use crate::listen_address::ListenAddress;
use crate::print::note;

/// Default data folder, in the working folder.
const DEFAULT_FOLDER: &str = "rung-demo";
/// Client name of the sample grant.
const CLIENT_NAME: &str = "Demo agent";

pub(super) fn run(args: &DemoArgs, home: Option<PathBuf>, set: Vec<String>) -> Result {
    let home = match home {
        Some(home) => home,
        None => std::env::current_dir()
            .map_err(|error| Fault::new(Code::Internal, error.to_string()))?
            .join(DEFAULT_FOLDER),
    };
    let listen = args.listen.parse::<ListenAddress>().map_err(|why| {
        Fault::new(Code::InvalidArguments, format!("--listen {why}"))
            .with_hint("write it as --listen 127.0.0.1:7663")
    })?;
    // At least one address is returned.
    let address = listen.resolve()?[0];
    // Change nothing if the address is in use, for example by another demo.
    if !args.prepare
        && let Err(error) = std::net::TcpListener::bind(address)
    {
        let why = format!("cannot listen at {address}: {error}");
        return Err(Fault::new(Code::InvalidSetting, why)
            .with_hint("end the process that listens there, or choose another address with --listen HOST:PORT")
            .into());
    }
    let settings = super::load_settings(Some(home.clone()), set.clone())?;
    let records = crate::records::open(&settings)?;
    let owner = crate::records::local_owner(&records)?;
    check_only_sample(&records, &owner, &home)?;
    let made = create_sample(&records, &owner)?;
    let provider = format!("http://{address}");
    let (grant, path) = issue_sample_grant(&records, &owner, &provider)?;
    let password = if records
        .has_password(owner.subject_id())
        .map_err(Fault::from)?
    {
        "as printed by the first `rung demo`".to_owned()
    } else {
        let password = crate::password::generate()?;
        records
            .set_password(&owner, &password)
            .map_err(Fault::from)?;
        password
    };
    let mut out = io::stdout().lock();
    let shown = [
        format!(
            "Mira Holm, who does not exist, has {made} records in {}.",
            home.display()
        ),
        String::new(),
        format!("  The owner's page   {provider}/owner/grants   password {password}"),
        format!(
            "  What {CLIENT_NAME:?} may read   mail messages since 1 January 2026, without folder and has_attachment (grant {grant})"
        ),
        format!("  Its token          {}", path.display()),
        String::new(),
        "Read as the agent:".to_owned(),
        String::new(),
        format!("  rung pdpp whoami {provider}"),
        format!(
            "  rung call 'rung pdpp mcp --provider-url {provider}' search --args '{{\"q\":\"reading room\"}}'"
        ),
        String::new(),
        "As the owner, list the disclosures, and set another password:".to_owned(),
        String::new(),
        format!("  rung pdpp disclosures --home {}", home.display()),
        format!("  rung pdpp password --home {}", home.display()),
        String::new(),
        "Add the server to your MCP client, which then requests access:".to_owned(),
        String::new(),
    ];
    for line in shown {
        writeln!(out, "{line}").map_err(output_error)?;
    }
    for line in client_instructions(&provider) {
        writeln!(out, "  {line}").map_err(output_error)?;
    }
    out.flush().map_err(output_error)?;
    drop(out);
    if args.prepare {
        note!("the commands work while `rung demo` runs");
        return Ok(());
    }
    note!(
        "Ctrl-C ends it; remove the folders {} and .pdpp afterwards",
        home.display()
    );
    drop(records);
    let said = ["rung", "serve", "--listen", &args.listen];
    let Command::Serve(serve) = <Cli as clap::Parser>::parse_from(said).command else {
        return Err(Fault::new(Code::Internal, "`rung serve` does not parse").into());
    };
    let mut set = set;
    set.push(format!("listen={address}"));
    super::serve::run(&serve, &super::load_settings(Some(home), set)?)
}

/// Rejects a folder that holds data other than the sample.
fn check_only_sample(
    records: &Records,
    owner: &Bearer,
    home: &std::path::Path,
) -> std::result::Result<(), Fault> {
    let known = |id: &str| SOURCES.iter().any(|source| source.connection == id);
    let all = records.connections(owner)?;
    let foreign = all.iter().find(|one| !known(&one.id));
    if foreign.is_none() {
        return Ok(());
    }
    let why = format!(
        "{} holds other data, and the sample is not mixed with it",
        home.display()
    );
    Err(Fault::new(Code::InvalidArguments, why).with_hint("choose an empty folder with --home DIR"))
}

/// Creates the sample records. Repeating it changes nothing.
fn create_sample(records: &Records, owner: &Bearer) -> std::result::Result<usize, Fault> {
    let mut made = 0;
    for source in &SOURCES {
        records.register_source(source.manifest())?;
        let (id, connector) = (source.connection, source.connector);
        records.put_connection(owner, id, connector, Some(source.account))?;
        let all = SampleGenerator::new().records(connector);
        made += all.len();
        let mut streams: Vec<&str> = all.iter().map(|(stream, _, _)| *stream).collect();
        streams.sort_unstable();
        streams.dedup();
        for stream in streams {
            let target = StreamTarget {
                connector_id: connector.to_owned(),
                connection_id: Some(id.to_owned()),
                stream: stream.to_owned(),
            };
            let mut ingest = records.ingest(owner, &target)?;
            for (_, key, data) in all.iter().filter(|(own, _, _)| *own == stream) {
                let emitted_at = "2026-11-01T00:00:00Z";
                let line = json!({"key": key, "data": data, "emitted_at": emitted_at}).to_string();
                ingest.push(line.as_bytes())?;
                ingest.push(b"\n")?;
            }
            ingest.finish()?;
        }
    }
    Ok(made)
}

/// Grants the sample agent access to part of the data, and caches its token where `rung pdpp mcp` reads it.
fn issue_sample_grant(
    records: &Records,
    owner: &Bearer,
    provider: &str,
) -> std::result::Result<(String, PathBuf), Fault> {
    let cache = CredentialCache::new(None);
    // Reuse the cached token of an earlier run while it is valid.
    if let Ok(Some(cached)) = cache.read(provider)
        && records
            .authenticate(&cached.credential.access_token)
            .is_ok()
    {
        let grant = cached.credential.grant_id.unwrap_or_default();
        return Ok((grant, cache.path(provider)));
    }
    let fields = [
        "id",
        "thread_id",
        "from",
        "to",
        "subject",
        "body",
        "sent_at",
    ];
    let (grant, token) = records.issue_grant(
        owner,
        &GrantRequest {
            client: CLIENT_NAME.to_owned(),
            source: "mail".to_owned(),
            selections: vec![StreamSelection {
                stream: "messages".to_owned(),
                fields: fields.map(str::to_owned).to_vec(),
                since: Some("2026-01-01".to_owned()),
                ..StreamSelection::default()
            }],
            ..GrantRequest::default()
        },
    )?;
    let cached = CachedGrant {
        provider_url: Some(provider.to_owned()),
        authorization_server: Some(provider.to_owned()),
        scope: Some("pdpp:read".to_owned()),
        client: None,
        credential: Credential {
            access_token: token.expose().clone(),
            token_type: Some("Bearer".to_owned()),
            expires_at: None,
            grant_id: Some(grant.grant_id.clone()),
            scope: Some("pdpp:read".to_owned()),
            refresh_token: None,
            pdpp_token_kind: None,
        },
        created_at: Some(grant.issued_at.clone()),
    };
    let path = cache.write(provider, &cached)?;
    Ok((grant.grant_id, path))
}

/// Returns the commands that add this server to known MCP clients, which then request access in the browser.
fn client_instructions(provider: &str) -> Vec<String> {
    let url = format!("{provider}/mcp");
    let servers: Value = json!({"mcpServers": {"rung": {"type": "http", "url": url}}});
    vec![
        format!("Claude Code   claude mcp add --transport http rung {url}"),
        format!("Codex         codex mcp add rung --url {url}"),
        format!("Gemini        gemini mcp add --transport http rung {url}"),
        format!(
            "opencode      {}",
            json!({"mcp": {"rung": {"type": "remote", "url": url}}})
        ),
        format!("others        {servers}"),
    ]
}
