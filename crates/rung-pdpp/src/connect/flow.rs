//! Asking for access: the owner decides in a browser, and the command waits.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rung_fault::{Code, Fault};
use serde_json::{Value, json};

use super::cache::{Cache, Cached, ClientKept, Credential};
use super::provider::{Discovered, Http, Said, absolute, broken, discover};
use super::refresh::{ends_at, schema_with};

/// What is asked for.
const SCOPE: &str = "pdpp:read";
/// As whom.
const NAME: &str = "PDPP CLI";
/// How long the owner has.
const PATIENCE: Duration = Duration::from_mins(5);
/// How often it is asked whether they have decided.
const INTERVAL_MS: u64 = 2_000;

/// What access is asked for.
pub struct Ask {
    /// Of which provider, in the form of [`super::provider_url`].
    pub provider: String,
    /// Of which source, where the provider wants to be told.
    pub source: Option<String>,
    /// Of which streams of it. All, if none is named.
    pub streams: Vec<String>,
    /// Where what was given is kept.
    pub cache: Cache,
}

/// What the owner has to be told.
pub struct Waiting {
    /// The page on which they decide.
    pub approval_url: String,
    /// The code that it shows, too.
    pub user_code: Option<String>,
}

/// What was given.
pub struct Connected {
    /// Where it is kept.
    pub path: PathBuf,
    /// What is kept.
    pub cached: Cached,
    /// What can be read with it.
    pub schema: Value,
}

/// Asks for access, and keeps what is given.
pub async fn connect(ask: &Ask, tell: impl Fn(&Waiting)) -> Result<Connected, Fault> {
    let http = Http::new()?;
    let found = discover(&http, &ask.provider).await?;
    let mut client = client(&http, ask, &found).await?;
    let started = match begin(&http, ask, &found, client.as_ref()).await {
        // A provider may have forgotten us.
        Err(fault) if fault.code() == Code::InvalidClient && found.registration.is_some() => {
            client = register(&http, &found).await?;
            begin(&http, ask, &found, client.as_ref()).await?
        }
        started => started?,
    };
    tell(&Waiting {
        approval_url: started.approval_url.clone(),
        user_code: started.user_code.clone(),
    });
    let given = wait(&http, &started).await?;
    let credential = credential(&given)?;
    let token = credential.access_token.clone();
    let schema = schema_with(&http, &ask.provider, &token).await?;
    let cached = Cached {
        provider_url: Some(ask.provider.clone()),
        authorization_server: Some(found.issuer),
        scope: Some(SCOPE.to_owned()),
        client,
        credential,
        created_at: Some(format!("{:.3}", jiff::Timestamp::now())),
    };
    let path = ask.cache.write(&ask.provider, &cached)?;
    Ok(Connected {
        path,
        cached,
        schema,
    })
}

/// As whom we ask: as before, or as somebody new where that is possible.
async fn client(http: &Http, ask: &Ask, found: &Discovered) -> Result<Option<ClientKept>, Fault> {
    let known = ask.cache.read(&ask.provider).unwrap_or_default();
    let known = known.filter(|cached| cached.authorization_server.as_ref() == Some(&found.issuer));
    if let Some(client) = known.and_then(|cached| cached.client) {
        return Ok(Some(client));
    }
    register(http, found).await
}

async fn register(http: &Http, found: &Discovered) -> Result<Option<ClientKept>, Fault> {
    let Some(url) = &found.registration else {
        return Ok(None);
    };
    let full = json!({
        "client_name": NAME, "token_endpoint_auth_method": "none",
        "grant_types": ["refresh_token"], "application_type": "native",
    });
    let mut said = http.post(url, None, &full).await?;
    if said.status == 400 {
        // Some take only the least.
        let least = json!({"client_name": NAME, "token_endpoint_auth_method": "none"});
        said = http.post(url, None, &least).await?;
    }
    let id = said.body["client_id"]
        .as_str()
        .filter(|_| said.is_success());
    let id = id.ok_or_else(|| refused("registration", &said))?;
    Ok(Some(ClientKept {
        client_id: id.to_owned(),
        client_name: Some(NAME.to_owned()),
        token_endpoint_auth_method: Some("none".to_owned()),
    }))
}

/// A request that the owner decides on.
struct Started {
    approval_url: String,
    poll_url: String,
    user_code: Option<String>,
    polling_code: Option<String>,
    interval_ms: u64,
}

async fn begin(
    http: &Http,
    ask: &Ask,
    found: &Discovered,
    client: Option<&ClientKept>,
) -> Result<Started, Fault> {
    let mut body = json!({"resource": ask.provider, "scope": SCOPE, "client_name": NAME});
    if let Some(client) = client {
        body["client_id"] = json!(client.client_id);
    }
    if ask.source.is_some() {
        body["request_uri"] = json!(push(http, ask, found, client).await?);
    }
    let said = http.post(&found.agent_connect, None, &body).await?;
    if said.error() == Some("invalid_client") {
        return Err(refused("agent-connect", &said));
    }
    if said.status == 400 && ask.source.is_none() {
        let why = format!(
            "the provider wants to be told what is asked for ({})",
            said.why()
        );
        return Err(Fault::new(Code::InvalidArguments, why)
            .with_hint("name it with --source KEY, and --streams NAMES if not all are meant"));
    }
    if !said.is_success() {
        return Err(refused("agent-connect", &said));
    }
    let text = |names: &[&str]| names.iter().find_map(|name| said.body[*name].as_str());
    let need = |names: &[&str]| {
        let found = text(names).map(str::to_owned);
        found.ok_or_else(|| broken(format!("the answer has no {}", names[0])))
    };
    let approval = need(&[
        "approval_url",
        "verification_uri_complete",
        "verification_uri",
    ])?;
    let poll = need(&[
        "poll_url",
        "token_url",
        "device_poll_endpoint",
        "completion_endpoint",
    ])?;
    let seconds = said.body["interval"]
        .as_u64()
        .map(|seconds| seconds.saturating_mul(1_000));
    Ok(Started {
        approval_url: absolute(&found.issuer, &approval)?,
        poll_url: absolute(&found.issuer, &poll)?,
        user_code: text(&["user_code"]).map(str::to_owned),
        polling_code: text(&["polling_code"]).map(str::to_owned),
        interval_ms: said.body["interval_ms"]
            .as_u64()
            .or(seconds)
            .unwrap_or(INTERVAL_MS)
            .clamp(200, 30_000),
    })
}

/// Says beforehand what is asked for, to a provider that wants to know.
async fn push(
    http: &Http,
    ask: &Ask,
    found: &Discovered,
    client: Option<&ClientKept>,
) -> Result<String, Fault> {
    let url = found.pushed.as_ref();
    let url = url.ok_or_else(|| broken("it does not say where requests are pushed"))?;
    let source = ask.source.as_deref().unwrap_or_default();
    let source = if source.contains("://") {
        source.to_owned()
    } else {
        format!("https://registry.pdpp.dev/connectors/{source}")
    };
    let streams: Vec<Value> = match ask.streams.as_slice() {
        [] => vec![json!({"name": "*"})],
        names => names
            .iter()
            .map(|name| json!({"name": name, "necessity": "optional"}))
            .collect(),
    };
    let body = json!({
        "client_id": client.map(|client| &client.client_id),
        "authorization_details": [{
            "type": "https://pdpp.dev/data-access",
            "source": {"kind": "connector", "id": source},
            "purpose_code": "https://pdpp.dev/purpose/agent_context",
            "access_mode": "continuous",
            "streams": streams,
        }],
    });
    let said = http.post(url, None, &body).await?;
    let pushed = said.body["request_uri"]
        .as_str()
        .filter(|_| said.is_success());
    let pushed = pushed.ok_or_else(|| refused("the pushed request", &said))?;
    Ok(pushed.to_owned())
}

/// Waits for the owner.
async fn wait(http: &Http, started: &Started) -> Result<Value, Fault> {
    let began = Instant::now();
    let mut body = json!({});
    if let Some(code) = &started.polling_code {
        body["polling_code"] = json!(code);
    }
    loop {
        tokio::time::sleep(Duration::from_millis(started.interval_ms)).await;
        let late = began.elapsed() > PATIENCE;
        let said = match http.post(&started.poll_url, None, &body).await {
            Ok(said) => said,
            // A connection that broke says nothing of what the owner does.
            Err(_) if !late => continue,
            Err(fault) => return Err(fault),
        };
        let status = said.body["status"].as_str();
        let credential = if said.body["credential"].is_object() {
            &said.body["credential"]
        } else {
            &said.body
        };
        let given = credential["access_token"].is_string();
        if said.is_success() && given && matches!(status, None | Some("approved")) {
            return Ok(credential.clone());
        }
        let waits = matches!(status, Some("pending" | "authorization_pending"))
            || matches!(said.error(), Some("authorization_pending" | "slow_down"));
        if !waits || (!said.is_success() && said.status != 400 && said.status != 429) {
            return Err(refused("the owner's answer", &said));
        }
        if late {
            return Err(Fault::new(
                Code::ExpiredToken,
                "the owner did not decide within five minutes",
            )
            .with_hint("run it again, and approve it in the browser"));
        }
    }
}

/// What was given, as it is kept.
pub(super) fn credential(given: &Value) -> Result<Credential, Fault> {
    let text = |name: &str| given[name].as_str().map(str::to_owned);
    let token = text("access_token").ok_or_else(|| broken("the answer has no access_token"))?;
    let seconds = given["expires_in"].as_i64();
    Ok(Credential {
        access_token: token,
        token_type: Some(text("token_type").unwrap_or_else(|| "Bearer".to_owned())),
        expires_at: text("expires_at").or_else(|| seconds.map(ends_at)),
        grant_id: text("grant_id"),
        scope: text("scope"),
        refresh_token: text("refresh_token"),
        pdpp_token_kind: text("pdpp_token_kind").filter(|kind| kind == "owner"),
    })
}

fn refused(what: &str, said: &Said) -> Fault {
    if said.error() == Some("access_denied") {
        return Fault::new(Code::AccessDenied, "the owner said no");
    }
    let code = match said.error() {
        Some("expired_token") => Code::ExpiredToken,
        Some("invalid_grant") => Code::InvalidGrant,
        Some("insufficient_scope") => Code::InsufficientScope,
        Some("invalid_client") => Code::InvalidClient,
        _ => Code::SourceFailed,
    };
    Fault::new(code, format!("{what} was refused: {}", said.why()))
        .with_hint("run it again, and approve it in the browser")
}
