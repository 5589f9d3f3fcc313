//! The agent-connect flow: the command requests access, the owner decides in a browser, the command polls for the token.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rung_fault::{Code, Fault};
use serde_json::{Value, json};

use super::cache::{CachedGrant, ClientRegistration, Credential, CredentialCache};
use super::provider::{
    EndpointResponse, HttpClient, ProviderMetadata, discover, invalid_response, resolve_endpoint,
};
use super::refresh::{expiry_after, fetch_schema_with};

const SCOPE: &str = "pdpp:read";
const CLIENT_NAME: &str = "PDPP CLI";
/// How long the owner has to decide.
const APPROVAL_TIMEOUT: Duration = Duration::from_mins(5);
/// The polling interval, unless the provider names one.
const POLL_INTERVAL_MS: u64 = 2_000;

/// The access to request.
pub struct ConnectRequest {
    /// The provider's URL, as [`super::normalize_provider_url`] returns it.
    pub provider: String,
    /// The connector to read from, for providers that require it.
    pub source: Option<String>,
    /// The streams of the connector; all if empty.
    pub streams: Vec<String>,
    /// The cache that the credential is written to.
    pub cache: CredentialCache,
}

/// A request that waits for the owner's decision.
pub struct PendingApproval {
    /// The page on which the owner decides.
    pub approval_url: String,
    /// A code that the page shows as well.
    pub user_code: Option<String>,
}

/// The result of a successful [`connect`].
pub struct ConnectOutcome {
    /// The file that the credential was written to.
    pub path: PathBuf,
    pub cached: CachedGrant,
    /// The schema that the grant allows to read.
    pub schema: Value,
}

/// Requests access and caches the credential. `tell` is called once the owner's approval is needed.
pub async fn connect(
    ask: &ConnectRequest,
    tell: impl Fn(&PendingApproval),
) -> Result<ConnectOutcome, Fault> {
    let http = HttpClient::new()?;
    let found = discover(&http, &ask.provider).await?;
    let mut client = find_or_register_client(&http, ask, &found).await?;
    let started = match start_attempt(&http, ask, &found, client.as_ref()).await {
        // The provider may have removed the cached registration.
        Err(fault)
            if fault.code() == Code::InvalidClient && found.registration_endpoint.is_some() =>
        {
            client = register_client(&http, &found).await?;
            start_attempt(&http, ask, &found, client.as_ref()).await?
        }
        started => started?,
    };
    tell(&PendingApproval {
        approval_url: started.approval_url.clone(),
        user_code: started.user_code.clone(),
    });
    let given = poll_for_credential(&http, &started).await?;
    let credential = parse_credential(&given)?;
    let token = credential.access_token.clone();
    let schema = fetch_schema_with(&http, &ask.provider, &token).await?;
    let cached = CachedGrant {
        provider_url: Some(ask.provider.clone()),
        authorization_server: Some(found.issuer),
        scope: Some(SCOPE.to_owned()),
        client,
        credential,
        created_at: Some(format!("{:.3}", jiff::Timestamp::now())),
    };
    let path = ask.cache.write(&ask.provider, &cached)?;
    Ok(ConnectOutcome {
        path,
        cached,
        schema,
    })
}

/// Returns the cached client registration, or registers a new client where the provider supports that.
async fn find_or_register_client(
    http: &HttpClient,
    ask: &ConnectRequest,
    found: &ProviderMetadata,
) -> Result<Option<ClientRegistration>, Fault> {
    let known = ask.cache.read(&ask.provider).unwrap_or_default();
    let known = known.filter(|cached| cached.authorization_server.as_ref() == Some(&found.issuer));
    if let Some(client) = known.and_then(|cached| cached.client) {
        return Ok(Some(client));
    }
    register_client(http, found).await
}

async fn register_client(
    http: &HttpClient,
    found: &ProviderMetadata,
) -> Result<Option<ClientRegistration>, Fault> {
    let Some(url) = &found.registration_endpoint else {
        return Ok(None);
    };
    let full = json!({
        "client_name": CLIENT_NAME, "token_endpoint_auth_method": "none",
        "grant_types": ["refresh_token"], "application_type": "native",
    });
    let mut said = http.post(url, None, &full).await?;
    if said.status == 400 {
        // Some providers reject all but the required members.
        let least = json!({"client_name": CLIENT_NAME, "token_endpoint_auth_method": "none"});
        said = http.post(url, None, &least).await?;
    }
    let id = said.body["client_id"]
        .as_str()
        .filter(|_| said.is_success());
    let id = id.ok_or_else(|| connect_fault("registration", &said))?;
    Ok(Some(ClientRegistration {
        client_id: id.to_owned(),
        client_name: Some(CLIENT_NAME.to_owned()),
        token_endpoint_auth_method: Some("none".to_owned()),
    }))
}

/// A started connect attempt, as the provider describes it.
struct ConnectAttempt {
    approval_url: String,
    poll_url: String,
    user_code: Option<String>,
    polling_code: Option<String>,
    interval_ms: u64,
}

async fn start_attempt(
    http: &HttpClient,
    ask: &ConnectRequest,
    found: &ProviderMetadata,
    client: Option<&ClientRegistration>,
) -> Result<ConnectAttempt, Fault> {
    let mut body = json!({"resource": ask.provider, "scope": SCOPE, "client_name": CLIENT_NAME});
    if let Some(client) = client {
        body["client_id"] = json!(client.client_id);
    }
    if ask.source.is_some() {
        body["request_uri"] = json!(push_request(http, ask, found, client).await?);
    }
    let said = http
        .post(&found.agent_connect_endpoint, None, &body)
        .await?;
    if said.error_code() == Some("invalid_client") {
        return Err(connect_fault("agent-connect", &said));
    }
    if said.status == 400 && ask.source.is_none() {
        let why = format!(
            "the provider requires the request to name a source ({})",
            said.reason()
        );
        return Err(Fault::new(Code::InvalidArguments, why).with_hint(
            "name the source with --source KEY, and single streams with --streams NAMES",
        ));
    }
    if !said.is_success() {
        return Err(connect_fault("agent-connect", &said));
    }
    let text = |names: &[&str]| names.iter().find_map(|name| said.body[*name].as_str());
    let need = |names: &[&str]| {
        let found = text(names).map(str::to_owned);
        found.ok_or_else(|| invalid_response(format!("the response has no {}", names[0])))
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
    Ok(ConnectAttempt {
        approval_url: resolve_endpoint(&found.issuer, &approval)?,
        poll_url: resolve_endpoint(&found.issuer, &poll)?,
        user_code: text(&["user_code"]).map(str::to_owned),
        polling_code: text(&["polling_code"]).map(str::to_owned),
        interval_ms: said.body["interval_ms"]
            .as_u64()
            .or(seconds)
            .unwrap_or(POLL_INTERVAL_MS)
            .clamp(200, 30_000),
    })
}

/// Pushes an authorization request for the source and streams; returns its `request_uri`.
async fn push_request(
    http: &HttpClient,
    ask: &ConnectRequest,
    found: &ProviderMetadata,
    client: Option<&ClientRegistration>,
) -> Result<String, Fault> {
    let url = found.par_endpoint.as_ref();
    let url = url.ok_or_else(|| {
        invalid_response(
            "the authorization server's metadata has no pushed_authorization_request_endpoint",
        )
    })?;
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
    let pushed = pushed.ok_or_else(|| connect_fault("the pushed request", &said))?;
    Ok(pushed.to_owned())
}

/// Polls until the owner has decided; returns the credential.
async fn poll_for_credential(http: &HttpClient, started: &ConnectAttempt) -> Result<Value, Fault> {
    let began = Instant::now();
    let mut body = json!({});
    if let Some(code) = &started.polling_code {
        body["polling_code"] = json!(code);
    }
    loop {
        tokio::time::sleep(Duration::from_millis(started.interval_ms)).await;
        let late = began.elapsed() > APPROVAL_TIMEOUT;
        let said = match http.post(&started.poll_url, None, &body).await {
            Ok(said) => said,
            // A failed connection is not a decision: poll again.
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
            || matches!(
                said.error_code(),
                Some("authorization_pending" | "slow_down")
            );
        if !waits || (!said.is_success() && said.status != 400 && said.status != 429) {
            return Err(connect_fault("the request for the token", &said));
        }
        if late {
            return Err(Fault::new(
                Code::ExpiredToken,
                "the owner did not decide within five minutes",
            )
            .with_hint("run the command again, and approve the request in the browser"));
        }
    }
}

/// Parses a token response.
pub(super) fn parse_credential(given: &Value) -> Result<Credential, Fault> {
    let text = |name: &str| given[name].as_str().map(str::to_owned);
    let token =
        text("access_token").ok_or_else(|| invalid_response("the response has no access_token"))?;
    let seconds = given["expires_in"].as_i64();
    Ok(Credential {
        access_token: token,
        token_type: Some(text("token_type").unwrap_or_else(|| "Bearer".to_owned())),
        expires_at: text("expires_at").or_else(|| seconds.map(expiry_after)),
        grant_id: text("grant_id"),
        scope: text("scope"),
        refresh_token: text("refresh_token"),
        pdpp_token_kind: text("pdpp_token_kind").filter(|kind| kind == "owner"),
    })
}

fn connect_fault(what: &str, said: &EndpointResponse) -> Fault {
    if said.error_code() == Some("access_denied") {
        return Fault::new(Code::AccessDenied, "the owner denied the request");
    }
    let code = match said.error_code() {
        Some("expired_token") => Code::ExpiredToken,
        Some("invalid_grant") => Code::InvalidGrant,
        Some("insufficient_scope") => Code::InsufficientScope,
        Some("invalid_client") => Code::InvalidClient,
        _ => Code::SourceFailed,
    };
    Fault::new(code, format!("{what} was refused: {}", said.reason()))
        .with_hint("run the command again, and approve the request in the browser")
}
