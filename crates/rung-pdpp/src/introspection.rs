//! Token introspection (RFC 7662) at a remote authorization server. An unexpected response never admits a token.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::{Client, Url, redirect};
use rung_auth::Secret;
use rung_records::{Bearer, Error, Records};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Positive results are cached for at most this long; negative results are not cached.
const MAX_CACHE_AGE: Duration = Duration::from_mins(1);
/// Timeout of one introspection request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a response.
const MAX_BYTES: usize = 1024 * 1024;
/// Cached results.
const MAX_CACHED: usize = 10_000;

/// An introspection client: the remote endpoint and the credentials for it.
pub struct RemoteIntrospection {
    issuer: String,
    endpoint: Url,
    client_id: String,
    secret: Secret<String>,
    client: Client,
    cache: Mutex<HashMap<[u8; 32], (Instant, Value)>>,
}

impl RemoteIntrospection {
    /// Returns a client of the authorization server at `issuer`, with the credentials that it issued to this resource server.
    pub fn new(issuer: &str, name: String, secret: Secret<String>) -> Result<Self, Error> {
        let wrong = |why: String| Error::invalid_request("as-url", why);
        let issuer = issuer.trim_end_matches('/').to_owned();
        let endpoint = Url::parse(&format!("{issuer}/introspect"));
        let endpoint = endpoint.map_err(|error| wrong(format!("{issuer}: {error}")))?;
        let loopback = matches!(
            endpoint.host_str(),
            Some("127.0.0.1" | "localhost" | "[::1]")
        );
        if endpoint.scheme() != "https" && !loopback {
            return Err(wrong(format!(
                "{issuer} must be https, because tokens are sent to it"
            )));
        }
        let _first_one_counts = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .timeout(REQUEST_TIMEOUT)
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Self {
            issuer,
            endpoint,
            client_id: name,
            secret,
            client,
            cache: Mutex::default(),
        })
    }

    pub(crate) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Returns the bearer of `token`, if the authorization server reports it active.
    pub(crate) fn authenticate(
        &self,
        records: &Records,
        token: &str,
        here: &str,
    ) -> Result<Bearer, Error> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let lock = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock()
            .get(&key)
            .filter(|(until, _)| *until > Instant::now())
            .cloned();
        if let Some((_, told)) = known {
            self.check_issuer_and_audience(&told, here)?;
            return records.authenticate_introspected(token, &told);
        }
        let told = self.introspect(token)?;
        self.check_issuer_and_audience(&told, here)?;
        let bearer = records.authenticate_introspected(token, &told)?;
        let ends = told["exp"]
            .as_i64()
            .map(|end| end - jiff::Timestamp::now().as_second());
        let ends = ends.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
        let believed = ends.map_or(MAX_CACHE_AGE, |ends| ends.min(MAX_CACHE_AGE));
        let mut known = lock();
        known.retain(|_, (until, _)| *until > Instant::now());
        if known.len() < MAX_CACHED {
            known.insert(key, (Instant::now() + believed, told));
        }
        Ok(bearer)
    }

    /// Rejects an active token whose issuer or audience is another.
    fn check_issuer_and_audience(&self, told: &Value, here: &str) -> Result<(), Error> {
        let audience = match &told["aud"] {
            Value::String(one) => one.trim_end_matches('/') == here,
            Value::Array(several) => several.iter().any(|one| one.as_str() == Some(here)),
            _ => false,
        };
        let issuer = told["iss"].as_str().map(|iss| iss.trim_end_matches('/'));
        if told["active"] == true && (issuer != Some(self.issuer.as_str()) || !audience) {
            tracing::warn!(iss = %told["iss"], aud = %told["aud"], "rejected a token for another audience or issuer");
            return Err(Error::TokenUnknown);
        }
        Ok(())
    }

    fn introspect(&self, token: &str) -> Result<Value, Error> {
        let unreachable = |why: &str| {
            tracing::warn!(
                issuer = self.issuer,
                why,
                "the authorization server does not respond"
            );
            Error::Unreachable("the authorization server does not respond".to_owned())
        };
        let body: String = form_urlencoded::Serializer::new(String::new())
            .append_pair("token", token)
            .finish();
        let asking = async {
            let request = self
                .client
                .post(self.endpoint.clone())
                .basic_auth(&self.client_id, Some(self.secret.expose()))
                .header("Content-Type", "application/x-www-form-urlencoded")
                .header("Accept", "application/json")
                .body(body);
            let mut response = request
                .send()
                .await
                .map_err(|_| unreachable("no response"))?;
            if !response.status().is_success() {
                return Err(unreachable(response.status().as_str()));
            }
            let mut told = Vec::new();
            while let Some(piece) = response
                .chunk()
                .await
                .map_err(|_| unreachable("the response is incomplete"))?
            {
                told.extend_from_slice(&piece);
                if told.len() > MAX_BYTES {
                    return Err(unreachable("the response is too long"));
                }
            }
            serde_json::from_slice(&told).map_err(|_| unreachable("the response is not valid JSON"))
        };
        tokio::runtime::Handle::current().block_on(asking)
    }
}
