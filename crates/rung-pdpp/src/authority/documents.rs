//! Client ID metadata documents: clients whose id is the URL of their metadata.
//!
//! The URL is untrusted, so nothing is fetched that only this machine or its network can reach (SSRF): the host is resolved here,
//! all its addresses must be on the public internet, and the connection is made to the address that was checked.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::{Client, Url, redirect};
use rung_fault::Code;
use rung_records::Error;
use rung_records::authority::ClientMetadata;
use serde_json::Value;

/// Bytes of a document, at most.
const MAX_BYTES: usize = 64 * 1024;
/// Timeout of a fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a document is cached.
const CACHE_TTL: Duration = Duration::from_mins(5);
/// Cached documents, at most.
const MAX_CACHED: usize = 256;

/// Concurrent fetches, at most.
const MAX_CONCURRENT_FETCHES: usize = 8;
/// How long a failure is cached.
const FAILURE_TTL: Duration = Duration::from_secs(30);

/// A cache of metadata documents, and of failures to fetch one.
#[derive(Default)]
pub(crate) struct ClientMetadataDocuments {
    cached: Mutex<HashMap<String, (Instant, Option<ClientMetadata>)>>,
    active_fetches: AtomicUsize,
}

impl ClientMetadataDocuments {
    /// Returns the client whose id is this URL.
    pub(crate) fn find_client(&self, id: &str) -> Result<ClientMetadata, Error> {
        let lock = || self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        match lock().get(id) {
            Some((at, Some(card))) if at.elapsed() < CACHE_TTL => return Ok(card.clone()),
            Some((at, None)) if at.elapsed() < FAILURE_TTL => {
                return Err(invalid_client(
                    "the client metadata document could not be read a moment ago",
                ));
            }
            _ => {}
        }
        let _one = FetchSlot::acquire(&self.active_fetches)?;
        let card = Self::fetch_client(id);
        let mut known = lock();
        known.retain(|_, (at, _)| at.elapsed() < CACHE_TTL);
        if known.len() < MAX_CACHED {
            known.insert(id.to_owned(), (Instant::now(), card.as_ref().ok().cloned()));
        }
        card
    }

    fn fetch_client(id: &str) -> Result<ClientMetadata, Error> {
        let url = parse_client_id_url(id)?;
        let document = Self::fetch_json(url)?;
        if document["client_id"].as_str() != Some(id) {
            return Err(invalid_client(
                "the client metadata document names another client_id",
            ));
        }
        ClientMetadata::parse(id.to_owned(), &document)
    }

    /// Fetches a JSON document from the public internet.
    fn fetch_json(url: Url) -> Result<Value, Error> {
        let unreachable = |why: &str| {
            invalid_client(format!(
                "the client metadata document cannot be read: {why}"
            ))
        };
        let host = url.host_str().unwrap_or_default().to_owned();
        let port = url.port_or_known_default().unwrap_or(443);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let found = (bare, port).to_socket_addrs();
        let found: Vec<SocketAddr> = found
            .map_err(|_| unreachable("the host name does not resolve"))?
            .collect();
        let public = |at: &SocketAddr| is_public(at.ip());
        let Some(first) = found.first().filter(|_| found.iter().all(public)) else {
            return Err(unreachable("the host is not on the public internet"));
        };
        let _first_one_counts = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .timeout(FETCH_TIMEOUT)
            .no_proxy()
            .resolve(&host, *first)
            .build()
            .map_err(|_| unreachable("no TLS"))?;
        let reading = async move {
            let request = client.get(url).header("Accept", "application/json");
            let mut response = request
                .send()
                .await
                .map_err(|_| unreachable("the host does not respond"))?;
            if !response.status().is_success() {
                return Err(unreachable("the host returned an error"));
            }
            let mut body = Vec::new();
            while let Some(piece) = response
                .chunk()
                .await
                .map_err(|_| unreachable("the response is incomplete"))?
            {
                body.extend_from_slice(&piece);
                if body.len() > MAX_BYTES {
                    return Err(unreachable("the document is too long"));
                }
            }
            serde_json::from_slice(&body).map_err(|_| unreachable("the document is not valid JSON"))
        };
        tokio::runtime::Handle::current().block_on(reading)
    }
}

/// A slot for one fetch. The slots are few because the URL, and so its latency, is untrusted.
struct FetchSlot<'a>(&'a AtomicUsize);

impl<'a> FetchSlot<'a> {
    fn acquire(count: &'a AtomicUsize) -> Result<Self, Error> {
        let reading = Self(count);
        if count.fetch_add(1, Ordering::Relaxed) < MAX_CONCURRENT_FETCHES {
            return Ok(reading);
        }
        let why = "too many client metadata documents are being fetched: try again in a moment";
        Err(Error::invalid_with_code(Code::SlowDown, "client_id", why))
    }
}

impl Drop for FetchSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn invalid_client(why: impl Into<String>) -> Error {
    Error::invalid_with_code(Code::InvalidClient, "client_id", why)
}

fn parse_client_id_url(id: &str) -> Result<Url, Error> {
    let url = Url::parse(id).map_err(|_| invalid_client("client_id is not a valid URL"))?;
    let sound = url.scheme() == "https"
        && url.username().is_empty()
        && url.password().is_none()
        && url.fragment().is_none()
        && url.port().is_none()
        && url.path().len() > 1
        && !url.path().split('/').any(|part| matches!(part, "." | ".."))
        && url.as_str() == id
        && id.len() <= 2_048;
    if sound {
        return Ok(url);
    }
    Err(invalid_client(
        "a client_id that is a URL must be https, with a path and without credentials, query or fragment",
    ))
}

/// True if an address is on the public internet.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => {
            if let Some(ip) = ip.to_ipv4_mapped().or_else(|| embedded_v4(ip)) {
                return is_public_v4(ip);
            }
            let first = ip.segments()[0];
            // Global unicast, except the documentation prefix.
            (0x2000..0x4000).contains(&first) && !(first == 0x2001 && ip.segments()[1] == 0xdb8)
        }
    }
}

/// Returns the IPv4 address embedded in a 6to4 or NAT64 address.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = ip.segments();
    let of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        [0x2002, high, low, ..] | [0x64, 0xff9b, .., high, low] => Some(of(high, low)),
        _ => None,
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    !(ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_broadcast()
        || ip.is_documentation()
        || ip.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (18..20).contains(&b))
        || (a == 192 && b == 0 && c == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_fetched_that_is_not_public() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001:db8::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in [
            "1.1.1.1",
            "93.184.216.34",
            "2606:4700::1111",
            "64:ff9b::101:101",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn an_address_of_an_application_is_plain() {
        assert!(parse_client_id_url("https://app.example/client.json").is_ok());
        for bad in [
            "http://app.example/client.json",
            "https://app.example/",
            "https://app.example",
            "https://user@app.example/c",
            "https://app.example/c#f",
            "https://app.example/a/../c",
            "HTTPS://app.example/c",
            "https://app.example:22/c",
        ] {
            assert!(parse_client_id_url(bad).is_err(), "{bad}");
        }
        let refused = ClientMetadataDocuments::default()
            .find_client("https://127.0.0.1/c")
            .unwrap_err();
        assert!(refused.to_string().contains("public"), "{refused}");
    }
}
