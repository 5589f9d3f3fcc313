//! `rung demo`: from nothing to the first answer.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;

use rung_fault::{Code, Fault};
use rung_pdpp::connect::{Cache, Cached, Credential};
use rung_records::grant::Selection;
use rung_records::{Bearer, GrantRequest, Records, Target};
use serde_json::{Value, json};

use crate::cli::{Cli, Command, DemoArgs};
use crate::demo::{Life, SOURCES};
use crate::exit::{Result, output};

/// Where the sample lies, if nothing else is said.
const FOLDER: &str = "rung-demo";
/// Who reads it.
const CLIENT: &str = "Demo agent";

pub(super) fn run(args: &DemoArgs, home: Option<PathBuf>, set: Vec<String>) -> Result {
    let home = match home {
        Some(home) => home,
        None => std::env::current_dir()
            .map_err(|error| Fault::new(Code::Internal, error.to_string()))?
            .join(FOLDER),
    };
    let address: SocketAddr = args.listen.parse().map_err(|_| {
        Fault::new(
            Code::InvalidArguments,
            format!("{} is no address", args.listen),
        )
        .with_hint("write it as 127.0.0.1:7663")
    })?;
    // Nothing is touched where another one is at work.
    if !args.prepare
        && let Err(error) = std::net::TcpListener::bind(address)
    {
        let why = format!("cannot listen at {address}: {error}");
        return Err(Fault::new(Code::InvalidSetting, why)
            .with_hint("end what listens there, or choose another address with --listen ADDR:PORT")
            .into());
    }
    let settings = super::loaded(Some(home.clone()), set.clone())?;
    let records = crate::records::open(&settings)?;
    let owner = crate::records::owner(&records)?;
    refuse_others(&records, &owner, &home)?;
    let made = make(&records, &owner)?;
    let provider = format!("http://{address}");
    let (grant, path) = connect(&records, &owner, &provider)?;
    let password = if records
        .has_password(owner.subject_id())
        .map_err(Fault::from)?
    {
        "the one it showed at first".to_owned()
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
            "  What {CLIENT:?} may read   mail messages since 1 January 2026, without folder and has_attachment (grant {grant})"
        ),
        format!("  Its token          {}", path.display()),
        String::new(),
        "Ask, as the agent would:".to_owned(),
        String::new(),
        format!("  rung pdpp whoami {provider}"),
        format!(
            "  rung call 'rung pdpp mcp --provider-url {provider}' search --args '{{\"q\":\"reading room\"}}'"
        ),
        String::new(),
        "As the owner, see what was shown, and set another password:".to_owned(),
        String::new(),
        format!("  rung pdpp disclosures --home {}", home.display()),
        format!("  rung pdpp password --home {}", home.display()),
        String::new(),
        "Let an agent of yours ask for access, and read:".to_owned(),
        String::new(),
    ];
    for line in shown {
        writeln!(out, "{line}").map_err(output)?;
    }
    for line in clients(&provider) {
        writeln!(out, "  {line}").map_err(output)?;
    }
    out.flush().map_err(output)?;
    drop(out);
    if args.prepare {
        return Ok(());
    }
    drop(records);
    let said = ["rung", "serve", "--listen", &args.listen];
    let Command::Serve(serve) = <Cli as clap::Parser>::parse_from(said).command else {
        return Err(Fault::new(Code::Internal, "serving is a command").into());
    };
    let mut set = set;
    set.push(format!("listen={address}"));
    super::serve::run(&serve, &super::loaded(Some(home), set)?)
}

/// Refuses a folder that holds somebody's own data.
fn refuse_others(
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
        "{} holds other data, which the sample must not be mixed with",
        home.display()
    );
    Err(Fault::new(Code::InvalidArguments, why).with_hint("choose an empty folder with --home DIR"))
}

/// Makes the sample, once.
fn make(records: &Records, owner: &Bearer) -> std::result::Result<usize, Fault> {
    let mut made = 0;
    for source in &SOURCES {
        records.register(source.manifest())?;
        let (id, connector) = (source.connection, source.connector);
        records.put_connection(owner, id, connector, Some(source.account))?;
        let all = Life::new().records(connector);
        made += all.len();
        let mut streams: Vec<&str> = all.iter().map(|(stream, _, _)| *stream).collect();
        streams.sort_unstable();
        streams.dedup();
        for stream in streams {
            let target = Target {
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

/// Gives an agent access to some of it, and keeps its token where agents look for it.
fn connect(
    records: &Records,
    owner: &Bearer,
    provider: &str,
) -> std::result::Result<(String, PathBuf), Fault> {
    let cache = Cache::at(None);
    // Started again, the same token is as good as before.
    if let Ok(Some(cached)) = cache.read(provider)
        && records.admit(&cached.credential.access_token).is_ok()
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
    let (grant, token) = records.issue(
        owner,
        &GrantRequest {
            client: CLIENT.to_owned(),
            source: "mail".to_owned(),
            selections: vec![Selection {
                stream: "messages".to_owned(),
                fields: fields.map(str::to_owned).to_vec(),
                since: Some("2026-01-01".to_owned()),
                ..Selection::default()
            }],
            ..GrantRequest::default()
        },
    )?;
    let cached = Cached {
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

/// How agents are told of it. They ask the owner themselves, in the browser.
fn clients(provider: &str) -> Vec<String> {
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
