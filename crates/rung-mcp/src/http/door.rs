//! Who is let in: by which name we were called, from which page, with which token.
//!
//! A browser lets any page send requests here, and lets a page's owner name our address as their own. The Host and
//! Origin headers tell; what they may say is listed, and everything else is turned away.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use rung_auth::Permit;
use rung_tool::Pending;
use serde_json::json;

use super::PATH;

/// Says who may come in.
pub trait Admission: Send + Sync {
    /// The permit of whoever shows this token, or none.
    fn admit<'a>(&'a self, bearer: Option<&'a str>) -> Pending<'a, Result<Permit, Denied>>;

    /// Whether somebody who was let in before would be let in now. Asked whenever a stream has something to say, which
    /// does not wait: what was known a moment ago will do.
    fn still_admits(&self, permit: &Permit) -> bool;

    /// Whether somebody who was let in may see how much everybody does here.
    fn may_watch(&self, _permit: &Permit) -> bool {
        true
    }

    /// Whether every request of theirs stands for itself, in the legacy era too.
    fn is_stateless(&self, _permit: &Permit) -> bool {
        false
    }

    /// What every answer to them says of what they came with, as headers.
    fn says(&self, _permit: &Permit) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Why somebody is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// They showed nothing, and something is needed.
    NoToken,
    /// What they showed is not valid.
    BadToken,
    /// What they showed is valid elsewhere, and must not be shown here.
    NotHere,
    /// What they showed was good once: all that it was for has been taken back.
    Over,
    /// It could not be found out.
    Broken(String),
}

/// The door.
pub struct Door {
    hosts: Vec<String>,
    origins: Vec<String>,
    proxies: Vec<IpAddr>,
    public_url: Option<String>,
    icon: Option<&'static str>,
    scope: Option<&'static str>,
    admission: Box<dyn Admission>,
}

/// Why a request goes no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turned {
    /// It came to a name that is not ours.
    Host,
    /// It came from a page that is not ours.
    Origin,
}

impl Turned {
    pub(super) fn why(self) -> &'static str {
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
                "this Host is not served here",
                "`--allow-host NAME` at the start lets it in",
            ),
            Self::Origin => (
                StatusCode::FORBIDDEN,
                "permission_error",
                "permission_error",
                "pages from this Origin are not served here",
                "`--allow-origin URL` at the start lets them in",
            ),
        };
        let body = json!({"error": {"type": kind, "code": code, "message": message, "hint": hint}});
        super::json_response(status, body.to_string())
    }
}

/// What a proxy says of the request that it had.
const FORWARDED: [&str; 4] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];

/// Names of this machine that no other machine can claim.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl Door {
    /// The door of a listener at `address`, which may be called by `hosts` and from pages at `origins` as well.
    pub fn new(
        address: SocketAddr,
        hosts: Vec<String>,
        origins: Vec<String>,
        admission: impl Admission + 'static,
    ) -> Self {
        let mut known: Vec<String> = LOOPBACK.map(str::to_owned).to_vec();
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
            admission: Box::new(admission),
        }
    }

    /// The door of a server that others reach at this address, which its own pages have as well.
    #[must_use]
    pub fn known_as(mut self, public_url: &str) -> Self {
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

    /// The door of a server behind these proxies: what they say of a request is believed.
    #[must_use]
    pub fn behind(mut self, proxies: Vec<IpAddr>) -> Self {
        self.proxies = proxies;
        self
    }

    /// Puts in what a trusted proxy says of the request that it had, and takes out what anybody else says.
    pub(super) fn believe(&self, peer: IpAddr, headers: &mut HeaderMap) {
        if !FORWARDED.iter().any(|name| headers.contains_key(*name)) {
            return;
        }
        if self.proxies.contains(&peer.to_canonical()) {
            // The first of several is the one that the client came to.
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
            for name in FORWARDED {
                headers.remove(name);
            }
        }
    }

    /// Where we are, as the client sees us. The Host has been checked.
    pub(super) fn origin(&self, headers: &HeaderMap) -> String {
        if let Some(url) = &self.public_url {
            return url.clone();
        }
        let host = single(headers, &header::HOST).unwrap_or("localhost");
        let tls = headers
            .get("x-forwarded-proto")
            .is_some_and(|proto| proto == "https");
        format!("{}://{host}", if tls { "https" } else { "http" })
    }

    /// Checks by which name we are called, and from where.
    pub(super) fn check(&self, headers: &HeaderMap, named: Option<&str>) -> Result<(), Turned> {
        let host = single(headers, &header::HOST).unwrap_or_default();
        // An address in the request line counts as much as the header.
        if !self.knows_host(host) || !named.is_none_or(|named| self.knows_host(named)) {
            return Err(Turned::Host);
        }
        if !headers.contains_key(header::ORIGIN) {
            return Ok(());
        }
        let origin = single(headers, &header::ORIGIN).unwrap_or_default();
        if self.knows_origin(origin) {
            return Ok(());
        }
        Err(Turned::Origin)
    }

    fn knows_host(&self, host: &str) -> bool {
        let matches = |known: &str| {
            host.eq_ignore_ascii_case(known) || without_port(host).eq_ignore_ascii_case(known)
        };
        self.hosts.iter().any(|known| matches(known))
    }

    fn knows_origin(&self, origin: &str) -> bool {
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
            LOOPBACK
                .iter()
                .any(|own| without_port(host).eq_ignore_ascii_case(own))
        })
    }

    /// Whether somebody may see how much everybody does here.
    pub(super) fn may_watch(&self, permit: &Permit) -> bool {
        self.admission.may_watch(permit)
    }

    /// With the path of a picture, which is told to whoever comes, let in or not.
    #[must_use]
    pub fn with_icon(mut self, path: &'static str) -> Self {
        self.icon = Some(path);
        self
    }

    /// With what a token has to be for, which is told to whoever has none.
    #[must_use]
    pub fn asking_for(mut self, scope: &'static str) -> Self {
        self.scope = Some(scope);
        self
    }

    pub(super) fn is_stateless(&self, permit: &Permit) -> bool {
        self.admission.is_stateless(permit)
    }

    pub(super) fn says(
        &self,
        permit: &Permit,
    ) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<> {
        let said = self.admission.says(permit).into_iter();
        said.filter_map(|(name, value)| {
            let value = HeaderValue::from_str(&value).ok()?;
            Some((HeaderName::from_static(name), value))
        })
    }

    /// Where the picture is, as a header says it.
    pub(super) fn icon(&self, origin: &str) -> Option<HeaderValue> {
        let path = self.icon?;
        let link = format!("<{origin}{path}>; rel=\"icon\"; type=\"image/svg+xml\"");
        HeaderValue::from_str(&link).ok()
    }

    /// Whether a stream may go on.
    pub(super) fn still_admits(&self, permit: &Permit) -> bool {
        self.admission.still_admits(permit)
    }

    /// The permit of whoever sent these headers.
    pub(super) async fn admit(&self, headers: &HeaderMap) -> Result<Permit, Denied> {
        if !headers.contains_key(header::AUTHORIZATION) {
            return self.admission.admit(None).await;
        }
        let shown = single(headers, &header::AUTHORIZATION).ok_or(Denied::BadToken)?;
        let (scheme, token) = shown.split_once(' ').ok_or(Denied::BadToken)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Denied::BadToken);
        }
        self.admission.admit(Some(token.trim())).await
    }
}

/// A header that stands once and is text.
pub(super) fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
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

/// The answer to whoever is not let in: where to read how to be.
pub(super) fn challenge(door: &Door, origin: &str, denied: &Denied) -> Response {
    let (status, error, hint) = match denied {
        Denied::NoToken => (
            StatusCode::UNAUTHORIZED,
            None,
            if door.scope.is_some() {
                "ask the owner, as resource_metadata says and MCP clients do by themselves; or send a token from `rung token new`"
            } else {
                "send a token from `rung token new`, as Authorization: Bearer TOKEN"
            },
        ),
        Denied::BadToken => (
            StatusCode::UNAUTHORIZED,
            Some("error=\"invalid_token\""),
            "ask the owner for a new token",
        ),
        Denied::NotHere => (
            StatusCode::FORBIDDEN,
            None,
            "this token is for something else: `rung pdpp connect` asks for one for agents, `rung token new` makes one for everything",
        ),
        Denied::Over => (
            StatusCode::FORBIDDEN,
            None,
            "the owner took back everything that was given with this token: ask again",
        ),
        Denied::Broken(why) => {
            tracing::error!(%why, "nobody can be let in");
            (StatusCode::SERVICE_UNAVAILABLE, None, "try again later")
        }
    };
    let kind = match status {
        StatusCode::FORBIDDEN => "permission_error",
        _ => "authentication_error",
    };
    let code = match denied {
        Denied::Over => "package_revoked",
        _ => kind,
    };
    let mut body = json!({"error": {"type": kind, "code": code, "message": "you are not let in", "hint": hint}});
    // Where nothing can be asked for, nothing says how.
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

    struct Anybody;

    impl Admission for Anybody {
        fn admit<'a>(&'a self, _: Option<&'a str>) -> Pending<'a, Result<Permit, Denied>> {
            Box::pin(async { Ok(Permit::anonymous()) })
        }

        fn still_admits(&self, _: &Permit) -> bool {
            true
        }
    }

    fn checked(door: &Door, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        door.check(&headers, None).is_ok()
    }

    #[test]
    fn only_known_hosts_and_origins_pass() {
        let hosts = vec!["door.example".to_owned(), "other.example:8080".to_owned()];
        let origins = vec!["https://page.example/".to_owned()];
        let door = Door::new("127.0.0.1:7663".parse().unwrap(), hosts, origins, Anybody);
        for host in [
            "127.0.0.1:7663",
            "LOCALHOST",
            "[::1]:1",
            "[::1]",
            "door.example:99",
            "other.example:8080",
        ] {
            assert!(checked(&door, host, None), "{host}");
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
            assert!(!checked(&door, host, None), "{host}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "localhost".parse().unwrap());
        assert!(door.check(&headers, Some("evil.example")).is_err());
        assert!(door.check(&headers, Some("127.0.0.1:1")).is_ok());
        for origin in [
            "http://localhost:3000",
            "https://127.0.0.1",
            "http://[::1]:5",
            "https://PAGE.example",
        ] {
            assert!(checked(&door, "localhost", Some(origin)), "{origin}");
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
            assert!(!checked(&door, "localhost", Some(origin)), "{origin}");
        }
    }

    #[test]
    fn a_header_that_stands_twice_is_none() {
        let door = Door::new("0.0.0.0:1".parse().unwrap(), vec![], vec![], Anybody);
        let mut headers = HeaderMap::new();
        headers.append(header::HOST, "localhost".parse().unwrap());
        headers.append(header::HOST, "localhost".parse().unwrap());
        assert!(door.check(&headers, None).is_err());
        assert!(
            !checked(&door, "0.0.0.0:1", None),
            "no name at all is no name"
        );
    }
}
