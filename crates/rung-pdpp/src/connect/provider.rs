//! A provider's HTTP endpoints and metadata. Endpoint URLs in its metadata must be HTTPS, loopback or same-origin; redirects are
//! not followed.

use std::time::Duration;

use reqwest::{Client, Method, Url, redirect};
use rung_fault::{Code, Fault};
use serde_json::Value;

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a response, at most.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The status and the JSON body of a response.
pub(super) struct EndpointResponse {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl EndpointResponse {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the error code, of an OAuth error or of the provider's own form.
    pub(super) fn error_code(&self) -> Option<&str> {
        self.body["error"]
            .as_str()
            .or_else(|| self.body["error"]["code"].as_str())
    }

    /// Returns the status, the error code and the provider's message, in at most 500 bytes.
    pub(super) fn reason(&self) -> String {
        let told = ["error_description", "message"].iter().find_map(|name| {
            self.body[*name]
                .as_str()
                .or_else(|| self.body["error"][*name].as_str())
        });
        let code = self.error_code().unwrap_or("no reason");
        let told = told.map(|told| format!(": {told}")).unwrap_or_default();
        rung_ladder::head(&format!("status {}, {code}{told}", self.status), 500).to_owned()
    }
}

/// The HTTP client for providers.
pub(super) struct HttpClient(Client);

impl HttpClient {
    pub(super) fn new() -> Result<Self, Fault> {
        let _first_one_counts = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            // Requests carry secrets, which must not follow a redirect.
            .redirect(redirect::Policy::none())
            .timeout(REQUEST_TIMEOUT)
            .user_agent(concat!("rung/", env!("CARGO_PKG_VERSION")))
            .build();
        let failed = |error: reqwest::Error| Fault::new(Code::Internal, error.to_string());
        client.map(Self).map_err(failed)
    }

    pub(super) async fn get(
        &self,
        url: &str,
        bearer: Option<&str>,
    ) -> Result<EndpointResponse, Fault> {
        self.send(Method::GET, url, bearer, None).await
    }

    pub(super) async fn post(
        &self,
        url: &str,
        bearer: Option<&str>,
        body: &Value,
    ) -> Result<EndpointResponse, Fault> {
        let body = ("application/json", body.to_string());
        self.send(Method::POST, url, bearer, Some(body)).await
    }

    pub(super) async fn post_form(
        &self,
        url: &str,
        pairs: &[(&str, &str)],
    ) -> Result<EndpointResponse, Fault> {
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
    ) -> Result<EndpointResponse, Fault> {
        let failed = |why: String| {
            Fault::new(Code::SourceUnavailable, format!("{url}: {why}"))
                .with_hint("check that the provider runs and that its URL is right")
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
            // The fault names the URL already.
            failed(describe_failure(&error))
        })?;
        let status = response.status().as_u16();
        let mut bytes = Vec::new();
        while let Some(piece) = response
            .chunk()
            .await
            .map_err(|error| failed(describe_failure(&error)))?
        {
            bytes.extend_from_slice(&piece);
            if bytes.len() > MAX_BYTES {
                return Err(failed("the response is too long".to_owned()));
            }
        }
        Ok(EndpointResponse {
            status,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        })
    }
}

/// Describes why a request failed, such as `tcp connect error: connection refused`. Leaves out the URL, which may hold
/// personal data.
pub(crate) fn describe_failure(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no response in time".to_owned();
    }
    let mut causes: Vec<String> = Vec::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let text = error.to_string();
        // The operating system's number and the layer of the HTTP client say nothing more.
        let text = text.split(" (os error").next().unwrap_or_default();
        let mut letters = text.chars();
        let text: String = match letters.next() {
            Some(first) => first.to_lowercase().chain(letters).collect(),
            None => String::new(),
        };
        if !text.starts_with("client error") && causes.last() != Some(&text) {
            causes.push(text);
        }
        cause = error.source();
    }
    if causes.is_empty() {
        causes.push("the connection broke".to_owned());
    }
    rung_ladder::head(&causes.join(": "), 500).to_owned()
}

/// Normalizes a provider's URL, for storing and comparing: adds a missing scheme (http for loopback, else https) and removes
/// credentials, query, fragment and trailing slashes.
pub fn normalize_provider_url(given: &str) -> Result<String, Fault> {
    let wrong = |why: &str| {
        let given = rung_ladder::head(given, 200);
        Fault::new(
            Code::InvalidArguments,
            format!("{given:?} is not the URL of a provider: {why}"),
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
        return Err(wrong("the scheme must be http or https"));
    }
    let _possible = url.set_username("").and_then(|()| url.set_password(None));
    url.set_query(None);
    url.set_fragment(None);
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// Resolves a URL that may be relative to the provider's. Rejects one that is neither HTTPS, loopback nor same-origin HTTP.
pub(super) fn resolve_endpoint(base: &str, given: &str) -> Result<String, Fault> {
    let joined = Url::parse(&format!("{base}/")).and_then(|base| base.join(given));
    let url = joined.map_err(|error| invalid_response(format!("{given}: {error}")))?;
    let loopback = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
    let own = Url::parse(base).is_ok_and(|base| base.origin() == url.origin());
    let plain = url.scheme() == "http" && (loopback || own);
    if url.scheme() != "https" && !plain {
        return Err(invalid_response(format!(
            "{url} is neither https, nor on this machine, nor on the provider's own origin"
        )));
    }
    Ok(url.as_str().to_owned())
}

/// Returns the fault for a provider that sent invalid data.
pub(super) fn invalid_response(why: impl Into<String>) -> Fault {
    Fault::new(Code::SourceFailed, why.into())
        .with_hint("report this to the operator of the provider")
}

/// The endpoints of a provider's authorization server.
pub(super) struct ProviderMetadata {
    pub(super) issuer: String,
    pub(super) agent_connect_endpoint: String,
    pub(super) registration_endpoint: Option<String>,
    pub(super) par_endpoint: Option<String>,
}

/// Reads the metadata of a provider and of its authorization server.
pub(super) async fn discover(http: &HttpClient, provider: &str) -> Result<ProviderMetadata, Fault> {
    let resource = fetch_metadata(http, provider, "oauth-protected-resource").await?;
    if let Some(told) = resource["resource"].as_str()
        && normalize_provider_url(told)? != provider
    {
        return Err(invalid_response(format!(
            "{provider} identifies itself as {told}"
        )));
    }
    let discovery = &resource["pdpp_agent_discovery"];
    if discovery["cli"]["no_owner_token"] == false {
        return Err(invalid_response(
            "connect_not_supported: the provider requires an owner token, which `rung pdpp connect` never sends",
        ));
    }
    let issuer = resource["authorization_servers"][0]
        .as_str()
        .or_else(|| resource["authorization_server"].as_str())
        .unwrap_or(provider);
    let issuer = normalize_provider_url(issuer)?;
    let server = fetch_metadata(http, &issuer, "oauth-authorization-server").await?;
    let told = server["issuer"]
        .as_str()
        .map(normalize_provider_url)
        .transpose()?;
    if told.as_ref() != Some(&issuer) {
        let told = told.unwrap_or_default();
        return Err(invalid_response(format!(
            "the authorization server {issuer} identifies itself as {told:?}"
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
    let endpoint = endpoint.ok_or_else(|| {
        invalid_response("the authorization server's metadata has no agent-connect endpoint")
    })?;
    let modes = server["pdpp_registration_modes_supported"].as_array();
    let dynamic = modes.is_none_or(|modes| modes.iter().any(|mode| mode == "dynamic"));
    let at = |name: &str| -> Result<Option<String>, Fault> {
        server[name]
            .as_str()
            .map(|url| resolve_endpoint(&issuer, url))
            .transpose()
    };
    Ok(ProviderMetadata {
        agent_connect_endpoint: resolve_endpoint(&issuer, endpoint)?,
        registration_endpoint: at("registration_endpoint")?.filter(|_| dynamic),
        par_endpoint: at("pushed_authorization_request_endpoint")?,
        issuer,
    })
}

async fn fetch_metadata(http: &HttpClient, base: &str, name: &str) -> Result<Value, Fault> {
    let url = format!("{base}/.well-known/{name}");
    let said = http.get(&url, None).await?;
    if !said.is_success() || !said.body.is_object() {
        let why = format!("{url}: {}", said.reason());
        return Err(Fault::new(Code::SourceFailed, why)
            .with_hint("check that this is the URL of a PDPP provider"));
    }
    Ok(said.body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_endpoints_of_the_provider_are_resolved() {
        let at = |base: &str, given: &str| resolve_endpoint(base, given).ok();
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
            assert_eq!(normalize_provider_url(given).unwrap(), kept);
        }
        for bad in ["", "ftp://x", "https://", "http://[", "file:///etc/passwd"] {
            assert!(normalize_provider_url(bad).is_err(), "{bad}");
        }
    }
}
