//! Token refresh: returns the cached token, or a new one shortly before the cached one expires.
//!
//! A refresh token works once. Only one process at a time refreshes it; a process that waited for the lock uses the new token.

use std::time::Duration;

use rung_fault::{Code, Fault};
use serde_json::Value;

use super::cache::{CachedGrant, CredentialCache, is_owner_schema, owner_token_fault};
use super::flow::parse_credential;
use super::provider::{
    EndpointResponse, HttpClient, invalid_response, normalize_provider_url, resolve_endpoint,
};

/// A token is refreshed this long before it expires.
const REFRESH_MARGIN: Duration = Duration::from_mins(1);

/// Returns the time `seconds` from now.
pub(super) fn expiry_after(seconds: i64) -> String {
    let now = jiff::Timestamp::now();
    let end = now.as_second().saturating_add(seconds);
    jiff::Timestamp::from_second(end)
        .unwrap_or(jiff::Timestamp::MAX)
        .to_string()
}

/// Returns the seconds until the token expires; `None` where no expiry is known.
fn seconds_left(cached: &CachedGrant) -> Option<i64> {
    let end: jiff::Timestamp = cached.credential.expires_at.as_deref()?.parse().ok()?;
    Some(end.as_second() - jiff::Timestamp::now().as_second())
}

pub(crate) fn expires_soon(cached: &CachedGrant) -> bool {
    let before = i64::try_from(REFRESH_MARGIN.as_secs()).unwrap_or(0);
    seconds_left(cached).is_some_and(|left| left <= before)
}

/// Returns the cached grant of a provider, refreshed if its token expires soon.
pub async fn fresh_grant(cache: &CredentialCache, provider: &str) -> Result<CachedGrant, Fault> {
    let cached = read_grant(cache, provider)?;
    if !expires_soon(&cached) {
        return Ok(cached);
    }
    if cached.credential.refresh_token.is_none() {
        return match seconds_left(&cached) {
            Some(left) if left > 0 => Ok(cached),
            _ => Err(expired_fault(provider)),
        };
    }
    let waiting = (cache.clone(), provider.to_owned());
    let locked = tokio::task::spawn_blocking(move || waiting.0.lock(&waiting.1)).await;
    let _locked = locked.map_err(|error| Fault::new(Code::Internal, error.to_string()))??;
    // The previous holder of the lock may have refreshed the token.
    let cached = read_grant(cache, provider)?;
    if !expires_soon(&cached) {
        return Ok(cached);
    }
    refresh_grant(cache, provider, cached).await
}

/// Returns the cached grant of a provider if its token is valid or can be refreshed. Sends no request.
pub fn cached_grant(cache: &CredentialCache, provider: &str) -> Result<CachedGrant, Fault> {
    let cached = read_grant(cache, provider)?;
    if cached.credential.access_token.is_empty() {
        let why = format!("{} contains no token", cache.path(provider).display());
        return Err(Fault::new(Code::StoreBroken, why));
    }
    let ended = seconds_left(&cached).is_some_and(|left| left <= 0);
    if ended && cached.credential.refresh_token.is_none() {
        return Err(expired_fault(provider));
    }
    Ok(cached)
}

async fn refresh_grant(
    cache: &CredentialCache,
    provider: &str,
    cached: CachedGrant,
) -> Result<CachedGrant, Fault> {
    let http = HttpClient::new()?;
    let refresh = cached.credential.refresh_token.clone().unwrap_or_default();
    let client = cached
        .client
        .as_ref()
        .map(|client| client.client_id.clone());
    let client = client.ok_or_else(|| expired_fault(provider))?;
    let issuer = cached
        .authorization_server
        .clone()
        .unwrap_or_else(|| provider.to_owned());
    let renewed = request_refresh(&http, &issuer, &refresh, &client).await;
    let said = match renewed {
        Ok(said) => said,
        // The old token is still valid for a while.
        Err(_) if seconds_left(&cached).is_some_and(|left| left > 0) => return Ok(cached),
        Err(fault) => return Err(fault),
    };
    if !said.is_success() {
        if said.error_code() == Some("invalid_grant") {
            return Err(expired_fault(provider));
        }
        // The old token is still valid for a while.
        if seconds_left(&cached).is_some_and(|left| left > 0) {
            return Ok(cached);
        }
        let why = format!("the token could not be refreshed: {}", said.reason());
        return Err(Fault::new(Code::SourceUnavailable, why).with_hint("try again in a moment"));
    }
    let mut next = cached;
    let mut given = parse_credential(&said.body)?;
    given.grant_id = given.grant_id.or(next.credential.grant_id);
    given.refresh_token = given.refresh_token.or(Some(refresh));
    next.credential = given;
    cache.write(provider, &next)?;
    Ok(next)
}

async fn request_refresh(
    http: &HttpClient,
    issuer: &str,
    refresh: &str,
    client: &str,
) -> Result<EndpointResponse, Fault> {
    let server = http
        .get(
            &format!("{issuer}/.well-known/oauth-authorization-server"),
            None,
        )
        .await?;
    let told = server.body["issuer"]
        .as_str()
        .map(normalize_provider_url)
        .transpose()?;
    if told.as_deref() != Some(issuer) {
        return Err(invalid_response(format!(
            "the authorization server {issuer} identifies itself as another"
        )));
    }
    let endpoint = server.body["token_endpoint"].as_str();
    let endpoint = endpoint.ok_or_else(|| {
        invalid_response("the authorization server's metadata has no token_endpoint")
    })?;
    let pairs = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh),
        ("client_id", client),
    ];
    http.post_form(&resolve_endpoint(issuer, endpoint)?, &pairs)
        .await
}

fn read_grant(cache: &CredentialCache, provider: &str) -> Result<CachedGrant, Fault> {
    let kept = cache.read(provider)?;
    if let Some(other) = kept.as_ref().and_then(|kept| kept.provider_url.as_deref())
        && normalize_provider_url(other)? != provider
    {
        let why = format!("the cached credential is for {other}, and is not sent to {provider}");
        return Err(Fault::new(Code::PermissionError, why).with_hint(format!(
            "run `rung pdpp connect {provider}` to ask the owner for access"
        )));
    }
    kept.ok_or_else(|| {
        let why = format!(
            "no credential for {provider} is cached in {}",
            cache.path(provider).display()
        );
        Fault::new(Code::NotFound, why).with_hint(format!(
            "run `rung pdpp connect {provider}` to ask the owner for access"
        ))
    })
}

fn expired_fault(provider: &str) -> Fault {
    Fault::new(
        Code::GrantExpired,
        "credential_expired: the cached credential has expired",
    )
    .with_hint(format!(
        "run `rung pdpp connect {provider}` to ask the owner again"
    ))
}

/// Fetches the schema that a cached grant allows to read.
pub async fn fetch_schema(provider: &str, cached: &CachedGrant) -> Result<Value, Fault> {
    fetch_schema_with(
        &HttpClient::new()?,
        provider,
        &cached.credential.access_token,
    )
    .await
}

pub(super) async fn fetch_schema_with(
    http: &HttpClient,
    provider: &str,
    token: &str,
) -> Result<Value, Fault> {
    let said = http
        .get(&format!("{provider}/v1/schema?view=compact"), Some(token))
        .await?;
    if !said.is_success() {
        return Err(token_rejected_fault(&said));
    }
    if is_owner_schema(&said.body) {
        return Err(owner_token_fault(&format!("the credential for {provider}")));
    }
    Ok(said.body)
}

fn token_rejected_fault(said: &EndpointResponse) -> Fault {
    let code = match said.status {
        401 => Code::AuthenticationError,
        403 if said.error_code() == Some("grant_revoked") => Code::GrantRevoked,
        403 if said.error_code() == Some("grant_expired") => Code::GrantExpired,
        403 => Code::InsufficientScope,
        _ => Code::SourceFailed,
    };
    Fault::new(
        code,
        format!("the provider rejects the token: {}", said.reason()),
    )
    .with_hint("run `rung pdpp connect` to ask the owner again")
}

/// Revokes the cached grant at its provider.
pub async fn revoke(cached: &CachedGrant) -> Result<(), Fault> {
    let provider = cached.provider_url.clone().unwrap_or_default();
    let issuer = cached.authorization_server.as_ref().unwrap_or(&provider);
    let grant = cached.credential.grant_id.as_deref();
    let grant = grant.ok_or_else(|| invalid_response("the cached credential has no grant id"))?;
    let token = cached.credential.access_token.as_str();
    let http = HttpClient::new()?;
    // An expired grant is no reason to stop, but an owner token is: it could revoke any grant.
    if let Err(fault) = fetch_schema_with(&http, &provider, token).await
        && fault.code() == Code::PermissionError
    {
        return Err(fault);
    }
    let said = http
        .post(
            &format!("{issuer}/grants/{grant}/revoke"),
            Some(token),
            &serde_json::json!({}),
        )
        .await?;
    // Already revoked counts as success.
    if said.is_success() || said.error_code() == Some("grant_revoked") {
        return Ok(());
    }
    Err(token_rejected_fault(&said))
}
