//! An authorization server elsewhere: every token is asked about there, and whatever is odd about the answer is a no.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::{Client, Url, redirect};
use rung_auth::Secret;
use rung_records::{Bearer, Error, Records};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// How long a yes is believed, at most. A no is never remembered.
const BELIEVED: Duration = Duration::from_mins(1);
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer.
const MAX_BYTES: usize = 1024 * 1024;
/// Answers that are remembered.
const MAX_KNOWN: usize = 10_000;

/// Where tokens are asked about, and as whom.
pub struct Foreign {
    issuer: String,
    endpoint: Url,
    name: String,
    secret: Secret<String>,
    client: Client,
    known: Mutex<HashMap<[u8; 32], (Instant, Value)>>,
}

impl Foreign {
    /// The authorization server at `issuer`, asked with the credentials that it gave us.
    pub fn new(issuer: &str, name: String, secret: Secret<String>) -> Result<Self, Error> {
        let wrong = |why: String| Error::invalid("as-url", why);
        let issuer = issuer.trim_end_matches('/').to_owned();
        let endpoint = Url::parse(&format!("{issuer}/introspect"));
        let endpoint = endpoint.map_err(|error| wrong(format!("{issuer}: {error}")))?;
        let loopback = matches!(
            endpoint.host_str(),
            Some("127.0.0.1" | "localhost" | "[::1]")
        );
        if endpoint.scheme() != "https" && !loopback {
            return Err(wrong(format!(
                "{issuer}: tokens are sent there, so it must be https"
            )));
        }
        let _first_one_counts = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .timeout(PATIENCE)
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Self {
            issuer,
            endpoint,
            name,
            secret,
            client,
            known: Mutex::default(),
        })
    }

    pub(crate) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Whoever carries this token, if the authorization server says so.
    pub(crate) fn admit(
        &self,
        records: &Records,
        token: &str,
        here: &str,
    ) -> Result<Bearer, Error> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock()
            .get(&key)
            .filter(|(until, _)| *until > Instant::now())
            .cloned();
        if let Some((_, told)) = known {
            self.check(&told, here)?;
            return records.admit_introspected(token, &told);
        }
        let told = self.ask(token)?;
        self.check(&told, here)?;
        let bearer = records.admit_introspected(token, &told)?;
        let ends = told["exp"]
            .as_i64()
            .map(|end| end - jiff::Timestamp::now().as_second());
        let ends = ends.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
        let believed = ends.map_or(BELIEVED, |ends| ends.min(BELIEVED));
        let mut known = lock();
        known.retain(|_, (until, _)| *until > Instant::now());
        if known.len() < MAX_KNOWN {
            known.insert(key, (Instant::now() + believed, told));
        }
        Ok(bearer)
    }

    /// Refuses what is said of a token that is for elsewhere, or said by another.
    fn check(&self, told: &Value, here: &str) -> Result<(), Error> {
        let audience = match &told["aud"] {
            Value::String(one) => one.trim_end_matches('/') == here,
            Value::Array(several) => several.iter().any(|one| one.as_str() == Some(here)),
            _ => false,
        };
        let issuer = told["iss"].as_str().map(|iss| iss.trim_end_matches('/'));
        if told["active"] == true && (issuer != Some(self.issuer.as_str()) || !audience) {
            tracing::warn!(iss = %told["iss"], aud = %told["aud"], "a token that is for elsewhere");
            return Err(Error::TokenUnknown);
        }
        Ok(())
    }

    fn ask(&self, token: &str) -> Result<Value, Error> {
        let unreachable = |why: &str| {
            tracing::warn!(
                issuer = self.issuer,
                why,
                "the authorization server does not answer"
            );
            Error::Unreachable("the authorization server does not answer".to_owned())
        };
        let body: String = form_urlencoded::Serializer::new(String::new())
            .append_pair("token", token)
            .finish();
        let asking = async {
            let request = self
                .client
                .post(self.endpoint.clone())
                .basic_auth(&self.name, Some(self.secret.expose()))
                .header("Content-Type", "application/x-www-form-urlencoded")
                .header("Accept", "application/json")
                .body(body);
            let mut response = request.send().await.map_err(|_| unreachable("no answer"))?;
            if !response.status().is_success() {
                return Err(unreachable(response.status().as_str()));
            }
            let mut told = Vec::new();
            while let Some(piece) = response
                .chunk()
                .await
                .map_err(|_| unreachable("it broke off"))?
            {
                told.extend_from_slice(&piece);
                if told.len() > MAX_BYTES {
                    return Err(unreachable("too long an answer"));
                }
            }
            serde_json::from_slice(&told).map_err(|_| unreachable("no JSON"))
        };
        tokio::runtime::Handle::current().block_on(asking)
    }
}
