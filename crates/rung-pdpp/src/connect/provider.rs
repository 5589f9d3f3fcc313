//! A provider: where it is, and what it says of itself. Nothing that it says is followed to another's door.

use std::time::Duration;

use reqwest::{Client, Method, Url, redirect};
use rung_fault::{Code, Fault};
use serde_json::Value;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of an answer.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// An answer: its status and its body.
pub(super) struct Said {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl Said {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// What OAuth or the provider calls the error.
    pub(super) fn error(&self) -> Option<&str> {
        self.body["error"]
            .as_str()
            .or_else(|| self.body["error"]["code"].as_str())
    }

    /// What went wrong, in the provider's words.
    pub(super) fn why(&self) -> String {
        let told = ["error_description", "message"].iter().find_map(|name| {
            self.body[*name]
                .as_str()
                .or_else(|| self.body["error"][*name].as_str())
        });
        let code = self.error().unwrap_or("no reason");
        let told = told.map(|told| format!(": {told}")).unwrap_or_default();
        rung_ladder::head(&format!("status {}, {code}{told}", self.status), 500).to_owned()
    }
}

/// Asks providers.
pub(super) struct Http(Client);

impl Http {
    pub(super) fn new() -> Result<Self, Fault> {
        let _first_one_counts = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            // What is sent carries secrets: it goes where it was meant to go.
            .redirect(redirect::Policy::none())
            .timeout(PATIENCE)
            .user_agent(concat!("rung/", env!("CARGO_PKG_VERSION")))
            .build();
        let failed = |error: reqwest::Error| Fault::new(Code::Internal, error.to_string());
        client.map(Self).map_err(failed)
    }

    pub(super) async fn get(&self, url: &str, bearer: Option<&str>) -> Result<Said, Fault> {
        self.send(Method::GET, url, bearer, None).await
    }

    pub(super) async fn post(
        &self,
        url: &str,
        bearer: Option<&str>,
        body: &Value,
    ) -> Result<Said, Fault> {
        let body = ("application/json", body.to_string());
        self.send(Method::POST, url, bearer, Some(body)).await
    }

    pub(super) async fn form(&self, url: &str, pairs: &[(&str, &str)]) -> Result<Said, Fault> {
        let body: String = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(pairs)
            .finish();
        let body = ("application/x-www-form-urlencoded", body);
        self.send(Method::POST, url, None, Some(body)).await
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        bearer: Option<&str>,
        body: Option<(&str, String)>,
    ) -> Result<Said, Fault> {
        let failed = |why: String| {
            Fault::new(Code::SourceUnavailable, format!("{url}: {why}"))
                .with_hint("see that the provider runs and that the address is right")
        };
        let mut request = self
            .0
            .request(method, url)
            .header("Accept", "application/json");
        if let Some(token) = bearer {
            request = request.bearer_auth(token);
        }
        if let Some((kind, body)) = body {
            request = request.header("Content-Type", kind).body(body);
        }
        let mut response = request.send().await.map_err(|error| {
            // The address is said already, and the cause is what tells.
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            failed(cause.unwrap_or_else(|| error.without_url().to_string()))
        })?;
        let status = response.status().as_u16();
        let mut bytes = Vec::new();
        while let Some(piece) = response
            .chunk()
            .await
            .map_err(|error| failed(error.to_string()))?
        {
            bytes.extend_from_slice(&piece);
            if bytes.len() > MAX_BYTES {
                return Err(failed("the answer is too long".to_owned()));
            }
        }
        Ok(Said {
            status,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        })
    }
}

/// The address of a provider, as it is kept and compared: with a scheme, without what does not belong to it.
pub fn provider_url(given: &str) -> Result<String, Fault> {
    let wrong = |why: &str| {
        let given = rung_ladder::head(given, 200);
        Fault::new(
            Code::InvalidArguments,
            format!("{given:?} is no address of a provider: {why}"),
        )
        .with_hint("write it as https://pdpp.example.com")
    };
    let text = if given.contains("://") {
        given.to_owned()
    } else {
        let own = ["127.0.0.1", "localhost", "[::1]"];
        let here = own.iter().any(|own| {
            let rest = given.strip_prefix(own);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
        });
        format!("{}://{given}", if here { "http" } else { "https" })
    };
    let mut url = Url::parse(&text).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong("it is http or https"));
    }
    let _possible = url.set_username("").and_then(|()| url.set_password(None));
    url.set_query(None);
    url.set_fragment(None);
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// An address that may be relative to the provider's.
pub(super) fn absolute(base: &str, given: &str) -> Result<String, Fault> {
    let joined = Url::parse(&format!("{base}/")).and_then(|base| base.join(given));
    let url = joined.map_err(|error| broken(format!("{given}: {error}")))?;
    let loopback = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
    let own = Url::parse(base).is_ok_and(|base| base.origin() == url.origin());
    let plain = url.scheme() == "http" && (loopback || own);
    if url.scheme() != "https" && !plain {
        return Err(broken(format!("{url}: that is no address to go to")));
    }
    Ok(url.as_str().to_owned())
}

/// The provider says something that cannot be right.
pub(super) fn broken(why: impl Into<String>) -> Fault {
    Fault::new(Code::SourceFailed, why.into()).with_hint("tell whoever runs the provider")
}

/// Where access is asked for, and what that place can do.
pub(super) struct Discovered {
    pub(super) issuer: String,
    pub(super) agent_connect: String,
    pub(super) registration: Option<String>,
    pub(super) pushed: Option<String>,
}

/// Finds out where access to a provider is asked for.
pub(super) async fn discover(http: &Http, provider: &str) -> Result<Discovered, Fault> {
    let resource = metadata(http, provider, "oauth-protected-resource").await?;
    if let Some(told) = resource["resource"].as_str()
        && provider_url(told)? != provider
    {
        return Err(broken(format!("{provider} says that it is {told}")));
    }
    let discovery = &resource["pdpp_agent_discovery"];
    if discovery["cli"]["no_owner_token"] == false {
        return Err(broken(
            "connect_not_supported: it wants an owner's token, which this never sends",
        ));
    }
    let issuer = resource["authorization_servers"][0]
        .as_str()
        .or_else(|| resource["authorization_server"].as_str())
        .unwrap_or(provider);
    let issuer = provider_url(issuer)?;
    let server = metadata(http, &issuer, "oauth-authorization-server").await?;
    let told = server["issuer"].as_str().map(provider_url).transpose()?;
    if told.as_ref() != Some(&issuer) {
        let told = told.unwrap_or_default();
        return Err(broken(format!(
            "the authorization server {issuer} says that it is {told:?}"
        )));
    }
    let endpoint = [
        &server["agent_connect_endpoint"],
        &server["pdpp_agent_connect_endpoint"],
        &server["pdpp_agent_discovery"]["agent_connect_endpoint"],
        &resource["agent_connect_endpoint"],
        &resource["pdpp_agent_connect_endpoint"],
    ];
    let endpoint = endpoint.iter().find_map(|found| found.as_str());
    let endpoint =
        endpoint.ok_or_else(|| broken("it does not say where commands ask for access"))?;
    let modes = server["pdpp_registration_modes_supported"].as_array();
    let dynamic = modes.is_none_or(|modes| modes.iter().any(|mode| mode == "dynamic"));
    let at = |name: &str| -> Result<Option<String>, Fault> {
        server[name]
            .as_str()
            .map(|url| absolute(&issuer, url))
            .transpose()
    };
    Ok(Discovered {
        agent_connect: absolute(&issuer, endpoint)?,
        registration: at("registration_endpoint")?.filter(|_| dynamic),
        pushed: at("pushed_authorization_request_endpoint")?,
        issuer,
    })
}

async fn metadata(http: &Http, base: &str, name: &str) -> Result<Value, Fault> {
    let url = format!("{base}/.well-known/{name}");
    let said = http.get(&url, None).await?;
    if !said.is_success() || !said.body.is_object() {
        let why = format!("{url}: {}", said.why());
        return Err(Fault::new(Code::SourceFailed, why)
            .with_hint("is this the address of a PDPP provider?"));
    }
    Ok(said.body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_what_is_no_page() {
        let at = |base: &str, given: &str| absolute(base, given).ok();
        assert_eq!(
            at("https://a.example", "/x").as_deref(),
            Some("https://a.example/x")
        );
        assert_eq!(
            at("http://127.0.0.1:7", "consent").as_deref(),
            Some("http://127.0.0.1:7/consent")
        );
        assert!(at("http://a.example", "http://a.example/x").is_some());
        for bad in [
            "vscode://localhost/run",
            "javascript:x",
            "file:///etc/passwd",
            "http://b.example/x",
            "http://a.exampl/x",
            "http://a.example:8080/x",
        ] {
            assert_eq!(at("http://a.example", bad), None, "{bad}");
            assert_eq!(at("https://a.example", bad), None, "{bad}");
        }
    }

    #[test]
    fn an_address_is_brought_into_one_form() {
        for (given, kept) in [
            ("pdpp.example.com", "https://pdpp.example.com"),
            ("127.0.0.1:7663", "http://127.0.0.1:7663"),
            ("https://pdpp.example.com/", "https://pdpp.example.com"),
            (
                "https://me:secret@pdpp.example.com/x/?q=1#f",
                "https://pdpp.example.com/x",
            ),
            ("http://127.0.0.1:7663", "http://127.0.0.1:7663"),
        ] {
            assert_eq!(provider_url(given).unwrap(), kept);
        }
        for bad in ["", "ftp://x", "https://", "http://[", "file:///etc/passwd"] {
            assert!(provider_url(bad).is_err(), "{bad}");
        }
    }
}
