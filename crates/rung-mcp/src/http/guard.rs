//! Admission checks of HTTP requests: Host, Origin and bearer token.
//!
//! A browser lets any page send requests here, and lets an attacker's host name resolve to this address (DNS
//! rebinding). Only listed Host and Origin values are accepted; every other request is rejected.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use rung_auth::Permit;
use rung_tool::BoxFuture;
use serde_json::json;

use super::PATH;

/// Authenticates HTTP callers.
pub trait Authenticator: Send + Sync {
    /// Returns the permit of a request with this bearer token, or with none.
    fn authenticate<'a>(
        &'a self,
        bearer: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Permit, AuthError>>;

    /// Returns true if the permit would still be granted. Called whenever a stream is polled, so it must not block; a
    /// recent answer is good enough.
    fn is_still_valid(&self, permit: &Permit) -> bool;

    /// Returns true if the caller may read the metrics of all callers.
    fn may_read_metrics(&self, _permit: &Permit) -> bool {
        true
    }

    /// Returns true if the caller gets no session, even with a legacy version.
    fn is_stateless(&self, _permit: &Permit) -> bool {
        false
    }

    /// Returns headers for every response to the caller.
    fn response_headers(&self, _permit: &Permit) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Why a request is not authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthError {
    /// A token is required, and none was sent.
    MissingToken,
    InvalidToken,
    /// The token is valid, but not for this endpoint.
    WrongEndpoint,
    /// The token was valid, but all that it granted is revoked.
    GrantRevoked,
    /// The token could not be checked.
    Unavailable(String),
}

/// Checks the Host, Origin and token of every request.
pub struct HttpGuard {
    hosts: Vec<String>,
    origins: Vec<String>,
    proxies: Vec<IpAddr>,
    public_url: Option<String>,
    icon: Option<&'static str>,
    scope: Option<&'static str>,
    authenticator: Box<dyn Authenticator>,
}

/// Which check rejected a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejected {
    /// The Host is not one of this server's.
    Host,
    /// The Origin is not allowed.
    Origin,
}

impl Rejected {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Origin => "origin",
        }
    }

    pub(super) fn into_response(self) -> Response {
        let (status, kind, code, message, hint) = match self {
            Self::Host => (
                StatusCode::MISDIRECTED_REQUEST,
                "api_error",
                "misdirected_request",
                "this server does not serve this Host",
                "start the server with `--allow-host NAME` to allow it",
            ),
            Self::Origin => (
                StatusCode::FORBIDDEN,
                "permission_error",
                "permission_error",
                "this server does not serve pages from this Origin",
                "start the server with `--allow-origin URL` to allow them",
            ),
        };
        let body = json!({"error": {"type": kind, "code": code, "message": message, "hint": hint}});
        super::json_response(status, body.to_string())
    }
}

/// Headers in which a proxy describes the request that it received.
const FORWARDED_HEADERS: [&str; 4] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];

/// Names of this machine that no other machine can claim.
const LOOPBACK_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl HttpGuard {
    /// Creates the guard of a listener at `address`, which accepts these hosts and origins as well.
    pub fn new(
        address: SocketAddr,
        hosts: Vec<String>,
        origins: Vec<String>,
        admission: impl Authenticator + 'static,
    ) -> Self {
        let mut known: Vec<String> = LOOPBACK_HOSTS.map(str::to_owned).to_vec();
        if !address.ip().is_unspecified() {
            known.push(match address {
                SocketAddr::V4(address) => address.ip().to_string(),
                SocketAddr::V6(address) => format!("[{}]", address.ip()),
            });
        }
        known.extend(hosts.into_iter().map(|host| host.to_ascii_lowercase()));
        let origins = origins
            .into_iter()
            .map(|origin| origin.trim_end_matches('/').to_ascii_lowercase());
        Self {
            hosts: known,
            origins: origins.collect(),
            proxies: Vec::new(),
            public_url: None,
            icon: None,
            scope: None,
            authenticator: Box::new(admission),
        }
    }

    /// Sets the server's public URL, and accepts its host and origin.
    #[must_use]
    pub fn with_public_url(mut self, public_url: &str) -> Self {
        let host = public_url
            .split_once("://")
            .map_or(public_url, |(_, host)| host);
        let host = host.split('/').next().unwrap_or_default();
        self.hosts.push(host.to_ascii_lowercase());
        self.origins
            .push(public_url.trim_end_matches('/').to_ascii_lowercase());
        self.public_url = Some(public_url.trim_end_matches('/').to_owned());
        self
    }

    /// Trusts the forwarding headers of these proxies.
    #[must_use]
    pub fn with_trusted_proxies(mut self, proxies: Vec<IpAddr>) -> Self {
        self.proxies = proxies;
        self
    }

    /// Applies the forwarding headers of a trusted proxy, and removes those of any other peer.
    pub(super) fn apply_forwarded(&self, peer: IpAddr, headers: &mut HeaderMap) {
        if !FORWARDED_HEADERS
            .iter()
            .any(|name| headers.contains_key(*name))
        {
            return;
        }
        if self.proxies.contains(&peer.to_canonical()) {
            // The first of several values is the one that the client used.
            let first = |name: &str| {
                let told = headers.get(name)?.to_str().ok()?;
                HeaderValue::from_str(told.split(',').next()?.trim()).ok()
            };
            let (host, proto) = (first("x-forwarded-host"), first("x-forwarded-proto"));
            if let Some(host) = host {
                headers.insert(header::HOST, host);
            }
            headers.remove("x-forwarded-host");
            if let Some(proto) = proto {
                headers.insert("x-forwarded-proto", proto);
            }
        } else {
            for name in FORWARDED_HEADERS {
                headers.remove(name);
            }
        }
    }

    /// Returns the server's origin as the client sees it. The Host must have been checked.
    pub(super) fn public_origin(&self, headers: &HeaderMap) -> String {
        if let Some(url) = &self.public_url {
            return url.clone();
        }
        let host = single_header(headers, &header::HOST).unwrap_or("localhost");
        let tls = headers
            .get("x-forwarded-proto")
            .is_some_and(|proto| proto == "https");
        format!("{}://{host}", if tls { "https" } else { "http" })
    }

    /// Checks the Host and Origin headers, and the authority in the request line, if there is one.
    pub(super) fn check_host_and_origin(
        &self,
        headers: &HeaderMap,
        named: Option<&str>,
    ) -> Result<(), Rejected> {
        let host = single_header(headers, &header::HOST).unwrap_or_default();
        // An authority in the request line must be allowed as well.
        if !self.is_allowed_host(host) || !named.is_none_or(|named| self.is_allowed_host(named)) {
            return Err(Rejected::Host);
        }
        if !headers.contains_key(header::ORIGIN) {
            return Ok(());
        }
        let origin = single_header(headers, &header::ORIGIN).unwrap_or_default();
        if self.is_allowed_origin(origin) {
            return Ok(());
        }
        Err(Rejected::Origin)
    }

    fn is_allowed_host(&self, host: &str) -> bool {
        let matches = |known: &str| {
            host.eq_ignore_ascii_case(known) || without_port(host).eq_ignore_ascii_case(known)
        };
        self.hosts.iter().any(|known| matches(known))
    }

    fn is_allowed_origin(&self, origin: &str) -> bool {
        if self
            .origins
            .iter()
            .any(|known| origin.eq_ignore_ascii_case(known))
        {
            return true;
        }
        let host = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        host.is_some_and(|host| {
            LOOPBACK_HOSTS
                .iter()
                .any(|own| without_port(host).eq_ignore_ascii_case(own))
        })
    }

    pub(super) fn may_read_metrics(&self, permit: &Permit) -> bool {
        self.authenticator.may_read_metrics(permit)
    }

    /// Sets the path of an icon, which every response of the MCP endpoint names, authenticated or not.
    #[must_use]
    pub fn with_icon(mut self, path: &'static str) -> Self {
        self.icon = Some(path);
        self
    }

    /// Sets the OAuth scope that the response to a request without a token names.
    #[must_use]
    pub fn with_scope(mut self, scope: &'static str) -> Self {
        self.scope = Some(scope);
        self
    }

    pub(super) fn is_stateless(&self, permit: &Permit) -> bool {
        self.authenticator.is_stateless(permit)
    }

    pub(super) fn response_headers(
        &self,
        permit: &Permit,
    ) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<> {
        let said = self.authenticator.response_headers(permit).into_iter();
        said.filter_map(|(name, value)| {
            let value = HeaderValue::from_str(&value).ok()?;
            Some((HeaderName::from_static(name), value))
        })
    }

    /// Returns the Link header that names the icon.
    pub(super) fn icon_link(&self, origin: &str) -> Option<HeaderValue> {
        let path = self.icon?;
        let link = format!("<{origin}{path}>; rel=\"icon\"; type=\"image/svg+xml\"");
        HeaderValue::from_str(&link).ok()
    }

    /// Returns true if a stream of this permit may continue.
    pub(super) fn is_still_valid(&self, permit: &Permit) -> bool {
        self.authenticator.is_still_valid(permit)
    }

    /// Checks the bearer token of a request, from its Authorization header.
    pub(super) async fn authenticate(&self, headers: &HeaderMap) -> Result<Permit, AuthError> {
        if !headers.contains_key(header::AUTHORIZATION) {
            return self.authenticator.authenticate(None).await;
        }
        let shown =
            single_header(headers, &header::AUTHORIZATION).ok_or(AuthError::InvalidToken)?;
        let (scheme, token) = shown.split_once(' ').ok_or(AuthError::InvalidToken)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(AuthError::InvalidToken);
        }
        self.authenticator.authenticate(Some(token.trim())).await
    }
}

/// Returns the value of a header that occurs once and is text.
pub(super) fn single_header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut all = headers.get_all(name).iter();
    let (first, more) = (all.next()?, all.next());
    first.to_str().ok().filter(|_| more.is_none())
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Returns the response to a request that is not authenticated, which names where to get a token.
pub(super) fn auth_error_response(door: &HttpGuard, origin: &str, denied: &AuthError) -> Response {
    let (status, error, hint) = match denied {
        AuthError::MissingToken => (
            StatusCode::UNAUTHORIZED,
            None,
            if door.scope.is_some() {
                "request access from the owner as resource_metadata describes (MCP clients do so by themselves), or send a token from `rung token new`"
            } else {
                "send a token from `rung token new`, as Authorization: Bearer TOKEN"
            },
        ),
        AuthError::InvalidToken => (
            StatusCode::UNAUTHORIZED,
            Some("error=\"invalid_token\""),
            "request a new token from the owner",
        ),
        AuthError::WrongEndpoint => (
            StatusCode::FORBIDDEN,
            None,
            "this token has another purpose: `rung pdpp connect` requests a token for agents, `rung token new --grant FILE` creates one for what the file lists",
        ),
        AuthError::GrantRevoked => (
            StatusCode::FORBIDDEN,
            None,
            "the owner revoked all grants of this token: request access again",
        ),
        AuthError::Unavailable(why) => {
            tracing::error!(%why, "the server cannot authenticate callers now");
            (StatusCode::SERVICE_UNAVAILABLE, None, "try again later")
        }
    };
    let kind = match status {
        StatusCode::FORBIDDEN => "permission_error",
        _ => "authentication_error",
    };
    let code = match denied {
        AuthError::GrantRevoked => "package_revoked",
        _ => kind,
    };
    let mut body =
        json!({"error": {"type": kind, "code": code, "message": "access is denied", "hint": hint}});
    // Without a scope no token can be requested, so no metadata is named.
    let metadata = format!("{origin}/.well-known/oauth-protected-resource{PATH}");
    let asked_for = door.scope.map(|scope| (metadata, scope));
    let is_challenge = status == StatusCode::UNAUTHORIZED;
    if let Some((metadata, _)) = asked_for.as_ref().filter(|_| is_challenge) {
        body["error"]["resource_metadata"] = json!(metadata);
    }
    let mut response = super::json_response(status, body.to_string());
    if is_challenge {
        let asked_for = asked_for.map(|(metadata, scope)| {
            format!("resource_metadata=\"{metadata}\", scope=\"{scope}\"")
        });
        let said = [error.map(str::to_owned), asked_for];
        let said: Vec<String> = said.into_iter().flatten().collect();
        let challenge = format!("Bearer {}", said.join(", "));
        let challenge = challenge.trim_end();
        if let Ok(challenge) = HeaderValue::from_str(challenge) {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    struct AllowAll;

    impl Authenticator for AllowAll {
        fn authenticate<'a>(
            &'a self,
            _: Option<&'a str>,
        ) -> BoxFuture<'a, Result<Permit, AuthError>> {
            Box::pin(async { Ok(Permit::anonymous()) })
        }

        fn is_still_valid(&self, _: &Permit) -> bool {
            true
        }
    }

    fn is_accepted(door: &HttpGuard, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        door.check_host_and_origin(&headers, None).is_ok()
    }

    #[test]
    fn only_known_hosts_and_origins_pass() {
        let hosts = vec!["door.example".to_owned(), "other.example:8080".to_owned()];
        let origins = vec!["https://page.example/".to_owned()];
        let door = HttpGuard::new("127.0.0.1:7663".parse().unwrap(), hosts, origins, AllowAll);
        for host in [
            "127.0.0.1:7663",
            "LOCALHOST",
            "[::1]:1",
            "[::1]",
            "door.example:99",
            "other.example:8080",
        ] {
            assert!(is_accepted(&door, host, None), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "other.example:81",
            "evil.example:7663",
            "localhost:7663:7663",
            "door.example.",
            "user@localhost",
        ] {
            assert!(!is_accepted(&door, host, None), "{host}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "localhost".parse().unwrap());
        assert!(
            door.check_host_and_origin(&headers, Some("evil.example"))
                .is_err()
        );
        assert!(
            door.check_host_and_origin(&headers, Some("127.0.0.1:1"))
                .is_ok()
        );
        for origin in [
            "http://localhost:3000",
            "https://127.0.0.1",
            "http://[::1]:5",
            "https://PAGE.example",
        ] {
            assert!(is_accepted(&door, "localhost", Some(origin)), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://evil.example",
            "http://page.example",
            "https://page.example.evil.example",
            "http://localhost.evil.example",
            "file://localhost",
            "http://localhost@evil.example",
            "localhost",
        ] {
            assert!(!is_accepted(&door, "localhost", Some(origin)), "{origin}");
        }
    }

    #[test]
    fn a_header_that_stands_twice_is_none() {
        let door = HttpGuard::new("0.0.0.0:1".parse().unwrap(), vec![], vec![], AllowAll);
        let mut headers = HeaderMap::new();
        headers.append(header::HOST, "localhost".parse().unwrap());
        headers.append(header::HOST, "localhost".parse().unwrap());
        assert!(door.check_host_and_origin(&headers, None).is_err());
        assert!(
            !is_accepted(&door, "0.0.0.0:1", None),
            "no name at all is no name"
        );
    }
}
