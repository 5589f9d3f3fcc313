//! A token that is good: the one that is kept, or a new one before that one ends.
//!
//! A refresh token works once. So only one process at a time gets a new one, and whoever waited takes what it got.

use std::time::Duration;

use rung_fault::{Code, Fault};
use serde_json::Value;

use super::cache::{Cache, Cached, is_owner, owner_token};
use super::flow::credential;
use super::provider::{Http, Said, absolute, broken, provider_url};

/// So long before its end a token is not used any more.
const BEFORE_END: Duration = Duration::from_mins(1);

/// When something ends that lasts so many seconds.
pub(super) fn ends_at(seconds: i64) -> String {
    let now = jiff::Timestamp::now();
    let end = now.as_second().saturating_add(seconds);
    jiff::Timestamp::from_second(end)
        .unwrap_or(jiff::Timestamp::MAX)
        .to_string()
}

/// Seconds until a token ends; `None` where it does not say.
fn left(cached: &Cached) -> Option<i64> {
    let end: jiff::Timestamp = cached.credential.expires_at.as_deref()?.parse().ok()?;
    Some(end.as_second() - jiff::Timestamp::now().as_second())
}

pub(crate) fn ends_soon(cached: &Cached) -> bool {
    let before = i64::try_from(BEFORE_END.as_secs()).unwrap_or(0);
    left(cached).is_some_and(|left| left <= before)
}

/// What is kept of a provider, with a token that is good for a while.
pub async fn fresh(cache: &Cache, provider: &str) -> Result<Cached, Fault> {
    let cached = known(cache, provider)?;
    if !ends_soon(&cached) {
        return Ok(cached);
    }
    if cached.credential.refresh_token.is_none() {
        return match left(&cached) {
            Some(left) if left > 0 => Ok(cached),
            _ => Err(over(provider)),
        };
    }
    let waiting = (cache.clone(), provider.to_owned());
    let locked = tokio::task::spawn_blocking(move || waiting.0.lock(&waiting.1)).await;
    let _locked = locked.map_err(|error| Fault::new(Code::Internal, error.to_string()))??;
    // Whoever had the lock before may have got one.
    let cached = known(cache, provider)?;
    if !ends_soon(&cached) {
        return Ok(cached);
    }
    renew(cache, provider, cached).await
}

/// What is kept of a provider, if it can be used: as it is, or to get a new token. Nobody is asked.
pub fn kept(cache: &Cache, provider: &str) -> Result<Cached, Fault> {
    let cached = known(cache, provider)?;
    if cached.credential.access_token.is_empty() {
        let why = format!("{} holds no token", cache.path(provider).display());
        return Err(Fault::new(Code::StoreBroken, why));
    }
    let ended = left(&cached).is_some_and(|left| left <= 0);
    if ended && cached.credential.refresh_token.is_none() {
        return Err(over(provider));
    }
    Ok(cached)
}

async fn renew(cache: &Cache, provider: &str, cached: Cached) -> Result<Cached, Fault> {
    let http = Http::new()?;
    let refresh = cached.credential.refresh_token.clone().unwrap_or_default();
    let client = cached
        .client
        .as_ref()
        .map(|client| client.client_id.clone());
    let client = client.ok_or_else(|| over(provider))?;
    let issuer = cached
        .authorization_server
        .clone()
        .unwrap_or_else(|| provider.to_owned());
    let renewed = ask_again(&http, &issuer, &refresh, &client).await;
    let said = match renewed {
        Ok(said) => said,
        // What still works for a while is better than nothing.
        Err(_) if left(&cached).is_some_and(|left| left > 0) => return Ok(cached),
        Err(fault) => return Err(fault),
    };
    if !said.is_success() {
        if said.error() == Some("invalid_grant") {
            return Err(over(provider));
        }
        // What still works for a while is better than nothing.
        if left(&cached).is_some_and(|left| left > 0) {
            return Ok(cached);
        }
        let why = format!("no new token could be had: {}", said.why());
        return Err(Fault::new(Code::SourceUnavailable, why).with_hint("try again in a moment"));
    }
    let mut next = cached;
    let mut given = credential(&said.body)?;
    given.grant_id = given.grant_id.or(next.credential.grant_id);
    given.refresh_token = given.refresh_token.or(Some(refresh));
    next.credential = given;
    cache.write(provider, &next)?;
    Ok(next)
}

async fn ask_again(http: &Http, issuer: &str, refresh: &str, client: &str) -> Result<Said, Fault> {
    let server = http
        .get(
            &format!("{issuer}/.well-known/oauth-authorization-server"),
            None,
        )
        .await?;
    let told = server.body["issuer"]
        .as_str()
        .map(provider_url)
        .transpose()?;
    if told.as_deref() != Some(issuer) {
        return Err(broken(format!(
            "the authorization server {issuer} says that it is another"
        )));
    }
    let endpoint = server.body["token_endpoint"].as_str();
    let endpoint = endpoint.ok_or_else(|| broken("it does not say where tokens are given"))?;
    let pairs = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh),
        ("client_id", client),
    ];
    http.form(&absolute(issuer, endpoint)?, &pairs).await
}

fn known(cache: &Cache, provider: &str) -> Result<Cached, Fault> {
    let kept = cache.read(provider)?;
    if let Some(other) = kept.as_ref().and_then(|kept| kept.provider_url.as_deref())
        && provider_url(other)? != provider
    {
        let why = format!("what is kept there is of {other}, and is not sent to {provider}");
        return Err(Fault::new(Code::PermissionError, why).with_hint(format!(
            "`rung pdpp connect {provider}` asks for access to it"
        )));
    }
    kept.ok_or_else(|| {
        let why = format!(
            "nothing is kept of {provider} in {}",
            cache.path(provider).display()
        );
        Fault::new(Code::NotFound, why).with_hint(format!(
            "`rung pdpp connect {provider}` asks the owner for access"
        ))
    })
}

fn over(provider: &str) -> Fault {
    Fault::new(
        Code::GrantExpired,
        "credential_expired: the access that was kept is over",
    )
    .with_hint(format!(
        "`rung pdpp connect {provider}` asks the owner again"
    ))
}

/// What can be read with what is kept.
pub async fn schema(provider: &str, cached: &Cached) -> Result<Value, Fault> {
    schema_with(&Http::new()?, provider, &cached.credential.access_token).await
}

pub(super) async fn schema_with(http: &Http, provider: &str, token: &str) -> Result<Value, Fault> {
    let said = http
        .get(&format!("{provider}/v1/schema?view=compact"), Some(token))
        .await?;
    if !said.is_success() {
        return Err(rejected(&said));
    }
    if is_owner(&said.body) {
        return Err(owner_token(&format!("the credential for {provider}")));
    }
    Ok(said.body)
}

fn rejected(said: &Said) -> Fault {
    let code = match said.status {
        401 => Code::AuthenticationError,
        403 if said.error() == Some("grant_revoked") => Code::GrantRevoked,
        403 if said.error() == Some("grant_expired") => Code::GrantExpired,
        403 => Code::InsufficientScope,
        _ => Code::SourceFailed,
    };
    Fault::new(
        code,
        format!("the provider does not take the token: {}", said.why()),
    )
    .with_hint("`rung pdpp connect` asks the owner again")
}

/// Gives back what was given: nobody can read with it any more.
pub async fn revoke(cached: &Cached) -> Result<(), Fault> {
    let provider = cached.provider_url.clone().unwrap_or_default();
    let issuer = cached.authorization_server.as_ref().unwrap_or(&provider);
    let grant = cached.credential.grant_id.as_deref();
    let grant = grant.ok_or_else(|| broken("the grant's id is not known"))?;
    let token = cached.credential.access_token.as_str();
    let http = Http::new()?;
    // A grant that is over is no hindrance, but an owner's token could end any grant.
    if let Err(fault) = schema_with(&http, &provider, token).await
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
    // What was taken back already is what is wanted.
    if said.is_success() || said.error() == Some("grant_revoked") {
        return Ok(());
    }
    Err(rejected(&said))
}
